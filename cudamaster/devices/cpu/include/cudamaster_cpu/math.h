// Mathematical functions that CUDA has and the C++ library has not, and those it names differently.
//
// The fast forms (__expf, __fdividef ...) are the accurate ones here: a GPU's approximations are not
// imitated.
#pragma once

#include "cudamaster_cpu/observed.h"

#include <cmath>
#include <cstdlib>
#include <math.h>
#include <stdlib.h>

#define CUDAMASTER_CPU_MINMAX(type, a, b)                                                                    \
    constexpr type min(a x, b y) {                                                                           \
        return static_cast<type>(y) < static_cast<type>(x) ? static_cast<type>(y) : static_cast<type>(x);    \
    }                                                                                                        \
    constexpr type max(a x, b y) {                                                                           \
        return static_cast<type>(x) < static_cast<type>(y) ? static_cast<type>(y) : static_cast<type>(x);    \
    }
CUDAMASTER_CPU_MINMAX(int, int, int)
CUDAMASTER_CPU_MINMAX(unsigned int, unsigned int, unsigned int)
CUDAMASTER_CPU_MINMAX(unsigned int, int, unsigned int)
CUDAMASTER_CPU_MINMAX(unsigned int, unsigned int, int)
CUDAMASTER_CPU_MINMAX(long, long, long)
CUDAMASTER_CPU_MINMAX(unsigned long, unsigned long, unsigned long)
CUDAMASTER_CPU_MINMAX(unsigned long, long, unsigned long)
CUDAMASTER_CPU_MINMAX(unsigned long, unsigned long, long)
CUDAMASTER_CPU_MINMAX(long long, long long, long long)
CUDAMASTER_CPU_MINMAX(unsigned long long, unsigned long long, unsigned long long)
CUDAMASTER_CPU_MINMAX(unsigned long long, long long, unsigned long long)
CUDAMASTER_CPU_MINMAX(unsigned long long, unsigned long long, long long)
#undef CUDAMASTER_CPU_MINMAX
// NaN gives way to the other argument, as fminf and fmaxf have it.
inline float min(float x, float y) {
    return fminf(x, y);
}
inline float max(float x, float y) {
    return fmaxf(x, y);
}
inline double min(double x, double y) {
    return fmin(x, y);
}
inline double max(double x, double y) {
    return fmax(x, y);
}
inline double min(float x, double y) {
    return fmin(x, y);
}
inline double min(double x, float y) {
    return fmin(x, y);
}
inline double max(float x, double y) {
    return fmax(x, y);
}
inline double max(double x, float y) {
    return fmax(x, y);
}
inline unsigned int umin(unsigned int x, unsigned int y) {
    return min(x, y);
}
inline unsigned int umax(unsigned int x, unsigned int y) {
    return max(x, y);
}
inline long long llmin(long long x, long long y) {
    return min(x, y);
}
inline long long llmax(long long x, long long y) {
    return max(x, y);
}
inline unsigned long long ullmin(unsigned long long x, unsigned long long y) {
    return min(x, y);
}
inline unsigned long long ullmax(unsigned long long x, unsigned long long y) {
    return max(x, y);
}

