// Device memory: each allocation lies between pages that fault, and starts out as poison.
//
// Bases are multiples of 256, as on a GPU. The bytes between the end of an allocation and its guard page, 255
// at most, hold a pattern that is NaN as float, half and bf16, and that is checked when the device
// synchronises.
#include "executor.h"

#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>

namespace executor {

namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kPage = 4096;
constexpr unsigned char kPoison = 0xff;

struct Allocation {
    size_t bytes = 0;
    char* mapping = nullptr;
    size_t mapped = 0;
    bool host = false;
    bool reported = false;
};

std::mutex mutex;
std::map<char*, Allocation>& allocations() {
    static auto* all = new std::map<char*, Allocation>;
    return *all;
}
size_t allocated = 0;
unsigned long long made = 0;

size_t total_bytes() {
    static const size_t total = [] {
        size_t bytes =
            static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
        size_t limit = 0;
        std::ifstream group("/sys/fs/cgroup/memory.max");
        if (group >> limit)
            bytes = std::min(bytes, limit);
        return bytes / 4 * 3;
    }();
    return total;
}

unsigned char canary(size_t offset) {
    return offset % 2 ? 0xff : 0xfe;
}

size_t slack(size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment - bytes;
}

bool intact(char* base, Allocation& allocation) {
#if defined(__SANITIZE_ADDRESS__)
    (void)base;
    (void)allocation;
    return true;
#else
    for (size_t i = 0; i < slack(allocation.bytes); ++i) {
        size_t offset = allocation.bytes + i;
        if (static_cast<unsigned char>(base[offset]) == canary(offset))
            continue;
        if (!allocation.reported)
            std::fprintf(
                stderr,
                "cuda device error: write %zu bytes past the end of the allocation of %zu bytes at %p\n", i,
                allocation.bytes, static_cast<void*>(base));
        allocation.reported = true;
        return false;
    }
    return true;
#endif
}

cudaError_t allocate(void** pointer, size_t bytes, bool host) {
    if (!pointer)
        return cudaErrorInvalidValue;
    *pointer = nullptr;
    if (!bytes)
        return cudaSuccess;
    std::lock_guard<std::mutex> lock(mutex);
    if (bytes > total_bytes() || allocated + bytes > total_bytes())
        return cudaErrorMemoryAllocation;
    Allocation allocation;
    allocation.bytes = bytes;
    allocation.host = host;
    char* base = nullptr;
#if defined(__SANITIZE_ADDRESS__)
    // The sanitizer's own guard starts at the last byte, so the size is exact.
    void* memory = nullptr;
    if (posix_memalign(&memory, kAlignment, bytes) != 0 || !memory)
        return cudaErrorMemoryAllocation;
    base = static_cast<char*>(memory);
#else
    size_t rounded = bytes + slack(bytes);
    size_t body = (rounded + kPage - 1) / kPage * kPage;
    allocation.mapped = body + 2 * kPage;
    void* memory =
        mmap(nullptr, allocation.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    allocation.mapping = static_cast<char*>(memory);
    if (mprotect(allocation.mapping + kPage, body, PROT_READ | PROT_WRITE) != 0) {
        munmap(memory, allocation.mapped);
        return cudaErrorMemoryAllocation;
    }
    base = allocation.mapping + kPage + body - rounded;
    for (size_t i = bytes; i < rounded; ++i)
        base[i] = static_cast<char>(canary(i));
#endif
    std::memset(base, kPoison, bytes);
    allocations()[base] = allocation;
    allocated += bytes;
    ++made;
    *pointer = base;
    return cudaSuccess;
}

cudaError_t release(void* pointer) {
    if (!pointer)
        return cudaSuccess;
    std::lock_guard<std::mutex> lock(mutex);
    auto found = allocations().find(static_cast<char*>(pointer));
    if (found == allocations().end())
        return cudaErrorInvalidValue;
    if (!intact(found->first, found->second))
        set_sticky_error(cudaErrorIllegalAddress);
    allocated -= found->second.bytes;
#if defined(__SANITIZE_ADDRESS__)
    std::free(pointer);
#else
    munmap(found->second.mapping, found->second.mapped);
#endif
    allocations().erase(found);
    return cudaSuccess;
}

} // namespace

bool canaries_intact() {
    std::lock_guard<std::mutex> lock(mutex);
    bool all = true;
    for (auto& [base, allocation] : allocations())
        all = intact(base, allocation) && all;
    return all;
}

// Called from a signal handler: gives up where the lock is taken.
bool describe_address(const void* address, char* text, size_t bytes) {
    if (!mutex.try_lock())
        return false;
    const char* byte = static_cast<const char*>(address);
    bool found = false;
    for (const auto& [base, allocation] : allocations()) {
        long long before = base - byte, past = byte - (base + allocation.bytes);
        if (before > 0 && before <= (1 << 20) && !found) {
            std::snprintf(text, bytes, "%lld bytes before the allocation of %zu bytes at %p", before,
                          allocation.bytes, static_cast<void*>(base));
            found = true;
        } else if (past >= 0 && past <= (1 << 20)) {
            std::snprintf(text, bytes, "%lld bytes past the end of the allocation of %zu bytes at %p", past,
                          allocation.bytes, static_cast<void*>(base));
            found = true;
        }
    }
    mutex.unlock();
    return found;
}

} // namespace executor

