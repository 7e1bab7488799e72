// Times baseline and candidate in turn, both of a turn on the same inputs, and every turn on inputs of its own (structure
// such as a sparse pattern recurs where making it takes long): a result remembered by address or by value is of no use.
//
// Turns come in series: the judge prepares as many calls as it has room for, one worker makes them all, then the other on
// the same inputs. To change from one process to another takes the device longer than a short call does. Inputs of calls
// to come are masked. Outputs of calls that are drawn at random are checked.
#pragma once
#include <optional>
#include <vector>
#include "mskb/case_calls.h"
#include "mskb/case_check.h"
#include "mskb/gpu_state.h"
#include "mskb/oracle.h"
#include "mskb/turns.h"

namespace mskb {

constexpr double kFreshSeconds = 0.5;  // structure is made anew for as many turns as that time allows ...
constexpr double kFreshMemory = 0.125; // ... and that part of the free device memory
constexpr double kCheckedCalls = 6;    // about so many timed calls of a candidate are checked
constexpr int kMostTurns = 64;         // times as many turns as asked for are taken at most, ...
constexpr double kMostExtra = 1.2;     // ... and for no longer than so many seconds in a case
constexpr double kTimedPart = 0.25;    // of the work of the reference for a check is done for a timed call
constexpr int kEmptyCalls = 20;        // empty launches
constexpr int kDeviceCalls = 5;        // of each, timed on the device
constexpr uint64_t kTimedStream = 3;   // of the inputs of the first turn; those before are of the checks

class CaseTime {
  public:
    // `most_bytes`: what a case may take on the device; `extra_seconds`: what turns beyond those asked for may take.
    CaseTime(const Options& options, CaseCalls& calls, CaseCheck& check, Oracle& oracle, const GpuState& gpu,
             Rng& rng, size_t most_bytes, double extra_seconds)
        : options_(options), calls_(calls), workers_(calls.workers), check_(check), oracle_(oracle),
          gpu_(gpu), rng_(rng), most_bytes_(most_bytes), extra_seconds_(extra_seconds) {}

    // Whether everything that was checked was right. `structure_seconds`: what the structure of inputs takes to make.
    bool run(double structure_seconds) {
        // What takes the host long is made before the first turn: it does as little as possible between timed calls.
        size_t warmups = options_.warmups, wanted = options_.calls;
        size_t fresh = fresh_structures(structure_seconds, warmups + wanted);
        std::vector<Inputs> inputs;
        inputs.reserve(warmups + wanted);
        for (size_t turn = 0; turn < warmups + wanted; ++turn)
            inputs.push_back(
                calls_.make_inputs(kTimedStream + turn, turn < fresh ? nullptr : &inputs[turn % fresh]));
        bool ok = true, last = false;
        for (size_t pair = 0; pair < workers_.pairs(); ++pair)
            for (size_t turn = 0; ok && turn < warmups; ++turn) {
                std::vector<Turn> unused(1);
                ok = take(pair, {&inputs[turn]}, std::nullopt, unused);
            }
        Turns turns;
        Clock::time_point start = Clock::now();
        size_t slots = calls_.slots(), most = kMostTurns * wanted;
        for (size_t first = 0, number = 0; ok && !last; ++number) {
            bool more = first >= wanted;
            size_t count = more ? slots : std::min(slots, wanted - first);
            std::vector<Inputs> made;
            made.reserve(count);
            std::vector<const Inputs*> series;
            for (size_t turn = warmups + first; turn < warmups + first + count; ++turn) {
                if (more)
                    made.push_back(calls_.make_inputs(kTimedStream + turn, &inputs[turn % fresh]));
                series.push_back(more ? &made.back() : &inputs[turn]);
            }
            first += count;
            last = first >= wanted && (first >= most || enough(turns, start));
            std::optional<size_t> checked;
            if (last || rng_.unit() * static_cast<double>(more ? most : wanted) < kCheckedCalls * count)
                checked = std::min<size_t>(rng_.unit() * count, count - 1);
            std::vector<Turn> taken(count);
            ok = take(number % workers_.pairs(), series, checked, taken);
            if (ok)
                turns.add(taken, gpu_.clocks(), workers_.judged());
        }
        calls_.use(0);
        if (ok) {
            // Not between the turns, which would favour whoever makes them.
            for (int k = 0; k < std::min<int>(kEmptyCalls, options_.calls); ++k)
                turns.empty_us.push_back(calls_.call(workers_.baseline(), Ask::kEmpty, inputs[k]).seconds *
                                         1e6);
            time_on_device(inputs, turns);
        }
        std::vector<int> ours;
        for (const Contestant* worker : workers_.all())
            ours.push_back(worker->process());
        Line times = calls_.line("time").add("fresh_structures", static_cast<int>(fresh));
        turns.write(times, gpu_.others(ours));
        calls_.write(times);
        return ok;
    }

