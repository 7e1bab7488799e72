// How many turns a case gets: in series whose length is drawn at random, until its speedup is known well enough. Pure
// numbers, so that benchmarks/stopping.py can simulate it.
#pragma once
#include <algorithm>
#include <cstddef>
#include "mskb/random.h"
#include "mskb/turns.h"

namespace mskb {

constexpr size_t kFewestTurns = 24;   // where so many turns agree, one series follows and no more, ...
constexpr size_t kFewestLong = 12;    // ... or where so many do that together ...
constexpr double kLongSeconds = 0.25; // ... took longer than this
constexpr double kLongCall = 0.005;   // seconds: of baselines that take longer fewer calls are made, ...
constexpr size_t kLongSeries = 5;     // ... and in a series at most
constexpr int kMostTurns = 64;        // times as many turns as asked for are taken at most

struct Stopping {
    size_t wanted;        // turns that are asked for
    size_t slots;         // turns of a series at most
    size_t pairs;         // of processes, which take series in turn
    bool long_calls;      // the baseline's take more than kLongCall
    bool by_precision;    // or as many as are asked for, whatever they show
    double part;          // of the error that P may have, what the case adds to it for each of its own
    double extra_seconds; // since the first turn; once all are taken, a series that begins later is the last

    // Draws how many turns the next series has, when so many were taken. Of few turns each pair of processes is to have
    // some, and of long calls, of which there may be few, the reference is asked about no more than one of a series.
    size_t next_series(size_t taken, Rng& rng) const {
        const bool more = taken >= wanted;
        size_t longest = std::min(slots, std::max<size_t>(wanted / (2 * pairs), 1));
        if (long_calls)
            longest = std::min(longest, kLongSeries);
        size_t count = 1 + rng.below(more && !long_calls ? slots : longest);
        return more ? count : std::min(count, wanted - taken);
    }

    // Whether the next series is the last. `taken` counts its turns too; `before` holds the turns made so far, which took
    // `seconds`. Calls of up to 100 µs vary by a tenth from one to the next, so more turns than asked for are taken, for as
    // long as that may take. Of longer calls the speedup is known before. The candidate must not be slow now and then.
    bool is_last(const Turns& before, size_t taken, double seconds) const {
        const bool all = taken >= wanted;
        if (taken >= kMostTurns * wanted || (all && !by_precision))
            return true;
        if (!by_precision)
            return false;
        const bool is_long = seconds > kLongSeconds;
        if (all)
            return before.precise(part, is_long) || seconds > extra_seconds;
        size_t fewest = is_long ? kFewestLong : kFewestTurns;
        return before.baseline_us.size() >= fewest && before.precise(part, is_long) && before.even();
    }
};

} // namespace mskb
