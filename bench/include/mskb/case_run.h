// One case of a task: checks the candidate on it and, where it belongs to the sweep, times it.
//
//   1. the baseline on inputs of several streams of the seed, held against the double-precision reference
//   2. the candidate on the same inputs: CUDA errors, guard zones, unchanged inputs, outputs within bounds
//   3. for the sweep: baseline and candidate timed in turn, both of a turn on the same inputs, and every turn on inputs
//      of its own (structure such as a sparse pattern recurs where making it takes long): a result remembered by
//      address or by value is of no use. Outputs of timed calls are checked too, at turns that are drawn at random.
// Lines of the report: case, skip, reference, check, fault, time; harness.h and timing.h add begin, end, timeout.
#pragma once
#include <cstring>
#include <optional>
#include <string>
#include <vector>
#include "mskb/buffers.h"
#include "mskb/compare.h"
#include "mskb/dump.h"
#include "mskb/input_set.h"
#include "mskb/ledger.h"
#include "mskb/options.h"
#include "mskb/report.h"
#include "mskb/timing.h"

#ifndef MSKB_CPU_DEVICE
// Of the CUDA runtime; cuda_profiler_api.h, which declares them, is not part of every installation.
extern "C" cudaError_t cudaProfilerStart();
extern "C" cudaError_t cudaProfilerStop();
#endif

namespace mskb {

constexpr int kSets = 3;                // input sets of a case
constexpr size_t kErrorSamples = 12;    // elements whose errors make the bound, as far as ...
constexpr double kErrorSeconds = 0.5;   // ... further calls of the baseline for that take no longer
constexpr double kFreshSeconds = 0.5;   // structure is made anew for as many turns as that time allows ...
constexpr double kFreshMemory = 0.125;  // ... and that part of the free device memory
constexpr int kCheckedCalls = 6;        // about so many timed calls of a candidate are checked
constexpr double kTimedPart = 0.25;     // of the work of the reference for a check is done for a timed call
constexpr double kAskedPart = 0.1;      // and so much for elements that are far from the baseline's
constexpr double kSlowest = 1000;       // a candidate is stopped at so many times the baseline's time
constexpr double kBaselineError = 1e-4; // a baseline further off than this, in units of scale, is wrong
constexpr uint64_t kErrorStream = 1 << 24; // of the inputs of those calls
constexpr int kFaultExit = 70;             // the device is unusable after a fault

inline uint64_t label_stream(const std::string& label) {
    uint64_t hash = 0xcbf29ce484222325ull;
    for (unsigned char c : label)
        hash = (hash ^ c) * 0x100000001b3ull;
    return hash;
}

inline void profiler_start() {
#ifndef MSKB_CPU_DEVICE
    MSKB_CUDA(cudaProfilerStart());
#endif
}

inline void profiler_stop() {
#ifndef MSKB_CPU_DEVICE
    MSKB_CUDA(cudaProfilerStop());
#endif
}

class CaseRun {
  public:
    // `host` is memory that the cases share.
    CaseRun(const Options& options, const Report& report, Watchdog& watchdog, const CacheFlush& flush,
            std::vector<HostBuffer>& host, int index, const Row& row)
        : options_(options), report_(report), watchdog_(watchdog), flush_(flush), host_(host), index_(index),
          row_(row), specs_(task().buffers(row.sizes)),
          rng_(options.seed, label_stream(row.label), 1u << 20) {}

    // Whether everything that ran was right.
    bool run(bool timing_allowed) {
        report_.write(line("case").add("label", row_.label).add("sweep", row_.sweep));
        if (row_.sweep && options_.work_limit > 0 && row_.weight > options_.work_limit)
            return skip("too long for this device");
        size_t free_bytes = 0, total_bytes = 0, needed = footprint();
        MSKB_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
        if (needed > free_bytes - free_bytes / 16)
            return skip("needs " + std::to_string(needed >> 20) + " MiB of device memory, " +
                        std::to_string(free_bytes >> 20) + " MiB are free");
        for (const BufferSpec& spec : specs_) {
            working_.emplace_back(spec.bytes(), kGuardBytes);
            arguments_.buffers.push_back(working_.back().get());
        }
        if (options_.profile > 0)
            return profile();
        bool ok = reference();
        if (!options_.baseline_only)
            for (Set& set : sets_)
                ok = check(set, "check") && ok;
        if (ok && timing_allowed && row_.sweep && options_.calls > 0)
            ok = time();
        return ok;
    }

  private:
    // Inputs, and what has to come of them.
    struct Set {
        Inputs inputs;
        std::vector<Expected> expected; // per buffer, empty for inputs
    };

