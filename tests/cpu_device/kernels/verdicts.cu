// What the judge calls wrong, held to its definition in the plainest words: numbers of all sizes, infinities, NaN, both
// zeros, and results just within and just beyond what is allowed.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include "mskb/compare.h"

namespace {

using mskb::Kind;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void fail(const char* what, double a, double b) {
    std::fprintf(stderr, "%s: %.17g, %.17g\n", what, a, b);
    std::exit(1);
}

std::vector<double> numbers() {
    std::vector<double> all{0.0, -0.0, kInfinity, -kInfinity, NAN, mskb::poison(), 0x1p-1074, -0x1.8p-1030};
    for (int exponent = -1022; exponent <= 1023; ++exponent)
        for (double number : {1.0, -1.0, 1.5, 2 - 0x1p-52})
            all.push_back(std::ldexp(number, exponent));
    return all;
}

double plain_ulp(Kind kind, double v) {
    if (kind == Kind::kInt || kind == Kind::kInt64 || !std::isfinite(v))
        return 0;
    int least = kind == Kind::kDouble ? -1022 + 52 : -126;
    int exponent = v == 0 ? least : std::max(std::ilogb(v), least);
    return std::ldexp(1.0, exponent - (kind == Kind::kDouble ? 52 : kind == Kind::kFloat ? 23 : 7));
}

void sizes() {
    using mskb::Tolerance;
    for (double number : numbers()) {
        for (Kind kind : {Kind::kFloat, Kind::kBf16, Kind::kInt, Kind::kDouble, Kind::kInt64})
            if (mskb::ulp(kind, number) != plain_ulp(kind, number))
                fail("ulp", number, mskb::ulp(kind, number));
        int exponent = number == 0 || std::isnan(number) ? Tolerance::kLeast
                       : std::isinf(number)              ? 2000
                                                         : std::ilogb(number);
        int bin = std::clamp(exponent - Tolerance::kLeast, 0, Tolerance::kBins - 1);
        if (Tolerance::bin(number) != bin)
            fail("bin", number, Tolerance::bin(number));
    }
}

mskb::BufferSpec output(Kind kind, bool exact) {
    mskb::BufferSpec spec{};
    spec.kind = kind;
    spec.exact = exact;
    return spec;
}

// Of each expected value results around what is allowed, all in one comparison: what came before must not matter.
void verdicts() {
    mskb::Rng rng(8, 8, 8);
    for (Kind kind : {Kind::kFloat, Kind::kBf16, Kind::kInt, Kind::kDouble, Kind::kInt64})
        for (bool exact : {false, true})
            for (double baseline : {0.0, 1e-7, 3e-5})
                for (int round = 0; round < 200; ++round) {
                    mskb::BufferSpec spec = output(kind, exact);
                    double bound =
                        exact ? 0 : std::max(4 * baseline, kind == Kind::kDouble ? 0x1p-40 : 0x1p-21);
                    std::vector<double> got, allowed;
                    size_t count = 1 + rng.below(60);
                    const bool wild =
                        round % 2; // else errors are alike, so that the worst one is not plain to see
                    std::vector<size_t> places(count);
                    for (size_t k = 0; k < count; ++k)
                        places[k] = k;
                    mskb::Expected expected(count, 1, places);
                    for (size_t k = 0; k < count; ++k) {
                        double want = std::ldexp(rng.uniform(-1, 1), static_cast<int>(rng.below(90)) - 60);
                        want = rng.below(20) == 0 ? 0 : rng.below(60) == 0 ? kInfinity : want;
                        double scale = rng.below(10) == 0 ? 0 : std::abs(want) * rng.uniform(1, 1000);
                        scale = std::isnan(scale) ? 0 : scale;
                        expected.set(k, want, scale);
                        double may = exact
                                         ? 0
                                         : bound * scale +
                                               (2 * plain_ulp(kind, want) +
                                                (kind == Kind::kFloat || kind == Kind::kBf16 ? 0x1p-126 : 0));
                        allowed.push_back(may);
                        const double parts[] = {0, 0.2, 0.9, 0.9999999, 1.0000001, 1.5, 1e6};
                        double off =
                            (wild ? parts[rng.below(7)] : rng.uniform(0, 3)) * may * (rng.below(2) ? 1 : -1);
                        const double odd[] = {NAN, kInfinity, -kInfinity, mskb::poison(), 0.0, -0.0};
                        got.push_back(wild && rng.below(20) == 0 ? odd[rng.below(6)] : want + off);
                    }
                    mskb::Comparison found = mskb::compare(got, spec, expected, baseline);
                    size_t next = 0;
                    double worst = 0, baseline_worst = 0;
                    for (size_t k = 0; k < count; ++k) {
                        double want = expected.value[k], error = std::abs(got[k] - want);
                        bool right = got[k] == want || error <= allowed[k];
                        bool named = next < found.wrong.size() && found.wrong[next].element == k;
                        if (right == named)
                            fail(right ? "right, and named" : "wrong, and not named", want, got[k]);
                        next += named;
                        double of = mskb::error_in_scale(got[k], want, expected.scale[k], kind);
                        baseline_worst = std::max(baseline_worst, of);
                        worst = exact ? 0 : baseline_worst;
                    }
                    if (found.worst != worst || mskb::worst_error(got, spec, expected) != baseline_worst)
                        fail("worst", found.worst, worst);
                }
}

// What no kernel wrote is seen in every type; whole numbers are those that a double holds, and within their type.
void elements() {
    for (Kind kind : {Kind::kFloat, Kind::kBf16, Kind::kHalf, Kind::kInt, Kind::kDouble, Kind::kInt64,
                      Kind::kByte, Kind::kUInt, Kind::kSize, Kind::kBool}) {
        unsigned char bytes[16];
        std::memset(bytes, mskb::poison_byte(kind), sizeof bytes);
        if (!mskb::is_poison(mskb::element(bytes, kind, 1), kind))
            fail("poison", static_cast<int>(kind), mskb::element(bytes, kind, 1));
        if (mskb::is_whole(kind) && (mskb::is_poison(-1, kind) || mskb::is_poison(0, kind)))
            fail("a usual answer is no poison", static_cast<int>(kind), -1);
    }
    const long long whole = 1ll << 53, wholes[] = {-whole, whole, whole + 1, -whole - 1};
    const bool large = mskb::element(wholes, Kind::kInt64, 0) == -0x1p53 &&
                       mskb::element(wholes, Kind::kSize, 1) == 0x1p53 &&
                       std::isnan(mskb::element(wholes, Kind::kInt64, 2)) &&
                       std::isnan(mskb::element(wholes, Kind::kSize, 2)) &&
                       std::isnan(mskb::element(wholes, Kind::kInt64, 3));
    const unsigned char two[] = {1, 2};
    const bool narrow = mskb::element(two, Kind::kBool, 0) == 1 &&
                        std::isnan(mskb::element(two, Kind::kBool, 1)) &&
                        mskb::element(two, Kind::kByte, 1) == 2;
    const bool made = mskb::from_double<unsigned char>(300) == 255 &&
                      mskb::from_double<unsigned char>(-1) == 0 && mskb::from_double<int>(-2.5) == -3 &&
                      mskb::from_double<unsigned int>(0x1p33) == 0xFFFFFFFFu &&
                      mskb::from_double<bool>(0.5) && !mskb::from_double<bool>(0.4) &&
                      mskb::from_double<long long>(0x1p60) == whole && mskb::from_double<size_t>(NAN) == 0;
    if (!large || !narrow || !made)
        fail("whole numbers", large, narrow + 2 * made);
}

// The scale of a bin is the largest one of the bin and of the nearest ones on either side that have any.
void tolerances() {
    using mskb::Tolerance;
    mskb::Rng rng(9, 9, 9);
    for (int round = 0; round < 2000; ++round) {
        std::vector<size_t> places(rng.below(6));
        for (size_t k = 0; k < places.size(); ++k)
            places[k] = k;
        mskb::Expected expected(places.size(), 1, places);
        std::map<int, double> largest;
        for (size_t k = 0; k < places.size(); ++k) {
            double value = std::ldexp(1.0, static_cast<int>(rng.below(300)) - 150);
            double scale = rng.below(4) ? rng.uniform(0, 9) : 0;
            expected.set(k, value, scale);
            double& known = largest[Tolerance::bin(value)];
            known = std::max(known, scale);
        }
        mskb::Scales scales;
        scales.add(expected);
        Tolerance made = scales.tolerance(output(Kind::kFloat, false), 0.5);
        for (int bin = 0; bin < Tolerance::kBins; ++bin) {
            auto at = largest.lower_bound(bin), above = largest.upper_bound(bin);
            double scale = 0;
            if (at != largest.end())
                scale = at->second;
            if (above != largest.end())
                scale = std::max(scale, above->second);
            if (at != largest.begin())
                scale = std::max(scale, std::prev(at)->second);
            if (made.slack[bin] != scale)
                fail("tolerance", bin, made.slack[bin]);
        }
    }
}

} // namespace

int main() {
    elements();
    sizes();
    verdicts();
    tolerances();
}
