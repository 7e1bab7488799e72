// Reference of softmax_attention in double precision: a row at a time, all sums from the end.
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
void softmax_attention_reference(mskb::Expected& Y, const T* Q, const T* K, const T* V, int, int kv_seq_len,
                                 int dim_qk, int dim_v) {
    constexpr double kWeightRounding = sizeof(T) == 2 ? 0x1.0p15 : 0.0;
    std::vector<double> query(dim_qk), weight(kv_seq_len), sensitivity(kv_seq_len);
    std::vector<double> result(dim_v), terms(dim_v), squares(dim_v);
    size_t known = SIZE_MAX;
    for (size_t w = 0; w < Y.wanted.size(); ++w) {
        size_t row = Y.wanted[w] / dim_v, column = Y.wanted[w] % dim_v;
        if (row != known) {
            known = row;
            for (int d = 0; d < dim_qk; ++d)
                query[d] = mskb::to_double(Q[row * dim_qk + d]) / std::sqrt(double(dim_qk));
            double largest = -INFINITY, sum = 0;
            for (int j = 0; j < kv_seq_len; ++j) {
                weight[j] = sensitivity[j] = 0;
                for (int d = dim_qk; d-- > 0;) {
                    double term = query[d] * mskb::to_double(K[size_t(j) * dim_qk + d]);
                    weight[j] += term;
                    sensitivity[j] += std::abs(term);
                }
                largest = std::max(largest, weight[j]);
            }
            for (int j = kv_seq_len; j-- > 0;) {
                sensitivity[j] += largest - weight[j];
                weight[j] = std::exp(weight[j] - largest);
                sum += weight[j];
            }
            std::fill(result.begin(), result.end(), 0.0);
            std::fill(terms.begin(), terms.end(), 0.0);
            std::fill(squares.begin(), squares.end(), 0.0);
            for (int j = kv_seq_len; j-- > 0;) {
                weight[j] /= sum;
                for (int c = 0; c < dim_v; ++c)
                    result[c] += weight[j] * mskb::to_double(V[size_t(j) * dim_v + c]);
            }
            for (int j = kv_seq_len; j-- > 0;) {
                for (int c = 0; c < dim_v; ++c) {
                    double value = mskb::to_double(V[size_t(j) * dim_v + c]);
                    double term = weight[j] * value;
                    terms[c] += std::abs(term) + weight[j] * sensitivity[j] * std::abs(value - result[c]);
                    squares[c] += term * term;
                }
            }
        }
        Y.set(w, result[column], terms[column] + kWeightRounding * std::sqrt(squares[column]));
    }
}
