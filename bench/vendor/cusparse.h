// A cuSPARSE handle that is made once, and a sparse matrix in CSR whose arrays change from call to call.
#pragma once
#include <cusparse.h>
#include "vendor/check.h"

namespace vendor {

inline void check(cusparseStatus_t status, const char* call) {
    if (status != CUSPARSE_STATUS_SUCCESS)
        fail(call, cusparseGetErrorName(status));
}

// Of the stream that the harness uses too, the legacy default one. Scalars (alpha, beta) come from the host.
class Cusparse {
  public:
    void open() {
        if (handle_ == nullptr)
            VENDOR_CHECK(cusparseCreate(&handle_));
    }
    cusparseHandle_t get() const { return handle_; }

  private:
    cusparseHandle_t handle_ = nullptr;
};

// The columns to describe a matrix by: cuSPARSE refuses more entries than cells, which a case may have where columns
// repeat. It is told of as many columns as that takes, and of as long a factor; no entry lies in those that there are not.
inline long long columns(long long rows, long long cols, long long nnz) {
    long long wanted = (nnz + rows - 1) / rows;
    return wanted > cols ? wanted : cols;
}

// Descriptors and their addresses are the host's alone: to give other addresses costs a call no work on the device.
class Csr {
  public:
    // Before the arrays of a call are known, empty rows stand in for them.
    void describe(long long rows, long long cols, long long nnz, cudaDataType type) {
        if (descriptor_ != nullptr)
            VENDOR_CHECK(cusparseDestroySpMat(descriptor_));
        offsets_.hold((rows + 1) * sizeof(int));
        entries_.hold(nnz * sizeof(float));
        VENDOR_CHECK(cudaMemset(offsets_.get(), 0, (rows + 1) * sizeof(int)));
        VENDOR_CHECK(cudaMemset(entries_.get(), 0, nnz * sizeof(float)));
        VENDOR_CHECK(cusparseCreateCsr(&descriptor_, rows, cols, nnz, offsets_.get(), entries_.get(),
                                       entries_.get(), CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                                       CUSPARSE_INDEX_BASE_ZERO, type));
    }
    cusparseSpMatDescr_t at(const int* row_offsets, const int* col_indices, const void* values) const {
        VENDOR_CHECK(cusparseCsrSetPointers(descriptor_, const_cast<int*>(row_offsets),
                                            const_cast<int*>(col_indices), const_cast<void*>(values)));
        return descriptor_;
    }
    cusparseSpMatDescr_t get() const { return descriptor_; }

  private:
    cusparseSpMatDescr_t descriptor_ = nullptr;
    Memory offsets_, entries_;
};

// A dense vector.
class Vector {
  public:
    void describe(long long size, cudaDataType type) {
        if (descriptor_ != nullptr)
            VENDOR_CHECK(cusparseDestroyDnVec(descriptor_));
        placeholder_.hold(size * sizeof(float));
        VENDOR_CHECK(cusparseCreateDnVec(&descriptor_, size, placeholder_.get(), type));
    }
    cusparseDnVecDescr_t at(const void* values) const {
        VENDOR_CHECK(cusparseDnVecSetValues(descriptor_, const_cast<void*>(values)));
        return descriptor_;
    }
    cusparseDnVecDescr_t get() const { return descriptor_; }

  private:
    cusparseDnVecDescr_t descriptor_ = nullptr;
    Memory placeholder_;
};

// A dense row-major matrix without gaps: its leading dimension is the length of a row.
class Matrix {
  public:
    void describe(long long rows, long long cols, cudaDataType type) {
        if (descriptor_ != nullptr)
            VENDOR_CHECK(cusparseDestroyDnMat(descriptor_));
        placeholder_.hold(1); // an address; it may stand for gigabytes
        VENDOR_CHECK(cusparseCreateDnMat(&descriptor_, rows, cols, cols, placeholder_.get(), type,
                                         CUSPARSE_ORDER_ROW));
    }
    cusparseDnMatDescr_t at(const void* values) const {
        VENDOR_CHECK(cusparseDnMatSetValues(descriptor_, const_cast<void*>(values)));
        return descriptor_;
    }
    cusparseDnMatDescr_t get() const { return descriptor_; }

  private:
    cusparseDnMatDescr_t descriptor_ = nullptr;
    Memory placeholder_;
};

} // namespace vendor
