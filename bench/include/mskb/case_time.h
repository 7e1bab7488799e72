// Times baseline and candidate in turn, both of a turn on the same inputs, and every turn on inputs of its own (structure
// such as a sparse pattern recurs where making it takes long): a result remembered by address or by value is of no use.
//
// Turns come in series: the judge prepares several calls, one worker makes them all, then the other on the same inputs.
// To change from one process to another takes the device longer than a short call does. One more call leads a series, and
// its time does not count: with cold caches of the processor, what a wrapper does on the host takes up to eight times as
// long, and a program that makes calls in a loop does not see that. What it leaves has to be right. Inputs of calls
// to come are masked. Outputs of calls in the past are sealed (seal.h), so that a result cannot come late; how many calls
// a series has is drawn at random, and so is where their buffers lie. What each call left is compared with what the
// baseline's call on the same inputs left; where they differ, and of calls that are drawn at random, the reference is asked.
#pragma once
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>
#include "mskb/case_calls.h"
#include "mskb/case_check.h"
#include "mskb/gpu_state.h"
#include "mskb/oracle.h"
#include "mskb/stopping.h"
#include "mskb/turn_inputs.h"
#include "mskb/turns.h"

namespace mskb {

constexpr double kFreshSeconds = 0.5;  // structure is made anew for as many turns as that time allows ...
constexpr double kFreshMemory = 0.125; // ... and that part of the free device memory
constexpr double kCheckedCalls =
    3; // of the first turns, and as many as the logarithm of their number grows by 1, but one of a series
constexpr int kPatience = 3; // times that suspects who were right teach no more than their scales; then ...
constexpr double kMostWidened = 4;        // ... each doubles what outputs may be apart by, up to so much
constexpr size_t kLongWarmups = 1;        // of each pair of processes, where calls are long, ...
constexpr size_t kLongDeviceCalls = 2;    // ... and those that are timed on the device
constexpr double kMostExtra = 0.6;        // `extra_seconds` of a case at most (stopping.h)
constexpr double kTimedPart = 0.25;       // of the work of the reference for a check is done for a timed call
constexpr size_t kEmptyCalls = 8;         // empty launches
constexpr size_t kDeviceCalls = 3;        // of each, timed on the device
constexpr uint64_t kTimedStream = 3;      // of the inputs of the first turn; those before are of the checks
constexpr uint64_t kLeadStream = 1 << 23; // and of the first call that leads a series
constexpr int kRetakes = 4; // times that the calls of a case are forgotten and others timed (turns.h), ...
constexpr int kMostRetakes = 16;      // ... and of all cases of a run
constexpr double kLeadSeconds = 0.01; // which a side that takes longer leaves out, but for so long on average

class CaseTime {
  public:
    // `most_bytes`: what a case may take on the device; `part`: of the error that P may have, what the case adds to it for
    // each of its own; `extra_seconds`: how long more turns than were asked for may begin (stopping.h); `retakes`: how often
    // calls may still be timed anew in the whole run.
    CaseTime(const Options& options, CaseCalls& calls, CaseCheck& check, Oracle& oracle, const GpuState& gpu,
             Rng& rng, size_t most_bytes, double part, double extra_seconds, int& retakes)
        : options_(options), calls_(calls), workers_(calls.workers), check_(check), oracle_(oracle),
          gpu_(gpu), rng_(rng), most_bytes_(most_bytes), part_(part), extra_seconds_(extra_seconds),
          retakes_(retakes) {
        learn();
    }

