// Buffers on the device.
//
// A working buffer has a guard zone on either side; what lies beyond its end is a pattern that reads as NaN in
// every element type, and a write to it is found afterwards. Under a memory checker the zones are left out
// (MSKB_EXACT_BUFFERS), so that the checker sees the exact bounds.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>
#include <cuda_runtime.h>
#include "mskb/task.h"

namespace mskb {

// A failure of the harness itself (not of a candidate): say what and stop.
[[noreturn]] inline void harness_failure(const std::string& what) {
    std::fprintf(stderr, "harness failure: %s\n", what.c_str());
    std::_Exit(74);
}

inline void cuda_checked(cudaError_t status, const char* what) {
    if (status != cudaSuccess)
        harness_failure(std::string(what) + ": " + cudaGetErrorName(status) + ", " +
                        cudaGetErrorString(status));
}
#define MSKB_CUDA(call) ::mskb::cuda_checked((call), #call)

#ifdef MSKB_EXACT_BUFFERS
constexpr size_t kGuardBytes = 0;
#else
constexpr size_t kGuardBytes = 4096;
#endif
constexpr unsigned char kGuardPattern[4] = {0xC3, 0xFF, 0xA5, 0x7F};

inline const unsigned char* guard_image() {
    static const std::vector<unsigned char> image = [] {
        std::vector<unsigned char> bytes(kGuardBytes + 4);
        for (size_t i = 0; i < bytes.size(); ++i)
            bytes[i] = kGuardPattern[i % 4];
        return bytes;
    }();
    return image.data();
}

// One device allocation with guard zones around the data.
class DeviceBuffer {
  public:
    explicit DeviceBuffer(size_t bytes, size_t guard = 0) : bytes_(bytes), guard_(guard) {
        MSKB_CUDA(cudaMalloc(reinterpret_cast<void**>(&base_), std::max<size_t>(bytes + 2 * guard, 1)));
        if (guard_ > 0) {
            MSKB_CUDA(cudaMemcpy(base_, guard_image(), guard_, cudaMemcpyHostToDevice));
            MSKB_CUDA(cudaMemcpy(base_ + guard_ + bytes_, guard_image(), guard_, cudaMemcpyHostToDevice));
        }
    }
    DeviceBuffer(DeviceBuffer&& other) noexcept
        : base_(other.base_), bytes_(other.bytes_), guard_(other.guard_) {
        other.base_ = nullptr;
    }
    DeviceBuffer(const DeviceBuffer&) = delete;
    DeviceBuffer& operator=(const DeviceBuffer&) = delete;
    ~DeviceBuffer() {
        if (base_ != nullptr)
            cudaFree(base_);
    }

    void* get() const { return base_ + guard_; }
    size_t bytes() const { return bytes_; }

    // Empty when both guard zones are as they were, else where the first changed byte lies.
    std::string overrun() const {
        std::vector<unsigned char> found(guard_);
        for (int side = 0; side < 2 && guard_ > 0; ++side) {
            unsigned char* zone = side == 0 ? base_ : base_ + guard_ + bytes_;
            MSKB_CUDA(cudaMemcpy(found.data(), zone, guard_, cudaMemcpyDeviceToHost));
            for (size_t i = 0; i < guard_; ++i)
                if (found[i] != guard_image()[i])
                    return side == 0 ? "written " + std::to_string(guard_ - i) + " bytes before its start"
                                     : "written " + std::to_string(i) + " bytes past its end";
        }
        return "";
    }

  private:
    unsigned char* base_ = nullptr;
    size_t bytes_, guard_;
};

// Host memory that is page-locked, so that gigabytes arrive quickly, and kept for the next use: locking takes longer
// than the copy.
class HostBuffer {
  public:
    HostBuffer() = default;
    HostBuffer(HostBuffer&& other) noexcept
        : bytes_(std::exchange(other.bytes_, 0)), data_(std::exchange(other.data_, nullptr)) {}
    HostBuffer(const HostBuffer&) = delete;
    HostBuffer& operator=(const HostBuffer&) = delete;
    ~HostBuffer() { cudaFreeHost(data_); }

    // Room for so many bytes; what was there is lost.
    void* room(size_t bytes) {
        if (bytes > bytes_ || data_ == nullptr) {
            cudaFreeHost(data_);
            data_ = nullptr;
            MSKB_CUDA(cudaMallocHost(&data_, std::max<size_t>(bytes, 1)));
            bytes_ = bytes;
        }
        return data_;
    }

  private:
    size_t bytes_ = 0;
    void* data_ = nullptr;
};

} // namespace mskb
