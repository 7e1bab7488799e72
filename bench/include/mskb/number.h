// Element types as numbers: conversion to and from double, the spacing of representable values, and what can stand in
// an element that no kernel wrote.
#pragma once
#include <cmath>
#include <cstring>
#include <type_traits>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define MSKB_HD __host__ __device__ inline

namespace mskb {

MSKB_HD double to_double(float v) {
    return v;
}
MSKB_HD double to_double(double v) {
    return v;
}
MSKB_HD double to_double(__nv_bfloat16 v) {
    return __bfloat162float(v);
}
MSKB_HD double to_double(__half v) {
    return __half2float(v);
}

constexpr long long kWhole = 1ll << 53; // larger whole numbers are not told apart as doubles

// A whole number; NaN, which is equal to nothing, for one that a double does not hold for sure.
MSKB_HD double to_double(long long v) {
    return -kWhole <= v && v <= kWhole ? static_cast<double>(v) : NAN;
}
MSKB_HD double to_double(unsigned long long v) {
    return v <= static_cast<unsigned long long>(kWhole) ? static_cast<double>(v) : NAN;
}
MSKB_HD double to_double(long v) { // int64_t
    return to_double(static_cast<long long>(v));
}
MSKB_HD double to_double(unsigned long v) { // size_t
    return to_double(static_cast<unsigned long long>(v));
}
MSKB_HD double to_double(int v) {
    return v;
}
MSKB_HD double to_double(unsigned int v) {
    return v;
}
MSKB_HD double to_double(unsigned char v) {
    return v;
}
MSKB_HD double to_double(bool v) {
    return v ? 1 : 0;
}

// The whole number below, and no less than `low` or more than `high`.
template <class T> MSKB_HD T whole_of(double v, double low, double high) {
    return static_cast<T>(v >= high ? high : v >= low ? floor(v) : low);
}

template <class T> MSKB_HD T from_double(double v);
template <> MSKB_HD float from_double<float>(double v) {
    return static_cast<float>(v);
}
template <> MSKB_HD double from_double<double>(double v) {
    return v;
}
template <> MSKB_HD __nv_bfloat16 from_double<__nv_bfloat16>(double v) {
    return __float2bfloat16(static_cast<float>(v));
}
template <> MSKB_HD __half from_double<__half>(double v) {
    return __float2half(static_cast<float>(v));
}
template <> MSKB_HD int from_double<int>(double v) {
    return whole_of<int>(v, -0x1p31, 0x1p31 - 1);
}
template <> MSKB_HD long long from_double<long long>(double v) {
    return whole_of<long long>(v, -0x1p53, 0x1p53);
}
template <> MSKB_HD unsigned char from_double<unsigned char>(double v) {
    return whole_of<unsigned char>(v, 0, 255);
}
template <> MSKB_HD unsigned int from_double<unsigned int>(double v) {
    return whole_of<unsigned int>(v, 0, 0x1p32 - 1);
}
template <> MSKB_HD size_t from_double<size_t>(double v) {
    return whole_of<size_t>(v, 0, 0x1p53);
}
template <> MSKB_HD bool from_double<bool>(double v) {
    return v >= 0.5;
}

enum class Kind { kFloat, kBf16, kHalf, kInt, kDouble, kInt64, kByte, kUInt, kSize, kBool };

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
template <> struct KindOf<double> {
    static constexpr Kind value = Kind::kDouble;
};
template <> struct KindOf<long long> {
    static constexpr Kind value = Kind::kInt64;
};
template <> struct KindOf<unsigned char> {
    static constexpr Kind value = Kind::kByte;
};
template <> struct KindOf<unsigned int> {
    static constexpr Kind value = Kind::kUInt;
};
template <> struct KindOf<size_t> {
    static constexpr Kind value = Kind::kSize;
};
template <> struct KindOf<bool> {
    static constexpr Kind value = Kind::kBool;
};

// What `f` makes of a null pointer to the type of a kind.
template <class F> auto with_type(Kind kind, const F& f) {
    switch (kind) {
    case Kind::kFloat:
        return f(static_cast<float*>(nullptr));
    case Kind::kBf16:
        return f(static_cast<__nv_bfloat16*>(nullptr));
    case Kind::kHalf:
        return f(static_cast<__half*>(nullptr));
    case Kind::kDouble:
        return f(static_cast<double*>(nullptr));
    case Kind::kInt64:
        return f(static_cast<long long*>(nullptr));
    case Kind::kByte:
        return f(static_cast<unsigned char*>(nullptr));
    case Kind::kUInt:
        return f(static_cast<unsigned int*>(nullptr));
    case Kind::kSize:
        return f(static_cast<size_t*>(nullptr));
    case Kind::kBool:
        return f(static_cast<bool*>(nullptr));
    case Kind::kInt:
        break;
    }
    return f(static_cast<int*>(nullptr));
}

inline size_t bytes_of(Kind kind) {
    return with_type(kind, [](auto* type) { return sizeof *type; });
}

MSKB_HD bool is_whole(Kind kind) {
    return kind == Kind::kInt || kind == Kind::kInt64 || kind == Kind::kByte || kind == Kind::kUInt ||
           kind == Kind::kSize || kind == Kind::kBool;
}

// Outputs are filled with this byte before a call: NaN in floating-point types. In whole ones all bits would be -1 or the
// largest number, which many kernels write: a bit pattern instead, which is a value of types of up to 32 bits alone.
constexpr unsigned char kPoison = 0xFF, kWholePoison = 0xA5;

MSKB_HD unsigned char poison_byte(Kind kind) {
    return is_whole(kind) ? kWholePoison : kPoison;
}

// The poison as a number. As a floating-point one it is a NaN with the same bits, all ones, so that it can be told from
// the NaN of an operation.
MSKB_HD double poison() {
    unsigned long long bits = ~0ull;
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

MSKB_HD bool is_poison(double number, Kind kind) {
    if (kind == Kind::kInt)
        return number == static_cast<int>(0xA5A5A5A5u);
    if (kind == Kind::kByte || kind == Kind::kUInt)
        return number == (kind == Kind::kByte ? 0xA5 : 0xA5A5A5A5u);
    unsigned long long bits;
    memcpy(&bits, &number, sizeof bits);
    return bits == ~0ull;
}

// Value of element `i` of a raw buffer; NaN where it is no value of its type, or none that the judge can compare.
MSKB_HD double element(const void* data, Kind kind, size_t i) {
    constexpr unsigned long long kPoisonWord = 0xA5A5A5A5A5A5A5A5ull;
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
    case Kind::kDouble:
        return static_cast<const double*>(data)[i];
    case Kind::kByte:
        return static_cast<const unsigned char*>(data)[i];
    case Kind::kUInt:
        return static_cast<const unsigned int*>(data)[i];
    case Kind::kInt64:
    case Kind::kSize: {
        unsigned long long bits = static_cast<const unsigned long long*>(data)[i];
        return bits == kPoisonWord    ? poison()
               : kind == Kind::kInt64 ? to_double(static_cast<long long>(bits))
                                      : to_double(bits);
    }
    case Kind::kBool: {
        unsigned char byte = static_cast<const unsigned char*>(data)[i]; // of a bool it is 0 or 1
        return byte <= 1 ? byte : byte == kWholePoison ? poison() : NAN;
    }
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

// Distance between neighbouring representable values at |v|: 53 significant bits in a double, 24 in fp32, 8 in bf16, 11 in
// fp16. In a double it is no less than the smallest normal number.
MSKB_HD double ulp(Kind kind, double v) {
    int exponent = exponent_of(v), significant = kind == Kind::kDouble  ? 53
                                                 : kind == Kind::kFloat ? 24
                                                 : kind == Kind::kHalf  ? 11
                                                                        : 8;
    int least = kind == Kind::kDouble ? -1022 + 52
                : kind == Kind::kHalf ? -14
                                      : -126; // of the normal numbers
    if (is_whole(kind) || exponent == 1024)
        return 0.0;
    return power_of_two((exponent < least ? least : exponent) - significant + 1);
}

// The value of a type that is nearest a number, or the number itself where it is one.
inline double nearest(Kind kind, double v) {
    if (is_whole(kind))
        return v;
    return with_type(
        kind, [v](auto* type) { return to_double(from_double<std::remove_pointer_t<decltype(type)>>(v)); });
}

// How far rounding to the output type may put a result |v| off: two ulps, and all of one below the smallest normal
// number of fp32, since nvcc's -ftz=true, part of --use_fast_math, makes that zero; doubles it leaves alone.
MSKB_HD double rounding(Kind kind, double v) {
    constexpr double kOutputUlps = 2.0, kSmallestNormal = 0x1p-126;
    if (is_whole(kind))
        return 0.0;
    return kOutputUlps * ulp(kind, v) + (kind == Kind::kDouble ? 0.0 : kSmallestNormal);
}

} // namespace mskb
