// idea: One launch, a block for each residue class of the outputs
// why: The baseline needs a launch for every power of two, and each of them waits for memory on the whole
//      chip to do one addition and one multiplication per point. With N = 64 L the outputs X[c], X[c + 64],
//      X[c + 128] ... of a class c depend on L numbers only: z[m], the sum over j of x[L j + m] exp(-2 pi i
//      c j / 64), turned by exp(-2 pi i c m / N); the class is their transform of length L. Each of 64
//      blocks makes the z of its class, for which it reads all of the input, coalesced and from the second
//      cache, with all loads of a thread in flight while the tables of roots are made, and transforms it in
//      shared memory. That is 64 N multiplications in all, which 64 multiprocessors do in less time than a
//      second launch takes. Beyond 16384 points a launch per stage is used.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kClasses = 64;
constexpr int kGroups = 4;      // threads that share a sum z[m]
constexpr int kMaxLength = 256; // of a class
constexpr int kTerms = kClasses / kGroups;

__device__ float2 fft_product(float2 a, float2 b) {
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

// exp(-2 pi i numerator / denominator)
__device__ float2 fft_root(int numerator, int denominator) {
    float2 root;
    sincospif(-2.0f * numerator / denominator, &root.y, &root.x);
    return root;
}

// A block per class, kGroups threads for each number of the class. N = gridDim.x * length.
__global__ void __launch_bounds__(kGroups* kMaxLength)
    fft_bf16_kernel_optimized(const __nv_bfloat16* input_real, const __nv_bfloat16* input_img,
                              __nv_bfloat16* output_real, __nv_bfloat16* output_img, int N, int length) {
    __shared__ float2 class_roots[kClasses];        // j: exp(-2 pi i j / classes)
    __shared__ float2 length_roots[kMaxLength / 2]; // j: exp(-2 pi i j / length)
    __shared__ float2 sums[kGroups][kMaxLength];
    int classes = gridDim.x, number = blockIdx.x;
    int m = threadIdx.x & (length - 1), group = threadIdx.x / length;

    float real[kTerms], img[kTerms];
#pragma unroll
    for (int term = 0; term < kTerms; ++term) {
        int j = term * kGroups + group;
        if (j < classes) {
            real[term] = __bfloat162float(input_real[length * j + m]);
            img[term] = __bfloat162float(input_img[length * j + m]);
        }
    }
    for (int j = threadIdx.x; j < classes; j += blockDim.x)
        class_roots[j] = fft_root(j, classes);
    for (int j = threadIdx.x; j < length / 2; j += blockDim.x)
        length_roots[j] = fft_root(j, length);
    __syncthreads();
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int term = 0; term < kTerms; ++term) {
        int j = term * kGroups + group;
        if (j < classes) {
            float2 turned =
                fft_product(make_float2(real[term], img[term]), class_roots[j * number & (classes - 1)]);
            sum.x += turned.x;
            sum.y += turned.y;
        }
    }
    sums[group][m] = sum;
    __syncthreads();
    float2 z;
    if (group == 0) {
        for (int other = 1; other < kGroups; ++other) {
            sum.x += sums[other][m].x;
            sum.y += sums[other][m].y;
        }
        z = fft_product(sum, fft_root(number * m, N));
    }
    __syncthreads();
    float2* from = sums[0];
    float2* to = sums[1];
    if (group == 0)
        from[m] = z;
    __syncthreads();

    // Radix 2; every stage writes in the order that the next one reads, so the last one is in natural order.
    int half = length / 2;
    for (int stride = 1; stride < length; stride *= 2) {
        if (threadIdx.x < half) {
            int inside = threadIdx.x & (stride - 1), start = threadIdx.x - inside;
            float2 a = from[threadIdx.x], b = from[threadIdx.x + half];
            to[2 * start + inside] = make_float2(a.x + b.x, a.y + b.y);
            to[2 * start + inside + stride] =
                fft_product(make_float2(a.x - b.x, a.y - b.y), length_roots[start]);
        }
        __syncthreads();
        float2* swapped = from;
        from = to;
        to = swapped;
    }
    if (group == 0) {
        output_real[number + classes * m] = __float2bfloat16(from[m].x);
        output_img[number + classes * m] = __float2bfloat16(from[m].y);
    }
}

// Beyond kClasses * kMaxLength points: bit reversal, then a launch per stage.
__global__ void fft_bit_reversal_bf16_kernel_optimized(const __nv_bfloat16* input_real,
                                                       const __nv_bfloat16* input_img, float* real,
                                                       float* img, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    int from = __brev(i) >> (__clz(N) + 1);
    real[i] = __bfloat162float(input_real[from]);
    img[i] = __bfloat162float(input_img[from]);
}

// Combines neighbouring transforms of `half` points each.
__global__ void fft_stage_bf16_kernel_optimized(float* real, float* img, int N, int half) {
    int butterfly = blockIdx.x * blockDim.x + threadIdx.x;
    if (butterfly >= N / 2)
        return;
    int k = butterfly & (half - 1);
    int top = 2 * (butterfly - k) + k, bottom = top + half;
    float2 odd = fft_product(make_float2(real[bottom], img[bottom]), fft_root(k, 2 * half));
    float2 even = make_float2(real[top], img[top]);
    real[top] = even.x + odd.x;
    img[top] = even.y + odd.y;
    real[bottom] = even.x - odd.x;
    img[bottom] = even.y - odd.y;
}

__global__ void fft_round_bf16_kernel_optimized(const float* real, const float* img,
                                                __nv_bfloat16* output_real, __nv_bfloat16* output_img,
                                                int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N)
        return;
    output_real[i] = __float2bfloat16(real[i]);
    output_img[i] = __float2bfloat16(img[i]);
}

void fft_bf16_by_stages(const __nv_bfloat16* input_real, const __nv_bfloat16* input_img,
                        __nv_bfloat16* output_real, __nv_bfloat16* output_img, int N) {
    int threads = 256;
    int blocks = (N - 1) / threads + 1;
    float* real = nullptr;
    float* img = nullptr;
    cudaMallocAsync(&real, sizeof(float) * N, 0);
    cudaMallocAsync(&img, sizeof(float) * N, 0);
    fft_bit_reversal_bf16_kernel_optimized<<<blocks, threads>>>(input_real, input_img, real, img, N);
    for (int half = 1; half < N; half *= 2)
        fft_stage_bf16_kernel_optimized<<<(N / 2 - 1) / threads + 1, threads>>>(real, img, N, half);
    fft_round_bf16_kernel_optimized<<<blocks, threads>>>(real, img, output_real, output_img, N);
    cudaFreeAsync(real, 0);
    cudaFreeAsync(img, 0);
}

extern "C" void fft_bf16_optimized(const __nv_bfloat16* input_real, const __nv_bfloat16* input_img,
                                   __nv_bfloat16* output_real, __nv_bfloat16* output_img, int N) {
    int classes = N < kClasses ? N : kClasses;
    int length = N / classes;
    if (length <= kMaxLength)
        fft_bf16_kernel_optimized<<<classes, kGroups * length>>>(input_real, input_img, output_real,
                                                                 output_img, N, length);
    else
        fft_bf16_by_stages(input_real, input_img, output_real, output_img, N);
}
