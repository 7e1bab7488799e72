// Bit, integer, conversion and rounding intrinsics, and loads and stores with cache hints.
#pragma once

#include "cudamaster_cpu/builtins.h"
#include "cudamaster_cpu/math.h"

#include <cfenv>
#include <climits>
#include <cstring>
#include <limits>

namespace cudamaster_cpu {

template <class To, class From> CUDAMASTER_CPU_PART inline To bit_cast(From value) {
    static_assert(sizeof(To) == sizeof(From), "same size");
    To result;
    __builtin_memcpy(static_cast<void*>(&result), &value, sizeof result);
    return result;
}

// Float to integer as the GPU does it: out-of-range values saturate. NaN is 0, to 64 bits and from double to 32 the highest
// bit alone.
template <class Integer, class Real> CUDAMASTER_CPU_ONE Integer saturate(Real rounded) {
    if (rounded != rounded)
        return sizeof(Integer) == 8                        ? static_cast<Integer>(1ull << 63)
               : sizeof(Integer) == 4 && sizeof(Real) == 8 ? static_cast<Integer>(1u << 31)
                                                           : 0;
    if (rounded < static_cast<Real>(std::numeric_limits<Integer>::min()))
        return std::numeric_limits<Integer>::min();
    if (rounded >= std::ldexp(static_cast<Real>(1), std::numeric_limits<Integer>::digits))
        return std::numeric_limits<Integer>::max();
    return static_cast<Integer>(rounded);
}

// A value that the compiler does not know, read at this point of the program.
template <class Type> CUDAMASTER_CPU_PART inline Type opaque(Type value) {
    asm volatile("" : "+m"(value));
    return value;
}

// Evaluates with another rounding mode. Operands are opaque: nothing may be folded or moved across.
template <class Operation>
CUDAMASTER_CPU_PART inline auto with_rounding(int mode, Operation operation) -> decltype(operation()) {
    int before = std::fegetround();
    std::fesetround(mode);
    volatile auto result = operation();
    std::fesetround(before);
    return result;
}

} // namespace cudamaster_cpu

inline int __float_as_int(float x) {
    return cudamaster_cpu::bit_cast<int>(x);
}
inline unsigned int __float_as_uint(float x) {
    return cudamaster_cpu::bit_cast<unsigned int>(x);
}
inline float __int_as_float(int x) {
    return cudamaster_cpu::bit_cast<float>(x);
}
inline float __uint_as_float(unsigned int x) {
    return cudamaster_cpu::bit_cast<float>(x);
}
inline long long __double_as_longlong(double x) {
    return cudamaster_cpu::bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
    return cudamaster_cpu::bit_cast<double>(x);
}
inline int __double2hiint(double x) {
    return static_cast<int>(__double_as_longlong(x) >> 32);
}
inline int __double2loint(double x) {
    return static_cast<int>(__double_as_longlong(x));
}
inline double __hiloint2double(int hi, int lo) {
    return __longlong_as_double(static_cast<long long>(
        static_cast<unsigned long long>(static_cast<unsigned>(hi)) << 32 | static_cast<unsigned>(lo)));
}

