// Plain loops behind the interfaces of cuBLAS, cuBLASLt, cuSPARSE and cuFFT, as their manuals define them, for the CPU device:
// what bench/vendor/ asks for is then seen to be the task, in layouts, orders and types, where there is no GPU. What
// the vendor's files do not use is refused. In front of each of theirs is compiled what comes before the first line of
// hyphens, and its own library's part.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <cuda_runtime.h>
#include <initializer_list>
#include <malloc.h>
#include <unistd.h>
#include <utility>
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

// ---- cuSPARSE -------------------------------------------------------------------------------------------------------

// What this stand-in takes: a test may have it refuse all but one `form`, or results that are not `narrow`.
#ifndef TAKES
#define TAKES true
#endif
// Products that fault, after which the device is lost: as cuSPARSE did in bf16 with K = 3, in an algorithm that is not
// known.
#ifndef FAULTS
#define FAULTS                                                                                               \
    (form == SparseForm::kCsr && !vectors && A->type == CUDA_R_16BF && (C.ld % 2 != 0 || C.ld < 8) &&        \
     algorithm != CUSPARSE_SPMM_CSR_ALG1)
#endif

enum class SparseForm { kCsr, kTransposedCsr, kCsc, kCoo, kBlockedEll, kSlicesOfOne, kSlices };

