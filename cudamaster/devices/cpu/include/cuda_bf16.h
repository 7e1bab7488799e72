// __nv_bfloat16 and __nv_bfloat162 with the arithmetic of the GPU: every operation rounds once, to nearest
// even unless named otherwise. Transcendental functions are computed in float and rounded.
#pragma once

#include "cuda_runtime.h"
#include "cudamaster_cpu/narrow.h"

struct __nv_bfloat16_raw {
    unsigned short x;
};
struct __align__(4) __nv_bfloat162_raw {
    unsigned short x, y;
};

struct __align__(2) __nv_bfloat16 {
    unsigned short __x;

    __nv_bfloat16() = default;
    constexpr __nv_bfloat16(__nv_bfloat16_raw raw) : __x(raw.x) {}
    __nv_bfloat16(float value) : __x(cudamaster_cpu::bf16_bits(value)) {}
    __nv_bfloat16(double value) : __x(cudamaster_cpu::bf16_bits(cudamaster_cpu::to_float_odd(value))) {}
    __nv_bfloat16(int value) : __nv_bfloat16(static_cast<double>(value)) {}
    __nv_bfloat16(unsigned int value) : __nv_bfloat16(static_cast<double>(value)) {}
    __nv_bfloat16(short value) : __nv_bfloat16(static_cast<double>(value)) {}
    __nv_bfloat16(unsigned short value) : __nv_bfloat16(static_cast<double>(value)) {}
    __nv_bfloat16(long value) : __nv_bfloat16(static_cast<long long>(value)) {}
    __nv_bfloat16(unsigned long value) : __nv_bfloat16(static_cast<unsigned long long>(value)) {}
    __nv_bfloat16(long long value)
        : __nv_bfloat16(value < 0 ? -from_magnitude(0ull - static_cast<unsigned long long>(value))
                                  : from_magnitude(static_cast<unsigned long long>(value))) {}
    __nv_bfloat16(unsigned long long value) : __nv_bfloat16(from_magnitude(value)) {}

    operator __nv_bfloat16_raw() const { return {__x}; }
    operator float() const { return cudamaster_cpu::bf16_value(__x); }
    explicit operator bool() const { return (__x & 0x7fff) != 0; }
    explicit operator double() const { return cudamaster_cpu::bf16_value(__x); }
    explicit operator char() const { return cudamaster_cpu::saturate<signed char>(::truncf(float(*this))); }
    explicit operator signed char() const {
        return cudamaster_cpu::saturate<signed char>(::truncf(float(*this)));
    }
    explicit operator unsigned char() const {
        return cudamaster_cpu::saturate<unsigned char>(::truncf(float(*this)));
    }
    explicit operator short() const { return cudamaster_cpu::saturate<short>(::truncf(float(*this))); }
    explicit operator unsigned short() const {
        return cudamaster_cpu::saturate<unsigned short>(::truncf(float(*this)));
    }
    explicit operator int() const { return cudamaster_cpu::saturate<int>(::truncf(float(*this))); }
    explicit operator unsigned int() const {
        return cudamaster_cpu::saturate<unsigned int>(::truncf(float(*this)));
    }
    explicit operator long() const { return static_cast<long>(static_cast<long long>(*this)); }
    explicit operator unsigned long() const {
        return static_cast<unsigned long>(static_cast<unsigned long long>(*this));
    }
    explicit operator long long() const {
        return cudamaster_cpu::saturate<long long>(::truncf(float(*this)));
    }
    explicit operator unsigned long long() const {
        return cudamaster_cpu::saturate<unsigned long long>(::truncf(float(*this)));
    }

    template <class Number> __nv_bfloat16& assign(Number value) { return *this = __nv_bfloat16(value); }
    __nv_bfloat16& operator=(float value) { return assign(value); }
    __nv_bfloat16& operator=(double value) { return assign(value); }
    __nv_bfloat16& operator=(int value) { return assign(value); }
    __nv_bfloat16& operator=(unsigned int value) { return assign(value); }
    __nv_bfloat16& operator=(short value) { return assign(value); }
    __nv_bfloat16& operator=(unsigned short value) { return assign(value); }
    __nv_bfloat16& operator=(long long value) { return assign(value); }
    __nv_bfloat16& operator=(unsigned long long value) { return assign(value); }
    __nv_bfloat16& operator=(__nv_bfloat16_raw raw) {
        __x = raw.x;
        return *this;
    }

