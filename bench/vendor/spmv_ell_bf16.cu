// SpMV ELL, bf16 storage, fp32 accumulation, by cuSPARSE: y = A x.
//
// Call      cusparseSpMV of sliced ELL by CUSPARSE_SPMV_SELL_ALG1, in slices of one row, which is the layout of the
//           task, or in a copy of 32 rows a slice; or of a copy in CSR by CUSPARSE_SPMV_CSR_ALG1 or ALG2: what is
//           fastest, by measurements with cold caches on the arrays of the first call of a case. bf16 in and out, fp32
//           compute; each also with y in fp32, rounded by a kernel of ours. What is outside the error bounds there is
//           left out where another is not
// Includes  what cuSPARSE launches, and that kernel where it is used
// Without   the copies, made before each call by kernels of ours, which is more than our kernels may do. Also the
//           handle, and for each call the descriptors, the work space and cusparseSpMV_preprocess, which looks at the
//           pattern; the choice of the way. For nnz = 0 y is cleared without cuSPARSE
#include <cusparse.h>
#include <cuda_bf16.h>
#include "vendor/sparse_copies.h"

namespace {
vendor::Sparse<__nv_bfloat16, vendor::Spmv> product;
vendor::SlicedCopy<__nv_bfloat16> compressed(1), sliced(32);
vendor::EvenOffsets even;
vendor::Shape shape;
} // namespace

extern "C" void spmv_ell_bf16_prepare(long long cols, long long rows, long long) {
    shape = {rows, cols, 1, 0, 0};
    product.prepare();
}

extern "C" void spmv_ell_bf16_bind(int rows, int max_nnz_per_row, const __nv_bfloat16* values,
                                   const int* col_ids, const __nv_bfloat16* x, __nv_bfloat16* y) {
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

extern "C" void spmv_ell_bf16(int, int, const __nv_bfloat16*, const int*, const __nv_bfloat16*,
                              __nv_bfloat16* y) {
    product(y);
}
