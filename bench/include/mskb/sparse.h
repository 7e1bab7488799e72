// Sparse matrices for inputs: structure is drawn on the host, one entry after the other.
#pragma once
#include <algorithm>
#include <type_traits>
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

// Writes element `i` of a buffer that is made on the host.
inline void put(void* data, Kind kind, size_t i, double value) {
    with_type(kind, [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        static_cast<T*>(data)[i] = from_double<T>(value);
    });
}

void csr(Inputs& inputs, int row_offsets, int col_indices, double rows, double cols, double nnz,
         double empty_rows) {
    inputs.structure({row_offsets, col_indices}, [&](const std::vector<void*>& data) {
        Kind offset = inputs.spec(row_offsets).kind, column = inputs.spec(col_indices).kind;
        Rng& rng = inputs.rng();
        long long entries = static_cast<long long>(nnz);
        std::vector<int> lengths =
            row_lengths(rng, static_cast<long long>(rows), entries, empty_rows != 0, entries);
        double start = 0;
        put(data[0], offset, 0, start);
        for (size_t row = 0; row < lengths.size(); ++row)
            put(data[0], offset, row + 1, start += lengths[row]);
        for (long long k = 0; k < entries; ++k)
            put(data[1], column, k, static_cast<double>(rng.below(static_cast<uint64_t>(cols))));
    });
}

void coo(Inputs& inputs, int row_indices, int col_indices, double rows, double cols, double nnz,
         double empty_rows) {
    inputs.structure({row_indices, col_indices}, [&](const std::vector<void*>& data) {
        Kind row_kind = inputs.spec(row_indices).kind, column_kind = inputs.spec(col_indices).kind;
        std::vector<int> at_row(static_cast<size_t>(nnz));
        Rng& rng = inputs.rng();
        long long entries = static_cast<long long>(nnz), k = 0;
        std::vector<int> lengths =
            row_lengths(rng, static_cast<long long>(rows), entries, empty_rows != 0, entries);
        for (size_t row = 0; row < lengths.size(); ++row)
            for (int entry = 0; entry < lengths[row]; ++entry)
                at_row[k++] = static_cast<int>(row);
        for (k = entries; k-- > 1;)
            std::swap(at_row[k], at_row[rng.below(k + 1)]);
        for (k = 0; k < entries; ++k) {
            put(data[0], row_kind, k, at_row[k]);
            put(data[1], column_kind, k, static_cast<double>(rng.below(static_cast<uint64_t>(cols))));
        }
    });
}

void ell(Inputs& inputs, int col_ids, int values, double rows, double cols, double max_nnz_per_row,
         double nnz, double empty_rows) {
    inputs.structure({col_ids, values}, [&](const std::vector<void*>& data) {
        Kind id = inputs.spec(col_ids).kind, kind = inputs.spec(values).kind;
        Rng& rng = inputs.rng();
        size_t width = static_cast<size_t>(max_nnz_per_row), entry = 0;
        std::vector<int> lengths = row_lengths(rng, static_cast<long long>(rows), static_cast<long long>(nnz),
                                               empty_rows != 0, width);
        if (nnz > 0)
            stretch(rng, lengths, width);
        for (int length : lengths)
            for (size_t k = 0; k < width; ++k, ++entry) {
                bool filled = k < static_cast<size_t>(length);
                double column = filled ? static_cast<double>(rng.below(static_cast<uint64_t>(cols))) : -1.0;
                put(data[0], id, entry, column);
                put(data[1], kind, entry, filled ? rng.uniform(-1, 1) : -1.0);
            }
    });
}

} // namespace mskb
