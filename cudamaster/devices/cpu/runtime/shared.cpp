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
constexpr size_t kSharedCanary = 128;
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

// Dynamic shared memory ends at a page that faults, but for what its alignment leaves over.
void prepare_shared(Worker& self, size_t bytes) {
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
