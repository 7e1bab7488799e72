// The samples of a case's timed calls, and the state of the GPU meanwhile.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>
#include "mskb/contestant.h"
#include "mskb/gpu_state.h"
#include "mskb/report.h"

namespace mskb {

// A baseline call and a candidate call on the same inputs.
struct Turn {
    Outcome baseline, candidate;
};

struct Turns {
    std::vector<double> baseline_us, candidate_us, empty_us;
    // How much longer the judge waited for a call than the worker says that it took.
    std::vector<double> baseline_outside_us, candidate_outside_us;
    std::vector<double> baseline_device_us, candidate_device_us;
    std::vector<double> sm_mhz; // after each series
    int hot = 0, power_capped = 0;
    int long_leads = 0;     // calls that led a series, and counted
    int retaken = 0;        // times that the calls of a case were forgotten, and others timed
    size_t asked_bytes = 0; // of the largest allocation of a process up to here

    // Takes the call that leads a series out of its turns, unless it took a side far longer than its other calls did: what
    // is more than cold caches is done for the calls after it, and costs a program that does it as much. By the judge's clock.
    void leave_out_lead(std::vector<Turn>& series) {
        bool counts = false;
        for (Outcome Turn::* side : {&Turn::baseline, &Turn::candidate}) {
            double longest = 0;
            for (size_t k = 1; k < series.size(); ++k)
                longest = std::max(longest, (series[k].*side).outside);
            counts = counts || (series[0].*side).outside > kLongLead * longest + kColdSeconds;
            if ((series[0].*side).outside == 0) // it left that call out
                series[0].*side = series[1].*side;
        }
        long_leads += counts;
        if (!counts)
            series.erase(series.begin());
    }

    // Takes in a series of turns and the state of the GPU at its end. Turns during which it slowed down for its
    // temperature are left out.
    void add(const std::vector<Turn>& series, const Clocks& clocks, bool candidate) {
        hot += clocks.thermal ? static_cast<int>(series.size()) : 0;
        power_capped += clocks.power_capped ? static_cast<int>(series.size()) : 0;
        if (clocks.sm_mhz > 0)
            sm_mhz.push_back(clocks.sm_mhz);
        for (const Turn& turn : series) {
            asked_bytes = std::max({asked_bytes, turn.baseline.asked, turn.candidate.asked});
            if (clocks.thermal)
                break;
            add_call(turn.baseline, baseline_us, baseline_outside_us);
            if (candidate)
                add_call(turn.candidate, candidate_us, candidate_outside_us);
        }
    }

    // How many times as fast the candidate is by its own clock as by the judge's, or a rival in the baseline's place: of the
    // speedup of the typical turn, which scores are made of (core/speed.py). To look at messages alone is not enough: the
    // logarithm of a call that is said to take next to no time has no bound, and it outweighs one that is said to take twice
    // its time. A busy processor makes messages slow for a while, as a rule for both calls of a turn.
    double overstated(bool rival = false) const {
        std::vector<double> told, seen;
        for (size_t i = 0; i < turns(); ++i) {
            double speed = std::log(said(!rival, i)) - std::log(said(rival, i));
            told.push_back(speed);
            seen.push_back(speed - understated(rival, i));
        }
        return std::exp(typical(told) - typical(seen));
    }

    // Whether that is too much to be the messages. A lie makes no speedup larger than the judge's clock says by more than what
    // is allowed here; what it may gain by shorter messages, no clock of the judge's shows.
    bool contradicted(bool rival = false) const {
        std::vector<double> seen_us; // calls, by the judge's clock
        for (size_t i = 0; i < turns(); ++i)
            seen_us.push_back(said(rival, i) * std::exp(understated(rival, i)));
        if (seen_us.empty())
            return false;
        double room = std::min(kMessageUs / middle(seen_us) + kMessagePart, kMostRoom);
        return overstated(rival) * (1 - room) > 1;
    }

    // So that others are taken in their place, and what is said of the GPU is of those.
    void forget_calls() {
        for (auto calls : {&baseline_us, &candidate_us, &baseline_outside_us, &candidate_outside_us})
            calls->clear();
        sm_mhz.clear();
        hot = power_capped = long_leads = 0;
        ++retaken;
    }

    // Whether the typical ratio of a turn is known well enough: its standard error, from the largest and the smallest of the
    // logarithms that the mean is made of. So a call that was held up is seen here if it is seen in the mean.
    // `part` of the error that P may have is what the case adds to it for each of its own; where `brief` is asked for, long
    // calls may be known as little as short ones.
    bool precise(double part = 1, bool brief = false) const {
        std::vector<double> logs = logarithms();
        if (logs.empty())
            return false;
        size_t n = logs.size();
        size_t cut = cut_of(n);
        double error = (logs[n - 1 - cut] - logs[cut]) / kMiddleReach / std::sqrt(static_cast<double>(n));
        bool rough = brief || std::min(middle(baseline_us), middle(candidate_us)) <= kShortUs;
        double wanted = rough ? kRough : kPrecise;
        return error < std::clamp(wanted / part, wanted, kRoughest);
    }

