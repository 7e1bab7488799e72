// Reference of square_matrix_mul in double precision: the right factor is transposed where many elements are wanted, and
// an element is summed from the end.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>
#include "mskb/expected.h"

template <class T> void square_matrix_mul_reference(const T* A, const T* B, mskb::Expected& C, int M) {
    constexpr size_t kTile = 64;                     // that stays in the caches
    bool few = C.wanted.size() < (size_t)M;          // so that the right factor is read as it lies
    std::vector<T> columns(few ? 0 : (size_t)M * M); // of it, one after the other
    for (size_t top = 0; !few && top < (size_t)M; top += kTile)
        for (size_t left = 0; left < (size_t)M; left += kTile)
            for (size_t col = left; col < std::min<size_t>(left + kTile, M); ++col)
                for (size_t k = top; k < std::min<size_t>(top + kTile, M); ++k)
                    columns[col * M + k] = B[k * M + col];
    for (size_t j = 0; j < C.wanted.size(); ++j) {
        const T* row = A + C.wanted[j] / M * M;
        size_t col = C.wanted[j] % M, step = few ? M : 1;
        const T* column = few ? B + col : columns.data() + col * M;
        double sum = 0, scale = 0;
        for (int k = M; k-- > 0;) {
            double term = mskb::to_double(row[k]) * mskb::to_double(column[k * step]);
            sum += term;
            scale += std::abs(term);
        }
        C.set(j, sum, scale);
    }
}
