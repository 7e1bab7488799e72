// __half and __half2 with the arithmetic of the GPU: every operation rounds once, to nearest even unless
// named otherwise. Transcendental functions are computed in float and rounded.
#pragma once

#include "cuda_runtime.h"
#include "cudamaster_cpu/narrow.h"

struct __half_raw {
    unsigned short x;
};
struct __align__(4) __half2_raw {
    unsigned short x, y;
};

struct __align__(2) __half {
    unsigned short __x;

    __half() = default;
    constexpr __half(__half_raw raw) : __x(raw.x) {}
    __half(float value) : __x(cudamaster_cpu::half_bits(value)) {}
    __half(double value) : __x(cudamaster_cpu::half_bits(cudamaster_cpu::to_float_odd(value))) {}
    __half(int value) : __half(static_cast<double>(value)) {}
    __half(unsigned int value) : __half(static_cast<double>(value)) {}
    __half(short value) : __half(static_cast<double>(value)) {}
    __half(unsigned short value) : __half(static_cast<double>(value)) {}
    __half(long value) : __half(static_cast<long long>(value)) {}
    __half(unsigned long value) : __half(static_cast<unsigned long long>(value)) {}
    __half(long long value)
        : __half(value < 0 ? -from_magnitude(0ull - static_cast<unsigned long long>(value))
                           : from_magnitude(static_cast<unsigned long long>(value))) {}
    __half(unsigned long long value) : __half(from_magnitude(value)) {}

    operator __half_raw() const { return {__x}; }
    operator float() const { return cudamaster_cpu::half_value(__x); }
    explicit operator bool() const { return (__x & 0x7fff) != 0; }
    explicit operator double() const { return cudamaster_cpu::half_value(__x); }
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

    template <class Number> __half& assign(Number value) { return *this = __half(value); }
    __half& operator=(float value) { return assign(value); }
    __half& operator=(double value) { return assign(value); }
    __half& operator=(int value) { return assign(value); }
    __half& operator=(unsigned int value) { return assign(value); }
    __half& operator=(short value) { return assign(value); }
    __half& operator=(unsigned short value) { return assign(value); }
    __half& operator=(long long value) { return assign(value); }
    __half& operator=(unsigned long long value) { return assign(value); }
    __half& operator=(__half_raw raw) {
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

struct __align__(4) __half2 {
    __half x, y;

    __half2() = default;
    __half2(const __half& x_, const __half& y_) : x(x_), y(y_) {}
    __half2(const __half2_raw& raw) : x(__half_raw{raw.x}), y(__half_raw{raw.y}) {}
    operator __half2_raw() const { return {x.__x, y.__x}; }
};

namespace cudamaster_cpu {
namespace half {

using One = __half;
using Two = __half2;

inline One raw(unsigned short bits) {
    return One(__half_raw{bits});
}
inline One from(double value) {
    return raw(half_bits(to_float_odd(value)));
}
inline float value(One a) {
    return half_value(a.__x);
}
inline bool nan(One a) {
    return (a.__x & 0x7fff) > 0x7c00;
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

} // namespace half
} // namespace cudamaster_cpu

// Conversions.
inline __half __float2half(float value) {
    return __half(value);
}
inline __half __double2half(double value) {
    return __half(value);
}
inline __half __float2half_rn(float value) {
    return __half(value);
}
inline __half __float2half_rz(float value) {
    return cudamaster_cpu::half::raw(cudamaster_cpu::half_bits(value, cudamaster_cpu::Rounding::kZero));
}
inline __half __float2half_ru(float value) {
    return cudamaster_cpu::half::raw(cudamaster_cpu::half_bits(value, cudamaster_cpu::Rounding::kUp));
}
inline __half __float2half_rd(float value) {
    return cudamaster_cpu::half::raw(cudamaster_cpu::half_bits(value, cudamaster_cpu::Rounding::kDown));
}
inline float __half2float(__half value) {
    return cudamaster_cpu::half_value(value.__x);
}
inline __half2 __float2half2_rn(float value) {
    return {__half(value), __half(value)};
}
inline __half2 __floats2half2_rn(float x, float y) {
    return {__half(x), __half(y)};
}
inline __half2 __float22half2_rn(float2 value) {
    return {__half(value.x), __half(value.y)};
}
inline float2 __half22float2(__half2 value) {
    return {__half2float(value.x), __half2float(value.y)};
}
inline float __low2float(__half2 value) {
    return __half2float(value.x);
}
inline float __high2float(__half2 value) {
    return __half2float(value.y);
}
inline __half __low2half(__half2 value) {
    return value.x;
}
inline __half __high2half(__half2 value) {
    return value.y;
}
inline __half2 __low2half2(__half2 value) {
    return {value.x, value.x};
}
inline __half2 __high2half2(__half2 value) {
    return {value.y, value.y};
}
inline __half2 __lows2half2(__half2 a, __half2 b) {
    return {a.x, b.x};
}
inline __half2 __highs2half2(__half2 a, __half2 b) {
    return {a.y, b.y};
}
inline __half2 __lowhigh2highlow(__half2 a) {
    return {a.y, a.x};
}
inline __half2 __half2half2(__half value) {
    return {value, value};
}
inline __half2 __halves2half2(__half x, __half y) {
    return {x, y};
}
inline __half2 make_half2(__half x, __half y) {
    return {x, y};
}
#define CUDAMASTER_CPU_INTEGER(name, type)                                                                   \
    inline type __half2##name##_rn(__half value) {                                                           \
        return cudamaster_cpu::saturate<type>(::nearbyintf(__half2float(value)));                            \
    }                                                                                                        \
    inline type __half2##name##_rz(__half value) {                                                           \
        return cudamaster_cpu::saturate<type>(::truncf(__half2float(value)));                                \
    }                                                                                                        \
    inline type __half2##name##_ru(__half value) {                                                           \
        return cudamaster_cpu::saturate<type>(::ceilf(__half2float(value)));                                 \
    }                                                                                                        \
    inline type __half2##name##_rd(__half value) {                                                           \
        return cudamaster_cpu::saturate<type>(::floorf(__half2float(value)));                                \
    }                                                                                                        \
    inline __half __##name##2half_rn(type value) {                                                           \
        return __half(value);                                                                                \
    }
