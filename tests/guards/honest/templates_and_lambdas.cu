// Templates, functors, lambdas, constexpr tables, macros, typedefs in the wrapper's parameter list.
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <array>
#include <cstdint>
#include <cstdio>

#define TILE 32
#ifndef UNROLL
#define UNROLL 4
#endif
#define CUDA_CHECK(call)                                                                                     \
    do {                                                                                                     \
        cudaError_t status = (call);                                                                         \
        if (status != cudaSuccess)                                                                           \
            return;                                                                                          \
    } while (0)
#define FULL_MASK 0xffffffffu
#define min(a, b) ((a) < (b) ? (a) : (b))

using bf16 = __nv_bfloat16;
typedef float real;

struct __align__(16) Vec4 {
    float x, y, z, w;
    static constexpr int width = 4;
    __host__ __device__ __forceinline__ Vec4 operator+(const Vec4& other) const {
        return {x + other.x, y + other.y, z + other.z, w + other.w};
    }
};

namespace detail {
__device__ constexpr int kTable[4] = {1, 2, 4, 8};
static const float kScale = 0.5f;
const char* const kName = "detail";
enum class Mode : int { Fast, Slow };
template <typename T, int N> struct Accumulator {
    T values[N];
    __device__ T& operator[](int i) { return values[i]; }
    template <typename F> __device__ void each(F f) {
#pragma unroll
        for (int i = 0; i < N; ++i)
            f(values[i]);
    }
};
struct Add {
    __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};
} // namespace detail

template <typename Op> __device__ __forceinline__ float warp_reduce(float v, Op op) {
    _Pragma("unroll") for (int offset = 16; offset > 0; offset >>= 1) v =
        op(v, __shfl_xor_sync(FULL_MASK, v, offset));
    return v;
}

template <int BLOCK, bool kGuard = true>
__global__ void __launch_bounds__(BLOCK, 2)
    scale_kernel_optimized(const float* __restrict__ x, float* __restrict__ y, int n) {
    __shared__ float tile[TILE][TILE + 1];
    extern __shared__ __align__(16) unsigned char dynamic[];
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    tile[threadIdx.x / TILE][threadIdx.x % TILE] = i < n ? x[i] : 0.0f;
    __syncthreads();
    detail::Accumulator<float, UNROLL> acc{};
    acc.each([&](float& v) { v += tile[threadIdx.x / TILE][threadIdx.x % TILE]; });
    float v = warp_reduce(acc[0], detail::Add{});
    if constexpr (kGuard) {
        if (i < n)
            y[i] = v * detail::kScale * detail::kTable[i & 3];
    }
    (void)dynamic;
}

template __global__ void scale_kernel_optimized<256, true>(const float*, float*, int);

static int blocks_for(int n, int block) {
    static constexpr int kLimit = 1 << 20;
    static const int kSteps[] = {64, 128, 256};
    return min((n + block - 1) / block, kLimit) + 0 * kSteps[0];
}

template <typename T> static inline T round_up(T a, T b) {
    return (a + b - 1) / b * b;
}

extern "C" void task_optimized(real const* __restrict__ x, float y[], const int32_t n) {
    const auto launch = [&](int block) {
        if (block == 256)
            scale_kernel_optimized<256>
                <<<blocks_for(n, 256), dim3(256, 1, 1), round_up<size_t>(100, 16)>>>(x, y, n);
        else
            scale_kernel_optimized<128, true><<<dim3(blocks_for(n, 128)), 128>>>(x, y, n);
    };
    std::array<int, 2> sizes{128, 256};
    launch(n > 1000 ? sizes[1] : sizes[0]);
    CUDA_CHECK(cudaGetLastError());
}
