// Shared memory of a block. Dynamic arrays end at a page that faults; static variables are thread-local ones
// of the program, or under the sanitizer allocations of exactly their size; the checker (check/) has its own for them.
#include "executor.h"

#include <link.h>
#include <sys/mman.h>
#include <algorithm>
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

// The window is as large as the arena, so that all of it fits descriptors of matrices, and addresses keep their alignment.
// Dynamic arrays are at its end, as in the arena. From its beginning on come the static variables: thread-local ones, or
// exact allocations, which keep their alignment as far as their size reaches: up to 1 KB.
constexpr unsigned long long kVariablesBegin = 1024, kNowhere = 1 << 30, kPageMask = 4095;
// Above its place in the window an address has its block's rank in the cluster, as on an H200.
constexpr unsigned kRankShift = 24;
constexpr unsigned long long kOffsetMask = (1ull << kRankShift) - 1;
constexpr unsigned long long kGap = 16; // the address behind an exact allocation is none of the next one
#if defined(__SANITIZE_ADDRESS__) || defined(CUDAMASTER_CPU_CHECKED)
constexpr bool kExactVariables = true; // and those outside of functions come behind the window
#else
constexpr bool kExactVariables = false;
#endif

// The same in all blocks of a launch.
static unsigned long long dynamic_begin() {
    return static_cast<unsigned long long>(reinterpret_cast<char*>(cudamaster_cpu_dynamic_shared) -
                                           worker->shared_arena);
}

static unsigned long long variables_begin(const Worker& self) {
    // Thread-local variables are those of all kernels of the program: where they reach into the dynamic arrays, they come
    // behind the window.
    unsigned long long begin = 4096 + (self.variables & kPageMask);
    bool behind = kExactVariables || begin + self.variable_bytes > dynamic_begin();
    return behind ? kSharedArena + begin : begin;
}

// Where an exact allocation begins that comes behind `end`.
static unsigned long long exact_begin(const Worker::ExactShared& shared, unsigned long long end) {
    unsigned long long step = kept_alignment(shared.bytes);
    unsigned long long phase = reinterpret_cast<uintptr_t>(shared.memory) % step;
    return (end + step - 1 - phase) / step * step + phase;
}

static unsigned long long ranked(const Worker& of) {
    return static_cast<unsigned long long>(of.rank) << kRankShift;
}

// In the window of that block.
static unsigned address_in(const Worker& self, const void* place) {
    const char* byte = static_cast<const char*>(place);
    if (offset_in_dynamic(self, place) >= 0)
        return static_cast<unsigned>(byte - self.shared_arena);
    unsigned long long end = kVariablesBegin;
    for (const auto& shared : self.exact_shared) {
        unsigned long long begin = exact_begin(shared, end);
        auto offset = static_cast<size_t>(byte - static_cast<char*>(shared.memory));
        if (offset <= shared.bytes)
            return static_cast<unsigned>(begin + offset);
        end = begin + shared.bytes + kGap;
    }
    uintptr_t offset = reinterpret_cast<uintptr_t>(place) - self.variables;
    if (offset < self.variable_bytes)
        return static_cast<unsigned>(variables_begin(self) + offset);
    return static_cast<unsigned>(kNowhere | (reinterpret_cast<uintptr_t>(place) & kPageMask));
}

long long executor::offset_in_dynamic(const Worker& self, const void* place) {
    auto offset = static_cast<const char*>(place) - (self.shared_arena + dynamic_begin());
    return offset >= 0 && offset <= static_cast<long long>(kSharedArena - dynamic_begin()) ? offset : -1;
}

unsigned int cudamaster_cpu_shared_address(const void* place) {
    const Worker& owner = owner_of(place);
    unsigned address = address_in(owner, place);
    return address >= kNowhere ? address : static_cast<unsigned>(address | ranked(owner));
}

