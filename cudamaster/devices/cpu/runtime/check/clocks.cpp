#include "clocks.h"

#include <algorithm>
#include <cstring>

namespace executor {
namespace check {

uint32_t LaunchClock::next_segment(uint32_t block) {
    blocks_.push_back(block);
    return base_ + static_cast<uint32_t>(blocks_.size() - 1);
}

void LaunchClock::begin_launch() {
    base_ += static_cast<uint32_t>(blocks_.size());
    ordered_ = base_;
    blocks_.clear();
    released_.clear();
    late_.assign(1, {}); // none has the number 0
    at_grid_ = {};
    for (auto& unproxied : unproxied_)
        unproxied = {false, false};
    proxies_ = false;
}

void LaunchClock::begin_block(BlockClock& clock, uint32_t block, unsigned threads, uint32_t first_segment) {
    clock.block = block;
    clock.threads = threads;
    clock.own_segment = clock.segment = next_segment(block);
    clock.first_segment = first_segment ? first_segment : clock.segment;
    if (clock.knows)
        for (unsigned i = 0; i < kMaxThreads; ++i)
            clock.known[i] = clock.fenced[i] = nullptr;
    if (clock.proxies)
        std::fill(std::begin(clock.proxied), std::end(clock.proxied), Proxied());
    if (clock.saw) {
        std::fill(std::begin(clock.seen), std::end(clock.seen), nullptr);
        std::fill(std::begin(clock.seen_proxied), std::end(clock.seen_proxied), Proxied());
    }
    clock.knows = clock.proxies = clock.saw = false;
    std::fill(clock.count, clock.count + threads, 1u);
    std::fill(clock.unfenced, clock.unfenced + threads, false);
    for (auto& unproxied : clock.unproxied)
        std::fill(unproxied, unproxied + threads, false);
    std::memset(clock.met_any, 0, sizeof clock.met_any);
    std::memset(clock.waited, 0, sizeof clock.waited);
    for (auto& products : clock.products)
        products.clear();
}

static bool nobody(const bool* flags, unsigned threads) {
    return std::none_of(flags, flags + threads, [](bool b) { return b; });
}

void LaunchClock::pass_barrier(BlockClock& clock) {
    clock.segment = next_segment(clock.block);
    if (clock.knows) {
        Known known, fenced;
        for (unsigned i = 0; i < clock.threads; ++i) {
            known = joined(known, clock.known[i]);
            fenced = joined(fenced, clock.fenced[i]);
        }
        // Where nobody has used memory since his fence, all of the block up to here is fenced.
        if (fenced && nobody(clock.unfenced, clock.threads)) {
            auto all = std::make_shared<Knowledge>(*fenced);
            (*all)[clock.block] = {clock.segment, {}};
            fenced = all;
        }
        for (unsigned i = 0; i < clock.threads; ++i) {
            clock.known[i] = known;
            clock.fenced[i] = fenced;
        }
    }
    if (clock.proxies) {
        Proxied proxied;
        for (unsigned i = 0; i < clock.threads; ++i)
            proxied.join(clock.proxied[i]);
        for (unsigned memory = 0; memory < Proxied::kMemories; ++memory)
            if (nobody(clock.unproxied[memory], clock.threads)) {
                Known& known = proxied.of[memory].known;
                auto all = known ? std::make_shared<Knowledge>(*known) : std::make_shared<Knowledge>();
                (*all)[clock.block] = {clock.segment, {}};
                known = all;
            }
        std::fill(clock.proxied, clock.proxied + clock.threads, proxied);
    }
    std::fill(clock.count, clock.count + clock.threads, 1u);
    std::memset(clock.met_any, 0, sizeof clock.met_any);
    std::memset(clock.waited, 0, sizeof clock.waited);
}

void LaunchClock::arrive_at_grid(const BlockClock& clock, unsigned thread, bool ends) {
    at_grid_.add(clock.proxied[thread]);
    for (unsigned memory = 0; memory < Proxied::kMemories; ++memory)
        (ends ? unproxied_[memory].ended : unproxied_[memory].came) |= clock.unproxied[memory][thread];
}

void LaunchClock::complete_grid_barrier() {
    ordered_ = base_ + static_cast<uint32_t>(blocks_.size());
    released_.clear();
    of_grid_ = at_grid_.take_proxied();
    for (unsigned memory = 0; memory < Proxied::kMemories; ++memory) {
        // Where nobody has written since his fence, all is fenced.
        if (!unproxied_[memory].came && !unproxied_[memory].ended)
            of_grid_.of[memory] = {ordered_, nullptr};
        unproxied_[memory].came = false;
    }
}

void LaunchClock::pass_grid_barrier(BlockClock& clock) {
    pass_barrier(clock);
    if (!proxies_)
        return;
    clock.proxies = true;
    for (unsigned i = 0; i < clock.threads; ++i)
        clock.proxied[i].join(of_grid_);
}

// Whether lanes know the very same of other blocks, so that none learns from another.
static bool alike(const BlockClock& clock, unsigned first_thread, unsigned mask) {
    unsigned first = first_thread + static_cast<unsigned>(__builtin_ctz(mask));
    for (unsigned lanes = mask & (mask - 1); lanes; lanes &= lanes - 1) {
        unsigned thread = first_thread + static_cast<unsigned>(__builtin_ctz(lanes));
        if (clock.known[thread] != clock.known[first] || clock.fenced[thread] != clock.fenced[first] ||
            !clock.proxied[thread].same_as(clock.proxied[first]))
            return false;
    }
    return true;
}

void LaunchClock::meet(BlockClock& clock, unsigned warp, unsigned mask) {
    auto& met = clock.met[warp];
    if (!clock.met_any[warp])
        std::memset(met, 0, sizeof met);
    clock.met_any[warp] = true;
    uint32_t *count = clock.count + warp * kWarp, together[kWarp + 1] = {};
    for (unsigned lanes = mask; lanes; lanes &= lanes - 1) {
        unsigned lane = static_cast<unsigned>(__builtin_ctz(lanes));
        for (unsigned i = 0; i <= kWarp; ++i)
            together[i] = std::max(together[i], met[lane][i]);
    }
    for (unsigned lanes = mask; lanes; lanes &= lanes - 1) {
        unsigned lane = static_cast<unsigned>(__builtin_ctz(lanes));
        together[lane] = count[lane]++;
    }
    for (unsigned lanes = mask; lanes; lanes &= lanes - 1)
        std::memcpy(met[__builtin_ctz(lanes)], together, sizeof together);
    if (!clock.knows && !clock.proxies)
        return;
    if (alike(clock, warp * kWarp, mask)) // mostly: they have met before
        return;
    Known known, fenced;
    Proxied proxied;
    for (unsigned lanes = mask; lanes; lanes &= lanes - 1) {
        unsigned thread = warp * kWarp + static_cast<unsigned>(__builtin_ctz(lanes));
        known = joined(known, clock.known[thread]);
        fenced = joined(fenced, clock.fenced[thread]);
        proxied.join(clock.proxied[thread]);
    }
    for (unsigned lanes = mask; lanes; lanes &= lanes - 1) {
        unsigned thread = warp * kWarp + static_cast<unsigned>(__builtin_ctz(lanes));
        clock.known[thread] = known;
        clock.fenced[thread] = fenced;
        clock.proxied[thread] = proxied;
    }
}

uint32_t LaunchClock::begin_late() {
    late_.emplace_back();
    return static_cast<uint32_t>(late_.size() - 1);
}

void LaunchClock::end_late(uint32_t which, const BlockClock& clock, unsigned thread) {
    Late& late = late_[which];
    late.before = segments();
    late.place.segment = clock.segment;
    late.place.count = thread < kMaxThreads ? clock.count[thread] : clock.waited[thread - kMaxThreads];
    late.place.thread = static_cast<uint16_t>(thread);
}

void LaunchClock::end_late_in_phase(uint32_t which, const KnownBlock::Thread& phase) {
    Late& late = late_[which];
    late.before = segments();
    late.in_phase = true;
    late.place.segment = phase.segment;
    late.place.count = phase.count;
    late.place.thread = phase.thread;
}

// A warp's products have a place beside its lanes: what those did themselves the wait does not order.
void LaunchClock::end_products(BlockClock& clock, unsigned warp, unsigned count) {
    if (!count)
        return;
    auto& met = clock.met[warp];
    if (!clock.met_any[warp])
        std::memset(met, 0, sizeof met);
    clock.met_any[warp] = true;
    ++clock.waited[warp];
    for (auto& lane : met)
        lane[kWarp] = clock.waited[warp];
    auto& products = clock.products[warp];
    for (; count > 0; --count, products.pop_front())
        end_late(products.front(), clock, kMaxThreads + warp);
}

void LaunchClock::add_own(const BlockClock& clock, unsigned thread, KnownBlock& known) const {
    unsigned warp = thread / kWarp, lane = thread % kWarp;
    if (clock.met_any[warp])
        for (unsigned i = 0; i < kWarp; ++i)
            if (uint32_t count = clock.met[warp][lane][i])
                known.add({static_cast<uint16_t>(warp * kWarp + i), clock.segment, count});
    if (clock.met_any[warp])
        if (uint32_t count = clock.met[warp][lane][kWarp])
            known.add({static_cast<uint16_t>(kMaxThreads + warp), clock.segment, count});
    known.add({static_cast<uint16_t>(thread), clock.segment, clock.count[thread]});
}

void LaunchClock::exchange(BlockClock& clock, const unsigned* members, const unsigned* takers) {
    clock.knows = true;
    KnownBlock own{clock.segment, {}};
    Known known, fenced;
    Proxied proxied;
    auto each = [&](const unsigned* masks, auto apply) {
        for (unsigned warp = 0; warp * kWarp < clock.threads; ++warp)
            for (unsigned lanes = masks[warp]; lanes; lanes &= lanes - 1)
                apply(warp * kWarp + static_cast<unsigned>(__builtin_ctz(lanes)));
    };
    each(members, [&](unsigned thread) {
        add_own(clock, thread, own);
        ++clock.count[thread];
        known = joined(known, clock.known[thread]);
        fenced = joined(fenced, clock.fenced[thread]);
        proxied.join(clock.proxied[thread]);
    });
    auto all = std::make_shared<Knowledge>();
    if (known)
        *all = *known;
    (*all)[clock.block].join(own);
    each(takers, [&](unsigned thread) {
        clock.known[thread] = all;
        clock.fenced[thread] = joined(clock.fenced[thread], fenced);
        clock.proxied[thread].join(proxied);
    });
}

Known LaunchClock::knowledge(BlockClock& clock, unsigned thread) {
    auto all = std::make_shared<Knowledge>();
    if (clock.known[thread])
        *all = *clock.known[thread];
    add_knowledge(clock, thread, *all);
    return all;
}

void LaunchClock::add_knowledge(BlockClock& clock, unsigned thread, Knowledge& to) {
    KnownBlock& own = to[clock.block];
    if (own.below < clock.segment)
        own.join({clock.segment, {}});
    add_own(clock, thread, own);
    ++clock.count[thread];
}

bool LaunchClock::knows_of(const BlockClock& clock, unsigned thread, const BlockClock& other) const {
    return other.own_segment < ordered_ ||
           (clock.known[thread] && clock.known[thread]->count(other.block) != 0);
}

void LaunchClock::learn(BlockClock& clock, unsigned thread, const Known& more, const Proxied& proxied) {
    clock.knows = true;
    clock.proxies |= proxied.any();
    clock.known[thread] = joined(clock.known[thread], more);
    clock.proxied[thread].join(proxied);
}

void LaunchClock::see(BlockClock& clock, unsigned thread, const Known& more, const Proxied& proxied) {
    clock.saw = true;
    clock.seen[thread] = joined(clock.seen[thread], more);
    clock.seen_proxied[thread].join(proxied);
}

void LaunchClock::proxy_fence(BlockClock& clock, unsigned thread, bool of_shared, bool of_global) {
    clock.proxies = proxies_ = true;
    Known all = knowledge(clock, thread);
    auto fence = [&](Proxied::Memory memory) {
        auto& of = clock.proxied[thread].of[memory];
        of.known = joined(of.known, all);
        of.below = std::max(of.below, ordered_);
        clock.unproxied[memory][thread] = false;
    };
    if (of_shared)
        fence(Proxied::kShared);
    if (of_global)
        fence(Proxied::kGlobal);
}

void LaunchClock::fence(BlockClock& clock, unsigned thread) {
    clock.knows = true;
    if (clock.saw) {
        learn(clock, thread, clock.seen[thread], clock.seen_proxied[thread]);
        clock.seen[thread] = nullptr;
        clock.seen_proxied[thread] = {};
    }
    auto fenced = std::make_shared<Knowledge>();
    if (clock.known[thread])
        *fenced = *clock.known[thread];
    KnownBlock own{clock.segment, {}};
    add_own(clock, thread, own);
    ++clock.count[thread];
    (*fenced)[clock.block].join(own);
    clock.fenced[thread] = joined(clock.fenced[thread], fenced);
    clock.unfenced[thread] = false;
}

void LaunchClock::acquire(BlockClock& clock, unsigned thread, uintptr_t location) {
    if (released_.empty())
        return;
    auto found = released_.find(location);
    if (found == released_.end())
        return;
    learn(clock, thread, found->second.fenced, found->second.proxied);
}

void LaunchClock::release(BlockClock& clock, unsigned thread, uintptr_t location) {
    if (!clock.fenced[thread])
        return;
    Released& released = released_[location];
    released.fenced = joined(released.fenced, clock.fenced[thread]);
    released.proxied.join(clock.proxied[thread]);
}

bool LaunchClock::is_over(const Access& access) const {
    if (!(access.kind & kLate) || access.segment < base_)
        return access.segment < ordered_;
    return late(access).before && late(access).before <= ordered_;
}

bool LaunchClock::is_known(const Known& known, const Access& before) const {
    if (!known)
        return false;
    if (!(before.kind & kLate)) {
        auto found = known->find(block_of(before.segment));
        return found != known->end() && found->second.covers(before);
    }
    const Late& done = late(before);
    if (!done.before)
        return false;
    auto found = known->find(done.in_phase ? kMbarriers : block_of(done.place.segment));
    return found != known->end() && found->second.covers(done.place);
}

bool LaunchClock::knows_phase(const BlockClock& clock, unsigned thread,
                              const KnownBlock::Thread& phase) const {
    if (!clock.known[thread])
        return false;
    Access access;
    access.segment = phase.segment;
    access.count = phase.count;
    access.thread = phase.thread;
    auto found = clock.known[thread]->find(kMbarriers);
    return found != clock.known[thread]->end() && found->second.covers(access);
}

bool LaunchClock::proxied(const BlockClock& clock, unsigned thread, const Access& before,
                          Proxied::Memory memory) const {
    const auto& [below, known] = clock.proxied[thread].of[memory];
    if (before.segment < base_)
        return true;
    uint32_t last = before.kind & kLate ? late(before).before : before.segment + 1;
    return (last && last <= below) || is_known(known, before);
}

bool LaunchClock::ordered(const BlockClock& clock, unsigned thread, const Access& before) const {
    if (!(before.kind & kLate) || before.segment < base_)
        return is_ordered(clock, thread, before);
    const Late& done = late(before);
    if (!done.before || done.in_phase)
        return is_over(before) || is_known(clock.known[thread], before);
    return is_ordered(clock, thread, done.place);
}

bool LaunchClock::is_ordered(const BlockClock& clock, unsigned thread, const Access& before) const {
    if (before.segment < ordered_)
        return true;
    uint32_t block = block_of(before.segment);
    if (block == clock.block) {
        if (before.segment != clock.segment || before.thread == thread)
            return true;
        unsigned warp = thread / kWarp, lane = thread % kWarp;
        bool of_products = before.thread >= kMaxThreads;
        if ((of_products ? before.thread - kMaxThreads : before.thread / kWarp) == warp &&
            clock.met_any[warp] &&
            before.count <= clock.met[warp][lane][of_products ? kWarp : before.thread % kWarp])
            return true;
    }
    if (!clock.known[thread])
        return false;
    auto found = clock.known[thread]->find(block);
    return found != clock.known[thread]->end() && found->second.covers(before);
}

} // namespace check
} // namespace executor
