// SpMV COO, bf16 storage, fp32 accumulation, by cuSPARSE: y = A x.
//
// Call      cusparseSpMV of COO by CUSPARSE_SPMV_COO_ALG1 or ALG2: what is fastest, by measurements with cold caches on
//           the arrays of the first call of a case. bf16 in and out, fp32 compute; each also with y in fp32, rounded by
//           a kernel of ours. What is outside the error bounds there is left out where another is not
// Includes  what cuSPARSE launches, and that kernel where it is used
// Without   the order of the entries by row, which cuSPARSE takes for granted: a sorted copy is made before each call,
//           by cusparseXcoosortByRow and a kernel of ours. That is more than our kernels may do, which get the entries
//           in no order. Also the handle, and for each call the descriptors, the work space and
//           cusparseSpMV_preprocess, which looks at the pattern; the choice of the way. For nnz = 0 y is cleared
//           without cuSPARSE
#include <cusparse.h>
#include <cuda_bf16.h>
#include "vendor/sparse_copies.h"

namespace {
vendor::Sparse<__nv_bfloat16, vendor::Spmv> product;
vendor::SortedCoo<__nv_bfloat16> sorted;
vendor::Shape shape;
} // namespace

extern "C" void spmv_coo_bf16_prepare(long long rows, long long cols, long long nnz) {
    shape = {rows, cols, 1, nnz, nnz};
    product.prepare();
}

extern "C" void spmv_coo_bf16_bind(int, int, const __nv_bfloat16* values, const int* row_indices,
                                   const int* col_indices, const __nv_bfloat16* x, __nv_bfloat16* y) {
    sorted.make(product.handle(), shape, row_indices, col_indices, values);
    const int *rows = sorted.rows(), *cols = sorted.cols();
    product.bind(shape,
                 {{"COO",
                   vendor::coo(shape, rows, cols, sorted.values()),
                   vendor::kPlain,
                   {CUSPARSE_SPMV_COO_ALG1, CUSPARSE_SPMV_COO_ALG2}}},
                 {shape.nnz, nullptr, rows, cols, sorted.values()}, x, y);
}

extern "C" void spmv_coo_bf16(int, int, const __nv_bfloat16*, const int*, const int*, const __nv_bfloat16*,
                              __nv_bfloat16* y) {
    product(y);
}
