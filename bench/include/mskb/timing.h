// Timing of one whole wrapper call by the host's clock, device idle on both sides, and the watchdog that ends
// a call that never does.
#pragma once
#include <atomic>
#include <chrono>
#include <cuda_runtime.h>
#include <functional>
#include <thread>
#include "mskb/buffers.h"
#include "mskb/report.h"

namespace mskb {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Clears the L2 cache between calls by writing twice its size, and resets its persisting part.
class CacheFlush {
  public:
    CacheFlush() : scratch_(size()) {}
    void operator()() const {
#ifndef MSKB_CPU_DEVICE
        MSKB_CUDA(cudaCtxResetPersistingL2Cache());
        MSKB_CUDA(cudaMemsetAsync(scratch_.get(), 0, scratch_.bytes()));
#endif
    }

  private:
    static size_t size() {
        int device = 0, bytes = 0;
#ifndef MSKB_CPU_DEVICE
        MSKB_CUDA(cudaGetDevice(&device));
        MSKB_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device));
#endif
        return std::max<size_t>(2 * static_cast<size_t>(bytes), device + 1);
    }
    DeviceBuffer scratch_;
};

// Ends the process when a call runs longer than it may: a kernel that never returns can't be stopped
// otherwise. The report then has a `timeout` line, and the exit code is 75.
class Watchdog {
  public:
    Watchdog(const Report& report) : report_(report), thread_([this] { watch(); }) {}
    ~Watchdog() {
        stop_ = true;
        thread_.join();
    }

    void arm(double limit_s) {
        limit_s_ = limit_s;
        started_ = Clock::now().time_since_epoch().count();
    }
    void disarm() { started_ = 0; }

  private:
    void watch() {
        while (!stop_) {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            long long started = started_;
            if (started != 0 && Clock::now().time_since_epoch().count() - started > limit_s_ * 1e9) {
                report_.write(Line("timeout").add("limit_s", limit_s_.load()));
                std::_Exit(75);
            }
        }
    }
    const Report& report_;
    std::atomic<long long> started_{0};
    std::atomic<double> limit_s_{0};
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

// One timed call, in seconds. The device is idle before the clock starts and when it stops.
inline double timed_call(const std::function<void()>& call) {
    MSKB_CUDA(cudaDeviceSynchronize());
    Clock::time_point start = Clock::now();
    call();
    cudaDeviceSynchronize(); // its error, if any, is read by the caller
    return seconds_since(start);
}

} // namespace mskb
