// Reference of spmv_csr in double precision: a row's entries are summed from its end.
#pragma once
#include "mskb/expected.h"

template <class T>
void spmv_csr_reference(int, const T* values, const int* col_indices, const int* row_offsets, const T* x,
                        mskb::Expected& y) {
    for (size_t j = 0; j < y.wanted.size(); ++j) {
        size_t row = y.wanted[j];
        mskb::AnyOrder sum;
        for (int p = row_offsets[row + 1]; p-- > row_offsets[row];) {
            sum.add(mskb::to_double(values[p]) * mskb::to_double(x[col_indices[p]]));
        }
        y.set(j, sum.value(), sum.scale());
    }
}
