// Device memory that two processes see. On a GPU it is an allocation of the driver whose descriptor is passed on; the
// CPU device, whose device memory is the host's, shares a file without a name.
#pragma once
#include <cstddef>
#include <cuda_runtime.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include "mskb/buffers.h"
#ifndef MSKB_CPU_DEVICE
#include <cuda.h>
#endif

namespace mskb {

class SharedMemory {
  public:
    SharedMemory() = default;
    SharedMemory(SharedMemory&& other) noexcept
        : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)),
          descriptor_(std::exchange(other.descriptor_, -1)) {}
    SharedMemory& operator=(SharedMemory&& other) noexcept {
        std::swap(base_, other.base_);
        std::swap(bytes_, other.bytes_);
        std::swap(descriptor_, other.descriptor_);
        return *this;
    }
    ~SharedMemory() {
        unmap();
        if (descriptor_ >= 0)
            close(descriptor_);
    }

    static SharedMemory create(size_t bytes);
    static SharedMemory map(int descriptor, size_t bytes); // takes the descriptor over

    // Overwrites the first so many bytes with zeros.
    void clear(size_t bytes) const {
        MSKB_CUDA(cudaMemset(base_, 0, bytes));
        MSKB_CUDA(cudaDeviceSynchronize());
    }
    unsigned char* base() const { return base_; }
    size_t bytes() const { return bytes_; }
    int descriptor() const { return descriptor_; }

  private:
    void unmap();

    unsigned char* base_ = nullptr;
    size_t bytes_ = 0;
    int descriptor_ = -1;
};

#ifdef MSKB_CPU_DEVICE

inline SharedMemory SharedMemory::create(size_t bytes) {
    int file = memfd_create("mskb", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0)
        harness_failure("no memory to share with a worker");
    return map(file, bytes);
}

inline SharedMemory SharedMemory::map(int descriptor, size_t bytes) {
    SharedMemory memory;
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (base == MAP_FAILED)
        harness_failure("cannot map the memory shared with a worker");
    memory.base_ = static_cast<unsigned char*>(base);
    memory.bytes_ = bytes;
    memory.descriptor_ = descriptor;
    return memory;
}

inline void SharedMemory::unmap() {
    if (base_ != nullptr)
        munmap(base_, bytes_);
}

#else

// Functions of the driver, asked of the runtime: so nothing is linked to it.
template <class Function> Function* driver(const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    MSKB_CUDA(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
#else
    MSKB_CUDA(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found));
#endif
    if (function == nullptr)
        harness_failure(std::string("this driver has no ") + name);
    return reinterpret_cast<Function*>(function);
}
#define MSKB_DRIVER(function) ::mskb::driver<decltype(function)>(#function)

inline void driver_checked(CUresult status, const char* what) {
    if (status != CUDA_SUCCESS)
        harness_failure(std::string(what) + ": error " + std::to_string(status) + " of the driver");
}

inline CUmemAllocationProp shareable() {
    int device = 0;
    MSKB_CUDA(cudaGetDevice(&device));
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    return properties;
}

inline unsigned char* mapped(CUmemGenericAllocationHandle handle, size_t bytes) {
    CUdeviceptr base = 0;
    driver_checked(MSKB_DRIVER(cuMemAddressReserve)(&base, bytes, 0, 0, 0), "reserving addresses");
    driver_checked(MSKB_DRIVER(cuMemMap)(base, bytes, 0, handle, 0), "mapping shared memory");
    driver_checked(MSKB_DRIVER(cuMemRelease)(handle), "releasing a handle"); // the mapping keeps it
    CUmemAccessDesc access{shareable().location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    driver_checked(MSKB_DRIVER(cuMemSetAccess)(base, bytes, &access, 1), "opening shared memory");
    return reinterpret_cast<unsigned char*>(base);
}

inline SharedMemory SharedMemory::create(size_t bytes) {
    CUmemAllocationProp properties = shareable();
    size_t unit = 0;
    driver_checked(
        MSKB_DRIVER(cuMemGetAllocationGranularity)(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        "asking for the unit of memory");
    SharedMemory memory;
    memory.bytes_ = (bytes + unit - 1) / unit * unit;
    CUmemGenericAllocationHandle handle;
    driver_checked(MSKB_DRIVER(cuMemCreate)(&handle, memory.bytes_, &properties, 0),
                   "allocating shared memory");
    driver_checked(MSKB_DRIVER(cuMemExportToShareableHandle)(&memory.descriptor_, handle,
                                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                   "sharing memory");
    memory.base_ = mapped(handle, memory.bytes_);
    return memory;
}

inline SharedMemory SharedMemory::map(int descriptor, size_t bytes) {
    SharedMemory memory;
    memory.bytes_ = bytes;
    memory.descriptor_ = descriptor;
    CUmemGenericAllocationHandle handle;
    driver_checked(MSKB_DRIVER(cuMemImportFromShareableHandle)(
                       &handle, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                   "taking over shared memory");
    memory.base_ = mapped(handle, bytes);
    return memory;
}

inline void SharedMemory::unmap() {
    if (base_ == nullptr)
        return;
    CUdeviceptr base = reinterpret_cast<CUdeviceptr>(base_);
    MSKB_DRIVER(cuMemUnmap)(base, bytes_);
    MSKB_DRIVER(cuMemAddressFree)(base, bytes_);
}

#endif

} // namespace mskb
