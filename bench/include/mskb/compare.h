// What counts as correct: the error of an element is measured against the double-precision reference on the
// scale of the sum of absolute terms that made it (expected.h); the bound is a small multiple of the baseline's own worst
// error.
//
// allowed(e) = bound * scale(e) + rounding(expected(e))
// bound      = max(kMultiple * worst error of the baseline, ulps of fp32 that the card allows)   in units of scale
//
// The second term is the rounding of the result to the output type, which no kernel can avoid; keeping it
// apart leaves the first one as tight as fp32 accumulation. Every comparison is written so that NaN fails.
//
// Where the reference takes a sample, every element is held against the baseline's too. The scale of most is not known
// then, so that comparison only finds suspects: the reference is asked about them, and has the last word. Where there is no
// suspect it is asked about those furthest from the baseline's: two kernels may be apart by twice what one may be off by.
#pragma once
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string>
#include <vector>
#include "mskb/device_work.h"
#include "mskb/expected.h"
#include "mskb/number.h"
#include "mskb/pattern.h"
#include "mskb/report.h"

namespace mskb {

constexpr double kMultiple = 4.0;
constexpr double kUlp = 0x1.0p-23; // of fp32, at the element's scale
// In place of it for a result in double: far below what fp32 can do, and above what sums of millions of terms in another
// order are off by, those of the reference included.
constexpr double kUlpOfDouble = 0x1.0p-42;
constexpr size_t kFurthest = 2; // elements that are no suspects and are asked about: among the furthest, ...
constexpr int kNarrower = 6;    // ... found by halving what they may be apart so often

// Error of a value beyond the unavoidable rounding of the output, in units of scale; infinite when it is NaN.
inline double error_in_scale(double got, double expected, double scale, Kind kind) {
    if (got == expected) // infinities included
        return 0.0;
    double beyond = std::abs(got - expected) - rounding(kind, expected);
    if (beyond <= 0)
        return 0.0;
    double error = scale > 0 ? beyond / scale : INFINITY;
    return std::isnan(error) ? INFINITY : error;
}

// Whether that error is surely less than `error`, which is true of nearly all elements, without their roundings.
inline bool surely_below(double error, double got, double expected, double scale) {
    return std::abs(got - expected) < 0.999 * error * scale;
}

// Result of comparing one output of one call.
struct Comparison {
    static constexpr size_t kKept = 5;

    size_t elements = 0, oracle_elements = 0;
    double worst = 0; // of what the reference covers, in units of scale
    double bound = 0;
    std::vector<Mismatch> wrong; // of what the reference covers, ascending
    size_t mismatches = 0;       // of all elements
    std::vector<Mismatch> first; // of them, at most kKept
    std::string pattern = "none";
};

// Worst error of the baseline's output, in units of scale; what the bound of a case is derived from. `got` are the
// wanted elements.
inline double worst_error(const std::vector<double>& got, const BufferSpec& spec, const Expected& expected) {
    double worst = 0;
    for (size_t j = 0; j < expected.wanted.size(); ++j)
        if (!surely_below(worst, got[j], expected.value[j], expected.scale[j]))
            worst = std::max(worst, error_in_scale(got[j], expected.value[j], expected.scale[j], spec.kind));
    return worst;
}

inline double bound_of(const BufferSpec& spec, double baseline_worst) {
    double ulp = spec.kind == Kind::kDouble ? kUlpOfDouble : kUlp;
    return spec.exact ? 0.0 : std::max(kMultiple * baseline_worst, spec.ulps * ulp);
}

// Which part of the wanted elements may be 0 though they are not: the scale says nothing of how large they are.
inline double part_like_zero(const BufferSpec& spec, const Expected& expected, double baseline_worst) {
    const double bound = bound_of(spec, baseline_worst);
    size_t count = 0;
    for (size_t j = 0; j < expected.wanted.size(); ++j) {
        double size = std::abs(expected.value[j]);
        count += !spec.exact && size > 0 &&
                 size <= bound * expected.scale[j] + rounding(spec.kind, expected.value[j]);
    }
    return expected.wanted.empty() ? 0
                                   : static_cast<double>(count) / static_cast<double>(expected.wanted.size());
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
        if (have == want || (!spec.exact && surely_below(result.worst, have, want, scale) &&
                             std::abs(have - want) <= result.bound * scale))
            continue;
        double allowed = spec.exact ? 0.0 : result.bound * scale + rounding(spec.kind, want);
        if (!spec.exact)
            result.worst = std::max(result.worst, error_in_scale(have, want, scale, spec.kind));
        if (!(std::abs(have - want) <= allowed))
            result.wrong.push_back({expected.wanted[j], want, have, allowed, scale});
    }
    return result;
}

