// Vector types and dim3, laid out and aligned as CUDA lays them out.
#pragma once

#include <cstddef>
#include <cstdint>

#define CUDAMASTER_CPU_VECTORS(name, scalar, align2, align4)                                                 \
    struct name##1 {                                                                                         \
        scalar x;                                                                                            \
    };                                                                                                       \
    struct __attribute__((aligned(align2))) name##2 {                                                        \
        scalar x, y;                                                                                         \
    };                                                                                                       \
    struct name##3 {                                                                                         \
        scalar x, y, z;                                                                                      \
    };                                                                                                       \
    struct __attribute__((aligned(align4))) name##4 {                                                        \
        scalar x, y, z, w;                                                                                   \
    };                                                                                                       \
    constexpr name##1 make_##name##1(scalar x) {                                                             \
        return {x};                                                                                          \
    }                                                                                                        \
    constexpr name##2 make_##name##2(scalar x, scalar y) {                                                   \
        return {x, y};                                                                                       \
    }                                                                                                        \
    constexpr name##3 make_##name##3(scalar x, scalar y, scalar z) {                                         \
        return {x, y, z};                                                                                    \
    }                                                                                                        \
    constexpr name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) {                               \
        return {x, y, z, w};                                                                                 \
    }

CUDAMASTER_CPU_VECTORS(char, signed char, 2, 4)
CUDAMASTER_CPU_VECTORS(uchar, unsigned char, 2, 4)
CUDAMASTER_CPU_VECTORS(short, short, 4, 8)
CUDAMASTER_CPU_VECTORS(ushort, unsigned short, 4, 8)
CUDAMASTER_CPU_VECTORS(int, int, 8, 16)
CUDAMASTER_CPU_VECTORS(uint, unsigned int, 8, 16)
CUDAMASTER_CPU_VECTORS(long, long, 16, 16)
CUDAMASTER_CPU_VECTORS(ulong, unsigned long, 16, 16)
CUDAMASTER_CPU_VECTORS(longlong, long long, 16, 16)
CUDAMASTER_CPU_VECTORS(ulonglong, unsigned long long, 16, 16)
CUDAMASTER_CPU_VECTORS(float, float, 8, 16)
CUDAMASTER_CPU_VECTORS(double, double, 16, 16)

#undef CUDAMASTER_CPU_VECTORS

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 value) : x(value.x), y(value.y), z(value.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
