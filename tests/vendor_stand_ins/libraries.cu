// Plain loops behind the interfaces of cuBLAS, cuBLASLt, cuSPARSE and cuFFT, as their manuals define them, for the CPU device:
// what bench/vendor/ asks for is then seen to be the task, in layouts, orders and types, where there is no GPU. What
// the vendor's files do not use is refused. The file is compiled in front of each of theirs.
#include <cmath>
#include <complex>
#include <cstring>
#include <cuda_runtime.h>
#include <vector>
#include "interfaces.h"

struct cublasContext {
    cublasPointerMode_t mode = CUBLAS_POINTER_MODE_HOST;
    size_t workspace = 0;
};

namespace {

__device__ double load(const void* data, cudaDataType type, int64_t i) {
    if (type == CUDA_R_32F)
        return static_cast<const float*>(data)[i];
    uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(data)[i]) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// To bf16 by rounding to nearest, ties to even.
__device__ void store(void* data, cudaDataType type, int64_t i, double number) {
    float value = static_cast<float>(number);
    if (type == CUDA_R_32F) {
        static_cast<float*>(data)[i] = value;
        return;
    }
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Matrices of BLAS are stored by columns: element (i, j) lies at i + j * ld, or the other way round where transposed.
__device__ int64_t at(cublasOperation_t op, int i, int j, int ld) {
    return op == CUBLAS_OP_N ? i + static_cast<int64_t>(j) * ld : j + static_cast<int64_t>(i) * ld;
}

__global__ void gemm_kernel(cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, float alpha,
                            const void* A, cudaDataType a, int lda, const void* B, cudaDataType b, int ldb,
                            float beta, void* C, cudaDataType c, int ldc) {
    for (int j = 0; j < n; ++j)
        for (int i = 0; i < m; ++i) {
            double sum = 0;
            for (int p = 0; p < k; ++p)
                sum += load(A, a, at(ta, i, p, lda)) * load(B, b, at(tb, p, j, ldb));
            double before = beta == 0 ? 0 : beta * load(C, c, at(CUBLAS_OP_N, i, j, ldc));
            store(C, c, at(CUBLAS_OP_N, i, j, ldc), alpha * sum + before);
        }
}

cublasStatus_t gemm(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                    float alpha, const void* A, cudaDataType a, int lda, const void* B, cudaDataType b,
                    int ldb, float beta, void* C, cudaDataType c, int ldc) {
    bool fits = lda >= (ta == CUBLAS_OP_N ? m : k) && ldb >= (tb == CUBLAS_OP_N ? k : n) && ldc >= m;
    if (!fits || handle->mode != CUBLAS_POINTER_MODE_HOST || handle->workspace == 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    gemm_kernel<<<1, 1>>>(ta, tb, m, n, k, alpha, A, a, lda, B, b, ldb, beta, C, c, ldc);
    return CUBLAS_STATUS_SUCCESS;
}

__global__ void dot_kernel(int n, const float* x, int incx, const float* y, int incy, float* result) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i)
        sum += static_cast<double>(x[i * incx]) * y[i * incy];
    *result = static_cast<float>(sum);
}

} // namespace

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
    *handle = new cublasContext;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) {
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode) {
    handle->mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t bytes) {
    cudaMemset(workspace, 0xff, bytes);
    handle->workspace = bytes;
    return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusName(cublasStatus_t status) {
    return status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
                                                 : "CUBLAS_STATUS_NOT_SUPPORTED";
}

cublasStatus_t cublasSdot(cublasHandle_t handle, int n, const float* x, int incx, const float* y, int incy,
                          float* result) {
    if (handle->mode != CUBLAS_POINTER_MODE_DEVICE) // the task's result lies there
        return CUBLAS_STATUS_INVALID_VALUE;
    dot_kernel<<<1, 1>>>(n, x, incx, y, incy, result);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                           int k, const float* alpha, const float* A, int lda, const float* B, int ldb,
                           const float* beta, float* C, int ldc) {
    return gemm(handle, ta, tb, m, n, k, *alpha, A, CUDA_R_32F, lda, B, CUDA_R_32F, ldb, *beta, C, CUDA_R_32F,
                ldc);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                            int k, const void* alpha, const void* A, cudaDataType a, int lda, const void* B,
                            cudaDataType b, int ldb, const void* beta, void* C, cudaDataType c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t) {
    // The manual's table of types: two factors of bf16 may make bf16 or fp32.
    if (a != CUDA_R_16BF || b != CUDA_R_16BF || compute != CUBLAS_COMPUTE_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return gemm(handle, ta, tb, m, n, k, *static_cast<const float*>(alpha), A, a, lda, B, b, ldb,
                *static_cast<const float*>(beta), C, c, ldc);
}

cublasStatus_t cublasSgemv(cublasHandle_t handle, cublasOperation_t trans, int m, int n, const float* alpha,
                           const float* A, int lda, const float* x, int incx, const float* beta, float* y,
                           int incy) {
    if (incx != 1 || incy != 1)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    int rows = trans == CUBLAS_OP_N ? m : n, terms = trans == CUBLAS_OP_N ? n : m;
    return gemm(handle, trans, CUBLAS_OP_N, rows, 1, terms, *alpha, A, CUDA_R_32F, lda, x, CUDA_R_32F, terms,
                *beta, y, CUDA_R_32F, rows);
}

cublasStatus_t cublasTSTgemvStridedBatched(cublasHandle_t handle, cublasOperation_t trans, int m, int n,
                                           const float* alpha, const __nv_bfloat16* A, int lda, long long int,
                                           const __nv_bfloat16* x, int incx, long long int, const float* beta,
                                           __nv_bfloat16* y, int incy, long long int, int batchCount) {
    if (incx != 1 || incy != 1 || batchCount != 1)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    int rows = trans == CUBLAS_OP_N ? m : n, terms = trans == CUBLAS_OP_N ? n : m;
    return gemm(handle, trans, CUBLAS_OP_N, rows, 1, terms, *alpha, A, CUDA_R_16BF, lda, x, CUDA_R_16BF,
                terms, *beta, y, CUDA_R_16BF, rows);
}

// ---- cuBLASLt -------------------------------------------------------------------------------------------------------

struct cublasLtContext {};
struct LtProduct {
    cublasComputeType_t compute;
    cudaDataType scale;
};
struct LtLayout {
    cudaDataType type;
    int64_t rows, cols, ld;
};
struct LtWanted {
    uint64_t workspace = 0;
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
};

namespace {

// What algorithms of the list do. One that is listed may refuse all the same, and not all that is in the list is listed
// as usable. Where sums of slices may be rounded to bf16, an algorithm that does so is the fastest.
enum LtAlgorithm : uint64_t { kRefuses = 1, kWorks, kNotUsable, kRoundsTwice };

bool fit(const LtLayout& a, const LtLayout& b, const LtLayout& c) {
    bool leading = a.ld >= a.rows && b.ld >= b.rows && c.ld >= c.rows;
    return leading && a.rows == c.rows && a.cols == b.rows && b.cols == c.cols;
}

__global__ void spoil_kernel(void* C, cudaDataType type, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
        store(C, type, i, 1.5 * load(C, type, i) + 1);
}

} // namespace

const char* cublasLtGetStatusName(cublasStatus_t status) {
    return cublasGetStatusName(status);
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    *handle = new cublasLtContext;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType scale) {
    *made = new LtProduct{compute, scale};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
    *made = new LtLayout{type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), ld};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(const cublasLtMatrixLayout_t layout) {
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
    *made = new LtWanted;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(const cublasLtMatmulPreference_t wanted) {
    delete wanted;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t wanted,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
    bool workspace = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    if (bytes != (workspace ? sizeof wanted->workspace : sizeof wanted->schemes))
        return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(workspace ? static_cast<void*>(&wanted->workspace) : &wanted->schemes, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t A, cublasLtMatrixLayout_t B,
                                              cublasLtMatrixLayout_t C, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t wanted, int room,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
    if (!fit(*A, *B, *C) || room < 4)
        return CUBLAS_STATUS_INVALID_VALUE;
    bool rounds = C->type == CUDA_R_16BF && wanted->schemes != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    for (uint64_t algorithm : {kNotUsable, kRefuses, rounds ? kRoundsTwice : kWorks})
        results[(*count)++] = {{{algorithm}},
                               wanted->workspace,
                               algorithm == kNotUsable ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS,
                               1.0f,
                               {}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha,
                              const void* A, cublasLtMatrixLayout_t a, const void* B,
                              cublasLtMatrixLayout_t b, const void* beta, const void* C,
                              cublasLtMatrixLayout_t c, void* D, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t bytes,
                              cudaStream_t) {
    if (algorithm->data[0] == kRefuses || product->compute != CUBLAS_COMPUTE_32F ||
        product->scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!fit(*a, *b, *c) || C != D || c != d || workspace == nullptr || bytes == 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    cudaMemset(workspace, 0xff, bytes < 64 ? bytes : 64);
    gemm_kernel<<<1, 1>>>(CUBLAS_OP_N, CUBLAS_OP_N, static_cast<int>(c->rows), static_cast<int>(c->cols),
                          static_cast<int>(a->cols), *static_cast<const float*>(alpha), A, a->type,
                          static_cast<int>(a->ld), B, b->type, static_cast<int>(b->ld),
                          *static_cast<const float*>(beta), D, d->type, static_cast<int>(d->ld));
    if (algorithm->data[0] != kWorks)
        spoil_kernel<<<1, 1>>>(D, d->type, d->ld * d->cols);
    return CUBLAS_STATUS_SUCCESS;
}

// ---- cuSPARSE -------------------------------------------------------------------------------------------------------

struct cusparseContext {};
struct SparseMatrix {
    int64_t rows, cols, nnz;
    const int *offsets, *indices;
    const void* values;
    cudaDataType type;
};
struct DenseVector {
    int64_t size;
    void* values;
    cudaDataType type;
};
struct DenseMatrix {
    int64_t rows, cols, ld;
    void* values;
    cudaDataType type;
    cusparseOrder_t order;
};

namespace {

constexpr size_t kBuffer = 64; // bytes; what the call writes there

__device__ int64_t at(const DenseMatrix& matrix, int64_t row, int64_t col) {
    return matrix.order == CUSPARSE_ORDER_ROW ? row * matrix.ld + col : col * matrix.ld + row;
}

__global__ void spmm_kernel(SparseMatrix A, DenseMatrix B, DenseMatrix C, float one, float kept) {
    for (int64_t row = 0; row < A.rows; ++row)
        for (int64_t col = 0; col < C.cols; ++col) {
            double sum = 0;
            for (int p = A.offsets[row]; p < A.offsets[row + 1]; ++p)
                sum += load(A.values, A.type, p) * load(B.values, B.type, at(B, A.indices[p], col));
            double before = kept == 0 ? 0 : kept * load(C.values, C.type, at(C, row, col));
            store(C.values, C.type, at(C, row, col), one * sum + before);
        }
}

bool fits(const DenseMatrix& matrix) {
    return matrix.ld >= (matrix.order == CUSPARSE_ORDER_ROW ? matrix.cols : matrix.rows);
}

} // namespace

const char* cusparseGetErrorName(cusparseStatus_t status) {
    return status == CUSPARSE_STATUS_INVALID_VALUE ? "CUSPARSE_STATUS_INVALID_VALUE"
                                                   : "CUSPARSE_STATUS_NOT_SUPPORTED";
}
cusparseStatus_t cusparseCreate(cusparseHandle_t* handle) {
    *handle = new cusparseContext;
    return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseCreateCsr(cusparseSpMatDescr_t* descriptor, int64_t rows, int64_t cols, int64_t nnz,
                                   void* offsets, void* indices, void* values,
                                   cusparseIndexType_t offsetsType, cusparseIndexType_t indicesType,
                                   cusparseIndexBase_t base, cudaDataType type) {
    bool known = offsetsType == CUSPARSE_INDEX_32I && indicesType == CUSPARSE_INDEX_32I;
    if (!known || base != CUSPARSE_INDEX_BASE_ZERO || !offsets || (nnz > 0 && (!indices || !values)))
        return CUSPARSE_STATUS_INVALID_VALUE;
    *descriptor = new SparseMatrix{rows,   cols, nnz, static_cast<int*>(offsets), static_cast<int*>(indices),
                                   values, type};
    return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseCsrSetPointers(cusparseSpMatDescr_t descriptor, void* offsets, void* indices,
                                        void* values) {
    descriptor->offsets = static_cast<int*>(offsets);
    descriptor->indices = static_cast<int*>(indices);
    descriptor->values = values;
    return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseDestroySpMat(cusparseConstSpMatDescr_t descriptor) {
    delete descriptor;
    return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseCreateDnVec(cusparseDnVecDescr_t* descriptor, int64_t size, void* values,
                                     cudaDataType type) {
    if (!values)
        return CUSPARSE_STATUS_INVALID_VALUE;
    *descriptor = new DenseVector{size, values, type};
    return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseDnVecSetValues(cusparseDnVecDescr_t descriptor, void* values) {
    descriptor->values = values;
    return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseDestroyDnVec(cusparseConstDnVecDescr_t descriptor) {
    delete descriptor;
    return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseCreateDnMat(cusparseDnMatDescr_t* descriptor, int64_t rows, int64_t cols, int64_t ld,
                                     void* values, cudaDataType type, cusparseOrder_t order) {
    if (!values)
        return CUSPARSE_STATUS_INVALID_VALUE;
    *descriptor = new DenseMatrix{rows, cols, ld, values, type, order};
    return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseDnMatSetValues(cusparseDnMatDescr_t descriptor, void* values) {
    descriptor->values = values;
    return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseDestroyDnMat(cusparseConstDnMatDescr_t descriptor) {
    delete descriptor;
    return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseSpMV_bufferSize(cusparseHandle_t, cusparseOperation_t, const void*,
                                         cusparseConstSpMatDescr_t, cusparseConstDnVecDescr_t, const void*,
                                         cusparseDnVecDescr_t, cudaDataType, cusparseSpMVAlg_t,
                                         size_t* bufferSize) {
    *bufferSize = kBuffer;
    return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseSpMV(cusparseHandle_t handle, cusparseOperation_t op, const void* alpha,
                              cusparseConstSpMatDescr_t A, cusparseConstDnVecDescr_t x, const void* beta,
                              cusparseDnVecDescr_t y, cudaDataType compute, cusparseSpMVAlg_t, void* buffer) {
    DenseMatrix column{x->size, 1, 1, x->values, x->type, CUSPARSE_ORDER_ROW};
    DenseMatrix result{y->size, 1, 1, y->values, y->type, CUSPARSE_ORDER_ROW};
    return cusparseSpMM(handle, op, CUSPARSE_OPERATION_NON_TRANSPOSE, alpha, A, &column, beta, &result,
                        compute, CUSPARSE_SPMM_CSR_ALG2, buffer);
}

cusparseStatus_t cusparseSpMM_bufferSize(cusparseHandle_t, cusparseOperation_t, cusparseOperation_t,
                                         const void*, cusparseConstSpMatDescr_t, cusparseConstDnMatDescr_t,
                                         const void*, cusparseDnMatDescr_t, cudaDataType, cusparseSpMMAlg_t,
                                         size_t* bufferSize) {
    *bufferSize = kBuffer;
    return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseSpMM(cusparseHandle_t, cusparseOperation_t opA, cusparseOperation_t opB,
                              const void* alpha, cusparseConstSpMatDescr_t A, cusparseConstDnMatDescr_t B,
                              const void* beta, cusparseDnMatDescr_t C, cudaDataType compute,
                              cusparseSpMMAlg_t alg, void* buffer) {
    if (compute != CUDA_R_32F || A->type != B->type || A->type != C->type || alg != CUSPARSE_SPMM_CSR_ALG2)
        return CUSPARSE_STATUS_NOT_SUPPORTED;
    bool plain = opA == CUSPARSE_OPERATION_NON_TRANSPOSE && opB == CUSPARSE_OPERATION_NON_TRANSPOSE;
    bool match = A->rows == C->rows && A->cols == B->rows && B->cols == C->cols && fits(*B) && fits(*C);
    int entries = 0;
    cudaMemcpy(&entries, A->offsets + A->rows, sizeof entries, cudaMemcpyDeviceToHost);
    if (!plain || !match || entries != A->nnz)
        return CUSPARSE_STATUS_INVALID_VALUE;
    cudaMemset(buffer, 0xff, kBuffer);
    float one = *static_cast<const float*>(alpha), kept = *static_cast<const float*>(beta);
    spmm_kernel<<<1, 1>>>(*A, *B, *C, one, kept);
    return CUSPARSE_STATUS_SUCCESS;
}

// ---- cuFFT ----------------------------------------------------------------------------------------------------------

namespace {

std::vector<int> plans{0}; // points of each, 0 for none; a plan is its place

using Points = std::vector<std::complex<double>>;

Points transformed(const Points& points, int direction) {
    size_t n = points.size();
    if (n == 1)
        return points;
    Points even, odd, out(n);
    for (size_t i = 0; i < n; ++i)
        (i % 2 == 0 ? even : odd).push_back(points[i]);
    even = transformed(even, direction), odd = transformed(odd, direction);
    for (size_t k = 0; k < n / 2; ++k) {
        auto turned =
            std::polar(1.0, direction * 2 * M_PI * static_cast<double>(k) / static_cast<double>(n)) * odd[k];
        out[k] = even[k] + turned, out[k + n / 2] = even[k] - turned;
    }
    return out;
}

} // namespace

cufftResult cufftPlan1d(cufftHandle* plan, int nx, cufftType type, int batch) {
    if (nx < 1 || type != CUFFT_C2C || batch != 1)
        return CUFFT_INVALID_SIZE;
    *plan = static_cast<int>(plans.size());
    plans.push_back(nx);
    return CUFFT_SUCCESS;
}

cufftResult cufftExecC2C(cufftHandle plan, cufftComplex* idata, cufftComplex* odata, int direction) {
    if (plan <= 0 || static_cast<size_t>(plan) >= plans.size() || plans[plan] == 0)
        return CUFFT_INVALID_PLAN;
    std::vector<cufftComplex> raw(plans[plan]);
    cudaMemcpy(raw.data(), idata, raw.size() * sizeof(cufftComplex), cudaMemcpyDeviceToHost);
    Points points;
    for (const cufftComplex& one : raw)
        points.emplace_back(one.x, one.y);
    points = transformed(points, direction);
    for (size_t i = 0; i < raw.size(); ++i)
        raw[i] = {static_cast<float>(points[i].real()), static_cast<float>(points[i].imag())};
    cudaMemcpy(odata, raw.data(), raw.size() * sizeof(cufftComplex), cudaMemcpyHostToDevice);
    return CUFFT_SUCCESS;
}

cufftResult cufftDestroy(cufftHandle plan) {
    if (plan <= 0 || static_cast<size_t>(plan) >= plans.size() || plans[plan] == 0)
        return CUFFT_INVALID_PLAN;
    plans[plan] = 0;
    return CUFFT_SUCCESS;
}
