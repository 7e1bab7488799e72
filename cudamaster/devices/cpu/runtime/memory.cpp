// Device memory: each allocation lies between guards, pages that fault, and starts out as poison. The guards are wide, so
// that what is far beyond one allocation is not in the next. They are addresses alone and take no memory.
//
// What cudaMalloc gives is closed to the host. It opens for a kernel, a copy or a memset in pieces, for opening
// takes time per page: a copy opens what it copies, a kernel what its arguments point to and all else at the
// first touch. Under the sanitizer everything opens with a launch, for its shadow cannot wait for a touch.
// Another host thread may look on while a piece is open.
//
// Bases are multiples of 256, as on a GPU. The bytes between the end of an allocation and its guard page, 255
// at most, hold a pattern that is NaN as float, half and bf16, and that is checked when it
// closes, for memory that is never closed when the device synchronises.
#include "observe.h"
#include "streams.h"

#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace executor {

namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kPage = 4096;
constexpr size_t kGuard = size_t(64) << 20; // on either side
constexpr unsigned char kPoison = 0xff;
constexpr size_t kMostAtOnce = 32; // pieces that one touch opens
#if defined(__SANITIZE_ADDRESS__)
constexpr unsigned kPieceBits = 63; // one piece
#else
constexpr unsigned kPieceBits = 16;
#endif

enum class Kind { kDevice, kManaged, kHost };

struct Piece {
    unsigned users = 0; // that it is open for: copies, and the launch
    bool launch = false;
};

struct Allocation {
    size_t bytes = 0;
    char* base = nullptr;
    char* start = nullptr; // of the pages that are not guards, or the base
    char* end = nullptr;
    Kind kind = Kind::kDevice;
    bool damaged = false;
    size_t launch_pieces = 0; // open for it
    std::vector<Piece> pieces;
};

std::mutex mutex;
std::map<char*, Allocation>& allocations() {
    static auto* all = new std::map<char*, Allocation>;
    return *all;
}
size_t allocated = 0; // of the device, in bytes
bool any_damaged = false;

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

// Notes and says where the bytes past the end were written to. The memory is open.
void check_canary([[maybe_unused]] Allocation& allocation) {
#if !defined(__SANITIZE_ADDRESS__)
    for (size_t i = 0; i < slack(allocation.bytes) && !allocation.damaged; ++i) {
        size_t offset = allocation.bytes + i;
        if (static_cast<unsigned char>(allocation.base[offset]) == canary(offset))
            continue;
        std::fprintf(stderr,
                     "cuda device error: write %zu bytes past the end of the allocation of %zu bytes at %p\n",
                     i, allocation.bytes, static_cast<void*>(allocation.base));
        allocation.damaged = any_damaged = true;
    }
#endif
}

size_t number(const char* address) {
    return reinterpret_cast<uintptr_t>(address) >> kPieceBits;
}

