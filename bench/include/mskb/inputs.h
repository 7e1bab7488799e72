// Input generators that task cards name. The first argument is the buffer to fill; further buffers are
// outputs of the generator too. All are on the host and deterministic given the Rng.
#pragma once
#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>
#include "mskb/number.h"
#include "mskb/random.h"

namespace mskb {

// A host buffer with its length, as the generators see it.
template <class T> struct Span {
    T* data;
    size_t size;
    T& operator[](size_t i) const { return data[i]; }
};

template <class T> void uniform(Rng& rng, Span<T> out, double low, double high) {
    for (size_t i = 0; i < out.size; ++i)
        out[i] = from_double<T>(rng.uniform(low, high));
}

// Uniform, but about one element in 256 (at least one) is 16 to 64 times the range, of either sign: the sum
// is made by few elements at places that can't be guessed, so that sampling, a skipped block or a product
// rounded to fewer bits shows.
template <class T> void spiked(Rng& rng, Span<T> out, double low, double high) {
    uniform(rng, out, low, high);
    size_t spikes = std::max<size_t>(out.size / 256, 1);
    for (size_t k = 0; k < spikes; ++k) {
        double magnitude = rng.uniform(16, 64) * std::max(std::abs(low), std::abs(high));
        out[rng.below(out.size)] = from_double<T>(low < 0 && rng.bits() % 2 ? -magnitude : magnitude);
    }
}

// Structure of a CSR matrix: entries spread over the rows at random, every row at least one unless
// `empty_rows`; columns at random, so a row may repeat a column and is in no order.
inline void csr(Rng& rng, Span<int> row_offsets, Span<int> col_indices, long long rows, long long cols,
                long long nnz, long long empty_rows) {
    std::vector<int> lengths(rows, empty_rows ? 0 : 1);
    for (long long k = empty_rows ? 0 : rows; k < nnz; ++k)
        ++lengths[rng.below(rows)];
    if (empty_rows && nnz > 0) { // make sure that there is one, also where chance would not
        long long emptied = rng.below(rows), heir = (emptied + 1) % rows;
        if (heir != emptied)
            lengths[heir] += std::exchange(lengths[emptied], 0);
    }
    row_offsets[0] = 0;
    std::partial_sum(lengths.begin(), lengths.end(), &row_offsets[1]);
    for (long long k = 0; k < nnz; ++k)
        col_indices[k] = static_cast<int>(rng.below(cols));
}

// Sequences to sort. order 0: random; 1: few distinct values; 2: ascending; 3: descending; 4: all equal;
// 5: large and tiny magnitudes, infinities and both zeros.
template <class T> void sequence(Rng& rng, Span<T> out, long long order) {
    uniform(rng, out, -1, 1);
    for (size_t i = 0; i < out.size; ++i) {
        if (order == 1)
            out[i] = from_double<T>(static_cast<double>(rng.below(5)) - 2);
        if (order == 4)
            out[i] = from_double<T>(0.5);
        if (order == 5) {
            double sign = rng.bits() % 2 ? 1 : -1, infinity = std::numeric_limits<double>::infinity();
            double extremes[] = {0.0, infinity, 1e38, 2e-38, 3e4, 1.0};
            out[i] = from_double<T>(sign * extremes[rng.below(6)] * (rng.bits() % 2 ? 1.0 : 0.75));
        }
    }
    auto ascending = [](const T& a, const T& b) { return to_double(a) < to_double(b); };
    if (order == 2 || order == 3)
        std::sort(out.data, out.data + out.size, ascending);
    if (order == 3)
        std::reverse(out.data, out.data + out.size);
}

} // namespace mskb