  private:
    // Bits that no double can hold only say that there was something.
    static double from_magnitude(unsigned long long value) {
        if (value >> 53)
            value = (value & ~0x7ffull) | ((value & 0x7ff) != 0) << 11;
        return static_cast<double>(value);
    }
};

struct __align__(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;

    __nv_bfloat162() = default;
    __nv_bfloat162(const __nv_bfloat16& x_, const __nv_bfloat16& y_) : x(x_), y(y_) {}
    __nv_bfloat162(const __nv_bfloat162_raw& raw)
        : x(__nv_bfloat16_raw{raw.x}), y(__nv_bfloat16_raw{raw.y}) {}
    operator __nv_bfloat162_raw() const { return {x.__x, y.__x}; }
};

namespace cudamaster_cpu {
namespace bf16 {

using One = __nv_bfloat16;
using Two = __nv_bfloat162;

inline One raw(unsigned short bits) {
    return One(__nv_bfloat16_raw{bits});
}
inline One from(double value) {
    return raw(bf16_bits(to_float_odd(value)));
}
inline float value(One a) {
    return bf16_value(a.__x);
}
inline bool nan(One a) {
    return (a.__x & 0x7fff) > 0x7f80;
}
// Sums are exact in double or far from a tie; products are exact; a quotient is never near a tie.
inline One add(One a, One b) {
    return from(static_cast<double>(value(a)) + value(b));
}
inline One sub(One a, One b) {
    return from(static_cast<double>(value(a)) - value(b));
}
inline One mul(One a, One b) {
    return from(static_cast<double>(value(a)) * value(b));
}
inline One div(One a, One b) {
    return from(static_cast<double>(value(a)) / value(b));
}
inline One fma(One a, One b, One c) {
    return from(fma_odd(value(a), value(b), value(c)));
}
inline One neg(One a) {
    return nan(a) ? raw(0x7fff) : raw(a.__x ^ 0x8000);
}
inline One abs(One a) {
    return nan(a) ? raw(0x7fff) : raw(a.__x & 0x7fff);
}
inline One sat(One a) {
    return nan(a) || value(a) <= 0 ? raw(0) : value(a) > 1 ? One(1.0f) : a;
}
// -0 is less than +0; NaN gives way, unless both are.
inline One min(One a, One b) {
    if (nan(a) || nan(b))
        return nan(a) ? (nan(b) ? raw(0x7fff) : b) : a;
    return value(a) < value(b) || (value(a) == value(b) && a.__x & 0x8000) ? a : b;
}
inline One max(One a, One b) {
    if (nan(a) || nan(b))
        return nan(a) ? (nan(b) ? raw(0x7fff) : b) : a;
    return value(a) > value(b) || (value(a) == value(b) && !(a.__x & 0x8000)) ? a : b;
}
inline One min_nan(One a, One b) {
    return nan(a) || nan(b) ? raw(0x7fff) : min(a, b);
}
inline One max_nan(One a, One b) {
    return nan(a) || nan(b) ? raw(0x7fff) : max(a, b);
}

} // namespace bf16
} // namespace cudamaster_cpu

