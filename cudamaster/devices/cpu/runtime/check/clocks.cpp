#include "clocks.h"

#include <algorithm>
#include <cstring>

namespace executor {
namespace check {

static bool before(const KnownBlock::Thread& one, uint16_t thread) {
    return one.thread < thread;
}

bool KnownBlock::covers(const Access& access) const {
    if (access.segment < below)
        return true;
    auto one = std::lower_bound(threads.begin(), threads.end(), access.thread, before);
    return one != threads.end() && one->thread == access.thread &&
           (access.segment < one->segment || (access.segment == one->segment && access.count <= one->count));
}

void KnownBlock::add(Thread more) {
    if (more.segment < below)
        return;
    auto one = std::lower_bound(threads.begin(), threads.end(), more.thread, before);
    if (one == threads.end() || one->thread != more.thread)
        threads.insert(one, more);
    else if (one->segment < more.segment || (one->segment == more.segment && one->count < more.count))
        *one = more;
}

void KnownBlock::join(const KnownBlock& other) {
    if (other.below > below) {
        below = other.below;
        threads.erase(std::remove_if(threads.begin(), threads.end(),
                                     [this](const Thread& one) { return one.segment < below; }),
                      threads.end());
    }
    for (const Thread& one : other.threads)
        add(one);
}

Known joined(const Known& a, const Known& b) {
    if (!a || a == b)
        return b;
    if (!b)
        return a;
    // One thread after the other comes with the same two, of what it knows and of what is fenced by turns.
    static struct {
        Known a, b, both;
    } recent[4];
    static unsigned next = 0;
    for (const auto& one : recent)
        if (a == one.a && b == one.b)
            return one.both;
    auto result = std::make_shared<Knowledge>(*a);
    for (const auto& [block, known] : *b)
        (*result)[block].join(known);
    recent[next++ % 4] = {a, b, result};
    return result;
}

uint32_t LaunchClock::next_segment(uint32_t block) {
    blocks_.push_back(block);
    return base_ + static_cast<uint32_t>(blocks_.size() - 1);
}

void LaunchClock::begin_launch() {
    base_ += static_cast<uint32_t>(blocks_.size());
    ordered_ = base_;
    blocks_.clear();
    released_.clear();
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
        std::fill(std::begin(clock.proxied), std::end(clock.proxied), nullptr);
    clock.knows = clock.proxies = false;
    std::fill(clock.count, clock.count + threads, 1u);
    std::fill(clock.unfenced, clock.unfenced + threads, false);
    std::fill(clock.unproxied, clock.unproxied + threads, false);
    std::memset(clock.met_any, 0, sizeof clock.met_any);
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
        Known proxied;
        if (nobody(clock.unproxied, clock.threads)) {
            proxied = std::make_shared<Knowledge>(Knowledge{{clock.block, {clock.segment, {}}}});
        } else {
            for (unsigned i = 0; i < clock.threads; ++i)
                proxied = joined(proxied, clock.proxied[i]);
        }
        std::fill(clock.proxied, clock.proxied + clock.threads, proxied);
    }
    std::fill(clock.count, clock.count + clock.threads, 1u);
    std::memset(clock.met_any, 0, sizeof clock.met_any);
}

void LaunchClock::pass_grid_barrier() {
    ordered_ = base_ + static_cast<uint32_t>(blocks_.size());
    released_.clear();
}

void LaunchClock::meet(BlockClock& clock, unsigned warp, unsigned mask) {
    auto& met = clock.met[warp];
    if (!clock.met_any[warp])
        std::memset(met, 0, sizeof met);
    clock.met_any[warp] = true;
    uint32_t *count = clock.count + warp * kWarp, together[kWarp] = {};
    for (unsigned lanes = mask; lanes; lanes &= lanes - 1) {
        unsigned lane = static_cast<unsigned>(__builtin_ctz(lanes));
        for (unsigned i = 0; i < kWarp; ++i)
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
    Known known, fenced, proxied;
    for (unsigned lanes = mask; lanes; lanes &= lanes - 1) {
        unsigned thread = warp * kWarp + static_cast<unsigned>(__builtin_ctz(lanes));
        known = joined(known, clock.known[thread]);
        fenced = joined(fenced, clock.fenced[thread]);
        proxied = joined(proxied, clock.proxied[thread]);
    }
    for (unsigned lanes = mask; lanes; lanes &= lanes - 1) {
        unsigned thread = warp * kWarp + static_cast<unsigned>(__builtin_ctz(lanes));
        clock.known[thread] = known;
        clock.fenced[thread] = fenced;
        clock.proxied[thread] = proxied;
    }
}

void LaunchClock::add_own(const BlockClock& clock, unsigned thread, KnownBlock& known) const {
    unsigned warp = thread / kWarp, lane = thread % kWarp;
    if (clock.met_any[warp])
        for (unsigned i = 0; i < kWarp; ++i)
            if (uint32_t count = clock.met[warp][lane][i])
                known.add({static_cast<uint16_t>(warp * kWarp + i), clock.segment, count});
    known.add({static_cast<uint16_t>(thread), clock.segment, clock.count[thread]});
}

void LaunchClock::exchange(BlockClock& clock, const unsigned* members, const unsigned* takers) {
    clock.knows = true;
    KnownBlock own{clock.segment, {}};
    Known known, fenced, proxied;
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
        proxied = joined(proxied, clock.proxied[thread]);
    });
    auto all = std::make_shared<Knowledge>();
    if (known)
        *all = *known;
    (*all)[clock.block].join(own);
    each(takers, [&](unsigned thread) {
        clock.known[thread] = all;
        clock.fenced[thread] = joined(clock.fenced[thread], fenced);
        clock.proxied[thread] = joined(clock.proxied[thread], proxied);
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

void LaunchClock::learn(BlockClock& clock, unsigned thread, const Known& more, const Known& proxied) {
    clock.knows = true;
    clock.known[thread] = joined(clock.known[thread], more);
    clock.proxied[thread] = joined(clock.proxied[thread], proxied);
}

void LaunchClock::proxy_fence(BlockClock& clock, unsigned thread) {
    clock.proxies = true;
    clock.proxied[thread] = joined(clock.proxied[thread], knowledge(clock, thread));
    clock.unproxied[thread] = false;
}

void LaunchClock::fence(BlockClock& clock, unsigned thread) {
    clock.knows = true;
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
    released.proxied = joined(released.proxied, clock.proxied[thread]);
}

bool LaunchClock::proxied(const BlockClock& clock, unsigned thread, const Access& before) const {
    if (!clock.proxied[thread])
        return false;
    auto found = clock.proxied[thread]->find(block_of(before.segment));
    return found != clock.proxied[thread]->end() && found->second.covers(before);
}

bool LaunchClock::ordered(const BlockClock& clock, unsigned thread, const Access& before) const {
    if (before.segment < ordered_)
        return true;
    uint32_t block = block_of(before.segment);
    if (block == clock.block) {
        if (before.segment != clock.segment || before.thread == thread)
            return true;
        unsigned warp = thread / kWarp;
        if (before.thread / kWarp == warp && clock.met_any[warp] &&
            before.count <= clock.met[warp][thread % kWarp][before.thread % kWarp])
            return true;
    }
    if (!clock.known[thread])
        return false;
    auto found = clock.known[thread]->find(block);
    return found != clock.known[thread]->end() && found->second.covers(before);
}

} // namespace check
} // namespace executor