CUDAMASTER_CPU_ONE inline double rsqrt(double x) {
    return 1.0 / ::sqrt(x);
}
CUDAMASTER_CPU_ONE inline float rsqrtf(float x) {
    return static_cast<float>(rsqrt(static_cast<double>(x)));
}
inline float rsqrt(float x) {
    return rsqrtf(x);
}
CUDAMASTER_CPU_ONE inline double rcbrt(double x) {
    return 1.0 / ::cbrt(x);
}
CUDAMASTER_CPU_ONE inline float rcbrtf(float x) {
    return static_cast<float>(rcbrt(static_cast<double>(x)));
}
CUDAMASTER_CPU_ONE inline double sinpi(double x) {
    return ::sin(M_PI * ::remainder(x, 2.0));
}
CUDAMASTER_CPU_ONE inline double cospi(double x) {
    return ::cos(M_PI * ::remainder(x, 2.0));
}
CUDAMASTER_CPU_ONE inline float sinpif(float x) {
    return static_cast<float>(sinpi(x));
}
CUDAMASTER_CPU_ONE inline float cospif(float x) {
    return static_cast<float>(cospi(x));
}
CUDAMASTER_CPU_ONE inline void sincospi(double x, double* sine, double* cosine) {
    *sine = sinpi(x);
    *cosine = cospi(x);
}
CUDAMASTER_CPU_ONE inline void sincospif(float x, float* sine, float* cosine) {
    *sine = sinpif(x);
    *cosine = cospif(x);
}
CUDAMASTER_CPU_ONE inline double normcdf(double x) {
    return 0.5 * ::erfc(-x * M_SQRT1_2);
}
CUDAMASTER_CPU_ONE inline float normcdff(float x) {
    return static_cast<float>(normcdf(x));
}
CUDAMASTER_CPU_ONE inline double erfcx(double x) {
    if (x < 25)
        return ::exp(x * x) * ::erfc(x);
    double t = 1 / (x * x);
    return (1 - t * (0.5 - t * (0.75 - 1.875 * t))) / (x * 1.7724538509055160273);
}
CUDAMASTER_CPU_ONE inline float erfcxf(float x) {
    return static_cast<float>(erfcx(x));
}
// Newton steps on erf from a rough start.
CUDAMASTER_CPU_ONE inline double erfinv(double y) {
    if (!(y > -1 && y < 1))
        return y == 1 ? HUGE_VAL : y == -1 ? -HUGE_VAL : NAN;
    double l = ::log1p(-y * y), a = 2 / (M_PI * 0.147) + l / 2;
    double x = ::copysign(::sqrt(::sqrt(a * a - l / 0.147) - a), y);
    for (int i = 0; i < 4; ++i) {
        double residue = y < 0 ? ::erfc(-x) - (1 + y) : -(::erfc(x) - (1 - y));
        residue = y < 0 ? residue : residue;
        x -= residue / (M_2_SQRTPI * ::exp(-x * x));
    }
    return x;
}
CUDAMASTER_CPU_ONE inline float erfinvf(float y) {
    return static_cast<float>(erfinv(y));
}
CUDAMASTER_CPU_ONE inline double norm3d(double a, double b, double c) {
    return ::hypot(::hypot(a, b), c);
}
CUDAMASTER_CPU_ONE inline float norm3df(float a, float b, float c) {
    return static_cast<float>(norm3d(a, b, c));
}
CUDAMASTER_CPU_ONE inline double norm4d(double a, double b, double c, double d) {
    return ::hypot(::hypot(a, b), ::hypot(c, d));
}
CUDAMASTER_CPU_ONE inline float norm4df(float a, float b, float c, float d) {
    return static_cast<float>(norm4d(a, b, c, d));
}
CUDAMASTER_CPU_ONE inline double rhypot(double a, double b) {
    return 1.0 / ::hypot(a, b);
}
CUDAMASTER_CPU_ONE inline float rhypotf(float a, float b) {
    return static_cast<float>(rhypot(a, b));
}
CUDAMASTER_CPU_ONE inline double rnorm3d(double a, double b, double c) {
    return 1.0 / norm3d(a, b, c);
}
CUDAMASTER_CPU_ONE inline float rnorm3df(float a, float b, float c) {
    return static_cast<float>(rnorm3d(a, b, c));
}
CUDAMASTER_CPU_ONE inline float fdividef(float x, float y) {
    return x / y;
}

CUDAMASTER_CPU_ONE inline float __expf(float x) {
    return ::expf(x);
}
CUDAMASTER_CPU_ONE inline float __exp10f(float x) {
    return ::exp10f(x);
}
CUDAMASTER_CPU_ONE inline float __logf(float x) {
    return ::logf(x);
}
CUDAMASTER_CPU_ONE inline float __log2f(float x) {
    return ::log2f(x);
}
CUDAMASTER_CPU_ONE inline float __log10f(float x) {
    return ::log10f(x);
}
CUDAMASTER_CPU_ONE inline float __powf(float x, float y) {
    return ::powf(x, y);
}
CUDAMASTER_CPU_ONE inline float __sinf(float x) {
    return ::sinf(x);
}
CUDAMASTER_CPU_ONE inline float __cosf(float x) {
    return ::cosf(x);
}
CUDAMASTER_CPU_ONE inline float __tanf(float x) {
    return ::tanf(x);
}
CUDAMASTER_CPU_ONE inline float __tanhf(float x) {
    return ::tanhf(x);
}
CUDAMASTER_CPU_ONE inline void __sincosf(float x, float* sine, float* cosine) {
    ::sincosf(x, sine, cosine);
}
CUDAMASTER_CPU_ONE inline float __fdividef(float x, float y) {
    return x / y;
}
inline float __saturatef(float x) {
    return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f;
}
