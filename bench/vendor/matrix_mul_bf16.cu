// Matrix mul, bf16 storage, fp32 accumulation, by cuBLAS: C = A B, A: M x K, B: K x N, C: M x N, row-major.
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

extern "C" void matrix_mul_bf16_prepare(long long, long long, long long) {
    cublas.open(vendor::kRoundedOnce);
}

extern "C" void matrix_mul_bf16(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M,
                                int N, int K) {
    const float one = 1.0f, zero = 0.0f;
    // cuBLAS stores by columns, so a row-major matrix is its transpose there: C^T (N x M) = B^T (N x K) A^T (K x M).
    VENDOR_CHECK(cublasGemmEx(cublas.get(), CUBLAS_OP_N, CUBLAS_OP_N, N, M, K, &one, B, CUDA_R_16BF, N, A,
                              CUDA_R_16BF, K, &zero, C, CUDA_R_16BF, N, CUBLAS_COMPUTE_32F,
                              CUBLAS_GEMM_DEFAULT));
}
