// Kernels that a GPU would stop, one per run. Exit code 0 means that nothing was noticed.
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <algorithm>
#include <vector>
#include <cooperative_groups.h>

__global__ void barrier_kernel(int* out) {
    if (threadIdx.x < 40)
        __syncthreads();
    else
        __shfl_sync(0xffffffffu, 1, 0); // lanes 0 to 7 of this warp wait elsewhere
    out[threadIdx.x] = 1;
}
__global__ void lanes_kernel(int* out) {
    if (threadIdx.x == 3)
        __syncthreads();
    __ballot_sync(0xffffffffu, 1);
    out[threadIdx.x] = 1;
}
__global__ void write_kernel(int* out, long offset) {
    out[offset + threadIdx.x] = 5;
}
template <class Where> __global__ void write_through_kernel(Where where) {
    where()[0] = 5;
}
template <class Vector> __global__ void vector_kernel(int* data, int offset) {
    Vector value = *reinterpret_cast<Vector*>(data + offset);
    data[0] = value.x + value.y;
}
__global__ void pointers_kernel(int* out, int* first, int* second) {
    out[0] = first == second;
}
__global__ void read_kernel(const int* in, int* out, int n) {
    out[threadIdx.x] = in[n + threadIdx.x];
}
__global__ void shared_kernel(int* out, int n) {
    extern __shared__ int dynamic_values[];
    dynamic_values[n] = static_cast<int>(threadIdx.x);
    out[0] = dynamic_values[n];
}
template <int N> __global__ void static_shared_kernel(int* out, int n) {
    __shared__ int values[N], others[N];
    values[threadIdx.x] = others[threadIdx.x] = 0;
    __syncthreads();
    out[0] = values[n] + others[0];
}
__device__ int deep(int level) {
    volatile char space[1024];
    space[0] = static_cast<char>(level);
    return level ? deep(level - 1) + space[0] : 0;
}
__global__ void stack_kernel(int* out) {
    __syncthreads();
    out[threadIdx.x] = deep(threadIdx.x == 2 ? 100000 : 3);
}
__global__ void assert_kernel(int n) {
    assert(threadIdx.x != 5 || n == 0);
}
__global__ void divide_kernel(int* out, int n) {
    out[0] = 7 / n;
}
__global__ void spin_kernel(volatile int* flag) {
    while (!*flag) {
    }
}
__global__ void wait_kernel(volatile int* flag) {
    int seen;
    do {
        seen = flag[threadIdx.x];
    } while (threadIdx.x == 0 && !seen);
    flag[0] = 1;
}
__global__ void race_kernel(int* out) {
    __shared__ int values[64];
    values[threadIdx.x] = threadIdx.x;
    // A barrier is missing here: in ascending order the neighbour below has written already.
    out[threadIdx.x] = threadIdx.x ? values[threadIdx.x - 1] : 0;
}
__global__ void grid_kernel() {
    cooperative_groups::this_grid().sync();
}