CUDAMASTER_CPU_INTEGER(int, int)
CUDAMASTER_CPU_INTEGER(uint, unsigned int)
CUDAMASTER_CPU_INTEGER(short, short)
CUDAMASTER_CPU_INTEGER(ushort, unsigned short)
CUDAMASTER_CPU_INTEGER(ll, long long)
CUDAMASTER_CPU_INTEGER(ull, unsigned long long)
#undef CUDAMASTER_CPU_INTEGER
inline short __half_as_short(__half value) {
    return static_cast<short>(value.__x);
}
inline unsigned short __half_as_ushort(__half value) {
    return value.__x;
}
inline __half __short_as_half(short bits) {
    return cudamaster_cpu::half::raw(static_cast<unsigned short>(bits));
}
inline __half __ushort_as_half(unsigned short bits) {
    return cudamaster_cpu::half::raw(bits);
}

// Arithmetic.
#define CUDAMASTER_CPU_BINARY(name, operation)                                                               \
    inline __half __h##name(__half a, __half b) {                                                            \
        return cudamaster_cpu::half::operation(a, b);                                                        \
    }                                                                                                        \
    inline __half2 __h##name##2(__half2 a, __half2 b) {                                                      \
        return {__h##name(a.x, b.x), __h##name(a.y, b.y)};                                                   \
    }
CUDAMASTER_CPU_BINARY(add, add)
CUDAMASTER_CPU_BINARY(sub, sub)
CUDAMASTER_CPU_BINARY(mul, mul)
CUDAMASTER_CPU_BINARY(min, min)
CUDAMASTER_CPU_BINARY(max, max)
inline __half __hdiv(__half a, __half b) {
    return cudamaster_cpu::half::div(a, b);
}
inline __half2 __h2div(__half2 a, __half2 b) {
    return {__hdiv(a.x, b.x), __hdiv(a.y, b.y)};
}
#undef CUDAMASTER_CPU_BINARY
#define CUDAMASTER_CPU_VARIANT(name, expression)                                                             \
    inline __half __h##name(__half a, __half b) {                                                            \
        return expression;                                                                                   \
    }
