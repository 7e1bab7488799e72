// Matrix mul, bf16 storage, fp32 accumulation, by cuBLASLt: C = A B, A: M x K, B: K x N, C: M x N, row-major.
//
// Call      cublasLtMatmul, bf16 in and out, fp32 compute; reductions of a split product stay in fp32
// Includes  what cuBLASLt launches
// Without   the handle, its work space and descriptors, and the choice of an algorithm, made before the first call of a
//           case: of all that cublasLtMatmulAlgoGetHeuristic lists, the fastest by measurements with cold caches
#include <cublasLt.h>
#include <cuda_bf16.h>
#include "vendor/cublaslt.h"

namespace {
vendor::Product<__nv_bfloat16> product;
}

extern "C" void matrix_mul_bf16_prepare(long long M, long long N, long long K) {
    product.choose(M, N, K, vendor::kRoundedOnce);
}

extern "C" void matrix_mul_bf16(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int, int,
                                int) {
    product(A, B, C);
}
