// Reference of fft in double precision: recursive decimation in frequency.
//
// Every output is a sum of all inputs, so the sum of its absolute terms is the same for all and about sqrt(N)
// times as large as an output: the error of a fast transform grows with log N instead and stays far below.
// The scale is therefore the root of the sum of |x[n]|^2, which is the root mean square of the outputs.
// Twiddle factors of fewer bits or a wrong point show on it whatever N is.
#pragma once
#include <cmath>
#include <complex>
#include <vector>
#include "mskb/expected.h"

namespace fft_reference_parts {

// Transforms x[0 .. n-1] into X[0], X[step], X[2 * step] ...; x is used up.
inline void transform(std::complex<double>* x, std::complex<double>* X, size_t n, size_t step) {
    if (n == 1) {
        X[0] = x[0];
        return;
    }
    size_t half = n / 2;
    for (size_t i = 0; i < half; ++i) {
        std::complex<double> sum = x[i] + x[i + half], difference = x[i] - x[i + half];
        double angle = -2 * std::acos(-1.0) * static_cast<double>(i) / static_cast<double>(n);
        x[i] = sum;
        x[i + half] = difference * std::complex<double>(std::cos(angle), std::sin(angle));
    }
    transform(x, X, half, 2 * step);
    transform(x + half, X + step, half, 2 * step);
}

} // namespace fft_reference_parts

template <class T>
void fft_reference(const T* input_real, const T* input_img, mskb::Expected& output_real,
                   mskb::Expected& output_img, int N) {
    std::vector<std::complex<double>> x(N), X(N);
    double squares = 0;
    for (int n = 0; n < N; ++n) {
        x[n] = {mskb::to_double(input_real[n]), mskb::to_double(input_img[n])};
        squares += std::norm(x[n]);
    }
    fft_reference_parts::transform(x.data(), X.data(), N, 1);
    double scale = std::sqrt(squares);
    for (size_t j = 0; j < output_real.wanted.size(); ++j)
        output_real.set(j, X[output_real.wanted[j]].real(), scale);
    for (size_t j = 0; j < output_img.wanted.size(); ++j)
        output_img.set(j, X[output_img.wanted[j]].imag(), scale);
}
