// Reference of spmm_ell in double precision: a row's slots are summed from its end, padding left out.
#pragma once
#include "mskb/expected.h"

template <class T>
void spmm_ell_reference(int, int max_nnz_per_row, int K, const T* values, const int* col_ids, const T* X,
                        mskb::Expected& Y) {
    for (size_t j = 0; j < Y.wanted.size(); ++j) {
        size_t row = Y.wanted[j] / K, k = Y.wanted[j] % K;
        size_t first = row * size_t(max_nnz_per_row);
        mskb::AnyOrder sum;
        for (size_t slot = first + max_nnz_per_row; slot-- > first;) {
            if (col_ids[slot] < 0)
                continue;
            sum.add(mskb::to_double(values[slot]) * mskb::to_double(X[col_ids[slot] * size_t(K) + k]));
        }
        Y.set(j, sum.value(), sum.scale());
    }
}
