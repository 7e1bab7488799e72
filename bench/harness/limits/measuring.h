// What all measurements share: checked calls, the best time of many launches, and rates from it.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <cuda_runtime.h>

inline void checked(cudaError_t status, const char* what) {
    if (status == cudaSuccess)
        return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    std::exit(1);
}
#define CHECKED(call) checked((call), #call)

// Least seconds of several launches, one at a time.
template <class Launch> double least_seconds(int repetitions, const Launch& launch) {
    cudaEvent_t begin, end;
    CHECKED(cudaEventCreate(&begin));
    CHECKED(cudaEventCreate(&end));
    double least = std::numeric_limits<double>::infinity();
    for (int repetition = 0; repetition < repetitions; ++repetition) {
        CHECKED(cudaEventRecord(begin));
        launch();
        CHECKED(cudaEventRecord(end));
        CHECKED(cudaEventSynchronize(end));
        CHECKED(cudaGetLastError());
        float milliseconds = 0;
        CHECKED(cudaEventElapsedTime(&milliseconds, begin, end));
        least = std::min(least, milliseconds * 1e-3);
    }
    CHECKED(cudaEventDestroy(begin));
    CHECKED(cudaEventDestroy(end));
    return least;
}

// Iterations of a kernel's loop that make a launch long enough to be timed and too short for the chip to get warm:
// between 200 and some 400 µs.
template <class Launch> int burst(const Launch& launch) {
    int iterations = 16;
    while (least_seconds(5, [&] { launch(iterations); }) < 200e-6 && iterations < 1 << 24)
        iterations *= 2;
    return iterations;
}

// Iterations per second at best. The time of a launch without iterations is no part of it: a rate that is a little
// too high leaves a floor true, one that is too low does not.
template <class Launch> double best_rate(const Launch& launch) {
    int iterations = burst(launch);
    double with = least_seconds(30, [&] { launch(iterations); });
    double without = least_seconds(30, [&] { launch(0); });
    return iterations / (with - without);
}

// Blocks that are resident at once on the whole GPU: one full wave, so that no multiprocessor is idle at the end.
template <class Kernel> int one_wave(const Kernel& kernel, int threads, int processors) {
    int blocks = 0;
    CHECKED(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0));
    return blocks * processors;
}
