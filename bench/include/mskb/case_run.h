// One case of a task: checks the candidate on it and, where it belongs to the sweep, times it.
//
//   1. the baseline on inputs of several streams of the seed, held against the double-precision reference
//   2. the candidate on the same inputs: CUDA errors, guard zones, unchanged inputs, outputs within bounds
//   3. for the sweep: baseline and candidate timed in turn (case_time.h), or as the paper does
// Calls are made by workers, processes of their own; what they are given and what they made is kept here.
// Lines of the report: case, skip, reference, check, fault, timeout, time, paper; harness.h adds begin and end, workers.h
// isolation.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>
#include "mskb/case_calls.h"
#include "mskb/case_check.h"
#include "mskb/case_time.h"
#include "mskb/oracle.h"

namespace mskb {

constexpr size_t kErrorSamples = 12;       // elements whose errors make the bound, as far as ...
constexpr double kErrorSeconds = 0.5;      // ... further calls of the baseline for that take no longer
constexpr uint64_t kErrorStream = 1 << 24; // of the inputs of those calls
constexpr int kOtherPoison = 0x5A; // that outputs are filled with, where what is left of them has to show
static_assert(kSets <= kTimedStream);

// What the cases of a run share.
struct Run {
    const Options& options;
    const Report& report;
    Workers& workers;
    const GpuState& gpu;
    const SharedMemory& memory;
    size_t for_slots; // bytes of it
    HostInputs& host;
    const Helpers& helpers;
    PythonReference& python;
    size_t most_bytes; // what a case may take on the device
    int timed_cases;   // share the time for extra turns ...
    double weights;    // ... and have these weights together
    int& retakes;      // times that the calls of a case may still be timed anew (case_time.h)
};

class CaseRun {
  public:
    CaseRun(const Run& run, int index, const Row& row)
        : run_(run), row_(row),
          calls_(run.options, run.report, run.workers, run.memory, run.for_slots, index, row),
          rng_(run.options.seed, label_stream(row.label), 1u << 20),
          oracle_(run.options, index, row_, calls_.specs(), run.host, run.helpers, run.python, rng_),
          check_(calls_.specs(), calls_.working(), oracle_) {}

    // Why a case is not run, empty for one that is. `most_bytes`: what it may take on the device.
    static std::string left_out(const Options& options, const Row& row, size_t most_bytes) {
        if (row.sweep && options.work_limit > 0 && row.weight > options.work_limit)
            return "too long for this device";
        if (size_t needed = footprint(task().buffers(row.sizes), options); needed > most_bytes)
            return "needs " + std::to_string(needed >> 20) + " MiB of device memory, " +
                   std::to_string(most_bytes >> 20) + " MiB may be used";
        return "";
    }

    // Does what needs no candidate, before the turn of the case comes. Throws RunOver, also where the baseline is wrong: no
    // candidate is to blame for that.
    void prepare() {
        calls_.hold();
        try {
            begin();
            if (!baseline_ok_)
                throw RunOver{kWrongExit, "baseline"};
        } catch (const RunOver&) {
            calls_.release();
            throw;
        }
    }

    // Bytes of the host and of the device that are held once it is prepared.
    size_t prepared_bytes() const {
        size_t bytes = 0;
        for (const Set& set : sets_) {
            bytes += set.inputs.structure_bytes();
            for (const Expected& expected : set.expected)
                bytes += expected.bytes();
        }
        return bytes;
    }

    // Whether everything that ran was right.
    bool run(bool timing_allowed) {
        const Options& options = run_.options;
        const bool prepared = began_;
        prepared ? calls_.release() : begin();
        if (left_out_)
            return true;
        if (prepared) // other cases have had the workers since
            calls_.begin();
        if (options.profile > 0 || options.launches)
            return profile();
        bool ok = baseline_ok_;
        if (run_.workers.judged()) {
            calls_.join(1);
            for (Set& set : sets_)
                ok = check(set) && ok;
        }
        if (ok && timing_allowed && row_.sweep && options.calls > 0) {
            calls_.join(run_.workers.pairs());
            if (options.paper && run_.workers.judged())
                time_as_the_paper();
            if (options.paper)
                return true;
            double extra_seconds =
                std::min(kMostExtra, options.extra_seconds / std::max(run_.timed_cases, 1));
            // P is the mean of the cases by their weights. With these errors it is as exact as a single case would be, if
            // their speedups are alike. Cases that are repeated are so many runs of them.
            double runs_of_all = static_cast<double>(run_.timed_cases) * options.repeat;
            double part = std::sqrt(runs_of_all) * row_.weight / std::max(run_.weights, 1e-300);
            ok = CaseTime(options, calls_, check_, oracle_, run_.gpu, rng_, run_.most_bytes, part,
                          extra_seconds, run_.retakes)
                     .run(sets_.back().inputs.structure_seconds());
        }
        return ok;
    }

  private:
    // Inputs, and what has to come of them.
    struct Set {
        Inputs inputs;
        std::vector<Expected> expected; // per buffer, empty for inputs
    };