// Conversions.
inline __nv_bfloat16 __float2bfloat16(float value) {
    return __nv_bfloat16(value);
}
inline __nv_bfloat16 __double2bfloat16(double value) {
    return __nv_bfloat16(value);
}
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
    return __nv_bfloat16(value);
}
inline __nv_bfloat16 __float2bfloat16_rz(float value) {
    return cudamaster_cpu::bf16::raw(cudamaster_cpu::bf16_bits(value, cudamaster_cpu::Rounding::kZero));
}
inline __nv_bfloat16 __float2bfloat16_ru(float value) {
    return cudamaster_cpu::bf16::raw(cudamaster_cpu::bf16_bits(value, cudamaster_cpu::Rounding::kUp));
}
inline __nv_bfloat16 __float2bfloat16_rd(float value) {
    return cudamaster_cpu::bf16::raw(cudamaster_cpu::bf16_bits(value, cudamaster_cpu::Rounding::kDown));
}
inline float __bfloat162float(__nv_bfloat16 value) {
    return cudamaster_cpu::bf16_value(value.__x);
}
inline __nv_bfloat162 __float2bfloat162_rn(float value) {
    return {__nv_bfloat16(value), __nv_bfloat16(value)};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 value) {
    return {__nv_bfloat16(value.x), __nv_bfloat16(value.y)};
}
inline float2 __bfloat1622float2(__nv_bfloat162 value) {
    return {__bfloat162float(value.x), __bfloat162float(value.y)};
}
inline float __low2float(__nv_bfloat162 value) {
    return __bfloat162float(value.x);
}
inline float __high2float(__nv_bfloat162 value) {
    return __bfloat162float(value.y);
}
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 value) {
    return value.x;
}
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 value) {
    return value.y;
}
inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 value) {
    return {value.x, value.x};
}
inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 value) {
    return {value.y, value.y};
}
inline __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) {
    return {a.x, b.x};
}
inline __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) {
    return {a.y, b.y};
}
inline __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 a) {
    return {a.y, a.x};
}
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 value) {
    return {value, value};
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) {
    return {x, y};
}
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) {
    return {x, y};
}
#define CUDAMASTER_CPU_INTEGER(name, type)                                                                   \
    inline type __bfloat162##name##_rn(__nv_bfloat16 value) {                                                \
        return cudamaster_cpu::saturate<type>(::nearbyintf(__bfloat162float(value)));                        \
    }                                                                                                        \
    inline type __bfloat162##name##_rz(__nv_bfloat16 value) {                                                \
        return cudamaster_cpu::saturate<type>(::truncf(__bfloat162float(value)));                            \
    }                                                                                                        \
    inline type __bfloat162##name##_ru(__nv_bfloat16 value) {                                                \
        return cudamaster_cpu::saturate<type>(::ceilf(__bfloat162float(value)));                             \
    }                                                                                                        \
    inline type __bfloat162##name##_rd(__nv_bfloat16 value) {                                                \
        return cudamaster_cpu::saturate<type>(::floorf(__bfloat162float(value)));                            \
    }                                                                                                        \
    inline __nv_bfloat16 __##name##2bfloat16_rn(type value) {                                                \
        return __nv_bfloat16(value);                                                                         \
    }
CUDAMASTER_CPU_INTEGER(int, int)
CUDAMASTER_CPU_INTEGER(uint, unsigned int)
CUDAMASTER_CPU_INTEGER(short, short)
CUDAMASTER_CPU_INTEGER(ushort, unsigned short)
CUDAMASTER_CPU_INTEGER(ll, long long)
CUDAMASTER_CPU_INTEGER(ull, unsigned long long)
#undef CUDAMASTER_CPU_INTEGER
inline short __bfloat16_as_short(__nv_bfloat16 value) {
    return static_cast<short>(value.__x);
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) {
    return value.__x;
}
inline __nv_bfloat16 __short_as_bfloat16(short bits) {
    return cudamaster_cpu::bf16::raw(static_cast<unsigned short>(bits));
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
    return cudamaster_cpu::bf16::raw(bits);
}

// Arithmetic.
#define CUDAMASTER_CPU_BINARY(name, operation)                                                               \
    inline __nv_bfloat16 __h##name(__nv_bfloat16 a, __nv_bfloat16 b) {                                       \
        return cudamaster_cpu::bf16::operation(a, b);                                                        \
    }                                                                                                        \
    inline __nv_bfloat162 __h##name##2(__nv_bfloat162 a, __nv_bfloat162 b) {                                 \
        return {__h##name(a.x, b.x), __h##name(a.y, b.y)};                                                   \
    }
