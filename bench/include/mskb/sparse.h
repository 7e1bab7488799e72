// Sparse matrices for inputs: structure is drawn on the host, one entry after the other.
#pragma once
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>
#include "mskb/input_set.h"

namespace mskb {

// Lengths of `rows` rows that sum to nnz: at least one each, or with `empty_rows` some without any; none longer than
// `longest`, which must leave room for nnz.
inline std::vector<int> row_lengths(Rng& rng, long long rows, long long nnz, bool empty_rows,
                                    long long longest) {
    std::vector<int> lengths(rows, empty_rows ? 0 : 1);
    for (long long k = empty_rows ? 0 : rows; k < nnz;) {
        int& length = lengths[rng.below(rows)];
        if (length < longest) {
            ++length;
            ++k;
        }
    }
    if (empty_rows && nnz > 0) { // make sure that there is one, also where chance would not
        long long emptied = rng.below(rows), heir = (emptied + 1) % rows;
        if (heir != emptied)
            for (heir = 0; heir < rows && lengths[emptied] > 0; ++heir) {
                int moved =
                    heir == emptied
                        ? 0
                        : static_cast<int>(std::min<long long>(lengths[emptied], longest - lengths[heir]));
                lengths[heir] += moved;
                lengths[emptied] -= moved;
            }
    }
    return lengths;
}

// Lets one row be exactly `longest` long, at the cost of others that stay as empty or not as they were.
inline void stretch(Rng& rng, std::vector<int>& lengths, long long longest) {
    size_t rows = lengths.size(), chosen = rng.below(rows);
    while (lengths[chosen] == 0)
        chosen = (chosen + 1) % rows;
    for (size_t k = 1; k < rows && lengths[chosen] < longest; ++k) {
        int& other = lengths[(chosen + k) % rows];
        int moved = static_cast<int>(std::min<long long>(std::max(other - 1, 0), longest - lengths[chosen]));
        other -= moved;
        lengths[chosen] += moved;
    }
    if (lengths[chosen] != longest)
        harness_failure("an ELL case has too few entries for its longest row");
}

void csr(Inputs& inputs, int row_offsets, int col_indices, double rows, double cols, double nnz,
         double empty_rows) {
    inputs.structure({row_offsets, col_indices}, [&](const std::vector<void*>& data) {
        int *offsets = static_cast<int*>(data[0]), *columns = static_cast<int*>(data[1]);
        Rng& rng = inputs.rng();
        long long entries = static_cast<long long>(nnz);
        std::vector<int> lengths =
            row_lengths(rng, static_cast<long long>(rows), entries, empty_rows != 0, entries);
        offsets[0] = 0;
        std::partial_sum(lengths.begin(), lengths.end(), offsets + 1);
        for (long long k = 0; k < entries; ++k)
            columns[k] = static_cast<int>(rng.below(static_cast<uint64_t>(cols)));
    });
}

void coo(Inputs& inputs, int row_indices, int col_indices, double rows, double cols, double nnz,
         double empty_rows) {
    inputs.structure({row_indices, col_indices}, [&](const std::vector<void*>& data) {
        int *at_row = static_cast<int*>(data[0]), *at_column = static_cast<int*>(data[1]);
        Rng& rng = inputs.rng();
        long long entries = static_cast<long long>(nnz), k = 0;
        std::vector<int> lengths =
            row_lengths(rng, static_cast<long long>(rows), entries, empty_rows != 0, entries);
        for (size_t row = 0; row < lengths.size(); ++row)
            for (int entry = 0; entry < lengths[row]; ++entry)
                at_row[k++] = static_cast<int>(row);
        for (k = entries; k-- > 1;)
            std::swap(at_row[k], at_row[rng.below(k + 1)]);
        for (k = 0; k < entries; ++k)
            at_column[k] = static_cast<int>(rng.below(static_cast<uint64_t>(cols)));
    });
}

void ell(Inputs& inputs, int col_ids, int values, double rows, double cols, double max_nnz_per_row,
         double nnz, double empty_rows) {
    inputs.structure({col_ids, values}, [&](const std::vector<void*>& data) {
        int* ids = static_cast<int*>(data[0]);
        bool bf16 = inputs.spec(values).kind == Kind::kBf16;
        Rng& rng = inputs.rng();
        size_t width = static_cast<size_t>(max_nnz_per_row), entry = 0;
        std::vector<int> lengths = row_lengths(rng, static_cast<long long>(rows), static_cast<long long>(nnz),
                                               empty_rows != 0, width);
        if (nnz > 0)
            stretch(rng, lengths, width);
        for (int length : lengths)
            for (size_t k = 0; k < width; ++k, ++entry) {
                bool filled = k < static_cast<size_t>(length);
                ids[entry] = filled ? static_cast<int>(rng.below(static_cast<uint64_t>(cols))) : -1;
                double value = filled ? rng.uniform(-1, 1) : -1.0;
                if (bf16)
                    static_cast<__nv_bfloat16*>(data[1])[entry] = from_double<__nv_bfloat16>(value);
                else
                    static_cast<float*>(data[1])[entry] = static_cast<float>(value);
            }
    });
}

} // namespace mskb
