// SpMM CSR, bf16 storage, fp32 accumulation, by cuSPARSE: Y = A X, dense matrices row-major.
//
// Call      cusparseSpMM, CUSPARSE_SPMM_CSR_ALG2, which cuSPARSE's manual names for row-major matrices, 32-bit indices,
//           bf16 in and out, fp32 compute
// Includes  new addresses for the descriptors (host only) and what cuSPARSE launches
// Without   the handle, descriptors and work space, made before the first call of a case. cusparseSpMM_preprocess is not
//           called: it looks into the pattern, which is new in every call. For nnz = 0 Y is cleared without cuSPARSE
#include <cusparse.h>
#include <cuda_bf16.h>
#include "vendor/cusparse.h"

namespace {
vendor::Cusparse cusparse;
vendor::Csr matrix;
vendor::Matrix input, output;
vendor::Memory buffer;
long long entries = 0;
const float one = 1.0f, zero = 0.0f;
} // namespace

extern "C" void spmm_csr_bf16_prepare(long long rows, long long cols, long long K, long long nnz) {
    entries = nnz;
    if (nnz == 0)
        return;
    cusparse.open();
    cols = vendor::columns(rows, cols, nnz);
    matrix.describe(rows, cols, nnz, CUDA_R_16BF);
    input.describe(cols, K, CUDA_R_16BF);
    output.describe(rows, K, CUDA_R_16BF);
    size_t bytes = 0;
    VENDOR_CHECK(cusparseSpMM_bufferSize(cusparse.get(), CUSPARSE_OPERATION_NON_TRANSPOSE,
                                         CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix.get(), input.get(),
                                         &zero, output.get(), CUDA_R_32F, CUSPARSE_SPMM_CSR_ALG2, &bytes));
    buffer.hold(bytes);
}

extern "C" void spmm_csr_bf16(int rows, int K, const __nv_bfloat16* values, const int* col_indices,
                              const int* row_offsets, const __nv_bfloat16* X, __nv_bfloat16* Y) {
    if (entries == 0) {
        VENDOR_CHECK(cudaMemsetAsync(Y, 0, sizeof(__nv_bfloat16) * rows * K));
        return;
    }
    VENDOR_CHECK(cusparseSpMM(cusparse.get(), CUSPARSE_OPERATION_NON_TRANSPOSE,
                              CUSPARSE_OPERATION_NON_TRANSPOSE, &one,
                              matrix.at(row_offsets, col_indices, values), input.at(X), &zero, output.at(Y),
                              CUDA_R_32F, CUSPARSE_SPMM_CSR_ALG2, buffer.get()));
}
