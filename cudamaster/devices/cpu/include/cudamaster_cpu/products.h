// How tensor cores are computed here, for mma.h and inline PTX alike: products of the inputs are exact in double, sums are
// kept in double, one element of k after the other, and rounded to the accumulator's type at the end.
#pragma once

#include "cudamaster_cpu/observed.h"

namespace cudamaster_cpu {

// A row of the product is added to what `sums` holds.
template <int n, int k>
CUDAMASTER_CPU_PART inline void add_products(double (&sums)[n], const double (&a)[k],
                                             const double (&b)[k][n]) {
    for (int inner = 0; inner < k; ++inner)
        for (int column = 0; column < n; ++column)
            sums[column] += a[inner] * b[inner][column];
}

} // namespace cudamaster_cpu
