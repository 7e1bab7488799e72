// A product by cuBLASLt: of all algorithms that its heuristic lists for a shape, the one that was fastest when measured.
#pragma once
#include <algorithm>
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <vector>
#include "mskb/timing.h"
#include "vendor/check.h"

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

// What is multiplied to measure, and the clock for it. The memory is given back: the calls to come have the device.
class Trials {
  public:
    Trials(size_t bytes_a, size_t bytes_b, size_t bytes_c) {
        A.hold(bytes_a), B.hold(bytes_b), C.hold(bytes_c), scratch_.hold(mskb::CacheFlush::bytes());
        VENDOR_CHECK(cudaEventCreate(&begin_)), VENDOR_CHECK(cudaEventCreate(&end_));
    }
    ~Trials() {
        cudaEventDestroy(begin_), cudaEventDestroy(end_);
        for (Memory* memory : {&A, &B, &C, &scratch_})
            memory->release();
    }
    Trials(const Trials&) = delete;
    Trials& operator=(const Trials&) = delete;

    // Milliseconds on the device, with cold caches. It is busy with the flush while the host launches.
    template <class Call> float time(const Call& call) const {
        mskb::CacheFlush{scratch_.as<unsigned char>()}();
        VENDOR_CHECK(cudaEventRecord(begin_));
        call();
        VENDOR_CHECK(cudaEventRecord(end_));
        VENDOR_CHECK(cudaEventSynchronize(end_));
        float milliseconds = 0;
        VENDOR_CHECK(cudaEventElapsedTime(&milliseconds, begin_, end_));
        return milliseconds;
    }

    Memory A, B, C;

  private:
    Memory scratch_;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
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
        Trials trials(m * k * sizeof(T), k * n * sizeof(T), m * n * sizeof(T));
        fill<T>(trials.A.get(), m * k);
        fill<T>(trials.B.get(), k * n);
        listed = fastest(listed, trials, kFirstCalls, kSecondRound);
        algorithm_ = fastest(listed, trials, kSecondCalls, 1).front();
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
    static constexpr int kFirstCalls = 3, kSecondCalls = 15;    // of each algorithm, after one to warm up
    static constexpr size_t kSecondRound = 5;                   // algorithms

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

    // The `keep` fastest, by the median of `calls`, in turn with each other and with cold caches. One that refuses is out.
    std::vector<Algorithm> fastest(const std::vector<Algorithm>& listed, const Trials& trials, int calls,
                                   size_t keep) const {
        std::vector<std::vector<float>> times(listed.size());
        std::vector<bool> refused(listed.size(), false);
        const T *A = trials.A.as<T>(), *B = trials.B.as<T>();
        T* C = trials.C.as<T>();
        for (int call = -1; call < calls; ++call)
            for (size_t i = 0; i < listed.size(); ++i) {
                if (refused[i])
                    continue;
                float time =
                    trials.time([&] { refused[i] = multiply(A, B, C, listed[i]) != CUBLAS_STATUS_SUCCESS; });
                if (call >= 0)
                    times[i].push_back(time);
            }
        cudaGetLastError(); // of those that refused
        std::vector<size_t> order;
        for (size_t i = 0; i < listed.size(); ++i) {
            std::sort(times[i].begin(), times[i].end());
            if (!refused[i])
                order.push_back(i);
        }
        if (order.empty())
            fail("cublasLtMatmulAlgoGetHeuristic(", "no algorithm that works");
        std::stable_sort(order.begin(), order.end(), [&](size_t one, size_t other) {
            return times[one][calls / 2] < times[other][calls / 2];
        });
        std::vector<Algorithm> kept;
        for (size_t i = 0; i < std::min(keep, order.size()); ++i)
            kept.push_back(listed[order[i]]);
        return kept;
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
