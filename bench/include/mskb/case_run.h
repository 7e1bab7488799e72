// One case of a task: checks the candidate on it and, where it belongs to the sweep, times it.
//
//   1. the baseline on inputs of several streams of the seed, held against the double-precision reference
//   2. the candidate on the same inputs: CUDA errors, guard zones, unchanged inputs, outputs within bounds
//   3. for the sweep: baseline and candidate timed in turn, both of a turn on the same inputs, and every turn on inputs
//      of its own (structure such as a sparse pattern recurs where making it takes long): a result remembered by
//      address or by value is of no use. Outputs of timed calls are checked too, at turns that are drawn at random.
// Calls are made by workers, processes of their own; what they are given and what they made is kept here.
// Lines of the report: case, skip, reference, check, fault, timeout, time; harness.h adds begin, isolation, end.
#pragma once
#include <string>
#include <vector>
#include "mskb/case_check.h"
#include "mskb/contestant.h"
#include "mskb/gpu_state.h"
#include "mskb/input_set.h"
#include "mskb/options.h"
#include "mskb/oracle.h"
#include "mskb/report.h"
#include "mskb/turns.h"

namespace mskb {

constexpr int kSets = 3;               // input sets of a case
constexpr size_t kErrorSamples = 12;   // elements whose errors make the bound, as far as ...
constexpr double kErrorSeconds = 0.5;  // ... further calls of the baseline for that take no longer
constexpr double kFreshSeconds = 0.5;  // structure is made anew for as many turns as that time allows ...
constexpr double kFreshMemory = 0.125; // ... and that part of the free device memory
constexpr double kCheckedCalls = 6;    // about so many timed calls of a candidate are checked
constexpr int kMostTurns = 16;         // times as many turns as asked for are taken at most, ...
constexpr double kExtraSeconds = 4, kMostExtra = 1.2; // ... and for no longer, over all cases and in each
constexpr double kTimedPart = 0.25;    // of the work of the reference for a check is done for a timed call
constexpr double kSlowest = 1000;      // a candidate is stopped at so many times the baseline's time
constexpr double kBaselineLimit = 600; // seconds that a call of the baseline may take
constexpr int kEmptyCalls = 20;        // empty launches
constexpr int kDeviceCalls = 5;        // of each, timed on the device
constexpr uint64_t kErrorStream = 1 << 24; // of the inputs of those calls
constexpr int kFaultExit = 70;             // a worker's fault ended the run
constexpr int kTimeoutExit = 75;

inline uint64_t label_stream(const std::string& label) {
    uint64_t hash = 0xcbf29ce484222325ull;
    for (unsigned char c : label)
        hash = (hash ^ c) * 0x100000001b3ull;
    return hash;
}

// Who makes calls in a run. `candidate` and `rival` may be missing: then the baseline is checked alone, or is what the
// candidate is timed against.
struct Workers {
    Contestant* baseline;
    Contestant* candidate;
    Contestant* rival;
};

class CaseRun {
  public:
    // `host` is memory that the cases share; `most_bytes` what a case may take on the device; `timed_cases` how many of
    // them share the time for extra turns.
    CaseRun(const Options& options, const Report& report, const Workers& workers, const GpuState& gpu,
            const SharedMemory& memory, std::vector<HostBuffer>& host, size_t most_bytes, int timed_cases,
            int index, const Row& row)
        : options_(options), report_(report), workers_(workers), gpu_(gpu), memory_(memory),
          most_bytes_(most_bytes), extra_seconds_(std::min(kMostExtra, kExtraSeconds / timed_cases)),
          index_(index), row_(row), specs_(task().buffers(row.sizes)),
          rng_(options.seed, label_stream(row.label), 1u << 20),
          oracle_(options, index, row_, specs_, working_, host, rng_), check_(specs_, working_, oracle_) {}

