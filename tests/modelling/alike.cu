// Calls of test_alike.py with launches of which some are alike: the command line's first letter says which. The host compares
// no strings, for who does may look at what launches leave.
#include <cuda_runtime.h>

#include <cstdint>

extern "C" void cudamaster_cpu_record(int on);

// The first block makes 100 passes, others more than it is told. What is called nothing changes nothing.
__global__ void plain_kernel(const float* in, float* out, int n, int others, [[maybe_unused]] int nothing) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < (blockIdx.x ? others + blockIdx.x % 64 : 100); ++k)
        sum = fmaxf(sum * 0.5f, in[(i + 33 * k) % n]);
    out[i] = sum;
}

struct Given {
    int n;
    const float* in;
    float* out;
};
__global__ void struct_kernel(Given given) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 100 + blockIdx.x % 64; ++k)
        sum = fmaxf(sum * 0.5f, given.in[(i + 33 * k) % given.n]);
    given.out[i] = sum;
}

// Its bytes do not say what it is.
struct Copied : Given {
    Copied(const Given& given) : Given(given) {}
    Copied(const Copied& other) : Given(other) {}
};
__global__ void copied_kernel(Copied given) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 100 + blockIdx.x % 64; ++k)
        sum = fmaxf(sum * 0.5f, given.in[(i + 33 * k) % given.n]);
    given.out[i] = sum;
}

// All blocks but the first do far more if what they are given lies elsewhere.
__global__ void uneven_kernel(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    const int more = min(blockIdx.x, 1) * (reinterpret_cast<uintptr_t>(out) >> 12 & 1);
    for (int k = 0; k < 100 + 900 * more; ++k)
        sum = fmaxf(sum * 0.5f, in[(i + 33 * k) % n]);
    out[i] = sum;
}

__global__ void steered_kernel(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[static_cast<int>(in[i]) % n];
}

int main(int, char** words) {
    const int n = 1 << 20, threads = 128, blocks = n / threads;
    const char what = words[1][0];
    for (int call = 0; call < (what == 'c' || what == 'l' ? 2 : 1); ++call) {
        float *a, *b, *c, *more = nullptr;
        if (call && cudaMalloc(&more, 4096))
            return 1;
        if (cudaMalloc(&a, 4 * n) || cudaMalloc(&b, 4 * n + 4096) || cudaMalloc(&c, 8 * n + 8192))
            return 1;
        cudaMemset(a, 0, 4 * n);
        cudaMemset(b, 0, 4 * n);
        cudaMemset(c, 0, 4 * n);
        // From one to the other, with the third between them, and back.
        auto launches = [&](cudaStream_t stream) {
            const float* from[] = {a, b, c};
            float* to[] = {b, c, a};
            for (int k = 0; k < 3; ++k)
                if (what == 's')
                    struct_kernel<<<blocks, threads, 0, stream>>>(Given{n, from[k], to[k]});
                else if (what == 'n')
                    copied_kernel<<<blocks, threads, 0, stream>>>(Given{n, from[k], to[k]});
                else
                    plain_kernel<<<blocks, threads, 0, stream>>>(
                        from[k], to[k], n, what == 'o' ? 100 + 20 * k : 100, what == 'd' ? k : 0);
        };
        cudaGraph_t graph;
        cudaGraphExec_t made;
        if (what == 'g') {
            cudaStream_t stream;
            if (cudaStreamCreate(&stream) || cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal))
                return 1;
            launches(stream);
            if (cudaStreamEndCapture(stream, &graph) || cudaGraphInstantiate(&made, graph, 0))
                return 1;
        }
        cudamaster_cpu_record(1);
        if (what == 'g') {
            cudaGraphLaunch(made, nullptr);
            cudaGraphLaunch(made, nullptr);
        } else if (what == 'u' || what == 'e') {
            float* even = c + (reinterpret_cast<uintptr_t>(c) & 4096) / 4;
            for (int k : {what == 'u' ? 0 : 1024, 1024})
                uneven_kernel<<<blocks, threads>>>(a, even + k, n);
        } else if (what == 'r' || what == 't') { // many alike, then others for good or in turns
            float* even = c + (reinterpret_cast<uintptr_t>(c) & 4096) / 4;
            for (int k = 0; k < 30; ++k)
                uneven_kernel<<<blocks, threads>>>(
                    a, even + (k >= 6 && (what == 'r' || k % 2 == 0) ? 1024 : 0), n);
        } else if (what == 'k') { // few are alike, and the last of these does more
            float* even = c + (reinterpret_cast<uintptr_t>(c) & 4096) / 4;
            for (int k = 0; k < 32; ++k)
                uneven_kernel<<<blocks, threads>>>(a, even + (k % 4 == 3 ? 1024 : 0), n - k / 4);
        } else if (what == 'p') { // the same place of a line, and others
            for (int k : {0, 32, 1, 33})
                plain_kernel<<<blocks, threads>>>(a, c + k, n, 100, 0);
        } else if (what == 'w') { // within one allocation, nearer to each other or not
            for (int k : {n, n + 32, n})
                plain_kernel<<<blocks, threads>>>(c, c + k, n, 100, 0);
        } else if (what == 'f') { // few blocks, all of them in the sample
            for (int others : {200, 200, 201})
                plain_kernel<<<64, 256>>>(a, c, n, others, 0);
        } else {
            launches(nullptr);
            if (what == 'l' && call)
                steered_kernel<<<blocks, threads>>>(a, c, n);
        }
        cudamaster_cpu_record(0);
        cudaFree(b);
        cudaFree(c);
        cudaFree(a);
        cudaFree(more);
    }
    return 0;
}
