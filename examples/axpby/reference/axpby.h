// Reference of axpby in double precision.
#pragma once
#include <cmath>
#include "mskb/expected.h"

template <class T>
void axpby_reference(const T* x, const T* y, mskb::Expected& result, float alpha, float beta, int) {
    for (size_t j = 0; j < result.wanted.size(); ++j) {
        size_t i = result.wanted[j];
        double a = alpha * mskb::to_double(x[i]), b = beta * mskb::to_double(y[i]);
        result.set(j, a + b, std::abs(a) + std::abs(b));
    }
}
