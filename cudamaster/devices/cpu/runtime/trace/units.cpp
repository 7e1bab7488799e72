// Units of work that the blocks of a launch take from a counter in global memory. Blocks run one after another here, so the
// first one takes them all, and that may be far more than any other block has to do. On a GPU other blocks take most of
// them, so from some point on it gets one of each so many: in between, the counter goes on as if others had taken the rest.
// Which one is random, as a kernel might know which units are looked at. What it does then stands for all.
//
// When it finds none left, the last one is somewhere behind the last that it got. Another block, which is not recorded, looks
// for it, from the end on: each time that it is run it gets a unit nearer to those that there are, until it gets one.
#include "trace/trace.h"

#include <algorithm>

namespace executor {
namespace trace {

__thread Units* units;

namespace {

constexpr Count kEventsBefore = 2'000'000; // of a block, before units are left out,
constexpr Count kUnitsBefore = 4;          // and units, but
constexpr Count kLongUnit = 4'000'000;     // one of so many events is enough,
constexpr Count kEachLong = 12;            // and one of so many is taken then, as there are few
constexpr Count kOfFirst = 16; // the first has at least that part of a unit, or it was asked for ahead
constexpr Count kLooks = 16;   // for the last unit, at most

} // namespace

SoFar Tracer::so_far(Count units) const {
    SoFar found{units, 0, counts_.way.far_waits, {}};
    for (unsigned warp = 0; warp * kWarp < threads_; ++warp)
        found.far_waits += warps_[warp].far_waits;
    lines_.each([&](const LineSet::Entry& entry) {
        Sum& sum = found.lines[entry.buffer];
        sum = sectors_of(sum, entry);
    });
    return found;
}

namespace {

// It is no counter of units, or not only that: the block does all there is.
void counts_something_else(Units& of) {
    units = nullptr;
    of.asked = 0;
    if (of.apart)
        needs_units();
}

Count so_far(const Tracer& block) {
    return block.counts().events + block.counts().dropped;
}

// Of the units that follow those before any was left out one of each so many, at random.
Count next_unit(Units& of) {
    const Count first = of.taken_before + (of.asked - 1 - of.taken_before) * of.each;
    return first + drawn_below(of.each, of.seed);
}

// So many units further, but not below nothing: an unsigned counter that goes down would begin again.
unsigned beyond(unsigned now, Count left_out, unsigned step) {
    if (static_cast<int>(step) < 0 && static_cast<int>(now) >= 0)
        left_out = std::min<Count>(left_out, now / (0 - step));
    return now + static_cast<unsigned>(left_out) * step;
}

} // namespace

void takes_unit(const void* address, unsigned bytes) {
    Units& of = *units;
    auto* counter = static_cast<unsigned*>(const_cast<void*>(address));
    if (counter != of.counter && (!recorder || !recorder->is_global(reinterpret_cast<uintptr_t>(address))))
        return;
    if (worker->linear || bytes != sizeof *counter || (of.counter && counter != of.counter))
        return counts_something_else(of);
    if (!of.counter) {
        of.counter = counter;
        of.first = *counter;
        if (was_left_so(address, of.first)) {
            of.apart = true;
            leaves_units_out();
            return counts_something_else(of);
        }
    }
    unsigned now = *counter;
    if (!of.asked++) {
        of.events = recorder ? so_far(*recorder) : 0;
        of.first_asked = instructions;
        of.last = now;
        return;
    }
    unsigned step = now - of.last;
    if (of.asked == 2 && !of.step)
        of.step = step;
    if (step != of.step || !step)
        return counts_something_else(of);
    of.least = of.number_of(of.last) + 1;
    if (!recorder) {
        of.found = true;
        of.last = *counter = of.first + static_cast<unsigned>(of.most) * of.step;
        if (of.asked > 2) // it would have found the last
            counts_something_else(of);
        return;
    }
    const Count events = so_far(*recorder), of_unit = events - std::exchange(of.events, events);
    const Count of_last = std::exchange(of.of_last, of_unit);
    if (of.apart) {
        ++of.known;
        const double more = static_cast<double>(of_unit) - static_cast<double>(of_last);
        if (of.known > 1) {
            const double square = more * more;
            // On both sides of a step are at least two units that are alike.
            if (of.known > 3)
                of.step_square = std::max(of.step_square, of.last_square - of.last_but_one - square);
            of.squares += square;
            of.last_but_one = std::exchange(of.last_square, square);
        }
    }
    if (of.asked == 2)
        of.of_first = instructions - of.first_asked;
    const bool enough = events > kEventsBefore && of.asked > kUnitsBefore;
    if (!of.apart && (enough || of_unit > kLongUnit)) {
        // Who asks before it has done anything knows of more units than it has done.
        if (of.of_first < (instructions - of.first_asked) / (of.asked - 1) / kOfFirst)
            return counts_something_else(of);
        of.apart = true;
        if (of_unit > kLongUnit)
            of.each = std::min(of.each, kEachLong);
        of.taken_before = of.asked - 1;
        of.events_before = events;
        leaves_units_out();
    }
    if (of.apart && of.asked - 1 >= 2 * of.earlier.units) {
        of.before_earlier = std::move(of.earlier);
        of.earlier = recorder->so_far(of.asked - 1);
    }
    of.last = *counter = of.apart ? beyond(now, next_unit(of) - of.number_of(now), of.step) : now;
}

// Another answer may be a ticket, by which the last block of the grid does more than others, or say how many units there are.
void asks_beside_units(unsigned long long address) {
    if (recorder->is_global(address))
        counts_something_else(*units);
}

bool looks_again(Units& of) {
    if (!of.closer)
        of.closer = (of.most - of.least + kLooks - 1) / kLooks;
    if (of.found || of.most <= of.least)
        return false;
    of.look = of.most - std::min(of.closer, of.most - of.least);
    return true;
}

void looks_for_units(Units& of) {
    units = &of;
    of.asked = 0;
    *of.counter = of.first + static_cast<unsigned>(of.look) * of.step;
}

// The block took from the counter once more than it got units.
void units_end(Units& of) {
    units = nullptr;
    if (!of.apart || !of.asked)
        return;
    if (recorder) {
        of.taken = of.asked - 1;
        of.most = of.number_of(of.last);
        if (2 * of.taken < 3 * of.earlier.units) // too near to the end
            of.earlier = std::move(of.before_earlier);
    } else if (!of.found) {
        of.most = of.look;
    }
    *of.counter = of.first + static_cast<unsigned>(of.most) * of.step;
}

} // namespace trace
} // namespace executor
