// Arithmetic of integers, of floating point, and of the 16-bit formats.
#pragma once

#include "cudamaster_cpu/ptx/registers.h"

namespace cudamaster_cpu {
namespace ptx {

// Integers.
template <class T> using Signed = typename T::Value;
template <class Value>
using Twice = std::conditional_t<
    sizeof(Value) == 8, std::conditional_t<std::is_signed<Value>::value, __int128, unsigned __int128>,
    std::conditional_t<sizeof(Value) == 4, std::conditional_t<std::is_signed<Value>::value, long long, B64>,
                       std::conditional_t<std::is_signed<Value>::value, int, B32>>>;

template <class Value> CUDAMASTER_CPU_PART inline Value clamped(long long value) {
    constexpr long long least = std::numeric_limits<Value>::min(), most = std::numeric_limits<Value>::max();
    return static_cast<Value>(value < least ? least : value > most ? most : value);
}

// Floating point. NaN comes out as the one pattern that instructions on f32 and on 16 bits write.
template <class... Tags> constexpr int direction() {
    return has<t_rz, Tags...> || has<t_rzi, Tags...>   ? FE_TOWARDZERO
           : has<t_rp, Tags...> || has<t_rpi, Tags...> ? FE_UPWARD
           : has<t_rm, Tags...> || has<t_rmi, Tags...> ? FE_DOWNWARD
                                                       : FE_TONEAREST;
}
template <class... Tags> constexpr Rounding rounding() {
    return direction<Tags...>() == FE_TOWARDZERO ? Rounding::kZero
           : direction<Tags...>() == FE_UPWARD   ? Rounding::kUp
           : direction<Tags...>() == FE_DOWNWARD ? Rounding::kDown
                                                 : Rounding::kNearest;
}

template <class... Tags> CUDAMASTER_CPU_PART inline float flushed(float value) {
    if constexpr (has<t_ftz, Tags...>)
        if (__builtin_fabsf(value) < __FLT_MIN__)
            return __builtin_copysignf(0.0f, value);
    return value;
}
template <class... Tags> CUDAMASTER_CPU_PART inline double flushed(double value) {
    return value;
}

template <class... Tags> CUDAMASTER_CPU_PART inline B32 finished(float value) {
    if constexpr (has<t_sat, Tags...>)
        return bit_cast<B32>(value > 0 ? (value < 1 ? flushed<Tags...>(value) : 1.0f) : 0.0f);
    if (value != value)
        return 0x7fffffffu;
    return bit_cast<B32>(flushed<Tags...>(value));
}
template <class... Tags> CUDAMASTER_CPU_PART inline B64 finished(double value) {
    if constexpr (has<t_sat, Tags...>)
        return bit_cast<B64>(value > 0 ? (value < 1 ? value : 1.0) : 0.0);
    return bit_cast<B64>(value);
}

template <class... Tags, class Operation, class... Values>
CUDAMASTER_CPU_PART inline auto rounded(Operation operation, Values... values) {
    if constexpr (direction<Tags...>() == FE_TONEAREST)
        return operation(values...);
    else
        return with_rounding(direction<Tags...>(),
                             [=]() CUDAMASTER_CPU_PART { return operation(opaque(values)...); });
}
// Of doubles a NaN stays what it is, but quiet; of several operands' it is the last one's.
CUDAMASTER_CPU_PART inline bool is_nan(B64 bits) {
    return (bits & ~(1ull << 63)) > 0x7ff0000000000000ull;
}
CUDAMASTER_CPU_PART inline B64 quiet(B64 bits) {
    return bits | 1ull << 51;
}
template <class... Values> CUDAMASTER_CPU_PART inline B64 last_nan(Values... values) {
    B64 found = 0;
    ((found = is_nan(values) ? quiet(values) : found), ...);
    return found;
}
template <class... Tags, class Operation, class... Values>
CUDAMASTER_CPU_PART inline Bits<Tags...> real(Operation operation, Values... values) {
    using Value = typename Type<Tags...>::Value;
    if constexpr (std::is_same<Value, double>::value) {
        B64 nan = last_nan(values...);
        B64 bits = finished<Tags...>(rounded<Tags...>(operation, bit_cast<Value>(values)...));
        return nan ? nan : is_nan(bits) ? 0xfff8000000000000ull : bits;
    } else {
        return finished<Tags...>(rounded<Tags...>(operation, flushed<Tags...>(bit_cast<Value>(values))...));
    }
}

// 16 bits: computed without error but for the last rounding.
template <class Value, class... Tags> CUDAMASTER_CPU_PART inline B16 narrow_flushed(B16 bits) {
    if constexpr (has<t_ftz, Tags...> && std::is_same<Value, Half>::value)
        if (!(bits & 0x7c00))
            return bits & 0x8000;
    return bits;
}
template <class Value, class... Tags> CUDAMASTER_CPU_PART inline B16 narrow_finished(double exact) {
    B16 bits = narrow_flushed<Value, Tags...>(narrow_of<Value>(exact));
    constexpr B16 one = std::is_same<Value, Half>::value ? 0x3c00 : 0x3f80;
    bool nan = exact != exact, negative = bits & 0x8000;
    if constexpr (has<t_sat, Tags...>)
        return nan || negative ? 0 : bits < one ? bits : one;
    if constexpr (has<t_relu, Tags...>)
        return nan ? bits : negative ? 0 : bits;
    return bits;
}
template <class... Tags, class Operation, class... Values>
CUDAMASTER_CPU_PART inline Bits<Tags...> narrow(Operation operation, Values... values) {
    using Value = typename Type<Tags...>::Value;
    auto one = [=](auto... parts) CUDAMASTER_CPU_PART -> B16 {
        return narrow_finished<Value, Tags...>(
            operation(static_cast<double>(narrow_float<Value>(narrow_flushed<Value, Tags...>(parts)))...));
    };
    if constexpr (Type<Tags...>::packed)
        return halves(one, values...);
    else
        return one(values...);
}

#define CUDAMASTER_CPU_SUM(name, sign)                                                                       \
    template <class... Tags>                                                                                 \
    CUDAMASTER_CPU_CONST inline Bits<Tags...> name(Bits<Tags...> a, Bits<Tags...> b) {                       \
        using T = Type<Tags...>;                                                                             \
        if constexpr (has<t_sat, Tags...> && has<t_s32, Tags...>)                                            \
            return static_cast<B32>(                                                                         \
                clamped<int>(static_cast<long long>(static_cast<int>(a)) sign static_cast<int>(b)));         \
        else if constexpr (T::integer && T::packed)                                                          \
            return halves([](B16 x, B16 y) CUDAMASTER_CPU_PART { return x sign y; }, a, b);                  \
        else if constexpr (T::integer)                                                                       \
            return static_cast<Bits<Tags...>>(a sign b);                                                     \
        else if constexpr (T::narrow)                                                                        \
            return narrow<Tags...>(                                                                          \
                [](double x, double y) CUDAMASTER_CPU_PART { return fma_odd(x, 1.0, sign y); }, a, b);       \
        else                                                                                                 \
            return real<Tags...>([](auto x, auto y) CUDAMASTER_CPU_PART { return x sign y; }, a, b);         \
    }
CUDAMASTER_CPU_SUM(add, +)
CUDAMASTER_CPU_SUM(sub, -)
#undef CUDAMASTER_CPU_SUM

// With the carry flag; a difference has none where it borrows.
template <class... Tags>
CUDAMASTER_CPU_PART inline Bits<Tags...> sum_with(bool& carry, Bits<Tags...> a, Bits<Tags...> b, bool in,
                                                  bool keep) {
    B128 sum = static_cast<B128>(a) + b + in;
    if (keep)
        carry = sum >> Type<Tags...>::width & 1;
    return static_cast<Bits<Tags...>>(sum);
}
template <class... Tags> inline Bits<Tags...> addc(bool& carry, Bits<Tags...> a, Bits<Tags...> b) {
    return sum_with<Tags...>(carry, a, b, carry, has<t_cc, Tags...>);
}
template <class... Tags> inline Bits<Tags...> subc(bool& carry, Bits<Tags...> a, Bits<Tags...> b) {
    return sum_with<Tags...>(carry, a, static_cast<Bits<Tags...>>(~b), carry, has<t_cc, Tags...>);
}
template <class... Tags> inline Bits<Tags...> add(bool& carry, Bits<Tags...> a, Bits<Tags...> b) {
    return sum_with<Tags...>(carry, a, b, false, true);
}
template <class... Tags> inline Bits<Tags...> sub(bool& carry, Bits<Tags...> a, Bits<Tags...> b) {
    return sum_with<Tags...>(carry, a, static_cast<Bits<Tags...>>(~b), true, true);
}

template <class T> CUDAMASTER_CPU_PART inline auto product(typename T::Bits a, typename T::Bits b) {
    using Value = typename T::Value;
    using Wide = Twice<Value>;
    return static_cast<Wide>(static_cast<Wide>(static_cast<Value>(a)) *
                             static_cast<Wide>(static_cast<Value>(b)));
}
template <class T, class... Tags>
using ProductBits =
    std::conditional_t<has<t_wide, Tags...>,
                       std::make_unsigned_t<std::conditional_t<T::width == 16, int, long long>>,
                       typename T::Bits>;

// The part of a product that the modifiers ask for.
template <class... Tags> CUDAMASTER_CPU_PART inline auto part_of_product(Bits<Tags...> a, Bits<Tags...> b) {
    using T = Type<Tags...>;
    auto whole = product<T>(a, b);
    if constexpr (has<t_hi, Tags...>)
        whole >>= T::width;
    return static_cast<ProductBits<T, Tags...>>(whole);
}

template <class... Tags> CUDAMASTER_CPU_CONST inline auto mul(Bits<Tags...> a, Bits<Tags...> b) {
    using T = Type<Tags...>;
    if constexpr (T::integer)
        return part_of_product<Tags...>(a, b);
    else if constexpr (T::narrow)
        return narrow<Tags...>([](double x, double y) CUDAMASTER_CPU_PART { return x * y; }, a, b);
    else
        return real<Tags...>([](auto x, auto y) CUDAMASTER_CPU_PART { return x * y; }, a, b);
}

CUDAMASTER_CPU_PART inline float fused(float x, float y, float z) {
    return ::fmaf(x, y, z);
}
CUDAMASTER_CPU_PART inline double fused(double x, double y, double z) {
    return ::fma(x, y, z);
}
template <class... Tags>
CUDAMASTER_CPU_CONST inline Bits<Tags...> fma(Bits<Tags...> a, Bits<Tags...> b, Bits<Tags...> c) {
    if constexpr (Type<Tags...>::narrow)
        return narrow<Tags...>(
            [](double x, double y, double z) CUDAMASTER_CPU_PART { return fma_odd(x, y, z); }, a, b, c);
    else
        return real<Tags...>([](auto x, auto y, auto z) CUDAMASTER_CPU_PART { return fused(x, y, z); }, a, b,
                             c);
}

template <class... Tags, class C>
CUDAMASTER_CPU_CONST inline auto mad(Bits<Tags...> a, Bits<Tags...> b, C c) {
    using T = Type<Tags...>;
    if constexpr (!T::integer)
        return fma<Tags...>(a, b, c);
    else // .sat too: an H200 does not limit the sum, whatever the manual says
        return static_cast<C>(part_of_product<Tags...>(a, b) + c);
}
template <class... Tags>
inline Bits<Tags...> mad(bool& carry, Bits<Tags...> a, Bits<Tags...> b, Bits<Tags...> c) {
    return sum_with<Tags...>(carry, part_of_product<Tags...>(a, b), c, false, true);
}
template <class... Tags>
inline Bits<Tags...> madc(bool& carry, Bits<Tags...> a, Bits<Tags...> b, Bits<Tags...> c) {
    return sum_with<Tags...>(carry, part_of_product<Tags...>(a, b), c, carry, has<t_cc, Tags...>);
}

// Of the 48 bits of the product the lower or the upper 32.
template <class... Tags> CUDAMASTER_CPU_CONST inline B32 mul24(B32 a, B32 b) {
    long long x = a & 0xffffff, y = b & 0xffffff;
    if constexpr (has<t_s32, Tags...>) {
        x = static_cast<int>(a << 8) >> 8;
        y = static_cast<int>(b << 8) >> 8;
    }
    return static_cast<B32>(has<t_hi, Tags...> ? x * y >> 16 : x * y);
}
template <class... Tags> CUDAMASTER_CPU_CONST inline B32 mad24(B32 a, B32 b, B32 c) {
    return mul24<Tags...>(a, b) + c;
}

template <class... Tags>
CUDAMASTER_CPU_CONST inline Bits<Tags...> sad(Bits<Tags...> a, Bits<Tags...> b, Bits<Tags...> c) {
    using Value = typename Type<Tags...>::Value;
    bool less = static_cast<Value>(a) < static_cast<Value>(b);
    return static_cast<Bits<Tags...>>(c + (less ? b - a : a - b));
}

// A quotient by zero and its remainder are what an H200 makes of them: all ones.
template <class... Tags> CUDAMASTER_CPU_CONST inline Bits<Tags...> div(Bits<Tags...> a, Bits<Tags...> b) {
    using T = Type<Tags...>;
    using Value = typename T::Value;
    if constexpr (!T::integer) {
        return real<Tags...>([](auto y, auto x) CUDAMASTER_CPU_PART { return x / y; }, b, a); // a's NaN
    } else {
        if (b == 0)
            return unset;
        if (std::is_signed<Value>::value && static_cast<Value>(b) == static_cast<Value>(-1))
            return static_cast<typename T::Bits>(-a);
        return static_cast<typename T::Bits>(static_cast<Value>(a) / static_cast<Value>(b));
    }
}
template <class... Tags> CUDAMASTER_CPU_CONST inline Bits<Tags...> rem(Bits<Tags...> a, Bits<Tags...> b) {
    using T = Type<Tags...>;
    using Value = typename T::Value;
    if (b == 0)
        return unset;
    if (std::is_signed<Value>::value && static_cast<Value>(b) == static_cast<Value>(-1))
        return 0;
    return static_cast<typename T::Bits>(static_cast<Value>(a) % static_cast<Value>(b));
}

// Signs.
template <class... Tags> CUDAMASTER_CPU_PART inline Bits<Tags...> with_sign(Bits<Tags...> a, bool flip) {
    using T = Type<Tags...>;
    if constexpr (T::narrow) {
        auto one = [=](B16 x) CUDAMASTER_CPU_PART -> B16 {
            x = narrow_flushed<typename T::Value, Tags...>(x);
            constexpr B16 infinity = std::is_same<typename T::Value, Half>::value ? 0x7c00 : 0x7f80;
            if ((x & 0x7fff) > infinity)
                return 0x7fff;
            return flip ? x ^ 0x8000 : x & 0x7fff;
        };
        if constexpr (T::packed)
            return halves(one, a);
        else
            return one(a);
    } else {
        constexpr auto sign = static_cast<typename T::Bits>(typename T::Bits(1) << (T::width - 1));
        auto value = flushed<Tags...>(bit_cast<typename T::Value>(a));
        a = bit_cast<typename T::Bits>(value);
        if (value != value)
            return T::width == 32 ? static_cast<typename T::Bits>(0x7fffffffu)
                                  : static_cast<typename T::Bits>(quiet(a));
        return flip ? a ^ sign : a & static_cast<typename T::Bits>(~sign);
    }
}
template <class... Tags> CUDAMASTER_CPU_CONST inline Bits<Tags...> abs(Bits<Tags...> a) {
    using T = Type<Tags...>;
    if constexpr (T::integer)
        return static_cast<typename T::Value>(a) < 0 ? static_cast<typename T::Bits>(-a) : a;
    else
        return with_sign<Tags...>(a, false);
}
template <class... Tags> CUDAMASTER_CPU_CONST inline Bits<Tags...> neg(Bits<Tags...> a) {
    if constexpr (Type<Tags...>::integer)
        return static_cast<Bits<Tags...>>(-a);
    else
        return with_sign<Tags...>(a, true);
}
template <class... Tags>
CUDAMASTER_CPU_CONST inline Bits<Tags...> copysign(Bits<Tags...> a, Bits<Tags...> b) {
    constexpr auto sign = static_cast<Bits<Tags...>>(Bits<Tags...>(1) << (Type<Tags...>::width - 1));
    return (a & sign) | (b & static_cast<Bits<Tags...>>(~sign));
}

// The smaller or greater of two. Of numbers and NaN the number, but for .NaN; -0 is below +0.
template <class... Tags, class Real>
CUDAMASTER_CPU_PART inline bool takes_first(Real a, Real b, bool greater) {
    if (a != a || b != b)
        return has<t_NaN, Tags...> ? a != a : b != b;
    if (a == b)
        return (__builtin_signbit(a) != 0) != greater;
    return (a > b) == greater;
}
template <class... Tags>
CUDAMASTER_CPU_PART inline Bits<Tags...> extreme(Bits<Tags...> a, Bits<Tags...> b, bool greater) {
    using T = Type<Tags...>;
    using Value = typename T::Value;
    if constexpr (T::integer && T::packed) {
        return halves(
            [=](B16 x, B16 y) CUDAMASTER_CPU_PART -> B16 {
                B16 chosen = (static_cast<Value>(x) > static_cast<Value>(y)) == greater ? x : y;
                return has<t_relu, Tags...> && chosen & 0x8000 ? 0 : chosen;
            },
            a, b);
    } else if constexpr (T::integer) {
        auto chosen = (static_cast<Value>(a) > static_cast<Value>(b)) == greater ? a : b;
        return has<t_relu, Tags...> && static_cast<Value>(chosen) < 0 ? 0 : chosen;
    } else if constexpr (T::narrow) {
        auto one = [=](B16 x, B16 y) CUDAMASTER_CPU_PART -> B16 {
            x = narrow_flushed<Value, Tags...>(x);
            y = narrow_flushed<Value, Tags...>(y);
            B16 sign = (x ^ y) & 0x8000;
            if constexpr (has<t_xorsign, Tags...>) {
                x &= 0x7fff;
                y &= 0x7fff;
            }
            float p = narrow_float<Value>(x), q = narrow_float<Value>(y);
            bool first = takes_first<Tags...>(p, q, greater);
            if (first ? p != p : q != q)
                return 0x7fff;
            B16 chosen = first ? x : y;
            return has<t_xorsign, Tags...> ? chosen | sign : chosen;
        };
        if constexpr (T::packed)
            return halves(one, a, b);
        else
            return one(a, b);
    } else {
        Value x = flushed<Tags...>(bit_cast<Value>(a)), y = flushed<Tags...>(bit_cast<Value>(b));
        bool negative = (__builtin_signbit(x) != 0) != (__builtin_signbit(y) != 0);
        if constexpr (has<t_xorsign, Tags...>) {
            x = x < 0 || __builtin_signbit(x) ? -x : x;
            y = y < 0 || __builtin_signbit(y) ? -y : y;
        }
        Value chosen = takes_first<Tags...>(x, y, greater) ? x : y;
        if (has<t_xorsign, Tags...> && negative && chosen == chosen)
            chosen = -chosen;
        if constexpr (T::width == 64)
            return chosen != chosen ? quiet(bit_cast<B64>(chosen)) : bit_cast<B64>(chosen);
        else
            return finished<Tags...>(chosen);
    }
}
template <class... Tags> CUDAMASTER_CPU_CONST inline Bits<Tags...> min(Bits<Tags...> a, Bits<Tags...> b) {
    return extreme<Tags...>(a, b, false);
}
template <class... Tags> CUDAMASTER_CPU_CONST inline Bits<Tags...> max(Bits<Tags...> a, Bits<Tags...> b) {
    return extreme<Tags...>(a, b, true);
}

// Functions. Those of the hardware that are approximations are the C library's here, rounded to the type: of 16 bits the
// result in single precision loses what is behind them, as on an H200, but an infinity comes of what is too large.
template <class... Tags, class Function>
CUDAMASTER_CPU_PART inline Bits<Tags...> function(Function apply, Bits<Tags...> a) {
    using T = Type<Tags...>;
    if constexpr (T::narrow) {
        auto one = [=](B16 x) CUDAMASTER_CPU_PART -> B16 {
            // bf16 has its .ftz too, for what it is given and for what it gives
            using Value = typename T::Value;
            float out = flushed<Tags...>(static_cast<float>(apply(flushed<Tags...>(narrow_float<Value>(x)))));
            constexpr float too_large = std::is_same<Value, Half>::value ? 65536.0f : __builtin_inff();
            return narrow_of<Value>(out >= too_large ? __builtin_inff() : out, Rounding::kZero);
        };
        if constexpr (T::packed)
            return halves(one, a);
        else
            return one(a);
    } else {
        return real<Tags...>(apply, a);
    }
}
CUDAMASTER_CPU_PART inline float root(float x) {
    return ::sqrtf(x);
}
CUDAMASTER_CPU_PART inline double root(double x) {
    return ::sqrt(x);
}
template <class... Tags> CUDAMASTER_CPU_CONST inline Bits<Tags...> rcp(Bits<Tags...> a) {
    return function<Tags...>([](auto x) CUDAMASTER_CPU_PART { return decltype(x)(1) / x; }, a);
}
template <class... Tags> CUDAMASTER_CPU_CONST inline Bits<Tags...> sqrt(Bits<Tags...> a) {
    return function<Tags...>([](auto x) CUDAMASTER_CPU_PART { return root(x); }, a);
}
template <class... Tags> CUDAMASTER_CPU_CONST inline Bits<Tags...> rsqrt(Bits<Tags...> a) {
    return function<Tags...>(
        [](auto x)
            CUDAMASTER_CPU_PART { return static_cast<decltype(x)>(1.0 / ::sqrt(static_cast<double>(x))); },
        a);
}
// Of sin and cos an H200 makes turns first: a product with 1 / 2pi in single precision, toward zero, of which 25 places
// behind the point count. So large angles lose their fraction, and the sine of very small ones is zero.
CUDAMASTER_CPU_PART inline double angle(float x) {
    double exact = static_cast<double>(x) * static_cast<double>(0.15915494f); // 48 bits
    auto turns = static_cast<float>(exact);
    if (__builtin_fabs(static_cast<double>(turns)) > __builtin_fabs(exact))
        turns = bit_cast<float>(bit_cast<B32>(turns) - 1);
    double rest = turns - ::trunc(static_cast<double>(turns));
    return ::trunc(rest * 0x1p25) * 0x1p-25 * 6.283185307179586;
}
template <class... Tags> CUDAMASTER_CPU_CONST inline Bits<Tags...> sin(Bits<Tags...> a) {
    return function<Tags...>(
        [](float x) CUDAMASTER_CPU_PART {
            return __builtin_copysignf(1, x) * static_cast<float>(::sin(angle(::fabsf(x))));
        },
        a);
}
template <class... Tags> CUDAMASTER_CPU_CONST inline Bits<Tags...> cos(Bits<Tags...> a) {
    return function<Tags...>([](float x) CUDAMASTER_CPU_PART { return static_cast<float>(::cos(angle(x))); },
                             a);
}
template <class... Tags> CUDAMASTER_CPU_CONST inline Bits<Tags...> lg2(Bits<Tags...> a) {
    return function<Tags...>([](float x) CUDAMASTER_CPU_PART { return ::log2f(x); }, a);
}
template <class... Tags> CUDAMASTER_CPU_CONST inline Bits<Tags...> ex2(Bits<Tags...> a) {
    return function<Tags...>([](float x) CUDAMASTER_CPU_PART { return ::exp2f(x); }, a);
}
// Small numbers are their own tanh, and from 8 on it is 1: both as on an H200.
CUDAMASTER_CPU_PART inline float tanh_of(float x) {
    float size = ::fabsf(x);
    return size < 0x1p-8f ? x : size >= 8 ? __builtin_copysignf(1, x) : ::tanhf(x);
}
template <class... Tags> CUDAMASTER_CPU_CONST inline Bits<Tags...> tanh(Bits<Tags...> a) {
    return function<Tags...>([](float x) CUDAMASTER_CPU_PART { return tanh_of(x); }, a);
}

template <class... Tags> CUDAMASTER_CPU_CONST inline bool testp(Bits<Tags...> a) {
    auto value = bit_cast<typename Type<Tags...>::Value>(a);
    using Value = decltype(value);
    bool number = value == value, finite = number && value - value == 0;
    bool small = finite && value != 0 && (value < 0 ? -value : value) < std::numeric_limits<Value>::min();
    if constexpr (has<t_finite, Tags...>)
        return finite;
    else if constexpr (has<t_infinite, Tags...>)
        return number && !finite;
    else if constexpr (has<t_number, Tags...>)
        return number;
    else if constexpr (has<t_notanumber, Tags...>)
        return !number;
    else if constexpr (has<t_normal, Tags...>)
        return finite && !small; // zero is normal
    else
        return small;
}

} // namespace ptx
} // namespace cudamaster_cpu