    // Bytes that a case takes on the device: its buffers, once more the inputs, if they have structure or the reference
    // is given them, and four times the outputs that are compared there; on the CPU device also the copies of the
    // workers, of which launches need one, and what is only told none.
    static size_t footprint(const std::vector<BufferSpec>& specs, [[maybe_unused]] const Options& options) {
#ifdef MSKB_CPU_DEVICE
        return (options.told ? 1 : options.launches ? 2 : 4) * Layout(specs).bytes;
#else
        size_t written = 0;
        for (const BufferSpec& spec : specs)
            written += spec.is_written() ? spec.bytes() : 0;
        return 2 * Layout(specs).bytes + 3 * written;
#endif
    }

    void begin() {
        began_ = true;
        calls_.write(calls_.line("case").add("label", row_.label).add("sweep", row_.sweep));
        std::string reason = left_out(run_.options, row_, run_.most_bytes);
        left_out_ = !reason.empty();
        if (left_out_) {
            calls_.write(calls_.line("skip").add("reason", reason));
            return;
        }
        calls_.begin();
        if (run_.options.profile == 0 && !run_.options.launches)
            baseline_ok_ = reference();
    }

    // Inputs and expected values of every set; false when the baseline itself is wrong.
    bool reference() {
        bool ok = true;
        sets_.reserve(run_.options.sets);
        for (int k = 0; k < run_.options.sets; ++k) {
            Inputs inputs = calls_.make_inputs(k);
            std::vector<Expected> expected = expect(inputs, 1);
            sets_.push_back({std::move(inputs), std::move(expected)});
            double seconds = 0;
            ok = right_baseline(sets_[k].inputs, sets_[k].expected, &seconds) && ok;
            calls_.baseline_seconds = k == 0 ? seconds : std::min(seconds, calls_.baseline_seconds);
        }
        ok = sample_errors() && ok;
        for (Set& set : sets_)
            oracle_.raise(set.expected);
        own_ = KeptOutputs(); // cases that are prepared early hold little of the device
        Line line = calls_.line("reference")
                        .add("baseline_ok", ok)
                        .add("baseline_worst_error", check_.baseline_worst_error())
                        .add("baseline_us", calls_.baseline_seconds * 1e6);
        if (task().truth() != Truth::kReference)
            line.add("constant", is_constant()).raw("like_zero", check_.like_zero(sets_[0].expected));
        calls_.write(line);
        return ok;
    }

    // What has to come of inputs. Where the baseline is its own reference, it is called for that.
    std::vector<Expected> expect(const Inputs& inputs, double part) {
        if (task().truth() == Truth::kBaseline) {
            Outcome outcome = calls_.call(run_.workers.baseline(), Ask::kCall, inputs);
            std::string damage = check_.damaged(inputs);
            if (!damage.empty() || !outcome.unsettled.empty())
                throw TruthFailed{calls_.index(), "baseline", damage.empty() ? outcome.unsettled : damage};
            own_.keep(calls_.specs(), calls_.working());
        }
        return oracle_.expect(inputs, part, own_.outputs());
    }

    // What the baseline made of the inputs against what had to come. Where it is its own reference, this call starts from
    // outputs with other contents: what it leaves of them shows, and what is otherwise different is its own error.
    bool right_baseline(const Inputs& inputs, const std::vector<Expected>& expected,
                        double* seconds = nullptr) {
        const bool own = task().truth() == Truth::kBaseline;
        calls_.place(inputs);
        for (size_t i = 0; own && i < calls_.specs().size(); ++i)
            if (const BufferSpec& spec = calls_.specs()[i]; !spec.is_read())
                MSKB_CUDA(cudaMemset(calls_.working()[i].get(), kOtherPoison, spec.bytes()));
        Outcome outcome = calls_.call(run_.workers.baseline(), Ask::kCall);
        if (seconds != nullptr)
            *seconds = outcome.seconds;
        if (own)
            must_be_written();
        const bool ok = check_.baseline(check_.observe(inputs, expected, outcome.unsettled), expected);
        if (own && !ok)
            throw TruthFailed{calls_.index(), "baseline",
                              "two calls on the same inputs differ, by " +
                                  Line::number(check_.baseline_worst_error()) +
                                  " of the scale of an element"};
        return ok;
    }

    // An element that holds what was there before both calls was never written; a NaN is nothing to compare with.
    void must_be_written() const {
        for (size_t i = 0; i < calls_.specs().size(); ++i) {
            const BufferSpec& spec = calls_.specs()[i];
            if (!spec.is_written())
                continue;
            Difference apart = compare_on_device(own_.outputs()[i], calls_.working()[i].get(), spec, {});
            std::vector<size_t> places(apart.kept,
                                       apart.kept + std::min<size_t>(apart.count, Difference::kKept));
            std::vector<double> first = gather(own_.outputs()[i], spec, places);
            for (size_t j = 0; j < places.size(); ++j)
                oracle_.must_be_written(i, places[j], first[j]);
        }
    }

