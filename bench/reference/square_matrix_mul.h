// Reference of square_matrix_mul in double precision: the right factor is transposed, and an element is summed
// from the end.
#pragma once
#include <cmath>
#include <vector>
#include "mskb/expected.h"

template <class T> void square_matrix_mul_reference(const T* A, const T* B, mskb::Expected& C, int M) {
    std::vector<T> columns((size_t)M * M); // of B, one after the other
    for (size_t k = 0; k < (size_t)M; ++k)
        for (size_t col = 0; col < (size_t)M; ++col)
            columns[col * M + k] = B[k * M + col];
    for (size_t j = 0; j < C.wanted.size(); ++j) {
        const T* row = A + C.wanted[j] / M * M;
        const T* column = columns.data() + C.wanted[j] % M * M;
        double sum = 0, scale = 0;
        for (int k = M; k-- > 0;) {
            double term = mskb::to_double(row[k]) * mskb::to_double(column[k]);
            sum += term;
            scale += std::abs(term);
        }
        C.set(j, sum, scale);
    }
}
