// Square matrix mul, bf16 storage, fp32 accumulation, by cuBLAS: C = A B, M x M, row-major.
//
// Call      cublasGemmEx, bf16 in and out, fp32 compute; reductions of a split product stay in fp32
// Includes  what cuBLAS launches
// Without   the handle and its work space, made before the first call of a case
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include "vendor/cublas.h"

namespace {
vendor::Cublas cublas;
}

extern "C" void square_matrix_mul_bf16_prepare(long long) {
    cublas.open(vendor::kRoundedOnce);
}

extern "C" void square_matrix_mul_bf16(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C,
                                       int M) {
    const float one = 1.0f, zero = 0.0f;
    // cuBLAS stores by columns, so a row-major matrix is its transpose there: C^T = B^T A^T.
    VENDOR_CHECK(cublasGemmEx(cublas.get(), CUBLAS_OP_N, CUBLAS_OP_N, M, M, M, &one, B, CUDA_R_16BF, M, A,
                              CUDA_R_16BF, M, &zero, C, CUDA_R_16BF, M, CUBLAS_COMPUTE_32F,
                              CUBLAS_GEMM_DEFAULT));
}
