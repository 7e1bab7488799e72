// Sparse matrices for inputs: structure is drawn on the host, one entry after the other.
#pragma once
#include <algorithm>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>
#include "mskb/generators.h"
#include "mskb/input_set.h"

namespace mskb {

// Lengths of `rows` rows that sum to nnz: at least one each, or with `empty_rows` some without any; none longer than
// `longest`, which must leave room for nnz.
inline std::vector<int> row_lengths(Rng& rng, long long rows, long long nnz, bool empty_rows,
                                    long long longest) {
    if (longest * (empty_rows && rows > 1 ? rows - 1 : rows) < nnz)
        harness_failure("the rows of a sparse matrix have no room for its entries");
    if (!empty_rows && nnz < rows)
        harness_failure("a sparse matrix has fewer entries than rows, and none may be empty");
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

// `count` different ones of the candidates, or all if there are fewer.
inline std::vector<long long> some_of(Rng& rng, std::vector<long long> candidates, size_t count) {
    count = std::min(count, candidates.size());
    for (size_t k = 0; k < count; ++k)
        std::swap(candidates[k], candidates[k + rng.below(candidates.size() - k)]);
    candidates.resize(count);
    return candidates;
}

// How many entries each row has, and which rows are heavy.
struct Lengths {
    std::vector<int> of_row;
    std::vector<long long> heavy;
};

// The same, and `heavy` rows get half of all entries on top, or as many as the others can spare. One row that is empty
// stays so.
inline Lengths lengths_of(Rng& rng, long long rows, long long nnz, bool empty_rows, long long heavy,
                          long long longest) {
    heavy = std::min(heavy, empty_rows && rows > 1 ? rows - 1 : rows);
    if (heavy <= 0)
        return {row_lengths(rng, rows, nnz, empty_rows, longest), {}};
    long long held = std::max(0LL, std::min(nnz / 2, empty_rows ? nnz : nnz - rows));
    Lengths made{row_lengths(rng, rows, nnz - held, empty_rows, longest - (held + heavy - 1) / heavy), {}};
    std::vector<long long> candidates;
    bool kept = false;
    for (long long row = 0; row < rows; ++row)
        if (made.of_row[row] > 0 || kept || rows == 1)
            candidates.push_back(row);
        else
            kept = true;
    made.heavy = some_of(rng, candidates, heavy);
    for (long long k = 0; k < held; ++k)
        ++made.of_row[made.heavy[k % made.heavy.size()]];
    return made;
}

// Draws the column of one entry after the other: any, or for half of the entries one of `heavy` columns.
class Columns {
  public:
    Columns(Rng& rng, double cols, double heavy) : rng_(rng), cols_(static_cast<uint64_t>(cols)) {
        if (heavy <= 0)
            return;
        std::vector<long long> every(cols_);
        std::iota(every.begin(), every.end(), 0LL);
        heavy_ = some_of(rng, every, static_cast<size_t>(heavy));
    }

    double next() {
        if (!heavy_.empty() && rng_.unit() < 0.5)
            return static_cast<double>(heavy_[rng_.below(heavy_.size())]);
        return static_cast<double>(rng_.below(cols_));
    }

  private:
    Rng& rng_;
    uint64_t cols_;
    std::vector<long long> heavy_;
};

// Lets the heaviest row, or any if none is heavy, be exactly `longest` long, at the cost of others that stay as empty or
// not as they were.
inline void stretch(Rng& rng, Lengths& made, long long longest) {
    std::vector<int>& lengths = made.of_row;
    size_t rows = lengths.size();
    size_t chosen = made.heavy.empty() ? rng.below(rows) : static_cast<size_t>(made.heavy[0]);
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
         double empty_rows, double heavy_rows, double heavy_cols) {
    inputs.structure({row_offsets, col_indices}, [&](const std::vector<void*>& data) {
        Kind offset = inputs.spec(row_offsets).kind, column = inputs.spec(col_indices).kind;
        Rng& rng = inputs.rng();
        long long entries = static_cast<long long>(nnz);
        Lengths lengths = lengths_of(rng, static_cast<long long>(rows), entries, empty_rows != 0,
                                     static_cast<long long>(heavy_rows), entries);
        double start = 0;
        put(data[0], offset, 0, start);
        for (size_t row = 0; row < lengths.of_row.size(); ++row)
            put(data[0], offset, row + 1, start += lengths.of_row[row]);
        Columns columns(rng, cols, heavy_cols);
        for (long long k = 0; k < entries; ++k)
            put(data[1], column, k, columns.next());
    });
}

void coo(Inputs& inputs, int row_indices, int col_indices, double rows, double cols, double nnz,
         double empty_rows, double heavy_rows) {
    inputs.structure({row_indices, col_indices}, [&](const std::vector<void*>& data) {
        Kind row_kind = inputs.spec(row_indices).kind, column_kind = inputs.spec(col_indices).kind;
        std::vector<int> at_row(static_cast<size_t>(nnz));
        Rng& rng = inputs.rng();
        long long entries = static_cast<long long>(nnz), k = 0;
        Lengths lengths = lengths_of(rng, static_cast<long long>(rows), entries, empty_rows != 0,
                                     static_cast<long long>(heavy_rows), entries);
        for (size_t row = 0; row < lengths.of_row.size(); ++row)
            for (int entry = 0; entry < lengths.of_row[row]; ++entry)
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
         double nnz, double empty_rows, double heavy_rows, double outliers) {
    inputs.structure({col_ids, values}, [&](const std::vector<void*>& data) {
        Kind id = inputs.spec(col_ids).kind, kind = inputs.spec(values).kind;
        Rng& rng = inputs.rng();
        size_t width = static_cast<size_t>(max_nnz_per_row), entry = 0;
        Lengths lengths = lengths_of(rng, static_cast<long long>(rows), static_cast<long long>(nnz),
                                     empty_rows != 0, static_cast<long long>(heavy_rows), width);
        if (nnz > 0)
            stretch(rng, lengths, width);
        for (int length : lengths.of_row)
            for (size_t k = 0; k < width; ++k, ++entry) {
                bool filled = k < static_cast<size_t>(length);
                double column = filled ? static_cast<double>(rng.below(static_cast<uint64_t>(cols))) : -1.0;
                put(data[0], id, entry, column);
                put(data[1], kind, entry, filled ? rng.uniform(-1, 1) : -1.0);
            }
        for (int k = 0; outliers > 1 && nnz > 0 && k < kOutliers; ++k) {
            size_t row = rng.below(lengths.of_row.size());
            while (lengths.of_row[row] == 0)
                row = (row + 1) % lengths.of_row.size();
            size_t at = row * width + rng.below(static_cast<uint64_t>(lengths.of_row[row]));
            double magnitude = rng.uniform(0.5, 1) * outliers;
            put(data[1], kind, at, rng.unit() < 0.5 ? -magnitude : magnitude);
        }
    });
}

} // namespace mskb
