// Reference of hinge_loss in double precision: the target as a sign.
#pragma once
#include <algorithm>
#include <cmath>
#include "mskb/expected.h"

template <class T>
void hinge_loss_reference(mskb::Expected& loss, const T* predictions, const int* targets, int) {
    for (size_t j = 0; j < loss.wanted.size(); ++j) {
        size_t i = loss.wanted[j];
        double p = mskb::to_double(predictions[i]), sign = targets[i] == 1 ? 1 : -1;
        loss.set(j, std::max(1 - sign * p, 0.0), 1 + std::abs(p));
    }
}
