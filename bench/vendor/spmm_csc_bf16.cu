// SpMM CSC, bf16 storage, fp32 accumulation, by cuSPARSE: Y = A X, dense matrices row-major.
//
// Call      cusparseSpMM of CSC as it is, or of the same arrays as the transpose in CSR, transposed; by
//           CUSPARSE_SPMM_CSR_ALG1, ALG2 or ALG3: what is fastest, by measurements with cold caches on the arrays of
//           the first call of a case. bf16 in and out, fp32 compute; each also with Y in fp32, rounded by a kernel of
//           ours. What is outside the error bounds there is left out where another is not
// Includes  what cuSPARSE launches, and that kernel where it is used
// Without   the handle, and for each call the descriptors, the work space and cusparseSpMM_preprocess, which looks at
//           the pattern; the choice of the way. For nnz = 0 Y is cleared without cuSPARSE
#include <cusparse.h>
#include <cuda_bf16.h>
#include "vendor/sparse_copies.h"

namespace {
vendor::Sparse<__nv_bfloat16, vendor::Spmm> product;
vendor::LongerOffsets longer;
vendor::Shape shape;
const std::vector<cusparseSpMMAlg_t> kAlgorithms{CUSPARSE_SPMM_CSR_ALG1, CUSPARSE_SPMM_CSR_ALG2,
                                                 CUSPARSE_SPMM_CSR_ALG3};
} // namespace

extern "C" void spmm_csc_bf16_prepare(long long columns, long long rows, long long K, long long nnz) {
    shape = {rows, columns, K, nnz, nnz};
    product.prepare();
}

extern "C" void spmm_csc_bf16_bind(int, int, int, const __nv_bfloat16* values, const int* row_indices,
                                   const int* col_offsets, const __nv_bfloat16* X, __nv_bfloat16* Y) {
    const int* offsets = longer.make(shape, col_offsets);
    product.bind(shape,
                 {{"CSC", vendor::csc(shape, offsets, row_indices, values), vendor::kPlain, kAlgorithms},
                  {"CSR transposed", vendor::transposed(shape, offsets, row_indices, values),
                   CUSPARSE_OPERATION_TRANSPOSE, kAlgorithms}},
                 {shape.cols, col_offsets, row_indices, nullptr, values}, X, Y);
}

extern "C" void spmm_csc_bf16(int, int, int, const __nv_bfloat16*, const int*, const int*,
                              const __nv_bfloat16*, __nv_bfloat16* Y) {
    product(Y);
}
