// A row of a sparse matrix may be summed in any order, whatever the baseline's luck with its own: with the largest entry
// first, each addition rounds as one of large numbers does, and with that entry last only the final one. A row with an entry
// left out, and factors cut to the ten bits of TF32, stay wrong. A sum of terms of one sign may be made of the sums of
// warps, one added after the other.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include "mskb/compare.h"
#include "reference/mse_loss.h"
#include "reference/spmv_coo.h"

namespace {

struct Row {
    std::vector<float> values, x;
    std::vector<int> row, columns;

    Row(mskb::Rng& rng, int entries, double outlier) : row(entries, 0), columns(entries) {
        for (int p = 0; p < entries; ++p) {
            values.push_back(static_cast<float>(rng.uniform(-1, 1)));
            x.push_back(static_cast<float>(rng.uniform(-1, 1)));
            columns[p] = p;
        }
        values[0] = static_cast<float>(outlier * rng.uniform(0.5, 1));
        x[0] = 1;
    }

    // Whether this is what the judge calls right, beside a baseline without any error.
    bool right(float sum) const {
        mskb::BufferSpec spec{};
        spec.kind = mskb::Kind::kFloat;
        mskb::Expected expected(1, 1, std::vector<size_t>{0});
        spmv_coo_reference(1, static_cast<int>(row.size()), values.data(), row.data(), columns.data(),
                           x.data(), expected);
        return mskb::compare({static_cast<double>(sum)}, spec, expected, 0).wrong.empty();
    }
};

float cut(float number) {
    unsigned int bits;
    std::memcpy(&bits, &number, sizeof bits);
    bits &= 0xffffe000u;
    std::memcpy(&number, &bits, sizeof bits);
    return number;
}

float sum_of(const Row& of, int first, int last, bool tensor = false) {
    float sum = 0;
    int step = first <= last ? 1 : -1;
    for (int p = first; p != last + step; p += step)
        sum += tensor ? cut(of.values[p]) * cut(of.x[p]) : of.values[p] * of.x[p];
    return sum;
}

// Two vectors whose squared differences are summed, with a few that are far larger at places that nobody knows.
struct Positive {
    std::vector<float> x, y;

    Positive(mskb::Rng& rng, int terms) {
        for (int i = 0; i < terms; ++i) {
            x.push_back(static_cast<float>(rng.uniform(-1, 1) * (rng.below(256) == 0 ? 40 : 1)));
            y.push_back(static_cast<float>(rng.uniform(-1, 1)));
        }
    }

    // Whether a mean of squares is right, beside a baseline without any error.
    bool right(float mean) const {
        mskb::BufferSpec spec{};
        spec.kind = mskb::Kind::kFloat;
        mskb::Expected expected(1, 1, std::vector<size_t>{0});
        mse_loss_reference(expected, x.data(), y.data(), static_cast<int>(x.size()));
        return mskb::compare({static_cast<double>(mean)}, spec, expected, 0).wrong.empty();
    }

    // By warps, whose sums an atomic adds to one place; the first `terms` of them.
    float mean(size_t terms, float (*of)(float) = nullptr) const {
        float sum = 0;
        for (size_t begin = 0; begin < terms; begin += 32) {
            float lanes[32] = {};
            for (size_t i = begin; i < std::min(terms, begin + 32); ++i) {
                float apart = of ? of(x[i]) - of(y[i]) : x[i] - y[i];
                lanes[i - begin] = apart * apart;
            }
            for (int half = 16; half > 0; half /= 2)
                for (int lane = 0; lane < half; ++lane)
                    lanes[lane] += lanes[lane + half];
            sum += lanes[0];
        }
        return sum / static_cast<float>(x.size());
    }
};

void expect(bool condition, const char* what, double outlier, int entries) {
    if (condition)
        return;
    std::fprintf(stderr, "%s: %d entries, the largest %g times larger\n", what, entries, outlier);
    std::exit(1);
}

} // namespace

int main() {
    mskb::Rng rng(3, 3, 3);
    for (double outlier : {1.0, 1024.0, 16777216.0})
        for (int entries : {2, 40, 1000, 10000})
            for (int round = 0; round < 200; ++round) {
                Row of(rng, entries, outlier);
                expect(of.right(sum_of(of, 0, entries - 1)), "largest first, refused", outlier, entries);
                expect(of.right(sum_of(of, entries - 1, 0)), "largest last, refused", outlier, entries);
                float left_out = of.values[entries - 1] * of.x[entries - 1];
                if (outlier < 1e6 && std::abs(left_out) > 0.1)
                    expect(!of.right(sum_of(of, 0, entries - 2)), "an entry left out, taken", outlier,
                           entries);
            }
    int taken = 0;
    for (int round = 0; round < 200; ++round)
        taken += Row(rng, 40, 1).right(0);
    expect(taken == 0, "nothing, taken", 1, 40);
    // A single row may be right by chance; a matrix has hundreds.
    for (int round = 0; round < 200; ++round) {
        Row of(rng, 40, 1);
        taken += of.right(sum_of(of, 0, 39, true));
    }
    expect(taken < 10, "TF32, taken", 1, 40);
    int refused = 0;
    for (int terms : {5000, 20000, 60000})
        for (int round = 0; round < 200; ++round) {
            Positive of(rng, terms);
            refused += !of.right(of.mean(of.x.size()));
        }
    expect(refused <= 1, "sums of warps, refused", 1, 60000);
    taken = 0;
    for (int round = 0; round < 200; ++round) {
        Positive of(rng, 1025);
        taken += of.right(of.mean(of.x.size(), cut)) + of.right(of.mean(of.x.size() - 1));
    }
    expect(taken < 20, "TF32 or a term left out, taken", 1, 1025);
}
