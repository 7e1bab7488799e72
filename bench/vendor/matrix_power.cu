// Matrix power, fp32, by cuBLAS: B = A^P, N x N, row-major.
//
// Call      cublasSgemm in its default math mode (fp32 products, no TF32) for squares of squares and the products of
//           those that P's binary digits ask for, as torch.linalg.matrix_power does it
// Includes  what cuBLAS launches; a copy where P is 1
// Without   the handle, its work space and the memory of powers on the way, made before the first call of a case
#include <cublas_v2.h>
#include "vendor/cublas.h"
#include "vendor/squaring.h"

namespace {
vendor::Cublas cublas;
vendor::Powers<float> powers;
} // namespace

extern "C" void matrix_power_prepare(long long N, long long) {
    cublas.open(vendor::kFp32);
    powers.hold(N);
}

extern "C" void matrix_power(const float* A, float* B, int N, int P) {
    const float one = 1.0f, zero = 0.0f;
    powers.raise(A, B, N, P, [&](const float* left, const float* right, float* to) {
        // cuBLAS stores by columns, so a row-major matrix is its transpose there: to^T = right^T left^T.
        VENDOR_CHECK(cublasSgemm(cublas.get(), CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, right, N, left, N,
                                 &zero, to, N));
    });
}
