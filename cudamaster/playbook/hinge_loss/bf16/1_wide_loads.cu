// idea: Move eight samples per thread by 16-byte loads and stores
// why: The work is one pass over memory, and the baseline asks for it two and four bytes at a time. A thread
//      loads eight predictions and, by two loads, eight targets, all on their way together, and stores eight
//      losses at once, so that an eighth of the warps and of the instructions is left. Blocks of 64 threads
//      make 512 blocks of the largest size, about four for each of 132 multiprocessors. Vectors that are not
//      aligned to 16 bytes, and the last few samples, take a scalar loop.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kThreads = 64;
constexpr int kWidth = 8; // samples in 16 bytes of predictions

__device__ float hinge_loss_of(float p, int target) {
    return fmaxf(0.0f, 1.0f + (target == 1 ? -p : p));
}

// Of two bf16 predictions packed in a word; a bf16 is the upper half of a float.
__device__ unsigned int hinge_loss_of_pair(unsigned int pair, int target0, int target1) {
    float low = __uint_as_float(pair << 16), high = __uint_as_float(pair & 0xffff0000u);
    __nv_bfloat162 losses = __floats2bfloat162_rn(hinge_loss_of(low, target0), hinge_loss_of(high, target1));
    return *reinterpret_cast<unsigned int*>(&losses);
}

__global__ void __launch_bounds__(kThreads)
    hinge_loss_bf16_kernel_optimized(__nv_bfloat16* loss, const __nv_bfloat16* predictions,
                                     const int* targets, int N) {
    bool aligned = (((size_t)loss | (size_t)predictions | (size_t)targets) & 15) == 0;
    int vectors = aligned ? N / kWidth : 0;
    long long thread = (long long)blockIdx.x * kThreads + threadIdx.x;
    if (thread < vectors) {
        uint4 p = ((const uint4*)predictions)[thread];
        int4 first = ((const int4*)targets)[2 * thread];
        int4 second = ((const int4*)targets)[2 * thread + 1];
        ((uint4*)loss)[thread] = make_uint4(
            hinge_loss_of_pair(p.x, first.x, first.y), hinge_loss_of_pair(p.y, first.z, first.w),
            hinge_loss_of_pair(p.z, second.x, second.y), hinge_loss_of_pair(p.w, second.z, second.w));
    }
    // What the vectors leave: at most seven samples, or all of them where they are not aligned.
    long long threads = (long long)gridDim.x * kThreads;
    for (long long i = (long long)kWidth * vectors + thread; i < N; i += threads)
        loss[i] = __float2bfloat16(hinge_loss_of(__bfloat162float(predictions[i]), targets[i]));
}

extern "C" void hinge_loss_bf16_optimized(__nv_bfloat16* loss, const __nv_bfloat16* predictions,
                                          const int* targets, int N) {
    int blocks = (N - 1) / (kThreads * kWidth) + 1;
    hinge_loss_bf16_kernel_optimized<<<blocks, kThreads>>>(loss, predictions, targets, N);
}
