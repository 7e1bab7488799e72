// What calls of the CUDA runtime cost the host and the device, in microseconds: medians, as in calls that are timed.
#pragma once

#include <chrono>
#include <vector>
#include "harness/limits/measuring.h"

static __global__ void nothing_kernel() {}

static __global__ void busy_kernel(long long cycles) {
    for (long long start = clock64(); clock64() - start < cycles;) {
    }
}

struct Runtime {
    double empty_call = 0, empty_device = 0, launch_host = 0, gap = 0, memset_host = 0, memset_device = 0,
           small_alloc = 0, alloc = 0, synchronise = 0, host_bytes_per_s = 0;
};

// Median of a call by the host's clock, in microseconds; the device is idle before each.
template <class Call> double median_us(int repetitions, const Call& call) {
    std::vector<double> found;
    for (int repetition = 0; repetition < repetitions; ++repetition) {
        CHECKED(cudaDeviceSynchronize());
        auto start = std::chrono::steady_clock::now();
        call();
        found.push_back(
            std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    }
    std::sort(found.begin(), found.end());
    return found[found.size() / 2];
}

// Median time on the device of what `call` enqueues, behind a kernel that lasts until the host has enqueued all.
template <class Call> double median_device_us(double clock_mhz, const Call& call) {
    cudaEvent_t begin, end;
    CHECKED(cudaEventCreate(&begin));
    CHECKED(cudaEventCreate(&end));
    std::vector<float> found;
    for (int repetition = 0; repetition < 40; ++repetition) {
        busy_kernel<<<1, 1>>>(static_cast<long long>(300 * clock_mhz));
        CHECKED(cudaEventRecord(begin));
        call();
        CHECKED(cudaEventRecord(end));
        CHECKED(cudaEventSynchronize(end));
        float milliseconds = 0;
        CHECKED(cudaEventElapsedTime(&milliseconds, begin, end));
        found.push_back(milliseconds * 1000);
    }
    std::sort(found.begin(), found.end());
    CHECKED(cudaEventDestroy(begin));
    CHECKED(cudaEventDestroy(end));
    return found[found.size() / 2];
}

inline Runtime measure_runtime(double clock_mhz) {
    constexpr int kMany = 16;
    constexpr size_t kSmall = 4096, kLarge = size_t{64} << 20;
    Runtime found;
    char* data = nullptr;
    CHECKED(cudaMalloc(&data, kLarge));
    std::vector<char> host(kLarge, 1);
    auto sync = [] { CHECKED(cudaDeviceSynchronize()); };
    auto times = [](int count, const auto& each) {
        for (int i = 0; i < count; ++i)
            each();
    };
    auto launch = [] { nothing_kernel<<<1, 32>>>(); };
    auto fill = [&] { CHECKED(cudaMemsetAsync(data, 0, kSmall)); };
    auto slope = [&](const auto& each) { // of one more, on the host
        double many = median_us(60, [&] { times(kMany, each); }),
               one = median_us(60, [&] { times(1, each); });
        return (many - one) / (kMany - 1);
    };
    auto device_slope = [&](const auto& each) { // of one more, on the device
        double many = median_device_us(clock_mhz, [&] { times(kMany, each); });
        return (many - median_device_us(clock_mhz, [&] { times(1, each); })) / (kMany - 1);
    };
    found.empty_call = median_us(200, [&] { launch(), sync(); });
    found.launch_host = slope(launch);
    found.memset_host = slope(fill);
    found.synchronise = median_us(200, sync);
    // One kernel between two events, enqueued long before it starts.
    found.empty_device = median_device_us(clock_mhz, launch);
    // A kernel of known length, so that what is beyond it is the way from one to the next.
    constexpr double kBusy = 4;
    auto busy = [&] { busy_kernel<<<1, 32>>>(static_cast<long long>(kBusy * clock_mhz)); };
    found.gap = std::max(0.05, device_slope(busy) - kBusy);
    found.memset_device =
        std::max(0.05, device_slope([&] { busy(), fill(); }) - device_slope(busy) - found.gap);
    auto allocate = [](size_t bytes) {
        void* made = nullptr;
        CHECKED(cudaMalloc(&made, bytes));
        CHECKED(cudaFree(made));
    };
    // The page that a small allocation comes from stays at hand, as it does in a program with others.
    void* held = nullptr;
    CHECKED(cudaMalloc(&held, kSmall));
    found.small_alloc = median_us(60, [&] { allocate(kSmall); }) / 2;
    found.alloc = median_us(60, [&] { allocate(kLarge); }) / 2;
    CHECKED(cudaFree(held));
    double up =
        median_us(10, [&] { CHECKED(cudaMemcpy(data, host.data(), kLarge, cudaMemcpyHostToDevice)); });
    double down =
        median_us(10, [&] { CHECKED(cudaMemcpy(host.data(), data, kLarge, cudaMemcpyDeviceToHost)); });
    found.host_bytes_per_s = 2e6 * kLarge / (up + down);
    CHECKED(cudaFree(data));
    return found;
}
