// What the double-precision reference of a task fills in: value and scale of the elements that it is asked for.
//
// The scale is the sum of the absolute terms that made the element, or what `AnyOrder` or `of_one_sign` below say;
// compare.h judges errors on it.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>
#include "mskb/random.h"

namespace mskb {

// `count` numbers below `below`, in order: 0, below - 1, and one drawn at random out of each of count - 2 equal parts. The
// parts are all there is, so that none of them is never drawn; a number that comes twice is there once.
inline std::vector<size_t> spread(size_t count, size_t below, Rng& rng) {
    std::vector<size_t> drawn{0};
    drawn.reserve(count);
    double width = static_cast<double>(below) / static_cast<double>(count - 2);
    for (size_t k = 0; k < count - 2; ++k) {
        size_t number = static_cast<size_t>((static_cast<double>(k) + rng.unit()) * width);
        if (number > drawn.back() && number < below)
            drawn.push_back(number);
    }
    if (below - 1 > drawn.back())
        drawn.push_back(below - 1);
    return drawn;
}

class Expected {
  public:
    // Of `elements` elements, those wanted are all, where the reference makes them with `budget` operations and they
    // are no more than `limit`; else units of `unit` consecutive elements drawn at random, as many as the budget
    // pays for at `cost` operations each. The first and the last one are always among them, and no fewer than
    // kLeast.
    Expected(size_t elements, size_t unit, double cost, double budget, size_t limit, Rng& rng)
        : elements_(elements) {
        if (elements == 0)
            return;
        size_t units = (elements - 1) / unit + 1;
        double affordable = std::min(budget / std::max(cost, 1.0), static_cast<double>(limit / unit));
        size_t drawn = std::max<size_t>(kLeast, static_cast<size_t>(std::min(affordable, 1e18)));
        const bool all = units <= drawn;
        std::vector<size_t> chosen;
        if (!all)
            chosen = spread(drawn, units, rng);
        size_t count = all ? units : chosen.size();
        wanted.reserve(std::min(count * unit, elements));
        for (size_t k = 0; k < count; ++k) {
            size_t begin = (all ? k : chosen[k]) * unit;
            for (size_t e = begin; e < std::min(begin + unit, elements); ++e)
                wanted.push_back(e);
        }
        value.assign(wanted.size(), NAN);
        scale.assign(wanted.size(), NAN);
    }

    // Of `elements` elements, the units of `unit` elements that hold those at `places`.
    Expected(size_t elements, size_t unit, std::vector<size_t> places) : elements_(elements) {
        std::sort(places.begin(), places.end());
        for (size_t place : places)
            for (size_t e = place / unit * unit; e < std::min((place / unit + 1) * unit, elements); ++e)
                if (wanted.empty() || e > wanted.back())
                    wanted.push_back(e);
        value.assign(wanted.size(), NAN);
        scale.assign(wanted.size(), NAN);
    }

    // Number of units of `unit` elements that are wanted.
    size_t units(size_t unit) const {
        if (unit == 1)
            return wanted.size();
        size_t found = 0;
        for (size_t j = 0; j < wanted.size(); ++j)
            found += j == 0 || wanted[j] / unit != wanted[j - 1] / unit;
        return found;
    }

    // Part `number` of `count`, which together ask for the same; elements of one unit are in one part.
    Expected share(size_t number, size_t count, size_t unit) const {
        auto from = [&](size_t k) {
            size_t place = wanted.size() * k / count;
            while (place > 0 && place < wanted.size() && wanted[place] / unit == wanted[place - 1] / unit)
                --place;
            return place;
        };
        Expected part(elements_);
        part.wanted.assign(wanted.begin() + from(number), wanted.begin() + from(number + 1));
        part.value.assign(part.wanted.size(), NAN);
        part.scale.assign(part.wanted.size(), NAN);
        return part;
    }

    // Takes over what was made of a part, whose first element is the `begin`-th wanted.
    void take(const Expected& part, size_t begin) {
        std::copy(part.value.begin(), part.value.end(), value.begin() + begin);
        std::copy(part.scale.begin(), part.scale.end(), scale.begin() + begin);
    }

    void set(size_t position, double expected, double its_scale) {
        value[position] = expected;
        scale[position] = its_scale;
    }
    bool sampled() const { return wanted.size() < elements_; }
    size_t elements() const { return elements_; }
    size_t bytes() const { return wanted.size() * (sizeof(size_t) + 2 * sizeof(double)); }
    bool complete() const {
        return std::none_of(value.begin(), value.end(), [](double v) { return std::isnan(v); }) &&
               std::none_of(scale.begin(), scale.end(), [](double s) { return !(s >= 0); });
    }

    std::vector<size_t> wanted; // element indices, ascending
    std::vector<double> value, scale;

  private:
    explicit Expected(size_t elements) : elements_(elements) {}

    static constexpr size_t kLeast = 4;
    size_t elements_;
};

// A sum whose terms may come in any order, as atomics add them, and may differ much in magnitude.
//
// Rounding a partial sum s to fp32 is off by up to 2^-24 |s|. With the largest terms first all of n partial sums are
// about as large as the root of the sum of squares, and n such roundings of random sign amount to
//     2^-24 sqrt(n * sum of squares / 3),
// whereas with the largest terms last they are next to nothing. So how far a baseline is off says little of how far another
// right order is, and the sum of absolute terms, of which one large term may be most, does not grow as the roundings do.
// The scale here is sqrt(n * sum of squares): for terms of one magnitude about the sum of absolute terms, and never less.
class AnyOrder {
  public:
    void add(double term) {
        value_ += term;
        squares_ += term * term;
        ++terms_;
    }
    double value() const { return value_; }
    double scale() const { return std::sqrt(static_cast<double>(terms_) * squares_); }

  private:
    double value_ = 0, squares_ = 0;
    size_t terms_ = 0;
};

// The scale of a sum of terms that have one sign, from the sum of their absolute values.
//
// The running sum to which a kernel adds its parts is then of the result's own size, and each addition rounds as one of
// that size does. If every warp adds its 32 terms by an atomic, that is m = terms / 32 roundings, which in random
// directions amount to 2^-24 sqrt(m / 9) of a sum that grows evenly. The scale grows by an eighth of sqrt(m), so that four
// ulps of it are three standard deviations, whichever way the baseline's own roundings happen to fall.
inline double of_one_sign(double sum_of_absolute_terms, double terms) {
    return sum_of_absolute_terms * std::max(1.0, std::sqrt(terms / 32) / 8);
}

} // namespace mskb
