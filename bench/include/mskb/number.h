// Element types as numbers: conversion to and from double, and the spacing of representable values.
#pragma once
#include <cmath>
#include <cuda_bf16.h>

namespace mskb {

inline double to_double(float v) {
    return v;
}
inline double to_double(int v) {
    return v;
}
inline double to_double(__nv_bfloat16 v) {
    return __bfloat162float(v);
}

template <class T> T from_double(double v);
template <> inline float from_double<float>(double v) {
    return static_cast<float>(v);
}
template <> inline int from_double<int>(double v) {
    return static_cast<int>(v);
}
template <> inline __nv_bfloat16 from_double<__nv_bfloat16>(double v) {
    return __float2bfloat16(static_cast<float>(v));
}

enum class Kind { kFloat, kBf16, kInt };

template <class T> struct KindOf;
template <> struct KindOf<float> {
    static constexpr Kind value = Kind::kFloat;
};
template <> struct KindOf<__nv_bfloat16> {
    static constexpr Kind value = Kind::kBf16;
};
template <> struct KindOf<int> {
    static constexpr Kind value = Kind::kInt;
};

inline size_t bytes_of(Kind kind) {
    return kind == Kind::kBf16 ? 2 : 4;
}

// Value of element `i` of a raw buffer.
inline double element(const void* data, Kind kind, size_t i) {
    switch (kind) {
    case Kind::kFloat:
        return static_cast<const float*>(data)[i];
    case Kind::kBf16:
        return to_double(static_cast<const __nv_bfloat16*>(data)[i]);
    case Kind::kInt:
        return static_cast<const int*>(data)[i];
    }
    return NAN;
}

// Distance between neighbouring representable values at |v|: 24 significant bits in fp32, 8 in bf16.
inline double ulp(Kind kind, double v) {
    if (kind == Kind::kInt)
        return 0.0;
    if (!std::isfinite(v))
        return 0.0;
    int significant = kind == Kind::kFloat ? 24 : 8;
    int exponent = v == 0.0 ? -126 : std::max(std::ilogb(v), -126);
    return std::ldexp(1.0, exponent - significant + 1);
}

} // namespace mskb