// Fills in mismatches and pattern by what the reference covers.
inline void describe(Comparison& result, const BufferSpec& spec) {
    const std::vector<Mismatch>& wrong = result.wrong;
    result.mismatches = wrong.size();
    result.first.assign(wrong.begin(), wrong.begin() + std::min(wrong.size(), Comparison::kKept));
    if (wrong.empty())
        return;
    Shape shape(result.elements, spec.width);
    Values values;
    for (const Mismatch& m : wrong) {
        shape.add(m.element);
        values.count(flaw_of(m.got, spec.kind));
        values.look_at(m);
    }
    std::string which = shape.words();
    if (result.oracle_elements < result.elements) // of a sample, only what holds for all of it is said
        which = wrong.size() == result.oracle_elements ? "every element that the reference was asked about"
                                                       : "of " + std::to_string(result.oracle_elements) +
                                                             " elements that the reference was asked about";
    std::string what = values.words(spec.kind);
    result.pattern = which + (what.empty() ? "" : "; " + what);
}

// The scales of an output's elements, as far as the reference was asked: the largest one by the size of the value.
class Scales {
  public:
    void add(const Expected& expected) {
        for (size_t j = 0; j < expected.wanted.size(); ++j) {
            double& largest = largest_[Tolerance::bin(expected.value[j])];
            if (largest < expected.scale[j])
                largest = expected.scale[j];
        }
    }

    // How far from the baseline's an element is a suspect: both kernels may be off by the bound, one of them by the
    // rounding of the result. The scale of an element is taken to be the largest one at values of its size, give or take a
    // power of two.
    Tolerance tolerance(const BufferSpec& spec, double bound) const {
        Tolerance tolerance{};
        if (spec.exact)
            return tolerance;
        tolerance.rounds = true;
        double scales[Tolerance::kBins]; // of the bin and of the nearest ones on either side that have any
        double near = 0;
        for (int bin = 0; bin < Tolerance::kBins; ++bin) {
            scales[bin] = std::max(near, largest_[bin]);
            near = largest_[bin] < 0 ? near : largest_[bin];
        }
        near = 0;
        for (int bin = Tolerance::kBins - 1; bin >= 0; --bin) {
            tolerance.slack[bin] = 2 * bound * std::max(near, scales[bin]);
            near = largest_[bin] < 0 ? near : largest_[bin];
        }
        return tolerance;
    }

  private:
    std::vector<double> largest_ =
        std::vector<double>(Tolerance::kBins, -1.0); // of each bin; below 0 for none
};

// Places of elements that are furthest from the baseline's, where none is beyond `tolerance`.
inline std::vector<size_t> furthest(const void* got, const void* baseline, const BufferSpec& spec,
                                    Tolerance tolerance) {
    for (int step = 0; step < kNarrower; ++step) {
        for (double& slack : tolerance.slack)
            slack /= 2;
        Difference apart = compare_on_device(got, baseline, spec, tolerance);
        if (apart.count > 0)
            return {apart.kept, apart.kept + std::min<size_t>(apart.count, kFurthest)};
    }
    return {};
}

