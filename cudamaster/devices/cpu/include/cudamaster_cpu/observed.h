// What observed builds of a kernel need beside the call-outs that the compiler makes (runtime/observe.h). Not part of
// abi.h, whose entry points a candidate may call.
#pragma once

extern "C" {
// Around the call of a wrapper that an observed build is to record (runtime/observe.h); does nothing in others.
void cudamaster_cpu_record(int on);
#if defined(CUDAMASTER_CPU_OBSERVED)
// An atomic on `bytes` at `address` is about to be made by the instruction before `site`. Not before it changes memory.
void cudamaster_cpu_observe_atomic(const void* address, unsigned int bytes, const void* site);
// The last one has changed nothing there, so a thread that waits may have made it, who knows how often.
void cudamaster_cpu_observe_unchanged(void);
// A fence: of the block (0), the device (1) or the system (2).
void cudamaster_cpu_observe_fence(int scope);
// An arrival or a wait at an mbarrier with the scope of the cluster, of which a GPU's compiler makes a fence of all memory.
void cudamaster_cpu_observe_cluster_fence(void);
// A lane's part of a fragment is read or written, by the instruction before `site`.
void cudamaster_cpu_observe_fragment(const void* address, unsigned int bytes, int stored, const void* site);
// The thread is about to sleep, for so many nanoseconds at least.
void cudamaster_cpu_observe_sleep(unsigned int nanoseconds);
// What nobody knows how to count for the model of a GPU.
void cudamaster_cpu_observe_uncounted(const char* what);
// What time it is for the thread, in cycles or nanoseconds; 0: what the processor says.
unsigned long long cudamaster_cpu_observe_clock(int nanoseconds);
#endif
}

// The name of a collective in which lanes meet without an order of what they read and wrote.
#define CUDAMASTER_CPU_CONVERGES "a fragment's load or store"

// ONE: one instruction on a GPU, or a subroutine that is counted as a whole. An observed build sees a call of it and
// nothing inside. PART: a part of such functions, taken into them. UNSEEN: what the executor calls, and no kernel.
#if defined(CUDAMASTER_CPU_OBSERVED)
#if defined(__clang__)
#define CUDAMASTER_CPU_UNSEEN __attribute__((no_sanitize("thread", "coverage")))
#define CUDAMASTER_CPU_ONE __attribute__((noinline, nothrow)) CUDAMASTER_CPU_UNSEEN
#else
#define CUDAMASTER_CPU_UNSEEN __attribute__((no_sanitize("thread"), no_sanitize_coverage))
#define CUDAMASTER_CPU_ONE __attribute__((noinline, noclone, noipa, nothrow)) CUDAMASTER_CPU_UNSEEN
#endif
// One that looks at its arguments alone: what is in memory need not be read again behind it, and no basic block ends.
#define CUDAMASTER_CPU_CONST __attribute__((const, nothrow)) CUDAMASTER_CPU_ONE
#define CUDAMASTER_CPU_PART __attribute__((always_inline))
#define CUDAMASTER_CPU_SEES_ATOMIC(address)                                                                  \
    cudamaster_cpu_observe_atomic(address, sizeof *(address), __builtin_return_address(0))
#define CUDAMASTER_CPU_SEES_UNCHANGED() cudamaster_cpu_observe_unchanged()
#define CUDAMASTER_CPU_SEES_FENCE(scope) cudamaster_cpu_observe_fence(scope)
#define CUDAMASTER_CPU_SEES_CLUSTER_FENCE() cudamaster_cpu_observe_cluster_fence()
#define CUDAMASTER_CPU_SEES_SLEEP(nanoseconds) cudamaster_cpu_observe_sleep(nanoseconds)
#define CUDAMASTER_CPU_SEES_UNCOUNTED(what) cudamaster_cpu_observe_uncounted(what)
#else
#define CUDAMASTER_CPU_UNSEEN
#define CUDAMASTER_CPU_ONE
#define CUDAMASTER_CPU_CONST
#define CUDAMASTER_CPU_PART
#define CUDAMASTER_CPU_SEES_ATOMIC(address)
#define CUDAMASTER_CPU_SEES_UNCHANGED()
#define CUDAMASTER_CPU_SEES_FENCE(scope)
#define CUDAMASTER_CPU_SEES_CLUSTER_FENCE()
#define CUDAMASTER_CPU_SEES_SLEEP(nanoseconds)
#define CUDAMASTER_CPU_SEES_UNCOUNTED(what)
#endif
