// Square matrix mul, fp32, by cuBLASLt: C = A B, M x M, row-major.
//
// Call      cublasLtMatmul, fp32 products, no TF32
// Includes  what cuBLASLt launches
// Without   the handle, its work space and descriptors, and the choice of an algorithm, made before the first call of a
//           case: of all that cublasLtMatmulAlgoGetHeuristic lists, the fastest by measurements with cold caches
#include <cublasLt.h>
#include "vendor/cublaslt.h"

namespace {
vendor::Product<float> product;
}

extern "C" void square_matrix_mul_prepare(long long M) {
    product.choose(M, M, M, vendor::kAnyScheme);
}

extern "C" void square_matrix_mul(const float* A, const float* B, float* C, int) {
    product(A, B, C);
}
