// SpMV ELL, fp32, by cuSPARSE: y = A x.
//
// Call      cusparseSpMV of sliced ELL by CUSPARSE_SPMV_SELL_ALG1, in slices of one row, which is the layout of the
//           task, or in a copy of 32 rows a slice; or of a copy in CSR by CUSPARSE_SPMV_CSR_ALG1 or ALG2: what is
//           fastest, by measurements with cold caches on the arrays of the first call of a case. fp32 throughout
// Includes  what cuSPARSE launches
// Without   the copies, made before each call by kernels of ours, which is more than our kernels may do. Also the
//           handle, and for each call the descriptors, the work space and cusparseSpMV_preprocess, which looks at the
//           pattern; the choice of the way. For nnz = 0 y is cleared without cuSPARSE
#include <cusparse.h>
#include "vendor/sparse_copies.h"

namespace {
vendor::Sparse<float, vendor::Spmv> product;
vendor::SlicedCopy<float> compressed(1), sliced(32);
vendor::EvenOffsets even;
vendor::Shape shape;
} // namespace

extern "C" void spmv_ell_prepare(long long cols, long long rows, long long) {
    shape = {rows, cols, 1, 0, 0};
    product.prepare();
}

extern "C" void spmv_ell_bind(int rows, int max_nnz_per_row, const float* values, const int* col_ids,
                              const float* x, float* y) {
    compressed.make(rows, max_nnz_per_row, col_ids, values);
    sliced.make(rows, max_nnz_per_row, col_ids, values);
    long long slots = static_cast<long long>(rows) * max_nnz_per_row;
    shape.nnz = compressed.entries(), shape.stored = std::max(slots, sliced.stored());
    const int *offsets = compressed.offsets(), *cols = compressed.cols();
    product.bind(shape,
                 {{"slices of 1 row",
                   vendor::sliced_ell(shape, 1, slots, even.make(rows, max_nnz_per_row), col_ids, values),
                   vendor::kPlain,
                   {CUSPARSE_SPMV_SELL_ALG1}},
                  {"slices of 32 rows",
                   vendor::sliced_ell(shape, sliced.height(), sliced.stored(), sliced.offsets(),
                                      sliced.cols(), sliced.values()),
                   vendor::kPlain,
                   {CUSPARSE_SPMV_SELL_ALG1}},
                  {"CSR",
                   vendor::csr(shape, offsets, cols, compressed.values()),
                   vendor::kPlain,
                   {CUSPARSE_SPMV_CSR_ALG1, CUSPARSE_SPMV_CSR_ALG2}}},
                 {rows, offsets, nullptr, cols, compressed.values()}, x, y);
}

extern "C" void spmv_ell(int, int, const float*, const int*, const float*, float* y) {
    product(y);
}
