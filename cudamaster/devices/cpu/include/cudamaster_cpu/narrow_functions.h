// All that CUDA has for a 16-bit format beside the types: conversions, arithmetic, comparisons, operators,
// functions. Included once per format, after narrow_type.h, whose head names the macros; undefines them.

// Conversions.
CUDAMASTER_CPU_PART inline __narrow __narrow_name(__float2, )(float value) {
    return __narrow(value);
}
inline __narrow __narrow_name(__double2, )(double value) {
    return __narrow(value);
}
CUDAMASTER_CPU_PART inline __narrow __narrow_name(__float2, _rn)(float value) {
    return __narrow(value);
}
inline __narrow __narrow_name(__float2, _rz)(float value) {
    return __narrow_ops::raw(__narrow_bits(value, cudamaster_cpu::Rounding::kZero));
}
inline __narrow __narrow_name(__float2, _ru)(float value) {
    return __narrow_ops::raw(__narrow_bits(value, cudamaster_cpu::Rounding::kUp));
}
inline __narrow __narrow_name(__float2, _rd)(float value) {
    return __narrow_ops::raw(__narrow_bits(value, cudamaster_cpu::Rounding::kDown));
}
CUDAMASTER_CPU_PART inline float __narrow_name(__, 2float)(__narrow value) {
    return __narrow_value(value.__x);
}
inline __narrow2 __narrow_name(__float2, 2_rn)(float value) {
    return {__narrow(value), __narrow(value)};
}
CUDAMASTER_CPU_CONST inline __narrow2 __narrow_name(__floats2, 2_rn)(float x, float y) {
    return {__narrow(x), __narrow(y)};
}
CUDAMASTER_CPU_CONST inline __narrow2 __narrow_name(__float22, 2_rn)(float2 value) {
    return {__narrow(value.x), __narrow(value.y)};
}
inline float2 __narrow_name(__, 22float2)(__narrow2 value) {
    return {__narrow_ops::value(value.x), __narrow_ops::value(value.y)};
}
inline float __low2float(__narrow2 value) {
    return __narrow_ops::value(value.x);
}
inline float __high2float(__narrow2 value) {
    return __narrow_ops::value(value.y);
}
inline __narrow __narrow_name(__low2, )(__narrow2 value) {
    return value.x;
}
inline __narrow __narrow_name(__high2, )(__narrow2 value) {
    return value.y;
}
inline __narrow2 __narrow_name(__low2, 2)(__narrow2 value) {
    return {value.x, value.x};
}
inline __narrow2 __narrow_name(__high2, 2)(__narrow2 value) {
    return {value.y, value.y};
}
inline __narrow2 __narrow_name(__lows2, 2)(__narrow2 a, __narrow2 b) {
    return {a.x, b.x};
}
inline __narrow2 __narrow_name(__highs2, 2)(__narrow2 a, __narrow2 b) {
    return {a.y, b.y};
}
inline __narrow2 __lowhigh2highlow(__narrow2 a) {
    return {a.y, a.x};
}
inline __narrow2 __narrow_name(__halves2, 2)(__narrow x, __narrow y) {
    return {x, y};
}
inline __narrow2 __narrow_name(make_, 2)(__narrow x, __narrow y) {
    return {x, y};
}
#define CUDAMASTER_CPU_INTEGER(name, type)                                                                   \
    inline type __narrow_name(__, 2##name##_rn)(__narrow value) {                                            \
        return cudamaster_cpu::saturate<type>(::nearbyintf(__narrow_ops::value(value)));                     \
    }                                                                                                        \
    inline type __narrow_name(__, 2##name##_rz)(__narrow value) {                                            \
        return cudamaster_cpu::saturate<type>(::truncf(__narrow_ops::value(value)));                         \
    }                                                                                                        \
    inline type __narrow_name(__, 2##name##_ru)(__narrow value) {                                            \
        return cudamaster_cpu::saturate<type>(::ceilf(__narrow_ops::value(value)));                          \
    }                                                                                                        \
    inline type __narrow_name(__, 2##name##_rd)(__narrow value) {                                            \
        return cudamaster_cpu::saturate<type>(::floorf(__narrow_ops::value(value)));                         \
    }                                                                                                        \
    inline __narrow __narrow_name(__##name##2, _rn)(type value) {                                            \
        return __narrow(value);                                                                              \
    }
