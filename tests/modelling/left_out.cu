// Calls of test_left_out.py. The first one's requests compete for sets of L1. Of the others some end with a long launch, whose
// blocks beside the sample are run where somebody needs what they leave. The command line leaves out the first call, says how
// the host asks whether the second is done, or asks for another call alone; with two words it has launches that are alike but
// for the last, of many blocks or of so few that a sample could have them all.
#include <cuda_runtime.h>
#include <string>

extern "C" void cudamaster_cpu_record(int on);

// 200 passes of 2^20 threads; the last block says so.
__global__ void long_kernel(float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 200; ++k)
        sum = sum * 0.5f + out[(i + 33 * k) % n];
    out[n + i] = sum + 1;
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

// Its blocks are long. Those behind the first may take several times as long.
__global__ void alike_kernel(float* out, int n, int times) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0, passes = blockIdx.x == 0 ? 40000 : 40000 * times; k < passes; ++k)
        sum = sum * 0.5f + out[(i + 33 * k) % n];
    out[n + i] = sum + 1;
}

__global__ void reading_kernel(const float* in, float* out) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
}

// The last of its blocks adds to what the others did.
__global__ void counting_kernel(float* out, int n, unsigned* done) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 200; ++k)
        sum = sum * 0.5f + out[(i + 33 * k) % n];
    out[n + i] = sum;
    if (threadIdx.x == 0 && atomicAdd(done, 1) == gridDim.x - 1)
        for (int k = 0; k < n; k += 64)
            out[k] = 1;
}

// The last block is told by a sum that it loads, or by an answer that is taken on one way only.
__device__ int all_done;
__device__ float all_counted;
__global__ void quiet_kernel(float* out, int n, bool loads) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 200; ++k)
        sum = sum * 0.5f + out[(i + 33 * k) % n];
    out[n + i] = sum;
    if (threadIdx.x > 0)
        return;
    float before = atomicAdd(&all_counted, 1.0f);
    int many = static_cast<int>(loads ? 0.0f : before) + 1;
    if (loads) {
        atomicAdd(&all_done, 1);
        __threadfence();
        many = __ldcg(&all_done);
    }
    if (many == static_cast<int>(gridDim.x))
        for (int k = 0; k < n; k += 64)
            out[k] = 1;
}

// Warps go down columns, twice: what L1 still has of the lines depends on the sets that they go to.
__global__ void columns_kernel(const float* in, float* out) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int pass = 0; pass < 2; ++pass)
        for (int row = 0; row < 100; ++row)
            sum += in[row * 4096 + column];
    out[column] = sum;
}

// The first block walks for so many steps, the others for so many.
__global__ void walking_kernel(float* out, int of_first, int of_others) {
    int steps = blockIdx.x == 0 ? of_first : of_others;
    float sum = 0;
    for (int k = 0; k < steps; ++k)
        sum = sum * 0.5f + out[(threadIdx.x + 33 * k) % 4096];
    out[4096 + blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// One of its blocks, which is in no sample, takes longest. The block that finds that all others are over adds up more.
__global__ void ticket_kernel(float* out, int slow, unsigned* done) {
    volatile float sum = 0;
    for (int k = 0; k < (blockIdx.x == slow ? 3000000 : 1); ++k)
        sum = sum * 0.5f + 1;
    out[blockIdx.x] = sum;
    if (atomicAdd(done, 1) == gridDim.x - 1)
        for (int k = 0; k < gridDim.x; ++k)
            out[gridDim.x] += out[k];
}

template <class Work> void recorded(Work work) {
    cudamaster_cpu_record(1);
    work();
    cudamaster_cpu_record(0);
}

// What lets the host read what a launch has left, without waiting for it.
void asks_whether_done(const std::string& how, cudaEvent_t event) {
    if (how == "a host function")
        cudaLaunchHostFunc(nullptr, [](void*) {}, nullptr);
    else if (how == "a callback")
        cudaStreamAddCallback(nullptr, [](cudaStream_t, cudaError_t, void*) {}, nullptr, 0);
    else if (how == "the stream")
        cudaStreamQuery(nullptr);
    else if (how == "the event")
        cudaEventQuery(event);
}

int main(int argc, char** words) {
    const int n = 1 << 20, threads = 128, blocks = n / threads;
    float *out, *few;
    unsigned* done;
    if (cudaMalloc(&out, 8 * n) || cudaMalloc(&few, 4096) || cudaMalloc(&done, 4))
        return 1;
    cudaMemset(out, 0, 8 * n);
    cudaMemset(done, 0, 4);
    if (argc > 2) {
        const bool few_blocks = std::string(words[2]) == "few";
        recorded([&] {
            for (int k = 0; k < 4 && few_blocks; ++k)
                walking_kernel<<<64, 1024>>>(out, 15000, k < 3 ? 15000 : 8 * 15000);
            for (int k = 0; k < 8 && !few_blocks; ++k)
                alike_kernel<<<1000, threads>>>(out, n, k < 4 + argc ? 1 : 8);
        });
        return 0;
    }
    const std::string how = argc > 1 ? words[1] : "";
    if (how == "long launches") { // of which the first twenty take the call's budget
        recorded([&] {
            for (int launch = 0; launch < 23; ++launch)
                walking_kernel<<<4096, 32>>>(out, launch == 21 ? 30000 : 20000, launch < 20 ? 20000 : 30000);
        });
        return 0;
    }
    if (how == "a ticket") {
        recorded([&] { ticket_kernel<<<1024, 1>>>(out, 1000, done); });
        return 0;
    }
    if (how == "a sum that is loaded" || how == "an answer on one way") {
        recorded([&] { quiet_kernel<<<blocks, threads>>>(out, n, how == "a sum that is loaded"); });
        return 0;
    }
    cudaEvent_t event;
    if (cudaEventCreate(&event) || cudaEventRecord(event))
        return 1;
    if (how != "without the first")
        recorded([&] { columns_kernel<<<4, 1024>>>(out, out + n); });
    if (how == "the first alone")
        return 0;
    recorded([&] {
        long_kernel<<<blocks, threads>>>(out, n);
        asks_whether_done(how, event);
    });
    recorded([&] { counting_kernel<<<blocks, threads>>>(out, n, done); });
    recorded([&] { uneven_kernel<<<blocks, threads>>>(out, n); });
    recorded([&] { reading_kernel<<<1, 128>>>(out, few); });
    recorded([&] {
        long_kernel<<<blocks, threads>>>(out, n);
        reading_kernel<<<1, 128>>>(out + 2 * n - 128, few);
    });
    float last = 0;
    cudaMemcpy(&last, few + 127, 4, cudaMemcpyDeviceToHost);
    return last == 0; // it needs what the last block of the long kernel left
}
