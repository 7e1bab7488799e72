// Reference of cross_entropy_loss in double precision: summed from the end.
#pragma once
#include <algorithm>
#include <cmath>
#include "mskb/expected.h"

// A term's scale has the logarithm and the rounding of X amplified by it, which is what is left where X is
// near 1. No term is negative, so the running sum to which a kernel adds its blocks is of the result's own
// size, and the roundings of those additions walk away with the root of their number. The scale grows by an
// eighth of that root, for one addition per 256 elements: four times the sum at 2^18. More than three
// standard deviations then pass at the least bound, whichever way the baseline's own roundings happen to
// fall.
template <class T> void cross_entropy_loss_reference(mskb::Expected& loss, const T* X, const T* Y, int C) {
    double sum = 0, scale = 0;
    for (int i = C; i-- > 0;) {
        double y = mskb::to_double(Y[i]), logarithm = std::log(mskb::to_double(X[i]));
        sum -= y * logarithm;
        scale += y * (1 + std::abs(logarithm));
    }
    loss.set(0, sum, scale * std::max(1.0, std::sqrt(C / 256.0) / 8));
}
