// What surrounds a timed call, in the process that makes it: cold caches, an idle device, the clocks.
#pragma once
#include <algorithm>
#include <cuda_runtime.h>
#include "mskb/buffers.h"
#include "mskb/channel.h"

namespace mskb {

#ifndef MSKB_CPU_DEVICE
constexpr int kFlushBlocks = 1024, kFlushThreads = 256;

static __global__ void read_scratch(uint4* scratch, size_t vectors) {
    unsigned int seen = 0;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += gridDim.x * blockDim.x) {
        uint4 read = __ldcg(scratch + i);
        seen |= read.x ^ read.y ^ read.z ^ read.w;
    }
    if (seen == 0xdeadbeef) // or the compiler leaves the reading out
        scratch[0].x = seen;
}
#endif

// Fills the L2 cache with other data between calls, and resets its persisting part.
//
// The scratch memory is one for all workers: where it lies would make one process's calls slower than another's. It is
// read and not written: a call that has to write back what filled the cache takes longer than a cold cache explains.
class CacheFlush {
  public:
    // Bytes of scratch memory: twice the cache.
    static size_t bytes() {
        int device = 0, bytes = 0;
#ifndef MSKB_CPU_DEVICE
        MSKB_CUDA(cudaGetDevice(&device));
        MSKB_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device));
#endif
        return 2 * static_cast<size_t>(bytes) + device;
    }

    explicit CacheFlush(unsigned char* scratch) : scratch_(scratch), bytes_(bytes()) {}

    void operator()() const {
#ifndef MSKB_CPU_DEVICE
        MSKB_CUDA(cudaCtxResetPersistingL2Cache());
        read_scratch<<<kFlushBlocks, kFlushThreads>>>(reinterpret_cast<uint4*>(scratch_),
                                                      bytes_ / sizeof(uint4));
        MSKB_CUDA(cudaGetLastError());
#endif
    }

  private:
    unsigned char* scratch_;
    size_t bytes_;
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
