// Matrix mul, fp32, by cuBLAS: C = A B, A: M x K, B: K x N, C: M x N, row-major.
//
// Call      cublasSgemm in its default math mode: fp32 products, no TF32
// Includes  what cuBLAS launches
// Without   the handle and its work space, made before the first call of a case
#include <cublas_v2.h>
#include "vendor/cublas.h"

namespace {
vendor::Cublas cublas;
}

extern "C" void matrix_mul_prepare(long long, long long, long long) {
    cublas.open(vendor::kFp32);
}

extern "C" void matrix_mul(const float* A, const float* B, float* C, int M, int N, int K) {
    const float one = 1.0f, zero = 0.0f;
    // cuBLAS stores by columns, so a row-major matrix is its transpose there: C^T (N x M) = B^T (N x K) A^T (K x M).
    VENDOR_CHECK(cublasSgemm(cublas.get(), CUBLAS_OP_N, CUBLAS_OP_N, N, M, K, &one, B, N, A, K, &zero, C, N));
}
