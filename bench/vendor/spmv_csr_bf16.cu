// SpMV CSR, bf16 storage, fp32 accumulation, by cuSPARSE: y = A x.
//
// Call      cusparseSpMV of CSR by CUSPARSE_SPMV_ALG_DEFAULT, CSR_ALG1 or CSR_ALG2: what is fastest, by measurements
//           with cold caches on the arrays of the first call of a case. bf16 in and out, fp32 compute; each also with y
//           in fp32, rounded by a kernel of ours. What is outside the error bounds there is left out where another is
//           not
// Includes  what cuSPARSE launches, and that kernel where it is used
// Without   the handle, and for each call the descriptors, the work space and cusparseSpMV_preprocess, which looks at
//           the pattern; the choice of the way. For nnz = 0 y is cleared without cuSPARSE
#include <cusparse.h>
#include <cuda_bf16.h>
#include "vendor/cusparse.h"

namespace {
vendor::Sparse<__nv_bfloat16, vendor::Spmv> product;
vendor::Shape shape;
} // namespace

extern "C" void spmv_csr_bf16_prepare(long long rows, long long cols, long long nnz) {
    shape = {rows, cols, 1, nnz, nnz};
    product.prepare();
}

extern "C" void spmv_csr_bf16_bind(int, const __nv_bfloat16* values, const int* col_indices,
                                   const int* row_offsets, const __nv_bfloat16* x, __nv_bfloat16* y) {
    product.bind(shape,
                 {{"CSR",
                   vendor::csr(shape, row_offsets, col_indices, values),
                   vendor::kPlain,
                   {CUSPARSE_SPMV_ALG_DEFAULT, CUSPARSE_SPMV_CSR_ALG1, CUSPARSE_SPMV_CSR_ALG2}}},
                 {shape.rows, row_offsets, nullptr, col_indices, values}, x, y);
}

extern "C" void spmv_csr_bf16(int, const __nv_bfloat16*, const int*, const int*, const __nv_bfloat16*,
                              __nv_bfloat16* y) {
    product(y);
}
