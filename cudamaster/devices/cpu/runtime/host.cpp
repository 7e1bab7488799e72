// Host memory, which kernels may not touch. Under the sanitizer, whatever variable of the stack or block of the
// heap a kernel's arguments point to is closed while it runs. Host memory reached in other ways is not seen.
#include "executor.h"
#include "observe.h"

#include <cstring>
#include <map>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace executor {

namespace {

std::mutex registered_mutex;
std::map<const char*, size_t>& registered() {
    static auto* all = new std::map<const char*, size_t>;
    return *all;
}

#if defined(__SANITIZE_ADDRESS__)
struct Range {
    void* start;
    size_t bytes;
};
std::vector<Range> closed; // launches take turns

bool is_registered(const void* address) {
    std::lock_guard<std::mutex> lock(registered_mutex);
    const char* byte = static_cast<const char*>(address);
    auto after = registered().upper_bound(byte);
    return after != registered().begin() && byte < std::prev(after)->first + std::prev(after)->second;
}

void close_host_memory_at(void* address) {
    if (!address || is_allocated(address) || is_registered(address))
        return;
    char name[64];
    Range range{};
    const char* kind = __asan_locate_address(address, name, sizeof name, &range.start, &range.bytes);
    if (std::strcmp(kind, "heap") != 0 && std::strcmp(kind, "stack") != 0)
        return;
    // What is closed already is freed, out of its scope, or not described.
    const char *start = static_cast<char*>(range.start), *byte = static_cast<char*>(address);
    if (!range.bytes || byte < start || byte >= start + range.bytes ||
        __asan_region_is_poisoned(range.start, range.bytes))
        return;
    ASAN_POISON_MEMORY_REGION(range.start, range.bytes);
    closed.push_back(range);
}
#endif

} // namespace

void close_host_memory([[maybe_unused]] const CudamasterCpuLaunch& launch) {
#if defined(__SANITIZE_ADDRESS__)
    for (size_t i = 0; i < launch.pointer_count; ++i)
        close_host_memory_at(const_cast<void*>(launch.pointers[i]));
#endif
}

void reopen_host_memory() {
#if defined(__SANITIZE_ADDRESS__)
    for (const Range& range : closed)
        ASAN_UNPOISON_MEMORY_REGION(range.start, range.bytes);
    closed.clear();
#endif
}

} // namespace executor

using namespace executor;

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned) {
    std::lock_guard<std::mutex> lock(registered_mutex);
    registered()[static_cast<const char*>(pointer)] = bytes;
    observe::shared_with_host();
    return report(cudaSuccess);
}
cudaError_t cudaHostUnregister(void* pointer) {
    std::lock_guard<std::mutex> lock(registered_mutex);
    registered().erase(static_cast<const char*>(pointer));
    return report(cudaSuccess);
}