CUDAMASTER_CPU_ONE inline int __popc(unsigned int x) {
    return __builtin_popcount(x);
}
CUDAMASTER_CPU_ONE inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
CUDAMASTER_CPU_ONE inline int __clz(int x) {
    return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
CUDAMASTER_CPU_ONE inline int __clzll(long long x) {
    return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
CUDAMASTER_CPU_ONE inline int __ffs(int x) {
    return __builtin_ffs(x);
}
CUDAMASTER_CPU_ONE inline int __ffsll(long long x) {
    return __builtin_ffsll(x);
}
CUDAMASTER_CPU_ONE inline unsigned long long __brevll(unsigned long long x) {
    unsigned long long reversed = 0;
    for (int i = 0; i < 64; ++i)
        reversed |= (x >> i & 1) << (63 - i);
    return reversed;
}
CUDAMASTER_CPU_ONE inline unsigned int __brev(unsigned int x) {
    return static_cast<unsigned int>(__brevll(x) >> 32);
}
CUDAMASTER_CPU_ONE inline unsigned int __byte_perm(unsigned int x, unsigned int y, unsigned int selector) {
    unsigned long long bytes = static_cast<unsigned long long>(y) << 32 | x;
    unsigned int result = 0;
    for (int i = 0; i < 4; ++i) {
        unsigned int pick = selector >> (4 * i) & 0xf;
        unsigned int byte = static_cast<unsigned int>(bytes >> (8 * (pick & 7)) & 0xff);
        if (pick & 8) // the sign of the byte, spread over it
            byte = byte & 0x80 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}
inline unsigned int __funnelshift_l(unsigned int lo, unsigned int hi, unsigned int shift) {
    return static_cast<unsigned int>((static_cast<unsigned long long>(hi) << 32 | lo) << (shift & 31) >> 32);
}
inline unsigned int __funnelshift_r(unsigned int lo, unsigned int hi, unsigned int shift) {
    return static_cast<unsigned int>((static_cast<unsigned long long>(hi) << 32 | lo) >> (shift & 31));
}
inline unsigned int __funnelshift_lc(unsigned int lo, unsigned int hi, unsigned int shift) {
    return shift >= 32 ? lo : __funnelshift_l(lo, hi, shift);
}
inline unsigned int __funnelshift_rc(unsigned int lo, unsigned int hi, unsigned int shift) {
    return shift >= 32 ? hi : __funnelshift_r(lo, hi, shift);
}
CUDAMASTER_CPU_ONE inline unsigned int __fns(unsigned int mask, unsigned int base, int offset) {
    int step = offset < 0 ? -1 : 1;
    int left = offset < 0 ? -offset : offset;
    if (!offset)
        return mask >> base & 1 ? base : 0xffffffffu;
    for (int i = static_cast<int>(base); i >= 0 && i < 32; i += step)
        if ((mask >> i & 1) && --left == 0)
            return static_cast<unsigned int>(i);
    return 0xffffffffu;
}

inline int __mulhi(int x, int y) {
    return static_cast<int>(static_cast<long long>(x) * y >> 32);
}
inline unsigned int __umulhi(unsigned int x, unsigned int y) {
    return static_cast<unsigned int>(static_cast<unsigned long long>(x) * y >> 32);
}
inline long long __mul64hi(long long x, long long y) {
    return static_cast<long long>(static_cast<__int128>(x) * y >> 64);
}
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(x) * y >> 64);
}
inline int __mul24(int x, int y) {
    return static_cast<int>(static_cast<unsigned>((static_cast<long long>(x << 8 >> 8)) * (y << 8 >> 8)));
}
inline unsigned int __umul24(unsigned int x, unsigned int y) {
    return (x & 0xffffff) * (y & 0xffffff);
}
CUDAMASTER_CPU_ONE inline unsigned int __sad(int x, int y, unsigned int z) {
    return z +
           static_cast<unsigned int>(x > y ? static_cast<long long>(x) - y : static_cast<long long>(y) - x);
}
CUDAMASTER_CPU_ONE inline unsigned int __usad(unsigned int x, unsigned int y, unsigned int z) {
    return z + (x > y ? x - y : y - x);
}
inline int __hadd(int x, int y) {
    return static_cast<int>((static_cast<long long>(x) + y) >> 1);
}
inline int __rhadd(int x, int y) {
    return static_cast<int>((static_cast<long long>(x) + y + 1) >> 1);
}
inline unsigned int __uhadd(unsigned int x, unsigned int y) {
    return static_cast<unsigned int>((static_cast<unsigned long long>(x) + y) >> 1);
}
inline unsigned int __urhadd(unsigned int x, unsigned int y) {
    return static_cast<unsigned int>((static_cast<unsigned long long>(x) + y + 1) >> 1);
}
CUDAMASTER_CPU_ONE inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 32; i += 8)
        c += static_cast<signed char>(a >> i) * static_cast<signed char>(b >> i);
    return c;
}
CUDAMASTER_CPU_ONE inline unsigned int __dp4a(unsigned int a, unsigned int b, unsigned int c) {
    for (int i = 0; i < 32; i += 8)
        c += (a >> i & 0xff) * (b >> i & 0xff);
    return c;
}
CUDAMASTER_CPU_ONE inline int __dp2a_lo(int a, int b, int c) {
    return c + static_cast<short>(a) * static_cast<signed char>(b) +
           static_cast<short>(a >> 16) * static_cast<signed char>(b >> 8);
}
CUDAMASTER_CPU_ONE inline int __dp2a_hi(int a, int b, int c) {
    return __dp2a_lo(a, b >> 16, c);
}

