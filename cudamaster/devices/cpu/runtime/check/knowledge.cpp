#include "knowledge.h"

#include <algorithm>

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
    } recent[8];
    static unsigned next = 0;
    for (const auto& one : recent)
        if (a == one.a && b == one.b)
            return one.both;
    auto result = std::make_shared<Knowledge>(*a);
    for (const auto& [block, known] : *b)
        (*result)[block].join(known);
    recent[next++ % std::size(recent)] = {a, b, result};
    return result;
}

void Proxied::join(const Proxied& other) {
    for (unsigned memory = 0; memory < kMemories; ++memory) {
        of[memory].below = std::max(of[memory].below, other.of[memory].below);
        of[memory].known = joined(of[memory].known, other.of[memory].known);
    }
}

bool Proxied::any() const {
    return std::any_of(std::begin(of), std::end(of), [](const auto& one) { return one.below || one.known; });
}

bool Proxied::same_as(const Proxied& other) const {
    for (unsigned memory = 0; memory < kMemories; ++memory)
        if (of[memory].below != other.of[memory].below || of[memory].known != other.of[memory].known)
            return false;
    return true;
}

void Gathering::One::add(const Known& more) {
    if (!more || more == last)
        return;
    last = more;
    for (const auto& [block, known] : *more)
        all[block].join(known);
}

Known Gathering::One::take() {
    Known taken = all.empty() ? nullptr : std::make_shared<Knowledge>(std::move(all));
    all.clear();
    last = nullptr;
    return taken;
}

void Gathering::add(const Known& more) {
    known_.add(more);
}

void Gathering::add(const Proxied& more) {
    for (unsigned memory = 0; memory < Proxied::kMemories; ++memory) {
        proxied_[memory].add(more.of[memory].known);
        below_[memory] = std::max(below_[memory], more.of[memory].below);
    }
}

Proxied Gathering::take_proxied() {
    Proxied taken;
    for (unsigned memory = 0; memory < Proxied::kMemories; ++memory) {
        taken.of[memory] = {below_[memory], proxied_[memory].take()};
        below_[memory] = 0;
    }
    return taken;
}

} // namespace check
} // namespace executor
