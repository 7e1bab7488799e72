// Memory of the harness's own: on the device, and page-locked on the host. Buffers that calls work on: arena.h.
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <cuda_runtime.h>

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

// One device allocation.
class DeviceBuffer {
  public:
    explicit DeviceBuffer(size_t bytes) : bytes_(bytes) {
        MSKB_CUDA(cudaMalloc(&data_, std::max<size_t>(bytes, 1)));
    }
    DeviceBuffer(DeviceBuffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
    DeviceBuffer(const DeviceBuffer&) = delete;
    DeviceBuffer& operator=(const DeviceBuffer&) = delete;
    ~DeviceBuffer() { cudaFree(data_); }

    void* get() const { return data_; }
    size_t bytes() const { return bytes_; }

  private:
    void* data_ = nullptr;
    size_t bytes_;
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