CUDAMASTER_CPU_BINARY(add, add)
CUDAMASTER_CPU_BINARY(sub, sub)
CUDAMASTER_CPU_BINARY(mul, mul)
CUDAMASTER_CPU_BINARY(min, min)
CUDAMASTER_CPU_BINARY(max, max)
inline __nv_bfloat16 __hdiv(__nv_bfloat16 a, __nv_bfloat16 b) {
    return cudamaster_cpu::bf16::div(a, b);
}
inline __nv_bfloat162 __h2div(__nv_bfloat162 a, __nv_bfloat162 b) {
    return {__hdiv(a.x, b.x), __hdiv(a.y, b.y)};
}
#undef CUDAMASTER_CPU_BINARY
#define CUDAMASTER_CPU_VARIANT(name, expression)                                                             \
    inline __nv_bfloat16 __h##name(__nv_bfloat16 a, __nv_bfloat16 b) {                                       \
        return expression;                                                                                   \
    }
CUDAMASTER_CPU_VARIANT(add_rn, __hadd(a, b))
CUDAMASTER_CPU_VARIANT(sub_rn, __hsub(a, b))
CUDAMASTER_CPU_VARIANT(mul_rn, __hmul(a, b))
CUDAMASTER_CPU_VARIANT(add_sat, cudamaster_cpu::bf16::sat(__hadd(a, b)))
CUDAMASTER_CPU_VARIANT(sub_sat, cudamaster_cpu::bf16::sat(__hsub(a, b)))
CUDAMASTER_CPU_VARIANT(mul_sat, cudamaster_cpu::bf16::sat(__hmul(a, b)))
CUDAMASTER_CPU_VARIANT(min_nan, cudamaster_cpu::bf16::min_nan(a, b))
CUDAMASTER_CPU_VARIANT(max_nan, cudamaster_cpu::bf16::max_nan(a, b))
#undef CUDAMASTER_CPU_VARIANT
#define CUDAMASTER_CPU_VARIANT2(name, one)                                                                   \
    inline __nv_bfloat162 __h##name(__nv_bfloat162 a, __nv_bfloat162 b) {                                    \
        return {one(a.x, b.x), one(a.y, b.y)};                                                               \
    }
CUDAMASTER_CPU_VARIANT2(add2_rn, __hadd)
CUDAMASTER_CPU_VARIANT2(sub2_rn, __hsub)
CUDAMASTER_CPU_VARIANT2(mul2_rn, __hmul)
CUDAMASTER_CPU_VARIANT2(add2_sat, __hadd_sat)
CUDAMASTER_CPU_VARIANT2(sub2_sat, __hsub_sat)
CUDAMASTER_CPU_VARIANT2(mul2_sat, __hmul_sat)
CUDAMASTER_CPU_VARIANT2(min2_nan, __hmin_nan)
CUDAMASTER_CPU_VARIANT2(max2_nan, __hmax_nan)
#undef CUDAMASTER_CPU_VARIANT2
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
    return cudamaster_cpu::bf16::fma(a, b, c);
}
inline __nv_bfloat16 __hfma_sat(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
    return cudamaster_cpu::bf16::sat(__hfma(a, b, c));
}
inline __nv_bfloat16 __hfma_relu(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
    return cudamaster_cpu::bf16::max_nan(__hfma(a, b, c), cudamaster_cpu::bf16::raw(0));
}
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
inline __nv_bfloat162 __hfma2_sat(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
    return {__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)};
}
inline __nv_bfloat162 __hfma2_relu(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
    return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)};
}
inline __nv_bfloat16 __hneg(__nv_bfloat16 a) {
    return cudamaster_cpu::bf16::neg(a);
}
inline __nv_bfloat16 __habs(__nv_bfloat16 a) {
    return cudamaster_cpu::bf16::abs(a);
}
inline __nv_bfloat162 __hneg2(__nv_bfloat162 a) {
    return {__hneg(a.x), __hneg(a.y)};
}
inline __nv_bfloat162 __habs2(__nv_bfloat162 a) {
    return {__habs(a.x), __habs(a.y)};
}

