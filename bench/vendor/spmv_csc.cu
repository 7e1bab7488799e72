// SpMV CSC, fp32, by cuSPARSE: y = A x.
//
// Call      cusparseSpMV of CSC as it is, or of the same arrays as the transpose in CSR, transposed; by
//           CUSPARSE_SPMV_CSR_ALG1 or ALG2: what is fastest, by measurements with cold caches on the arrays of the
//           first call of a case. fp32 throughout
// Includes  what cuSPARSE launches
// Without   the handle, and for each call the descriptors, the work space and cusparseSpMV_preprocess, which looks at
//           the pattern; the choice of the way. For nnz = 0 y is cleared without cuSPARSE
#include <cusparse.h>
#include "vendor/sparse_copies.h"

namespace {
vendor::Sparse<float, vendor::Spmv> product;
vendor::LongerOffsets longer;
vendor::Shape shape;
const std::vector<cusparseSpMVAlg_t> kAlgorithms{CUSPARSE_SPMV_CSR_ALG1, CUSPARSE_SPMV_CSR_ALG2};
} // namespace

extern "C" void spmv_csc_prepare(long long columns, long long rows, long long nnz) {
    shape = {rows, columns, 1, nnz, nnz};
    product.prepare();
}

extern "C" void spmv_csc_bind(int, int, const float* values, const int* row_indices, const int* col_offsets,
                              const float* x, float* y) {
    const int* offsets = longer.make(shape, col_offsets);
    product.bind(shape,
                 {{"CSC", vendor::csc(shape, offsets, row_indices, values), vendor::kPlain, kAlgorithms},
                  {"CSR transposed", vendor::transposed(shape, offsets, row_indices, values),
                   CUSPARSE_OPERATION_TRANSPOSE, kAlgorithms}},
                 {shape.cols, col_offsets, row_indices, nullptr, values}, x, y);
}

extern "C" void spmv_csc(int, int, const float*, const int*, const int*, const float*, float* y) {
    product(y);
}