    // What a call left: damage in words, and the wanted elements of its outputs.
    struct Observation {
        std::string damage;
        std::vector<std::vector<double>> outputs; // per buffer
    };

    Line line(const char* event) const { return std::move(Line(event).add("index", index_)); }

    bool skip(const std::string& reason) {
        report_.write(line("skip").add("reason", reason));
        return true;
    }

    // Bytes that the case takes on the device: the buffers, and once more the outputs that are compared there and
    // the inputs, if they have structure.
    size_t footprint() const {
        size_t total = 0;
        for (const BufferSpec& spec : specs_)
            total += 2 * (spec.bytes() + kGuardBytes);
        return total;
    }

    Inputs make_inputs(uint64_t stream, const Inputs* donor = nullptr) const {
        return Inputs(task(), row_, specs_, options_.seed, label_stream(row_.label), stream, donor);
    }

    // Asks the reference what has to come of the inputs, which are in place, for a part of its usual operations.
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

    // The reference's values of the elements that are wanted, of the inputs that are in place.
    void answer(std::vector<Expected>& expected) const {
        std::vector<const void*> pointers;
        host_.resize(std::max(host_.size(), specs_.size()));
        for (size_t i = 0; i < specs_.size(); ++i) {
            const BufferSpec& spec = specs_[i];
            size_t bytes = spec.is_read() ? spec.bytes() : 0;
            void* host = host_[i].room(bytes);
            MSKB_CUDA(cudaMemcpy(host, working_[i].get(), bytes, cudaMemcpyDeviceToHost));
            pointers.push_back(host);
        }
        task().reference(row_.sizes, pointers, expected);
        for (size_t i = 0; i < specs_.size(); ++i)
            if (!expected[i].complete())
                harness_failure(std::string("the reference left elements of ") + specs_[i].name +
                                " undefined");
        if (!options_.dump.empty() && sets_.empty())
            dump(options_.dump, index_, specs_, pointers, expected);
    }

