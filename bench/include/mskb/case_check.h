// Whether a call was right: guard zones and inputs as they were, every output within the bound of the case, which
// follows from the baseline's own errors (compare.h).
#pragma once
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <vector>
#include "mskb/compare.h"
#include "mskb/input_set.h"
#include "mskb/oracle.h"
#include "mskb/report.h"

namespace mskb {

constexpr double kBaselineError = 1e-4; // a baseline further off than this, in units of scale, is wrong

// What a call left: damage in words, and the wanted elements of its outputs.
struct Observation {
    std::string damage;
    std::vector<std::vector<double>> outputs; // per buffer
};

class CaseCheck {
  public:
    CaseCheck(const std::vector<BufferSpec>& specs, const std::vector<WorkingBuffer>& working, Oracle& oracle)
        : specs_(specs), working_(working), oracle_(oracle), worst_(specs.size(), 0.0), kept_(specs.size()) {}

    Observation observe(const Inputs& inputs, const std::vector<Expected>& expected,
                        const std::string& unsettled) const {
        std::string damage = damaged(inputs);
        Observation seen{damage.empty() ? unsettled : damage, {}};
        for (size_t i = 0; i < specs_.size(); ++i)
            seen.outputs.push_back(gather(working_[i].get(), specs_[i], expected[i].wanted));
        return seen;
    }

    // Whether a call of the baseline was right; its worst error goes into the bound.
    bool baseline(const Observation& seen, const std::vector<Expected>& expected) {
        bool ok = seen.damage.empty();
        for (size_t i = 0; i < specs_.size(); ++i) {
            if (!specs_[i].is_written())
                continue;
            double worst = worst_error(seen.outputs[i], specs_[i], expected[i]);
            worst_[i] = std::max(worst_[i], worst);
            ok = ok && worst <= (specs_[i].exact ? 0.0 : kBaselineError);
        }
        return ok;
    }

    double baseline_worst_error() const {
        double worst = 0;
        for (double w : worst_)
            worst = std::max(worst, w);
        return worst;
    }

    // Keeps the outputs that the reference does not cover, for the comparison of every element.
    void keep_outputs(const std::vector<Expected>& expected) {
        for (size_t i = 0; i < specs_.size(); ++i) {
            if (!expected[i].sampled())
                continue;
            if (!kept_[i])
                kept_[i].emplace(specs_[i].bytes());
            MSKB_CUDA(
                cudaMemcpy(kept_[i]->get(), working_[i].get(), specs_[i].bytes(), cudaMemcpyDeviceToDevice));
        }
    }

    // Whether a call of the candidate was right; `line` takes what was found. Of the outputs that the reference does
    // not cover, the working buffers have the candidate's and the kept ones the baseline's, or the other way round.
    bool candidate(const Observation& seen, const std::vector<Expected>& expected, bool candidate_last,
                   Line& line) const {
        bool ok = seen.damage.empty();
        std::string outputs;
        for (size_t i = 0; i < specs_.size(); ++i) {
            if (!specs_[i].is_written())
                continue;
            Comparison comparison = compare(seen.outputs[i], specs_[i], expected[i], worst_[i]);
            if (expected[i].sampled()) {
                const void *working = working_[i].get(), *kept = kept_[i]->get();
                const void *got = candidate_last ? working : kept,
                           *baseline = candidate_last ? kept : working;
                auto ask = [&](const std::vector<size_t>& places) {
                    std::vector<Expected> asked = oracle_.expect_at(i, places);
                    return compare(gather(got, specs_[i], asked[i].wanted), specs_[i], asked[i], worst_[i]);
                };
                compare_with_baseline(comparison, got, baseline, specs_[i], expected[i],
                                      oracle_.most_asked(i), ask);
            } else {
                describe(comparison, specs_[i]);
            }
            ok = ok && comparison.mismatches == 0;
            outputs += (outputs.empty() ? "" : ",") + json(specs_[i], comparison, worst_[i]);
        }
        line.add("ok", ok).add("damage", seen.damage).raw("outputs", "[" + outputs + "]");
        return ok;
    }

  private:
    // Empty when guard zones and inputs are as they were, else what was damaged.
    std::string damaged(const Inputs& inputs) const {
        for (size_t i = 0; i < specs_.size(); ++i) {
            if (std::string overrun = working_[i].overrun(); !overrun.empty())
                return std::string(specs_[i].name) + " was " + overrun;
            if (specs_[i].use == Use::kInput && inputs.changed(i, working_[i].get()))
                return std::string("the input ") + specs_[i].name + " was changed";
        }
        return "";
    }

    const std::vector<BufferSpec>& specs_;
    const std::vector<WorkingBuffer>& working_;
    Oracle& oracle_;
    std::vector<double> worst_;                     // error of the baseline so far, per buffer
    std::vector<std::optional<ReusedBuffer>> kept_; // outputs of the call before
};

} // namespace mskb
