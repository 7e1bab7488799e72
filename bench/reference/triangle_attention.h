// Reference of triangle_attention in double precision: a row at a time over the keys that it may see, all
// sums from the end.
//
// Scale of an element: the absolute terms of the weighted sum, and what the roundings of the scores do to it.
// A score is off by roundings of its own absolute terms and of its distance from the maximum; that changes
// the weight of its key by as much, relatively, and the result by the difference between the key's value and
// the result.
//
// In bf16 the weights may be rounded to bf16, by 2^15 ulps of fp32 at most. Those roundings are independent
// of each other, so they add up like random numbers: the root of the sum of the squares, not the sum, times
// 2^15.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>
#include "mskb/expected.h"

template <class T>
void triangle_attention_reference(const T* query, const T* key, const T* value, const float* attention_mask,
                                  mskb::Expected& output, int, int head_num, int seq_length, int head_dim) {
    constexpr double kWeightRounding = sizeof(T) == 2 ? 0x1.0p15 : 0.0;
    struct Seen {
        int j;
        double weight, sensitivity;
    };
    std::vector<Seen> keys;
    std::vector<double> result(head_dim), terms(head_dim), squares(head_dim);
    size_t known = SIZE_MAX;
    for (size_t w = 0; w < output.wanted.size(); ++w) {
        size_t row = output.wanted[w] / head_dim, column = output.wanted[w] % head_dim;
        if (row != known) {
            known = row;
            size_t i = row % seq_length, head = row / seq_length, batch = head / head_num;
            const T* q = query + row * head_dim;
            const T* head_keys = key + head * seq_length * head_dim;
            const T* head_values = value + head * seq_length * head_dim;
            const float* excluded = attention_mask + (batch * seq_length + i) * seq_length;
            double largest = -INFINITY, sum = 0;
            keys.clear();
            for (int j = static_cast<int>(i); j >= 0; --j) {
                if (excluded[j] > 0.5f)
                    continue;
                Seen seen{j, 0, 0};
                for (int d = head_dim; d-- > 0;) {
                    double term =
                        mskb::to_double(q[d]) * mskb::to_double(head_keys[size_t(j) * head_dim + d]);
                    seen.weight += term / std::sqrt(double(head_dim));
                    seen.sensitivity += std::abs(term) / std::sqrt(double(head_dim));
                }
                largest = std::max(largest, seen.weight);
                keys.push_back(seen);
            }
            for (Seen& seen : keys) {
                seen.sensitivity += largest - seen.weight;
                seen.weight = std::exp(seen.weight - largest);
                sum += seen.weight;
            }
            std::fill(result.begin(), result.end(), 0.0);
            std::fill(terms.begin(), terms.end(), 0.0);
            std::fill(squares.begin(), squares.end(), 0.0);
            for (Seen& seen : keys) {
                seen.weight /= sum;
                for (int c = 0; c < head_dim; ++c)
                    result[c] += seen.weight * mskb::to_double(head_values[size_t(seen.j) * head_dim + c]);
            }
            for (const Seen& seen : keys) {
                for (int c = 0; c < head_dim; ++c) {
                    double v = mskb::to_double(head_values[size_t(seen.j) * head_dim + c]);
                    double term = seen.weight * v;
                    terms[c] += std::abs(term) + seen.weight * seen.sensitivity * std::abs(v - result[c]);
                    squares[c] += term * term;
                }
            }
        }
        output.set(w, result[column], terms[column] + kWeightRounding * std::sqrt(squares[column]));
    }
}
