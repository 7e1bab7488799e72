// FFT, bf16 storage, fp32 arithmetic, by cuFFT: X[k] = sum of x[n] * exp(-2 pi i k n / N), N a power of two.
//
// Call      cufftExecC2C, forward, in place, one fp32 transform; forward is exp(-...) and not normalised there too
// Includes  two small kernels of ours: cuFFT wants real and imaginary parts in pairs, and the task has them in arrays of
//           their own, in bf16. cuFFT's own bf16 transforms round in between, which the card does not allow
// Without   the plan with its work space and the memory of the pairs, made before the first call of a case.
//           cuFFT's load and store callbacks, which could take the place of the two kernels, are not used
#include <cufft.h>
#include <cuda_bf16.h>
#include "vendor/cufft.h"

namespace {
vendor::ComplexPlan plan;

__global__ void pack_kernel(const __nv_bfloat16* real, const __nv_bfloat16* img, cufftComplex* points,
                            int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N)
        points[i] = make_cuComplex(__bfloat162float(real[i]), __bfloat162float(img[i]));
}

__global__ void unpack_kernel(const cufftComplex* points, __nv_bfloat16* real, __nv_bfloat16* img, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    real[i] = __float2bfloat16(points[i].x);
    img[i] = __float2bfloat16(points[i].y);
}
} // namespace

extern "C" void fft_bf16_prepare(long long N) {
    plan.make(N);
}

extern "C" void fft_bf16(const __nv_bfloat16* input_real, const __nv_bfloat16* input_img,
                         __nv_bfloat16* output_real, __nv_bfloat16* output_img, int N) {
    int threads = 256, blocks = (N - 1) / threads + 1;
    pack_kernel<<<blocks, threads>>>(input_real, input_img, plan.points(), N);
    plan.forward();
    unpack_kernel<<<blocks, threads>>>(plan.points(), output_real, output_img, N);
}
