// Reference of merge_attn_states in double precision, from the distance of the two LSEs: the weight of the
// smaller one is 1 / (1 + exp(distance)).
//
// A rounding of the distance changes the weights by the product of both times the distance as much. The
// logarithm is taken of a sum of size 1, whose rounding is in the result whatever the LSEs are. Weights below
// the smallest normal fp32 number may be zero.
#pragma once
#include <algorithm>
#include <cmath>
#include "mskb/expected.h"

template <class T>
void merge_attn_states_reference(mskb::Expected& V_out, mskb::Expected& LSE_out, const T* V_a, const T* lse_a,
                                 const T* V_b, const T* lse_b, int num_tokens, int num_heads, int head_size) {
    constexpr double kFlushed = 0x1.0p-105; // times the least bound, 2^-21, it is 2^-126
    for (size_t k = 0; k < V_out.wanted.size(); ++k) {
        size_t e = V_out.wanted[k];
        size_t head = e / head_size % num_heads, token = e / head_size / num_heads;
        double a = mskb::to_double(V_a[e]), b = mskb::to_double(V_b[e]);
        double lead = mskb::to_double(lse_a[head * num_tokens + token]) -
                      mskb::to_double(lse_b[head * num_tokens + token]);
        double smaller = 1 / (1 + std::exp(std::abs(lead))), larger = 1 / (1 + std::exp(-std::abs(lead)));
        double part_a = a * (lead < 0 ? smaller : larger), part_b = b * (lead < 0 ? larger : smaller);
        double shift = smaller * larger * std::abs(lead) * std::abs(a - b);
        V_out.set(k, part_a + part_b,
                  std::abs(part_a) + std::abs(part_b) + shift + kFlushed * (std::abs(a) + std::abs(b)));
    }
    for (size_t k = 0; k < LSE_out.wanted.size(); ++k) {
        double a = mskb::to_double(lse_a[LSE_out.wanted[k]]), b = mskb::to_double(lse_b[LSE_out.wanted[k]]);
        double larger = std::max(a, b), distance = std::abs(a - b);
        double smaller_weight = 1 / (1 + std::exp(distance));
        LSE_out.set(k, larger + std::log1p(std::exp(-distance)),
                    std::abs(larger) + 1 + smaller_weight * distance);
    }
}
