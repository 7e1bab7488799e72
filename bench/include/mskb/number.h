// Element types as numbers: conversion to and from double, the spacing of representable values, and what can stand in
// an element that no kernel wrote.
#pragma once
#include <cmath>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define MSKB_HD __host__ __device__ inline

namespace mskb {

MSKB_HD double to_double(float v) {
    return v;
}
MSKB_HD double to_double(int v) {
    return v;
}
MSKB_HD double to_double(__nv_bfloat16 v) {
    return __bfloat162float(v);
}
MSKB_HD double to_double(__half v) {
    return __half2float(v);
}

template <class T> MSKB_HD T from_double(double v);
template <> MSKB_HD float from_double<float>(double v) {
    return static_cast<float>(v);
}
template <> MSKB_HD int from_double<int>(double v) {
    return static_cast<int>(v);
}
template <> MSKB_HD __nv_bfloat16 from_double<__nv_bfloat16>(double v) {
    return __float2bfloat16(static_cast<float>(v));
}
template <> MSKB_HD __half from_double<__half>(double v) {
    return __float2half(static_cast<float>(v));
}

enum class Kind { kFloat, kBf16, kHalf, kInt };

template <class T> struct KindOf;
template <> struct KindOf<float> {
    static constexpr Kind value = Kind::kFloat;
};
template <> struct KindOf<__nv_bfloat16> {
    static constexpr Kind value = Kind::kBf16;
};
template <> struct KindOf<__half> {
    static constexpr Kind value = Kind::kHalf;
};
template <> struct KindOf<int> {
    static constexpr Kind value = Kind::kInt;
};

inline size_t bytes_of(Kind kind) {
    return kind == Kind::kBf16 || kind == Kind::kHalf ? 2 : 4;
}

MSKB_HD bool is_whole(Kind kind) {
    return kind == Kind::kInt;
}

// Outputs are filled with these bytes before a call: NaN in fp32, bf16 and fp16, -1 in int.
constexpr int kPoison = 0xFF;

// The poison as a number. As a floating-point one it is a NaN with the same bits, all ones, so that it can be told from
// the NaN of an operation.
MSKB_HD double poison() {
    unsigned long long bits = ~0ull;
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

MSKB_HD bool is_poison(double number, Kind kind) {
    unsigned long long bits;
    memcpy(&bits, &number, sizeof bits);
    return kind == Kind::kInt ? number == -1 : bits == ~0ull;
}

// Value of element `i` of a raw buffer.
MSKB_HD double element(const void* data, Kind kind, size_t i) {
    switch (kind) {
    case Kind::kFloat:
        return static_cast<const unsigned int*>(data)[i] == 0xFFFFFFFFu ? poison()
                                                                        : static_cast<const float*>(data)[i];
    case Kind::kBf16:
        return static_cast<const unsigned short*>(data)[i] == 0xFFFFu
                   ? poison()
                   : to_double(static_cast<const __nv_bfloat16*>(data)[i]);
    case Kind::kHalf:
        return static_cast<const unsigned short*>(data)[i] == 0xFFFFu
                   ? poison()
                   : to_double(static_cast<const __half*>(data)[i]);
    case Kind::kInt:
        return static_cast<const int*>(data)[i];
    }
    return NAN;
}

// What is wrong with an element; kUnwritten: it is as it was before the call.
enum class Flaw : unsigned char { kNone, kOff, kZero, kInfinite, kNaN, kUnwritten };
constexpr int kFlaws = 6;

// What is wrong with `got`, which is not what it should be.
MSKB_HD Flaw flaw_of(double got, Kind kind) {
    if (is_poison(got, kind))
        return Flaw::kUnwritten;
    if (!(got == got))
        return Flaw::kNaN;
    return fabs(got) > 1.7976931348623157e308 ? Flaw::kInfinite : got == 0 ? Flaw::kZero : Flaw::kOff;
}

// Binary exponent of a number; that of zero and of numbers below the normal ones is -1023, that of infinity and NaN 1024.
// Out of the bits: half a million of these are asked for in a check, and ilogb takes five times as long.
MSKB_HD int exponent_of(double v) {
    unsigned long long bits;
    memcpy(&bits, &v, sizeof bits);
    return static_cast<int>(bits >> 52 & 0x7ff) - 1023;
}

// 2 to the power of `exponent`, of -1022 to 1023.
MSKB_HD double power_of_two(int exponent) {
    unsigned long long bits = static_cast<unsigned long long>(exponent + 1023) << 52;
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

// Distance between neighbouring representable values at |v|: 24 significant bits in fp32, 8 in bf16, 11 in fp16.
MSKB_HD double ulp(Kind kind, double v) {
    int exponent = exponent_of(v), significant = kind == Kind::kFloat ? 24 : kind == Kind::kHalf ? 11 : 8;
    int least = kind == Kind::kHalf ? -14 : -126; // of the normal numbers
    if (kind == Kind::kInt || exponent == 1024)
        return 0.0;
    return power_of_two((exponent < least ? least : exponent) - significant + 1);
}

// The value of a type that is nearest a number, or the number itself where it is one.
inline double nearest(Kind kind, double v) {
    switch (kind) {
    case Kind::kFloat:
        return to_double(from_double<float>(v));
    case Kind::kBf16:
        return to_double(from_double<__nv_bfloat16>(v));
    case Kind::kHalf:
        return to_double(from_double<__half>(v));
    case Kind::kInt:
        return v;
    }
    return v;
}

// How far rounding to the output type may put a result |v| off: two ulps, and all of one below the smallest normal
// number of fp32, since nvcc's -ftz=true, part of --use_fast_math, makes that zero.
MSKB_HD double rounding(Kind kind, double v) {
    constexpr double kOutputUlps = 2.0, kSmallestNormal = 0x1p-126;
    return kind == Kind::kInt ? 0.0 : kOutputUlps * ulp(kind, v) + kSmallestNormal;
}

} // namespace mskb
