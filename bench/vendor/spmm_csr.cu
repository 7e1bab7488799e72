// SpMM CSR, fp32, by cuSPARSE: Y = A X, dense matrices row-major.
//
// Call      cusparseSpMM of CSR by CUSPARSE_SPMM_CSR_ALG1, ALG2 or ALG3: what is fastest, by measurements with cold
//           caches on the arrays of the first call of a case. fp32 throughout. With K odd or below 8 ALG1 alone is
//           tried, after a fault of ALG3 at K = 5 (docs/vendor.md); timed cases have K = 4096
// Includes  what cuSPARSE launches
// Without   the handle, and for each call the descriptors, the work space and cusparseSpMM_preprocess, which looks at
//           the pattern; the choice of the way. For nnz = 0 Y is cleared without cuSPARSE
#include <cusparse.h>
#include "vendor/cusparse.h"

namespace {
vendor::Sparse<float, vendor::Spmm> product;
vendor::Shape shape;
} // namespace

extern "C" void spmm_csr_prepare(long long rows, long long cols, long long K, long long nnz) {
    shape = {rows, cols, K, nnz, nnz};
    product.prepare();
}

extern "C" void spmm_csr_bind(int, int, const float* values, const int* col_indices, const int* row_offsets,
                              const float* X, float* Y) {
    product.bind(shape,
                 {{"CSR", vendor::csr(shape, row_offsets, col_indices, values), vendor::kPlain,
                   vendor::csr_algorithms(shape)}},
                 {shape.rows, row_offsets, nullptr, col_indices, values}, X, Y);
}

extern "C" void spmm_csr(int, int, const float*, const int*, const int*, const float*, float* Y) {
    product(Y);
}
