// Dot product, bf16 storage, fp32 accumulation and result, by cuBLAS: out[0] = sum of X[i] * Y[i].
//
// Call      cublasGemmEx, a product of 1 x N by N x 1: bf16 factors, fp32 compute, fp32 result. cublasDotEx takes bf16
//           too, but rounds its result to bf16, which the card does not allow
// Includes  what cuBLAS launches
// Without   the handle and its work space, made before the first call of a case
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include "vendor/cublas.h"

namespace {
vendor::Cublas cublas;
}

extern "C" void dot_product_bf16_prepare(long long) {
    cublas.open(vendor::kRoundedOnce);
}

extern "C" void dot_product_bf16(float* out, const __nv_bfloat16* X, const __nv_bfloat16* Y, int N) {
    const float one = 1.0f, zero = 0.0f;
    // Both vectors are columns of N elements; the first is taken transposed.
    VENDOR_CHECK(cublasGemmEx(cublas.get(), CUBLAS_OP_T, CUBLAS_OP_N, 1, 1, N, &one, X, CUDA_R_16BF, N, Y,
                              CUDA_R_16BF, N, &zero, out, CUDA_R_32F, 1, CUBLAS_COMPUTE_32F,
                              CUBLAS_GEMM_DEFAULT));
}