    // Whether the mean times say no worse of the candidate than the typical turn does, which does not see that it is slow in
    // one call of five; how slow it is on average takes more turns to say. A single call that something else held up says
    // nothing, so of many turns the one in which the candidate is slowest is left out. Of few it is not: a candidate that is
    // slow in one call of eight often has a single such call among twelve.
    bool even() const {
        double baseline = 0, candidate = 0;
        size_t slowest = 0;
        for (size_t i = 0; i < std::min(baseline_us.size(), candidate_us.size()); ++i) {
            baseline += baseline_us[i];
            candidate += candidate_us[i];
            if (candidate_us[i] * baseline_us[slowest] > candidate_us[slowest] * baseline_us[i])
                slowest = i;
        }
        if (baseline_us.size() >= kFewestToLeaveOut) {
            baseline -= baseline_us[slowest];
            candidate -= candidate_us[slowest];
        }
        return std::log(baseline / candidate) > middle(logarithms()) - kUneven;
    }

    void write(Line& line, const std::vector<std::string>& others, bool rivalled) const {
        line.add("baseline_us", baseline_us)
            .add("candidate_us", candidate_us)
            .add("empty_us", empty_us)
            .add("baseline_device_us", baseline_device_us)
            .add("candidate_device_us", candidate_device_us)
            .add("sm_mhz", sm_mhz)
            .add("hot", hot)
            .add("power_capped", power_capped)
            .add("long_leads", long_leads)
            .add("overstated", overstated())
            .add("contradicted", contradicted())
            .add("rival_overstated", rivalled ? overstated(true) : 1)
            .add("rival_contradicted", rivalled && contradicted(true))
            .add("retaken", retaken)
            .add("asked_bytes", asked_bytes)
            .add("others", others);
    }

  private:
    // What a call of a few microseconds takes differs by more than that between two processes.
    static constexpr double kPrecise = 0.002, kRough = 0.005, kShortUs = 18;
    static constexpr double kRoughest = 0.01; // of a case that hardly counts
    static constexpr double kMiddleReach =
        1.68; // standard deviations from end to end of the middle three fifths
    static constexpr double kUneven = 0.01;
    static constexpr size_t kFewestToLeaveOut = 24;
    static constexpr double kMessageUs = 3,
                            kMessagePart = 0.02; // so long, and part of a call, messages may be apart
    static constexpr double kMostRoom = 0.5;     // that part of a call, however short
    static constexpr double kLeastUs = 1e-290;   // has a logarithm
    static constexpr size_t kFewestToTrim = 10;
    static constexpr double kLongLead = 1.5,
                            kColdSeconds = 300e-6; // cold caches were seen to take up to 80 µs

    // Of the turns' ratios, in order.
    std::vector<double> logarithms() const {
        std::vector<double> logs;
        for (size_t i = 0; i < std::min(baseline_us.size(), candidate_us.size()); ++i)
            logs.push_back(std::log(baseline_us[i] / candidate_us[i]));
        std::sort(logs.begin(), logs.end());
        return logs;
    }

    // For which both clocks are there.
    size_t turns() const { return std::min(baseline_outside_us.size(), candidate_outside_us.size()); }

    // Of a call, by the process of the candidate or that of the other side.
    double said(bool other, size_t i) const {
        return std::max((other ? baseline_us : candidate_us)[i], kLeastUs);
    }

    // The logarithm of how many times as long a call took by the judge's clock as its process says, if its messages took as
    // long as those of the turn's other call. Messages that are slow on either side by chance cancel out.
    double understated(bool other, size_t i) const {
        double apart = candidate_outside_us[i] - baseline_outside_us[i];
        return std::copysign(std::log1p(std::fabs(apart) / said(other, i)), other ? -apart : apart);
    }

    // How many of so many values the mean of the middle three fifths leaves out at either end.
    static size_t cut_of(size_t count) { return count >= kFewestToTrim ? count / 5 : 0; }

    static double typical(std::vector<double> values) {
        std::sort(values.begin(), values.end());
        size_t cut = cut_of(values.size());
        double sum = 0;
        for (size_t i = cut; i < values.size() - cut; ++i)
            sum += values[i];
        return values.empty() ? 0 : sum / static_cast<double>(values.size() - 2 * cut);
    }

    static double middle(std::vector<double> values) {
        std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
        return values[values.size() / 2];
    }

    static void add_call(const Outcome& call, std::vector<double>& inside_us,
                         [[maybe_unused]] std::vector<double>& outside_us) {
        inside_us.push_back(call.seconds * 1e6);
#ifndef MSKB_CPU_DEVICE // where a worker copies its buffers back before it replies
        outside_us.push_back((call.outside - call.seconds) * 1e6);
#endif
    }
};

} // namespace mskb
