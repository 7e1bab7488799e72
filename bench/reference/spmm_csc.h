// Reference of spmm_csc in double precision: the entries are chained by row, and a row's chain is walked from
// its last column to its first.
#pragma once
#include <vector>
#include "mskb/expected.h"

template <class T>
void spmm_csc_reference(int rows, int columns, int K, const T* values, const int* row_indices,
                        const int* col_offsets, const T* X, mskb::Expected& Y) {
    int nnz = col_offsets[columns];
    std::vector<int> last(rows, -1), before(nnz); // the last entry of a row, and the one before each entry
    std::vector<int> column_of(nnz);
    for (int column = 0; column < columns; ++column) {
        for (int p = col_offsets[column]; p < col_offsets[column + 1]; ++p) {
            column_of[p] = column;
            before[p] = last[row_indices[p]];
            last[row_indices[p]] = p;
        }
    }
    for (size_t j = 0; j < Y.wanted.size(); ++j) {
        size_t row = Y.wanted[j] / K, k = Y.wanted[j] % K;
        mskb::AnyOrder sum;
        for (int p = last[row]; p >= 0; p = before[p]) {
            sum.add(mskb::to_double(values[p]) * mskb::to_double(X[column_of[p] * size_t(K) + k]));
        }
        Y.set(j, sum.value(), sum.scale());
    }
}
