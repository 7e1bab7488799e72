// Memory of the harness's own: on the device, and page-locked on the host. Buffers that calls work on: arena.h.
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>
#ifdef __linux__
#include <sys/mman.h>
#endif
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

// One device allocation, of exactly so many bytes: a memory checker sees what lies behind.
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

// Device memory for checks and inputs, which comes and goes thousands of times in a run. Blocks are kept for the next use:
// while other GPUs of the machine are at work, the driver may take milliseconds to allocate one and to free it. Who uses
// them works on the default stream alone, so that a block is free as soon as its buffer is gone.
class ReusedBuffer {
  public:
    explicit ReusedBuffer(size_t bytes) : bytes_(bytes) {
        while (size_class_ < kClasses && (kSmallest << size_class_) < bytes)
            ++size_class_;
        if (size_class_ < kClasses && !blocks().free[size_class_].empty()) {
            data_ = blocks().free[size_class_].back();
            blocks().free[size_class_].pop_back();
            blocks().bytes -= kSmallest << size_class_;
            return;
        }
        MSKB_CUDA(cudaMalloc(&data_, size_class_ < kClasses ? kSmallest << size_class_ : bytes));
    }
    ReusedBuffer(ReusedBuffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_), size_class_(other.size_class_) {}
    ReusedBuffer(const ReusedBuffer&) = delete;
    ReusedBuffer& operator=(const ReusedBuffer&) = delete;
    ~ReusedBuffer() {
        if (data_ == nullptr)
            return;
        if (size_class_ == kClasses || blocks().bytes + (kSmallest << size_class_) > kKept) {
            cudaFree(data_);
            return;
        }
        blocks().free[size_class_].push_back(data_);
        blocks().bytes += kSmallest << size_class_;
    }

    void* get() const { return data_; }
    size_t bytes() const { return bytes_; }

  private:
    static constexpr size_t kSmallest = 512,
                            kKept = size_t{256} << 20; // bytes of a block, and of all that are kept
    static constexpr int kClasses = 18;                // of blocks, each twice the one before

    struct Blocks {
        std::vector<void*> free[kClasses];
        size_t bytes = 0;
    };
    // They end with the process: the driver may be gone before a destructor could free them.
    static Blocks& blocks() {
        static Blocks* kept = new Blocks;
        return *kept;
    }

    void* data_ = nullptr;
    size_t bytes_;
    int size_class_ = 0; // kClasses: larger than any block that is kept
};

// Host memory that is page-locked, so that gigabytes arrive quickly, and kept for the next use. Pages are large where the
// system has such: 512 MB of them are there and locked in 0.1 s, of others in 0.2 to 0.4 (H100 machines).
class HostBuffer {
  public:
    HostBuffer() = default;
    HostBuffer(HostBuffer&& other) noexcept
        : bytes_(std::exchange(other.bytes_, 0)), data_(std::exchange(other.data_, nullptr)),
          locked_(std::exchange(other.locked_, false)) {}
    HostBuffer(const HostBuffer&) = delete;
    HostBuffer& operator=(const HostBuffer&) = delete;
    ~HostBuffer() { give_back(); }

    // Room for so many bytes; what was there is lost.
    void* room(size_t bytes) {
        if (bytes > bytes_ || data_ == nullptr) {
            give_back();
            bytes_ = (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
            data_ = std::aligned_alloc(kPage, bytes_);
            if (data_ == nullptr)
                harness_failure("there is no room for " + std::to_string(bytes_ >> 20) + " MiB on the host");
#ifdef __linux__
            madvise(data_, bytes_, MADV_HUGEPAGE); // before the first write, or it has small ones already
#endif
            locked_ = cudaHostRegister(data_, bytes_, cudaHostRegisterDefault) == cudaSuccess;
            cudaGetLastError(); // where it cannot be locked, copies are slower
        }
        return data_;
    }

  private:
    static constexpr size_t kPage = size_t{2} << 20;

    void give_back() {
        if (locked_)
            cudaHostUnregister(data_);
        locked_ = false;
        std::free(data_);
        data_ = nullptr;
    }

    size_t bytes_ = 0;
    void* data_ = nullptr;
    bool locked_ = false;
};

} // namespace mskb