using namespace executor;

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
    return report(allocate(pointer, bytes, false));
}
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) {
    return cudaMalloc(pointer, bytes);
}
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned) {
    return cudaMalloc(pointer, bytes);
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
    return report(allocate(pointer, bytes, true));
}
cudaError_t cudaFree(void* pointer) {
    return report(release(pointer));
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) {
    return cudaFree(pointer);
}
cudaError_t cudaFreeHost(void* pointer) {
    return report(release(pointer));
}
cudaError_t cudaHostRegister(void*, size_t, unsigned) {
    return report(cudaSuccess);
}
cudaError_t cudaHostUnregister(void*) {
    return report(cudaSuccess);
}

cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
    *pitch = (width + 511) / 512 * 512;
    return cudaMalloc(pointer, *pitch * height);
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
    *device = host;
    return report(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
    std::lock_guard<std::mutex> lock(mutex);
    *total = total_bytes();
    *free_bytes = total_bytes() - allocated;
    return report(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
    *attributes = {};
    std::lock_guard<std::mutex> lock(mutex);
    for (const auto& [base, allocation] : allocations()) {
        const char* byte = static_cast<const char*>(pointer);
        if (byte >= base && byte < base + allocation.bytes) {
            attributes->type = allocation.host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
            attributes->devicePointer = const_cast<void*>(pointer);
            attributes->hostPointer = allocation.host ? const_cast<void*>(pointer) : nullptr;
        }
    }
    return report(cudaSuccess);
}

cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind kind) {
    if (cudaError_t error = sticky_error())
        return report(error);
    if (bytes && (!target || !source))
        return report(cudaErrorInvalidValue);
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return report(cudaErrorInvalidMemcpyDirection);
    if (!canaries_intact())
        set_sticky_error(cudaErrorIllegalAddress);
    if (bytes)
        std::memmove(target, source, bytes);
    return report(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t) {
    return cudaMemcpy(target, source, bytes, kind);
}

cudaError_t cudaMemcpy2D(void* target, size_t target_pitch, const void* source, size_t source_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
    if (width > target_pitch || width > source_pitch)
        return report(cudaErrorInvalidPitchValue);
    for (size_t row = 0; row < height; ++row)
        if (cudaError_t error =
                cudaMemcpy(static_cast<char*>(target) + row * target_pitch,
                           static_cast<const char*>(source) + row * source_pitch, width, kind))
            return error;
    return report(cudaSuccess);
}

cudaError_t cudaMemcpy2DAsync(void* target, size_t target_pitch, const void* source, size_t source_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t) {
    return cudaMemcpy2D(target, target_pitch, source, source_pitch, width, height, kind);
}

cudaError_t cudaMemset(void* target, int value, size_t bytes) {
    if (cudaError_t error = sticky_error())
        return report(error);
    if (bytes && !target)
        return report(cudaErrorInvalidValue);
    if (bytes)
        std::memset(target, value, bytes);
    return report(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void* target, int value, size_t bytes, cudaStream_t) {
    return cudaMemset(target, value, bytes);
}

cudaError_t cudaMemset2D(void* target, size_t pitch, int value, size_t width, size_t height) {
    for (size_t row = 0; row < height; ++row)
        if (cudaError_t error = cudaMemset(static_cast<char*>(target) + row * pitch, value, width))
            return error;
    return report(cudaSuccess);
}

cudaError_t cudaMemset2DAsync(void* target, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t) {
    return cudaMemset2D(target, pitch, value, width, height);
}