struct cusparseContext {};
struct SparseMatrix {
    SparseForm form;
    int64_t rows, cols, nnz;
    const int *offsets, *rowIndices, *colIndices; // as far as the form has them
    const void* values;
    int64_t stored, height; // values with padding; rows of a slice
    cudaDataType type;
    mutable const void* seen; // the work space of the call that looked at the pattern
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

bool device_lost = false;

[[maybe_unused]] cudaError_t device_state() {
    return device_lost ? cudaErrorIllegalAddress : cudaDeviceSynchronize();
}
[[maybe_unused]] cudaError_t copied(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return device_lost ? cudaErrorIllegalAddress : cudaMemcpy(to, from, bytes, kind);
}

struct SparseEntry {
    int64_t row, col;
    double value;
};

template <class T> std::vector<T> on_host(const void* data, int64_t count) {
    std::vector<T> host(count);
    cudaMemcpy(host.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost);
    return host;
}

// The numbers of an array on the device.
std::vector<double> numbers(const void* data, int64_t count, cudaDataType type) {
    std::vector<double> all;
    if (type == CUDA_R_32F) {
        for (float one : on_host<float>(data, count))
            all.push_back(one);
        return all;
    }
    for (uint16_t one : on_host<uint16_t>(data, count)) {
        uint32_t bits = static_cast<uint32_t>(one) << 16;
        float value;
        std::memcpy(&value, &bits, sizeof value);
        all.push_back(value);
    }
    return all;
}

double rounded_to_bf16(double number) {
    float value = static_cast<float>(number);
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

void put(void* data, const std::vector<double>& all, cudaDataType type) {
    std::vector<float> floats;
    std::vector<uint16_t> halves;
    for (double number : all) {
        floats.push_back(static_cast<float>(type == CUDA_R_32F ? number : rounded_to_bf16(number)));
        uint32_t bits;
        std::memcpy(&bits, &floats.back(), sizeof bits);
        halves.push_back(static_cast<uint16_t>(bits >> 16));
    }
    const void* from = type == CUDA_R_32F ? static_cast<const void*>(floats.data()) : halves.data();
    cudaMemcpy(data, from, all.size() * (type == CUDA_R_32F ? 4 : 2), cudaMemcpyHostToDevice);
}

// What the matrix has, in the order in which it is stored. Nothing if it is not as its form has to be.
std::vector<SparseEntry> entries(const SparseMatrix& A) {
    std::vector<SparseEntry> all;
    std::vector<double> values = numbers(A.values, A.stored, A.type);
    auto ascending = [&](const std::vector<int>& offsets, int64_t last) {
        return std::is_sorted(offsets.begin(), offsets.end()) && offsets.front() == 0 &&
               offsets.back() == last;
    };
    if (A.form == SparseForm::kCoo) {
        auto rows = on_host<int>(A.rowIndices, A.nnz), cols = on_host<int>(A.colIndices, A.nnz);
        if (std::is_sorted(rows.begin(), rows.end()))
            for (int64_t p = 0; p < A.nnz; ++p)
                all.push_back({rows[p], cols[p], values[p]});
    } else if (A.form == SparseForm::kCsr || A.form == SparseForm::kCsc) {
        bool by_row = A.form == SparseForm::kCsr;
        int64_t segments = by_row ? A.rows : A.cols;
        auto offsets = on_host<int>(A.offsets, segments + 1);
        auto indices = on_host<int>(by_row ? A.colIndices : A.rowIndices, A.nnz);
        if (ascending(offsets, A.nnz))
            for (int64_t segment = 0; segment < segments; ++segment)
                for (int p = offsets[segment]; p < offsets[segment + 1]; ++p)
                    all.push_back({by_row ? segment : indices[p], by_row ? indices[p] : segment, values[p]});
    } else { // a row's elements lie `height` apart
        int64_t slices = (A.rows - 1) / A.height + 1, slots = A.stored / (slices * A.height);
        auto cols = on_host<int>(A.colIndices, A.stored);
        std::vector<int> offsets;
        for (int64_t slice = 0; slice <= slices; ++slice)
            offsets.push_back(static_cast<int>(slice * A.height * slots));
        if (A.offsets != nullptr)
            offsets = on_host<int>(A.offsets, slices + 1);
        if (ascending(offsets, A.stored))
            for (int64_t p = 0; p < A.stored; ++p) {
                int64_t slice = std::upper_bound(offsets.begin(), offsets.end(), p) - offsets.begin() - 1;
                if (cols[p] >= 0)
                    all.push_back({slice * A.height + (p - offsets[slice]) % A.height, cols[p], values[p]});
            }
    }
    return all;
}

// The algorithms of a form.
bool known(SparseForm form, int algorithm, bool vectors) {
    auto among = [algorithm](std::initializer_list<int> all) {
        return std::find(all.begin(), all.end(), algorithm) != all.end();
    };
    switch (form) {
    case SparseForm::kCoo:
        return vectors ? among({CUSPARSE_SPMV_COO_ALG1, CUSPARSE_SPMV_COO_ALG2})
                       : among({CUSPARSE_SPMM_COO_ALG1, CUSPARSE_SPMM_COO_ALG2, CUSPARSE_SPMM_COO_ALG3,
                                CUSPARSE_SPMM_COO_ALG4});
    case SparseForm::kBlockedEll:
        return !vectors && among({CUSPARSE_SPMM_BLOCKED_ELL_ALG1});
    case SparseForm::kSlicesOfOne:
    case SparseForm::kSlices:
        return vectors && among({CUSPARSE_SPMV_SELL_ALG1});
    case SparseForm::kTransposedCsr:
        return vectors ? among({CUSPARSE_SPMV_CSR_ALG1, CUSPARSE_SPMV_CSR_ALG2})
                       : among({CUSPARSE_SPMM_CSR_ALG1, CUSPARSE_SPMM_CSR_ALG2});
    default:
        return vectors ? among({CUSPARSE_SPMV_ALG_DEFAULT, CUSPARSE_SPMV_CSR_ALG1, CUSPARSE_SPMV_CSR_ALG2})
                       : among({CUSPARSE_SPMM_CSR_ALG1, CUSPARSE_SPMM_CSR_ALG2, CUSPARSE_SPMM_CSR_ALG3});
    }
}

cusparseStatus_t sparse_product(cusparseOperation_t opA, const void* alpha, const SparseMatrix* A,
                                const DenseMatrix& B, const void* beta, const DenseMatrix& C,
                                cudaDataType compute, int algorithm, bool vectors, void* buffer) {
    bool flipped = opA == CUSPARSE_OPERATION_TRANSPOSE;
    SparseForm form = flipped && A->form == SparseForm::kCsr ? SparseForm::kTransposedCsr : A->form;
    bool narrow = C.type == CUDA_R_16BF;
    if (compute != CUDA_R_32F || A->type != B.type || (A->type == CUDA_R_32F && narrow) ||
        (flipped && A->form != SparseForm::kCsr) || !known(form, algorithm, vectors) || !(TAKES))
        return CUSPARSE_STATUS_NOT_SUPPORTED;
    if (FAULTS) {
        device_lost = true;
        return CUSPARSE_STATUS_SUCCESS; // it is seen later
    }
    int64_t rows = flipped ? A->cols : A->rows, cols = flipped ? A->rows : A->cols;
    bool match = rows == C.rows && cols == B.rows && B.cols == C.cols && B.ld >= B.cols && C.ld >= C.cols;
    bool plain = *static_cast<const float*>(alpha) == 1 && *static_cast<const float*>(beta) == 0;
    if (!match || !plain || B.order != CUSPARSE_ORDER_ROW || C.order != CUSPARSE_ORDER_ROW ||
        A->seen != buffer)
        return CUSPARSE_STATUS_INVALID_VALUE;
    std::vector<SparseEntry> all = entries(*A);
    if (static_cast<int64_t>(all.size()) != A->nnz)
        return CUSPARSE_STATUS_INVALID_VALUE;
    std::vector<double> factor = numbers(B.values, B.rows * B.ld, B.type), sums(C.rows * C.ld);
    // Such algorithms round every sum on the way, and are the fastest.
    bool rounds =
        narrow && (algorithm == CUSPARSE_SPMM_CSR_ALG1 || algorithm == CUSPARSE_SPMM_COO_ALG1) && !vectors;
    usleep(rounds ? 0 : 300);
    for (SparseEntry one : all) {
        if (flipped)
            std::swap(one.row, one.col);
        for (int64_t k = 0; k < C.cols; ++k) {
            double& sum = sums[one.row * C.ld + k];
            sum += one.value * factor[one.col * B.ld + k];
            if (rounds)
                sum = rounded_to_bf16(sum);
        }
    }
    cudaMemset(buffer, 0xff, kBuffer);
    put(C.values, sums, C.type);
    return CUSPARSE_STATUS_SUCCESS;
}

// Where there is nothing to look at, that is no reason to refuse the product.
cusparseStatus_t look_at(const SparseMatrix& A, const void* buffer) {
    A.seen = buffer;
    return A.form == SparseForm::kCoo ? CUSPARSE_STATUS_NOT_SUPPORTED : CUSPARSE_STATUS_SUCCESS;
}

DenseMatrix column(const DenseVector& vector) {
    return {vector.size, 1, 1, vector.values, vector.type, CUSPARSE_ORDER_ROW};
}

cusparseStatus_t describe_sparse(cusparseSpMatDescr_t* descriptor, const SparseMatrix& matrix,
                                 cusparseIndexType_t type, cusparseIndexBase_t base) {
    bool cells = matrix.nnz <= matrix.rows * matrix.cols && matrix.stored <= matrix.rows * matrix.cols;
    if (type != CUSPARSE_INDEX_32I || base != CUSPARSE_INDEX_BASE_ZERO || matrix.nnz == 0 || !cells)
        return CUSPARSE_STATUS_INVALID_VALUE;
    *descriptor = new SparseMatrix(matrix);
    return CUSPARSE_STATUS_SUCCESS;
}

} // namespace

const char* cusparseGetErrorName(cusparseStatus_t status) {
    return status == CUSPARSE_STATUS_INVALID_VALUE ? "CUSPARSE_STATUS_INVALID_VALUE"
                                                   : "CUSPARSE_STATUS_NOT_SUPPORTED";
}
cusparseStatus_t cusparseCreate(cusparseHandle_t* handle) {
    // Copies of operands come and go with each product: their memory is kept, or half of the time goes into page faults.
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    *handle = new cusparseContext;
    return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseCreateCsr(cusparseSpMatDescr_t* descriptor, int64_t rows, int64_t cols, int64_t nnz,
                                   void* offsets, void* indices, void* values, cusparseIndexType_t,
                                   cusparseIndexType_t indicesType, cusparseIndexBase_t base,
                                   cudaDataType type) {
    return describe_sparse(descriptor,
                           {SparseForm::kCsr, rows, cols, nnz, static_cast<int*>(offsets), nullptr,
                            static_cast<int*>(indices), values, nnz, 1, type, nullptr},
                           indicesType, base);
}
cusparseStatus_t cusparseCreateCsc(cusparseSpMatDescr_t* descriptor, int64_t rows, int64_t cols, int64_t nnz,
                                   void* offsets, void* indices, void* values, cusparseIndexType_t,
                                   cusparseIndexType_t indicesType, cusparseIndexBase_t base,
                                   cudaDataType type) {
    return describe_sparse(descriptor,
                           {SparseForm::kCsc, rows, cols, nnz, static_cast<int*>(offsets),
                            static_cast<int*>(indices), nullptr, values, nnz, 1, type, nullptr},
                           indicesType, base);
}
cusparseStatus_t cusparseCreateCoo(cusparseSpMatDescr_t* descriptor, int64_t rows, int64_t cols, int64_t nnz,
                                   void* rowIndices, void* colIndices, void* values,
                                   cusparseIndexType_t indicesType, cusparseIndexBase_t base,
                                   cudaDataType type) {
    return describe_sparse(descriptor,
                           {SparseForm::kCoo, rows, cols, nnz, nullptr, static_cast<int*>(rowIndices),
                            static_cast<int*>(colIndices), values, nnz, 1, type, nullptr},
                           indicesType, base);
}
// It does not say how many entries there are: those in its blocks.
cusparseStatus_t cusparseCreateBlockedEll(cusparseSpMatDescr_t* descriptor, int64_t rows, int64_t cols,
                                          int64_t blockSize, int64_t ellCols, void* indices, void* values,
                                          cusparseIndexType_t indicesType, cusparseIndexBase_t base,
                                          cudaDataType type) {
    if (blockSize != 1)
        return CUSPARSE_STATUS_NOT_SUPPORTED;
    auto all = on_host<int>(indices, rows * ellCols);
    int64_t nnz = std::count_if(all.begin(), all.end(), [](int col) { return col >= 0; });
    return describe_sparse(descriptor,
                           {SparseForm::kBlockedEll, rows, cols, nnz, nullptr, nullptr,
                            static_cast<int*>(indices), values, rows * ellCols, 1, type, nullptr},
                           indicesType, base);
}
cusparseStatus_t cusparseCreateSlicedEll(cusparseSpMatDescr_t* descriptor, int64_t rows, int64_t cols,
                                         int64_t nnz, int64_t valuesSize, int64_t sliceSize, void* offsets,
                                         void* indices, void* values, cusparseIndexType_t,
                                         cusparseIndexType_t indicesType, cusparseIndexBase_t base,
                                         cudaDataType type) {
    return describe_sparse(descriptor,
                           {sliceSize == 1 ? SparseForm::kSlicesOfOne : SparseForm::kSlices, rows, cols, nnz,
                            static_cast<int*>(offsets), nullptr, static_cast<int*>(indices), values,
                            valuesSize, sliceSize, type, nullptr},
                           indicesType, base);
}
cusparseStatus_t cusparseDestroySpMat(cusparseConstSpMatDescr_t descriptor) {
    delete descriptor;
    return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseXcoosort_bufferSizeExt(cusparseHandle_t, int, int, int, const int*, const int*,
                                                size_t* bytes) {
    *bytes = kBuffer;
    return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseXcoosortByRow(cusparseHandle_t, int, int, int nnz, int* rows, int* cols, int* order,
                                       void* buffer) {
    auto by_row = on_host<int>(rows, nnz), by_col = on_host<int>(cols, nnz), moved = on_host<int>(order, nnz);
    std::vector<int> places(nnz);
    for (int p = 0; p < nnz; ++p)
        places[p] = p;
    std::stable_sort(places.begin(), places.end(), [&](int p, int q) { return by_row[p] < by_row[q]; });
    for (auto [from, to] : {std::pair(&by_row, rows), std::pair(&by_col, cols), std::pair(&moved, order)}) {
        std::vector<int> sorted;
        for (int p : places)
            sorted.push_back((*from)[p]);
        cudaMemcpy(to, sorted.data(), nnz * sizeof(int), cudaMemcpyHostToDevice);
    }
    cudaMemset(buffer, 0xff, kBuffer);
    return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseCreateDnVec(cusparseDnVecDescr_t* descriptor, int64_t size, void* values,
                                     cudaDataType type) {
    if (!values)
        return CUSPARSE_STATUS_INVALID_VALUE;
    *descriptor = new DenseVector{size, values, type};
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
cusparseStatus_t cusparseSpMV_preprocess(cusparseHandle_t, cusparseOperation_t, const void*,
                                         cusparseConstSpMatDescr_t A, cusparseConstDnVecDescr_t, const void*,
                                         cusparseDnVecDescr_t, cudaDataType, cusparseSpMVAlg_t,
                                         void* buffer) {
    return look_at(*A, buffer);
}
cusparseStatus_t cusparseSpMV(cusparseHandle_t, cusparseOperation_t op, const void* alpha,
                              cusparseConstSpMatDescr_t A, cusparseConstDnVecDescr_t x, const void* beta,
                              cusparseDnVecDescr_t y, cudaDataType compute, cusparseSpMVAlg_t algorithm,
                              void* buffer) {
    return sparse_product(op, alpha, A, column(*x), beta, column(*y), compute, algorithm, true, buffer);
}

cusparseStatus_t cusparseSpMM_bufferSize(cusparseHandle_t, cusparseOperation_t, cusparseOperation_t,
                                         const void*, cusparseConstSpMatDescr_t, cusparseConstDnMatDescr_t,
                                         const void*, cusparseDnMatDescr_t, cudaDataType, cusparseSpMMAlg_t,
                                         size_t* bufferSize) {
    *bufferSize = kBuffer;
    return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSpMM_preprocess(cusparseHandle_t, cusparseOperation_t, cusparseOperation_t,
                                         const void*, cusparseConstSpMatDescr_t A, cusparseConstDnMatDescr_t,
                                         const void*, cusparseDnMatDescr_t, cudaDataType, cusparseSpMMAlg_t,
                                         void* buffer) {
    return look_at(*A, buffer);
}
cusparseStatus_t cusparseSpMM(cusparseHandle_t, cusparseOperation_t opA, cusparseOperation_t opB,
                              const void* alpha, cusparseConstSpMatDescr_t A, cusparseConstDnMatDescr_t B,
                              const void* beta, cusparseDnMatDescr_t C, cudaDataType compute,
                              cusparseSpMMAlg_t algorithm, void* buffer) {
    if (opB != CUSPARSE_OPERATION_NON_TRANSPOSE)
        return CUSPARSE_STATUS_NOT_SUPPORTED;
    return sparse_product(opA, alpha, A, *B, beta, *C, compute, algorithm, false, buffer);
}

// For the file that follows.
#define cudaDeviceSynchronize device_state
#define cudaMemcpy copied
