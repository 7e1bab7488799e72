// Element types as numbers: conversion to and from double, and the spacing of representable values.
#pragma once
#include <cmath>
#include <cuda_bf16.h>
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
MSKB_HD double element(const void* data, Kind kind, size_t i) {
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
MSKB_HD double ulp(Kind kind, double v) {
    if (kind == Kind::kInt || !(fabs(v) <= 1.7976931348623157e308))
        return 0.0;
    int significant = kind == Kind::kFloat ? 24 : 8;
    int exponent = v == 0.0 || ilogb(v) < -126 ? -126 : ilogb(v);
    return ldexp(1.0, exponent - significant + 1);
}

} // namespace mskb
