// Dot product, fp32, by cuBLAS: out[0] = sum of X[i] * Y[i].
//
// Call      cublasSdot, the result written to device memory
// Includes  what cuBLAS launches
// Without   the handle and its work space, made before the first call of a case
#include <cublas_v2.h>
#include "vendor/cublas.h"

namespace {
vendor::Cublas cublas;
}

extern "C" void dot_product_prepare(long long) {
    cublas.open(vendor::kFp32);
    VENDOR_CHECK(cublasSetPointerMode(cublas.get(), CUBLAS_POINTER_MODE_DEVICE));
}

extern "C" void dot_product(float* out, const float* X, const float* Y, int N) {
    VENDOR_CHECK(cublasSdot(cublas.get(), N, X, 1, Y, 1, out));
}
