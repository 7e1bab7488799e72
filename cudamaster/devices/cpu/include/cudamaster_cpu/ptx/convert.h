// Conversions, each rounded once from the exact value.
#pragma once

#include "cudamaster_cpu/ptx/arithmetic.h"

namespace cudamaster_cpu {
namespace ptx {

template <class... Tags> inline Bits<Tags...> mov(Bits<Tags...> a) {
    return a;
}

// A number that may come from 64 bits as a double whose further rounding to 24 bits or fewer is that of the number.
template <class Value> CUDAMASTER_CPU_PART inline double odd_double(Value value) {
    if (sizeof(Value) < 8)
        return static_cast<double>(value);
    bool negative = value < 0;
    B64 size = negative ? 0 - static_cast<B64>(value) : static_cast<B64>(value);
    double wide = size >> 53 ? static_cast<double>(size >> 11 | ((size & 0x7ff) != 0)) * 2048.0
                             : static_cast<double>(size);
    return negative ? -wide : wide;
}

template <class... Tags> CUDAMASTER_CPU_PART inline double to_integer(double value) {
    return has<t_rni, Tags...>   ? ::nearbyint(value)
           : has<t_rzi, Tags...> ? ::trunc(value)
           : has<t_rmi, Tags...> ? ::floor(value)
           : has<t_rpi, Tags...> ? ::ceil(value)
                                 : value;
}

// The exact value of floating point.
template <class T, class... Tags> CUDAMASTER_CPU_PART inline double exact(typename T::Bits bits) {
    if constexpr (T::narrow)
        return narrow_float<typename T::Value>(bits);
    else
        return flushed<Tags...>(bit_cast<typename T::Value>(bits));
}

template <class D, class... Tags> CUDAMASTER_CPU_PART inline typename D::Bits from_real(double value) {
    if constexpr (D::narrow) {
        B16 bits = narrow_of<typename D::Value>(value, rounding<Tags...>());
        constexpr B16 one = std::is_same<typename D::Value, Half>::value ? 0x3c00 : 0x3f80;
        if constexpr (has<t_sat, Tags...>)
            return value != value || bits & 0x8000 ? 0 : bits < one ? bits : one;
        return bits;
    } else if constexpr (sizeof(typename D::Value) == 4) {
        return finished<Tags...>(
            rounded<Tags...>([](double x) CUDAMASTER_CPU_PART { return static_cast<float>(x); }, value));
    } else {
        return finished<Tags...>(value);
    }
}

// Where an H200 keeps what a NaN says: of doubles and to doubles the sign and the upper bits, and of bf16 every bit.
template <class D, class S> CUDAMASTER_CPU_PART inline bool is_kept_nan(typename S::Bits bits) {
    if constexpr (S::width == 64)
        return is_nan(bits);
    else if constexpr (D::width == 64 || std::is_same<typename S::Value, Bfloat>::value)
        return exact<S>(bits) != exact<S>(bits);
    else
        return false;
}
template <class D, class S, class... Tags>
CUDAMASTER_CPU_PART inline typename D::Bits kept_nan(typename S::Bits bits) {
    constexpr int places = D::width == 64                                 ? 52
                           : D::width == 32                               ? 23
                           : std::is_same<typename D::Value, Half>::value ? 10
                                                                          : 7;
    if constexpr (S::width == 16 && D::width == 32)
        return static_cast<B32>(bits) << 16;
    else if constexpr (S::width == 64) {
        // Its exponent is as full of ones as that of the result.
        B64 size = quiet(bits) << 12 >> (64 - places) | ~0ull << places;
        return static_cast<typename D::Bits>(bits >> 63 << (D::width - 1) |
                                             (size & (1ull << (D::width - 1)) - 1));
    } else {
        // .ftz is a step of its own before, and leaves its one NaN.
        float value = exact<S>(bits);
        B64 single = has<t_ftz, Tags...> ? 0x7fffffffu : bit_cast<B32>(value);
        return (single >> 31 << 63) | quiet((single & 0x7fffffffu) << 29 | 0x7ffull << 52);
    }
}

template <class D, class S, class... Tags> CUDAMASTER_CPU_PART inline auto converted(typename S::Bits bits) {
    using To = typename D::Value;
    using From = typename S::Value;
    if constexpr (S::integer && D::integer) {
        auto value = static_cast<From>(bits);
        if constexpr (has<t_sat, Tags...>) {
            __int128 wide = value, least = std::numeric_limits<To>::min(),
                     most = std::numeric_limits<To>::max();
            return static_cast<To>(wide < least ? least : wide > most ? most : wide);
        } else {
            return static_cast<To>(value);
        }
    } else if constexpr (D::integer) {
        using Real = std::conditional_t<S::width == 64, double, float>; // what NaN becomes depends on it
        return saturate<To>(static_cast<Real>(to_integer<Tags...>(exact<S, Tags...>(bits))));
    } else if constexpr (S::integer) {
        auto value = static_cast<From>(bits);
        if constexpr (D::narrow)
            return from_real<D, Tags...>(odd_double(value));
        else
            return finished<Tags...>(
                rounded<Tags...>([](From x) CUDAMASTER_CPU_PART { return static_cast<To>(x); }, value));
    } else if (is_kept_nan<D, S>(bits) && !has<t_sat, Tags...>) {
        return kept_nan<D, S, Tags...>(bits);
    } else {
        return from_real<D, Tags...>(to_integer<Tags...>(exact<S, Tags...>(bits)));
    }
}

// To 16 bits and to TF32 with limits of its own.
template <class D, class... Tags> CUDAMASTER_CPU_PART inline B16 limited(B32 bits) {
    using Value = typename D::Value;
    float value = bit_cast<float>(bits);
    B16 result = narrow_of<Value>(value, rounding<Tags...>());
    constexpr B16 infinity = std::is_same<Value, Half>::value ? 0x7c00 : 0x7f80;
    if (value != value)
        return 0x7fff;
    if (has<t_satfinite, Tags...> && (result & 0x7fff) == infinity)
        result = static_cast<B16>((result & 0x8000) | (infinity - 1));
    return has<t_relu, Tags...> && result & 0x8000 ? 0 : result;
}
template <class... Tags> CUDAMASTER_CPU_PART inline B32 to_tf32(B32 bits) {
    B32 size = bits & 0x7fffffffu, sign = bits & 0x80000000u;
    // NaN becomes the one of TF32, but with .rna an H200 rounds and limits it as if it were a number.
    if (size > 0x7f800000u && !has<t_rna, Tags...>)
        return 0x7fffe000u;
    if (size != 0x7f800000u) {
        B32 more = has<t_rna, Tags...> ? 0x1000u : has<t_rz, Tags...> ? 0u : 0xfffu + (size >> 13 & 1);
        size = (size + more) & 0xffffe000u;
    }
    if (has<t_satfinite, Tags...> && size >= 0x7f800000u)
        size -= 0x2000u;
    return has<t_relu, Tags...> && sign ? 0 : sign | size;
}

// 8 bits: e4m3 has no infinity, and what is too large for either is its greatest.
template <bool e4m3> CUDAMASTER_CPU_PART inline B8 to_eight(double value) {
    constexpr int fraction = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
    constexpr double most = e4m3 ? 448 : 57344;
    if (value != value)
        return 0x7f;
    B8 sign = __builtin_signbit(value) ? 0x80 : 0;
    double size = __builtin_fabs(value);
    int exponent = size > 0 ? ::ilogb(size) : 1 - bias;
    if (exponent < 1 - bias)
        exponent = 1 - bias;
    double scaled = ::nearbyint(::ldexp(size, fraction - exponent)); // in units of the last place
    if (size >= most || ::ldexp(scaled, exponent - fraction) >= most)
        return sign | (e4m3 ? 0x7e : 0x7b);
    int units = static_cast<int>(scaled);
    return static_cast<B8>(sign | (((exponent + bias - 1) << fraction) + units));
}
template <bool e4m3> CUDAMASTER_CPU_PART inline B16 eight_to_half(B8 bits) {
    if constexpr (!e4m3)
        return (bits & 0x7f) > 0x7c ? 0x7fff : static_cast<B16>(bits << 8);
    if ((bits & 0x7f) == 0x7f)
        return 0x7fff;
    int exponent = bits >> 3 & 15, fraction = bits & 7;
    double size = exponent ? ::ldexp(8 + fraction, exponent - 10) : ::ldexp(fraction, -9);
    return half_bits(static_cast<float>(bits & 0x80 ? -size : size));
}

template <class... Tags> CUDAMASTER_CPU_CONST inline auto cvt(typename Type<Tags...>::Bits a) {
    using D = FirstType<Tags...>;
    using S = Type<Tags...>;
    constexpr bool e4m3 = has<t_e4m3x2, Tags...>;
    if constexpr (has<t_tf32, Tags...>) {
        return to_tf32<Tags...>(a);
    } else if constexpr (has<t_relu, Tags...> && D::narrow && !D::packed) {
        return limited<D, Tags...>(a);
    } else if constexpr (has<t_satfinite, Tags...> && D::narrow && !D::packed) {
        return limited<D, Tags...>(a);
    } else if constexpr (S::packed && S::narrow) { // to 8 bits
        auto one = [](B16 x) CUDAMASTER_CPU_PART {
            double value = half_value(x);
            return to_eight<e4m3>(has<t_relu, Tags...> && value <= 0 ? 0.0 : value);
        };
        return static_cast<B16>(one(static_cast<B16>(a)) | one(static_cast<B16>(a >> 16)) << 8);
    } else if constexpr (S::packed) { // from 8 bits
        auto one = [](B8 x) CUDAMASTER_CPU_PART -> B32 {
            B16 half = eight_to_half<e4m3>(x);
            return has<t_relu, Tags...> && half & 0x8000 ? 0 : half;
        };
        return one(static_cast<B8>(a)) | one(static_cast<B8>(a >> 8)) << 16;
    } else {
        return converted<D, S, Tags...>(a);
    }
}
// Two values: the first goes to the upper half.
template <class... Tags> CUDAMASTER_CPU_CONST inline auto cvt(B32 a, B32 b) {
    using D = FirstType<Tags...>;
    if constexpr (D::narrow) {
        return static_cast<B32>(limited<D, Tags...>(a)) << 16 | limited<D, Tags...>(b);
    } else {
        auto one = [](B32 x) CUDAMASTER_CPU_PART {
            float value = bit_cast<float>(x);
            return to_eight<has<t_e4m3x2, Tags...>>(has<t_relu, Tags...> && value <= 0 ? 0.0 : value);
        };
        return static_cast<B16>(one(a) << 8 | one(b));
    }
}

// Two numbers beside each other below what is in `c`.
template <class... Tags> CUDAMASTER_CPU_CONST inline B32 cvt_pack(B32 a, B32 b, B32 c = 0) {
    using D = FirstType<Tags...>;
    auto one = [](B32 x) CUDAMASTER_CPU_PART {
        return static_cast<B32>(
            static_cast<typename D::Bits>(clamped<typename D::Value>(static_cast<int>(x))));
    };
    B32 both = one(a) << D::width | one(b);
    return D::width == 8 ? c << 16 | both : both;
}

} // namespace ptx
} // namespace cudamaster_cpu
