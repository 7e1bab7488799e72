// Atomics. Device code is ordered by its fences and barriers alone, so all are relaxed, as CUDA's are.
//
// One that changes nothing may be part of a loop that waits: now and then it lets other threads run.
#pragma once

#include "cudamaster_cpu/builtins.h"

#include <cstring>
#include <type_traits>

namespace cudamaster_cpu {

template <class Type> struct BitsOf {
    using type = std::conditional_t<sizeof(Type) == 2, unsigned short,
                                    std::conditional_t<sizeof(Type) == 4, unsigned int, unsigned long long>>;
};

// Replaces *address by change(old) in one step and returns the old value.
template <class Type, class Change> CUDAMASTER_CPU_ONE Type atomic_update(Type* address, Change change) {
    using Bits = typename BitsOf<Type>::type;
    Bits* bits = reinterpret_cast<Bits*>(address);
    Bits old = __atomic_load_n(bits, __ATOMIC_RELAXED);
    for (;;) {
        Type value;
        __builtin_memcpy(static_cast<void*>(&value), &old, sizeof value);
        Type next = change(value);
        Bits next_bits;
        __builtin_memcpy(&next_bits, &next, sizeof next);
        if (next_bits == old)
            spun();
        if (__atomic_compare_exchange_n(bits, &old, next_bits, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            if (next_bits == old)
                CUDAMASTER_CPU_SEES_UNCHANGED();
            __builtin_memcpy(static_cast<void*>(&value), &old, sizeof value);
            return value;
        }
    }
}

template <class Type> CUDAMASTER_CPU_ONE Type atomic_add_integer(Type* address, Type value) {
    if (!value) {
        CUDAMASTER_CPU_SEES_UNCHANGED();
        spun();
    }
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}

} // namespace cudamaster_cpu

#define CUDAMASTER_CPU_ATOMIC(name, type, body)                                                              \
    CUDAMASTER_CPU_ONE inline type name(type* address, type value) {                                         \
        CUDAMASTER_CPU_SEES_ATOMIC(address);                                                                 \
        body                                                                                                 \
    }                                                                                                        \
    inline type name##_block(type* address, type value) {                                                    \
        return name(address, value);                                                                         \
    }                                                                                                        \
    inline type name##_system(type* address, type value) {                                                   \
        return name(address, value);                                                                         \
    }
#define CUDAMASTER_CPU_UPDATE(expression)                                                                    \
    return cudamaster_cpu::atomic_update(                                                                    \
        address, [value](auto old) CUDAMASTER_CPU_ONE -> decltype(old) { return expression; });

CUDAMASTER_CPU_ATOMIC(atomicAdd, int, return cudamaster_cpu::atomic_add_integer(address, value);)
CUDAMASTER_CPU_ATOMIC(atomicAdd, unsigned int, return cudamaster_cpu::atomic_add_integer(address, value);)
CUDAMASTER_CPU_ATOMIC(atomicAdd, unsigned long long,
                      return cudamaster_cpu::atomic_add_integer(address, value);)
