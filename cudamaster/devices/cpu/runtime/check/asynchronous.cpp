// What the executor tells the checker of asynchronous copies and products, of barriers that their completion is seen at, and of
// fences between their proxy and that of threads.
#include "check.h"

#include <algorithm>

namespace executor {
namespace check {

namespace {

BlockState& of(const Worker& self) {
    return *static_cast<BlockState*>(self.observer);
}

// The thread arrives, waits, announces bytes, or sets off a copy that ends there: it has to know of the init.
void use(Worker& self, const void* place, unsigned kind, const void* site) {
    BlockState& block = *block_state;
    observe_access(place, sizeof(unsigned), kind | kAtomic | kBarrier, site);
    Locked locked;
    auto found = block.cluster->mbarriers.find(place);
    if (found == block.cluster->mbarriers.end())
        return;
    auto& barrier = found->second;
    barrier.last = access_now(block, self.linear, sizeof(uint64_t), kind | kAtomic | kBarrier, site);
    const LaunchClock& clock = state().clock;
    if (resting || clock.ordered(block.clock, self.linear, barrier.init) ||
        clock.knows_phase(block.clock, self.linear, barrier.phase(1)))
        return;
    if (Range* range = state().ranges.find(reinterpret_cast<uintptr_t>(place)))
        report_race(*range, reinterpret_cast<uintptr_t>(place), barrier.init, barrier.last);
}

// The phase is complete for certain only once those have announced their bytes who will: one of its arrivals is behind that.
void look_for_announcements(const void* place, ClusterState::Mbarrier& barrier) {
    for (const Access& one : barrier.announced)
        if (!resting && !state().clock.is_known(barrier.gathered, one))
            if (Range* range = state().ranges.find(reinterpret_cast<uintptr_t>(place)))
                report_race(*range, reinterpret_cast<uintptr_t>(place), one, barrier.last);
    barrier.announced.clear();
}

const char* flight_of(const Bulk& bulk, const BulkPiece& piece) {
    return bulk.barrier ? piece.target : piece.source;
}

// A copy completes at an mbarrier through its own proxy: of the init that one has to know, too.
void look_for_init(const Worker& self, const Bulk& bulk) {
    Locked locked;
    BlockState& block = *block_state;
    const auto& barrier = block.cluster->mbarriers[bulk.barrier];
    Range* range = state().ranges.find(reinterpret_cast<uintptr_t>(bulk.barrier));
    if (resting || !range || barrier.init_fenced || !barrier.init.segment ||
        state().clock.proxied(block.clock, self.linear, barrier.init, Proxied::kShared))
        return;
    report_unfenced(*range, reinterpret_cast<uintptr_t>(bulk.barrier), barrier.init,
                    access_now(block, self.linear, sizeof(uint64_t), kAsync | kWrite, bulk.site));
}

} // namespace
} // namespace check

namespace observe {

using namespace check;

// The copy reads and writes at some time from here up to the wait: until then the bytes are in flight.
void copy_starts(Worker& self, Copy& copy) {
    BlockState& block = of(self);
    if (!copy.late) {
        Locked locked;
        copy.late = state().clock.begin_late();
    }
    block.late = copy.late;
    observe_access(copy.source, copy.from_source, kLate, copy.site);
    observe_access(copy.target, copy.bytes, kLate | kWrite, copy.site);
    take_off(block.cluster->flights, copy.target, copy.bytes, kLate | kWrite, copy.site);
}

void copy_lands(Worker& self, const Copy& copy) {
    BlockState& block = of(self);
    land(block.cluster->flights, block, copy.target, copy.bytes, copy.thread);
    Locked locked;
    if (!copy.barrier) {
        state().clock.end_late(copy.late, block.clock, copy.thread);
        block.clock.unproxied[Proxied::kShared][copy.thread] = true; // written now
        return;
    }
    auto& barrier = block.cluster->mbarriers[copy.barrier];
    barrier.copies = true;
    state().clock.end_late_in_phase(copy.late, barrier.phase(barrier.phases + 2));
}

// What a thread knows when it arrives goes to whoever sees the phase complete.
void mbarrier_is_met(Worker&, const void*, unsigned long long) {}
void mbarrier_is_left(Worker&, const void*, unsigned long long) {}
void mbarrier_begins(Worker& self, const void* place, const void* site) {
    observe_access(place, sizeof(uint64_t), kWrite | kBarrier, site);
    Locked locked;
    ClusterState& cluster = *of(self).cluster;
    auto& barrier = cluster.mbarriers[place] = {};
    barrier.init = access_now(of(self), self.linear, sizeof(uint64_t), kWrite | kBarrier, site);
    barrier.number = cluster.made++;
}
void mbarrier_ends(Worker&, const void* place, const void* site) {
    observe_access(place, sizeof(uint64_t), kWrite | kBarrier, site);
}
void mbarrier_is_used(Worker& self, const void* place, bool waits, const void* site) {
    use(self, place, waits ? 0 : kWrite | kReads, site);
}
void mbarrier_expects(Worker& self, const void* place, const void* site) {
    use(self, place, kWrite, site);
    Locked locked;
    auto& barrier = of(self).cluster->mbarriers[place];
    barrier.announced.push_back(barrier.last);
}
void mbarrier_arrives(Worker& self, const void* place, unsigned thread) {
    Locked locked;
    settle_doubts(of(self));
    auto& barrier = of(self).cluster->mbarriers[place];
    BlockClock& clock = of(self).clock;
    barrier.gathered = joined(barrier.gathered, state().clock.knowledge(clock, thread));
    barrier.gathered_proxied.join(clock.proxied[thread]);
}
void mbarrier_arrives_relaxed(Worker& self, const void* place, unsigned thread) {
    Locked locked;
    settle_doubts(of(self));
    BlockClock& clock = of(self).clock;
    auto& barrier = of(self).cluster->mbarriers[place];
    // It hands nothing on, but announcements that it knows of come before it all the same, as all that changes one place.
    auto& announced = barrier.announced;
    announced.erase(
        std::remove_if(announced.begin(), announced.end(),
                       [&](const Access& one) { return state().clock.ordered(clock, thread, one); }),
        announced.end());
    if (!clock.fenced[thread])
        return;
    barrier.gathered = joined(barrier.gathered, clock.fenced[thread]);
    barrier.gathered_proxied.join(clock.proxied[thread]);
}
void mbarrier_completes(Worker& self, const void* place) {
    Locked locked;
    auto& barrier = of(self).cluster->mbarriers[place];
    look_for_announcements(place, barrier);
    ++barrier.phases;
    if (barrier.copies) {
        auto all =
            barrier.gathered ? std::make_shared<Knowledge>(*barrier.gathered) : std::make_shared<Knowledge>();
        (*all)[kMbarriers].add(barrier.phase(barrier.phases + 1));
        barrier.gathered = all;
    }
    barrier.passed_on = joined(barrier.passed_on, barrier.gathered);
    barrier.passed_on_proxied.join(barrier.gathered_proxied);
    barrier.gathered = nullptr;
    barrier.gathered_proxied = {};
}
void mbarrier_passes(Worker& self, const void* place, unsigned thread) {
    Locked locked;
    auto& barrier = of(self).cluster->mbarriers[place];
    state().clock.learn(of(self).clock, thread, barrier.passed_on, barrier.passed_on_proxied);
}

void mbarrier_passes_relaxed(Worker& self, const void* place, unsigned thread) {
    Locked locked;
    auto& barrier = of(self).cluster->mbarriers[place];
    state().clock.see(of(self).clock, thread, barrier.passed_on, barrier.passed_on_proxied);
}

void cluster_arrives(Worker& self, unsigned thread) {
    Locked locked;
    settle_doubts(of(self));
    ClusterState& cluster = *of(self).cluster;
    BlockClock& clock = of(self).clock;
    cluster.gathered.add(clock.known[thread]);
    cluster.gathered.add(clock.proxied[thread]);
    state().clock.add_knowledge(clock, thread, cluster.gathered.known());
}
// Its block has begun, and what was fenced before counts: mbarriers by a fence of their own.
void cluster_arrives_relaxed(Worker& self, unsigned thread) {
    Locked locked;
    settle_doubts(of(self));
    ClusterState& cluster = *of(self).cluster;
    BlockClock& clock = of(self).clock;
    cluster.gathered.known()[clock.block];
    for (const auto& [place, barrier] : cluster.mbarriers)
        if (barrier.init_fenced && state().clock.ordered(clock, thread, barrier.init))
            cluster.gathered.known()[kMbarriers].add(barrier.phase(1));
    if (!clock.fenced[thread])
        return;
    cluster.gathered.add(clock.fenced[thread]);
    cluster.gathered.add(clock.proxied[thread]);
}
void cluster_completes(Cluster& all) {
    Locked locked;
    ClusterState& cluster = *of(*all.members[0]).cluster;
    cluster.passed_on = cluster.gathered.take_known();
    cluster.passed_on_proxied = cluster.gathered.take_proxied();
}
void cluster_passes(Worker& self, unsigned thread) {
    Locked locked;
    const ClusterState& cluster = *of(self).cluster;
    state().clock.learn(of(self).clock, thread, cluster.passed_on, cluster.passed_on_proxied);
}

void proxy_fence(Worker& self, int fences) {
    Locked locked;
    settle_doubts(*block_state);
    bool of_shared = fences & CUDAMASTER_CPU_OF_SHARED, of_global = fences & CUDAMASTER_CPU_OF_GLOBAL;
    if (of_shared || of_global)
        state().clock.proxy_fence(block_state->clock, self.linear, of_shared, of_global);
    if (!of_shared && !(fences & CUDAMASTER_CPU_OF_INITS))
        return;
    for (auto& [place, barrier] : block_state->cluster->mbarriers)
        barrier.init_fenced |= barrier.init.thread == self.linear && barrier.init.segment &&
                               state().clock.block_of(barrier.init.segment) == block_state->clock.block;
}

// Into shared memory the target is in flight, out of it the source: who writes there has not waited.
void bulk_starts(Worker& self, Bulk& bulk) {
    BlockState& block = of(self);
    if (bulk.barrier && !bulk.generic)
        look_for_init(self, bulk);
    unsigned proxy = kLate | (bulk.generic ? 0 : kAsync);
    unsigned writes = proxy | kWrite | (bulk.reduce ? kAtomic | kReads : 0);
    {
        Locked locked;
        bulk.read = bulk.written = state().clock.begin_late();
        if (bulk.barrier)
            block.cluster->mbarriers[bulk.barrier].copies = true;
        else
            bulk.written = state().clock.begin_late();
    }
    block.late = bulk.written;
    if (bulk.barrier)
        use(self, bulk.barrier, kWrite | kReads | kLate, bulk.site);
    for (const BulkPiece& piece : bulk.pieces) {
        block.late = bulk.read;
        if (piece.source)
            observe_access(piece.source, piece.bytes, proxy, bulk.site);
        block.late = bulk.written;
        observe_access(piece.target, piece.bytes, writes, bulk.site);
    }
    for (const BulkPiece& piece : bulk.pieces) {
        take_off(of(self).cluster->flights, flight_of(bulk, piece), piece.bytes,
                 bulk.barrier ? writes & ~kReads : 0, bulk.site);
        if (!bulk.barrier)
            take_off(state().stores, piece.target, piece.bytes, writes & ~kReads, bulk.site);
    }
}
void bulk_lands(Worker& issuer, const Bulk& bulk) {
    {
        Locked locked;
        BlockState& block = of(issuer);
        if (bulk.barrier) {
            const auto& barrier = block.cluster->mbarriers[bulk.barrier];
            state().clock.end_late_in_phase(bulk.read, barrier.phase(barrier.phases + 2));
        } else {
            state().clock.end_late(bulk.read, block.clock, bulk.thread);
        }
    }
    for (const BulkPiece& piece : bulk.pieces)
        land(of(issuer).cluster->flights, of(issuer), flight_of(bulk, piece), piece.bytes, bulk.thread);
}
void bulk_written(Worker& issuer, const Bulk& bulk) {
    {
        Locked locked;
        state().clock.end_late(bulk.written, of(issuer).clock, bulk.thread);
    }
    for (const BulkPiece& piece : bulk.pieces)
        land(state().stores, of(issuer), piece.target, piece.bytes, bulk.thread);
}
void map_is_read(Worker&, const void* map, unsigned bytes, const void* site) {
    observe_access(map, bytes, 0, site);
}

void piece_starts(Worker& self, const char* piece, unsigned bytes, const void* site) {
    BlockState& block = of(self);
    if (!block.product) {
        Locked locked;
        block.product = state().clock.begin_late();
    }
    block.late = block.product;
    observe_access(piece, bytes, kAsync | kLate, site);
    take_off(of(self).cluster->flights, piece, bytes, 0, site);
}
void piece_lands(Worker& self, const char* piece, unsigned bytes) {
    land(of(self).cluster->flights, of(self), piece, bytes, self.linear);
}

} // namespace observe
} // namespace executor