  private:
    // For how many of the turns structure is made anew; the others take it over from those.
    size_t fresh_structures(double seconds, size_t turns) const {
        size_t bytes = 1;
        for (const BufferSpec& spec : calls_.specs())
            bytes += spec.is_read() ? spec.bytes() : 0;
        double by_memory = kFreshMemory * static_cast<double>(most_bytes_) / static_cast<double>(bytes);
        double affordable = seconds > 0 ? std::min(kFreshSeconds / seconds, by_memory) : turns;
        return static_cast<size_t>(std::clamp(affordable, 1.0, static_cast<double>(turns)));
    }

    // Whether the turns that were asked for will do. Calls of up to 100 µs vary by a tenth from one to the next: more of
    // them are made until their speedup is known well, or for as long as that may take.
    bool enough([[maybe_unused]] const Turns& taken, [[maybe_unused]] Clock::time_point start) const {
#ifdef MSKB_CPU_DEVICE
        return true;
#else
        return !workers_.judged() || taken.precise() || seconds_since(start) > extra_seconds_;
#endif
    }

    // A series of turns by a pair of processes, whoever begins drawn at random; the turn `checked` is held against the reference.
    bool take(size_t pair, const std::vector<const Inputs*>& inputs, std::optional<size_t> checked,
              std::vector<Turn>& taken) {
        bool candidate_first = rng_.bits() % 2, ok = true;
        Check checking;
        if (checked)
            checking = prepare_check(*checked, *inputs[*checked]);
        for (int half = 0; half < 2 && ok; ++half) {
            bool candidate = (half == 0) == candidate_first;
            if (candidate && !workers_.judged())
                continue;
            for (size_t k = 0; k < inputs.size(); ++k) {
                calls_.use(k);
                inputs.size() > 1 ? calls_.place_masked(*inputs[k]) : calls_.place(*inputs[k]);
            }
            for (size_t k = 0; k < inputs.size(); ++k) {
                calls_.use(k);
                Outcome& outcome = candidate ? taken[k].candidate : taken[k].baseline;
                outcome =
                    calls_.call(candidate ? workers_.candidate(pair) : workers_.opponent(pair), Ask::kCall);
            }
            if (checked) {
                calls_.use(*checked);
                ok = candidate ? look_at_candidate(checking, *inputs[*checked], taken[*checked].candidate)
                               : look_at_opponent(checking, *inputs[*checked], taken[*checked].baseline);
                if (!workers_.rivalled() && half == 0)
                    check_.keep_outputs(checking.expected);
            }
        }
        if (checked && ok && !workers_.rivalled() && workers_.judged()) {
            calls_.use(*checked);
            ok = judge(checking, !candidate_first);
        }
        return ok;
    }

    struct Check {
        std::vector<Expected> expected;
        Observation seen; // of the candidate
    };

    Check prepare_check(size_t slot, const Inputs& inputs) {
        calls_.use(slot);
        calls_.place(inputs);
        Check check{oracle_.expect(kTimedPart), {}};
        if (workers_.rivalled()) { // whose outputs say nothing about the candidate's
            calls_.call(workers_.baseline(), Ask::kCall, inputs);
            check_.keep_outputs(check.expected);
        }
        return check;
    }

    bool look_at_candidate(Check& check, const Inputs& inputs, const Outcome& outcome) const {
        check.seen = check_.observe(inputs, check.expected, outcome.unsettled);
        return !workers_.rivalled() || judge(check, true);
    }

    bool look_at_opponent(const Check& check, const Inputs& inputs, const Outcome& outcome) {
        if (workers_.rivalled())
            return true;
        bool ok = check_.baseline(check_.observe(inputs, check.expected, outcome.unsettled), check.expected);
        if (!ok)
            calls_.write(calls_.line("reference")
                             .add("baseline_ok", false)
                             .add("baseline_worst_error", check_.baseline_worst_error()));
        return ok;
    }

    // Reported only where it fails.
    bool judge(const Check& check, bool candidate_last) const {
        Line found = calls_.line("check").add("stage", "timed");
        bool ok = check_.candidate(check.seen, check.expected, candidate_last, found);
        if (!ok)
            calls_.write(found);
        return ok;
    }

    // A pass of its own, for what a reader wants to know beside the time of the whole call.
    void time_on_device([[maybe_unused]] const std::vector<Inputs>& inputs, [[maybe_unused]] Turns& turns) {
#ifndef MSKB_CPU_DEVICE
        auto microseconds = [&](Contestant& worker, const Inputs& given) {
            return calls_.call(worker, Ask::kDeviceTime, given).seconds * 1e6;
        };
        for (size_t k = 0; k < std::min<size_t>(kDeviceCalls, inputs.size()); ++k) {
            size_t pair = k % workers_.pairs();
            turns.baseline_device_us.push_back(microseconds(workers_.opponent(pair), inputs[k]));
            if (workers_.judged())
                turns.candidate_device_us.push_back(microseconds(workers_.candidate(pair), inputs[k]));
        }
#endif
    }

    const Options& options_;
    CaseCalls& calls_;
    Workers& workers_;
    CaseCheck& check_;
    Oracle& oracle_;
    const GpuState& gpu_;
    Rng& rng_; // order of calls and checks
    size_t most_bytes_;
    double extra_seconds_;
};

} // namespace mskb