void set_access(const Allocation& allocation, [[maybe_unused]] size_t first, [[maybe_unused]] size_t last,
                bool open) {
#if defined(__SANITIZE_ADDRESS__)
    if (open)
        ASAN_UNPOISON_MEMORY_REGION(allocation.base, allocation.bytes);
    else
        ASAN_POISON_MEMORY_REGION(allocation.base, allocation.bytes);
#else
    size_t start = number(allocation.start);
    char* from = std::max(allocation.start, reinterpret_cast<char*>((start + first) << kPieceBits));
    char* to = std::min(allocation.end, reinterpret_cast<char*>((start + last + 1) << kPieceBits));
    if (mprotect(from, static_cast<size_t>(to - from), open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
        std::abort();
#endif
}

// Neighbours open and close in one call of the system.
void add_user(Allocation& allocation, size_t first, size_t last) {
    for (size_t piece = first; piece <= last; ++piece) {
        size_t from = piece;
        while (piece <= last && !allocation.pieces[piece].users++)
            ++piece;
        if (piece > from)
            set_access(allocation, from, piece - 1, true);
    }
}

void remove_user(Allocation& allocation, size_t first, size_t last) {
    if (last + 1 == allocation.pieces.size() && allocation.pieces[last].users == 1)
        check_canary(allocation);
    for (size_t piece = first; piece <= last; ++piece) {
        size_t from = piece;
        while (piece <= last && !--allocation.pieces[piece].users)
            ++piece;
        if (piece > from)
            set_access(allocation, from, piece - 1, false);
    }
}

// A kernel that has touched many pieces will touch more.
void add_launch(Allocation& allocation, size_t first) {
    if (allocation.pieces[first].launch)
        return;
    size_t wanted = std::clamp<size_t>(allocation.launch_pieces, 1, kMostAtOnce), last = first;
    allocation.pieces[first].launch = true;
    while (last - first + 1 < wanted && last + 1 < allocation.pieces.size() &&
           !allocation.pieces[last + 1].launch)
        allocation.pieces[++last].launch = true;
    allocation.launch_pieces += last - first + 1;
    add_user(allocation, first, last);
}

void remove_launch(Allocation& allocation) {
    for (size_t piece = 0; allocation.launch_pieces > 0; ++piece) {
        size_t from = piece;
        for (; piece < allocation.pieces.size() && allocation.pieces[piece].launch; ++piece)
            allocation.pieces[piece].launch = false;
        allocation.launch_pieces -= piece - from;
        if (piece > from)
            remove_user(allocation, from, piece - 1);
    }
}

// The allocation on whose pages, guards left out, the address is.
Allocation* find(const void* address) {
    char* byte = static_cast<char*>(const_cast<void*>(address));
    auto after = allocations().upper_bound(byte);
    if (after != allocations().end() && after->second.start <= byte)
        return &after->second;
    if (after == allocations().begin())
        return nullptr;
    Allocation& before = std::prev(after)->second;
    return byte < before.end ? &before : nullptr;
}

bool add_launch_at(const void* address) {
    Allocation* allocation = find(address);
    if (!allocation || allocation->kind != Kind::kDevice)
        return false;
    add_launch(*allocation, number(static_cast<const char*>(address)) - number(allocation->start));
    return true;
}

cudaError_t allocate(void** pointer, size_t bytes, Kind kind) {
    install_fault_handlers();
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
    allocation.kind = kind;
    char* base = nullptr;
#if defined(__SANITIZE_ADDRESS__)
    // The sanitizer's own guard starts at the last byte, so the size is exact.
    void* memory = nullptr;
    if (posix_memalign(&memory, kAlignment, bytes) != 0 || !memory)
        return cudaErrorMemoryAllocation;
    base = static_cast<char*>(memory);
    allocation.start = base;
    allocation.end = base + bytes;
#else
    size_t rounded = bytes + slack(bytes);
    size_t body = (rounded + kPage - 1) / kPage * kPage;
    void* memory =
        mmap(nullptr, body + 2 * kGuard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    allocation.start = static_cast<char*>(memory) + kGuard;
    allocation.end = allocation.start + body;
    if (mprotect(allocation.start, body, PROT_READ | PROT_WRITE) != 0) {
        munmap(memory, body + 2 * kGuard);
        return cudaErrorMemoryAllocation;
    }
    base = allocation.end - rounded;
    for (size_t i = bytes; i < rounded; ++i)
        base[i] = static_cast<char>(canary(i));
#endif
    if (observe::poisons())
        std::memset(base, kPoison, bytes);
    allocation.base = base;
    if (kind == Kind::kDevice) {
        allocation.pieces.resize(number(allocation.end - 1) - number(allocation.start) + 1);
        set_access(allocation, 0, allocation.pieces.size() - 1, false);
    }
    allocations()[base] = allocation;
    if (kind != Kind::kHost)
        allocated += bytes;
    *pointer = base;
    observe::allocated(base, bytes);
    return cudaSuccess;
}

cudaError_t release(void* pointer) {
    if (!pointer)
        return cudaSuccess;
    std::lock_guard<std::mutex> lock(mutex);
    auto found = allocations().find(static_cast<char*>(pointer));
    if (found == allocations().end())
        return cudaErrorInvalidValue;
    Allocation& allocation = found->second;
    if (allocation.kind != Kind::kDevice)
        check_canary(allocation);
    if (allocation.damaged)
        set_sticky_error(cudaErrorIllegalAddress);
    if (allocation.kind != Kind::kHost)
        allocated -= allocation.bytes;
#if defined(__SANITIZE_ADDRESS__)
    std::free(pointer);
#else
    munmap(allocation.start - kGuard, static_cast<size_t>(allocation.end - allocation.start) + 2 * kGuard);
#endif
    observe::freed(pointer);
    allocations().erase(found);
    return cudaSuccess;
}

} // namespace

bool canaries_intact() {
    std::lock_guard<std::mutex> lock(mutex);
    for (auto& [base, allocation] : allocations())
        if (allocation.kind != Kind::kDevice)
            check_canary(allocation);
    return !any_damaged;
}

Opened::Opened(const void* address, size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex);
    Allocation* allocation = find(address);
    if (!allocation || allocation->kind != Kind::kDevice || !bytes)
        return;
    const char* from = static_cast<const char*>(address);
    size_t room = static_cast<size_t>(allocation->end - from), start = number(allocation->start);
    base_ = allocation->base;
    first_ = number(from) - start;
    last_ = number(from + std::min(bytes, room) - 1) - start;
    add_user(*allocation, first_, last_);
}

Opened::~Opened() {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = allocations().find(base_);
    if (found != allocations().end())
        remove_user(found->second, first_, last_);
}

void open_for_launch([[maybe_unused]] const CudamasterCpuLaunch& launch) {
    std::lock_guard<std::mutex> lock(mutex);
#if defined(__SANITIZE_ADDRESS__)
    for (auto& [base, allocation] : allocations())
        if (allocation.kind == Kind::kDevice)
            add_launch(allocation, 0);
#else
    for (size_t i = 0; i < launch.pointer_count; ++i)
        add_launch_at(launch.pointers[i]);
#endif
}

void close_after_launch() {
    std::lock_guard<std::mutex> lock(mutex);
    for (auto& [base, allocation] : allocations())
        remove_launch(allocation);
}

bool is_allocated(const void* address) {
    std::lock_guard<std::mutex> lock(mutex);
    return find(address) != nullptr;
}

// Whether a copy crosses the link between host and device, or stays with the host.
static bool is_with_host(const void* target, const void* source, cudaMemcpyKind kind) {
    if (kind != cudaMemcpyDefault)
        return kind != cudaMemcpyDeviceToDevice;
    std::lock_guard<std::mutex> lock(mutex);
    const Allocation *to = find(target), *from = find(source);
    return !to || !from || to->kind == Kind::kHost || from->kind == Kind::kHost;
}

// Called from a signal handler, of a thread that runs device code and so holds no lock of ours.
bool open_on_touch(const void* address) {
    int saved = errno;
    std::lock_guard<std::mutex> lock(mutex);
    bool opened = add_launch_at(address);
    errno = saved;
    return opened;
}

// Called where the process is about to end: gives up where the lock is taken.
bool is_device_memory(const void* address) {
    if (!mutex.try_lock())
        return false;
    const Allocation* allocation = find(address);
    bool device = allocation && allocation->kind == Kind::kDevice;
    mutex.unlock();
    return device;
}

// Called from a signal handler: gives up where the lock is taken.
bool describe_address(const void* address, char* text, size_t bytes) {
    if (!mutex.try_lock())
        return false;
    const char* byte = static_cast<const char*>(address);
    bool found = false;
    for (const auto& [base, allocation] : allocations()) {
        long long before = base - byte, past = byte - (base + allocation.bytes);
        if (before > 0 && before <= static_cast<long long>(kGuard) && !found) {
            std::snprintf(text, bytes, "%lld bytes before the allocation of %zu bytes at %p", before,
                          allocation.bytes, static_cast<void*>(base));
            found = true;
        } else if (past >= 0 && past <= static_cast<long long>(kGuard)) {
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
    return report(allocate(pointer, bytes, Kind::kDevice));
}
// In a capture the memory is the graph's: it is there from now on, and goes with the last that was made of the graph.
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
    if (is_capturing(stream)) {
        if (cudaError_t error = allocate(pointer, bytes, Kind::kDevice))
            return report(error);
        stream->capture->graph->memory->push_back(*pointer);
        return submit(stream, [] { return cudaSuccess; });
    }
    return cudaMalloc(pointer, bytes);
}
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned) {
    return report(allocate(pointer, bytes, Kind::kManaged));
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
    return report(allocate(pointer, bytes, Kind::kHost));
}
cudaError_t cudaFree(void* pointer) {
    return report(release(pointer));
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
    if (is_capturing(stream)) // of the graph's own memory there is nothing to do
        return submit(stream, [] { return cudaSuccess; });
    return cudaFree(pointer);
}
cudaError_t cudaFreeHost(void* pointer) {
    return report(release(pointer));
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
    if (const Allocation* allocation = find(pointer)) {
        attributes->type = allocation->kind == Kind::kHost      ? cudaMemoryTypeHost
                           : allocation->kind == Kind::kManaged ? cudaMemoryTypeManaged
                                                                : cudaMemoryTypeDevice;
        attributes->devicePointer = const_cast<void*>(pointer);
        attributes->hostPointer = allocation->kind == Kind::kDevice ? nullptr : const_cast<void*>(pointer);
    }
    return report(cudaSuccess);
}

// `whole` as the observer is told.
static cudaError_t copy(void* target, const void* source, size_t bytes, cudaMemcpyKind kind, size_t whole) {
    if (cudaError_t error = sticky_error())
        return report(error);
    if (bytes && (!target || !source))
        return report(cudaErrorInvalidValue);
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return report(cudaErrorInvalidMemcpyDirection);
    if (!canaries_intact())
        set_sticky_error(cudaErrorIllegalAddress);
    if (bytes) {
        Opened from(source, bytes), to(target, bytes);
        std::memmove(target, source, bytes);
        observe::copied(target, bytes, whole, is_with_host(target, source, kind));
    }
    return report(cudaSuccess);
}

cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind kind) {
    return copy(target, source, bytes, kind, bytes);
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    return submit(stream, [=] { return cudaMemcpy(target, source, bytes, kind); });
}

