// What calls of the runtime cost in a new process, and in one that holds what a worker does (mskb/used_process.h).
//
//     nvcc -O2 -std=c++17 -arch=native -Ibench/include benchmarks/process_state.cu -o process_state
//     ./process_state new; ./process_state worker
//
// Whole calls with one kernel, from an idle device to an idle device, in microseconds; median of 60.
#include <cstdio>
#include <functional>
#include <string>
#include "mskb/timing.h"
#include "mskb/used_process.h"

namespace {

__global__ void touch(char* data) {
    if (data != nullptr)
        *data = 1;
}

void row(const std::string& what, const std::function<void()>& call) {
    constexpr int kWarmups = 5, kCalls = 60;
    std::vector<double> took;
    for (int k = 0; k < kWarmups + kCalls; ++k)
        took.push_back(mskb::timed_call(call) * 1e6);
    took.erase(took.begin(), took.begin() + kWarmups);
    std::nth_element(took.begin(), took.begin() + kCalls / 2, took.end());
    std::printf("%-40s %8.1f\n", what.c_str(), took[kCalls / 2]);
}

} // namespace

int main(int, char** words) {
    bool used = words[1] != nullptr && std::string(words[1]) == "worker";
    MSKB_CUDA(cudaFree(nullptr));
    if (used)
        mskb::make_used();
    row("an empty kernel", [] { touch<<<1, 1>>>(nullptr); });
    for (size_t kib : {1, 64, 512, 1536, 2048, 4096, 16384, 65536, 262144})
        row("cudaMalloc, " + std::to_string(kib) + " KB", [kib] {
            char* data = nullptr;
            MSKB_CUDA(cudaMalloc(&data, kib << 10));
            touch<<<1, 1>>>(data);
            MSKB_CUDA(cudaFree(data));
        });
    for (size_t kib : {1, 1024, 16384, 65536})
        row("cudaMallocAsync, " + std::to_string(kib) + " KB", [kib] {
            char* data = nullptr;
            MSKB_CUDA(cudaMallocAsync(&data, kib << 10, nullptr));
            touch<<<1, 1>>>(data);
            MSKB_CUDA(cudaFreeAsync(data, nullptr));
        });
    for (size_t kib : {4, 1024})
        row("cudaMallocHost, " + std::to_string(kib) + " KB", [kib] {
            void* data = nullptr;
            MSKB_CUDA(cudaMallocHost(&data, kib << 10));
            touch<<<1, 1>>>(nullptr);
            MSKB_CUDA(cudaFreeHost(data));
        });
    row("a stream", [] {
        cudaStream_t stream;
        MSKB_CUDA(cudaStreamCreate(&stream));
        touch<<<1, 1, 0, stream>>>(nullptr);
        MSKB_CUDA(cudaStreamDestroy(stream));
    });
    row("an event", [] {
        cudaEvent_t event;
        MSKB_CUDA(cudaEventCreate(&event));
        touch<<<1, 1>>>(nullptr);
        MSKB_CUDA(cudaEventRecord(event));
        MSKB_CUDA(cudaEventDestroy(event));
    });
}
