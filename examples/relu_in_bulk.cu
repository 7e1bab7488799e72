// Relu by bulk copies: the copy engine brings a tile into shared memory, threads work there, and it takes the tile back.
//
//     cudamaster evaluate relu examples/relu_in_bulk.cu --check-only --device cpu
//
// Comment out a fence or a wait, and try again: each is named with its line.
#include <cuda_runtime.h>

constexpr int kThreads = 256, kTile = 1024; // elements

__device__ unsigned shared_address(const void* place) {
    return (unsigned)__cvta_generic_to_shared(place);
}

__global__ void relu_kernel_optimized(float* output, const float* input, int N) {
    __shared__ __align__(128) float tile[kTile];
    __shared__ __align__(8) unsigned long long arrived;
    long long first = blockIdx.x * (long long)kTile;
    int count = N - first < kTile ? (int)(N - first) : kTile;
    unsigned bytes = count / 4 * 16; // copies are of 16 bytes, or a multiple

    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&arrived)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&arrived)),
                     "r"(bytes)
                     : "memory");
        if (bytes > 0)
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
                    "r"(shared_address(tile)),
                "l"(input + first), "r"(bytes), "r"(shared_address(&arrived))
                : "memory");
    }
    __syncthreads();
    asm volatile("{.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
                 "@!done bra again;}" ::"r"(shared_address(&arrived))
                 : "memory");
    for (int i = threadIdx.x; i < count / 4 * 4; i += kThreads)
        tile[i] = fmaxf(0.0f, tile[i]);
    // The copy engine sees what threads wrote behind this fence only, each thread for its own; then all have written.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0 && bytes > 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(output + first),
                     "r"(shared_address(tile)), "r"(bytes)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); // shared memory ends with the block
    }
    if (threadIdx.x < count % 4)
        output[first + count / 4 * 4 + threadIdx.x] = fmaxf(0.0f, input[first + count / 4 * 4 + threadIdx.x]);
}

// Any kernel for what does not begin at a multiple of 16 bytes.
__global__ void relu_each_kernel_optimized(float* output, const float* input, int N) {
    long long i = blockIdx.x * (long long)kThreads + threadIdx.x;
    if (i < N)
        output[i] = fmaxf(0.0f, input[i]);
}

extern "C" void relu_optimized(float* output, const float* input, int N) {
    if ((((size_t)output | (size_t)input) & 15) == 0)
        relu_kernel_optimized<<<(N - 1) / kTile + 1, kThreads>>>(output, input, N);
    else
        relu_each_kernel_optimized<<<(N - 1) / kThreads + 1, kThreads>>>(output, input, N);
}