cudaError_t cudaMemcpy2D(void* target, size_t target_pitch, const void* source, size_t source_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
    if (width > target_pitch || width > source_pitch)
        return report(cudaErrorInvalidPitchValue);
    if (!height)
        return report(cudaSuccess);
    Opened from(source, source_pitch * (height - 1) + width), to(target, target_pitch * (height - 1) + width);
    for (size_t row = 0; row < height; ++row)
        if (cudaError_t error = copy(static_cast<char*>(target) + row * target_pitch,
                                     static_cast<const char*>(source) + row * source_pitch, width, kind,
                                     row ? 0 : width * height))
            return error;
    return report(cudaSuccess);
}

cudaError_t cudaMemcpy2DAsync(void* target, size_t target_pitch, const void* source, size_t source_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    return submit(stream, [=] {
        return cudaMemcpy2D(target, target_pitch, source, source_pitch, width, height, kind);
    });
}

static cudaError_t fill(void* target, int value, size_t bytes, size_t whole) {
    if (cudaError_t error = sticky_error())
        return report(error);
    if (bytes && !target)
        return report(cudaErrorInvalidValue);
    if (bytes) {
        Opened to(target, bytes);
        std::memset(target, value, bytes);
        observe::filled(target, bytes, whole);
    }
    return report(cudaSuccess);
}

cudaError_t cudaMemset(void* target, int value, size_t bytes) {
    return fill(target, value, bytes, bytes);
}

cudaError_t cudaMemsetAsync(void* target, int value, size_t bytes, cudaStream_t stream) {
    return submit(stream, [=] { return cudaMemset(target, value, bytes); });
}

cudaError_t cudaMemset2D(void* target, size_t pitch, int value, size_t width, size_t height) {
    if (!height)
        return report(cudaSuccess);
    Opened to(target, pitch * (height - 1) + width);
    for (size_t row = 0; row < height; ++row)
        if (cudaError_t error =
                fill(static_cast<char*>(target) + row * pitch, value, width, row ? 0 : width * height))
            return error;
    return report(cudaSuccess);
}

cudaError_t cudaMemset2DAsync(void* target, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
    return submit(stream, [=] { return cudaMemset2D(target, pitch, value, width, height); });
}
