// What all vendor calls share: a library that says no ends the call with its own words, and memory that lies ready.
#pragma once
#include <cstring>
#include <cuda_runtime.h>
#include <stdexcept>
#include <string>

#define VENDOR_CHECK(call) vendor::check(call, #call)

namespace vendor {

// The worker catches it and tells the judge.
[[noreturn]] inline void fail(const char* call, const char* said) {
    throw std::runtime_error(std::string(call, std::strcspn(call, "(")) + " said " + said);
}

inline void check(cudaError_t status, const char* call) {
    if (status != cudaSuccess)
        fail(call, cudaGetErrorName(status));
}

constexpr unsigned int kThreads = 256;

template <class T> struct Same {
    using Type = T;
};

// A kernel of a header, in blocks of kThreads that are enough for `threads`: the CPU device reads
// <<<...>>> in a file, not in headers.
template <class... Parameters>
void launch(void (*kernel)(Parameters...), size_t threads, typename Same<Parameters>::Type... arguments) {
    void* given[] = {&arguments...};
    size_t blocks = threads > 0 ? (threads - 1) / kThreads + 1 : 1;
    VENDOR_CHECK(
        cudaLaunchKernel(kernel, dim3(static_cast<unsigned int>(blocks)), dim3(kThreads), given, 0, nullptr));
}

// Device memory of a case: made before its first call. The end of the process frees it.
class Memory {
  public:
    // What was there is gone. At least a byte, so that there is an address: a null pointer asks CUB for the size.
    void hold(size_t bytes) {
        release();
        VENDOR_CHECK(cudaMalloc(&memory_, bytes > 0 ? bytes : 1));
        bytes_ = bytes;
    }
    // At least so many; what was there stays if it is enough.
    void room(size_t bytes) {
        if (memory_ == nullptr || bytes > bytes_)
            hold(bytes);
    }
    void release() {
        VENDOR_CHECK(cudaFree(memory_));
        memory_ = nullptr;
    }
    // For destructors, which run when something else has failed too.
    void drop() {
        cudaFree(memory_);
        memory_ = nullptr;
    }
    void* get() const { return memory_; }
    template <class T> T* as() const { return static_cast<T*>(memory_); }

  private:
    void* memory_ = nullptr;
    size_t bytes_ = 0;
};

} // namespace vendor
