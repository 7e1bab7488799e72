// Stacks of device threads: each with a guard page below, handed out again when a thread has ended.
#include "executor.h"
#include "switch.h"

#include <sys/mman.h>
#include <cstdio>
#include <cstdlib>

namespace executor {

namespace {

// The kernel allows 65530 mappings and a guarded stack takes two. Cooperative launches of very many threads
// get stacks without a page between them beyond this number.
constexpr unsigned kGuardedStacks = 24000;
std::atomic<unsigned> stacks_made{0};

} // namespace

void reset_fibre(Fibre& fibre) {
    // Tops at different places of a page, or all stacks would compete for the same lines of the cache.
    fibre.stack_pointer = fresh_stack(fibre.top, &fibre_main);
    fibre.sanitizer_stack = nullptr;
    fibre.wait = Wait::kNone;
    fibre.ptx_line = 0;
}

Fibre* new_fibre(Worker& self) {
    void* memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        std::fprintf(stderr, "cuda device fault: no memory for the stack of another thread\n");
        std::_Exit(kFaultExitCode);
    }
    auto fibre = std::make_unique<Fibre>();
    unsigned number = stacks_made.fetch_add(1, std::memory_order_relaxed);
    if (number < kGuardedStacks)
        mprotect(memory, kGuardBytes, PROT_NONE);
    fibre->stack = static_cast<char*>(memory);
    fibre->top = fibre->stack + kGuardBytes + kStackBytes - (self.fibres.size() % 32) * 64;
    reset_fibre(*fibre);
    self.fibres.push_back(std::move(fibre));
    return self.fibres.back().get();
}

bool in_stack_guard(const Worker& self, const void* address) {
    const char* byte = static_cast<const char*>(address);
    for (const auto& fibre : self.fibres)
        if (byte >= fibre->stack && byte < fibre->stack + kGuardBytes)
            return true;
    return false;
}

} // namespace executor
