// Square matrix mul, fp32, by cuBLAS: C = A B, M x M, row-major.
//
// Call      cublasSgemm in its default math mode: fp32 products, no TF32
// Includes  what cuBLAS launches
// Without   the handle and its work space, made before the first call of a case
#include <cublas_v2.h>
#include "vendor/cublas.h"

namespace {
vendor::Cublas cublas;
}

extern "C" void square_matrix_mul_prepare(long long) {
    cublas.open(vendor::kFp32);
}

extern "C" void square_matrix_mul(const float* A, const float* B, float* C, int M) {
    const float one = 1.0f, zero = 0.0f;
    // cuBLAS stores by columns, so a row-major matrix is its transpose there: C^T = B^T A^T.
    VENDOR_CHECK(cublasSgemm(cublas.get(), CUBLAS_OP_N, CUBLAS_OP_N, M, M, M, &one, B, M, A, M, &zero, C, M));
}
