// Copies of a call's matrix in forms that cuSPARSE takes, made before the call and outside its time: more than our kernels
// may do.
#pragma once
#include <algorithm>
#include <cusparse.h>
#include <vector>
#include "vendor/cusparse.h"

namespace vendor {

static __global__ void number_kernel(int* numbers, long long count, int step) {
    long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    if (i < count)
        numbers[i] = static_cast<int>(i * step);
}

template <class T> __global__ void permute_kernel(const T* from, const int* order, T* to, long long count) {
    long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    if (i < count)
        to[i] = from[order[i]];
}

// Entries by row, which cuSPARSE takes for granted of COO, by its own sort.
template <class T> class SortedCoo {
  public:
    void make(cusparseHandle_t handle, const Shape& shape, const int* row_indices, const int* col_indices,
              const T* values) {
        if (shape.nnz == 0)
            return;
        size_t bytes = shape.nnz * sizeof(int), buffer = 0;
        for (Memory* memory : {&rows_, &cols_, &order_})
            memory->room(bytes);
        values_.room(shape.nnz * sizeof(T));
        VENDOR_CHECK(cudaMemcpy(rows_.get(), row_indices, bytes, cudaMemcpyDeviceToDevice));
        VENDOR_CHECK(cudaMemcpy(cols_.get(), col_indices, bytes, cudaMemcpyDeviceToDevice));
        launch(number_kernel, shape.nnz, order_.as<int>(), shape.nnz, 1);
        int m = static_cast<int>(shape.rows), n = static_cast<int>(shape.described());
        int nnz = static_cast<int>(shape.nnz);
        VENDOR_CHECK(cusparseXcoosort_bufferSizeExt(handle, m, n, nnz, rows(), cols(), &buffer));
        buffer_.room(buffer);
        VENDOR_CHECK(cusparseXcoosortByRow(handle, m, n, nnz, rows_.as<int>(), cols_.as<int>(),
                                           order_.as<int>(), buffer_.get()));
        launch(permute_kernel<T>, nnz, values, order_.as<int>(), values_.as<T>(), shape.nnz);
    }
    const int* rows() const { return rows_.as<int>(); }
    const int* cols() const { return cols_.as<int>(); }
    const T* values() const { return values_.as<T>(); }

  private:
    Memory rows_, cols_, order_, values_, buffer_;
};

// Offsets of a matrix in CSC with the columns that it is described by: those behind its own are empty.
class LongerOffsets {
  public:
    const int* make(const Shape& shape, const int* col_offsets) {
        if (shape.described() == shape.cols || shape.nnz == 0)
            return col_offsets;
        std::vector<int> offsets(shape.described() + 1, static_cast<int>(shape.nnz));
        VENDOR_CHECK(
            cudaMemcpy(offsets.data(), col_offsets, shape.cols * sizeof(int), cudaMemcpyDeviceToHost));
        memory_.room(offsets.size() * sizeof(int));
        VENDOR_CHECK(
            cudaMemcpy(memory_.get(), offsets.data(), offsets.size() * sizeof(int), cudaMemcpyHostToDevice));
        return memory_.as<int>();
    }

  private:
    Memory memory_;
};

// Where each row of a matrix in ELL starts.
class EvenOffsets {
  public:
    const int* make(int rows, int slots) {
        memory_.room((rows + 1) * sizeof(int));
        launch(number_kernel, rows + 1, memory_.as<int>(), rows + 1, slots);
        return memory_.as<int>();
    }

  private:
    Memory memory_;
};

// A row's entries fill its first slots.
static __global__ void lengths_kernel(const int* col_ids, int slots, int* lengths, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    int length = 0;
    while (length < slots && col_ids[static_cast<long long>(row) * slots + length] >= 0)
        ++length;
    lengths[row] = length;
}

// Element s of a row goes to begin + s * stride; behind its end there is padding up to `width`.
template <class T>
__global__ void move_kernel(const int* col_ids, const T* values, int slots, const int* lengths, int rows,
                            const int* offsets, int height, int* cols, T* moved) {
    long long row = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x, slice = row / height;
    long long slices = (rows - 1) / height + 1;
    if (slice >= slices)
        return;
    int length = row < rows ? lengths[row] : 0, width = (offsets[slice + 1] - offsets[slice]) / height;
    for (int s = 0; s < width; ++s) {
        long long to = offsets[slice] + static_cast<long long>(s) * height + row % height;
        cols[to] = s < length ? col_ids[row * slots + s] : -1;
        moved[to] = s < length ? values[row * slots + s] : static_cast<T>(0.0f);
    }
}

// A matrix in ELL as slices of `height` rows, each as wide as its longest row: in slices of one row that is CSR.
template <class T> class SlicedCopy {
  public:
    explicit SlicedCopy(int height) : height_(height) {}

    void make(int rows, int slots, const int* col_ids, const T* values) {
        lengths_.room(rows * sizeof(int));
        launch(lengths_kernel, rows, col_ids, slots, lengths_.as<int>(), rows);
        std::vector<int> lengths(rows);
        VENDOR_CHECK(cudaMemcpy(lengths.data(), lengths_.get(), rows * sizeof(int), cudaMemcpyDeviceToHost));
        std::vector<int> offsets{0};
        entries_ = 0;
        for (int first = 0; first < rows; first += height_) {
            int width = 0;
            for (int row = first; row < std::min(rows, first + height_); ++row) {
                width = std::max(width, lengths[row]);
                entries_ += lengths[row];
            }
            offsets.push_back(offsets.back() + width * height_);
        }
        stored_ = offsets.back();
        offsets_.room(offsets.size() * sizeof(int));
        VENDOR_CHECK(
            cudaMemcpy(offsets_.get(), offsets.data(), offsets.size() * sizeof(int), cudaMemcpyHostToDevice));
        cols_.room(stored_ * sizeof(int)), values_.room(stored_ * sizeof(T));
        launch(move_kernel<T>, static_cast<long long>(offsets.size()) * height_, col_ids, values, slots,
               lengths_.as<int>(), rows, offsets_.as<int>(), height_, cols_.as<int>(), values_.as<T>());
    }

    int height() const { return height_; }
    long long entries() const { return entries_; } // of the matrix
    long long stored() const { return stored_; }   // with padding
    const int* offsets() const { return offsets_.as<int>(); }
    const int* cols() const { return cols_.as<int>(); }
    const T* values() const { return values_.as<T>(); }

  private:
    int height_;
    long long entries_ = 0, stored_ = 0;
    Memory lengths_, offsets_, cols_, values_;
};

} // namespace vendor
