// Stacks of device threads: each with a guard page below, handed out again when a thread has ended.
#include "executor.h"
#include "switch.h"

#include <sys/mman.h>
#include <cstdio>
#include <cstdlib>

#if defined(__aarch64__)
asm(".text\n"
    ".globl cudamaster_cpu_switch_stack\n"
    ".type cudamaster_cpu_switch_stack, %function\n"
    "cudamaster_cpu_switch_stack:\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp, #0]\n"
    "  stp x21, x22, [sp, #16]\n"
    "  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n"
    "  stp x27, x28, [sp, #64]\n"
    "  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n"
    "  stp d10, d11, [sp, #112]\n"
    "  stp d12, d13, [sp, #128]\n"
    "  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n"
    "  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldp x19, x20, [sp, #0]\n"
    "  ldp x21, x22, [sp, #16]\n"
    "  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n"
    "  ldp x27, x28, [sp, #64]\n"
    "  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n"
    "  ldp d10, d11, [sp, #112]\n"
    "  ldp d12, d13, [sp, #128]\n"
    "  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n"
    ".size cudamaster_cpu_switch_stack, .-cudamaster_cpu_switch_stack\n");
#endif

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
