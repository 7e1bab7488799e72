// What the microbenchmarks share: calls of the runtime that name their failure, and a median between two events.
#pragma once
#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>
#include <cuda_runtime.h>

#define OK(x)                                                                                                \
    do {                                                                                                     \
        cudaError_t e_ = (x);                                                                                \
        if (e_ != cudaSuccess) {                                                                             \
            printf("FAIL %s line %d: %s\n", #x, __LINE__, cudaGetErrorString(e_));                           \
            cudaGetLastError();                                                                              \
        }                                                                                                    \
    } while (0)

inline cudaEvent_t e0, e1; // made by main

// Microseconds on the device, the median of `reps` runs of `f` after one that does not count; `before` comes before each.
inline float median_us(const std::function<void()>& f, int reps, const std::function<void()>& before) {
    std::vector<float> times;
    f();
    for (int i = 0; i < reps; ++i) {
        if (before)
            before();
        OK(cudaEventRecord(e0));
        f();
        OK(cudaEventRecord(e1));
        OK(cudaEventSynchronize(e1));
        float ms = 0;
        OK(cudaEventElapsedTime(&ms, e0, e1));
        times.push_back(ms * 1000);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}
