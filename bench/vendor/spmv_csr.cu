// SpMV CSR, fp32, by cuSPARSE: y = A x.
//
// Call      cusparseSpMV of CSR by CUSPARSE_SPMV_ALG_DEFAULT, CSR_ALG1 or CSR_ALG2: what is fastest, by measurements
//           with cold caches on the arrays of the first call of a case. fp32 throughout
// Includes  what cuSPARSE launches
// Without   the handle, and for each call the descriptors, the work space and cusparseSpMV_preprocess, which looks at
//           the pattern; the choice of the way. For nnz = 0 y is cleared without cuSPARSE
#include <cusparse.h>
#include "vendor/cusparse.h"

namespace {
vendor::Sparse<float, vendor::Spmv> product;
vendor::Shape shape;
} // namespace

extern "C" void spmv_csr_prepare(long long rows, long long cols, long long nnz) {
    shape = {rows, cols, 1, nnz, nnz};
    product.prepare();
}

extern "C" void spmv_csr_bind(int, const float* values, const int* col_indices, const int* row_offsets,
                              const float* x, float* y) {
    product.bind(shape,
                 {{"CSR",
                   vendor::csr(shape, row_offsets, col_indices, values),
                   vendor::kPlain,
                   {CUSPARSE_SPMV_ALG_DEFAULT, CUSPARSE_SPMV_CSR_ALG1, CUSPARSE_SPMV_CSR_ALG2}}},
                 {shape.rows, row_offsets, nullptr, col_indices, values}, x, y);
}

extern "C" void spmv_csr(int, const float*, const int*, const int*, const float*, float* y) {
    product(y);
}