// Comparisons: the plain ones are false where an argument is NaN, the `u` ones true.
#define CUDAMASTER_CPU_COMPARE(name, sign)                                                                   \
    inline bool __h##name(__nv_bfloat16 a, __nv_bfloat16 b) {                                                \
        return __bfloat162float(a) sign __bfloat162float(b);                                                 \
    }                                                                                                        \
    inline bool __h##name##u(__nv_bfloat16 a, __nv_bfloat16 b) {                                             \
        return cudamaster_cpu::bf16::nan(a) || cudamaster_cpu::bf16::nan(b) ||                               \
               __bfloat162float(a) sign __bfloat162float(b);                                                 \
    }                                                                                                        \
    inline __nv_bfloat162 __h##name##2(__nv_bfloat162 a, __nv_bfloat162 b) {                                 \
        return {__nv_bfloat16(__h##name(a.x, b.x) ? 1.0f : 0.0f),                                            \
                __nv_bfloat16(__h##name(a.y, b.y) ? 1.0f : 0.0f)};                                           \
    }                                                                                                        \
    inline bool __hb##name##2(__nv_bfloat162 a, __nv_bfloat162 b) {                                          \
        return __h##name(a.x, b.x) && __h##name(a.y, b.y);                                                   \
    }                                                                                                        \
    inline bool operator sign(const __nv_bfloat16& a, const __nv_bfloat16& b) {                              \
        return __bfloat162float(a) sign __bfloat162float(b);                                                 \
    }                                                                                                        \
    inline bool operator sign(const __nv_bfloat162& a, const __nv_bfloat162& b) {                            \
        return __hb##name##2(a, b);                                                                          \
    }
CUDAMASTER_CPU_COMPARE(eq, ==)
CUDAMASTER_CPU_COMPARE(lt, <)
CUDAMASTER_CPU_COMPARE(le, <=)
CUDAMASTER_CPU_COMPARE(gt, >)
CUDAMASTER_CPU_COMPARE(ge, >=)
#undef CUDAMASTER_CPU_COMPARE
// Not-equal is an ordered comparison here, but for the operator.
inline bool __hne(__nv_bfloat16 a, __nv_bfloat16 b) {
    return !cudamaster_cpu::bf16::nan(a) && !cudamaster_cpu::bf16::nan(b) &&
           __bfloat162float(a) != __bfloat162float(b);
}
inline bool __hneu(__nv_bfloat16 a, __nv_bfloat16 b) {
    return __bfloat162float(a) != __bfloat162float(b);
}
inline bool operator!=(const __nv_bfloat16& a, const __nv_bfloat16& b) {
    return __bfloat162float(a) != __bfloat162float(b);
}
inline bool __hisnan(__nv_bfloat16 a) {
    return cudamaster_cpu::bf16::nan(a);
}
inline int __hisinf(__nv_bfloat16 a) {
    return (a.__x & 0x7fff) == 0x7f80 ? (a.__x & 0x8000 ? -1 : 1) : 0;
}
inline __nv_bfloat162 __hisnan2(__nv_bfloat162 a) {
    return {__nv_bfloat16(__hisnan(a.x) ? 1.0f : 0.0f), __nv_bfloat16(__hisnan(a.y) ? 1.0f : 0.0f)};
}

#define CUDAMASTER_CPU_OPERATOR(sign, name)                                                                  \
    inline __nv_bfloat16 operator sign(const __nv_bfloat16& a, const __nv_bfloat16& b) {                     \
        return __h##name(a, b);                                                                              \
    }                                                                                                        \
    inline __nv_bfloat16& operator sign## = (__nv_bfloat16 & a, const __nv_bfloat16& b) {                    \
        return a = __h##name(a, b);                                                                          \
    }
CUDAMASTER_CPU_OPERATOR(+, add)
CUDAMASTER_CPU_OPERATOR(-, sub)
CUDAMASTER_CPU_OPERATOR(*, mul)
CUDAMASTER_CPU_OPERATOR(/, div)
#undef CUDAMASTER_CPU_OPERATOR
#define CUDAMASTER_CPU_OPERATOR2(sign, name)                                                                 \
    inline __nv_bfloat162 operator sign(const __nv_bfloat162& a, const __nv_bfloat162& b) {                  \
        return name(a, b);                                                                                   \
    }                                                                                                        \
    inline __nv_bfloat162& operator sign## = (__nv_bfloat162 & a, const __nv_bfloat162& b) {                 \
        return a = name(a, b);                                                                               \
    }
