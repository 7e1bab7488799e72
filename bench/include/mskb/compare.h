// What counts as correct: the error of an element is measured against the double-precision reference on the
// scale of the sum of absolute terms that made it; the bound is a small multiple of the baseline's own worst
// error.
//
// allowed(e) = bound * scale(e) + kOutputUlps * ulp(expected(e))
// bound      = max(kMultiple * worst error of the baseline, kFloor)   in units of scale
//
// The second term is the rounding of the result to the output type, which no kernel can avoid; keeping it
// apart leaves the first one as tight as fp32 accumulation. Every comparison is written so that NaN fails.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>
#include "mskb/buffers.h"
#include "mskb/number.h"
#include "mskb/random.h"
#include "mskb/report.h"

namespace mskb {

constexpr double kOutputUlps = 2.0;
constexpr double kMultiple = 4.0;
constexpr double kFloor = 4 * 0x1.0p-23; // four ulps of fp32 at the element's scale

// What the reference says of one output. It fills value and scale for the wanted elements alone: all of them
// where that is affordable, else a sample. An exact output has scale 0.
class Expected {
  public:
    // All elements when there are at most `limit`, else both ends and `limit` random ones, ascending.
    Expected(size_t elements, size_t limit, Rng& rng) : elements_(elements) {
        if (elements <= limit) {
            for (size_t i = 0; i < elements; ++i)
                wanted.push_back(i);
        } else {
            wanted = {0, elements - 1};
            for (size_t k = 0; k < limit; ++k)
                wanted.push_back(rng.below(elements));
            std::sort(wanted.begin(), wanted.end());
            wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
        }
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
    size_t elements_;
};

// Error of a value beyond the unavoidable rounding of the output, in units of scale; infinite when it is NaN.
inline double error_in_scale(double got, double expected, double scale, Kind kind) {
    if (got == expected) // infinities included
        return 0.0;
    double beyond = std::abs(got - expected) - kOutputUlps * ulp(kind, expected);
    if (beyond <= 0)
        return 0.0;
    double error = scale > 0 ? beyond / scale : INFINITY;
    return std::isnan(error) ? INFINITY : error;
}

struct Mismatch {
    size_t element;
    double expected, got, allowed;
};

// Result of comparing one output of one call.
struct Comparison {
    size_t elements = 0, oracle_elements = 0, mismatches = 0;
    double worst = 0; // in units of scale
    double bound = 0;
    std::vector<Mismatch> first; // at most kKept
    size_t first_bad = 0, last_bad = 0;

    static constexpr size_t kKept = 5;

    void mismatch(const Mismatch& m) {
        if (mismatches == 0)
            first_bad = m.element;
        first_bad = std::min(first_bad, m.element);
        last_bad = std::max(last_bad, m.element);
        if (++mismatches <= kKept)
            first.push_back(m);
    }

    // The shape of what is wrong, in words that help to find the fault.
    std::string pattern() const {
        if (mismatches == 0)
            return "none";
        std::string range = std::to_string(first_bad) + ".." + std::to_string(last_bad);
        if (mismatches == 1)
            return "one element, " + std::to_string(first_bad);
        if (mismatches >= oracle_elements)
            return "every element";
        if (mismatches == last_bad - first_bad + 1)
            return last_bad + 1 == elements ? "a tail, elements " + range
                                            : "a contiguous run, elements " + range;
        return "scattered, " + std::to_string(mismatches) + " elements within " + range;
    }
};

// Worst error of the baseline's output, in units of scale; what the bound of a case is derived from.
inline double worst_error(const void* got, const BufferSpec& spec, const Expected& expected) {
    double worst = 0;
    for (size_t j = 0; j < expected.wanted.size(); ++j)
        worst = std::max(worst, error_in_scale(element(got, spec.kind, expected.wanted[j]), expected.value[j],
                                               expected.scale[j], spec.kind));
    return worst;
}

// Compare one output with the reference on its wanted elements and, where those are a sample, every element
// with the baseline's output within both bounds.
inline Comparison compare(const void* got, const void* baseline, const BufferSpec& spec,
                          const Expected& expected, double baseline_worst) {
    Comparison result;
    result.elements = expected.elements();
    result.oracle_elements = expected.wanted.size();
    result.bound = spec.exact ? 0.0 : std::max(kMultiple * baseline_worst, kFloor);
    double largest_scale = 0;
    for (size_t j = 0; j < expected.wanted.size(); ++j) {
        double want = expected.value[j], have = element(got, spec.kind, expected.wanted[j]);
        double allowed =
            spec.exact ? 0.0 : result.bound * expected.scale[j] + kOutputUlps * ulp(spec.kind, want);
        largest_scale = std::max(largest_scale, expected.scale[j]);
        if (!spec.exact)
            result.worst = std::max(result.worst, error_in_scale(have, want, expected.scale[j], spec.kind));
        if (!(have == want) && !(std::abs(have - want) <= allowed))
            result.mismatch({expected.wanted[j], want, have, allowed});
    }
    for (size_t i = 0; expected.sampled() && i < expected.elements(); ++i) {
        double want = element(baseline, spec.kind, i), have = element(got, spec.kind, i);
        double allowed =
            spec.exact ? 0.0 : 2 * (result.bound * largest_scale + kOutputUlps * ulp(spec.kind, want));
        if (!(have == want) && !(std::abs(have - want) <= allowed))
            result.mismatch({i, want, have, allowed});
    }
    return result;
}

inline std::string json(const char* name, const Comparison& c, double baseline_worst) {
    Line line("output");
    line.add("name", name).add("elements", c.elements).add("oracle_elements", c.oracle_elements);
    line.add("mismatches", c.mismatches).add("worst_error", c.worst);
    line.add("baseline_worst_error", baseline_worst).add("bound", c.bound).add("pattern", c.pattern());
    std::string first;
    for (const Mismatch& m : c.first)
        first += (first.empty() ? "" : ",") + Line("mismatch")
                                                  .add("element", m.element)
                                                  .add("expected", m.expected)
                                                  .add("got", m.got)
                                                  .add("allowed", m.allowed)
                                                  .json();
    return line.raw("first", "[" + first + "]").json();
}

} // namespace mskb
