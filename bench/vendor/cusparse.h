// Products of a sparse matrix and dense ones by cuSPARSE, in the fastest of the ways that a file offers.
//
// A way is a form of the matrix, an operation and an algorithm; in bf16 each is there twice, the second time with results
// in fp32 that a kernel of ours rounds. The first call of a case finds the fastest, before its time begins: on its
// arrays, with results in memory that is given back, and as trials.h measures. A way that cuSPARSE refuses is left out.
// One whose results are off by more than sums in fp32 are, as that of an algorithm that rounds sums to bf16 on the way, is
// taken only where all are, and stays out in the cases to come.
//
// One that touches memory that is not there takes the process with it, as nothing works on the device after that: the
// error names it. Which are therefore not tried is said at csr_algorithms.
//
// Descriptors, work space and the preprocess function of cuSPARSE, which looks at the pattern, are made anew for each
// call, outside its time.
#pragma once
#include <algorithm>
#include <cmath>
#include <cuda_bf16.h>
#include <cusparse.h>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>
#include "mskb/number.h"
#include "vendor/trials.h"

namespace vendor {

inline void check(cusparseStatus_t status, const char* call) {
    if (status != CUSPARSE_STATUS_SUCCESS)
        fail(call, cusparseGetErrorName(status));
}

// To look at the pattern is optional, and an algorithm may have no use for it.
inline void optional(cusparseStatus_t status, const char* call) {
    if (status != CUSPARSE_STATUS_NOT_SUPPORTED)
        check(status, call);
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

constexpr float kOne = 1.0f, kZero = 0.0f;
template <class T> constexpr cudaDataType kTypeOf = sizeof(T) == 2 ? CUDA_R_16BF : CUDA_R_32F;
constexpr cusparseOperation_t kPlain = CUSPARSE_OPERATION_NON_TRANSPOSE;

// The columns to describe a matrix by: cuSPARSE refuses more entries than cells, which a case may have where columns
// repeat. It is told of as many columns as that takes, and of as long a factor; no entry lies in those that there are not.
inline long long columns(long long rows, long long cols, long long entries) {
    long long wanted = (entries + rows - 1) / rows;
    return wanted > cols ? wanted : cols;
}

// Of a product Y = A X. `cols` are those that A and X have; `stored` are the entries of that form of A that stores most.
struct Shape {
    long long rows = 0, cols = 0, K = 1, nnz = 0, stored = 0;
    long long described() const { return columns(rows, cols, std::max(nnz, stored)); }
    long long outputs() const { return rows * K; }
};

// The entries of a matrix, in segments: those that begin at `offsets`, or one each. An entry's row is in `rows`, or it is
// the number of the segment; the same with columns.
template <class T> struct Entries {
    long long segments;
    const int *offsets, *rows, *cols;
    const T* values;
};

// What cuSPARSE calls for vectors, ...
struct Spmv {
    using Algorithm = cusparseSpMVAlg_t;
    using Dense = cusparseDnVecDescr_t;
    static constexpr const char* kCall = "cusparseSpMV(";

    static void describe(Dense* made, long long rows, long long, const void* values, cudaDataType type) {
        VENDOR_CHECK(cusparseCreateDnVec(made, rows, const_cast<void*>(values), type));
    }
    static void forget(Dense made) { cusparseDestroyDnVec(made); }
    static size_t bytes(cusparseHandle_t handle, cusparseOperation_t operation, cusparseSpMatDescr_t A,
                        Dense x, Dense y, Algorithm algorithm) {
        size_t bytes = 0;
        VENDOR_CHECK(cusparseSpMV_bufferSize(handle, operation, &kOne, A, x, &kZero, y, CUDA_R_32F, algorithm,
                                             &bytes));
        return bytes;
    }
    static void look(cusparseHandle_t handle, cusparseOperation_t operation, cusparseSpMatDescr_t A, Dense x,
                     Dense y, Algorithm algorithm, void* buffer) {
        optional(
            cusparseSpMV_preprocess(handle, operation, &kOne, A, x, &kZero, y, CUDA_R_32F, algorithm, buffer),
            "cusparseSpMV_preprocess(");
    }
    static cusparseStatus_t multiply(cusparseHandle_t handle, cusparseOperation_t operation,
                                     cusparseSpMatDescr_t A, Dense x, Dense y, Algorithm algorithm,
                                     void* buffer) {
        return cusparseSpMV(handle, operation, &kOne, A, x, &kZero, y, CUDA_R_32F, algorithm, buffer);
    }
};

// ... and for row-major matrices without gaps: their leading dimension is the length of a row.
struct Spmm {
    using Algorithm = cusparseSpMMAlg_t;
    using Dense = cusparseDnMatDescr_t;
    static constexpr const char* kCall = "cusparseSpMM(";

    static void describe(Dense* made, long long rows, long long cols, const void* values, cudaDataType type) {
        VENDOR_CHECK(
            cusparseCreateDnMat(made, rows, cols, cols, const_cast<void*>(values), type, CUSPARSE_ORDER_ROW));
    }
    static void forget(Dense made) { cusparseDestroyDnMat(made); }
    static size_t bytes(cusparseHandle_t handle, cusparseOperation_t operation, cusparseSpMatDescr_t A,
                        Dense X, Dense Y, Algorithm algorithm) {
        size_t bytes = 0;
        VENDOR_CHECK(cusparseSpMM_bufferSize(handle, operation, kPlain, &kOne, A, X, &kZero, Y, CUDA_R_32F,
                                             algorithm, &bytes));
        return bytes;
    }
    static void look(cusparseHandle_t handle, cusparseOperation_t operation, cusparseSpMatDescr_t A, Dense X,
                     Dense Y, Algorithm algorithm, void* buffer) {
        optional(cusparseSpMM_preprocess(handle, operation, kPlain, &kOne, A, X, &kZero, Y, CUDA_R_32F,
                                         algorithm, buffer),
                 "cusparseSpMM_preprocess(");
    }
    static cusparseStatus_t multiply(cusparseHandle_t handle, cusparseOperation_t operation,
                                     cusparseSpMatDescr_t A, Dense X, Dense Y, Algorithm algorithm,
                                     void* buffer) {
        return cusparseSpMM(handle, operation, kPlain, &kOne, A, X, &kZero, Y, CUDA_R_32F, algorithm, buffer);
    }
};

// A form of the matrix: what makes its descriptor.
using Form = std::function<void(cusparseSpMatDescr_t*)>;

// A form and the algorithms for it.
template <class Kind> struct Offer {
    const char* name;
    Form form;
    cusparseOperation_t operation;
    std::vector<typename Kind::Algorithm> algorithms;
};

template <class Kind> struct Way {
    const char* name;
    Form form;
    cusparseOperation_t operation;
    typename Kind::Algorithm algorithm;
    bool wide; // results in fp32 first
};

template <class T> __global__ void round_kernel(const float* from, T* to, size_t count) {
    size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        if (2 * i + 1 < count)
            reinterpret_cast<__nv_bfloat162*>(to)[i] =
                __float22bfloat162_rn(reinterpret_cast<const float2*>(from)[i]);
        else if (2 * i < count)
            to[2 * i] = __float2bfloat16(from[2 * i]);
    }
}

// A way on the arrays of a call.
template <class T, class Kind> class Plan {
  public:
    Plan() = default;
    Plan(const Plan&) = delete;
    Plan& operator=(const Plan&) = delete;
    ~Plan() {
        forget();
        buffer_.drop();
    }

    // `wide` is memory for results in fp32, where the way asks for it. Throws what cuSPARSE says.
    void make(cusparseHandle_t handle, const Way<Kind>& way, const Shape& shape, const T* X, T* Y,
              float* wide) {
        forget();
        handle_ = handle, operation_ = way.operation, algorithm_ = way.algorithm;
        outputs_ = shape.outputs(), result_ = Y, wide_ = way.wide ? wide : nullptr;
        way.form(&A_);
        Kind::describe(&X_, shape.described(), shape.K, X, kTypeOf<T>);
        if (wide_ != nullptr)
            Kind::describe(&Y_, shape.rows, shape.K, wide_, CUDA_R_32F);
        else
            Kind::describe(&Y_, shape.rows, shape.K, Y, kTypeOf<T>);
        buffer_.room(Kind::bytes(handle_, operation_, A_, X_, Y_, algorithm_));
        Kind::look(handle_, operation_, A_, X_, Y_, algorithm_, buffer_.get());
    }

    cusparseStatus_t operator()() const {
        cusparseStatus_t status = Kind::multiply(handle_, operation_, A_, X_, Y_, algorithm_, buffer_.get());
        if (wide_ != nullptr && status == CUSPARSE_STATUS_SUCCESS) {
            launch(round_kernel<T>, (outputs_ + 1) / 2, wide_, result_, outputs_);
        }
        return status;
    }

  private:
    void forget() {
        if (A_ != nullptr)
            cusparseDestroySpMat(A_);
        if (X_ != nullptr)
            Kind::forget(X_);
        if (Y_ != nullptr)
            Kind::forget(Y_);
        A_ = nullptr, X_ = nullptr, Y_ = nullptr;
    }

    cusparseHandle_t handle_ = nullptr;
    cusparseOperation_t operation_ = kPlain;
    typename Kind::Algorithm algorithm_{};
    cusparseSpMatDescr_t A_ = nullptr;
    typename Kind::Dense X_ = nullptr, Y_ = nullptr;
    Memory buffer_;
    size_t outputs_ = 0;
    T* result_ = nullptr;
    float* wide_ = nullptr;
};

// Elements of the result that a way is held against: every `step`th row, and so many columns spread over it.
struct Picked {
    long long K, step, rows, cols;
    __host__ __device__ long long count() const { return rows * cols; }
    __device__ long long column(long long j) const { return j * K / cols; }
};

template <class T>
__global__ void expect_kernel(Entries<T> entries, const T* X, Picked picked, double* sums, double* scales) {
    long long first = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    for (long long i = first; i < entries.segments * picked.cols; i += gridDim.x * blockDim.x) {
        long long segment = i / picked.cols, j = i % picked.cols;
        long long begin = entries.offsets != nullptr ? entries.offsets[segment] : segment;
        long long end = entries.offsets != nullptr ? entries.offsets[segment + 1] : segment + 1;
        for (long long p = begin; p < end; ++p) {
            long long row = entries.rows != nullptr ? entries.rows[p] : segment;
            long long col = entries.cols != nullptr ? entries.cols[p] : segment;
            if (row % picked.step != 0)
                continue;
            double factor = static_cast<float>(X[col * picked.K + picked.column(j)]);
            double term = static_cast<double>(static_cast<float>(entries.values[p])) * factor;
            atomicAdd(sums + row / picked.step * picked.cols + j, term);
            atomicAdd(scales + row / picked.step * picked.cols + j, fabs(term));
        }
    }
}

template <class T> __global__ void pick_kernel(const T* Y, Picked picked, float* got) {
    long long first = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    for (long long i = first; i < picked.count(); i += gridDim.x * blockDim.x)
        got[i] =
            static_cast<float>(Y[i / picked.cols * picked.step * picked.K + picked.column(i % picked.cols)]);
}

// What a sample of the results of a call has to be.
template <class T> class Sample {
  public:
    Sample(const Shape& shape, const Entries<T>& entries, const T* X) {
        picked_.K = shape.K;
        picked_.step = (shape.rows - 1) / kMostRows + 1;
        picked_.rows = (shape.rows - 1) / picked_.step + 1;
        picked_.cols = std::min(shape.K, std::max(kFewestColumns, kEnough / picked_.rows));
        size_t count = picked_.count(), bytes = count * sizeof(double);
        Memory sums, scales;
        for (Memory* memory : {&sums, &scales}) {
            memory->hold(bytes);
            VENDOR_CHECK(cudaMemset(memory->get(), 0, bytes));
        }
        launch(expect_kernel<T>, kMostThreads, entries, X, picked_, sums.as<double>(), scales.as<double>());
        sums_.resize(count), scales_.resize(count), got_.resize(count);
        VENDOR_CHECK(cudaMemcpy(sums_.data(), sums.get(), bytes, cudaMemcpyDeviceToHost));
        VENDOR_CHECK(cudaMemcpy(scales_.data(), scales.get(), bytes, cudaMemcpyDeviceToHost));
        sums.release(), scales.release();
        device_.hold(count * sizeof(float));
    }
    ~Sample() { device_.drop(); }
    Sample(const Sample&) = delete;
    Sample& operator=(const Sample&) = delete;

    // Beside the rounding that the judge allows (compare.h), what sums in fp32 stay far below.
    bool right(const T* Y) {
        constexpr double kBound = 0x1p-19; // of the sum of the absolute terms
        constexpr mskb::Kind kKind = sizeof(T) == 2 ? mskb::Kind::kBf16 : mskb::Kind::kFloat;
        launch(pick_kernel<T>, kMostThreads, Y, picked_, device_.as<float>());
        VENDOR_CHECK(
            cudaMemcpy(got_.data(), device_.get(), got_.size() * sizeof(float), cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < got_.size(); ++i)
            if (!(std::abs(got_[i] - sums_[i]) <= kBound * scales_[i] + mskb::rounding(kKind, sums_[i])))
                return false;
        return true;
    }

  private:
    static constexpr long long kMostRows = 1 << 15, kFewestColumns = 8, kEnough = 1 << 18;
    static constexpr size_t kMostThreads = kThreads * 256;

    Picked picked_{};
    std::vector<double> sums_, scales_;
    std::vector<float> got_;
    Memory device_;
};

// Y = A X, or y = A x, of elements of T.
template <class T, class Kind> class Sparse {
  public:
    // Before the first call of a case.
    void prepare() {
        cusparse_.open();
        chosen_ = kNone;
    }
    cusparseHandle_t handle() const { return cusparse_.get(); }

    // Before each call, with what it will be made on.
    void bind(const Shape& shape, const std::vector<Offer<Kind>>& offers, const Entries<T>& entries,
              const T* X, T* Y) {
        shape_ = shape, result_ = Y;
        if (shape.nnz == 0) // which cuSPARSE refuses
            return;
        X = longer(X);
        std::vector<Way<Kind>> ways = all(offers);
        if (chosen_ == kNone)
            chosen_ = choose(ways, entries, X);
        plan_.make(handle(), ways[chosen_], shape_, X, Y, wide_.as<float>());
    }

    // The call itself.
    void operator()(const T* Y) const {
        if (Y != result_)
            fail(Kind::kCall, "that another result was bound");
        if (shape_.nnz == 0)
            VENDOR_CHECK(cudaMemsetAsync(result_, 0, sizeof(T) * shape_.outputs()));
        else
            check(plan_(), Kind::kCall);
    }

    // A line for each way that was tried: the form, cuSPARSE's number of the algorithm, the type of its results, and what
    // came of it.
    const std::vector<std::string>& told() const { return told_; }

  private:
    static constexpr size_t kNone = ~size_t{0};

    static std::vector<Way<Kind>> all(const std::vector<Offer<Kind>>& offers) {
        std::vector<Way<Kind>> ways;
        for (bool wide : {false, true})
            for (const Offer<Kind>& offer : offers)
                for (typename Kind::Algorithm algorithm : offer.algorithms)
                    if (!wide || sizeof(T) == 2)
                        ways.push_back({offer.name, offer.form, offer.operation, algorithm, wide});
        return ways;
    }

    // As long as the matrix is described to be: what lies in no column is not to be read beyond the end either.
    const T* longer(const T* X) {
        if (shape_.described() == shape_.cols)
            return X;
        size_t bytes = sizeof(T) * shape_.cols * shape_.K, whole = sizeof(T) * shape_.described() * shape_.K;
        longer_.room(whole);
        VENDOR_CHECK(cudaMemset(longer_.get(), 0, whole));
        VENDOR_CHECK(cudaMemcpy(longer_.get(), X, bytes, cudaMemcpyDeviceToDevice));
        return longer_.as<T>();
    }

    static std::string named(const Way<Kind>& way) {
        return std::string(way.name) + ", algorithm " + std::to_string(way.algorithm) +
               (way.wide ? ", results in fp32: " : ": ");
    }

    size_t choose(const std::vector<Way<Kind>>& ways, const Entries<T>& entries, const T* X) {
        Sample<T> sample(shape_, entries, X);
        size_t bytes = sizeof(T) * shape_.outputs();
        Memory Y;
        Y.hold(bytes);
        if (ways.back().wide)
            wide_.room(sizeof(float) * shape_.outputs());
        wrong_.resize(ways.size(), false);
        std::vector<Plan<T, Kind>> plans(ways.size());
        std::vector<size_t> right, working;
        std::string refusal;
        told_.clear();
        for (size_t i = 0; i < ways.size(); ++i) {
            told_.push_back(named(ways[i]));
            try {
                plans[i].make(handle(), ways[i], shape_, X, Y.as<T>(), wide_.as<float>());
                VENDOR_CHECK(cudaMemset(Y.get(), 0xff, bytes)); // no number
                if (ways[i].wide)
                    VENDOR_CHECK(cudaMemset(wide_.get(), 0xff, sizeof(float) * shape_.outputs()));
                check(plans[i](), Kind::kCall);
                wrong_[i] = !sample.right(Y.as<T>()) || wrong_[i];
                working.push_back(i);
                if (!wrong_[i])
                    right.push_back(i);
                told_[i] += wrong_[i] ? "wrong" : "right";
            } catch (const std::exception& error) {
                told_[i] += error.what();
                cudaGetLastError();
                if (cudaError_t fault = cudaDeviceSynchronize(); fault != cudaSuccess)
                    throw std::runtime_error(told_[i] + "; no other way can be tried after " +
                                             cudaGetErrorName(fault));
                if (refusal.empty())
                    refusal = error.what();
            }
        }
        if (working.empty())
            throw std::runtime_error(refusal);
        if (right.empty())
            right = working;
        size_t last = right.front();
        auto works = [&](size_t one) {
            last = one;
            return plans[one]() == CUSPARSE_STATUS_SUCCESS;
        };
        try {
            right = fastest(right, ColdClock(), works);
        } catch (const std::exception& error) {
            throw std::runtime_error(named(ways[last]) + error.what());
        }
        Y.release();
        if (right.empty())
            fail(Kind::kCall, "no algorithm that works twice");
        told_[right.front()] += ", taken";
        if (!ways[right.front()].wide)
            wide_.release();
        return right.front();
    }

    Cusparse cusparse_;
    Shape shape_;
    T* result_ = nullptr;
    size_t chosen_ = kNone;
    std::vector<bool> wrong_; // ways, in any case so far
    std::vector<std::string> told_;
    Plan<T, Kind> plan_;
    Memory longer_, wide_;
};

// ---- Forms ----------------------------------------------------------------------------------------------------------

// cuSPARSE takes pointers to what it may write, and reads what they point to.
template <class T> T* writable(const T* data) {
    return const_cast<T*>(data);
}

template <class T> Form coo(const Shape& shape, const int* rows, const int* cols, const T* values) {
    return [=](cusparseSpMatDescr_t* made) {
        VENDOR_CHECK(cusparseCreateCoo(made, shape.rows, shape.described(), shape.nnz, writable(rows),
                                       writable(cols), writable(values), CUSPARSE_INDEX_32I,
                                       CUSPARSE_INDEX_BASE_ZERO, kTypeOf<T>));
    };
}

template <class T> Form csr(const Shape& shape, const int* offsets, const int* cols, const T* values) {
    return [=](cusparseSpMatDescr_t* made) {
        VENDOR_CHECK(cusparseCreateCsr(made, shape.rows, shape.described(), shape.nnz, writable(offsets),
                                       writable(cols), writable(values), CUSPARSE_INDEX_32I,
                                       CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, kTypeOf<T>));
    };
}

template <class T> Form csc(const Shape& shape, const int* offsets, const int* rows, const T* values) {
    return [=](cusparseSpMatDescr_t* made) {
        VENDOR_CHECK(cusparseCreateCsc(made, shape.rows, shape.described(), shape.nnz, writable(offsets),
                                       writable(rows), writable(values), CUSPARSE_INDEX_32I,
                                       CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, kTypeOf<T>));
    };
}

// The same arrays as the transpose in CSR.
template <class T> Form transposed(const Shape& shape, const int* offsets, const int* rows, const T* values) {
    return [=](cusparseSpMatDescr_t* made) {
        VENDOR_CHECK(cusparseCreateCsr(made, shape.described(), shape.rows, shape.nnz, writable(offsets),
                                       writable(rows), writable(values), CUSPARSE_INDEX_32I,
                                       CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, kTypeOf<T>));
    };
}

// What is tried for CSR. With K odd or below 8, where rows of X begin at odd elements or are shorter than a vector, it is
// ALG1 alone: with K = 5 in fp32 ALG3 ended with an invalid address, and with K = 3 in bf16 one of the ways did, in matrices
// of which one or two rows hold half of the entries (docs/vendor.md).
inline std::vector<cusparseSpMMAlg_t> csr_algorithms(const Shape& shape) {
#ifndef VENDOR_ALL_WAYS // for benchmarks/cusparse_ways.cu
    if (shape.K % 2 != 0 || shape.K < 8)
        return {CUSPARSE_SPMM_CSR_ALG1};
#endif
    return {CUSPARSE_SPMM_CSR_ALG1, CUSPARSE_SPMM_CSR_ALG2, CUSPARSE_SPMM_CSR_ALG3};
}

// Blocks of one element: the layout of the tasks.
template <class T> Form blocked_ell(const Shape& shape, int slots, const int* cols, const T* values) {
    return [=](cusparseSpMatDescr_t* made) {
        VENDOR_CHECK(cusparseCreateBlockedEll(made, shape.rows, shape.described(), 1, slots, writable(cols),
                                              writable(values), CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO,
                                              kTypeOf<T>));
    };
}

// Slices of `height` rows, column-major in a slice.
template <class T>
Form sliced_ell(const Shape& shape, long long height, long long stored, const int* offsets, const int* cols,
                const T* values) {
    return [=](cusparseSpMatDescr_t* made) {
        VENDOR_CHECK(cusparseCreateSlicedEll(
            made, shape.rows, shape.described(), shape.nnz, stored, height, writable(offsets), writable(cols),
            writable(values), CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, kTypeOf<T>));
    };
}

} // namespace vendor
