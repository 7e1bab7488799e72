// Functions of the host's library in an observed build of a kernel: the compiler makes no call-outs in them.
#pragma once

#include <string.h>
#include <time.h>

#if defined(CUDAMASTER_CPU_OBSERVED)
#define CUDAMASTER_CPU_LIBRARY                                                                               \
    extern "C" inline __attribute__((gnu_inline, always_inline, artificial, nothrow))
// A GPU has one access for so many bytes, and the compiler makes one of it, which calls out. Anything else would become
// moves that nobody sees.
#define CUDAMASTER_CPU_IS_ONE_ACCESS(bytes)                                                                  \
    (__builtin_constant_p(bytes) &&                                                                          \
     ((bytes) == 1 || (bytes) == 2 || (bytes) == 4 || (bytes) == 8 || (bytes) == 16))

extern "C" {
void* cudamaster_cpu_observe_memcpy(void* to, const void* from, size_t bytes);
void* cudamaster_cpu_observe_memmove(void* to, const void* from, size_t bytes);
void* cudamaster_cpu_observe_memset(void* to, int value, size_t bytes);
clock_t cudamaster_cpu_library_clock(void) __asm__("clock");
}

CUDAMASTER_CPU_LIBRARY void* memcpy(void* __restrict to, const void* __restrict from, size_t bytes) {
    if (CUDAMASTER_CPU_IS_ONE_ACCESS(bytes))
        return __builtin_memcpy(to, from, bytes);
    return cudamaster_cpu_observe_memcpy(to, from, bytes);
}
CUDAMASTER_CPU_LIBRARY void* memmove(void* to, const void* from, size_t bytes) {
    if (CUDAMASTER_CPU_IS_ONE_ACCESS(bytes))
        return __builtin_memmove(to, from, bytes);
    return cudamaster_cpu_observe_memmove(to, from, bytes);
}
CUDAMASTER_CPU_LIBRARY void* memset(void* to, int value, size_t bytes) {
    if (CUDAMASTER_CPU_IS_ONE_ACCESS(bytes))
        return __builtin_memset(to, value, bytes);
    return cudamaster_cpu_observe_memset(to, value, bytes);
}
CUDAMASTER_CPU_LIBRARY clock_t clock(void) {
    unsigned long long now = cudamaster_cpu_observe_clock(0);
    return now ? static_cast<clock_t>(now) : cudamaster_cpu_library_clock();
}
#undef CUDAMASTER_CPU_IS_ONE_ACCESS
#undef CUDAMASTER_CPU_LIBRARY
#endif
