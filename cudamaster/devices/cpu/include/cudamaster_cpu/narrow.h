// Conversions between double, float and the 16-bit formats, each with a single rounding.
#pragma once

#include "cudamaster_cpu/intrinsics.h"

namespace cudamaster_cpu {

#if defined(__F16C__)
// The instructions by their builtins: immintrin.h, which wraps them, takes longer to read than all of our headers.
typedef short Halves __attribute__((vector_size(16)));
typedef float Floats __attribute__((vector_size(16)));
#endif

enum class Rounding { kNearest, kZero, kUp, kDown };

// The float next to `value` that has an odd last bit, where it is inexact: rounding that once more to a
// format with at least two bits less gives what rounding `value` at once would.
CUDAMASTER_CPU_CONST inline float to_float_odd(double value) {
    float nearest = static_cast<float>(value);
    if (static_cast<double>(nearest) == value || value != value)
        return nearest;
    unsigned int bits = bit_cast<unsigned int>(nearest);
    if (__builtin_fabs(static_cast<double>(nearest)) > __builtin_fabs(value))
        --bits;
    return bit_cast<float>(bits | 1u);
}

// a * b + c of 16-bit values, as a double whose further rounding is exact in the same way.
CUDAMASTER_CPU_CONST inline double fma_odd(double a, double b, double c) {
    double product = a * b; // exact: 22 bits at most
    double sum = product + c;
    double back = sum - product;
    double error = (product - (sum - back)) + (c - back);
    if (error == 0 || !(__builtin_fabs(sum) <= __DBL_MAX__))
        return sum;
    long long bits = bit_cast<long long>(sum);
    if (bits & 1)
        return sum;
    // Odd, and on the side of the exact value.
    return bit_cast<double>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

// The upper bits of a magnitude, rounded: `drop` bits go.
CUDAMASTER_CPU_PART inline unsigned int round_off(unsigned int magnitude, unsigned int drop, bool negative,
                                                  Rounding rounding) {
    unsigned int kept = magnitude >> drop, rest = magnitude & ((1u << drop) - 1), half = 1u << (drop - 1);
    bool up = false;
    switch (rounding) {
    case Rounding::kNearest:
        up = rest > half || (rest == half && (kept & 1));
        break;
    case Rounding::kZero:
        break;
    case Rounding::kUp:
        up = rest != 0 && !negative;
        break;
    case Rounding::kDown:
        up = rest != 0 && negative;
        break;
    }
    return kept + up;
}

CUDAMASTER_CPU_CONST inline unsigned short bf16_bits(float value, Rounding rounding = Rounding::kNearest) {
    unsigned int bits = bit_cast<unsigned int>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fff;
    if (rounding == Rounding::kNearest)
        return static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
    bool negative = bits >> 31;
    return static_cast<unsigned short>(round_off(bits & 0x7fffffffu, 16, negative, rounding) |
                                       bits >> 16 & 0x8000u);
}

CUDAMASTER_CPU_CONST inline float bf16_value(unsigned short bits) {
    return bit_cast<float>(static_cast<unsigned int>(bits) << 16);
}

CUDAMASTER_CPU_CONST inline unsigned short half_bits(float value, Rounding rounding = Rounding::kNearest) {
    unsigned int bits = bit_cast<unsigned int>(value);
    unsigned int magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    if (magnitude > 0x7f800000u)
        return 0x7fff;
#if defined(__F16C__)
    if (rounding == Rounding::kNearest)
        return static_cast<unsigned short>(__builtin_ia32_vcvtps2ph(Floats{value, 0, 0, 0}, 0)[0]);
#endif
    if (magnitude == 0x7f800000u)
        return static_cast<unsigned short>(sign | 0x7c00u);
    bool negative = sign != 0;
    unsigned int exponent = magnitude >> 23;
    unsigned int result;
    if (exponent >= 127 - 14) {
        // Normal: the exponent's bias changes from 127 to 15, and a carry out of the fraction raises it.
        result = round_off(magnitude - ((127u - 15u) << 23), 13, negative, rounding);
        if (result >= 0x7c00u) {
            bool to_infinity = rounding == Rounding::kNearest || (rounding == Rounding::kUp && !negative) ||
                               (rounding == Rounding::kDown && negative);
            result = to_infinity ? 0x7c00u : 0x7bffu;
        }
    } else {
        // Below the normal range: the last bit of the result is worth 2^-24.
        unsigned int drop = 126 - exponent;
        unsigned int fraction = exponent ? (magnitude & 0x7fffffu) | 0x800000u : 0;
        if (drop > 25) {
            fraction = magnitude != 0; // all that is left of it is that it was there
            drop = 25;
        }
        result = round_off(fraction, drop, negative, rounding);
    }
    return static_cast<unsigned short>(result | sign);
}

CUDAMASTER_CPU_CONST inline float half_value(unsigned short bits) {
#if defined(__F16C__)
    return __builtin_ia32_vcvtph2ps(Halves{static_cast<short>(bits), 0, 0, 0, 0, 0, 0, 0})[0];
#else
    unsigned int sign = static_cast<unsigned int>(bits & 0x8000) << 16, exponent = bits >> 10 & 31,
                 fraction = bits & 0x3ff;
    if (exponent == 31)
        return bit_cast<float>(sign | 0x7f800000u | fraction << 13);
    if (exponent)
        return bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
    float small = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -small : small;
#endif
}

} // namespace cudamaster_cpu
