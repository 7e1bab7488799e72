// What a call takes on the host when the processor's caches are cold, and why a call that is not timed leads a series.
//
//     nvcc -O2 -std=c++17 -arch=native -Ibench/include -Ibench benchmarks/cold_host.cu -lcublas -o cold_host
//     taskset -c 3 ./cold_host
//
// A product of two matrices of 4096 x 4096 in bf16 by cuBLAS, and an empty kernel; medians of 60, in microseconds: until the
// call returns, until the device is idle, and on the device. All elements are equal, which takes less power than random
// ones would, so that the product itself is faster here than in a case of the task.
#include <cstdio>
#include <functional>
#include <string>
#include <unistd.h>
#include <vector>
#include "mskb/timing.h"
#include "vendor/cublas.h"

namespace {

constexpr int kCalls = 60, kSize = 4096;

__global__ void empty() {}

double median(std::vector<double>& samples) {
    std::nth_element(samples.begin(), samples.begin() + samples.size() / 2, samples.end());
    return samples[samples.size() / 2];
}

// `before` is what the host does between two calls.
void row(const std::string& what, const mskb::CacheFlush& flush, const std::function<void()>& call,
         const std::function<void()>& before) {
    cudaEvent_t begin, end;
    MSKB_CUDA(cudaEventCreate(&begin));
    MSKB_CUDA(cudaEventCreate(&end));
    std::vector<double> returned, whole, device;
    for (int k = 0; k < kCalls; ++k) {
        flush();
        MSKB_CUDA(cudaEventRecord(begin));
        call();
        MSKB_CUDA(cudaEventRecord(end));
        MSKB_CUDA(cudaEventSynchronize(end));
        float milliseconds = 0;
        MSKB_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
        device.push_back(milliseconds * 1e3);
    }
    for (int k = 0; k < kCalls; ++k) {
        flush();
        MSKB_CUDA(cudaDeviceSynchronize());
        before();
        empty<<<1, 1>>>();
        whole.push_back(1e6 * mskb::timed_call([&] {
                            mskb::Clock::time_point start = mskb::Clock::now();
                            call();
                            returned.push_back(1e6 * mskb::seconds_since(start));
                        }));
    }
    std::printf("%-55s %8.1f %8.1f %8.1f\n", what.c_str(), median(returned), median(whole), median(device));
}

} // namespace

int main() {
    vendor::Cublas cublas;
    cublas.open(vendor::kRoundedOnce);
    vendor::Memory a, b, c, scratch;
    for (vendor::Memory* memory : {&a, &b, &c})
        memory->hold(size_t{2} * kSize * kSize);
    MSKB_CUDA(cudaMemset(a.get(), 0x3c, size_t{2} * kSize * kSize));
    MSKB_CUDA(cudaMemset(b.get(), 0x3c, size_t{2} * kSize * kSize));
    scratch.hold(mskb::CacheFlush::bytes());
    mskb::CacheFlush flush(scratch.as<unsigned char>());
    auto product = [&] {
        const float one = 1.0f, zero = 0.0f;
        VENDOR_CHECK(cublasGemmEx(cublas.get(), CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &one, b.get(),
                                  CUDA_R_16BF, kSize, a.get(), CUDA_R_16BF, kSize, &zero, c.get(),
                                  CUDA_R_16BF, kSize, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    };
    product();
    std::vector<unsigned char> memory(size_t{256} << 20);
    auto write = [&](size_t bytes) {
        for (size_t i = 0; i < bytes; i += 64)
            ++memory[i];
    };
    std::printf("%-55s %8s %8s %8s\n", "us", "returned", "whole", "device");
    for (bool library : {true, false}) {
        const std::string name = library ? "cuBLAS" : "an empty kernel";
        const std::function<void()> call =
            library ? std::function<void()>(product) : [] { empty<<<1, 1>>>(); };
        row(name + ", at once", flush, call, [] {});
        row(name + ", after 2 ms of sleep", flush, call, [] { usleep(2000); });
        for (size_t mib : {4, 64, 256})
            row(name + ", after writing to " + std::to_string(mib) + " MB of the host's", flush, call,
                [&] { write(mib << 20); });
    }
}
