// Reference of swiglu in double precision: the swish with the exponential of the side that does not overflow.
//
// A rounding of beta * g changes the sigmoid s by |beta * g| * (1 - s) times as much. A sigmoid whose
// exponential overflows fp32 may be zero; fast division makes it so a little earlier, near 2^-125.
#pragma once
#include <cmath>
#include "mskb/expected.h"

template <class T>
void swiglu_reference(mskb::Expected& output, const T* gate_input, const T* value_input, float beta, int) {
    constexpr double kOverflown = 0x1.0p-103; // times the least bound, 2^-21, it is 2^-124
    for (size_t k = 0; k < output.wanted.size(); ++k) {
        double gate = mskb::to_double(gate_input[output.wanted[k]]);
        double product = gate * mskb::to_double(value_input[output.wanted[k]]);
        double steep = beta * gate, tail = std::exp(-std::abs(steep));
        double sigmoid = (steep < 0 ? tail : 1) / (1 + tail), rest = (steep < 0 ? 1 : tail) / (1 + tail);
        double sensitivity = sigmoid * (1 + std::abs(steep) * rest) + kOverflown;
        output.set(k, product * sigmoid, std::abs(product) * sensitivity);
    }
}
