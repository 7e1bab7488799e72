// What the double-precision reference of a task fills in: value and scale of the elements that it is asked for.
//
// The scale is the sum of the absolute terms that made the element; compare.h judges errors on it.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>
#include "mskb/random.h"

namespace mskb {

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
        std::vector<size_t> chosen;
        if (units > drawn) {
            chosen = {0, units - 1};
            for (size_t k = 2; k < drawn; ++k)
                chosen.push_back(rng.below(units));
            std::sort(chosen.begin(), chosen.end());
            chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
        }
        for (size_t k = 0; k < (units > drawn ? chosen.size() : units); ++k) {
            size_t begin = (units > drawn ? chosen[k] : k) * unit;
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

    void set(size_t position, double expected, double sum_of_absolute_terms) {
        value[position] = expected;
        scale[position] = sum_of_absolute_terms;
    }
    bool sampled() const { return wanted.size() < elements_; }
    size_t elements() const { return elements_; }
    bool complete() const {
        return std::none_of(value.begin(), value.end(), [](double v) { return std::isnan(v); }) &&
               std::none_of(scale.begin(), scale.end(), [](double s) { return !(s >= 0); });
    }

    std::vector<size_t> wanted; // element indices, ascending
    std::vector<double> value, scale;

  private:
    static constexpr size_t kLeast = 4;
    size_t elements_;
};

} // namespace mskb
