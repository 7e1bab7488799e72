// What has to come of a case's inputs, by the double-precision reference.
#pragma once
#include <algorithm>
#include <string>
#include <vector>
#include "mskb/arena.h"
#include "mskb/buffers.h"
#include "mskb/dump.h"
#include "mskb/input_set.h"
#include "mskb/options.h"
#include "mskb/side_by_side.h"
#include "mskb/task.h"

namespace mskb {

constexpr double kAskedPart =
    0.1; // of the work of a check is done for elements that are far from the baseline's

// The inputs of one call in the host's memory, which the cases share.
class HostInputs {
  public:
    // Makes room for the inputs of a case, where there is less.
    void make_room(const std::vector<BufferSpec>& specs) {
        serial_ = 0;
        buffers_.resize(std::max(buffers_.size(), specs.size()));
        for (size_t i = 0; i < specs.size(); ++i)
            buffers_[i].room(specs[i].is_read() ? specs[i].bytes() : 0);
    }

    // Where they are, per buffer. They are copied from `working` unless they are here.
    std::vector<const void*> of(const Inputs& inputs, const std::vector<BufferSpec>& specs,
                                const std::vector<WorkingBuffer>& working) {
        buffers_.resize(std::max(buffers_.size(), specs.size()));
        const bool here = serial_ == inputs.serial();
        std::vector<const void*> pointers;
        for (size_t i = 0; i < specs.size(); ++i) {
            size_t bytes = specs[i].is_read() ? specs[i].bytes() : 0;
            void* host = buffers_[i].room(bytes);
            if (!here)
                MSKB_CUDA(cudaMemcpy(host, working[i].get(), bytes, cudaMemcpyDeviceToHost));
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
    // Of inputs that are in `working` when it is asked.
    Oracle(const Options& options, int index, const Row& row, const std::vector<BufferSpec>& specs,
           const std::vector<WorkingBuffer>& working, HostInputs& host, const Helpers& helpers, Rng& rng)
        : options_(options), index_(index), row_(row), specs_(specs), working_(working), host_(host),
          helpers_(helpers), rng_(rng) {}

    // Per buffer what has to be in it, for a part of the usual operations; empty for inputs.
    std::vector<Expected> expect(const Inputs& inputs, double part) {
        double budget = part * options_.oracle_operations;
        size_t limit = static_cast<size_t>(part * static_cast<double>(options_.oracle_elements));
        std::vector<Expected> expected;
        for (const BufferSpec& spec : specs_)
            expected.emplace_back(spec.is_written() ? spec.length : 0, spec.unit, spec.cost, budget, limit,
                                  rng_);
        answer(inputs, expected);
        return expected;
    }

    // The same for elements `places` of output `i` alone, and what it makes together with them.
    std::vector<Expected> expect_at(const Inputs& inputs, size_t i, const std::vector<size_t>& places) {
        std::vector<Expected> expected;
        for (size_t k = 0; k < specs_.size(); ++k)
            expected.emplace_back(specs_[k].is_written() ? specs_[k].length : 0, specs_[k].unit,
                                  k == i ? places : std::vector<size_t>());
        answer(inputs, expected);
        return expected;
    }

    // Elements of output `i` that can be asked about beside a sample; none where an input is gone.
    size_t most_asked(size_t i) const {
        for (const BufferSpec& spec : specs_)
            if (spec.use == Use::kInOut)
                return 0;
        return static_cast<size_t>(kAskedPart * options_.oracle_operations / std::max(specs_[i].cost, 1.0)) +
               4;
    }

  private:
    void answer(const Inputs& inputs, std::vector<Expected>& expected) {
        const std::vector<const void*> pointers = host_.of(inputs, specs_, working_);
        reference_side_by_side(helpers_, row_.sizes, specs_, pointers, expected);
        for (size_t i = 0; i < specs_.size(); ++i)
            if (!expected[i].complete())
                harness_failure(std::string("the reference left elements of ") + specs_[i].name +
                                " undefined");
        for (size_t i = 0; i < specs_.size(); ++i)
            if (specs_[i].is_written() && specs_[i].exact)
                for (double& value : expected[i].value)
                    value = nearest(specs_[i].kind, value);
        if (!options_.dump.empty() && !dumped_)
            dump(options_.dump, index_, specs_, pointers, expected);
        dumped_ = true; // the first of a case
    }

    const Options& options_;
    int index_;
    const Row& row_;
    const std::vector<BufferSpec>& specs_;
    const std::vector<WorkingBuffer>& working_;
    HostInputs& host_;
    const Helpers& helpers_;
    Rng& rng_;
    bool dumped_ = false;
};

} // namespace mskb
