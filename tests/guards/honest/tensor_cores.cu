// wmma, inline PTX, cp.async, pipeline, barrier, raw strings, clusters, grid constants, extended half.
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/std/utility>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>
#include <cooperative_groups.h>
#include <mma.h>
using namespace nvcuda;

__device__ __forceinline__ unsigned smem_address(const void* p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

__device__ __noinline__ void mma16816(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    asm volatile(R"(
        {
        .reg .pred p;
        setp.ne.b32 p, 1, 0;
        }
    )" ::
                     : "memory");
}

#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 800
#define HAS_ASYNC 1
#endif
#endif

__host__ __device__ inline float bias() {
#ifdef __CUDA_ARCH__
    float r;
    asm("mov.f32 %0, 0f00000000;" : "=f"(r));
    return r;
#else
    return 0.0f;
#endif
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128)
    cluster_kernel_optimized(const __grid_constant__ float4 scale, const float* x, float* y, int n) {
    __shared__ alignas(128) float stage[2][128];
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    if (threadIdx.x == 0)
        init(&bar, blockDim.x);
    __syncthreads();
    __pipeline_memcpy_async(&stage[0][threadIdx.x], &x[threadIdx.x], sizeof(float));
    __pipeline_commit();
    __pipeline_wait_prior(0);
    auto pipe = cuda::make_pipeline();
    pipe.producer_acquire();
    pipe.producer_commit();
    cuda::pipeline_consumer_wait_prior<0>(pipe);
    pipe.consumer_release();
    bar.arrive_and_wait();
    cooperative_groups::this_cluster().sync();
    if (threadIdx.x < n)
        y[threadIdx.x] = stage[0][threadIdx.x] * scale.x + bias();
}

template <typename T, int M, int N, int K>
__global__ void wmma_kernel_optimized(const T* a, const T* b, float* c, int lda) {
    wmma::fragment<wmma::matrix_a, M, N, K, T, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, M, N, K, T, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, M, N, K, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    wmma::load_matrix_sync(fa, a, lda);
    wmma::load_matrix_sync(fb, b, lda);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, N, wmma::mem_row_major);
    float d[4] = {};
    unsigned ra[4] = {}, rb[2] = {};
    mma16816(d, ra, rb);
    if (smem_address(nullptr) == 1u)
        c[0] = d[0] + __half2float(__float2half(1.f));
}

void __global__ odd_order_kernel_optimized(float* y) {
    if (y)
        y[0] += 0.f;
}

extern "C" void task_optimized(const float* x, float* y, int n) {
    if (n >= 128)
        cluster_kernel_optimized<<<2, 128>>>(make_float4(1.f, 1.f, 1.f, 1.f), x, y, n);
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(1);
    config.blockDim = dim3(32);
    cudaLaunchKernelEx(&config, odd_order_kernel_optimized, y);
    wmma_kernel_optimized<__nv_bfloat16, 16, 16, 16>
        <<<1, 32>>>((const __nv_bfloat16*)x, (const __nv_bfloat16*)x, y, 16);
}