#define CUDAMASTER_CPU_TO_INTEGER(name, integer, real)                                                       \
    CUDAMASTER_CPU_ONE inline integer name##_rn(real x) {                                                    \
        return cudamaster_cpu::saturate<integer>(::nearbyint(x));                                            \
    }                                                                                                        \
    CUDAMASTER_CPU_ONE inline integer name##_rz(real x) {                                                    \
        return cudamaster_cpu::saturate<integer>(::trunc(x));                                                \
    }                                                                                                        \
    CUDAMASTER_CPU_ONE inline integer name##_ru(real x) {                                                    \
        return cudamaster_cpu::saturate<integer>(::ceil(x));                                                 \
    }                                                                                                        \
    CUDAMASTER_CPU_ONE inline integer name##_rd(real x) {                                                    \
        return cudamaster_cpu::saturate<integer>(::floor(x));                                                \
    }
CUDAMASTER_CPU_TO_INTEGER(__float2int, int, float)
CUDAMASTER_CPU_TO_INTEGER(__float2uint, unsigned int, float)
CUDAMASTER_CPU_TO_INTEGER(__float2ll, long long, float)
CUDAMASTER_CPU_TO_INTEGER(__float2ull, unsigned long long, float)
CUDAMASTER_CPU_TO_INTEGER(__double2int, int, double)
CUDAMASTER_CPU_TO_INTEGER(__double2uint, unsigned int, double)
CUDAMASTER_CPU_TO_INTEGER(__double2ll, long long, double)
CUDAMASTER_CPU_TO_INTEGER(__double2ull, unsigned long long, double)
#undef CUDAMASTER_CPU_TO_INTEGER

// The modes other than round-to-nearest change the processor's rounding for one operation.
#define CUDAMASTER_CPU_ROUNDED(name, type, parameters, expression)                                           \
    CUDAMASTER_CPU_ONE inline type name##_rn parameters {                                                    \
        return static_cast<type>(expression);                                                                \
    }                                                                                                        \
    CUDAMASTER_CPU_ONE inline type name##_rz parameters {                                                    \
        return cudamaster_cpu::with_rounding(                                                                \
            FE_TOWARDZERO, [&]() CUDAMASTER_CPU_PART -> type { return static_cast<type>(expression); });     \
    }                                                                                                        \
    CUDAMASTER_CPU_ONE inline type name##_ru parameters {                                                    \
        return cudamaster_cpu::with_rounding(                                                                \
            FE_UPWARD, [&]() CUDAMASTER_CPU_PART -> type { return static_cast<type>(expression); });         \
    }                                                                                                        \
    CUDAMASTER_CPU_ONE inline type name##_rd parameters {                                                    \
        return cudamaster_cpu::with_rounding(                                                                \
            FE_DOWNWARD, [&]() CUDAMASTER_CPU_PART -> type { return static_cast<type>(expression); });       \
    }
CUDAMASTER_CPU_ROUNDED(__fadd, float, (float x, float y),
                       cudamaster_cpu::opaque(x) + cudamaster_cpu::opaque(y))
CUDAMASTER_CPU_ROUNDED(__fsub, float, (float x, float y),
                       cudamaster_cpu::opaque(x) - cudamaster_cpu::opaque(y))
CUDAMASTER_CPU_ROUNDED(__fmul, float, (float x, float y),
                       cudamaster_cpu::opaque(x) * cudamaster_cpu::opaque(y))
CUDAMASTER_CPU_ROUNDED(__fdiv, float, (float x, float y),
                       cudamaster_cpu::opaque(x) / cudamaster_cpu::opaque(y))
CUDAMASTER_CPU_ROUNDED(__frcp, float, (float x), 1.0f / cudamaster_cpu::opaque(x))
CUDAMASTER_CPU_ROUNDED(__fsqrt, float, (float x), ::sqrtf(cudamaster_cpu::opaque(x)))
CUDAMASTER_CPU_ROUNDED(__dadd, double, (double x, double y),
                       cudamaster_cpu::opaque(x) + cudamaster_cpu::opaque(y))
