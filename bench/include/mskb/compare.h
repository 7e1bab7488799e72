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
#include "mskb/device_work.h"
#include "mskb/expected.h"
#include "mskb/number.h"
#include "mskb/report.h"

namespace mskb {

constexpr double kOutputUlps = 2.0;
constexpr double kMultiple = 4.0;
constexpr double kFloor = 4 * 0x1.0p-23; // four ulps of fp32 at the element's scale

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

// Worst error of the baseline's output, in units of scale; what the bound of a case is derived from. `got` are the
// wanted elements.
inline double worst_error(const std::vector<double>& got, const BufferSpec& spec, const Expected& expected) {
    double worst = 0;
    for (size_t j = 0; j < expected.wanted.size(); ++j)
        worst = std::max(worst, error_in_scale(got[j], expected.value[j], expected.scale[j], spec.kind));
    return worst;
}

inline double bound_of(const BufferSpec& spec, double baseline_worst) {
    return spec.exact ? 0.0 : std::max(kMultiple * baseline_worst, kFloor);
}

// Hold the wanted elements of one output against the reference.
inline Comparison compare(const std::vector<double>& got, const BufferSpec& spec, const Expected& expected,
                          double baseline_worst) {
    Comparison result;
    result.elements = expected.elements();
    result.oracle_elements = expected.wanted.size();
    result.bound = bound_of(spec, baseline_worst);
    for (size_t j = 0; j < expected.wanted.size(); ++j) {
        double want = expected.value[j], have = got[j], scale = expected.scale[j];
        double allowed = spec.exact ? 0.0 : result.bound * scale + kOutputUlps * ulp(spec.kind, want);
        if (!spec.exact)
            result.worst = std::max(result.worst, error_in_scale(have, want, scale, spec.kind));
        if (!(have == want) && !(std::abs(have - want) <= allowed))
            result.mismatch({expected.wanted[j], want, have, allowed});
    }
    return result;
}

// Where the reference took a sample: hold every element against the baseline's output, within both bounds. Both are
// on the device.
inline void compare_with_baseline(Comparison& result, const void* got, const void* baseline,
                                  const BufferSpec& spec, const Expected& expected) {
    double largest_scale = *std::max_element(expected.scale.begin(), expected.scale.end());
    double slack = 2 * result.bound * largest_scale, ulps = spec.exact ? 0.0 : 2 * kOutputUlps;
    Difference found = compare_on_device(got, baseline, spec, slack, ulps);
    std::vector<size_t> shown(found.kept,
                              found.kept + std::min<unsigned long long>(found.count, Difference::kKept));
    std::sort(shown.begin(), shown.end());
    std::vector<double> have = gather(got, spec, shown), want = gather(baseline, spec, shown);
    for (size_t k = 0; k < shown.size(); ++k)
        result.mismatch({shown[k], want[k], have[k], slack + ulps * ulp(spec.kind, want[k])});
    if (found.count > 0) {
        result.mismatches += found.count - shown.size();
        result.first_bad = std::min<size_t>(result.first_bad, found.first);
        result.last_bad = std::max<size_t>(result.last_bad, found.last);
    }
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
