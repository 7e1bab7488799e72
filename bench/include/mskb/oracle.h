// What has to come of a case's inputs, by the double-precision reference.
#pragma once
#include <algorithm>
#include <string>
#include <vector>
#include "mskb/arena.h"
#include "mskb/buffers.h"
#include "mskb/dump.h"
#include "mskb/options.h"
#include "mskb/side_by_side.h"
#include "mskb/task.h"

namespace mskb {

constexpr double kAskedPart =
    0.1; // of the work of a check is done for elements that are far from the baseline's

class Oracle {
  public:
    // Of the inputs that are in `working` when it is asked. `host` is memory that the cases share.
    Oracle(const Options& options, int index, const Row& row, const std::vector<BufferSpec>& specs,
           const std::vector<WorkingBuffer>& working, std::vector<HostBuffer>& host, const Helpers& helpers,
           Rng& rng)
        : options_(options), index_(index), row_(row), specs_(specs), working_(working), host_(host),
          helpers_(helpers), rng_(rng) {
        host_.resize(std::max(host_.size(), specs_.size()));
    }

    // Makes room in `host` for the inputs of a case, where there is less.
    static void make_room(std::vector<HostBuffer>& host, const std::vector<BufferSpec>& specs) {
        host.resize(std::max(host.size(), specs.size()));
        for (size_t i = 0; i < specs.size(); ++i)
            host[i].room(specs[i].is_read() ? specs[i].bytes() : 0);
    }

    // Per buffer what has to be in it, for a part of the usual operations; empty for inputs.
    std::vector<Expected> expect(double part) {
        double budget = part * options_.oracle_operations;
        size_t limit = static_cast<size_t>(part * static_cast<double>(options_.oracle_elements));
        std::vector<Expected> expected;
        for (const BufferSpec& spec : specs_)
            expected.emplace_back(spec.is_written() ? spec.length : 0, spec.unit, spec.cost, budget, limit,
                                  rng_);
        answer(expected);
        return expected;
    }

    // The same for elements `places` of output `i` alone, and what it makes together with them.
    std::vector<Expected> expect_at(size_t i, const std::vector<size_t>& places) {
        std::vector<Expected> expected;
        for (size_t k = 0; k < specs_.size(); ++k)
            expected.emplace_back(specs_[k].is_written() ? specs_[k].length : 0, specs_[k].unit,
                                  k == i ? places : std::vector<size_t>());
        answer(expected);
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
    void answer(std::vector<Expected>& expected) {
        std::vector<const void*> pointers;
        for (size_t i = 0; i < specs_.size(); ++i) {
            size_t bytes = specs_[i].is_read() ? specs_[i].bytes() : 0;
            void* host = host_[i].room(bytes);
            MSKB_CUDA(cudaMemcpy(host, working_[i].get(), bytes, cudaMemcpyDeviceToHost));
            pointers.push_back(host);
        }
        reference_side_by_side(helpers_, row_.sizes, specs_, pointers, expected);
        for (size_t i = 0; i < specs_.size(); ++i)
            if (!expected[i].complete())
                harness_failure(std::string("the reference left elements of ") + specs_[i].name +
                                " undefined");
        if (!options_.dump.empty() && !dumped_)
            dump(options_.dump, index_, specs_, pointers, expected);
        dumped_ = true; // the first of a case
    }

    const Options& options_;
    int index_;
    const Row& row_;
    const std::vector<BufferSpec>& specs_;
    const std::vector<WorkingBuffer>& working_;
    std::vector<HostBuffer>& host_;
    const Helpers& helpers_;
    Rng& rng_;
    bool dumped_ = false;
};

} // namespace mskb
