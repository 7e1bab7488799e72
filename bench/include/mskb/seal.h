// The seal of an output: a number that changes when a bit of it does.
//
// A call's outputs are sealed in its own process before the next call is prepared, with a key that is drawn after it, and
// once more by the judge when all calls of a series are over. A result that comes with a later call breaks the seal, which
// the judge has by then: whoever finds the key in the process cannot change it any more.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include "mskb/buffers.h"
#include "mskb/channel.h"
#include "mskb/random.h"

namespace mskb {

// What word `i` of a buffer adds to the seal of a call; the last word may be a part of one.
MSKB_HD uint64_t sealed_word(const unsigned char* data, size_t bytes, uint64_t key, size_t i) {
    constexpr size_t kWord = sizeof(uint64_t);
    uint64_t word = 0;
    if ((i + 1) * kWord <= bytes)
        word = reinterpret_cast<const uint64_t*>(data)[i];
    else
        for (size_t at = i * kWord; at < bytes; ++at)
            word |= static_cast<uint64_t>(data[at]) << (at % kWord * 8);
    uint64_t state = word ^ bits_at(key, i);
    return splitmix(state);
}

MSKB_HD size_t sealed_words(size_t bytes) {
    return (bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t);
}

// Adds the seal of a buffer, and `more`, to `sum`. The order in which words are added is of no consequence.
static __global__ void seal_kernel(const unsigned char* data, size_t bytes, uint64_t key, uint64_t more,
                                   unsigned long long* sum) {
    __shared__ unsigned long long of_block;
    if (threadIdx.x == 0)
        of_block = blockIdx.x == 0 ? more : 0;
    __syncthreads();
    unsigned long long own = 0;
    for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < sealed_words(bytes);
         i += static_cast<size_t>(gridDim.x) * blockDim.x)
        own += sealed_word(data, bytes, key, i);
    atomicAdd(&of_block, own);
    __syncthreads();
    if (threadIdx.x == 0)
        atomicAdd(sum, of_block);
}

// Makes the seal of one call after the other.
class Sealer {
  public:
    // Launches seal_kernel; a launch stands in no header (the CPU device rewrites those of a source file alone).
    using Launch = void (*)(const unsigned char* data, size_t bytes, uint64_t key, uint64_t more,
                            unsigned long long* sum);

    explicit Sealer(Launch launch) : launch_(launch), sum_(sizeof(unsigned long long)) {}

    // Begins the seal of a call; its outputs are added one after the other.
    void begin(const SealKey& key) {
        key_ = key, buffers_ = 0;
        MSKB_CUDA(cudaMemsetAsync(sum_.get(), 0, sum_.bytes()));
    }
    void add(const void* data, size_t bytes) {
        if (bytes == 0)
            return;
        launch_(static_cast<const unsigned char*>(data), bytes, bits_at(key_.of_words, buffers_),
                bits_at(key_.added, buffers_), static_cast<unsigned long long*>(sum_.get()));
        ++buffers_;
    }
    uint64_t seal() const {
        uint64_t sum = 0;
        MSKB_CUDA(cudaMemcpy(&sum, sum_.get(), sizeof sum, cudaMemcpyDeviceToHost));
        return sum;
    }

  private:
    Launch launch_;
    DeviceBuffer sum_;
    SealKey key_{};
    uint64_t buffers_ = 0;
};

} // namespace mskb
