// Hinge loss, bf16 storage, fp32 arithmetic: loss[i] = max(0, 1 - p) where the target is 1, else max(0, 1 + p).
//
// Shapes  predictions, targets (int), loss: N
// Moves   8 bytes per sample, three operations
// Naive   one thread per sample, which loads a prediction of 2 bytes and a target of 4
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void hinge_loss_bf16_kernel(__nv_bfloat16* loss, const __nv_bfloat16* predictions,
                                       const int* targets, int N) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    float p = __bfloat162float(predictions[i]);
    loss[i] = __float2bfloat16(fmaxf(0.0f, targets[i] == 1 ? 1.0f - p : 1.0f + p));
}

extern "C" void hinge_loss_bf16(__nv_bfloat16* loss, const __nv_bfloat16* predictions, const int* targets,
                                int N) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    hinge_loss_bf16_kernel<<<blocks, threads>>>(loss, predictions, targets, N);
}