// Fills in mismatches and pattern by the comparison with the baseline; of the `known` elements the reference has said
// what is wrong with them, or that nothing is.
inline void describe(Comparison& result, const void* got, const void* baseline, const BufferSpec& spec,
                     const Tolerance& tolerance, const std::map<size_t, Flaw>& known) {
    constexpr size_t kChunk = 1 << 22, kLookedAt = 1 << 12;
    Shape shape(result.elements, spec.width);
    Values values;
    std::vector<size_t> looked_at;
    size_t every = 1;
    auto next = known.begin();
    for (size_t begin = 0; begin < result.elements; begin += kChunk) {
        size_t end = std::min(begin + kChunk, result.elements);
        std::vector<Flaw> found = flaws(got, baseline, spec, tolerance, begin, end - begin);
        for (; next != known.end() && next->first < end; ++next)
            found[next->first - begin] = next->second;
        for (size_t e = begin; e < end; ++e) {
            if (found[e - begin] == Flaw::kNone)
                continue;
            if (shape.count() % every == 0)
                looked_at.push_back(e);
            shape.add(e);
            values.count(found[e - begin]);
            if (looked_at.size() == kLookedAt) { // every second is enough
                for (size_t k = 0; 2 * k < looked_at.size(); ++k)
                    looked_at[k] = looked_at[2 * k];
                looked_at.resize((looked_at.size() + 1) / 2);
                every *= 2;
            }
        }
    }
    std::vector<double> have = gather(got, spec, looked_at), want = gather(baseline, spec, looked_at);
    for (size_t k = 0; k < looked_at.size(); ++k) {
        double slack = tolerance.slack[Tolerance::bin(want[k])];
        Mismatch m{looked_at[k], want[k], have[k], tolerance.at(want[k], spec.kind),
                   slack / (2 * result.bound)};
        values.look_at(m);
        if (result.first.size() < Comparison::kKept)
            result.first.push_back(m);
    }
    result.mismatches = shape.count();
    std::string what = values.words(spec.kind);
    result.pattern = shape.words() + (what.empty() ? "" : "; " + what);
}

// Where the reference took a sample: finds what is wrong among all elements of `got`, from the baseline's, which may be
// apart by `tolerance`; both are on the device. `ask` compares the elements at the places that it is given with the
// reference, `most` of them at a time; 0 where the reference cannot be asked.
template <class Ask>
void compare_with_baseline(Comparison& result, const void* got, const void* baseline, const BufferSpec& spec,
                           const Tolerance& tolerance, size_t most, const Ask& ask) {
    const bool can_ask = most > 0 && !spec.exact;
    std::map<size_t, Flaw> known;
    bool found = false;
    Tolerance wider = tolerance;
    for (int step = 0; step < 32 && !found; ++step) {
        Difference apart = compare_on_device(got, baseline, spec, wider);
        if (!can_ask) {
            found = apart.count > 0;
            break;
        }
        size_t count = std::min({static_cast<size_t>(apart.count), most, size_t{Difference::kKept}});
        std::vector<size_t> suspects(apart.kept, apart.kept + count);
        if (step == 0 && apart.count == 0)
            suspects = furthest(got, baseline, spec, tolerance);
        if (suspects.empty())
            break;
        Comparison asked = ask(suspects);
        for (size_t suspect : suspects)
            known[suspect] = Flaw::kNone;
        for (const Mismatch& m : asked.wrong)
            known[m.element] = flaw_of(m.got, spec.kind);
        result.worst = std::max(result.worst, asked.worst);
        found = !asked.wrong.empty();
        if (count == apart.count)
            break;
        // All that the reference was asked about are right, but there are more: those furthest off are next.
        for (double& slack : wider.slack)
            slack *= 16;
    }
    if (!found)
        return describe(result, spec);
    for (const Mismatch& m : result.wrong)
        known[m.element] = flaw_of(m.got, spec.kind);
    describe(result, got, baseline, spec, tolerance, known);
    if (!can_ask)
        return;
    std::vector<size_t> shown;
    for (const Mismatch& m : result.first)
        shown.push_back(m.element);
    std::vector<Mismatch> wrong = ask(shown).wrong;
    if (!wrong.empty())
        result.first.assign(wrong.begin(), wrong.begin() + std::min(wrong.size(), Comparison::kKept));
}

inline std::string json(const BufferSpec& spec, const Comparison& c, double baseline_worst) {
    Line line("output");
    line.add("name", spec.name).add("elements", c.elements).add("oracle_elements", c.oracle_elements);
    line.add("width", spec.width).add("mismatches", c.mismatches).add("worst_error", c.worst);
    line.add("baseline_worst_error", baseline_worst).add("bound", c.bound).add("pattern", c.pattern);
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
