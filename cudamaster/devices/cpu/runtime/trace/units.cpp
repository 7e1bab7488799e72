// Units of work that the blocks of a launch take from a counter in global memory. Blocks run one after another here, so the
// first one takes them all, and that may be far more than any other block has to do. On a GPU other blocks take most of
// them, so from some point on it gets one in many: in between, the counter goes on as if others had taken the rest, by
// random numbers, as a kernel might know which units are looked at. What it does then stands for all.
//
// Long units may be shared out among warps by a counter in shared memory, which goes on in the same way: each share that a warp
// gets stands for so many, of which it is one by random.
//
// When it finds none left, the last one is somewhere behind the last that it got. Another block, run twice and not recorded,
// looks for it: it gets only units behind that one, closer together.
#include "trace/trace.h"

#include <algorithm>
#include <cmath>

namespace executor {
namespace trace {

__thread Units* units;

namespace {

constexpr Count kEventsBefore = 2'000'000; // of a block, before units are left out,
constexpr Count kUnitsBefore = 4;          // and units; but one, if it is known that there are few, or
constexpr Count kLongUnit = 2'000'000;     // if it has so many events and shares of others may be left out:
constexpr Count kLeftOutOfShared = 5;      // so many units between two,
constexpr Count kLeastShares = 4;          // so many shares for each warp at least,
constexpr Count kMostLike = 32;            // and one share stands for so many at most

} // namespace

SoFar Tracer::so_far(Count units) const {
    SoFar found{units, 0, counts_.way.far_waits, {}, 0};
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

// How many units are left out before the next, which is one of so many. Where these are few, one is taken of each so many that
// follow each other, or a part of them that are longer might have more than its share.
Count left_out_next(Units& of) {
    const bool shared = of.shares.weight > 1;
    if (!shared && !of.evenly)
        return of.left_out / 2 + drawn_below(of.left_out + 1, of.seed);
    const Count each = 1 + (shared ? std::min(of.left_out, kLeftOutOfShared) : of.left_out);
    const Count first = of.taken_before + (of.asked - 1 - of.taken_before) * each;
    return first + drawn_below(each, of.seed) - of.least;
}

// So many units further, but not below nothing: an unsigned counter that goes down would begin again.
unsigned beyond(unsigned now, Count left_out, unsigned step) {
    if (static_cast<int>(step) < 0 && static_cast<int>(now) >= 0)
        left_out = std::min<Count>(left_out, now / (0 - step));
    return now + static_cast<unsigned>(left_out) * step;
}

// A warp takes a share. Of the first unit all are recorded, so that it is known how many there are about: a thread that
// takes something else, as a place in an array, must not get places that are not there.
void takes_share(Units& of, unsigned* counter, unsigned bytes) {
    Shares& shares = of.shares;
    const bool is_first = shares.unit != of.asked;
    auto is_none = [&] {
        shares.none = true;
        if (shares.weight > 1)
            needs_units();
    };
    if (shares.none)
        return;
    if (bytes != sizeof *counter || worker->linear % kWarp || (shares.counter && shares.counter != counter))
        return is_none();
    const unsigned now = *counter;
    if (!shares.counter) {
        shares.counter = counter;
        shares.first = now;
    }
    if (is_first ? now != shares.first : now != shares.last + 1)
        return is_none();
    if (is_first)
        shares.taken = shares.beyond = 0;
    shares.unit = of.asked;
    shares.last = now;
    ++shares.taken;
    if (!of.apart) {
        shares.most = std::max(shares.most, shares.taken);
        return;
    }
    if (shares.weight == 1)
        return;
    const Count at = now - shares.first, from = (shares.taken - 1) * shares.weight;
    if (at >= shares.most) {
        if (++shares.beyond > shares.most / kLeastShares + kMaxThreads / kWarp)
            is_none();
        return;
    }
    const Count drawn = from + drawn_below(shares.weight, of.seed);
    shares.last = *counter = shares.first + static_cast<unsigned>(std::max(at, std::min(drawn, shares.most)));
    ++shares.drawn;
    recorder->takes_share(worker->linear, shares.weight);
}

// How many of a unit's shares one is to stand for, by those of the first unit.
Count shares_like_one(const Shares& shares) {
    const Count warps = (worker->job->threads + kWarp - 1) / kWarp;
    if (shares.none || shares.taken != shares.most)
        return 1;
    return std::clamp<Count>((shares.most - std::min(shares.most, warps)) / (warps * kLeastShares), 1,
                             kMostLike);
}

} // namespace

void takes_unit(const void* address, unsigned bytes) {
    Units& of = *units;
    auto* counter = static_cast<unsigned*>(const_cast<void*>(address));
    if (counter != of.counter && (!recorder || !recorder->is_global(reinterpret_cast<uintptr_t>(address)))) {
        if (recorder && of.counter)
            takes_share(of, counter, bytes);
        return;
    }
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
        of.last = now;
        return;
    }
    unsigned step = now - of.last;
    if (of.asked == 2 && !of.step)
        of.step = step;
    if (step != of.step || !step)
        return counts_something_else(of);
    of.least = of.number_of(of.last) + 1;
    Count left_out = of.stride - 1;
    if (!recorder && of.asked > 2 * of.stride + 8) // it would have found the last
        return counts_something_else(of);
    if (recorder) {
        const Count events = recorder->counts().events, of_unit = events - std::exchange(of.events, events);
        const Count before = std::exchange(of.before, of_unit);
        if (of.apart) {
            of.each.note(of_unit);
            const double more = static_cast<double>(of_unit) - static_cast<double>(before);
            of.squares += of.each.count > 1 ? more * more : 0;
        }
        if (of.asked == 2 && events > kLongUnit)
            of.shares.weight = shares_like_one(of.shares);
        const bool shared = of.shares.weight > 1;
        if (!of.apart && (of.evenly || shared || (events > kEventsBefore && of.asked > kUnitsBefore))) {
            of.apart = true;
            of.taken_before = of.asked - 1;
            of.events_before = events;
            if (shared)
                of.whole = recorder->so_far(of.taken_before);
            leaves_units_out();
        }
        recorder->takes_unit();
        if (of.apart && of.asked - 1 >= 2 * of.earlier.units) {
            of.before_earlier = std::move(of.earlier);
            of.earlier = recorder->so_far(of.asked - 1);
            of.earlier.shares = of.shares.drawn;
        }
        left_out = of.apart ? left_out_next(of) : 0;
    }
    of.last = *counter = beyond(now, left_out, of.step);
}

// Another answer may be a ticket, by which the last block of the grid does more than others, or say how many units there are.
void asks_beside_units(unsigned long long address) {
    if (recorder->is_global(address))
        counts_something_else(*units);
}

void looks_for_units(Units& of) {
    units = &of;
    of.asked = 0;
    of.stride = std::max<Count>(static_cast<Count>(std::sqrt(of.most - of.least)), 1);
    *of.counter = of.first + static_cast<unsigned>(of.least) * of.step;
}

// The block took from the counter once more than it got units.
void units_end(Units& of) {
    units = nullptr;
    if (!of.apart || !of.asked)
        return;
    if (recorder) {
        of.taken = of.asked - 1;
        if (2 * of.taken < 3 * of.earlier.units) // too near to the end
            of.earlier = std::move(of.before_earlier);
    }
    of.most = of.number_of(of.last);
    *of.counter = of.first + static_cast<unsigned>(of.most) * of.step;
}

} // namespace trace
} // namespace executor
