// Reference of matrix_power in double precision, row by row: a row of A is multiplied by A from the right
// until the power is reached; products are summed from the end. Nothing is rounded on the way.
//
// The scale of an element is the sum of the absolute terms of the last multiplication, with the true power
// P-1 on its left. In bf16 the P-2 powers on the way may be rounded too. That puts an error of up to 2^-9 of
// itself on every term, and the errors, which are independent, add up like the root of the sum of squares.
// The scale counts it with a weight of 2^12, because the least bound is 2^-21 of the scale: what a kernel may
// be off by is at least one such rounding, and otherwise a multiple of what the baseline's roundings make of
// it.
#pragma once
#include <cmath>
#include <vector>
#include "mskb/expected.h"

template <class T> void matrix_power_reference(const T* A, mskb::Expected& B, int N, int P) {
    constexpr double kRoundingWeight = sizeof(T) < sizeof(float) ? 4096.0 : 0.0;
    std::vector<double> row(N), scale(N), squares(N), before(N);
    size_t made = (size_t)N; // the row that is at hand; none yet
    for (size_t j = 0; j < B.wanted.size(); ++j) {
        size_t wanted = B.wanted[j] / N, col = B.wanted[j] % N;
        if (wanted != made) {
            made = wanted;
            for (int k = 0; k < N; ++k) {
                row[k] = mskb::to_double(A[wanted * N + k]);
                scale[k] = std::abs(row[k]);
            }
            for (int power = 2; power <= P; ++power) {
                before.swap(row);
                row.assign(N, 0.0);
                scale.assign(N, 0.0);
                squares.assign(N, 0.0);
                for (int k = N; k-- > 0;) {
                    const T* right = A + (size_t)k * N;
                    for (int c = 0; c < N; ++c) {
                        double term = before[k] * mskb::to_double(right[c]);
                        row[c] += term;
                        scale[c] += std::abs(term);
                        squares[c] += term * term;
                    }
                }
            }
            for (int k = 0; P > 2 && k < N; ++k)
                scale[k] += kRoundingWeight * std::sqrt((P - 2) * squares[k]);
        }
        B.set(j, row[col], scale[col]);
    }
}
