// Reference of reverse_array; exact, so the scale is 0.
#pragma once
#include "mskb/expected.h"

template <class T> void reverse_array_reference(mskb::Expected& output, const T* input, int N) {
    for (size_t j = 0; j < output.wanted.size(); ++j)
        output.set(j, mskb::to_double(input[N - 1 - output.wanted[j]]), 0.0);
}
