// A product by cuBLASLt: of all algorithms that its heuristic lists for a shape, the one that was fastest when measured.
#pragma once
#include <algorithm>
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <numeric>
#include <vector>
#include "vendor/trials.h"

namespace vendor {

inline void check(cublasStatus_t status, const char* call) {
    if (status != CUBLAS_STATUS_SUCCESS)
        fail(call, cublasLtGetStatusName(status));
}

// Fills memory with numbers of -1 to 1, as the tasks' inputs are: zeros would need less power, and so would be faster.
template <class T> void fill(void* memory, size_t count) {
    std::vector<T> some(std::min<size_t>(count, 1 << 20)); // and again
    unsigned int bits = 1;
    for (T& value : some) {
        bits ^= bits << 13, bits ^= bits >> 17, bits ^= bits << 5;
        value = static_cast<T>(static_cast<float>(bits >> 8) / (1 << 23) - 1.0f);
    }
    for (size_t first = 0; first < count; first += some.size())
        VENDOR_CHECK(cudaMemcpy(static_cast<T*>(memory) + first, some.data(),
                                sizeof(T) * std::min(some.size(), count - first), cudaMemcpyHostToDevice));
}

// What is multiplied to measure. The memory is given back: the calls to come have the device.
struct Factors {
    Factors(size_t bytes_a, size_t bytes_b, size_t bytes_c) {
        A.hold(bytes_a), B.hold(bytes_b), C.hold(bytes_c);
    }
    ~Factors() {
        for (Memory* memory : {&A, &B, &C})
            memory->drop();
    }
    Factors(const Factors&) = delete;
    Factors& operator=(const Factors&) = delete;

    Memory A, B, C;
};

// C = A B of row-major matrices of T, A: m x k, B: k x n, with sums in fp32.
template <class T> class Product {
  public:
    // Chooses an algorithm, unless it is there for these sizes. `schemes`: the cublasLtReductionScheme_t that are allowed.
    void choose(long long m, long long n, long long k, unsigned int schemes) {
        if (handle_ == nullptr) {
            VENDOR_CHECK(cublasLtCreate(&handle_));
            workspace_.hold(kWorkspaceBytes);
        }
        if (m == m_ && n == n_ && k == k_)
            return;
        describe(m, n, k);
        std::vector<Algorithm> listed = algorithms(schemes);
        Factors factors(m * k * sizeof(T), k * n * sizeof(T), m * n * sizeof(T));
        fill<T>(factors.A.get(), m * k);
        fill<T>(factors.B.get(), k * n);
        std::vector<size_t> all(listed.size());
        std::iota(all.begin(), all.end(), size_t{0});
        const T *A = factors.A.as<T>(), *B = factors.B.as<T>();
        all = fastest(all, ColdClock(), [&](size_t one) {
            return multiply(A, B, factors.C.as<T>(), listed[one]) == CUBLAS_STATUS_SUCCESS;
        });
        if (all.empty())
            fail("cublasLtMatmulAlgoGetHeuristic(", "no algorithm that works");
        algorithm_ = listed[all.front()];
        m_ = m, n_ = n, k_ = k;
    }

    void operator()(const T* A, const T* B, T* C) const {
        check(multiply(A, B, C, algorithm_), "cublasLtMatmul(");
    }

  private:
    using Algorithm = cublasLtMatmulAlgo_t;
    static constexpr cudaDataType kType = sizeof(T) == 2 ? CUDA_R_16BF : CUDA_R_32F;
    static constexpr size_t kWorkspaceBytes = size_t{32} << 20; // as cuBLAS takes by default on sm_90
    static constexpr int kMostAlgorithms = 256;                 // more than it has listed so far

    void describe(long long m, long long n, long long k) {
        if (product_ == nullptr)
            VENDOR_CHECK(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F)); // no TF32
        // Layouts are by columns, so a row-major matrix is its transpose there: C^T (n x m) = B^T (n x k) A^T (k x m).
        layout(a_, k, m), layout(b_, n, k), layout(c_, n, m);
    }

    static void layout(cublasLtMatrixLayout_t& made, long long rows, long long cols) {
        if (made != nullptr)
            VENDOR_CHECK(cublasLtMatrixLayoutDestroy(made));
        VENDOR_CHECK(cublasLtMatrixLayoutCreate(&made, kType, rows, cols, rows));
    }

    std::vector<Algorithm> algorithms(unsigned int schemes) const {
        cublasLtMatmulPreference_t wanted;
        VENDOR_CHECK(cublasLtMatmulPreferenceCreate(&wanted));
        VENDOR_CHECK(cublasLtMatmulPreferenceSetAttribute(wanted, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                          &kWorkspaceBytes, sizeof kWorkspaceBytes));
        VENDOR_CHECK(cublasLtMatmulPreferenceSetAttribute(wanted, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                          &schemes, sizeof schemes));
        std::vector<cublasLtMatmulHeuristicResult_t> results(kMostAlgorithms);
        int count = 0;
        VENDOR_CHECK(cublasLtMatmulAlgoGetHeuristic(handle_, product_, b_, a_, c_, c_, wanted,
                                                    kMostAlgorithms, results.data(), &count));
        VENDOR_CHECK(cublasLtMatmulPreferenceDestroy(wanted));
        std::vector<Algorithm> found;
        for (int i = 0; i < count; ++i)
            if (results[i].state == CUBLAS_STATUS_SUCCESS)
                found.push_back(results[i].algo);
        return found;
    }

    cublasStatus_t multiply(const T* A, const T* B, T* C, const Algorithm& algorithm) const {
        const float one = 1.0f, zero = 0.0f;
        return cublasLtMatmul(handle_, product_, &one, B, b_, A, a_, &zero, C, c_, C, c_, &algorithm,
                              workspace_.get(), kWorkspaceBytes, nullptr);
    }

    cublasLtHandle_t handle_ = nullptr;
    Memory workspace_;
    cublasLtMatmulDesc_t product_ = nullptr;
    cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
    Algorithm algorithm_;
    long long m_ = 0, n_ = 0, k_ = 0; // that the algorithm is for
};

// Sums of a product that is split stay in fp32 until they are whole: an element is rounded once, as the card asks.
constexpr unsigned int kRoundedOnce = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
constexpr unsigned int kAnyScheme = CUBLASLT_REDUCTION_SCHEME_MASK;

} // namespace vendor
