// Reference of mse_loss in double precision: summed from the end, divided once.
#pragma once
#include <algorithm>
#include <cmath>
#include "mskb/expected.h"

// No term is negative, so the running sum to which a kernel adds its blocks is of the result's own size, and
// the roundings of those additions walk away with the root of their number. The scale grows by an eighth of
// that root, for one addition per 256 elements: four times the sum at 2^18. More than three standard
// deviations then pass at the least bound, whichever way the baseline's own roundings happen to fall.
template <class T> void mse_loss_reference(mskb::Expected& loss, const T* X, const T* Y, int N) {
    double sum = 0;
    for (int i = N; i-- > 0;) {
        double difference = mskb::to_double(Y[i]) - mskb::to_double(X[i]);
        sum += difference * difference;
    }
    loss.set(0, sum / N, sum / N * std::max(1.0, std::sqrt(N / 256.0) / 8));
}
