// Reference of cross_entropy_loss in double precision: summed from the end.
#pragma once
#include <cmath>
#include "mskb/expected.h"

// A term's scale has the logarithm and the rounding of X amplified by it, which is what is left where X is
// near 1.
template <class T> void cross_entropy_loss_reference(mskb::Expected& loss, const T* X, const T* Y, int C) {
    double sum = 0, scale = 0;
    for (int i = C; i-- > 0;) {
        double y = mskb::to_double(Y[i]), logarithm = std::log(mskb::to_double(X[i]));
        sum -= y * logarithm;
        scale += y * (1 + std::abs(logarithm));
    }
    loss.set(0, sum, mskb::of_one_sign(scale, C));
}
