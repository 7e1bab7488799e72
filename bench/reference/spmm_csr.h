// Reference of spmm_csr in double precision: a row's entries are summed from its end.
#pragma once
#include "mskb/expected.h"

template <class T>
void spmm_csr_reference(int, int K, const T* values, const int* col_indices, const int* row_offsets,
                        const T* X, mskb::Expected& Y) {
    for (size_t j = 0; j < Y.wanted.size(); ++j) {
        size_t row = Y.wanted[j] / K, k = Y.wanted[j] % K;
        mskb::AnyOrder sum;
        for (int p = row_offsets[row + 1]; p-- > row_offsets[row];) {
            sum.add(mskb::to_double(values[p]) * mskb::to_double(X[col_indices[p] * size_t(K) + k]));
        }
        Y.set(j, sum.value(), sum.scale());
    }
}
