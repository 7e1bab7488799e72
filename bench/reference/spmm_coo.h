// Reference of spmm_coo in double precision: the entries are chained by row, and a row's chain is walked from
// its last entry to its first.
#pragma once
#include <vector>
#include "mskb/expected.h"

template <class T>
void spmm_coo_reference(int rows, int nnz, int K, const T* values, const int* row_indices,
                        const int* col_indices, const T* X, mskb::Expected& Y) {
    std::vector<int> last(rows, -1), before(nnz); // the last entry of a row, and the one before each entry
    for (int p = 0; p < nnz; ++p) {
        before[p] = last[row_indices[p]];
        last[row_indices[p]] = p;
    }
    for (size_t j = 0; j < Y.wanted.size(); ++j) {
        size_t row = Y.wanted[j] / K, k = Y.wanted[j] % K;
        mskb::AnyOrder sum;
        for (int p = last[row]; p >= 0; p = before[p]) {
            sum.add(mskb::to_double(values[p]) * mskb::to_double(X[col_indices[p] * size_t(K) + k]));
        }
        Y.set(j, sum.value(), sum.scale());
    }
}
