// Reference of top_k: a heap of the k best (value, index) pairs, sorted at the end; exact, so the scale is 0.
#pragma once
#include <algorithm>
#include <utility>
#include <vector>
#include "mskb/expected.h"

template <class T>
void top_k_reference(mskb::Expected& top_k_values, mskb::Expected& top_k_indices, const T* input, int N,
                     int k) {
    using Pair = std::pair<double, int>;
    auto before = [](const Pair& a, const Pair& b) {
        return a.first > b.first || (a.first == b.first && a.second < b.second);
    };
    std::vector<Pair> best; // the heap's front is the worst of them
    for (int i = 0; i < N; ++i) {
        Pair pair(mskb::to_double(input[i]), i);
        if (static_cast<int>(best.size()) == k) {
            if (!before(pair, best.front()))
                continue;
            std::pop_heap(best.begin(), best.end(), before);
            best.pop_back();
        }
        best.push_back(pair);
        std::push_heap(best.begin(), best.end(), before);
    }
    std::sort_heap(best.begin(), best.end(), before);
    for (size_t j = 0; j < top_k_values.wanted.size(); ++j)
        top_k_values.set(j, best[top_k_values.wanted[j]].first, 0.0);
    for (size_t j = 0; j < top_k_indices.wanted.size(); ++j)
        top_k_indices.set(j, best[top_k_indices.wanted[j]].second, 0.0);
}
