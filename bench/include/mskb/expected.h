// What the double-precision reference of a task fills in: value and scale of the elements that it is asked for.
//
// The scale is the sum of the absolute terms that made the element; compare.h judges errors on it.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>
#include "mskb/random.h"

namespace mskb {

// Sorts numbers below `below` that are drawn evenly: one pass deals them out, one puts neighbours in order.
inline void sort_spread(std::vector<size_t>& numbers, size_t below) {
    size_t count = numbers.size();
    double per_number = static_cast<double>(count) / static_cast<double>(below);
    auto bucket = [&](size_t number) {
        return std::min(static_cast<size_t>(static_cast<double>(number) * per_number), count - 1);
    };
    std::vector<size_t> next(count + 1), dealt(count);
    for (size_t number : numbers)
        ++next[bucket(number) + 1];
    for (size_t k = 1; k < count; ++k)
        next[k] += next[k - 1];
    for (size_t number : numbers)
        dealt[next[bucket(number)]++] = number;
    for (size_t k = 1; k < count; ++k)
        for (size_t j = k; j > 0 && dealt[j] < dealt[j - 1]; --j)
            std::swap(dealt[j], dealt[j - 1]);
    numbers.swap(dealt);
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
        std::vector<size_t> chosen;
        if (units > drawn) {
            chosen = {0, units - 1};
            for (size_t k = 2; k < drawn; ++k)
                chosen.push_back(rng.below(units));
            sort_spread(chosen, units);
            chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
        }
        size_t count = units > drawn ? chosen.size() : units;
        wanted.reserve(std::min(count * unit, elements));
        for (size_t k = 0; k < count; ++k) {
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
    explicit Expected(size_t elements) : elements_(elements) {}

    static constexpr size_t kLeast = 4;
    size_t elements_;
};

} // namespace mskb
