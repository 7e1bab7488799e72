// FFT, fp32, by cuFFT: X[k] = sum of x[n] * exp(-2 pi i k n / N), N a power of two.
//
// Call      cufftExecC2C, forward, in place, one fp32 transform; forward is exp(-...) and not normalised there too
// Includes  two small kernels of ours: cuFFT wants real and imaginary parts in pairs, and the task has them in arrays of
//           their own
// Without   the plan with its work space and the memory of the pairs, made before the first call of a case.
//           cuFFT's load and store callbacks, which could take the place of the two kernels, are not used
#include <cufft.h>
#include "vendor/cufft.h"

namespace {
vendor::ComplexPlan plan;

__global__ void pack_kernel(const float* real, const float* img, cufftComplex* points, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N)
        points[i] = make_cuComplex(real[i], img[i]);
}

__global__ void unpack_kernel(const cufftComplex* points, float* real, float* img, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    real[i] = points[i].x;
    img[i] = points[i].y;
}
} // namespace

extern "C" void fft_prepare(long long N) {
    plan.make(N);
}

extern "C" void fft(const float* input_real, const float* input_img, float* output_real, float* output_img,
                    int N) {
    int threads = 256, blocks = (N - 1) / threads + 1;
    pack_kernel<<<blocks, threads>>>(input_real, input_img, plan.points(), N);
    plan.forward();
    unpack_kernel<<<blocks, threads>>>(plan.points(), output_real, output_img, N);
}
