// Matrix vector mul, fp32, by cuBLAS: y = A x, A: M x N, row-major.
//
// Call      cublasSgemv in its default math mode: fp32 products
// Includes  what cuBLAS launches
// Without   the handle and its work space, made before the first call of a case
#include <cublas_v2.h>
#include "vendor/cublas.h"

namespace {
vendor::Cublas cublas;
}

extern "C" void matrix_vector_mul_prepare(long long, long long) {
    cublas.open(vendor::kFp32);
}

extern "C" void matrix_vector_mul(const float* A, const float* x, float* y, int M, int N) {
    const float one = 1.0f, zero = 0.0f;
    // cuBLAS stores by columns: the row-major A is the transpose of an N x M matrix there.
    VENDOR_CHECK(cublasSgemv(cublas.get(), CUBLAS_OP_T, N, M, &one, A, N, x, 1, &zero, y, 1));
}
