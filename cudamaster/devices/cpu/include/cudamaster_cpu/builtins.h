// Built-in variables, barriers, warp collectives and fences.
#pragma once

#include "cudamaster_cpu/abi.h"

#include <cstring>
#include <type_traits>

extern __thread const uint3 threadIdx;
extern __thread const uint3 blockIdx;
extern __thread const dim3 blockDim;
extern __thread const dim3 gridDim;
constexpr int warpSize = 32;

inline void __syncthreads() {
    cudamaster_cpu_barrier(CUDAMASTER_CPU_SYNC, 0);
}
inline int __syncthreads_count(int predicate) {
    return cudamaster_cpu_barrier(CUDAMASTER_CPU_SYNC_COUNT, predicate);
}
inline int __syncthreads_and(int predicate) {
    return cudamaster_cpu_barrier(CUDAMASTER_CPU_SYNC_AND, predicate);
}
inline int __syncthreads_or(int predicate) {
    return cudamaster_cpu_barrier(CUDAMASTER_CPU_SYNC_OR, predicate);
}
inline void __barrier_sync(unsigned int) {
    __syncthreads();
}

// Loops that wait on memory mostly fence, sleep or retry in between: every so often the others get their
// turn.
namespace cudamaster_cpu {
CUDAMASTER_CPU_ONE inline void spun() {
    static __thread unsigned int times;
    if ((++times & 63) == 0)
        cudamaster_cpu_yield();
}
} // namespace cudamaster_cpu

