// The change from one stack to another: what the calling convention has a function keep, and the stack pointer.
#pragma once

namespace executor {

// Written in assembly (switch.cpp) and called as any function that the compiler can't look into. It keeps what the
// calling convention has it keep, and the compiler has to count on all else being gone: the vector and mask registers of
// any instruction set. So there is no list of changed registers here that the next processor could outgrow.
//
// A fibre stays on the OS thread that made it, so addresses of thread-local variables hold across a change.
extern "C" __attribute__((visibility("hidden"))) void cudamaster_cpu_switch_stack(void** save, void* load);

// Goes on with the stack `load`, until somebody goes on with what is now kept in *save.
inline void switch_stack(void** save, void* load) {
    cudamaster_cpu_switch_stack(save, load);
}

#if defined(__x86_64__)

constexpr int kSavedWords = 8; // MXCSR and the x87 control word, r15 to r12, rbx, rbp, the return address
constexpr int kEntryWord = 7;
// Floating point as a process begins: rounding to the nearest, nothing trapped, x87 in its full precision.
constexpr unsigned long kFloatingPoint = 0x037ful << 32 | 0x1f80ul;

#elif defined(__aarch64__)

constexpr int kSavedWords = 22; // FPCR, x19 to x30, d8 to d15, and one for the alignment
constexpr int kEntryWord = 12;
constexpr unsigned long kFloatingPoint = 0;

#else
#error "the CPU device switches stacks on x86-64 and aarch64 only"
#endif

// A fresh stack that starts `entry`, as if it had been called, without a caller and with zeros in the registers.
inline void* fresh_stack(char* top, void (*entry)()) {
    void** words = reinterpret_cast<void**>(top);
    *--words =
        nullptr; // the return address that `entry` never uses: the stack is then aligned as after a call
#if defined(__aarch64__)
    *--words = nullptr; // there the stack is aligned to two words at all times
#endif
    words -= kSavedWords;
    for (int i = 0; i < kSavedWords; ++i)
        words[i] = nullptr;
    words[0] = reinterpret_cast<void*>(kFloatingPoint);
    words[kEntryWord] = reinterpret_cast<void*>(entry);
    return words;
}

} // namespace executor