    // Bytes that a case takes on the device: its buffers, and once more the outputs that are compared there and the
    // inputs, if they have structure; on the CPU device also the copies of two workers.
    static size_t footprint(const std::vector<BufferSpec>& specs) {
#ifdef MSKB_CPU_DEVICE
        return 4 * Layout(specs).bytes;
#else
        return 2 * Layout(specs).bytes;
#endif
    }

    // Whether everything that ran was right.
    bool run(bool timing_allowed) {
        report_.write(line("case").add("label", row_.label).add("sweep", row_.sweep));
        if (row_.sweep && options_.work_limit > 0 && row_.weight > options_.work_limit)
            return skip("too long for this device");
        if (size_t needed = footprint(specs_); needed > most_bytes_)
            return skip("needs " + std::to_string(needed >> 20) + " MiB of device memory, " +
                        std::to_string(most_bytes_ >> 20) + " MiB may be used");
        Layout layout(specs_);
        for (const Request::Span& span : layout.spans)
            working_.emplace_back(memory_.base() + span.offset, span.bytes);
        for (Contestant* worker : {workers_.baseline, workers_.candidate, workers_.rival})
            if (worker != nullptr)
                settle(*worker, worker->begin_case(row_.sizes, layout));
        if (options_.profile > 0)
            return profile();
        bool ok = reference();
        if (workers_.candidate != nullptr)
            for (Set& set : sets_)
                ok = check(set) && ok;
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

    Line line(const char* event) const { return std::move(Line(event).add("index", index_)); }

    bool skip(const std::string& reason) {
        report_.write(line("skip").add("reason", reason));
        return true;
    }

    Inputs make_inputs(uint64_t stream, const Inputs* donor = nullptr) const {
        return Inputs(task(), row_, specs_, options_.seed, label_stream(row_.label), stream, donor);
    }

    // Inputs and expected values of every set; false when the baseline itself is wrong.
    bool reference() {
        bool ok = true;
        sets_.reserve(kSets);
        for (int k = 0; k < kSets; ++k) {
            Inputs inputs = make_inputs(k);
            inputs.place(working_);
            std::vector<Expected> expected = oracle_.expect(1);
            sets_.push_back({std::move(inputs), std::move(expected)});
            double seconds = 0;
            ok = right_baseline(sets_[k].inputs, sets_[k].expected, &seconds) && ok;
            baseline_seconds_ = k == 0 ? seconds : std::min(seconds, baseline_seconds_);
        }
        ok = sample_errors() && ok;
        report_reference(ok);
        return ok;
    }

    bool right_baseline(const Inputs& inputs, const std::vector<Expected>& expected,
                        double* seconds = nullptr) {
        Outcome outcome = call(*workers_.baseline, Ask::kCall, inputs);
        if (seconds != nullptr)
            *seconds = outcome.seconds;
        return check_.baseline(check_.observe(inputs, expected, outcome.unsettled), expected);
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
            ok = right_baseline(inputs, oracle_.expect(kTimedPart)) && ok;
            if (seconds_since(start) > kErrorSeconds)
                break;
        }
        return ok;
    }

    void report_reference(bool ok) const {
        report_.write(line("reference")
                          .add("baseline_ok", ok)
                          .add("baseline_worst_error", check_.baseline_worst_error())
                          .add("baseline_us", baseline_seconds_ * 1e6));
    }

    // One call of a worker on the inputs, or what stands in its place.
    Outcome call(Contestant& worker, Ask ask, const Inputs& inputs) const {
        inputs.place(working_);
        MSKB_CUDA(cudaDeviceSynchronize());
        bool trusted = &worker == workers_.baseline;
        double limit = std::max(options_.call_limit_s, kSlowest * baseline_seconds_);
        Outcome outcome = worker.call(ask, trusted ? kBaselineLimit : limit);
        settle(worker, outcome);
        return outcome;
    }

