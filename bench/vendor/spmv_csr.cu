// SpMV CSR, fp32, by cuSPARSE: y = A x.
//
// Call      cusparseSpMV, CUSPARSE_SPMV_ALG_DEFAULT, 32-bit indices, fp32 throughout
// Includes  new addresses for the descriptors (host only) and what cuSPARSE launches
// Without   the handle, descriptors and work space, made before the first call of a case. cusparseSpMV_preprocess is not
//           called: it looks into the pattern, which is new in every call. For nnz = 0 y is cleared without cuSPARSE
#include <cusparse.h>
#include "vendor/cusparse.h"

namespace {
vendor::Cusparse cusparse;
vendor::Csr matrix;
vendor::Vector input, output;
vendor::Memory buffer;
long long entries = 0;
const float one = 1.0f, zero = 0.0f;
} // namespace

extern "C" void spmv_csr_prepare(long long rows, long long cols, long long nnz) {
    entries = nnz;
    if (nnz == 0)
        return;
    cusparse.open();
    cols = vendor::columns(rows, cols, nnz);
    matrix.describe(rows, cols, nnz, CUDA_R_32F);
    input.describe(cols, CUDA_R_32F);
    output.describe(rows, CUDA_R_32F);
    size_t bytes = 0;
    VENDOR_CHECK(cusparseSpMV_bufferSize(cusparse.get(), CUSPARSE_OPERATION_NON_TRANSPOSE, &one, matrix.get(),
                                         input.get(), &zero, output.get(), CUDA_R_32F,
                                         CUSPARSE_SPMV_ALG_DEFAULT, &bytes));
    buffer.hold(bytes);
}

extern "C" void spmv_csr(int rows, const float* values, const int* col_indices, const int* row_offsets,
                         const float* x, float* y) {
    if (entries == 0) {
        VENDOR_CHECK(cudaMemsetAsync(y, 0, rows * sizeof(float)));
        return;
    }
    VENDOR_CHECK(cusparseSpMV(cusparse.get(), CUSPARSE_OPERATION_NON_TRANSPOSE, &one,
                              matrix.at(row_offsets, col_indices, values), input.at(x), &zero, output.at(y),
                              CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, buffer.get()));
}
