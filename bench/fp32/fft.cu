// FFT, fp32: X[k] = sum of x[n] * exp(-2 pi i k n / N), N a power of two.
//
// Shapes  input_real, input_img, output_real, output_img: N
// Moves   16 bytes per point and pass, log2(N) + 1 passes; 5 N log2(N) operations
// Naive   iterative radix 2, decimation in time, in the output arrays: one launch for the bit reversal and
//         one per stage, one thread per butterfly, each of which computes its own sine and cosine
#include <cuda_runtime.h>

__global__ void fft_bit_reversal_kernel(const float* input_real, const float* input_img, float* real,
                                        float* img, int N, int log_n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    int from = 0;
    for (int bit = 0; bit < log_n; ++bit)
        from |= (i >> bit & 1) << (log_n - 1 - bit);
    real[i] = input_real[from];
    img[i] = input_img[from];
}

// Combines neighbouring transforms of `half` points each.
__global__ void fft_stage_kernel(float* real, float* img, int N, int half) {
    long long butterfly = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (butterfly >= N / 2)
        return;
    int k = butterfly % half;
    long long top = butterfly / half * 2 * half + k;
    long long bottom = top + half;
    float sine, cosine;
    sincospif(-(float)k / half, &sine, &cosine);
    float odd_real = cosine * real[bottom] - sine * img[bottom];
    float odd_img = cosine * img[bottom] + sine * real[bottom];
    float even_real = real[top], even_img = img[top];
    real[top] = even_real + odd_real;
    img[top] = even_img + odd_img;
    real[bottom] = even_real - odd_real;
    img[bottom] = even_img - odd_img;
}

extern "C" void fft(const float* input_real, const float* input_img, float* output_real, float* output_img,
                    int N) {
    int log_n = 0;
    while (1 << log_n < N)
        ++log_n;
    int threads = 256;
    fft_bit_reversal_kernel<<<(N - 1) / threads + 1, threads>>>(input_real, input_img, output_real,
                                                                output_img, N, log_n);
    for (int half = 1; half < N; half *= 2) {
        int blocks = (N / 2 - 1) / threads + 1;
        fft_stage_kernel<<<blocks, threads>>>(output_real, output_img, N, half);
    }
}
