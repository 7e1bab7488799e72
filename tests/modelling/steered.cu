// Calls of test_left_out.py with several launches: the command line's first letter says which. The host compares no strings,
// for who does may look at what launches leave.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <cstring>

extern "C" void cudamaster_cpu_record(int on);

// Its addresses and branches do not hang on what it reads, though it chooses by that. Those of the next two do.
__global__ void plain_kernel(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 100; ++k)
        sum = fmaxf(sum * 0.5f, in[(i + 33 * k) % n]);
    out[i] = sum;
}

__global__ void steered_kernel(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 100; ++k)
        sum = sum * 0.5f + in[(static_cast<int>(in[(i + 33 * k) % n]) + i) % n];
    out[i] = sum;
}

// By way of shared memory.
__global__ void shared_kernel(const float* in, float* out, int n) {
    __shared__ float passes[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    passes[threadIdx.x] = in[i];
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 100 + passes[5]; ++k)
        sum = sum * 0.5f + in[(i + 33 * k) % n];
    out[i] = sum;
}

// By way of an array of its own.
__global__ void array_kernel(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, places[8];
    for (int k = 0; k < 8; ++k)
        places[(i + k) % 8] = static_cast<int>(in[(i + k) % n]);
    float sum = 0;
    for (int k = 0; k < 100; ++k)
        sum = sum * 0.5f + in[(places[(i + 3 * k) % 8] + 33 * k) % n];
    out[i] = sum;
}

// Blocks that are in no sample do far more than those that are.
__global__ void uneven_kernel(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, groups = gridDim.x / 8, group = blockIdx.x / 8;
    bool sampled = false;
    for (int k = 0; k < 8; ++k)
        sampled |= group == (groups - 1) * k / 7;
    float sum = 0;
    for (int k = 0; k < (sampled ? 50 : 1000); ++k)
        sum = sum * 0.5f + out[(i + 33 * k) % n];
    out[n + i] = sum + 1;
}

// A product of tensor cores, one tile, that nothing steers.
__global__ void product_kernel(const __nv_bfloat16* in, float* out) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, __nv_bfloat16, row_major> a;
    fragment<matrix_b, 16, 16, 16, __nv_bfloat16, row_major> b;
    fragment<accumulator, 16, 16, 16, float> sums;
    fill_fragment(sums, 0.0f);
    load_matrix_sync(a, in, 16);
    load_matrix_sync(b, in, 16);
    mma_sync(sums, a, b, sums);
    store_matrix_sync(out, sums, 16, mem_row_major);
}

// Makes as many passes as a product says.
__global__ void passes_kernel(const float* in, float* out) {
    float sum = 0;
    for (int k = 0; k < in[0]; ++k)
        sum = sum * 0.5f + in[k];
    out[threadIdx.x] = sum;
}

// Atomics whose answer nobody takes, and one whose answer somebody does.
__global__ void adding_kernel(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < 20; ++k)
        atomicAdd(out + (i + 33 * k) % n, 1.0f);
}
__global__ void taking_kernel(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 20; ++k)
        sum += atomicAdd(out + (i + 33 * k) % n, 1.0f);
    out[n + i] = sum;
}

// What is loaded says whether the word of an mbarrier is changed, and so whether a thread that asks it goes on.
__global__ void word_kernel(const float* in, float* out) {
    __shared__ unsigned long long word;
    const auto place = static_cast<unsigned>(__cvta_generic_to_shared(&word));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(place) : "memory");
    word ^= static_cast<unsigned long long>(in[0] > 1) << 63;
    int done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.s32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(place)
                 : "memory");
    for (int k = 0; done && k < 100; ++k)
        out[k] = 1;
}

// All blocks wait for each other, which is all that they do together.
__global__ void together_kernel(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int turn = 0; turn < 3; ++turn) {
        float sum = 0;
        for (int k = 0; k < 100; ++k)
            sum = fmaxf(sum * 0.5f, out[(i + 33 * k) % n]);
        out[n + i] = sum;
        cooperative_groups::this_grid().sync();
    }
}

// One launch, or two of which the second goes by what the first leaves.
void run_other(char what, float* out, int n, int threads) {
    if (what == 'm') {
        const __nv_bfloat16 four[256] = {4};
        auto* factors = reinterpret_cast<__nv_bfloat16*>(out);
        cudaMemcpy(factors, four, sizeof four, cudaMemcpyHostToDevice);
        cudamaster_cpu_record(1);
        product_kernel<<<1, 32>>>(factors, out + n);
        passes_kernel<<<1, 32>>>(out + n, out + 2 * n - 32);
    } else {
        cudamaster_cpu_record(1);
        if (what == 'w')
            word_kernel<<<1, 32>>>(out, out + n);
        else if (what == 'b') {
            void* given[] = {&out, &n};
            cudaLaunchCooperativeKernel(together_kernel, 100, threads, given, 0, nullptr);
        } else if (what == 'i')
            adding_kernel<<<n / threads, threads>>>(out, n);
        else
            taking_kernel<<<n / threads, threads>>>(out, n);
    }
    cudamaster_cpu_record(0);
}

int main(int, char** words) {
    const int n = 1 << 20, threads = 128, blocks = n / threads;
    const char what = words[1][0];
    static volatile float registered[32];
    float *out, *managed, *pinned;
    if (cudaMalloc(&out, 8 * n) || cudaMallocManaged(&managed, 4 * n) || cudaMallocHost(&pinned, 4 * n))
        return 1;
    memset(pinned, 0, 4 * n);
    cudaMemset(out, 0, 8 * n);
    cudaMemset(managed, 0, 4 * n);
    if (what == 'r')
        cudaHostRegister(const_cast<float*>(registered), sizeof registered, 0);
    if (what == 'm' || what == 'i' || what == 't' || what == 'w' || what == 'b') {
        run_other(what, out, n, threads);
        return 0;
    }
    cudamaster_cpu_record(1);
    plain_kernel<<<blocks, threads>>>(out, out + n, n);
    if (what == 'a')
        steered_kernel<<<blocks, threads>>>(out + n, out, n);
    else if (what == 's')
        shared_kernel<<<blocks, threads>>>(out + n, out, n);
    else if (what == 'o')
        array_kernel<<<blocks, threads>>>(out + n, out, n);
    plain_kernel<<<blocks, threads>>>(out + n, what == 'h' ? managed : what == 'p' ? pinned : out, n);
    float seen = 0;
    if (what == 'c')
        cudaMemcpyAsync(&seen, out, 4, cudaMemcpyDeviceToHost);
    if (what == 'q' && cudaStreamQuery(nullptr) == cudaErrorNotReady)
        seen = 1;
    if ((what == 'h' && managed[5] >= 0) || (what == 'p' && pinned[5] >= 0) ||
        (what == 'r' && registered[5] >= 0) || seen > 0)
        plain_kernel<<<blocks, threads>>>(managed, out, n);
    if (what == 'u')
        uneven_kernel<<<blocks, threads>>>(out, n);
    else
        plain_kernel<<<blocks, threads>>>(out, out + n, n);
    cudamaster_cpu_record(0);
    return 0;
}
