// Reference of sorting: a heap sort of the values as doubles; exact, so the scale is 0.
#pragma once
#include <algorithm>
#include <vector>
#include "mskb/expected.h"

template <class T> void sorting_reference(const T* before, mskb::Expected& after, int N) {
    std::vector<double> sorted(N);
    for (int i = 0; i < N; ++i)
        sorted[i] = mskb::to_double(before[i]);
    std::make_heap(sorted.begin(), sorted.end());
    std::sort_heap(sorted.begin(), sorted.end());
    for (size_t j = 0; j < after.wanted.size(); ++j)
        after.set(j, sorted[after.wanted[j]], 0.0);
}
