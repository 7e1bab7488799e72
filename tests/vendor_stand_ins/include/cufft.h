// The part of cuFFT that bench/vendor/ uses, with the parameter lists of its header.
#pragma once
#include <vector_types.h>

typedef float2 cufftComplex;
typedef int cufftHandle;
enum cufftResult { CUFFT_SUCCESS, CUFFT_INVALID_PLAN, CUFFT_INVALID_VALUE = 4, CUFFT_INVALID_SIZE = 8 };
enum cufftType { CUFFT_R2C = 0x2a, CUFFT_C2C = 0x29 };
#define CUFFT_FORWARD -1

static inline cufftComplex make_cuComplex(float real, float imaginary) {
    return cufftComplex{real, imaginary};
}

extern "C" {
cufftResult cufftPlan1d(cufftHandle* plan, int nx, cufftType type, int batch);
cufftResult cufftExecC2C(cufftHandle plan, cufftComplex* idata, cufftComplex* odata, int direction);
cufftResult cufftDestroy(cufftHandle plan);
}
