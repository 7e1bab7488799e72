// A cuBLAS handle that is made once, with a work space of its own, so that no call allocates.
#pragma once
#include <cublas_v2.h>
#include "vendor/check.h"

namespace vendor {

inline void check(cublasStatus_t status, const char* call) {
    if (status != CUBLAS_STATUS_SUCCESS)
        fail(call, cublasGetStatusName(status));
}

// Of the stream that the harness uses too, the legacy default one. Scalars (alpha, beta) come from the host.
class Cublas {
  public:
    void open(int math_mode) {
        if (handle_ != nullptr)
            return;
        VENDOR_CHECK(cublasCreate(&handle_));
        VENDOR_CHECK(cublasSetMathMode(handle_, static_cast<cublasMath_t>(math_mode)));
        workspace_.hold(kWorkspaceBytes);
        VENDOR_CHECK(cublasSetWorkspace(handle_, workspace_.get(), kWorkspaceBytes));
    }
    cublasHandle_t get() const { return handle_; }

  private:
    static constexpr size_t kWorkspaceBytes = size_t{32}
                                              << 20; // what cuBLAS takes by default on sm_90; 4 MiB before

    cublasHandle_t handle_ = nullptr;
    Memory workspace_;
};

// Products in fp32, without TF32.
constexpr int kFp32 = CUBLAS_DEFAULT_MATH;
// Sums of a product that is split stay in fp32 until they are whole: an element is rounded once, as the card asks.
constexpr int kRoundedOnce = CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;

} // namespace vendor
