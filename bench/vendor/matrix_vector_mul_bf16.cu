// Matrix vector mul, bf16 storage, fp32 accumulation, by cuBLAS: y = A x, A: M x N, row-major.
//
// Call      cublasTSTgemvStridedBatched of one product, which is cuBLAS's gemv for bf16 in and out with fp32 sums
// Includes  what cuBLAS launches
// Without   the handle and its work space, made before the first call of a case
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include "vendor/cublas.h"

namespace {
vendor::Cublas cublas;
}

extern "C" void matrix_vector_mul_bf16_prepare(long long, long long) {
    cublas.open(vendor::kRoundedOnce);
}

extern "C" void matrix_vector_mul_bf16(const __nv_bfloat16* A, const __nv_bfloat16* x, __nv_bfloat16* y,
                                       int M, int N) {
    const float one = 1.0f, zero = 0.0f;
    // cuBLAS stores by columns: the row-major A is the transpose of an N x M matrix there.
    VENDOR_CHECK(cublasTSTgemvStridedBatched(cublas.get(), CUBLAS_OP_T, N, M, &one, A, N, 0, x, 1, 0, &zero,
                                             y, 1, 0, 1));
}