CUDAMASTER_CPU_ONE inline void __threadfence_block() {
    CUDAMASTER_CPU_SEES_FENCE(0);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
// One between proxies, or of mbarriers alone, orders what its thread does, and hands on nothing to others by itself.
CUDAMASTER_CPU_ONE inline void __threadfence_of_proxies() {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
CUDAMASTER_CPU_ONE inline void __threadfence() {
    CUDAMASTER_CPU_SEES_FENCE(1);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    cudamaster_cpu::spun();
}
inline void __threadfence_system() {
    __threadfence();
}
// A launch begins when those before it have ended.
inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}
inline void __nanosleep([[maybe_unused]] unsigned int nanoseconds) {
    CUDAMASTER_CPU_SEES_SLEEP(nanoseconds);
    cudamaster_cpu_yield();
}
inline unsigned int __activemask() {
    return cudamaster_cpu_activemask();
}

namespace cudamaster_cpu {

CUDAMASTER_CPU_PART inline CudamasterCpuExchange* exchange(unsigned int mask, const char* operation,
                                                           unsigned long long value,
                                                           CudamasterCpuCombine combine = nullptr) {
    return cudamaster_cpu_warp(mask, operation, value, combine);
}

template <class Type> CUDAMASTER_CPU_PART inline unsigned long long pack(Type value) {
    static_assert(sizeof(Type) <= 8 && std::is_trivially_copyable<Type>::value,
                  "a warp moves values of up to 8 bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class Type> CUDAMASTER_CPU_PART inline Type unpack(unsigned long long bits) {
    Type value;
    __builtin_memcpy(static_cast<void*>(&value), &bits, sizeof value);
    return value;
}

template <class Type>
CUDAMASTER_CPU_PART inline Type shuffle(unsigned int mask, const char* operation, Type value,
                                        unsigned int source) {
    CudamasterCpuExchange* all = exchange(mask, operation, pack(value));
    Type result = unpack<Type>(all->values[source & 31]);
    --all->unread;
    return result;
}

CUDAMASTER_CPU_PART inline unsigned long long vote(unsigned int mask, const char* operation,
                                                   unsigned long long value, CudamasterCpuCombine combine) {
    CudamasterCpuExchange* all = exchange(mask, operation, value, combine);
    unsigned long long result = all->result;
    --all->unread;
    return result;
}

CUDAMASTER_CPU_UNSEEN inline void combine_ballot(CudamasterCpuExchange* all) {
    unsigned int votes = 0;
    for (unsigned int lane = 0; lane < 32; ++lane)
        if (all->arrived >> lane & 1)
            votes |= static_cast<unsigned int>(all->values[lane] != 0) << lane;
    all->result = votes;
}

template <class Type, class Operator> CUDAMASTER_CPU_UNSEEN void combine_reduce(CudamasterCpuExchange* all) {
    bool first = true;
    Type sum{};
    for (unsigned int lane = 0; lane < 32; ++lane)
        if (all->arrived >> lane & 1) {
            Type value = unpack<Type>(all->values[lane]);
            sum = first ? value : Operator()(sum, value);
            first = false;
        }
    all->result = pack(sum);
}

// The lane that a shuffle of width `width` reads: a source outside the caller's own part is the caller
// itself.
CUDAMASTER_CPU_PART inline unsigned int source_up(unsigned int delta, int width) {
    unsigned int lane = cudamaster_cpu_lane(), first = lane & ~static_cast<unsigned int>(width - 1);
    return delta <= lane - first ? lane - delta : lane;
}
CUDAMASTER_CPU_PART inline unsigned int source_down(unsigned int delta, int width) {
    unsigned int lane = cudamaster_cpu_lane(), inside = lane & static_cast<unsigned int>(width - 1);
    return delta < static_cast<unsigned int>(width) - inside ? lane + delta : lane;
}
CUDAMASTER_CPU_PART inline unsigned int source_xor(int bits, int width) {
    unsigned int lane = cudamaster_cpu_lane(), source = lane ^ static_cast<unsigned int>(bits);
    unsigned int last = lane | static_cast<unsigned int>(width - 1);
    return source <= last ? source : lane;
}
CUDAMASTER_CPU_PART inline unsigned int source_index(int index, int width) {
    unsigned int inside = static_cast<unsigned int>(width - 1);
    return (cudamaster_cpu_lane() & ~inside) | (static_cast<unsigned int>(index) & inside);
}

} // namespace cudamaster_cpu

CUDAMASTER_CPU_ONE inline void __syncwarp(unsigned int mask = 0xffffffffu) {
    --cudamaster_cpu::exchange(mask, "__syncwarp", 0)->unread;
}

#define CUDAMASTER_CPU_SHUFFLES(type)                                                                        \
    CUDAMASTER_CPU_ONE inline type __shfl_sync(unsigned int mask, type value, int lane, int width = 32) {    \
        return cudamaster_cpu::shuffle(mask, "__shfl_sync", value,                                           \
                                       cudamaster_cpu::source_index(lane, width));                           \
    }                                                                                                        \
    CUDAMASTER_CPU_ONE inline type __shfl_up_sync(unsigned int mask, type value, unsigned int delta,         \
                                                  int width = 32) {                                          \
        return cudamaster_cpu::shuffle(mask, "__shfl_up_sync", value,                                        \
                                       cudamaster_cpu::source_up(delta, width));                             \
    }                                                                                                        \
    CUDAMASTER_CPU_ONE inline type __shfl_down_sync(unsigned int mask, type value, unsigned int delta,       \
                                                    int width = 32) {                                        \
        return cudamaster_cpu::shuffle(mask, "__shfl_down_sync", value,                                      \
                                       cudamaster_cpu::source_down(delta, width));                           \
    }                                                                                                        \
    CUDAMASTER_CPU_ONE inline type __shfl_xor_sync(unsigned int mask, type value, int bits,                  \
                                                   int width = 32) {                                         \
        return cudamaster_cpu::shuffle(mask, "__shfl_xor_sync", value,                                       \
                                       cudamaster_cpu::source_xor(bits, width));                             \
    }
CUDAMASTER_CPU_SHUFFLES(int)
CUDAMASTER_CPU_SHUFFLES(unsigned int)
CUDAMASTER_CPU_SHUFFLES(long)
CUDAMASTER_CPU_SHUFFLES(unsigned long)
CUDAMASTER_CPU_SHUFFLES(long long)
CUDAMASTER_CPU_SHUFFLES(unsigned long long)
CUDAMASTER_CPU_SHUFFLES(float)
CUDAMASTER_CPU_SHUFFLES(double)

CUDAMASTER_CPU_ONE inline unsigned int __ballot_sync(unsigned int mask, int predicate) {
    return static_cast<unsigned int>(
        cudamaster_cpu::vote(mask, "__ballot_sync", predicate != 0, cudamaster_cpu::combine_ballot));
}
CUDAMASTER_CPU_ONE inline int __any_sync(unsigned int mask, int predicate) {
    return cudamaster_cpu::vote(mask, "__any_sync", predicate != 0, cudamaster_cpu::combine_ballot) != 0;
}
CUDAMASTER_CPU_ONE inline int __all_sync(unsigned int mask, int predicate) {
    return cudamaster_cpu::vote(mask, "__all_sync", predicate == 0, cudamaster_cpu::combine_ballot) == 0;
}

template <class Type> CUDAMASTER_CPU_ONE unsigned int __match_any_sync(unsigned int mask, Type value) {
    static_assert(std::is_arithmetic<Type>::value, "__match_any_sync compares numbers");
    unsigned long long bits = cudamaster_cpu::pack(value);
    CudamasterCpuExchange* all = cudamaster_cpu::exchange(mask, "__match_any_sync", bits);
    unsigned int same = 0;
    for (unsigned int lane = 0; lane < 32; ++lane)
        same |= static_cast<unsigned int>((all->arrived >> lane & 1) && all->values[lane] == bits) << lane;
    --all->unread;
    return same;
}
template <class Type>
CUDAMASTER_CPU_ONE unsigned int __match_all_sync(unsigned int mask, Type value, int* predicate) {
    static_assert(std::is_arithmetic<Type>::value, "__match_all_sync compares numbers");
    unsigned long long bits = cudamaster_cpu::pack(value);
    CudamasterCpuExchange* all = cudamaster_cpu::exchange(mask, "__match_all_sync", bits);
    bool same = true;
    for (unsigned int lane = 0; lane < 32; ++lane)
        same &= !(all->arrived >> lane & 1) || all->values[lane] == bits;
    unsigned int arrived = all->arrived;
    --all->unread;
    *predicate = same;
    return same ? arrived : 0;
}

#define CUDAMASTER_CPU_REDUCE(name, type, expression)                                                        \
    CUDAMASTER_CPU_ONE inline type name(unsigned int mask, type value) {                                     \
        struct Operator {                                                                                    \
            CUDAMASTER_CPU_PART type operator()(type a, type b) const { return expression; }                 \
        };                                                                                                   \
        return cudamaster_cpu::unpack<type>(cudamaster_cpu::vote(                                            \
            mask, #name, cudamaster_cpu::pack(value), cudamaster_cpu::combine_reduce<type, Operator>));      \
    }
CUDAMASTER_CPU_REDUCE(__reduce_add_sync, unsigned int, a + b)
CUDAMASTER_CPU_REDUCE(__reduce_min_sync, unsigned int, a < b ? a : b)
CUDAMASTER_CPU_REDUCE(__reduce_max_sync, unsigned int, a > b ? a : b)
CUDAMASTER_CPU_REDUCE(__reduce_and_sync, unsigned int, a& b)
CUDAMASTER_CPU_REDUCE(__reduce_or_sync, unsigned int, a | b)
CUDAMASTER_CPU_REDUCE(__reduce_xor_sync, unsigned int, a ^ b)
CUDAMASTER_CPU_REDUCE(__reduce_add_sync, int,
                      static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)))
CUDAMASTER_CPU_REDUCE(__reduce_min_sync, int, a < b ? a : b)
CUDAMASTER_CPU_REDUCE(__reduce_max_sync, int, a > b ? a : b)
#undef CUDAMASTER_CPU_REDUCE

inline void __trap() {
    __builtin_trap();
}
CUDAMASTER_CPU_ONE inline long long clock64() {
#if defined(CUDAMASTER_CPU_OBSERVED)
    if (unsigned long long now = cudamaster_cpu_observe_clock(0))
        return static_cast<long long>(now);
#endif
#if defined(__x86_64__)
    return static_cast<long long>(__builtin_ia32_rdtsc());
#else
    unsigned long long ticks;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return static_cast<long long>(ticks);
#endif
}
CUDAMASTER_CPU_ONE inline unsigned long long __globaltimer() {
#if defined(CUDAMASTER_CPU_OBSERVED)
    if (unsigned long long now = cudamaster_cpu_observe_clock(1))
        return now;
#endif
    return static_cast<unsigned long long>(clock64());
}
inline unsigned int __smid() {
    return blockIdx.x % 132;
}
