// What has to come of a case's inputs: by the double-precision reference, by one in Python, or by the baseline itself.
#pragma once
#include <algorithm>
#include <string>
#include <vector>
#include "mskb/buffers.h"
#include "mskb/dump.h"
#include "mskb/input_set.h"
#include "mskb/options.h"
#include "mskb/python_reference.h"
#include "mskb/side_by_side.h"
#include "mskb/task.h"

namespace mskb {

constexpr double kAskedPart =
    0.1; // of the work of a check is done for elements that are far from the baseline's

// Outputs of fewer elements have one usual size over all inputs: a few sums may all nearly cancel in one call.
constexpr size_t kFewElements = 16;

// Where outputs of a call lie on the device, per buffer; of no meaning for inputs.
using Outputs = std::vector<const void*>;

// Thrown where nothing says what has to come of the inputs of a case: no candidate is to blame for that.
struct TruthFailed {
    int index; // of the case
    const char* who;
    std::string what;
    bool replied = true; // it said so itself, and was not killed or too slow
};

// The inputs of one call in the host's memory, which the cases share. They are made where no worker finds them: who
// changed those that are shared, while the reference is asked, would have it say what comes of others.
class HostInputs {
  public:
    // Makes room for the inputs of a case, where there is less.
    void make_room(const std::vector<BufferSpec>& specs) {
        serial_ = 0;
        buffers_.resize(std::max(buffers_.size(), specs.size()));
        for (size_t i = 0; i < specs.size(); ++i)
            buffers_[i].room(specs[i].is_read() ? specs[i].bytes() : 0);
    }

    // Where they are, per buffer.
    std::vector<const void*> of(const Inputs& inputs, const std::vector<BufferSpec>& specs) {
        buffers_.resize(std::max(buffers_.size(), specs.size()));
        const bool here = serial_ == inputs.serial();
        std::vector<const void*> pointers;
        for (size_t i = 0; i < specs.size(); ++i) {
            size_t bytes = specs[i].is_read() ? specs[i].bytes() : 0;
            void* host = buffers_[i].room(bytes);
            if (!here && bytes > 0)
                inputs.copy(i, host);
            pointers.push_back(host);
        }
        serial_ = inputs.serial();
        return pointers;
    }

  private:
    std::vector<HostBuffer> buffers_;
    uint64_t serial_ = 0; // of the inputs that are here
};

class Oracle {
  public:
    Oracle(const Options& options, int index, const Row& row, const std::vector<BufferSpec>& specs,
           HostInputs& host, const Helpers& helpers, PythonReference& python, Rng& rng)
        : options_(options), index_(index), row_(row), specs_(specs), host_(host), helpers_(helpers),
          python_(python), rng_(rng) {}

    // Per buffer what has to be in it, for a part of the usual operations; empty for inputs. `own` is what the baseline made
    // of them, which counts where that is the truth.
    std::vector<Expected> expect(const Inputs& inputs, double part, const Outputs& own) {
        double budget = part * options_.oracle_operations;
        size_t limit = static_cast<size_t>(part * static_cast<double>(options_.oracle_elements));
        std::vector<Expected> expected;
        for (const BufferSpec& spec : specs_)
            expected.emplace_back(spec.is_written() ? spec.length : 0, spec.unit, spec.cost, budget, limit,
                                  rng_);
        answer(inputs, expected, own);
        return expected;
    }

    // The same for elements `places` of output `i` alone, and what it makes together with them.
    std::vector<Expected> expect_at(const Inputs& inputs, size_t i, const std::vector<size_t>& places,
                                    const Outputs& own) {
        std::vector<Expected> expected;
        for (size_t k = 0; k < specs_.size(); ++k)
            expected.emplace_back(specs_[k].is_written() ? specs_[k].length : 0, specs_[k].unit,
                                  k == i ? places : std::vector<size_t>());
        answer(inputs, expected, own);
        return expected;
    }

