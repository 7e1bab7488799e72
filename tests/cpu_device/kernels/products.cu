// wmma products against a plain triple loop, exact because the numbers are small integers.
#include <cstdio>
#include <vector>
#include <mma.h>

using namespace nvcuda;

template <class Type, class Memory, int m, int n, int k, class LayoutA, class LayoutB, class Out>
__global__ void product_kernel(const Memory* a, const Memory* b, const Out* c, Out* d) {
    wmma::fragment<wmma::matrix_a, m, n, k, Type, LayoutA> left;
    wmma::fragment<wmma::matrix_b, m, n, k, Type, LayoutB> right;
    wmma::fragment<wmma::accumulator, m, n, k, Out> sum;
    constexpr bool a_rows = std::is_same<LayoutA, wmma::row_major>::value;
    constexpr bool b_rows = std::is_same<LayoutB, wmma::row_major>::value;
    wmma::load_matrix_sync(left, a, a_rows ? k : m);
    wmma::load_matrix_sync(right, b, b_rows ? n : k);
    wmma::load_matrix_sync(sum, c, n, wmma::mem_row_major);
    for (int i = 0; i < sum.num_elements; ++i)
        sum.x[i] = sum.x[i] + sum.x[i];
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(d, sum, n, wmma::mem_row_major);
}

template <class Type, class Memory, int m, int n, int k, class LayoutA, class LayoutB, class Out>
static int check() {
    Memory *a, *b;
    Out *c, *d;
    cudaMallocManaged(&a, m * k * sizeof(Memory));
    cudaMallocManaged(&b, k * n * sizeof(Memory));
    cudaMallocManaged(&c, m * n * sizeof(Out));
    cudaMallocManaged(&d, m * n * sizeof(Out));
    auto left = [](int i, int j) { return (i * 5 + j * 3) % 7 - 3; };
    auto right = [](int i, int j) { return (i * 2 + j * 11) % 9 - 4; };
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < k; ++j)
            a[std::is_same<LayoutA, wmma::row_major>::value ? i * k + j : j * m + i] =
                static_cast<float>(left(i, j));
    for (int i = 0; i < k; ++i)
        for (int j = 0; j < n; ++j)
            b[std::is_same<LayoutB, wmma::row_major>::value ? i * n + j : j * k + i] =
                static_cast<float>(right(i, j));
    for (int i = 0; i < m * n; ++i)
        c[i] = static_cast<float>(i % 5);
    product_kernel<Type, Memory, m, n, k, LayoutA, LayoutB, Out><<<1, 32>>>(a, b, c, d);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 1;
    int wrong = 0;
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            int expected = 2 * ((i * n + j) % 5);
            for (int l = 0; l < k; ++l)
                expected += left(i, l) * right(l, j);
            wrong += static_cast<float>(d[i * n + j]) != static_cast<float>(expected);
        }
    if (wrong)
        fprintf(stderr, "%dx%dx%d: %d wrong\n", m, n, k, wrong);
    return wrong;
}

int main() {
    using Row = wmma::row_major;
    using Col = wmma::col_major;
    using Bf16 = __nv_bfloat16;
    int wrong =
        check<half, half, 16, 16, 16, Row, Col, float>() + check<half, half, 16, 16, 16, Col, Row, half>() +
        check<half, half, 32, 8, 16, Row, Row, float>() + check<Bf16, Bf16, 16, 16, 16, Row, Row, float>() +
        check<Bf16, Bf16, 8, 32, 16, Col, Col, float>() +
        check<wmma::precision::tf32, float, 16, 16, 8, Row, Col, float>();
    return wrong ? 1 : 0;
}
