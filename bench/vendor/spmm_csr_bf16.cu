// SpMM CSR, bf16 storage, fp32 accumulation, by cuSPARSE: Y = A X, dense matrices row-major.
//
// Call      cusparseSpMM of CSR by CUSPARSE_SPMM_CSR_ALG1, ALG2 or ALG3: what is fastest, by measurements with cold
//           caches on the arrays of the first call of a case. bf16 in and out, fp32 compute; each also with Y in fp32,
//           rounded by a kernel of ours. What is outside the error bounds there is left out where another is not. With
//           K odd or below 8 ALG1 alone is tried, after a fault at K = 3 (docs/vendor.md); timed cases have K = 4096
// Includes  what cuSPARSE launches, and that kernel where it is used
// Without   the handle, and for each call the descriptors, the work space and cusparseSpMM_preprocess, which looks at
//           the pattern; the choice of the way. For nnz = 0 Y is cleared without cuSPARSE
#include <cusparse.h>
#include <cuda_bf16.h>
#include "vendor/cusparse.h"

namespace {
vendor::Sparse<__nv_bfloat16, vendor::Spmm> product;
vendor::Shape shape;
} // namespace

extern "C" void spmm_csr_bf16_prepare(long long rows, long long cols, long long K, long long nnz) {
    shape = {rows, cols, K, nnz, nnz};
    product.prepare();
}

extern "C" void spmm_csr_bf16_bind(int, int, const __nv_bfloat16* values, const int* col_indices,
                                   const int* row_offsets, const __nv_bfloat16* X, __nv_bfloat16* Y) {
    product.bind(shape,
                 {{"CSR", vendor::csr(shape, row_offsets, col_indices, values), vendor::kPlain,
                   vendor::csr_algorithms(shape)}},
                 {shape.rows, row_offsets, nullptr, col_indices, values}, X, Y);
}

extern "C" void spmm_csr_bf16(int, int, const __nv_bfloat16*, const int*, const int*, const __nv_bfloat16*,
                              __nv_bfloat16* Y) {
    product(Y);
}