    // Elements of output `i` that can be asked about beside a sample.
    size_t most_asked(size_t i) const {
        return static_cast<size_t>(kAskedPart * options_.oracle_operations / std::max(specs_[i].cost, 1.0)) +
               4;
    }

    // Throws TruthFailed where the baseline left an element of output `i` as it was, or a NaN there. An integer that was
    // never written looks like any other, so this is for those that differ from call to call.
    void must_be_written(size_t i, size_t place, double value) const {
        const bool untouched = specs_[i].use == Use::kOutput && is_poison(value, specs_[i].kind);
        if (!untouched && !std::isnan(value))
            return;
        throw TruthFailed{index_, "baseline",
                          "element " + std::to_string(place) + " of " + specs_[i].name +
                              (untouched ? " was never written" : " is NaN")};
    }

    // Raises scales that were taken over before, of outputs of few elements, to the usual size that is known now.
    void raise(std::vector<Expected>& expected) const {
        for (size_t i = 0; i < usual_.size(); ++i)
            for (double& scale : expected[i].scale)
                scale = std::max(scale, usual_[i]);
    }

  private:
    void answer(const Inputs& inputs, std::vector<Expected>& expected, const Outputs& own) {
        const Truth truth = task().truth();
        const bool there =
            truth == Truth::kBaseline || (truth == Truth::kPython && python_.has(inputs.serial()));
        const std::vector<const void*> pointers =
            there ? std::vector<const void*>() : host_.of(inputs, specs_);
        if (truth == Truth::kBaseline)
            take_over(own, expected);
        else if (truth == Truth::kPython)
            ask_python(inputs, pointers, expected);
        else
            reference_side_by_side(helpers_, row_.sizes, specs_, pointers, expected);
        for (size_t i = 0; i < specs_.size(); ++i)
            if (!expected[i].complete())
                harness_failure(std::string("the reference left elements of ") + specs_[i].name +
                                " undefined");
        for (size_t i = 0; i < specs_.size(); ++i)
            if (specs_[i].is_written() && specs_[i].exact)
                for (double& value : expected[i].value)
                    value = nearest(specs_[i].kind, value);
        if (!options_.dump.empty() && !dumped_ && !there)
            dump(options_.dump, index_, specs_, pointers, expected);
        dumped_ = true; // the first of a case
    }

    void ask_python(const Inputs& inputs, const std::vector<const void*>& pointers,
                    std::vector<Expected>& expected) {
        std::string why = python_.answer(inputs.serial(), row_.sizes, specs_, pointers, expected);
        if (!why.empty())
            throw TruthFailed{index_, "reference", why, python_.replied()};
    }

    // The baseline's own output as the truth. Its scale is that of the element, or of a usual one where that is larger.
    void take_over(const Outputs& own, std::vector<Expected>& expected) {
        usual_.resize(specs_.size());
        for (size_t i = 0; i < specs_.size(); ++i) {
            if (expected[i].wanted.empty())
                continue;
            expected[i].value = gather(own[i], specs_[i], expected[i].wanted);
            double usual = root_mean_square(own[i], specs_[i]);
            if (static_cast<size_t>(specs_[i].length) < kFewElements)
                usual = usual_[i] = std::max(usual, usual_[i]);
            for (size_t j = 0; j < expected[i].value.size(); ++j) {
                double value = expected[i].value[j];
                if (std::isnan(value))
                    must_be_written(i, expected[i].wanted[j], value);
                expected[i].scale[j] = std::isinf(value) ? usual : std::max(std::abs(value), usual);
            }
        }
    }

    const Options& options_;
    int index_;
    const Row& row_;
    const std::vector<BufferSpec>& specs_;
    HostInputs& host_;
    const Helpers& helpers_;
    PythonReference& python_;
    Rng& rng_;
    std::vector<double> usual_; // size of outputs of few elements, where the baseline is the truth; else 0
    bool dumped_ = false;
};

} // namespace mskb