CUDAMASTER_CPU_INTEGER(int, int)
CUDAMASTER_CPU_INTEGER(uint, unsigned int)
CUDAMASTER_CPU_INTEGER(short, short)
CUDAMASTER_CPU_INTEGER(ushort, unsigned short)
CUDAMASTER_CPU_INTEGER(ll, long long)
CUDAMASTER_CPU_INTEGER(ull, unsigned long long)
#undef CUDAMASTER_CPU_INTEGER
inline short __narrow_name(__, _as_short)(__narrow value) {
    return static_cast<short>(value.__x);
}
inline unsigned short __narrow_name(__, _as_ushort)(__narrow value) {
    return value.__x;
}
inline __narrow __narrow_name(__short_as_, )(short bits) {
    return __narrow_ops::raw(static_cast<unsigned short>(bits));
}
inline __narrow __narrow_name(__ushort_as_, )(unsigned short bits) {
    return __narrow_ops::raw(bits);
}

// Arithmetic.
#define CUDAMASTER_CPU_BINARY(name, operation)                                                               \
    CUDAMASTER_CPU_PART inline __narrow __h##name(__narrow a, __narrow b) {                                  \
        return __narrow_ops::operation(a, b);                                                                \
    }                                                                                                        \
    CUDAMASTER_CPU_CONST inline __narrow2 __h##name##2(__narrow2 a, __narrow2 b) {                           \
        return {__h##name(a.x, b.x), __h##name(a.y, b.y)};                                                   \
    }
CUDAMASTER_CPU_BINARY(add, add)
CUDAMASTER_CPU_BINARY(sub, sub)
CUDAMASTER_CPU_BINARY(mul, mul)
CUDAMASTER_CPU_BINARY(min, min)
CUDAMASTER_CPU_BINARY(max, max)
CUDAMASTER_CPU_PART inline __narrow __hdiv(__narrow a, __narrow b) {
    return __narrow_ops::div(a, b);
}
CUDAMASTER_CPU_CONST inline __narrow2 __h2div(__narrow2 a, __narrow2 b) {
    return {__hdiv(a.x, b.x), __hdiv(a.y, b.y)};
}
#undef CUDAMASTER_CPU_BINARY
#define CUDAMASTER_CPU_VARIANT(name, expression)                                                             \
    CUDAMASTER_CPU_PART inline __narrow __h##name(__narrow a, __narrow b) {                                  \
        return expression;                                                                                   \
    }
