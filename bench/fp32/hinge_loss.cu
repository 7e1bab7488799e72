// Hinge loss, fp32: loss[i] = max(0, 1 - p) where the target is 1, else max(0, 1 + p).
//
// Shapes  predictions, targets (int), loss: N
// Moves   12 bytes per sample, three operations
// Naive   one thread per sample, which loads a prediction of 4 bytes and a target of 4
#include <cuda_runtime.h>

__global__ void hinge_loss_kernel(float* loss, const float* predictions, const int* targets, int N) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    float p = predictions[i];
    loss[i] = fmaxf(0.0f, targets[i] == 1 ? 1.0f - p : 1.0f + p);
}

extern "C" void hinge_loss(float* loss, const float* predictions, const int* targets, int N) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    hinge_loss_kernel<<<blocks, threads>>>(loss, predictions, targets, N);
}
