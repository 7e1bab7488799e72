// Matrix power, bf16 storage, fp32 accumulation, by cuBLAS: B = A^P, N x N, row-major.
//
// Call      cublasGemmEx, bf16 in and out, fp32 compute, for squares of squares and the products of those that P's
//           binary digits ask for, as torch.linalg.matrix_power does it; powers on the way are bf16, reductions of a
//           split product stay in fp32
// Includes  what cuBLAS launches; a copy where P is 1
// Without   the handle, its work space and the memory of powers on the way, made before the first call of a case
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include "vendor/cublas.h"
#include "vendor/squaring.h"

namespace {
vendor::Cublas cublas;
vendor::Powers<__nv_bfloat16> powers;
} // namespace

extern "C" void matrix_power_bf16_prepare(long long N, long long) {
    cublas.open(vendor::kRoundedOnce);
    powers.hold(N);
}

extern "C" void matrix_power_bf16(const __nv_bfloat16* A, __nv_bfloat16* B, int N, int P) {
    const float one = 1.0f, zero = 0.0f;
    powers.raise(A, B, N, P, [&](const __nv_bfloat16* left, const __nv_bfloat16* right, __nv_bfloat16* to) {
        // cuBLAS stores by columns, so a row-major matrix is its transpose there: to^T = right^T left^T.
        VENDOR_CHECK(cublasGemmEx(cublas.get(), CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &one, right, CUDA_R_16BF,
                                  N, left, CUDA_R_16BF, N, &zero, to, CUDA_R_16BF, N, CUBLAS_COMPUTE_32F,
                                  CUBLAS_GEMM_DEFAULT));
    });
}
