// Reference of relu: a selection, exact, so the scale is 0.
#pragma once
#include "mskb/expected.h"

template <class T> void relu_reference(mskb::Expected& output, const T* input, int) {
    for (size_t j = 0; j < output.wanted.size(); ++j) {
        double x = mskb::to_double(input[output.wanted[j]]);
        output.set(j, x > 0 ? x : 0.0, 0.0);
    }
}
