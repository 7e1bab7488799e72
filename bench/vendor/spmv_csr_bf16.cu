// SpMV CSR, bf16 storage, fp32 accumulation, by cuSPARSE: y = A x.
//
// Call      cusparseSpMV, CUSPARSE_SPMV_ALG_DEFAULT, 32-bit indices, bf16 in and out, fp32 compute
// Includes  new addresses for the descriptors (host only) and what cuSPARSE launches
// Without   the handle, descriptors and work space, made before the first call of a case. cusparseSpMV_preprocess is not
//           called: it looks into the pattern, which is new in every call. For nnz = 0 y is cleared without cuSPARSE
#include <cusparse.h>
#include <cuda_bf16.h>
#include "vendor/cusparse.h"

namespace {
vendor::Cusparse cusparse;
vendor::Csr matrix;
vendor::Vector input, output;
vendor::Memory buffer;
long long entries = 0;
const float one = 1.0f, zero = 0.0f;
} // namespace

extern "C" void spmv_csr_bf16_prepare(long long rows, long long cols, long long nnz) {
    entries = nnz;
    if (nnz == 0)
        return;
    cusparse.open();
    cols = vendor::columns(rows, cols, nnz);
    matrix.describe(rows, cols, nnz, CUDA_R_16BF);
    input.describe(cols, CUDA_R_16BF);
    output.describe(rows, CUDA_R_16BF);
    size_t bytes = 0;
    VENDOR_CHECK(cusparseSpMV_bufferSize(cusparse.get(), CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix.get(),
                                         input.get(), &zero, output.get(), CUDA_R_32F,
                                         CUSPARSE_SPMV_ALG_DEFAULT, &bytes));
    buffer.hold(bytes);
}

extern "C" void spmv_csr_bf16(int rows, const __nv_bfloat16* values, const int* col_indices,
                              const int* row_offsets, const __nv_bfloat16* x, __nv_bfloat16* y) {
    if (entries == 0) {
        VENDOR_CHECK(cudaMemsetAsync(y, 0, rows * sizeof(__nv_bfloat16)));
        return;
    }
    VENDOR_CHECK(cusparseSpMV(cusparse.get(), CUSPARSE_OPERATION_NON_TRANSPOSE, &one,
                              matrix.at(row_offsets, col_indices, values), input.at(x), &zero, output.at(y),
                              CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, buffer.get()));
}
