// High order contraction, bf16 storage, fp32 accumulation:
// C[a, b, c] = sum over x and y of A[a, x, b, y] * B[x, c, y].
//
// Shapes  A: a_dim x x_dim x b_dim x y_dim, B: x_dim x c_dim x y_dim, C: a_dim x b_dim x c_dim, the last
//         index fastest
// Moves   2 bytes per element of A, B and C at least, 2 a_dim b_dim c_dim x_dim y_dim operations
// Naive   one element of C per thread: every product loads both of its factors, and neighbouring threads read
//         elements of B that lie y_dim apart; tensor cores stay idle
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void high_order_contraction_bf16_kernel(const __nv_bfloat16* A, const __nv_bfloat16* B,
                                                   __nv_bfloat16* C, int a_dim, int b_dim, int c_dim,
                                                   int x_dim, int y_dim) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= (size_t)a_dim * b_dim * c_dim)
        return;
    size_t c = i % c_dim;
    size_t b = i / c_dim % b_dim;
    size_t a = i / c_dim / b_dim;
    float sum = 0.0f;
    for (int x = 0; x < x_dim; ++x) {
        const __nv_bfloat16* row = A + ((a * x_dim + x) * b_dim + b) * y_dim;
        const __nv_bfloat16* other = B + ((size_t)x * c_dim + c) * y_dim;
        for (int y = 0; y < y_dim; ++y)
            sum += __bfloat162float(row[y]) * __bfloat162float(other[y]);
    }
    C[i] = __float2bfloat16(sum);
}

extern "C" void high_order_contraction_bf16(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C,
                                            int a_dim, int b_dim, int c_dim, int x_dim, int y_dim) {
    int threads = 256;
    size_t blocks = ((size_t)a_dim * b_dim * c_dim - 1) / threads + 1;
    high_order_contraction_bf16_kernel<<<blocks, threads>>>(A, B, C, a_dim, b_dim, c_dim, x_dim, y_dim);
}