int main(int, char** arguments) {
    int* data = nullptr;
    cudaMalloc(&data, 100 * sizeof(int));
    const char* what = arguments[1];
    if (!strcmp(what, "barrier"))
        barrier_kernel<<<dim3(1, 2), 64>>>(data);
    else if (!strcmp(what, "lanes"))
        lanes_kernel<<<1, 32>>>(data);
    else if (!strcmp(what, "far-write"))
        write_kernel<<<1, 32>>>(data, 20000);
    else if (!strcmp(what, "far-apart")) {
        std::vector<int*> all(1000, nullptr);
        for (int*& one : all)
            cudaMalloc(&one, 100 * sizeof(int));
        std::sort(all.begin(), all.end());
        for (size_t i = 1; i < all.size(); ++i)
            if (!all[i] || all[i] - all[i - 1] < (64 << 20) / 4)
                return 4;
    } else if (!strcmp(what, "near-write"))
        write_kernel<<<1, 1>>>(data, 100);
    else if (!strcmp(what, "before-write"))
        write_kernel<<<1, 1>>>(data, -1025);
    else if (!strcmp(what, "read"))
        read_kernel<<<1, 1>>>(data, data, 100);
    else if (!strcmp(what, "dynamic-shared"))
        shared_kernel<<<1, 1, 40>>>(data, 10);
    else if (!strcmp(what, "far-dynamic-shared"))
        shared_kernel<<<1, 1, 40>>>(data, 400);
    else if (!strcmp(what, "static-shared"))
        static_shared_kernel<16><<<1, 16>>>(data, 16);
    else if (!strcmp(what, "stack"))
        stack_kernel<<<1, 32>>>(data);
    else if (!strcmp(what, "assert"))
        assert_kernel<<<1, 32>>>(1);
    else if (!strcmp(what, "divide"))
        divide_kernel<<<1, 1>>>(data, 0);
    else if (!strcmp(what, "spin")) {
        cudaMemset(data, 0, 4);
        spin_kernel<<<1, 1>>>(data);
    } else if (!strcmp(what, "wait")) {
        cudaMemset(data, 0, 8);
        wait_kernel<<<1, 2>>>(data);
    } else if (!strcmp(what, "grid"))
        grid_kernel<<<2, 32>>>();
    else if (!strcmp(what, "race")) {
        race_kernel<<<1, 64>>>(data);
        int values[64];
        cudaMemcpy(values, data, sizeof values, cudaMemcpyDeviceToHost);
        for (int i = 1; i < 64; ++i)
            if (values[i] != i - 1)
                return 3;
    } else if (!strcmp(what, "vector-of-2"))
        vector_kernel<int2><<<1, 1>>>(data, 3);
    else if (!strcmp(what, "host-stack")) {
        int local[4] = {1, 2, 3, 4};
        read_kernel<<<1, 1>>>(local + 1, data, 1);
        printf("%d\n", local[2]);
    } else if (!strcmp(what, "host-heap")) {
        std::vector<int> values(100, 1);
        read_kernel<<<1, 1>>>(values.data(), data, 50);
        printf("%d\n", values[50]);
    } else if (!strcmp(what, "host-untouched")) {
        // The kernel gets addresses of the host's, and leaves the host's alone; what is registered it may read.
        int local[3] = {1, 2, 3};
        std::vector<int> values(5, 4), lent(5, 4);
        write_kernel<<<1, 1>>>(data, 0);
        pointers_kernel<<<1, 1>>>(data, local + 1, values.data());
        cudaHostRegister(lent.data(), lent.size() * sizeof(int), 0);
        read_kernel<<<1, 1>>>(lent.data(), data, 1);
        cudaHostUnregister(lent.data());
        if (local[1] + local[2] + values[4] != 9)
            return 3;
    } else if (!strcmp(what, "vector-of-4"))
        vector_kernel<int4><<<1, 1>>>(data, 2);
    else if (!strcmp(what, "aligned-vectors")) {
        vector_kernel<int2><<<1, 1>>>(data, 2);
        vector_kernel<int3><<<1, 1>>>(data, 3);
        vector_kernel<int4><<<1, 1>>>(data, 4);
    } else if (!strcmp(what, "host-read"))
        data[50] = data[99];
    else if (!strcmp(what, "host-write"))
        data[99] = 1;
    else if (!strcmp(what, "host-read-after-launch")) {
        write_kernel<<<1, 100>>>(data, 0);
        printf("%d\n", data[99]);
    } else if (!strcmp(what, "host-write-after-memset")) {
        cudaMemset(data, 0, 4);
        data[0] = 1;
    } else if (!strcmp(what, "host-read-after-touch")) {
        write_through_kernel<<<1, 1>>>([data] { return data; });
        printf("%d\n", data[0]);
    } else if (!strcmp(what, "host-sort"))
        std::sort(data, data + 100);
    cudaError_t error = cudaDeviceSynchronize();
    if (error == cudaSuccess)
        return 0;
    fprintf(stderr, "host sees %s\n", cudaGetErrorName(error));
    int* more = nullptr;
    return cudaMalloc(&more, 4) == error ? 9 : 10; // the error stays
}
