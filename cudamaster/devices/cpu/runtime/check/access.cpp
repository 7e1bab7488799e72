// One access of a device thread, held against what is known of the memory.
#include "check.h"

#include <sys/mman.h>
#include <algorithm>
#include <cstring>

namespace executor {
namespace check {

namespace {

// Of the accesses that nothing orders before the newest one, so many are kept: a writer of whatever lane, warp or block
// then finds one that is not its own. More would only name the same fault again.
constexpr unsigned kKeptOfWarp = 2, kKeptOfBlock = 4, kKeptOfOthers = 2;

void keep(const BlockClock& clock, unsigned thread, Cell& cell, const Access& access) {
    if (!cell.more)
        cell.more = new std::vector<Access>;
    auto& more = *cell.more;
    unsigned of_warp = 0, of_block = 0, others = 0;
    size_t left = 0;
    for (const Access& one : more) {
        bool other = one.segment != clock.segment;
        if (state().clock.ordered(clock, thread, one) || (other && others == kKeptOfOthers))
            continue;
        others += other;
        bool same_kind = (one.kind & kWrite) == (access.kind & kWrite);
        of_block += !other && same_kind;
        of_warp += !other && same_kind && one.thread / kWarp == access.thread / kWarp;
        more[left++] = one;
    }
    more.resize(left);
    bool full = access.segment != clock.segment ? others >= kKeptOfOthers
                                                : of_warp >= kKeptOfWarp || of_block >= kKeptOfBlock;
    if (!full)
        more.push_back(access);
}

struct Found {
    bool race = false, doubt = false, unwritten = false, unfenced = false;
    Access before, unfenced_write;
};

Proxied::Memory memory_of(const Range& range) {
    return range.shared() ? Proxied::kShared : Proxied::kGlobal;
}

// What threads write in the ordinary way comes before an asynchronous copy's or product's accesses behind a fence between
// proxies only. What they read needs none: who waits for the readers to arrive overwrites it in every ring of buffers.
// Nor do atomics of both that meet in one place.
void look_for_fence(const BlockClock& clock, const Range& range, const Cell& cell, const Access& now,
                    Found& found) {
    auto since = [&](const Access& before) {
        if (!(before.kind & kWrite) || before.kind & kAsync || (before.kind & now.kind & kAtomic) ||
            state().clock.proxied(clock, now.thread, before, memory_of(range)))
            return;
        found.unfenced = true;
        found.unfenced_write = before;
    };
    since(cell.write);
    since(cell.strong);
    if (cell.more)
        for (const Access& before : *cell.more)
            since(before);
}

// The cell after a read or a write of it. What is found first of each kind goes to `found`.
//
// Strong writes to one place come one after the other for everybody: a plain write that is ordered behind the last of
// them is so behind all, as that of the block which drew the last ticket and sets the counter back. A plain read has to
// be ordered behind each, for it would read too early in another run.
void touch(BlockClock& clock, const Range& range, Cell& cell, const Access& now, Found& found) {
    LaunchClock& order = state().clock;
    unsigned thread = now.thread;
    if (range.shared() &&
        std::max({cell.write.segment, cell.strong.segment, cell.read.segment}) < clock.first_segment) {
        delete cell.more;
        cell = {};
    }
    bool writes = now.kind & kWrite, strong = now.strong();
    if (!now.kind && cell.twice_segment == now.segment && cell.twice_count == now.count &&
        cell.twice_warp == thread / kWarp)
        return;
    const Access& last = writes ? cell.write : cell.read;
    if (last.thread == thread && last.segment == now.segment && last.count == now.count &&
        last.kind == now.kind && !cell.more && !cell.strong.segment && (!writes || !cell.read.segment))
        return; // again, and nobody else meanwhile
    auto against = [&](const Access& before) {
        if (!before.segment || !conflict(before, now) || found.race || order.ordered(clock, thread, before))
            return;
        if (before.kind & now.kind & kBarrier && now.kind & kAtomic)
            return; // the init, which is asked for by itself
        // What a copy writes is not there yet.
        bool both_plain_writes =
            (before.kind & kWrite) && writes && !before.strong() && !strong && !(now.kind & kAsync);
        if (both_plain_writes && found.doubt)
            return;
        (both_plain_writes ? found.doubt : found.race) = true;
        found.before = before;
    };
    against(cell.write);
    against(cell.strong);
    if (writes)
        against(cell.read);
    if (cell.more)
        for (const Access& before : *cell.more)
            if (!writes || !(before.kind & kWrite))
                against(before);
    if ((!writes || now.kind & kReads) && !cell.written)
        found.unwritten = true;
    if (now.kind & kAsync && !found.unfenced)
        look_for_fence(clock, range, cell, now, found);
    if (!writes) {
        if (cell.read.segment && !order.ordered(clock, thread, cell.read)) {
            keep(clock, thread, cell, cell.read);
            if (!cell.read.kind && cell.read.segment == now.segment && cell.read.count == now.count &&
                cell.read.thread / kWarp == thread / kWarp) {
                cell.twice_segment = now.segment;
                cell.twice_count = now.count;
                cell.twice_warp = static_cast<uint16_t>(thread / kWarp);
            }
        }
        cell.read = now;
        return;
    }
    cell.twice_segment = 0;
    cell.written = true;
    if (strong) {
        if (cell.strong.segment && !order.ordered(clock, thread, cell.strong))
            keep(clock, thread, cell, cell.strong);
        cell.strong = now;
        return;
    }
    delete cell.more;
    cell.more = nullptr;
    cell.write = now;
    cell.strong = cell.read = {};
}

// Memory that belongs to no range: an access outside of one where it is near, or where nothing is at all.
void look_around(const Worker& self, BlockState& block, uintptr_t address, const Access& now) {
    const char* byte = reinterpret_cast<const char*>(address);
    if (byte >= block.tls_begin && byte < block.tls_end)
        return;
    // A launch's arguments lie with the host, and every thread copies them.
    uintptr_t& harmless = block.harmless[address >> kPageBits & (std::size(block.harmless) - 1)];
    if (harmless == address >> kPageBits)
        return;
    auto [before, after] = state().ranges.neighbours(address);
    constexpr size_t kNear = 2 * kGuardBytes;
    bool in_arena = self.shared_arena && byte >= self.shared_arena - kGuardBytes &&
                    byte < self.shared_arena + (256 << 10) + kGuardBytes;
    if (in_arena) {
        Range* dynamic =
            block.dynamic ? state().ranges.find(reinterpret_cast<uintptr_t>(block.dynamic)) : nullptr;
        report_outside(dynamic, address, now);
        return;
    }
    auto near = [&](const Range* range, uintptr_t distance) {
        size_t reach = range->space == Space::kGlobal         ? kNear
                       : range->space == Space::kStaticShared ? kRedZone
                                                              : 0;
        return distance < reach;
    };
    // The pages around an allocation are its own guards; nobody else's memory is there.
    if (before && near(before, address - (before->base + before->bytes)) &&
        (before->space != Space::kGlobal ||
         (address & ~4095ull) <= ((before->base + before->bytes + 4095) & ~4095ull))) {
        report_outside(before, address, now);
    } else if (after && near(after, after->base - address) &&
               (after->space != Space::kGlobal || (address & ~4095ull) + 4096 >= (after->base & ~4095ull))) {
        report_outside(after, address, now);
    } else {
        unsigned char resident;
        if (mincore(reinterpret_cast<void*>(address & ~4095ull), 1, &resident) != 0)
            report_outside(nullptr, address, now);
        else
            harmless = address >> kPageBits;
    }
}

bool on_a_stack(const Worker& self, const char* byte) {
    for (const auto& fibre : self.fibres)
        if (byte >= fibre->stack && byte < fibre->stack + kGuardBytes + kStackBytes)
            return true;
    return false;
}

} // namespace

void settle_doubts(BlockState& block) {
    for (const Doubt& doubt : block.doubts)
        if (std::memcmp(reinterpret_cast<const void*>(doubt.address), doubt.old, doubt.bytes) != 0)
            report_race(*doubt.range, doubt.address, doubt.before, doubt.now);
    block.doubts.clear();
}

Access access_now(const BlockState& block, unsigned thread, size_t bytes, unsigned kind, const void* site) {
    Access now;
    now.segment = block.clock.segment;
    now.count = kind & kLate ? block.late : block.clock.count[thread];
    now.place = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(site) - state().image);
    now.thread = static_cast<uint16_t>(thread);
    now.kind = static_cast<uint8_t>(kind);
    now.bytes = static_cast<uint8_t>(std::min<size_t>(bytes, 255));
    return now;
}

namespace {

// An access to the shared memory of another block of the cluster, which has to have begun for certain, and to be there yet.
void visit(const BlockState& block, const Range& range, uintptr_t address, const Access& now) {
    BlockState& owner = *range.owner;
    if (owner.ended)
        report_ended(range, address, now);
    else if (!state().clock.knows_of(block.clock, now.thread, owner.clock))
        report_unstarted(range, address, now);
    // A late one may come behind those that its thread makes later.
    uint64_t late = static_cast<uint64_t>(now.kind & kLate ? 1 : 0) << 63;
    owner.visits[late | static_cast<uint64_t>(block.clock.block) << 16 | now.thread] = {&range, address, now};
}

} // namespace

// The block ends: who used its shared memory has to be done with it for all that the block knows.
void look_for_visitors(BlockState& block) {
    block.ended = true;
    if (block.visits.empty())
        return;
    Known known;
    for (unsigned thread = 0; thread < block.clock.threads; ++thread)
        known = joined(known, block.clock.known[thread]);
    for (const auto& [who, visit] : block.visits) {
        const LaunchClock& clock = state().clock;
        if (!clock.is_over(visit.access) && !clock.is_known(known, visit.access))
            report_ended(*visit.range, visit.address, visit.access);
    }
}

void take_off(Flights& flights, const char* bytes, size_t count, unsigned kind, const void* site) {
    if (resting)
        return;
    Locked locked;
    flights.take_off(bytes, count, access_now(*block_state, worker->linear, count, kind, site));
}

void land(Flights& flights, const BlockState& block, const char* bytes, size_t count, unsigned thread) {
    Locked locked;
    flights.land(bytes, count, block.clock.block, thread);
}

void look_at_access(const void* pointer, size_t bytes, unsigned kind, const void* site) {
    Worker* self = worker;
    if (!self || !self->running || !bytes)
        return;
    const char* byte = static_cast<const char*>(pointer);
    const Fibre* fibre = self->current;
    if (byte >= fibre->stack && byte < fibre->stack + kGuardBytes + kStackBytes)
        return;
    BlockState& block = *block_state;
    Locked locked;
    if (!block.doubts.empty())
        settle_doubts(block);
    State& all = state();
    if (++all.accesses > kMostAccesses) {
        rest();
        return;
    }
    BlockClock& clock = block.clock;
    unsigned thread = self->linear;
    uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
    Access now = access_now(block, thread, bytes, kind, site);
    size_t offset = 0, end = bytes;
    Found found;
    Ranges::Part& part = all.ranges.recent(address);
    Range* range = part.range;
    if (address < part.begin || address + bytes > part.end) {
        range = all.ranges.find(address);
        if (!range) {
            if (!on_a_stack(*self, byte))
                look_around(*self, block, address, now);
            return;
        }
        if (address + bytes > range->base + range->bytes) {
            report_outside(range, address, now);
            return;
        }
    }
    if (range->owner && range->owner != &block)
        visit(block, *range, address, now);
    const Flights& flights = range->shared() ? block.cluster->flights : all.stores;
    bool early = false;
    if (!flights.empty())
        if (const Access* copy = flights.in_the_way(address, bytes, now)) {
            report_early(*range, address, *copy, now);
            early = true;
        }
    if (!range->shared())
        clock.unfenced[thread] = true;
    if ((kind & (kWrite | kAsync | kBarrier)) == kWrite)
        clock.unproxied[memory_of(*range)][thread] = true;
    bool hands_on = now.strong() && !(kind & kBarrier);
    if (hands_on)
        all.clock.acquire(clock, thread, address);
    while (offset < end) {
        uintptr_t at = address + offset, in_range = at - range->base;
        unsigned shift = static_cast<unsigned>(__builtin_ctzll(in_range | (end - offset) | 4));
        if (at < part.begin || at >= part.end) {
            size_t begin = in_range >> kPageBits << kPageBits;
            part.page = &range->page(in_range, shift);
            part.range = range;
            part.begin = part.page_begin = range->base + begin;
            part.end = range->base + std::min(range->bytes, begin + (1 << kPageBits));
        }
        Page& page = *part.page;
        if (page.shift > shift)
            Range::refine(page, shift);
        uintptr_t stop = std::min(address + end, part.end);
        size_t last = (stop - 1 - part.page_begin) >> page.shift;
        for (size_t i = (at - part.page_begin) >> page.shift; i <= last; ++i)
            touch(clock, *range, page.cells[i], now, found);
        offset = stop - address;
    }
    if (found.race) {
        if (!early) // which is the same
            report_race(*range, address, found.before, now);
    } else if (found.doubt && bytes <= sizeof Doubt::old) {
        Doubt doubt{range, address, bytes, {}, found.before, now};
        std::memcpy(doubt.old, pointer, bytes);
        block.doubts.push_back(doubt);
    } else if (found.doubt) {
        report_race(*range, address, found.before, now);
    }
    if (found.unfenced && !found.race)
        report_unfenced(*range, address, found.unfenced_write, now);
    if (found.unwritten)
        report_unwritten(*range, address, now);
    if (hands_on && kind & kWrite)
        all.clock.release(clock, thread, address);
}

} // namespace check
} // namespace executor
