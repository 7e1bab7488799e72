// Reference of spmv_csc in double precision: the entries are added to all rows at once, the last column
// first.
#pragma once
#include <cmath>
#include <vector>
#include "mskb/expected.h"

template <class T>
void spmv_csc_reference(int rows, int columns, const T* values, const int* row_indices,
                        const int* col_offsets, const T* x, mskb::Expected& y) {
    std::vector<double> sum(rows, 0.0), scale(rows, 0.0);
    for (int column = columns; column-- > 0;) {
        for (int p = col_offsets[column + 1]; p-- > col_offsets[column];) {
            double term = mskb::to_double(values[p]) * mskb::to_double(x[column]);
            sum[row_indices[p]] += term;
            scale[row_indices[p]] += std::abs(term);
        }
    }
    for (size_t j = 0; j < y.wanted.size(); ++j)
        y.set(j, sum[y.wanted[j]], scale[y.wanted[j]]);
}