    // A fault or a timeout ends the run: the worker is of no use any more.
    void settle(Contestant& worker, const Outcome& outcome) const {
        if (outcome.ended == Ended::kTimeout) {
            report_.write(line("timeout").add("who", worker.who()).add("limit_s", outcome.limit));
            std::_Exit(kTimeoutExit);
        }
        if (outcome.ended == Ended::kFault) {
            report_.write(line("fault")
                              .add("who", worker.who())
                              .add("error", outcome.error)
                              .add("detail", outcome.detail)
                              .add("gone", outcome.gone));
            worker.leave();
            worker.wait_for_end();
            std::_Exit(kFaultExit);
        }
    }

    bool check(Set& set) {
        for (const Expected& expected : set.expected) {
            if (!expected.sampled())
                continue;
            call(*workers_.baseline, Ask::kCall, set.inputs);
            check_.keep_outputs(set.expected);
            break;
        }
        Outcome outcome = call(*workers_.candidate, Ask::kCall, set.inputs);
        return judge(check_.observe(set.inputs, set.expected, outcome.unsettled), set.expected, true,
                     "check");
    }

    // Checks are reported, those of timed calls only when they fail.
    bool judge(const Observation& seen, const std::vector<Expected>& expected, bool candidate_last,
               const char* stage) const {
        Line found = line("check").add("stage", stage);
        bool ok = check_.candidate(seen, expected, candidate_last, found);
        if (!ok || std::string(stage) == "check")
            report_.write(found);
        return ok;
    }

    // For how many of the turns structure is made anew; the others take it over from those.
    int fresh_structures(int turns) const {
        double seconds = sets_.back().inputs.structure_seconds();
        size_t bytes = 1;
        for (const BufferSpec& spec : specs_)
            bytes += spec.is_read() ? spec.bytes() : 0;
        double by_memory = kFreshMemory * static_cast<double>(most_bytes_) / static_cast<double>(bytes);
        double affordable = seconds > 0 ? std::min(kFreshSeconds / seconds, by_memory) : turns;
        return static_cast<int>(std::clamp(affordable, 1.0, static_cast<double>(turns)));
    }

    // What the candidate is timed against.
    Contestant& opponent() const { return workers_.rival != nullptr ? *workers_.rival : *workers_.baseline; }

    bool time() {
        // What takes the host long is made before the first turn: it does as little as possible between timed calls.
        int turns = options_.warmups + options_.calls, fresh = fresh_structures(turns);
        std::vector<Inputs> inputs;
        inputs.reserve(kMostTurns * turns);
        for (int turn = 0; turn < turns; ++turn)
            inputs.push_back(make_inputs(kSets + turn, turn < fresh ? nullptr : &inputs[turn % fresh]));
        Turns turns_taken;
        Clock::time_point start = Clock::now();
        bool ok = true, last = false;
        for (int turn = 0; ok && !last; ++turn) {
            bool counts = turn >= options_.warmups, extra = turn >= turns;
            if (extra)
                inputs.push_back(make_inputs(kSets + turn, &inputs[turn % fresh]));
            last = turn + 1 >= turns && (turn + 1 >= kMostTurns * turns || enough(turns_taken, start));
            double chance = kCheckedCalls / (extra ? kMostTurns * turns : turns);
            bool checked = counts && (last || rng_.unit() < chance);
            Turn taken;
            ok = take_turn(inputs[turn], checked, taken);
            if (!counts || !ok)
                continue;
            taken.clocks = gpu_.clocks();
            turns_taken.add(taken, workers_.candidate != nullptr);
        }
        if (ok) {
            // Not between the turns, which would favour whoever makes them.
            for (int k = 0; k < std::min<int>(kEmptyCalls, options_.calls); ++k)
                turns_taken.empty_us.push_back(call(*workers_.baseline, Ask::kEmpty, inputs[k]).seconds *
                                               1e6);
            time_on_device(inputs, turns_taken);
        }
        std::vector<int> ours;
        for (const Contestant* worker : {workers_.baseline, workers_.candidate, workers_.rival})
            if (worker != nullptr)
                ours.push_back(worker->process());
        Line times = line("time").add("fresh_structures", fresh);
        turns_taken.write(times, gpu_.others(ours));
        report_.write(times);
        return ok;
    }

