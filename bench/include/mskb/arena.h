// The buffers of a case, in memory that the judge shares with its workers.
//
// A guard zone lies on either side of each; what is behind its end is a pattern that reads as NaN in every element type,
// and a write to it is found afterwards.
#pragma once
#include <cstdint>
#include <string>
#include <vector>
#include <cuda_runtime.h>
#include "mskb/channel.h"
#include "mskb/shared_memory.h"
#include "mskb/task.h"

namespace mskb {

constexpr size_t kGuardBytes = 4096, kAlignment = 256; // an alignment as cudaMalloc gives it
constexpr unsigned char kGuardPattern[4] = {0xC3, 0xFF, 0xA5, 0x7F};

inline const std::vector<unsigned char>& guard_image() {
    static const std::vector<unsigned char> image = [] {
        std::vector<unsigned char> bytes(kGuardBytes);
        for (size_t i = 0; i < bytes.size(); ++i)
            bytes[i] = kGuardPattern[i % 4];
        return bytes;
    }();
    return image;
}

// One buffer of the case.
class WorkingBuffer {
  public:
    // Of `bytes` bytes at `data`; writes its guard zones.
    WorkingBuffer(unsigned char* data, size_t bytes) : data_(data), bytes_(bytes) {
        MSKB_CUDA(cudaMemcpy(data_ - kGuardBytes, guard_image().data(), kGuardBytes, cudaMemcpyHostToDevice));
        MSKB_CUDA(cudaMemcpy(data_ + bytes_, guard_image().data(), kGuardBytes, cudaMemcpyHostToDevice));
    }

    void* get() const { return data_; }

    // Empty when both guard zones are as they were, else where the first changed byte lies.
    std::string overrun() const {
        std::vector<unsigned char> found(kGuardBytes);
        for (int side = 0; side < 2; ++side) {
            const unsigned char* zone = side == 0 ? data_ - kGuardBytes : data_ + bytes_;
            MSKB_CUDA(cudaMemcpy(found.data(), zone, kGuardBytes, cudaMemcpyDeviceToHost));
            for (size_t i = 0; i < kGuardBytes; ++i)
                if (found[i] != guard_image()[i])
                    return side == 0
                               ? "written " + std::to_string(kGuardBytes - i) + " bytes before its start"
                               : "written " + std::to_string(i) + " bytes past its end";
        }
        return "";
    }

  private:
    unsigned char* data_;
    size_t bytes_;
};

// Where the buffers of a call lie within its slot.
struct Layout {
    std::vector<Request::Span> spans;
    size_t bytes = 0; // of a slot

    explicit Layout(const std::vector<BufferSpec>& specs) {
        for (const BufferSpec& spec : specs) {
            size_t offset = (bytes + kGuardBytes + kAlignment - 1) / kAlignment * kAlignment;
            spans.push_back(
                {offset, spec.bytes(), spec.is_read(), spec.is_written(), poison_byte(spec.kind)});
            bytes = offset + spec.bytes() + kGuardBytes;
        }
        bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment; // the next slot begins there
    }
};

} // namespace mskb
