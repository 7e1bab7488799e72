// SpMM ELL, bf16 storage, fp32 accumulation, by cuSPARSE: Y = A X, dense matrices row-major.
//
// Call      cusparseSpMM of blocked ELL in blocks of one element, which is the layout of the task, by
//           CUSPARSE_SPMM_BLOCKED_ELL_ALG1; or of a copy in CSR by CUSPARSE_SPMM_CSR_ALG1, ALG2 or ALG3: what is
//           fastest, by measurements with cold caches on the arrays of the first call of a case. bf16 in and out, fp32
//           compute; each also with Y in fp32, rounded by a kernel of ours. What is outside the error bounds there is
//           left out where another is not. With K odd or below 8 ALG1 alone is tried of CSR, after a fault of spmm_csr
//           at K = 3 (docs/vendor.md); timed cases have K = 4096
// Includes  what cuSPARSE launches, and that kernel where it is used
// Without   the copy, made before each call by kernels of ours, which is more than our kernels may do. Also the handle,
//           and for each call the descriptors, the work space and cusparseSpMM_preprocess, which looks at the pattern;
//           the choice of the way. For nnz = 0 Y is cleared without cuSPARSE
#include <cusparse.h>
#include <cuda_bf16.h>
#include "vendor/sparse_copies.h"

namespace {
vendor::Sparse<__nv_bfloat16, vendor::Spmm> product;
vendor::SlicedCopy<__nv_bfloat16> compressed(1);
vendor::Shape shape;
} // namespace

extern "C" void spmm_ell_bf16_prepare(long long cols, long long rows, long long K, long long) {
    shape = {rows, cols, K, 0, 0};
    product.prepare();
}

extern "C" void spmm_ell_bf16_bind(int rows, int max_nnz_per_row, int, const __nv_bfloat16* values,
                                   const int* col_ids, const __nv_bfloat16* X, __nv_bfloat16* Y) {
    compressed.make(rows, max_nnz_per_row, col_ids, values);
    shape.nnz = compressed.entries(), shape.stored = static_cast<long long>(rows) * max_nnz_per_row;
    const int *offsets = compressed.offsets(), *cols = compressed.cols();
    product.bind(shape,
                 {{"blocked ELL",
                   vendor::blocked_ell(shape, max_nnz_per_row, col_ids, values),
                   vendor::kPlain,
                   {CUSPARSE_SPMM_BLOCKED_ELL_ALG1}},
                  {"CSR", vendor::csr(shape, offsets, cols, compressed.values()), vendor::kPlain,
                   vendor::csr_algorithms(shape)}},
                 {rows, offsets, nullptr, cols, compressed.values()}, X, Y);
}

extern "C" void spmm_ell_bf16(int, int, int, const __nv_bfloat16*, const int*, const __nv_bfloat16*,
                              __nv_bfloat16* Y) {
    product(Y);
}
