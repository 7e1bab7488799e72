// The part of cuSPARSE that bench/vendor/ uses, with the parameter lists of its header.
#pragma once
#include "library_types.h"

typedef struct cusparseContext* cusparseHandle_t;
typedef struct SparseMatrix* cusparseSpMatDescr_t;
typedef struct DenseVector* cusparseDnVecDescr_t;
typedef struct DenseMatrix* cusparseDnMatDescr_t;
typedef const struct SparseMatrix* cusparseConstSpMatDescr_t;
typedef const struct DenseVector* cusparseConstDnVecDescr_t;
typedef const struct DenseMatrix* cusparseConstDnMatDescr_t;
enum cusparseStatus_t {
    CUSPARSE_STATUS_SUCCESS,
    CUSPARSE_STATUS_INVALID_VALUE = 3,
    CUSPARSE_STATUS_NOT_SUPPORTED = 10
};
enum cusparseIndexType_t { CUSPARSE_INDEX_16U = 1, CUSPARSE_INDEX_32I = 2, CUSPARSE_INDEX_64I = 3 };
enum cusparseIndexBase_t { CUSPARSE_INDEX_BASE_ZERO, CUSPARSE_INDEX_BASE_ONE };
enum cusparseOperation_t { CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_TRANSPOSE };
enum cusparseOrder_t { CUSPARSE_ORDER_COL = 1, CUSPARSE_ORDER_ROW = 2 };
enum cusparseSpMVAlg_t {
    CUSPARSE_SPMV_ALG_DEFAULT = 0,
    CUSPARSE_SPMV_CSR_ALG1 = 2,
    CUSPARSE_SPMV_CSR_ALG2 = 3,
    CUSPARSE_SPMV_COO_ALG1 = 1,
    CUSPARSE_SPMV_COO_ALG2 = 4,
    CUSPARSE_SPMV_SELL_ALG1 = 5
};
enum cusparseSpMMAlg_t {
    CUSPARSE_SPMM_ALG_DEFAULT = 0,
    CUSPARSE_SPMM_COO_ALG1 = 1,
    CUSPARSE_SPMM_COO_ALG2 = 2,
    CUSPARSE_SPMM_COO_ALG3 = 3,
    CUSPARSE_SPMM_COO_ALG4 = 5,
    CUSPARSE_SPMM_CSR_ALG1 = 4,
    CUSPARSE_SPMM_CSR_ALG2 = 6,
    CUSPARSE_SPMM_CSR_ALG3 = 12,
    CUSPARSE_SPMM_BLOCKED_ELL_ALG1 = 13
};