// Null where there is nothing.
static void* place_in(const Worker& self, unsigned long long address) {
    if (address >= dynamic_begin() && address < kSharedArena)
        return self.shared_arena + address;
    unsigned long long end = kVariablesBegin;
    for (const auto& shared : self.exact_shared) {
        unsigned long long begin = exact_begin(shared, end);
        if (address >= begin && address - begin <= shared.bytes)
            return static_cast<char*>(shared.memory) + (address - begin);
        end = begin + shared.bytes + kGap;
    }
    unsigned long long begin = variables_begin(self);
    if (!kExactVariables && address < begin && begin >= kSharedArena)
        address += kSharedArena; // a descriptor of a matrix has no more bits than the window
    if (address - begin < self.variable_bytes)
        return reinterpret_cast<void*>(self.variables + (address - begin));
    return nullptr;
}

// Whose address it is; nobody's where the cluster has no such block.
static Worker* block_of_address(unsigned long long address) {
    unsigned long long rank = address >> kRankShift;
    return rank < worker->cluster->size ? worker->cluster->members[rank] : nullptr;
}

void* cudamaster_cpu_cluster_place(unsigned long long address) {
    const Worker* block = block_of_address(address);
    if (block && block->ended)
        fail_block("an access to the shared memory of a block of the cluster that has ended");
    if (void* place = block ? place_in(*block, address & kOffsetMask) : nullptr)
        return place;
    fail_block(
        "an address that is none of shared memory (cvta.to.shared or __cvta_generic_to_shared makes one)");
}

void* cudamaster_cpu_shared_place(unsigned long long address) {
    if (const Worker* block = block_of_address(address); block && block != worker)
        fail_block("an address of another block's shared memory without .shared::cluster");
    return cudamaster_cpu_cluster_place(address);
}

void* executor::own_shared_place(unsigned offset) {
    return cudamaster_cpu_cluster_place(ranked(*worker) | offset);
}

bool executor::holds_shared(const Worker& self, const void* place) {
    return address_in(self, place) < kNowhere;
}

void* cudamaster_cpu_in_block(const void* place, unsigned rank) {
    const Worker& self = *worker;
    const Worker& from = owner_of(place);
    if (rank >= self.cluster->size)
        fail_block("a block of a higher rank than the cluster has");
    const Worker& to = *self.cluster->members[rank];
    if (to.ended)
        fail_block("an access to the shared memory of a block of the cluster that has ended");
    unsigned address = address_in(from, place);
    if (address >= kNowhere)
        fail_block("a place that is none of shared memory is to be mapped to another block of the cluster");
    for (const auto& shared : from.exact_shared) {
        auto offset =
            static_cast<size_t>(static_cast<const char*>(place) - static_cast<char*>(shared.memory));
        if (offset <= shared.bytes)
            for (const auto& other : to.exact_shared)
                if (other.key == shared.key)
                    return static_cast<char*>(other.memory) + offset;
    }
    if (reinterpret_cast<uintptr_t>(place) - from.variables < from.variable_bytes)
        return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(place) - from.variables + to.variables);
    return to.shared_arena + (static_cast<const char*>(place) - from.shared_arena);
}

int cudamaster_cpu_space(const void* place) {
    const Worker& self = *worker;
    if (holds_shared(self, place))
        return CUDAMASTER_CPU_SHARED;
    if (&owner_of(place) != &self)
        return CUDAMASTER_CPU_CLUSTER;
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
    if (in_cluster(self))
        alignment = std::max(alignment, kept_alignment(bytes)); // the same addresses in all blocks
    // All blocks of a cluster have them, whichever comes to the declaration first.
    for (unsigned rank = 0; rank < self.cluster->size; ++rank) {
        void* memory = nullptr;
        if (posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment, bytes) != 0)
            fail_block("no memory for shared variables");
        std::memset(memory, 0xff, bytes);
        self.cluster->members[rank]->exact_shared.push_back({key, memory, bytes});
    }
    return known_shared(self, key, bytes);
}
#endif
