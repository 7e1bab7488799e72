// What surrounds a timed call, in the process that makes it: cold caches, an idle device, the clocks.
#pragma once
#include <algorithm>
#include <cuda_runtime.h>
#include "mskb/buffers.h"
#include "mskb/channel.h"

namespace mskb {

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

// One call, in seconds by the host's clock. The device is idle before it starts, and when it stops: whatever stream
// the work is on. The error of that, if any, is read by the caller.
template <class Call> double timed_call(const Call& call) {
    cudaDeviceSynchronize();
    Clock::time_point start = Clock::now();
    call();
    cudaDeviceSynchronize();
    return seconds_since(start);
}

} // namespace mskb
