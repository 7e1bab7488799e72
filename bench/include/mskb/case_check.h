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

// What a call left: damage in words, and the wanted elements of its outputs.
struct Observation {
    std::string damage;
    std::vector<std::vector<double>> outputs; // per buffer
};

// A copy of what a call wrote, where no worker finds it.
class KeptOutputs {
  public:
    // Of all that is written, or of those buffers alone for which `wanted` is true.
    template <class Wanted>
    void keep(const std::vector<BufferSpec>& specs, const std::vector<WorkingBuffer>& working,
              const Wanted& wanted) {
        kept_.resize(specs.size());
        for (size_t i = 0; i < specs.size(); ++i) {
            if (!specs[i].is_written() || !wanted(i))
                continue;
            if (!kept_[i])
                kept_[i].emplace(specs[i].bytes());
            MSKB_CUDA(cudaMemcpyAsync(kept_[i]->get(), working[i].get(), specs[i].bytes(),
                                      cudaMemcpyDeviceToDevice));
        }
    }
    void keep(const std::vector<BufferSpec>& specs, const std::vector<WorkingBuffer>& working) {
        keep(specs, working, [](size_t) { return true; });
    }

    Outputs outputs() const {
        Outputs there;
        for (const std::optional<ReusedBuffer>& kept : kept_)
            there.push_back(kept ? kept->get() : nullptr);
        return there;
    }

  private:
    std::vector<std::optional<ReusedBuffer>> kept_; // per buffer
};

class CaseCheck {
  public:
    CaseCheck(const std::vector<BufferSpec>& specs, const std::vector<WorkingBuffer>& working, Oracle& oracle)
        : specs_(specs), working_(working), oracle_(oracle), worst_(specs.size(), 0.0),
          scales_(specs.size()) {}

    // Of the working buffers.
    Observation observe(const Inputs& inputs, const std::vector<Expected>& expected,
                        const std::string& unsettled) const {
        std::string damage = damaged(inputs);
        return observed(damage.empty() ? unsettled : damage, working_outputs(), expected);
    }

    Observation observed(const std::string& damage, const Outputs& outputs,
                         const std::vector<Expected>& expected) const {
        Observation seen{damage, {}};
        for (size_t i = 0; i < specs_.size(); ++i)
            seen.outputs.push_back(gather(outputs[i], specs_[i], expected[i].wanted));
        return seen;
    }

    Outputs working_outputs() const {
        Outputs there;
        for (const WorkingBuffer& buffer : working_)
            there.push_back(buffer.get());
        return there;
    }

    // Whether a call of the baseline was right; its worst error goes into the bound.
    bool baseline(const Observation& seen, const std::vector<Expected>& expected) {
        bool ok = seen.damage.empty();
        for (size_t i = 0; i < specs_.size(); ++i) {
            if (!specs_[i].is_written())
                continue;
            double worst = worst_error(seen.outputs[i], specs_[i], expected[i]);
            worst_[i] = std::max(worst_[i], worst);
            if (!specs_[i].exact)
                scales_[i].add(expected[i]);
            ok = ok && worst <= (specs_[i].exact ? 0.0 : specs_[i].sound);
        }
        return ok;
    }

    double baseline_worst_error() const {
        double worst = 0;
        for (double w : worst_)
            worst = std::max(worst, w);
        return worst;
    }

    // Outputs of which zeros would pass for a part of the elements, and that part, as JSON.
    std::string like_zero(const std::vector<Expected>& expected) const {
        std::string found;
        for (size_t i = 0; i < specs_.size(); ++i)
            if (double part = specs_[i].is_written() ? part_like_zero(specs_[i], expected[i], worst_[i]) : 0;
                part > 0)
                found += (found.empty() ? "" : ",") + Line::quoted(specs_[i].name) + ":" + Line::number(part);
        return "{" + found + "}";
    }

    // Whether a call of the candidate was right; `line` takes what was found. Where the reference does not cover an output,
    // every element of `got` is compared with that of `baseline`.
    bool candidate(const Inputs& inputs, const Observation& seen, const std::vector<Expected>& expected,
                   const Outputs& got, const Outputs& baseline, Line& line) {
        bool ok = seen.damage.empty();
        std::string outputs;
        for (size_t i = 0; i < specs_.size(); ++i) {
            if (!specs_[i].is_written())
                continue;
            Comparison comparison = compare(seen.outputs[i], specs_[i], expected[i], worst_[i]);
            if (expected[i].sampled()) {
                auto ask = [&](const std::vector<size_t>& places) {
                    std::vector<Expected> asked = oracle_.expect_at(inputs, i, places, baseline);
                    scales_[i].add(asked[i]);
                    return compare(gather(got[i], specs_[i], asked[i].wanted), specs_[i], asked[i],
                                   worst_[i]);
                };
                compare_with_baseline(comparison, got[i], baseline[i], specs_[i], tolerance(i),
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

    // How far an output may be from the baseline's before its elements are suspects, by all that the reference has said.
    Tolerance tolerance(size_t i) const {
        return scales_[i].tolerance(specs_[i], bound_of(specs_[i], worst_[i]));
    }

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

  private:
    const std::vector<BufferSpec>& specs_;
    const std::vector<WorkingBuffer>& working_;
    Oracle& oracle_;
    std::vector<double> worst_; // error of the baseline so far, per buffer
    std::vector<Scales> scales_;
};

} // namespace mskb
