// FFT, bf16 storage, fp32 arithmetic: X[k] = sum of x[n] * exp(-2 pi i k n / N), N a power of two.
//
// Shapes  input_real, input_img, output_real, output_img: N (bf16, outputs rounded once)
// Moves   16 bytes per point and pass, log2(N) + 2 passes; 5 N log2(N) operations
// Naive   iterative radix 2, decimation in time, in fp32 arrays that are allocated in the call: one launch
//         for the bit reversal, one per stage and one to round; one thread per butterfly, each of which
//         computes its own sine and cosine
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void fft_bit_reversal_bf16_kernel(const __nv_bfloat16* input_real, const __nv_bfloat16* input_img,
                                             float* real, float* img, int N, int log_n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    int from = 0;
    for (int bit = 0; bit < log_n; ++bit)
        from |= (i >> bit & 1) << (log_n - 1 - bit);
    real[i] = __bfloat162float(input_real[from]);
    img[i] = __bfloat162float(input_img[from]);
}

// Combines neighbouring transforms of `half` points each.
__global__ void fft_stage_bf16_kernel(float* real, float* img, int N, int half) {
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

__global__ void fft_round_bf16_kernel(const float* real, const float* img, __nv_bfloat16* output_real,
                                      __nv_bfloat16* output_img, int N) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    output_real[i] = __float2bfloat16(real[i]);
    output_img[i] = __float2bfloat16(img[i]);
}

extern "C" void fft_bf16(const __nv_bfloat16* input_real, const __nv_bfloat16* input_img,
                         __nv_bfloat16* output_real, __nv_bfloat16* output_img, int N) {
    float* real = nullptr;
    float* img = nullptr;
    cudaMalloc(&real, sizeof(float) * N);
    cudaMalloc(&img, sizeof(float) * N);
    int log_n = 0;
    while (1 << log_n < N)
        ++log_n;
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    fft_bit_reversal_bf16_kernel<<<blocks, threads>>>(input_real, input_img, real, img, N, log_n);
    for (int half = 1; half < N; half *= 2)
        fft_stage_bf16_kernel<<<(N / 2 - 1) / threads + 1, threads>>>(real, img, N, half);
    fft_round_bf16_kernel<<<blocks, threads>>>(real, img, output_real, output_img, N);
    cudaFree(real);
    cudaFree(img);
}
