// __half and __half2 with the arithmetic of the GPU: every operation rounds once, to nearest even unless
// named otherwise. Transcendental functions are computed in float and rounded.
#pragma once

#include "cuda_runtime.h"
#include "cudamaster_cpu/narrow.h"

struct __half_raw {
    unsigned short x;
};
struct __align__(4) __half2_raw {
    unsigned short x, y;
};

#define __narrow __half
#define __narrow2 __half2
#define __narrow_raw __half_raw
#define __narrow2_raw __half2_raw
#define __narrow_name(before, after) before##half##after
#define __narrow_ops cudamaster_cpu::half
#define __narrow_bits cudamaster_cpu::half_bits
#define __narrow_value cudamaster_cpu::half_value
#define __narrow_infinity 0x7c00
#include "cudamaster_cpu/narrow_type.h"
#include "cudamaster_cpu/narrow_functions.h"

inline __half2 __half2half2(__half value) {
    return {value, value};
}

typedef __half half;
typedef __half2 half2;
typedef __half nv_half;
typedef __half2 nv_half2;

#define CUDART_INF_FP16 __ushort_as_half(0x7C00)
#define CUDART_NAN_FP16 __ushort_as_half(0x7FFF)
#define CUDART_ZERO_FP16 __ushort_as_half(0x0000)
#define CUDART_ONE_FP16 __ushort_as_half(0x3C00)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half(0x7BFF)
