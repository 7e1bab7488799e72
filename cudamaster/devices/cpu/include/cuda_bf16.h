// __nv_bfloat16 and __nv_bfloat162 with the arithmetic of the GPU: every operation rounds once, to nearest
// even unless named otherwise. Transcendental functions are computed in float and rounded.
#pragma once

#include "cuda_runtime.h"
#include "cudamaster_cpu/narrow.h"

struct __nv_bfloat16_raw {
    unsigned short x;
};
struct __align__(4) __nv_bfloat162_raw {
    unsigned short x, y;
};

#define __narrow __nv_bfloat16
#define __narrow2 __nv_bfloat162
#define __narrow_raw __nv_bfloat16_raw
#define __narrow2_raw __nv_bfloat162_raw
#define __narrow_name(before, after) before##bfloat16##after
#define __narrow_ops cudamaster_cpu::bf16
#define __narrow_bits cudamaster_cpu::bf16_bits
#define __narrow_value cudamaster_cpu::bf16_value
#define __narrow_infinity 0x7f80
#include "cudamaster_cpu/narrow_type.h"
#include "cudamaster_cpu/narrow_functions.h"

inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 value) {
    return {value, value};
}

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

#define CUDART_INF_BF16 __ushort_as_bfloat16(0x7F80)
#define CUDART_NAN_BF16 __ushort_as_bfloat16(0x7FFF)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16(0x0000)
#define CUDART_ONE_BF16 __ushort_as_bfloat16(0x3F80)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16(0x7F7F)