CUDAMASTER_CPU_VARIANT(add_rn, __hadd(a, b))
CUDAMASTER_CPU_VARIANT(sub_rn, __hsub(a, b))
CUDAMASTER_CPU_VARIANT(mul_rn, __hmul(a, b))
CUDAMASTER_CPU_VARIANT(add_sat, __narrow_ops::sat(__hadd(a, b)))
CUDAMASTER_CPU_VARIANT(sub_sat, __narrow_ops::sat(__hsub(a, b)))
CUDAMASTER_CPU_VARIANT(mul_sat, __narrow_ops::sat(__hmul(a, b)))
CUDAMASTER_CPU_VARIANT(min_nan, __narrow_ops::min_nan(a, b))
CUDAMASTER_CPU_VARIANT(max_nan, __narrow_ops::max_nan(a, b))
#undef CUDAMASTER_CPU_VARIANT
#define CUDAMASTER_CPU_VARIANT2(name, one)                                                                   \
    CUDAMASTER_CPU_CONST inline __narrow2 __h##name(__narrow2 a, __narrow2 b) {                              \
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
CUDAMASTER_CPU_PART inline __narrow __hfma(__narrow a, __narrow b, __narrow c) {
    return __narrow_ops::fma(a, b, c);
}
CUDAMASTER_CPU_PART inline __narrow __hfma_sat(__narrow a, __narrow b, __narrow c) {
    return __narrow_ops::sat(__hfma(a, b, c));
}
CUDAMASTER_CPU_PART inline __narrow __hfma_relu(__narrow a, __narrow b, __narrow c) {
    return __narrow_ops::max_nan(__hfma(a, b, c), __narrow_ops::raw(0));
}
CUDAMASTER_CPU_CONST inline __narrow2 __hfma2(__narrow2 a, __narrow2 b, __narrow2 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
CUDAMASTER_CPU_CONST inline __narrow2 __hfma2_sat(__narrow2 a, __narrow2 b, __narrow2 c) {
    return {__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)};
}
CUDAMASTER_CPU_CONST inline __narrow2 __hfma2_relu(__narrow2 a, __narrow2 b, __narrow2 c) {
    return {__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)};
}
CUDAMASTER_CPU_PART inline __narrow __hneg(__narrow a) {
    return __narrow_ops::neg(a);
}
CUDAMASTER_CPU_PART inline __narrow __habs(__narrow a) {
    return __narrow_ops::abs(a);
}
CUDAMASTER_CPU_CONST inline __narrow2 __hneg2(__narrow2 a) {
    return {__hneg(a.x), __hneg(a.y)};
}
CUDAMASTER_CPU_CONST inline __narrow2 __habs2(__narrow2 a) {
    return {__habs(a.x), __habs(a.y)};
}

// Comparisons: the plain ones are false where an argument is NaN, the `u` ones true.
#define CUDAMASTER_CPU_COMPARE(name, sign)                                                                   \
    inline bool __h##name(__narrow a, __narrow b) {                                                          \
        return __narrow_ops::value(a) sign __narrow_ops::value(b);                                           \
    }                                                                                                        \
    inline bool __h##name##u(__narrow a, __narrow b) {                                                       \
        return __narrow_ops::nan(a) || __narrow_ops::nan(b) ||                                               \
               __narrow_ops::value(a) sign __narrow_ops::value(b);                                           \
    }                                                                                                        \
    inline __narrow2 __h##name##2(__narrow2 a, __narrow2 b) {                                                \
        return {__narrow(__h##name(a.x, b.x) ? 1.0f : 0.0f), __narrow(__h##name(a.y, b.y) ? 1.0f : 0.0f)};   \
    }                                                                                                        \
    inline bool __hb##name##2(__narrow2 a, __narrow2 b) {                                                    \
        return __h##name(a.x, b.x) && __h##name(a.y, b.y);                                                   \
    }                                                                                                        \
    inline bool operator sign(const __narrow& a, const __narrow& b) {                                        \
        return __narrow_ops::value(a) sign __narrow_ops::value(b);                                           \
    }                                                                                                        \
    inline bool operator sign(const __narrow2& a, const __narrow2& b) {                                      \
        return __hb##name##2(a, b);                                                                          \
    }
CUDAMASTER_CPU_COMPARE(eq, ==)
CUDAMASTER_CPU_COMPARE(lt, <)
CUDAMASTER_CPU_COMPARE(le, <=)
CUDAMASTER_CPU_COMPARE(gt, >)
CUDAMASTER_CPU_COMPARE(ge, >=)
#undef CUDAMASTER_CPU_COMPARE
// Not-equal is an ordered comparison here, but for the operator.
inline bool __hne(__narrow a, __narrow b) {
    return !__narrow_ops::nan(a) && !__narrow_ops::nan(b) && __narrow_ops::value(a) != __narrow_ops::value(b);
}
inline bool __hneu(__narrow a, __narrow b) {
    return __narrow_ops::value(a) != __narrow_ops::value(b);
}
inline bool operator!=(const __narrow& a, const __narrow& b) {
    return __narrow_ops::value(a) != __narrow_ops::value(b);
}
inline bool __hisnan(__narrow a) {
    return __narrow_ops::nan(a);
}
inline int __hisinf(__narrow a) {
    return (a.__x & 0x7fff) == __narrow_infinity ? (a.__x & 0x8000 ? -1 : 1) : 0;
}
inline __narrow2 __hisnan2(__narrow2 a) {
    return {__narrow(__hisnan(a.x) ? 1.0f : 0.0f), __narrow(__hisnan(a.y) ? 1.0f : 0.0f)};
}

