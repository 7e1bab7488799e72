// SpMM COO, bf16 storage, fp32 accumulation, by cuSPARSE: Y = A X, dense matrices row-major.
//
// Call      cusparseSpMM of COO by CUSPARSE_SPMM_COO_ALG1, ALG2, ALG3 or ALG4: what is fastest, by measurements with
//           cold caches on the arrays of the first call of a case. bf16 in and out, fp32 compute; each also with Y in
//           fp32, rounded by a kernel of ours. What is outside the error bounds there is left out where another is not
// Includes  what cuSPARSE launches, and that kernel where it is used
// Without   the order of the entries by row, which cuSPARSE takes for granted: a sorted copy is made before each call,
//           by cusparseXcoosortByRow and a kernel of ours. That is more than our kernels may do, which get the entries
//           in no order. Also the handle, and for each call the descriptors, the work space and
//           cusparseSpMM_preprocess, which looks at the pattern; the choice of the way. For nnz = 0 Y is cleared
//           without cuSPARSE
#include <cusparse.h>
#include <cuda_bf16.h>
#include "vendor/sparse_copies.h"

namespace {
vendor::Sparse<__nv_bfloat16, vendor::Spmm> product;
vendor::SortedCoo<__nv_bfloat16> sorted;
vendor::Shape shape;
} // namespace

extern "C" void spmm_coo_bf16_prepare(long long rows, long long cols, long long K, long long nnz) {
    shape = {rows, cols, K, nnz, nnz};
    product.prepare();
}

extern "C" void spmm_coo_bf16_bind(int, int, int, const __nv_bfloat16* values, const int* row_indices,
                                   const int* col_indices, const __nv_bfloat16* X, __nv_bfloat16* Y) {
    sorted.make(product.handle(), shape, row_indices, col_indices, values);
    const int *rows = sorted.rows(), *cols = sorted.cols();
    product.bind(
        shape,
        {{"COO",
          vendor::coo(shape, rows, cols, sorted.values()),
          vendor::kPlain,
          {CUSPARSE_SPMM_COO_ALG1, CUSPARSE_SPMM_COO_ALG2, CUSPARSE_SPMM_COO_ALG3, CUSPARSE_SPMM_COO_ALG4}}},
        {shape.nnz, nullptr, rows, cols, sorted.values()}, X, Y);
}

extern "C" void spmm_coo_bf16(int, int, int, const __nv_bfloat16*, const int*, const int*,
                              const __nv_bfloat16*, __nv_bfloat16* Y) {
    product(Y);
}
