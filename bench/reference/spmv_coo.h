// Reference of spmv_coo in double precision: the entries are added to all rows at once, the last one first.
#pragma once
#include <vector>
#include "mskb/expected.h"

template <class T>
void spmv_coo_reference(int rows, int nnz, const T* values, const int* row_indices, const int* col_indices,
                        const T* x, mskb::Expected& y) {
    std::vector<mskb::AnyOrder> sums(rows);
    for (int p = nnz; p-- > 0;) {
        sums[row_indices[p]].add(mskb::to_double(values[p]) * mskb::to_double(x[col_indices[p]]));
    }
    for (size_t j = 0; j < y.wanted.size(); ++j)
        y.set(j, sums[y.wanted[j]].value(), sums[y.wanted[j]].scale());
}