    // Whether the turns that were asked for will do. Calls of 20 to 100 µs vary by a tenth from one to the next: more
    // of them are made until their speedup is known to a percent, or for as long as that may take.
    bool enough([[maybe_unused]] const Turns& taken, [[maybe_unused]] Clock::time_point start) const {
#ifdef MSKB_CPU_DEVICE
        return true;
#else
        return workers_.candidate == nullptr || !taken.long_calls() || taken.precise() ||
               seconds_since(start) > extra_seconds_;
#endif
    }

    // Both contestants on the same inputs, in random order.
    bool take_turn(const Inputs& inputs, bool checked, Turn& taken) {
        std::vector<Expected> expected;
        bool rivalled = workers_.rival != nullptr;
        if (checked) {
            inputs.place(working_);
            expected = oracle_.expect(kTimedPart);
            if (rivalled) { // whose outputs say nothing about the candidate's
                call(*workers_.baseline, Ask::kCall, inputs);
                check_.keep_outputs(expected);
            }
        }
        Observation seen;
        bool ok = true, candidate_first = rng_.bits() % 2;
        for (int half = 0; half < 2 && ok; ++half) {
            if ((half == 0) == candidate_first) {
                if (workers_.candidate == nullptr)
                    continue;
                taken.candidate = call(*workers_.candidate, Ask::kCall, inputs);
                if (checked)
                    seen = check_.observe(inputs, expected, taken.candidate.unsettled);
                if (checked && rivalled)
                    ok = judge(seen, expected, true, "timed");
            } else {
                taken.baseline = call(opponent(), Ask::kCall, inputs);
                if (checked && !rivalled &&
                    !check_.baseline(check_.observe(inputs, expected, taken.baseline.unsettled), expected)) {
                    report_reference(false);
                    ok = false;
                }
            }
            if (checked && !rivalled && half == 0)
                check_.keep_outputs(expected);
        }
        if (checked && ok && !rivalled && workers_.candidate != nullptr)
            ok = judge(seen, expected, !candidate_first, "timed");
        return ok;
    }

    // A pass of its own, for what a reader wants to know beside the time of the whole call.
    void time_on_device(const std::vector<Inputs>& inputs, Turns& turns) const {
#ifndef MSKB_CPU_DEVICE
        for (int k = 0; k < std::min<int>(kDeviceCalls, static_cast<int>(inputs.size())); ++k) {
            turns.baseline_device_us.push_back(call(opponent(), Ask::kDeviceTime, inputs[k]).seconds * 1e6);
            if (workers_.candidate != nullptr)
                turns.candidate_device_us.push_back(
                    call(*workers_.candidate, Ask::kDeviceTime, inputs[k]).seconds * 1e6);
        }
#else
        (void)inputs, (void)turns;
#endif
    }

    // Calls of the candidate between the profiler's start and stop, after a warm-up, inputs in place and caches cold.
    bool profile() {
        Inputs inputs = make_inputs(0);
        call(*workers_.candidate, Ask::kCall, inputs);
        for (int k = 0; k < options_.profile; ++k)
            call(*workers_.candidate, Ask::kProfile, inputs);
        return true;
    }

    const Options& options_;
    const Report& report_;
    const Workers& workers_;
    const GpuState& gpu_;
    const SharedMemory& memory_;
    size_t most_bytes_;
    double extra_seconds_;
    int index_;
    const Row& row_;
    std::vector<BufferSpec> specs_;
    Rng rng_; // order of calls and checks, samples of the reference
    std::vector<WorkingBuffer> working_;
    Oracle oracle_;
    CaseCheck check_;
    std::vector<Set> sets_;
    double baseline_seconds_ = 0;
};

} // namespace mskb