extern "C" {
const char* cusparseGetErrorName(cusparseStatus_t status);
cusparseStatus_t cusparseCreate(cusparseHandle_t* handle);
cusparseStatus_t cusparseCreateCsr(cusparseSpMatDescr_t* descriptor, int64_t rows, int64_t cols, int64_t nnz,
                                   void* offsets, void* indices, void* values,
                                   cusparseIndexType_t offsetsType, cusparseIndexType_t indicesType,
                                   cusparseIndexBase_t base, cudaDataType type);
cusparseStatus_t cusparseCreateCsc(cusparseSpMatDescr_t* descriptor, int64_t rows, int64_t cols, int64_t nnz,
                                   void* offsets, void* indices, void* values,
                                   cusparseIndexType_t offsetsType, cusparseIndexType_t indicesType,
                                   cusparseIndexBase_t base, cudaDataType type);
cusparseStatus_t cusparseCreateCoo(cusparseSpMatDescr_t* descriptor, int64_t rows, int64_t cols, int64_t nnz,
                                   void* rowIndices, void* colIndices, void* values,
                                   cusparseIndexType_t indicesType, cusparseIndexBase_t base,
                                   cudaDataType type);
cusparseStatus_t cusparseCreateBlockedEll(cusparseSpMatDescr_t* descriptor, int64_t rows, int64_t cols,
                                          int64_t blockSize, int64_t ellCols, void* indices, void* values,
                                          cusparseIndexType_t indicesType, cusparseIndexBase_t base,
                                          cudaDataType type);
cusparseStatus_t cusparseCreateSlicedEll(cusparseSpMatDescr_t* descriptor, int64_t rows, int64_t cols,
                                         int64_t nnz, int64_t valuesSize, int64_t sliceSize, void* offsets,
                                         void* indices, void* values, cusparseIndexType_t offsetsType,
                                         cusparseIndexType_t indicesType, cusparseIndexBase_t base,
                                         cudaDataType type);
cusparseStatus_t cusparseXcoosort_bufferSizeExt(cusparseHandle_t handle, int m, int n, int nnz,
                                                const int* rows, const int* cols, size_t* bytes);
cusparseStatus_t cusparseXcoosortByRow(cusparseHandle_t handle, int m, int n, int nnz, int* rows, int* cols,
                                       int* order, void* buffer);
cusparseStatus_t cusparseDestroySpMat(cusparseConstSpMatDescr_t descriptor);
cusparseStatus_t cusparseCreateDnVec(cusparseDnVecDescr_t* descriptor, int64_t size, void* values,
                                     cudaDataType type);
cusparseStatus_t cusparseDestroyDnVec(cusparseConstDnVecDescr_t descriptor);
cusparseStatus_t cusparseCreateDnMat(cusparseDnMatDescr_t* descriptor, int64_t rows, int64_t cols, int64_t ld,
                                     void* values, cudaDataType type, cusparseOrder_t order);
cusparseStatus_t cusparseDestroyDnMat(cusparseConstDnMatDescr_t descriptor);
cusparseStatus_t cusparseSpMV_bufferSize(cusparseHandle_t handle, cusparseOperation_t opA, const void* alpha,
                                         cusparseConstSpMatDescr_t matA, cusparseConstDnVecDescr_t vecX,
                                         const void* beta, cusparseDnVecDescr_t vecY,
                                         cudaDataType computeType, cusparseSpMVAlg_t alg, size_t* bufferSize);
cusparseStatus_t cusparseSpMV_preprocess(cusparseHandle_t handle, cusparseOperation_t opA, const void* alpha,
                                         cusparseConstSpMatDescr_t matA, cusparseConstDnVecDescr_t vecX,
                                         const void* beta, cusparseDnVecDescr_t vecY,
                                         cudaDataType computeType, cusparseSpMVAlg_t alg,
                                         void* externalBuffer);
cusparseStatus_t cusparseSpMV(cusparseHandle_t handle, cusparseOperation_t opA, const void* alpha,
                              cusparseConstSpMatDescr_t matA, cusparseConstDnVecDescr_t vecX,
                              const void* beta, cusparseDnVecDescr_t vecY, cudaDataType computeType,
                              cusparseSpMVAlg_t alg, void* externalBuffer);
cusparseStatus_t cusparseSpMM_bufferSize(cusparseHandle_t handle, cusparseOperation_t opA,
                                         cusparseOperation_t opB, const void* alpha,
                                         cusparseConstSpMatDescr_t matA, cusparseConstDnMatDescr_t matB,
                                         const void* beta, cusparseDnMatDescr_t matC,
                                         cudaDataType computeType, cusparseSpMMAlg_t alg, size_t* bufferSize);
cusparseStatus_t cusparseSpMM_preprocess(cusparseHandle_t handle, cusparseOperation_t opA,
                                         cusparseOperation_t opB, const void* alpha,
                                         cusparseConstSpMatDescr_t matA, cusparseConstDnMatDescr_t matB,
                                         const void* beta, cusparseDnMatDescr_t matC,
                                         cudaDataType computeType, cusparseSpMMAlg_t alg,
                                         void* externalBuffer);
cusparseStatus_t cusparseSpMM(cusparseHandle_t handle, cusparseOperation_t opA, cusparseOperation_t opB,
                              const void* alpha, cusparseConstSpMatDescr_t matA,
                              cusparseConstDnMatDescr_t matB, const void* beta, cusparseDnMatDescr_t matC,
                              cudaDataType computeType, cusparseSpMMAlg_t alg, void* externalBuffer);
}
