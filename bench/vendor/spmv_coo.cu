// SpMV COO, fp32, by cuSPARSE: y = A x.
//
// Call      cusparseSpMV of COO by CUSPARSE_SPMV_COO_ALG1 or ALG2: what is fastest, by measurements with cold caches on
//           the arrays of the first call of a case. fp32 throughout
// Includes  what cuSPARSE launches
// Without   the order of the entries by row, which cuSPARSE takes for granted: a sorted copy is made before each call,
//           by cusparseXcoosortByRow and a kernel of ours. That is more than our kernels may do, which get the entries
//           in no order. Also the handle, and for each call the descriptors, the work space and
//           cusparseSpMV_preprocess, which looks at the pattern; the choice of the way. For nnz = 0 y is cleared
//           without cuSPARSE
#include <cusparse.h>
#include "vendor/sparse_copies.h"

namespace {
vendor::Sparse<float, vendor::Spmv> product;
vendor::SortedCoo<float> sorted;
vendor::Shape shape;
} // namespace

extern "C" void spmv_coo_prepare(long long rows, long long cols, long long nnz) {
    shape = {rows, cols, 1, nnz, nnz};
    product.prepare();
}

extern "C" void spmv_coo_bind(int, int, const float* values, const int* row_indices, const int* col_indices,
                              const float* x, float* y) {
    sorted.make(product.handle(), shape, row_indices, col_indices, values);
    const int *rows = sorted.rows(), *cols = sorted.cols();
    product.bind(shape,
                 {{"COO",
                   vendor::coo(shape, rows, cols, sorted.values()),
                   vendor::kPlain,
                   {CUSPARSE_SPMV_COO_ALG1, CUSPARSE_SPMV_COO_ALG2}}},
                 {shape.nnz, nullptr, rows, cols, sorted.values()}, x, y);
}

extern "C" void spmv_coo(int, int, const float*, const int*, const int*, const float*, float* y) {
    product(y);
}
