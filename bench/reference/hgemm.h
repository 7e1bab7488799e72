// References of the suite hgemm in double precision, for both layouts of the right factor: an element is summed from the
// end, and a factor that lies row by row is transposed where many elements are wanted.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>
#include "mskb/expected.h"

// B column by column: what is summed for an element lies side by side.
template <class T> void hgemm_tn_reference(const T* A, const T* B, mskb::Expected& C, int, int N, int K) {
    for (size_t j = 0; j < C.wanted.size(); ++j) {
        const T *row = A + C.wanted[j] / N * K, *column = B + C.wanted[j] % N * K;
        double sum = 0, scale = 0;
        for (int k = K; k-- > 0;) {
            double term = mskb::to_double(row[k]) * mskb::to_double(column[k]);
            sum += term;
            scale += std::abs(term);
        }
        C.set(j, sum, scale);
    }
}

// B row by row.
template <class T> void hgemm_nn_reference(const T* A, const T* B, mskb::Expected& C, int, int N, int K) {
    constexpr size_t kTile = 64;                     // that stays in the caches
    bool few = C.wanted.size() < (size_t)N;          // so that the right factor is read as it lies
    std::vector<T> columns(few ? 0 : (size_t)N * K); // of it, one after the other
    for (size_t top = 0; !few && top < (size_t)K; top += kTile)
        for (size_t left = 0; left < (size_t)N; left += kTile)
            for (size_t col = left; col < std::min<size_t>(left + kTile, N); ++col)
                for (size_t k = top; k < std::min<size_t>(top + kTile, K); ++k)
                    columns[col * K + k] = B[k * N + col];
    for (size_t j = 0; j < C.wanted.size(); ++j) {
        const T* row = A + C.wanted[j] / N * K;
        size_t col = C.wanted[j] % N, step = few ? N : 1;
        const T* column = few ? B + col : columns.data() + col * K;
        double sum = 0, scale = 0;
        for (int k = K; k-- > 0;) {
            double term = mskb::to_double(row[k]) * mskb::to_double(column[k * step]);
            sum += term;
            scale += std::abs(term);
        }
        C.set(j, sum, scale);
    }
}