CUDAMASTER_CPU_ROUNDED(__dsub, double, (double x, double y),
                       cudamaster_cpu::opaque(x) - cudamaster_cpu::opaque(y))
CUDAMASTER_CPU_ROUNDED(__dmul, double, (double x, double y),
                       cudamaster_cpu::opaque(x) * cudamaster_cpu::opaque(y))
CUDAMASTER_CPU_ROUNDED(__ddiv, double, (double x, double y),
                       cudamaster_cpu::opaque(x) / cudamaster_cpu::opaque(y))
CUDAMASTER_CPU_ROUNDED(__drcp, double, (double x), 1.0 / cudamaster_cpu::opaque(x))
CUDAMASTER_CPU_ROUNDED(__dsqrt, double, (double x), ::sqrt(cudamaster_cpu::opaque(x)))
CUDAMASTER_CPU_ROUNDED(__double2float, float, (double x), cudamaster_cpu::opaque(x))
CUDAMASTER_CPU_ROUNDED(__int2float, float, (int x), cudamaster_cpu::opaque(x))
CUDAMASTER_CPU_ROUNDED(__uint2float, float, (unsigned int x), cudamaster_cpu::opaque(x))
CUDAMASTER_CPU_ROUNDED(__ll2float, float, (long long x), cudamaster_cpu::opaque(x))
CUDAMASTER_CPU_ROUNDED(__ull2float, float, (unsigned long long x), cudamaster_cpu::opaque(x))
CUDAMASTER_CPU_ROUNDED(__ll2double, double, (long long x), cudamaster_cpu::opaque(x))
CUDAMASTER_CPU_ROUNDED(__ull2double, double, (unsigned long long x), cudamaster_cpu::opaque(x))
#undef CUDAMASTER_CPU_ROUNDED
inline double __int2double_rn(int x) {
    return x;
}
inline double __uint2double_rn(unsigned int x) {
    return x;
}
inline float __fmaf_rn(float x, float y, float z) {
    return ::fmaf(x, y, z);
}
inline double __fma_rn(double x, double y, double z) {
    return ::fma(x, y, z);
}
inline float __frsqrt_rn(float x) {
    return rsqrtf(x);
}

// Cache hints mean nothing here.
#define CUDAMASTER_CPU_LOAD(name)                                                                            \
    template <class Type> inline Type name(const Type* address) {                                            \
        return *address;                                                                                     \
    }
CUDAMASTER_CPU_LOAD(__ldg)
CUDAMASTER_CPU_LOAD(__ldca)
CUDAMASTER_CPU_LOAD(__ldcg)
CUDAMASTER_CPU_LOAD(__ldcs)
CUDAMASTER_CPU_LOAD(__ldlu)
#undef CUDAMASTER_CPU_LOAD
// Reads memory anew, so a loop may wait on it.
template <class Type> inline Type __ldcv(const Type* address) {
    cudamaster_cpu::spun();
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return *address;
}
#define CUDAMASTER_CPU_STORE(name)                                                                           \
    template <class Type> inline void name(Type* address, Type value) {                                      \
        *address = value;                                                                                    \
    }
CUDAMASTER_CPU_STORE(__stwb)
CUDAMASTER_CPU_STORE(__stcg)
CUDAMASTER_CPU_STORE(__stcs)
CUDAMASTER_CPU_STORE(__stwt)
#undef CUDAMASTER_CPU_STORE
inline size_t __cvta_generic_to_global(const void* address) {
    return reinterpret_cast<size_t>(address);
}
inline void* __cvta_global_to_generic(size_t address) {
    return reinterpret_cast<void*>(address);
}
inline size_t __cvta_generic_to_shared(const void* address) {
    return cudamaster_cpu_shared_address(address);
}
inline void* __cvta_shared_to_generic(size_t address) {
    return cudamaster_cpu_shared_place(address);
}
inline unsigned int __isShared(const void* address) {
    return cudamaster_cpu_space(address) == CUDAMASTER_CPU_SHARED;
}
inline unsigned int __isGlobal(const void* address) {
    return cudamaster_cpu_space(address) == CUDAMASTER_CPU_GLOBAL;
}
inline unsigned int __isLocal(const void* address) {
    return cudamaster_cpu_space(address) == CUDAMASTER_CPU_LOCAL;
}
