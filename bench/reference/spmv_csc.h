// Reference of spmv_csc in double precision: the entries are added to all rows at once, the last column
// first.
#pragma once
#include <vector>
#include "mskb/expected.h"

template <class T>
void spmv_csc_reference(int rows, int columns, const T* values, const int* row_indices,
                        const int* col_offsets, const T* x, mskb::Expected& y) {
    std::vector<mskb::AnyOrder> sums(rows);
    for (int column = columns; column-- > 0;) {
        for (int p = col_offsets[column + 1]; p-- > col_offsets[column];) {
            sums[row_indices[p]].add(mskb::to_double(values[p]) * mskb::to_double(x[column]));
        }
    }
    for (size_t j = 0; j < y.wanted.size(); ++j)
        y.set(j, sums[y.wanted[j]].value(), sums[y.wanted[j]].scale());
}