    // Whether everything that was checked was right. `structure_seconds`: what the structure of inputs takes to make.
    bool run(double structure_seconds) {
        size_t wanted = options_.calls;
        size_t warmups = long_calls() ? std::min<size_t>(options_.warmups, kLongWarmups) : options_.warmups;
        size_t fresh = fresh_structures(structure_seconds, warmups + wanted);
        // It does as little as possible between timed calls.
        TurnInputs<Inputs> inputs(warmups, wanted, fresh, [this](size_t number, const Inputs* donor) {
            return calls_.make_inputs(kTimedStream + number, donor);
        });
        bool ok = true, last = false;
        for (size_t pair = 0; pair < workers_.pairs(); ++pair)
            for (size_t turn = 0; ok && turn < warmups; ++turn) {
                std::vector<Turn> warm(1);
                ok = take(pair, {&inputs.warmup(turn)}, false, std::nullopt, warm);
                opponent_seconds_ = std::min(opponent_seconds_, warm[0].baseline.seconds);
                candidate_seconds_ = std::min(candidate_seconds_, warm[0].candidate.seconds);
            }
        Turns turns;
        Clock::time_point start = Clock::now();
        const size_t slots = calls_.slots();
        const bool led = options_.lead && slots > 1 && warmups > 0;
        const Stopping stopping{wanted,         slots - led, workers_.pairs(), long_calls(),
                                by_precision(), part_,       extra_seconds_};
        for (size_t first = 0, begin = 0, number = 0; ok && !last; ++number) {
            const bool more = first - begin >= wanted;
            const size_t count = stopping.next_series(first - begin, rng_);
            if (!more) { // what inputs take to make is not what turns take
                Clock::time_point making = Clock::now();
                inputs.turn(first + count - 1);
                start += Clock::now() - making;
            }
            std::vector<Inputs> made;
            made.reserve(count + led);
            std::vector<const Inputs*> series;
            if (led) { // on values of its own, and structure that every process knows from its warm-ups
                made.push_back(calls_.make_inputs(kLeadStream + number, &inputs.known(number)));
                series.push_back(&made.back());
            }
            for (size_t turn = first; turn < first + count; ++turn) {
                if (more)
                    made.push_back(inputs.further(turn));
                series.push_back(more ? &made.back() : &inputs.turn(turn));
            }
            first += count;
            last = stopping.is_last(turns, first - begin, seconds_since(start));
            // Which call it is nobody knows, and how many there will be neither: early ones are likelier.
            double likely = kCheckedCalls * count / static_cast<double>(std::max(first - begin, kFewestLong));
            std::optional<size_t> checked;
            if (last || rng_.unit() < likely)
                checked = led + rng_.below(count);
            std::vector<Turn> taken(series.size());
            ok = take(number % workers_.pairs(), series, led, checked, taken);
            if (ok && led)
                turns.leave_out_lead(taken);
            if (ok)
                turns.add(taken, gpu_.clocks(), workers_.judged());
            if (ok && last && contradicted(turns) && turns.retaken < kRetakes && retakes_ > 0) {
                // A processor that was busy for a while looks like a lie, but does not do so again; a liar lies again.
                --retakes_;
                turns.forget_calls();
                last = false;
                begin = first;
                inputs.begin_anew(begin);
                start = Clock::now();
            }
        }
        calls_.use(0);
        if (ok) {
            // Not between the turns, which would favour whoever makes them.
            for (size_t k = 0; k < std::min(kEmptyCalls, inputs.made().size()); ++k)
                turns.empty_us.push_back(
                    calls_.call(workers_.baseline(), Ask::kEmpty, inputs.made()[k]).seconds * 1e6);
            time_on_device(inputs.made(), turns);
        }
        std::vector<int> ours;
        for (const Contestant* worker : workers_.all())
            ours.push_back(worker->process());
        Line times = calls_.line("time").add("fresh_structures", static_cast<int>(fresh));
        times.add("acquitted", acquitted_);
        turns.write(times, gpu_.others(ours), workers_.rivalled());
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

    // On the CPU device times say nothing, and without a candidate there is no speedup.
    bool by_precision() const {
#ifdef MSKB_CPU_DEVICE
        return false;
#else
        return workers_.judged();
#endif
    }

    // Whether one whose clock is not trusted says other than the judge's.
    bool contradicted(const Turns& taken) const {
        return taken.contradicted() || (workers_.rivalled() && taken.contradicted(true));
    }

    // Whether a call of the baseline takes so long that all that changes from one to the next is little beside it.
    bool long_calls() const { return calls_.baseline_seconds > kLongCall; }

    // A series of turns by a pair of processes, whoever begins drawn at random. What call `checked` left is put to the
    // reference in any case. A series that is `led` has one more call before those that are timed. A side whose calls take
    // long leaves it out, but not always, or what the other side leaves in it would never be compared.
    bool take(size_t pair, const std::vector<const Inputs*>& inputs, bool led, std::optional<size_t> checked,
              std::vector<Turn>& taken) {
        bool candidate_first = workers_.judged() && rng_.bits() % 2;
        std::string damage; // by the candidate
        calls_.draw_places(rng_);
        const size_t begins[] = {led && rng_.unit() * opponent_seconds_ > kLeadSeconds,
                                 led && rng_.unit() * candidate_seconds_ > kLeadSeconds};
        const size_t common = std::max(begins[0], begins[1]); // from that call on there are two to compare
        for (int half = 0; half < 2; ++half) {
            bool candidate = (half == 0) == candidate_first;
            if (candidate && !workers_.judged())
                continue;
            const size_t begin = begins[candidate];
            for (size_t k = begin; k < inputs.size(); ++k) {
                calls_.use(k);
                inputs.size() - begin > 1 ? calls_.place_masked(*inputs[k]) : calls_.place(*inputs[k]);
            }
            Contestant& worker = candidate ? workers_.candidate(pair) : workers_.opponent(pair);
            calls_.series(worker, begin, inputs.size(), candidate, [&](size_t k, const Outcome& outcome) {
                (candidate ? taken[k].candidate : taken[k].baseline) = outcome;
            });
            std::string seen;
            if (checked) {
                calls_.use(*checked);
                seen = check_.damaged(*inputs[*checked]);
            }
            if (candidate)
                damage = damage_of(taken, calls_.late(), seen);
            else if (!workers_.rivalled() && !(seen + taken.back().baseline.unsettled).empty())
                return wrong_baseline();
            for (size_t k = common; k < inputs.size() && half == 0 && (workers_.judged() || checked); ++k) {
                calls_.use(k);
                first_[k].keep(calls_.specs(), calls_.working());
            }
        }
        return right(inputs, common, checked, candidate_first, damage);
    }

    // What a series of the candidate damaged, in words: nothing, as a rule. `late`: how many outputs changed after their
    // calls; `seen`: what is wrong with the buffers of the one that was looked at.
    static std::string damage_of(const std::vector<Turn>& taken, size_t late, const std::string& seen) {
        for (const Turn& turn : taken)
            if (!turn.candidate.unsettled.empty())
                return turn.candidate.unsettled;
        if (late == 0)
            return seen;
        return "what " + std::to_string(late) + " of " + std::to_string(taken.size()) +
               " calls in a series left was changed by calls after them";
    }

    // Whether the outputs of a series from call `begin` on are right, of which the working buffers have those of the
    // second half.
    bool right(const std::vector<const Inputs*>& inputs, size_t begin, std::optional<size_t> checked,
               bool candidate_first, const std::string& damage) {
        std::vector<bool> asked(inputs.size(), false);
        if (workers_.judged())
            asked = suspects(begin, inputs.size(), candidate_first);
        size_t told = checked.value_or(inputs.size() - 1); // of this one damage is told
        asked[told] = asked[told] || checked || !damage.empty();
        for (size_t k = begin; k < inputs.size(); ++k) {
            if (!asked[k])
                continue;
            calls_.use(k);
            if (!right(*inputs[k], first_[k], candidate_first, k == told ? damage : ""))
                return false;
            if (k != checked && !workers_.rivalled()) { // a rival may be the one that is off
                if (++acquitted_ > kPatience)
                    widened_ = std::min(2 * widened_, kMostWidened);
                learn();
            }
        }
        return true;
    }

    // How far outputs may be from the other side's before the reference is asked. Of a suspect who was right it has told the
    // scale. That is enough as a rule; to ask often costs time, but who is asked about seldom may be wrong.
    void learn() {
        tolerances_.clear();
        for (size_t i = 0; i < calls_.specs().size(); ++i) {
            tolerances_.push_back(check_.tolerance(i));
            for (double& slack : tolerances_.back().slack)
                slack *= widened_;
        }
    }

    // Whose outputs of the candidate are far from those of the other side.
    std::vector<bool> suspects(size_t begin, size_t end, bool candidate_first) {
        Differences differences(end);
        for (size_t k = begin; k < end; ++k) {
            calls_.use(k);
            Outputs first = first_[k].outputs(), second = check_.working_outputs();
            for (size_t i = 0; i < first.size(); ++i)
                if (calls_.specs()[i].is_written())
                    differences.add(k, candidate_first ? first[i] : second[i],
                                    candidate_first ? second[i] : first[i], calls_.specs()[i],
                                    tolerances_[i]);
        }
        return differences.any();
    }

    // The reference's word on the calls on these inputs: the outputs of one side are in the working buffers, those of the
    // other were kept.
    bool right(const Inputs& inputs, const KeptOutputs& first, bool candidate_first,
               const std::string& damage) {
        KeptOutputs& second = second_;
        if (workers_.judged())
            second.keep(calls_.specs(), calls_.working());
        const bool own = task().truth() == Truth::kBaseline;
        if (workers_.rivalled() || own) { // a rival's outputs say nothing about the candidate's
            calls_.call(workers_.baseline(), Ask::kCall, inputs);
            afresh_.keep(calls_.specs(), calls_.working());
        }
        std::vector<Expected> expected = oracle_.expect(inputs, kTimedPart, afresh_.outputs());
        Outputs candidate = (candidate_first ? first : second).outputs(),
                baseline = (candidate_first ? second : first).outputs();
        if (!workers_.judged())
            baseline = first.outputs();
        if (workers_.rivalled())
            baseline = afresh_.outputs();
        if (!check_.baseline(check_.observed("", baseline, expected), expected))
            return wrong_baseline();
        if (!workers_.judged())
            return true;
        Line found = calls_.line("check").add("stage", "timed");
        bool ok = check_.candidate(inputs, check_.observed(damage, candidate, expected), expected, candidate,
                                   baseline, found);
        if (!ok) // reported only then
            calls_.write(found);
        return ok;
    }

    bool wrong_baseline() const {
        calls_.write(calls_.line("reference")
                         .add("baseline_ok", false)
                         .add("baseline_worst_error", check_.baseline_worst_error()));
        return false;
    }

    // A pass of its own, for what a reader wants to know beside the time of the whole call.
    void time_on_device([[maybe_unused]] const std::vector<Inputs>& inputs, [[maybe_unused]] Turns& turns) {
#ifndef MSKB_CPU_DEVICE
        auto microseconds = [&](Contestant& worker, const Inputs& given) {
            return calls_.call(worker, Ask::kDeviceTime, given).seconds * 1e6;
        };
        for (size_t k = 0; k < std::min(long_calls() ? kLongDeviceCalls : kDeviceCalls, inputs.size()); ++k) {
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
    double part_, extra_seconds_;
    int& retakes_;
    // Of a call, by the warm-ups: the first of a process can take longer.
    double opponent_seconds_ = HUGE_VAL, candidate_seconds_ = HUGE_VAL;
    std::vector<Tolerance> tolerances_; // per buffer, of a call's outputs from the other side's
    int acquitted_ = 0;                 // suspects who were right
    double widened_ = 1;
    KeptOutputs first_[kMostSlots]; // what the half of a series that came first left
    KeptOutputs second_, afresh_;   // likewise in one call: the second half, and the baseline once more
};

} // namespace mskb
