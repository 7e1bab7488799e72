// The change from one stack to another: callee-saved registers and the stack pointer, nothing else.
#pragma once

namespace executor {

#if defined(__x86_64__)

// Inlined, and left by a jump: the processor's return predictor then stays in step with the calls around it.
inline __attribute__((always_inline)) void switch_stack(void** save, void* load) {
    asm volatile("pushq %%rbp\n\t"
                 "leaq 1f(%%rip), %%rax\n\t"
                 "pushq %%rax\n\t"
                 "movq %%rsp, (%0)\n\t"
                 "movq %1, %%rsp\n\t"
                 "popq %%rax\n\t"
                 "jmpq *%%rax\n"
                 "1:\n\t"
                 "popq %%rbp"
                 : "+D"(save), "+S"(load)
                 :
                 : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory",
                   "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                   "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

// A fresh stack that starts `entry`, as if it had been called.
inline void* fresh_stack(char* top, void (*entry)()) {
    void** words = reinterpret_cast<void**>(top);
    *--words =
        nullptr; // the return address that `entry` never uses: the stack is then aligned as after a call
    *--words = reinterpret_cast<void*>(entry);
    return words;
}

#elif defined(__aarch64__)

extern "C" void cudamaster_cpu_switch_stack(void** save, void* load);

inline void switch_stack(void** save, void* load) {
    cudamaster_cpu_switch_stack(save, load);
}

// Twenty words: x19 to x30, then d8 to d15.
inline void* fresh_stack(char* top, void (*entry)()) {
    void** words = reinterpret_cast<void**>(top) - 20;
    for (int i = 0; i < 20; ++i)
        words[i] = nullptr;
    words[11] = reinterpret_cast<void*>(entry);
    return words;
}

#else
#error "the CPU device switches stacks on x86-64 and aarch64 only"
#endif

} // namespace executor
