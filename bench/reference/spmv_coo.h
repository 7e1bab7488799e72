// Reference of spmv_coo in double precision: the entries are added to all rows at once, the last one first.
#pragma once
#include <cmath>
#include <vector>
#include "mskb/expected.h"

template <class T>
void spmv_coo_reference(int rows, int nnz, const T* values, const int* row_indices, const int* col_indices,
                        const T* x, mskb::Expected& y) {
    std::vector<double> sum(rows, 0.0), scale(rows, 0.0);
    for (int p = nnz; p-- > 0;) {
        double term = mskb::to_double(values[p]) * mskb::to_double(x[col_indices[p]]);
        sum[row_indices[p]] += term;
        scale[row_indices[p]] += std::abs(term);
    }
    for (size_t j = 0; j < y.wanted.size(); ++j)
        y.set(j, sum[y.wanted[j]], scale[y.wanted[j]]);
}
