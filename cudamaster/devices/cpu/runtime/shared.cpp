// Shared memory of a block. Dynamic arrays end at a page that faults; static variables are thread-local ones
// of the program, or under the sanitizer allocations of exactly their size; the checker (check/) has its own for them.
#include "executor.h"

#include <link.h>
#include <sys/mman.h>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

__thread unsigned char* cudamaster_cpu_dynamic_shared;

namespace executor {

namespace {

constexpr size_t kSharedArena = 256 << 10;
constexpr size_t kSharedCanary = 1024; // and what dynamic arrays are aligned to
constexpr unsigned char kCanary = 0xfd;

// Static shared variables are here. Their old content is nothing to rely on.
[[maybe_unused]] int poison_thread_locals(dl_phdr_info* info, size_t, void*) {
    for (int i = 0; i < info->dlpi_phnum; ++i)
        if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data) {
            Worker* self = worker;
            unsigned char* dynamic = cudamaster_cpu_dynamic_shared;
            std::memset(info->dlpi_tls_data, 0xff, info->dlpi_phdr[i].p_memsz);
            worker = self;
            cudamaster_cpu_dynamic_shared = dynamic;
        }
    return 1; // the first entry is the program itself
}

} // namespace

// Static shared variables are among the thread-local ones.
int find_variables(dl_phdr_info* info, size_t, void* found) {
    auto& self = *static_cast<Worker*>(found);
    for (int i = 0; i < info->dlpi_phnum; ++i)
        if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data) {
            self.variables = reinterpret_cast<uintptr_t>(info->dlpi_tls_data);
            self.variable_bytes = info->dlpi_phdr[i].p_memsz;
        }
    return 1; // the first entry is the program itself
}

// Dynamic shared memory ends at a page that faults, but for what its alignment leaves over.
void prepare_shared(Worker& self, size_t bytes) {
    if (!self.variables)
        dl_iterate_phdr(&find_variables, &self);
    if (!self.shared_arena) {
        void* memory = mmap(nullptr, kSharedArena + 2 * kGuardBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            std::abort();
        self.shared_arena = static_cast<char*>(memory) + kGuardBytes;
        mprotect(memory, kGuardBytes, PROT_NONE);
        mprotect(self.shared_arena + kSharedArena, kGuardBytes, PROT_NONE);
    }
    size_t rounded = (bytes + kSharedCanary - 1) / kSharedCanary * kSharedCanary;
    auto* base = reinterpret_cast<unsigned char*>(self.shared_arena + kSharedArena - rounded);
    cudamaster_cpu_dynamic_shared = base;
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(self.shared_arena, kSharedArena);
    std::memset(base, 0xff, bytes);
    ASAN_POISON_MEMORY_REGION(self.shared_arena, kSharedArena - rounded);
    ASAN_POISON_MEMORY_REGION(base + bytes, rounded - bytes);
#else
    std::memset(base, 0xff, bytes);
    std::memset(base + bytes, kCanary, rounded - bytes);
#if !defined(CUDAMASTER_CPU_CHECKED) // which has its own variables there, and shared ones elsewhere
    dl_iterate_phdr(&poison_thread_locals, nullptr);
#endif
#endif
}

bool shared_intact([[maybe_unused]] Worker& self, [[maybe_unused]] size_t bytes) {
#if !defined(__SANITIZE_ADDRESS__)
    const auto* end = reinterpret_cast<unsigned char*>(self.shared_arena + kSharedArena);
    for (const auto* byte = cudamaster_cpu_dynamic_shared + bytes; byte < end; ++byte)
        if (*byte != kCanary)
            return false;
#endif
    return true;
}

void free_exact_shared(Worker& self) {
#if !defined(CUDAMASTER_CPU_CHECKED)
    for (const auto& shared : self.exact_shared)
        std::free(shared.memory);
#endif
    self.exact_shared.clear();
}

void* known_shared(const Worker& self, const void* key, size_t bytes) {
    size_t total = bytes;
    for (const auto& shared : self.exact_shared) {
        if (shared.key == key)
            return shared.memory;
        total += shared.bytes;
    }
    if (total > kStaticShared)
        fail_block("more than 48 KB of static shared memory");
    return nullptr;
}

} // namespace executor

using namespace executor;

// The window: first the arena of dynamic arrays, then the thread-local variables, then each exact allocation with a
// stretch of its own. Offsets within a page stay, so that an address and a place have the same alignment.
constexpr unsigned long long kVariablesWindow = kSharedArena, kExactWindow = 1 << 20, kExactStretch = 1 << 17,
                             kWindow = 1 << 24, kPageMask = 4095;

static uintptr_t page_of(const void* place) {
    return reinterpret_cast<uintptr_t>(place) & ~static_cast<uintptr_t>(kPageMask);
}

static bool is_arena(const Worker& self, uintptr_t at) {
    return at - reinterpret_cast<uintptr_t>(self.shared_arena) <= kSharedArena;
}

unsigned int cudamaster_cpu_shared_address(const void* place) {
    const Worker& self = *worker;
    uintptr_t at = reinterpret_cast<uintptr_t>(place);
    if (is_arena(self, at))
        return static_cast<unsigned>(at - reinterpret_cast<uintptr_t>(self.shared_arena));
    for (size_t i = 0; i < self.exact_shared.size(); ++i) {
        const auto& shared = self.exact_shared[i];
        uintptr_t base = reinterpret_cast<uintptr_t>(shared.memory);
        if (at - base <= shared.bytes)
            return static_cast<unsigned>(kExactWindow + i * kExactStretch + (at - page_of(shared.memory)));
    }
    if (at - self.variables < self.variable_bytes)
        return static_cast<unsigned>(kVariablesWindow +
                                     (at - page_of(reinterpret_cast<void*>(self.variables))));
    return static_cast<unsigned>(kWindow | (at & kPageMask)); // no place in shared memory
}

void* cudamaster_cpu_shared_place(unsigned long long address) {
    const Worker& self = *worker;
    if (address < kVariablesWindow)
        return self.shared_arena + address;
    if (address < kExactWindow)
        return reinterpret_cast<void*>(page_of(reinterpret_cast<void*>(self.variables)) +
                                       (address - kVariablesWindow));
    size_t number = (address - kExactWindow) / kExactStretch;
    if (address >= kWindow || number >= self.exact_shared.size())
        fail_block("an address that is none of shared memory (cvta.to.shared or __cvta_generic_to_shared "
                   "makes one)");
    return reinterpret_cast<void*>(page_of(self.exact_shared[number].memory) +
                                   (address - kExactWindow) % kExactStretch);
}

int cudamaster_cpu_space(const void* place) {
    const Worker& self = *worker;
    if (cudamaster_cpu_shared_address(place) < kWindow)
        return CUDAMASTER_CPU_SHARED;
    const char* byte = static_cast<const char*>(place);
    for (const auto& fibre : self.fibres)
        if (byte >= fibre->stack && byte < fibre->stack + kGuardBytes + kStackBytes)
            return CUDAMASTER_CPU_LOCAL;
    return CUDAMASTER_CPU_GLOBAL;
}

#if !defined(CUDAMASTER_CPU_CHECKED)
void* cudamaster_cpu_exact_shared(const void* key, size_t bytes, size_t alignment) {
    Worker& self = *worker;
    if (void* known = known_shared(self, key, bytes))
        return known;
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment, bytes) != 0)
        fail_block("no memory for shared variables");
    std::memset(memory, 0xff, bytes);
    self.exact_shared.push_back({key, memory, bytes});
    return memory;
}
#endif