CUDAMASTER_CPU_VARIANT(add_rn, __hadd(a, b))
CUDAMASTER_CPU_VARIANT(sub_rn, __hsub(a, b))
CUDAMASTER_CPU_VARIANT(mul_rn, __hmul(a, b))
CUDAMASTER_CPU_VARIANT(add_sat, cudamaster_cpu::half::sat(__hadd(a, b)))
CUDAMASTER_CPU_VARIANT(sub_sat, cudamaster_cpu::half::sat(__hsub(a, b)))
CUDAMASTER_CPU_VARIANT(mul_sat, cudamaster_cpu::half::sat(__hmul(a, b)))
CUDAMASTER_CPU_VARIANT(min_nan, cudamaster_cpu::half::min_nan(a, b))
CUDAMASTER_CPU_VARIANT(max_nan, cudamaster_cpu::half::max_nan(a, b))
#undef CUDAMASTER_CPU_VARIANT
#define CUDAMASTER_CPU_VARIANT2(name, one)                                                                   \
    inline __half2 __h##name(__half2 a, __half2 b) {                                                         \
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
inline __half __hfma(__half a, __half b, __half c) {
    return cudamaster_cpu::half::fma(a, b, c);
}
inline __half __hfma_sat(__half a, __half b, __half c) {
    return cudamaster_cpu::half::sat(__hfma(a, b, c));
}
inline __half __hfma_relu(__half a, __half b, __half c) {
    return cudamaster_cpu::half::max_nan(__hfma(a, b, c), cudamaster_cpu::half::raw(0));
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
inline __half2 __hfma2_sat(__half2 a, __half2 b, __half2 c) {
    return {__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)};
}
inline __half2 __hfma2_relu(__half2 a, __half2 b, __half2 c) {
    return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)};
}
inline __half __hneg(__half a) {
    return cudamaster_cpu::half::neg(a);
}
inline __half __habs(__half a) {
    return cudamaster_cpu::half::abs(a);
}
inline __half2 __hneg2(__half2 a) {
    return {__hneg(a.x), __hneg(a.y)};
}
inline __half2 __habs2(__half2 a) {
    return {__habs(a.x), __habs(a.y)};
}

// Comparisons: the plain ones are false where an argument is NaN, the `u` ones true.
#define CUDAMASTER_CPU_COMPARE(name, sign)                                                                   \
    inline bool __h##name(__half a, __half b) {                                                              \
        return __half2float(a) sign __half2float(b);                                                         \
    }                                                                                                        \
    inline bool __h##name##u(__half a, __half b) {                                                           \
        return cudamaster_cpu::half::nan(a) || cudamaster_cpu::half::nan(b) ||                               \
               __half2float(a) sign __half2float(b);                                                         \
    }                                                                                                        \
    inline __half2 __h##name##2(__half2 a, __half2 b) {                                                      \
        return {__half(__h##name(a.x, b.x) ? 1.0f : 0.0f), __half(__h##name(a.y, b.y) ? 1.0f : 0.0f)};       \
    }                                                                                                        \
    inline bool __hb##name##2(__half2 a, __half2 b) {                                                        \
        return __h##name(a.x, b.x) && __h##name(a.y, b.y);                                                   \
    }                                                                                                        \
    inline bool operator sign(const __half& a, const __half& b) {                                            \
        return __half2float(a) sign __half2float(b);                                                         \
    }                                                                                                        \
    inline bool operator sign(const __half2& a, const __half2& b) {                                          \
        return __hb##name##2(a, b);                                                                          \
    }
