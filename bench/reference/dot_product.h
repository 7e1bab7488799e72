// Reference of dot_product in double precision: summed from the end.
#pragma once
#include <cmath>
#include "mskb/expected.h"

template <class T> void dot_product_reference(mskb::Expected& out, const T* X, const T* Y, int N) {
    double sum = 0, scale = 0;
    for (int i = N; i-- > 0;) {
        double term = mskb::to_double(X[i]) * mskb::to_double(Y[i]);
        sum += term;
        scale += std::abs(term);
    }
    out.set(0, sum, scale);
}
