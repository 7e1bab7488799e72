// Reference of max_pooling_2d: the part of each window that lies inside the plane, from its end; exact, so
// the scale is 0.
#pragma once
#include <algorithm>
#include "mskb/expected.h"

template <class T>
void max_pooling_2d_reference(const T* input, mskb::Expected& output, int, int, int H, int W, int kernel_size,
                              int stride, int padding) {
    size_t H_out = (H + 2 * padding - kernel_size) / stride + 1;
    size_t W_out = (W + 2 * padding - kernel_size) / stride + 1;
    for (size_t j = 0; j < output.wanted.size(); ++j) {
        size_t e = output.wanted[j];
        const T* plane = input + e / (H_out * W_out) * H * W;
        long long top = static_cast<long long>(e / W_out % H_out) * stride - padding;
        long long left = static_cast<long long>(e % W_out) * stride - padding;
        long long bottom = std::min<long long>(top + kernel_size, H) - 1;
        long long right = std::min<long long>(left + kernel_size, W) - 1;
        double largest = mskb::to_double(plane[bottom * W + right]);
        for (long long y = bottom; y >= std::max(top, 0LL); --y)
            for (long long x = right; x >= std::max(left, 0LL); --x)
                largest = std::max(largest, mskb::to_double(plane[y * W + x]));
        output.set(j, largest, 0.0);
    }
}