CUDAMASTER_CPU_COMPARE(eq, ==)
CUDAMASTER_CPU_COMPARE(lt, <)
CUDAMASTER_CPU_COMPARE(le, <=)
CUDAMASTER_CPU_COMPARE(gt, >)
CUDAMASTER_CPU_COMPARE(ge, >=)
#undef CUDAMASTER_CPU_COMPARE
// Not-equal is an ordered comparison here, but for the operator.
inline bool __hne(__half a, __half b) {
    return !cudamaster_cpu::half::nan(a) && !cudamaster_cpu::half::nan(b) &&
           __half2float(a) != __half2float(b);
}
inline bool __hneu(__half a, __half b) {
    return __half2float(a) != __half2float(b);
}
inline bool operator!=(const __half& a, const __half& b) {
    return __half2float(a) != __half2float(b);
}
inline bool __hisnan(__half a) {
    return cudamaster_cpu::half::nan(a);
}
inline int __hisinf(__half a) {
    return (a.__x & 0x7fff) == 0x7c00 ? (a.__x & 0x8000 ? -1 : 1) : 0;
}
inline __half2 __hisnan2(__half2 a) {
    return {__half(__hisnan(a.x) ? 1.0f : 0.0f), __half(__hisnan(a.y) ? 1.0f : 0.0f)};
}

#define CUDAMASTER_CPU_OPERATOR(sign, name)                                                                  \
    inline __half operator sign(const __half& a, const __half& b) {                                          \
        return __h##name(a, b);                                                                              \
    }                                                                                                        \
    inline __half& operator sign## = (__half & a, const __half& b) {                                         \
        return a = __h##name(a, b);                                                                          \
    }
CUDAMASTER_CPU_OPERATOR(+, add)
CUDAMASTER_CPU_OPERATOR(-, sub)
CUDAMASTER_CPU_OPERATOR(*, mul)
CUDAMASTER_CPU_OPERATOR(/, div)
#undef CUDAMASTER_CPU_OPERATOR
#define CUDAMASTER_CPU_OPERATOR2(sign, name)                                                                 \
    inline __half2 operator sign(const __half2& a, const __half2& b) {                                       \
        return name(a, b);                                                                                   \
    }                                                                                                        \
    inline __half2& operator sign## = (__half2 & a, const __half2& b) {                                      \
        return a = name(a, b);                                                                               \
    }
CUDAMASTER_CPU_OPERATOR2(+, __hadd2)
CUDAMASTER_CPU_OPERATOR2(-, __hsub2)
CUDAMASTER_CPU_OPERATOR2(*, __hmul2)
CUDAMASTER_CPU_OPERATOR2(/, __h2div)
#undef CUDAMASTER_CPU_OPERATOR2
inline __half operator+(const __half& a) {
    return a;
}
inline __half operator-(const __half& a) {
    return __hneg(a);
}
inline __half2 operator+(const __half2& a) {
    return a;
}
inline __half2 operator-(const __half2& a) {
    return __hneg2(a);
}
inline __half& operator++(__half& a) {
    return a = __hadd(a, __half(1.0f));
}
inline __half& operator--(__half& a) {
    return a = __hsub(a, __half(1.0f));
}
inline __half operator++(__half& a, int) {
    __half old = a;
    ++a;
    return old;
}
inline __half operator--(__half& a, int) {
    __half old = a;
    --a;
    return old;
}

// Functions.
#define CUDAMASTER_CPU_FUNCTION(name, expression)                                                            \
    inline __half h##name(__half a) {                                                                        \
        double x = __half2float(a);                                                                          \
        return __half(static_cast<double>(expression));                                                      \
    }                                                                                                        \
    inline __half2 h2##name(__half2 a) {                                                                     \
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
CUDAMASTER_CPU_SHUFFLES(__half)
CUDAMASTER_CPU_SHUFFLES(__half2)

inline __half atomicAdd(__half* address, __half value) {
    return cudamaster_cpu::atomic_update(address, [value](__half old) { return __hadd(old, value); });
}
inline __half2 atomicAdd(__half2* address, __half2 value) {
    return cudamaster_cpu::atomic_update(address, [value](__half2 old) { return __hadd2(old, value); });
}

typedef __half half;
typedef __half2 half2;
typedef __half nv_half;
typedef __half2 nv_half2;

#define CUDART_INF_FP16 __ushort_as_half(0x7C00)
#define CUDART_NAN_FP16 __ushort_as_half(0x7FFF)
#define CUDART_ZERO_FP16 __ushort_as_half(0x0000)
#define CUDART_ONE_FP16 __ushort_as_half(0x3C00)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half(0x7BFF)