#define CUDAMASTER_CPU_OPERATOR(sign, name)                                                                  \
    inline __narrow operator sign(const __narrow& a, const __narrow& b) {                                    \
        return __h##name(a, b);                                                                              \
    }                                                                                                        \
    inline __narrow& operator sign## = (__narrow & a, const __narrow& b) {                                   \
        return a = __h##name(a, b);                                                                          \
    }
CUDAMASTER_CPU_OPERATOR(+, add)
CUDAMASTER_CPU_OPERATOR(-, sub)
CUDAMASTER_CPU_OPERATOR(*, mul)
CUDAMASTER_CPU_OPERATOR(/, div)
#undef CUDAMASTER_CPU_OPERATOR
#define CUDAMASTER_CPU_OPERATOR2(sign, name)                                                                 \
    inline __narrow2 operator sign(const __narrow2& a, const __narrow2& b) {                                 \
        return name(a, b);                                                                                   \
    }                                                                                                        \
    inline __narrow2& operator sign## = (__narrow2 & a, const __narrow2& b) {                                \
        return a = name(a, b);                                                                               \
    }
CUDAMASTER_CPU_OPERATOR2(+, __hadd2)
CUDAMASTER_CPU_OPERATOR2(-, __hsub2)
CUDAMASTER_CPU_OPERATOR2(*, __hmul2)
CUDAMASTER_CPU_OPERATOR2(/, __h2div)
#undef CUDAMASTER_CPU_OPERATOR2
inline __narrow operator+(const __narrow& a) {
    return a;
}
inline __narrow operator-(const __narrow& a) {
    return __hneg(a);
}
inline __narrow2 operator+(const __narrow2& a) {
    return a;
}
inline __narrow2 operator-(const __narrow2& a) {
    return __hneg2(a);
}
inline __narrow& operator++(__narrow& a) {
    return a = __hadd(a, __narrow(1.0f));
}
inline __narrow& operator--(__narrow& a) {
    return a = __hsub(a, __narrow(1.0f));
}
inline __narrow operator++(__narrow& a, int) {
    __narrow old = a;
    ++a;
    return old;
}
inline __narrow operator--(__narrow& a, int) {
    __narrow old = a;
    --a;
    return old;
}

// Functions.
#define CUDAMASTER_CPU_FUNCTION(name, expression)                                                            \
    CUDAMASTER_CPU_CONST inline __narrow h##name(__narrow a) {                                               \
        double x = __narrow_ops::value(a);                                                                   \
        return __narrow(static_cast<double>(expression));                                                    \
    }                                                                                                        \
    inline __narrow2 h2##name(__narrow2 a) {                                                                 \
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
CUDAMASTER_CPU_SHUFFLES(__narrow)
CUDAMASTER_CPU_SHUFFLES(__narrow2)

CUDAMASTER_CPU_ONE inline __narrow atomicAdd(__narrow* address, __narrow value) {
    CUDAMASTER_CPU_SEES_ATOMIC(address);
    return cudamaster_cpu::atomic_update(address, [value](__narrow old)
                                                      CUDAMASTER_CPU_PART { return __hadd(old, value); });
}
CUDAMASTER_CPU_ONE inline __narrow2 atomicAdd(__narrow2* address, __narrow2 value) {
    CUDAMASTER_CPU_SEES_ATOMIC(address);
    return cudamaster_cpu::atomic_update(address, [value](__narrow2 old)
                                                      CUDAMASTER_CPU_PART { return __hadd2(old, value); });
}

#undef __narrow
#undef __narrow2
#undef __narrow_raw
#undef __narrow2_raw
#undef __narrow_name
#undef __narrow_ops
#undef __narrow_bits
#undef __narrow_value
#undef __narrow_infinity