CUDAMASTER_CPU_ATOMIC(atomicAdd, float, CUDAMASTER_CPU_UPDATE(old + value))
CUDAMASTER_CPU_ATOMIC(atomicAdd, double, CUDAMASTER_CPU_UPDATE(old + value))
CUDAMASTER_CPU_ATOMIC(atomicSub, int, return __atomic_fetch_sub(address, value, __ATOMIC_RELAXED);)
CUDAMASTER_CPU_ATOMIC(atomicSub, unsigned int, return __atomic_fetch_sub(address, value, __ATOMIC_RELAXED);)
CUDAMASTER_CPU_ATOMIC(atomicExch, int, CUDAMASTER_CPU_UPDATE(((void)old, value)))
CUDAMASTER_CPU_ATOMIC(atomicExch, unsigned int, CUDAMASTER_CPU_UPDATE(((void)old, value)))
CUDAMASTER_CPU_ATOMIC(atomicExch, unsigned long long, CUDAMASTER_CPU_UPDATE(((void)old, value)))
CUDAMASTER_CPU_ATOMIC(atomicExch, float, CUDAMASTER_CPU_UPDATE(((void)old, value)))
#define CUDAMASTER_CPU_ATOMIC_INTEGERS(type)                                                                 \
    CUDAMASTER_CPU_ATOMIC(atomicMin, type, CUDAMASTER_CPU_UPDATE(value < old ? value : old))                 \
    CUDAMASTER_CPU_ATOMIC(atomicMax, type, CUDAMASTER_CPU_UPDATE(value > old ? value : old))                 \
    CUDAMASTER_CPU_ATOMIC(atomicAnd, type, CUDAMASTER_CPU_UPDATE(static_cast<type>(old & value)))            \
    CUDAMASTER_CPU_ATOMIC(atomicOr, type, CUDAMASTER_CPU_UPDATE(static_cast<type>(old | value)))             \
    CUDAMASTER_CPU_ATOMIC(atomicXor, type, CUDAMASTER_CPU_UPDATE(static_cast<type>(old ^ value)))
CUDAMASTER_CPU_ATOMIC_INTEGERS(int)
CUDAMASTER_CPU_ATOMIC_INTEGERS(unsigned int)
CUDAMASTER_CPU_ATOMIC_INTEGERS(long long)
CUDAMASTER_CPU_ATOMIC_INTEGERS(unsigned long long)
CUDAMASTER_CPU_ATOMIC(atomicInc, unsigned int, CUDAMASTER_CPU_UPDATE(old >= value ? 0 : old + 1))
CUDAMASTER_CPU_ATOMIC(atomicDec, unsigned int,
                      CUDAMASTER_CPU_UPDATE(old == 0 || old > value ? value : old - 1))

#define CUDAMASTER_CPU_CAS(type)                                                                             \
    CUDAMASTER_CPU_ONE inline type atomicCAS(type* address, type compare, type value) {                      \
        CUDAMASTER_CPU_SEES_ATOMIC(address);                                                                 \
        type old = compare;                                                                                  \
        if (!__atomic_compare_exchange_n(address, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) { \
            CUDAMASTER_CPU_SEES_UNCHANGED();                                                                 \
            cudamaster_cpu::spun();                                                                          \
        }                                                                                                    \
        return old;                                                                                          \
    }                                                                                                        \
    inline type atomicCAS_block(type* address, type compare, type value) {                                   \
        return atomicCAS(address, compare, value);                                                           \
    }                                                                                                        \
    inline type atomicCAS_system(type* address, type compare, type value) {                                  \
        return atomicCAS(address, compare, value);                                                           \
    }
CUDAMASTER_CPU_CAS(int)
CUDAMASTER_CPU_CAS(unsigned int)
CUDAMASTER_CPU_CAS(unsigned long long)
CUDAMASTER_CPU_CAS(unsigned short)
#undef CUDAMASTER_CPU_CAS
#undef CUDAMASTER_CPU_ATOMIC_INTEGERS

// Vectors are added element by element, each in one step of its own.
CUDAMASTER_CPU_ONE inline float2 atomicAdd(float2* address, float2 value) {
    CUDAMASTER_CPU_SEES_ATOMIC(address);
    auto add = [](float* element, float more) CUDAMASTER_CPU_PART {
        return cudamaster_cpu::atomic_update(element,
                                             [more](float old) CUDAMASTER_CPU_PART { return old + more; });
    };
    return {add(&address->x, value.x), add(&address->y, value.y)};
}
CUDAMASTER_CPU_ONE inline float4 atomicAdd(float4* address, float4 value) {
    CUDAMASTER_CPU_SEES_ATOMIC(address);
    auto add = [](float* element, float more) CUDAMASTER_CPU_PART {
        return cudamaster_cpu::atomic_update(element,
                                             [more](float old) CUDAMASTER_CPU_PART { return old + more; });
    };
    return {add(&address->x, value.x), add(&address->y, value.y), add(&address->z, value.z),
            add(&address->w, value.w)};
}