    // Whether a call of the baseline was right; the worst error goes into the bound.
    bool right(const Observation& seen, const std::vector<Expected>& expected) {
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

    // Inputs and expected values of every set; false when the baseline itself is wrong.
    bool reference() {
        worst_.assign(specs_.size(), 0.0);
        bool ok = true;
        sets_.reserve(kSets);
        for (int k = 0; k < kSets; ++k) {
            Inputs inputs = make_inputs(k);
            inputs.place(working_);
            std::vector<Expected> expected = expect(1);
            sets_.push_back({std::move(inputs), std::move(expected)});
            double seconds = baseline_call(sets_[k].inputs);
            baseline_seconds_ = k == 0 ? seconds : std::min(seconds, baseline_seconds_);
            ok = right(observe(sets_[k].inputs, sets_[k].expected), sets_[k].expected) && ok;
        }
        ok = sample_errors() && ok;
        report_reference(ok);
        return ok;
    }

    // Of three errors like the baseline's, one in a hundred honest ones is beyond four times the worst; of twelve, one in
    // a hundred thousand. Where an output has few elements, the baseline is looked at on more inputs.
    bool sample_errors() {
        size_t fewest = kErrorSamples;
        for (size_t i = 0; i < specs_.size(); ++i)
            if (specs_[i].is_written() && !specs_[i].exact && specs_[i].length > 0)
                fewest = std::min(fewest, sets_[0].expected[i].wanted.size());
        Clock::time_point start = Clock::now();
        bool ok = true;
        for (size_t calls = kSets; calls * fewest < kErrorSamples; ++calls) {
            Inputs inputs = make_inputs(kErrorStream + calls);
            inputs.place(working_);
            std::vector<Expected> expected = expect(kTimedPart);
            baseline_call(inputs);
            ok = right(observe(inputs, expected), expected) && ok;
            if (seconds_since(start) > kErrorSeconds)
                break;
        }
        return ok;
    }

    void report_reference(bool ok) const {
        double worst = 0;
        for (double w : worst_)
            worst = std::max(worst, w);
        report_.write(line("reference")
                          .add("baseline_ok", ok)
                          .add("baseline_worst_error", worst)
                          .add("baseline_us", baseline_seconds_ * 1e6));
    }

    double baseline_call(const Inputs& inputs) {
        inputs.place(working_);
        flush_();
        double seconds = timed_call([&] { task().baseline(row_.sizes, arguments_); });
        stop_on_fault("baseline");
        return seconds;
    }

    double candidate_call(const Inputs& inputs) {
        inputs.place(working_);
        flush_();
        watchdog_.arm(std::max(options_.call_limit_s, kSlowest * baseline_seconds_));
        double seconds = timed_call([&] { task().candidate(row_.sizes, arguments_); });
        watchdog_.disarm();
        stop_on_fault("candidate");
        return seconds;
    }

    // An empty launch in the place of a call.
    double empty_call(const Inputs& inputs) {
        inputs.place(working_);
        flush_();
        return timed_call(empty_launch);
    }

    Observation observe(const Inputs& inputs, const std::vector<Expected>& expected) const {
        Observation seen{damage(inputs), {}};
        for (size_t i = 0; i < specs_.size(); ++i)
            seen.outputs.push_back(gather(working_[i].get(), specs_[i], expected[i].wanted));
        return seen;
    }

    // Keeps the outputs that the reference does not cover, for the comparison of every element.
    void keep_outputs(const std::vector<Expected>& expected) {
        kept_.resize(specs_.size());
        for (size_t i = 0; i < specs_.size(); ++i) {
            if (!expected[i].sampled())
                continue;
            if (!kept_[i])
                kept_[i].emplace(specs_[i].bytes());
            MSKB_CUDA(
                cudaMemcpy(kept_[i]->get(), working_[i].get(), specs_[i].bytes(), cudaMemcpyDeviceToDevice));
        }
    }

    bool check(Set& set, const char* stage) {
        for (const Expected& expected : set.expected) {
            if (!expected.sampled())
                continue;
            baseline_call(set.inputs);
            keep_outputs(set.expected);
            break;
        }
        candidate_call(set.inputs);
        return check(observe(set.inputs, set.expected), set.expected, true, stage);
    }

    // The elements of output `i` at `places`, held against the reference.
    Comparison compare_at(const std::vector<size_t>& places, size_t i, const void* got) const {
        std::vector<Expected> asked;
        for (size_t k = 0; k < specs_.size(); ++k)
            asked.emplace_back(specs_[k].is_written() ? specs_[k].length : 0, specs_[k].unit,
                               k == i ? places : std::vector<size_t>());
        answer(asked);
        return compare(gather(got, specs_[i], asked[i].wanted), specs_[i], asked[i], worst_[i]);
    }

    // Elements of output `i` that the reference can be asked about beside its sample; none where an input is gone.
    size_t most_asked(size_t i) const {
        for (const BufferSpec& spec : specs_)
            if (spec.use == Use::kInOut)
                return 0;
        return static_cast<size_t>(kAskedPart * options_.oracle_operations / std::max(specs_[i].cost, 1.0)) +
               4;
    }

    // Whether a call of the candidate was right. Of the outputs that the reference does not cover, the working buffers
    // have the candidate's and kept_ the baseline's, or the other way round. Checks are reported, those of timed calls
    // only when they fail.
    bool check(const Observation& seen, const std::vector<Expected>& expected, bool candidate_last,
               const char* stage) const {
        std::string damage = seen.damage.empty() ? ledger().unsettled() : seen.damage;
        bool ok = damage.empty();
        std::string outputs;
        for (size_t i = 0; i < specs_.size(); ++i) {
            if (!specs_[i].is_written())
                continue;
            Comparison comparison = compare(seen.outputs[i], specs_[i], expected[i], worst_[i]);
            if (expected[i].sampled()) {
                const void *working = working_[i].get(), *kept = kept_[i]->get();
                const void *got = candidate_last ? working : kept,
                           *baseline = candidate_last ? kept : working;
                auto ask = [&](const std::vector<size_t>& places) { return compare_at(places, i, got); };
                compare_with_baseline(comparison, got, baseline, specs_[i], expected[i], most_asked(i), ask);
            } else {
                describe(comparison, specs_[i]);
            }
            ok = ok && comparison.mismatches == 0;
            outputs += (outputs.empty() ? "" : ",") + json(specs_[i], comparison, worst_[i]);
        }
        if (!ok || std::strcmp(stage, "check") == 0)
            report_.write(line("check")
                              .add("stage", stage)
                              .add("ok", ok)
                              .add("damage", damage)
                              .raw("outputs", "[" + outputs + "]"));
        return ok;
    }

    // For how many of the turns structure is made anew; the others take it over from those.
    int fresh_structures(int turns) const {
        double seconds = sets_.back().inputs.structure_seconds();
        size_t free_bytes = 0, total_bytes = 0, bytes = 1;
        MSKB_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
        for (const BufferSpec& spec : specs_)
            bytes += spec.is_read() ? spec.bytes() : 0;
        double by_memory = kFreshMemory * static_cast<double>(free_bytes) / static_cast<double>(bytes);
        double affordable = seconds > 0 ? std::min(kFreshSeconds / seconds, by_memory) : turns;
        return static_cast<int>(std::clamp(affordable, 1.0, static_cast<double>(turns)));
    }

    bool time() {
        // What takes the host long is made before the first turn: it does as little as possible between timed calls.
        int turns = options_.warmups + options_.calls, fresh = fresh_structures(turns);
        std::vector<Inputs> inputs;
        inputs.reserve(turns);
        for (int turn = 0; turn < turns; ++turn)
            inputs.push_back(make_inputs(kSets + turn, turn < fresh ? nullptr : &inputs[turn % fresh]));
        std::vector<double> baseline_us, candidate_us, empty_us;
        bool ok = true;
        for (int turn = 0; turn < turns && ok; ++turn) {
            bool counts = turn >= options_.warmups;
            bool checked = counts && (turn == turns - 1 || rng_.unit() * options_.calls < kCheckedCalls);
            std::vector<Expected> expected;
            if (checked) {
                inputs[turn].place(working_);
                expected = expect(kTimedPart);
            }
            double baseline = 0, candidate = 0;
            Observation seen;
            bool candidate_first = rng_.bits() % 2;
            for (int half = 0; half < 2 && ok; ++half) {
                if ((half == 0) == candidate_first) {
                    if (options_.baseline_only)
                        continue;
                    candidate = candidate_call(inputs[turn]);
                    if (checked)
                        seen = observe(inputs[turn], expected);
                } else {
                    baseline = baseline_call(inputs[turn]);
                    if (checked && !right(observe(inputs[turn], expected), expected)) {
                        report_reference(false);
                        ok = false;
                    }
                }
                if (checked && half == 0)
                    keep_outputs(expected);
            }
            if (checked && ok && !options_.baseline_only)
                ok = check(seen, expected, !candidate_first, "timed");
            if (counts) {
                baseline_us.push_back(baseline * 1e6);
                if (!options_.baseline_only)
                    candidate_us.push_back(candidate * 1e6);
                empty_us.push_back(empty_call(inputs[turn]) * 1e6);
            }
        }
        report_.write(line("time")
                          .add("fresh_structures", fresh)
                          .add("baseline_us", baseline_us)
                          .add("candidate_us", candidate_us)
                          .add("empty_us", empty_us));
        return ok;
    }

    // Calls of the candidate between the profiler's start and stop, after a warm-up, inputs in place and caches cold.
    bool profile() {
        Inputs inputs = make_inputs(0);
        for (int call = -1; call < options_.profile; ++call) {
            inputs.place(working_);
            flush_();
            MSKB_CUDA(cudaDeviceSynchronize());
            if (call >= 0)
                profiler_start();
            task().candidate(row_.sizes, arguments_);
            stop_on_fault("candidate");
            if (call >= 0)
                profiler_stop();
        }
        return true;
    }

    // Empty when guard zones and inputs are as they were, else what was damaged.
    std::string damage(const Inputs& inputs) const {
        for (size_t i = 0; i < specs_.size(); ++i) {
            if (std::string overrun = working_[i].overrun(); !overrun.empty())
                return std::string(specs_[i].name) + " was " + overrun;
            if (specs_[i].use == Use::kInput && inputs.changed(i, working_[i]))
                return std::string("the input ") + specs_[i].name + " was changed";
        }
        return "";
    }

    void stop_on_fault(const char* who) const {
        cudaError_t pending = cudaGetLastError();
        cudaError_t finished = cudaDeviceSynchronize();
        cudaError_t status = pending != cudaSuccess ? pending : finished;
        if (status == cudaSuccess)
            return;
        report_.write(line("fault")
                          .add("who", who)
                          .add("error", cudaGetErrorName(status))
                          .add("detail", cudaGetErrorString(status)));
        std::_Exit(kFaultExit);
    }

    const Options& options_;
    const Report& report_;
    Watchdog& watchdog_;
    const CacheFlush& flush_;
    std::vector<HostBuffer>& host_;
    int index_;
    const Row& row_;
    std::vector<BufferSpec> specs_;
    Rng rng_; // order of calls and checks, samples of the reference
    std::vector<DeviceBuffer> working_;
    Arguments arguments_;
    std::vector<std::optional<DeviceBuffer>> kept_; // outputs of the call before
    std::vector<Set> sets_;
    std::vector<double> worst_; // error of the baseline so far, per buffer
    double baseline_seconds_ = 0;
};

} // namespace mskb
