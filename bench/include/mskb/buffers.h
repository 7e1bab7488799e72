// Buffers of a case: what the wrapper gets, on the host and on the device.
//
// A working buffer on the device has a guard zone on either side; what lies beyond its end is a pattern that
// reads as NaN in every element type, and a write to it is found afterwards. Under a memory checker the zones
// are left out (MSKB_EXACT_BUFFERS), so that the checker sees the exact bounds.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>
#include <cuda_runtime.h>
#include "mskb/number.h"

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

enum class Use { kInput, kOutput, kInOut };

// One pointer parameter of the wrapper: its name, element kind, number of elements and use.
struct BufferSpec {
    const char* name;
    Kind kind;
    long long length;
    Use use;
    bool exact; // outputs: compared exactly instead of within a bound

    size_t bytes() const { return static_cast<size_t>(length) * bytes_of(kind); }
    bool is_read() const { return use != Use::kOutput; }
    bool is_written() const { return use != Use::kInput; }
};

// Host bytes of all buffers of a case, in the wrapper's order.
class HostBuffers {
  public:
    explicit HostBuffers(const std::vector<BufferSpec>& specs) : specs_(specs) {
        for (const BufferSpec& spec : specs)
            data_.emplace_back(spec.bytes());
    }

    template <class T> T* data(size_t index) { return reinterpret_cast<T*>(data_[index].data()); }
    unsigned char* bytes(size_t index) { return data_[index].data(); }
    const unsigned char* bytes(size_t index) const { return data_[index].data(); }
    size_t length(size_t index) const { return static_cast<size_t>(specs_[index].length); }

  private:
    std::vector<BufferSpec> specs_;
    std::vector<std::vector<unsigned char>> data_;
};

#ifdef MSKB_EXACT_BUFFERS
constexpr size_t kGuardBytes = 0;
#else
constexpr size_t kGuardBytes = 4096;
#endif
constexpr int kPoison = 0xFF; // as every byte: NaN in fp32 and bf16, -1 in int
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

// What the wrapper is called on: one working buffer per pointer parameter, and the inputs they are restored
// from.
class DeviceSets {
  public:
    DeviceSets(const std::vector<BufferSpec>& specs, int sets) : specs_(specs) {
        for (const BufferSpec& spec : specs)
            working_.emplace_back(spec.bytes(), kGuardBytes);
        for (int set = 0; set < sets; ++set)
            add_set();
    }

    // Room for one more set of inputs; gives its number.
    int add_set() {
        pristine_.emplace_back();
        for (const BufferSpec& spec : specs_)
            pristine_.back().emplace_back(spec.is_read() ? spec.bytes() : 0);
        return static_cast<int>(pristine_.size()) - 1;
    }

    template <class T> T* pointer(size_t index) const { return static_cast<T*>(working_[index].get()); }
    const DeviceBuffer& working(size_t index) const { return working_[index]; }

    void upload(int set, const HostBuffers& host) {
        for (size_t i = 0; i < specs_.size(); ++i)
            if (specs_[i].is_read())
                MSKB_CUDA(cudaMemcpy(pristine_[set][i].get(), host.bytes(i), specs_[i].bytes(),
                                     cudaMemcpyHostToDevice));
    }

    // Before every call: inputs of `set` in place, outputs poisoned. Same addresses whatever the set, so that
    // a result remembered by pointer is a wrong one.
    void prepare(int set) {
        for (size_t i = 0; i < specs_.size(); ++i) {
            if (specs_[i].is_read())
                MSKB_CUDA(cudaMemcpyAsync(working_[i].get(), pristine_[set][i].get(), specs_[i].bytes(),
                                          cudaMemcpyDeviceToDevice));
            else
                MSKB_CUDA(cudaMemsetAsync(working_[i].get(), kPoison, specs_[i].bytes()));
        }
    }

    void download(size_t index, std::vector<unsigned char>& into) const {
        into.resize(specs_[index].bytes());
        MSKB_CUDA(cudaMemcpy(into.data(), working_[index].get(), into.size(), cudaMemcpyDeviceToHost));
    }

    // Bytes of one set of inputs on the device.
    static size_t set_bytes(const std::vector<BufferSpec>& specs) {
        size_t total = 0;
        for (const BufferSpec& spec : specs)
            total += spec.is_read() ? spec.bytes() : 0;
        return total;
    }

    // Bytes that a case takes on the device with this many input sets.
    static size_t footprint(const std::vector<BufferSpec>& specs, int sets) {
        size_t total = set_bytes(specs) * sets;
        for (const BufferSpec& spec : specs)
            total += spec.bytes() + 2 * kGuardBytes;
        return total;
    }

  private:
    std::vector<BufferSpec> specs_;
    std::vector<DeviceBuffer> working_;
    std::vector<std::vector<DeviceBuffer>> pristine_;
};

} // namespace mskb