CUDAMASTER_CPU_OPERATOR2(+, __hadd2)
CUDAMASTER_CPU_OPERATOR2(-, __hsub2)
CUDAMASTER_CPU_OPERATOR2(*, __hmul2)
CUDAMASTER_CPU_OPERATOR2(/, __h2div)
#undef CUDAMASTER_CPU_OPERATOR2
inline __nv_bfloat16 operator+(const __nv_bfloat16& a) {
    return a;
}
inline __nv_bfloat16 operator-(const __nv_bfloat16& a) {
    return __hneg(a);
}
inline __nv_bfloat162 operator+(const __nv_bfloat162& a) {
    return a;
}
inline __nv_bfloat162 operator-(const __nv_bfloat162& a) {
    return __hneg2(a);
}
inline __nv_bfloat16& operator++(__nv_bfloat16& a) {
    return a = __hadd(a, __nv_bfloat16(1.0f));
}
inline __nv_bfloat16& operator--(__nv_bfloat16& a) {
    return a = __hsub(a, __nv_bfloat16(1.0f));
}
inline __nv_bfloat16 operator++(__nv_bfloat16& a, int) {
    __nv_bfloat16 old = a;
    ++a;
    return old;
}
inline __nv_bfloat16 operator--(__nv_bfloat16& a, int) {
    __nv_bfloat16 old = a;
    --a;
    return old;
}

// Functions.
#define CUDAMASTER_CPU_FUNCTION(name, expression)                                                            \
    inline __nv_bfloat16 h##name(__nv_bfloat16 a) {                                                          \
        double x = __bfloat162float(a);                                                                      \
        return __nv_bfloat16(static_cast<double>(expression));                                               \
    }                                                                                                        \
    inline __nv_bfloat162 h2##name(__nv_bfloat162 a) {                                                       \
        return {h##name(a.x), h##name(a.y)};                                                                 \
    }
CUDAMASTER_CPU_FUNCTION(exp, ::exp(x))
CUDAMASTER_CPU_FUNCTION(exp2, ::exp2(x))
CUDAMASTER_CPU_FUNCTION(exp10, ::exp10(x))
CUDAMASTER_CPU_FUNCTION(log, ::log(x))
CUDAMASTER_CPU_FUNCTION(log2, ::log2(x))
CUDAMASTER_CPU_FUNCTION(log10, ::log10(x))
CUDAMASTER_CPU_FUNCTION(sin, ::sin(x))
CUDAMASTER_CPU_FUNCTION(cos, ::cos(x))
CUDAMASTER_CPU_FUNCTION(tanh, ::tanh(x))
CUDAMASTER_CPU_FUNCTION(sqrt, ::sqrt(x))
CUDAMASTER_CPU_FUNCTION(rsqrt, 1.0 / ::sqrt(x))
CUDAMASTER_CPU_FUNCTION(rcp, 1.0 / x)
CUDAMASTER_CPU_FUNCTION(ceil, ::ceil(x))
CUDAMASTER_CPU_FUNCTION(floor, ::floor(x))
CUDAMASTER_CPU_FUNCTION(rint, ::nearbyint(x))
CUDAMASTER_CPU_FUNCTION(trunc, ::trunc(x))
#undef CUDAMASTER_CPU_FUNCTION

// Warp shuffles, loads and atomics.
CUDAMASTER_CPU_SHUFFLES(__nv_bfloat16)
CUDAMASTER_CPU_SHUFFLES(__nv_bfloat162)

inline __nv_bfloat16 atomicAdd(__nv_bfloat16* address, __nv_bfloat16 value) {
    return cudamaster_cpu::atomic_update(address, [value](__nv_bfloat16 old) { return __hadd(old, value); });
}
inline __nv_bfloat162 atomicAdd(__nv_bfloat162* address, __nv_bfloat162 value) {
    return cudamaster_cpu::atomic_update(address,
                                         [value](__nv_bfloat162 old) { return __hadd2(old, value); });
}

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

#define CUDART_INF_BF16 __ushort_as_bfloat16(0x7F80)
#define CUDART_NAN_BF16 __ushort_as_bfloat16(0x7FFF)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16(0x0000)
#define CUDART_ONE_BF16 __ushort_as_bfloat16(0x3F80)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16(0x7F7F)
