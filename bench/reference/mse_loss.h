// Reference of mse_loss in double precision: summed from the end, divided once.
#pragma once
#include "mskb/expected.h"

template <class T> void mse_loss_reference(mskb::Expected& loss, const T* X, const T* Y, int N) {
    double sum = 0;
    for (int i = N; i-- > 0;) {
        double difference = mskb::to_double(Y[i]) - mskb::to_double(X[i]);
        sum += difference * difference;
    }
    loss.set(0, sum / N, mskb::of_one_sign(sum / N, N));
}
