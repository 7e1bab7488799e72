// Reference of spmv_ell in double precision: a row's slots are summed from its end, padding left out.
#pragma once
#include "mskb/expected.h"

template <class T>
void spmv_ell_reference(int, int max_nnz_per_row, const T* values, const int* col_ids, const T* x,
                        mskb::Expected& y) {
    for (size_t j = 0; j < y.wanted.size(); ++j) {
        size_t first = y.wanted[j] * size_t(max_nnz_per_row);
        mskb::AnyOrder sum;
        for (size_t slot = first + max_nnz_per_row; slot-- > first;) {
            if (col_ids[slot] < 0)
                continue;
            sum.add(mskb::to_double(values[slot]) * mskb::to_double(x[col_ids[slot]]));
        }
        y.set(j, sum.value(), sum.scale());
    }
}
