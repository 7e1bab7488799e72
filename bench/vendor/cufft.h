// A cuFFT plan for complex numbers whose real and imaginary parts lie in pairs, and the memory that they lie in.
#pragma once
#include <cufft.h>
#include "vendor/check.h"

namespace vendor {

inline void check(cufftResult status, const char* call) {
    if (status != CUFFT_SUCCESS)
        fail(call, ("cufftResult " + std::to_string(static_cast<int>(status))).c_str());
}

// One transform of n complex fp32 numbers, in place, on the stream that the harness uses too, the legacy default one.
class ComplexPlan {
  public:
    // The plan brings its own work space.
    void make(long long n) {
        if (made_)
            VENDOR_CHECK(cufftDestroy(plan_));
        made_ = false;
        VENDOR_CHECK(cufftPlan1d(&plan_, static_cast<int>(n), CUFFT_C2C, 1));
        made_ = true;
        points_.hold(n * sizeof(cufftComplex));
    }
    cufftComplex* points() const { return points_.as<cufftComplex>(); }
    void forward() const { VENDOR_CHECK(cufftExecC2C(plan_, points(), points(), CUFFT_FORWARD)); }

  private:
    cufftHandle plan_ = 0;
    bool made_ = false;
    Memory points_;
};

} // namespace vendor