    // Whether all sets of inputs have to give the same; of a sample, as far as its ends say.
    bool is_constant() const {
        bool same = sets_.size() > 1 &&
                    std::any_of(calls_.specs().begin(), calls_.specs().end(),
                                [](const BufferSpec& spec) { return spec.is_read() && spec.length > 0; });
        for (size_t i = 0; i < calls_.specs().size(); ++i)
            for (const Set& set : sets_) {
                const std::vector<double>&one = sets_.front().expected[i].value,
                      &other = set.expected[i].value;
                same = same &&
                       (set.expected[i].sampled() ? one.front() == other.front() && one.back() == other.back()
                                                  : one == other);
            }
        return same;
    }

    // Of three errors like the baseline's, one in a hundred honest ones is beyond four times the worst; of twelve, one in
    // a hundred thousand. Where an output has few elements, the baseline is looked at on more inputs.
    bool sample_errors() {
        size_t fewest = kErrorSamples;
        for (size_t i = 0; i < calls_.specs().size(); ++i) {
            const BufferSpec& spec = calls_.specs()[i];
            if (spec.is_written() && !spec.exact && spec.length > 0)
                fewest = std::min(fewest, sets_[0].expected[i].wanted.size());
        }
        Clock::time_point start = Clock::now();
        bool ok = true;
        for (size_t calls = sets_.size(); calls * fewest < kErrorSamples; ++calls) {
            Inputs inputs = calls_.make_inputs(kErrorStream + calls);
            ok = right_baseline(inputs, expect(inputs, kTimedPart)) && ok;
            if (seconds_since(start) > kErrorSeconds)
                break;
        }
        return ok;
    }

    bool check(Set& set) {
        auto sampled = [&](size_t i) { return set.expected[i].sampled(); };
        bool any = false;
        for (size_t i = 0; i < set.expected.size(); ++i)
            any = any || sampled(i);
        if (any) {
            calls_.call(run_.workers.baseline(), Ask::kCall, set.inputs);
            baseline_.keep(calls_.specs(), calls_.working(), sampled);
        }
        Outcome outcome = calls_.call(run_.workers.candidate(), Ask::kCall, set.inputs);
        Line found = calls_.line("check").add("stage", "check");
        bool ok = check_.candidate(set.inputs, check_.observe(set.inputs, set.expected, outcome.unsettled),
                                   set.expected, check_.working_outputs(), baseline_.outputs(), found);
        calls_.write(found);
        return ok;
    }

    // The paper's protocol: warm-ups, then calls one behind the other on the same inputs and in hot caches, first of the
    // baseline, then of the candidate; and how far its outputs are from the baseline's. The clock is the judge's, so that a
    // message each way is in the time of all calls together.
    void time_as_the_paper() {
        const Inputs& inputs = sets_.back().inputs;
        Workers& workers = run_.workers;
        auto microseconds = [&](Contestant& worker) {
            return calls_.repeat(worker, inputs).outside / run_.options.calls * 1e6;
        };
        double baseline_us = microseconds(workers.opponent(0)),
               candidate_us = microseconds(workers.candidate());
        calls_.call(workers.opponent(0), Ask::kCall, inputs);
        KeptOutputs kept;
        kept.keep(calls_.specs(), calls_.working());
        calls_.call(workers.candidate(), Ask::kCall, inputs);
        double largest = 0;
        for (size_t i = 0; i < calls_.specs().size(); ++i)
            if (const BufferSpec& spec = calls_.specs()[i]; spec.is_written())
                largest =
                    std::max(largest, largest_difference(calls_.working()[i].get(), kept.outputs()[i], spec));
        calls_.write(calls_.line("paper")
                         .add("baseline_us", baseline_us)
                         .add("candidate_us", candidate_us)
                         .add("largest_difference", largest));
    }

    // Calls of the candidate between the profiler's start and stop, after a warm-up, inputs in place and caches cold; or
    // one call whose launches are printed; on the CPU device, where nothing warms up, that call alone.
    bool profile() {
        calls_.join(1);
        Inputs inputs = calls_.make_inputs(0);
#ifdef MSKB_CPU_DEVICE
        if (!run_.options.launches)
#endif
            calls_.call(run_.workers.candidate(), Ask::kCall, inputs);
        if (run_.options.launches)
            calls_.call(run_.workers.candidate(), Ask::kLaunches, inputs);
        for (int k = 0; k < run_.options.profile; ++k)
            calls_.call(run_.workers.candidate(), Ask::kProfile, inputs);
        return true;
    }

    const Run& run_;
    const Row& row_;
    CaseCalls calls_;
    Rng rng_; // order of calls and checks, samples of the reference
    Oracle oracle_;
    CaseCheck check_;
    KeptOutputs baseline_; // what it wrote in the call before
    KeptOutputs own_;      // likewise where that is the truth
    std::vector<Set> sets_;
    bool began_ = false, left_out_ = false, baseline_ok_ = true;
};

} // namespace mskb
