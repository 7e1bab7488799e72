// A block that cannot go on: says which thread waits where for what, and gives the block up. The host sees a
// failed launch.
#include "executor.h"

#include <algorithm>
#include <cstdio>

namespace executor {

namespace {

void describe_wait(const Worker& self, const Fibre& fibre) {
    char what[320];
    if (fibre.wait == Wait::kWarp) {
        const Warp& warp = self.warps[fibre.linear / kWarp];
        unsigned arrived = 0;
        for (const auto& slot : warp.slots)
            if (slot->mask == fibre.mask)
                arrived = slot->arrived;
        std::snprintf(what, sizeof what, "waits in %s(mask 0x%08x) for lanes 0x%08x that never come",
                      fibre.operation, fibre.mask, fibre.mask & ~arrived & ~warp.exited);
    } else if (fibre.wait == Wait::kMbarrier) {
        describe_mbarrier(fibre.site, fibre.mask, what, sizeof what);
    } else if (fibre.wait == Wait::kNumbered) {
        const NumberedBarrier& barrier = self.numbered[fibre.mask];
        unsigned expected = barrier.expected ? barrier.expected : self.total - self.exited;
        std::snprintf(what, sizeof what, "waits in barrier %u that %u of %u threads never reach", fibre.mask,
                      expected - barrier.arrived, expected);
    } else if (fibre.wait == Wait::kCluster) {
        std::snprintf(what, sizeof what, "waits in %s for %u of %u threads that never arrive",
                      fibre.operation, missing_in_cluster(*self.cluster), self.total * self.cluster->size);
    } else {
        std::snprintf(what, sizeof what, "waits in %s that %u of %u threads never reach", fibre.operation,
                      self.total - self.exited - self.barrier.arrived, self.total);
    }
    threadIdx = fibre.index;
    cudamaster_cpu_ptx_line = fibre.ptx_line;
    print_where(self.job->launch->kernel, what);
}

// Waits of one parity may be for two mbarriers: a ring's full and its empty ones.
bool is_alike(const Fibre& one, const Fibre& other) {
    return one.wait == other.wait && one.mask == other.mask &&
           (one.wait != Wait::kMbarrier || one.site == other.site);
}

// One of each kind says it all. Those at mbarriers come first: the others mostly wait for them.
void describe_waits(const Worker& self) {
    constexpr size_t kShown = 4;
    std::vector<const Fibre*> shown;
    for (bool at_mbarriers : {true, false})
        for (const auto& fibre : self.fibres) {
            if (fibre->wait == Wait::kNone || (fibre->wait == Wait::kMbarrier) != at_mbarriers ||
                shown.size() == kShown)
                continue;
            if (std::any_of(shown.begin(), shown.end(), [&](auto* one) { return is_alike(*one, *fibre); }))
                continue;
            shown.push_back(fibre.get());
            describe_wait(self, *fibre);
        }
}

} // namespace

void fail_deadlock(Worker& self) {
    std::fprintf(stderr, "cuda device deadlock: no thread of the %s can go on\n",
                 in_cluster(self) ? "cluster" : "block");
    uint3 own = blockIdx;
    for (unsigned rank = 0; rank < self.cluster->size; ++rank) {
        const Worker& member = *self.cluster->members[rank];
        blockIdx = &member == &self ? own : *member.block;
        if (!member.ended)
            describe_waits(member);
    }
    blockIdx = own;
    abandon_block(self);
}

void fail_block(const char* what) {
    Worker& self = *worker;
    std::fprintf(stderr, "cuda device error: %s\n", what);
    print_where(self.job->launch->kernel, what);
    abandon_block(self);
}

} // namespace executor

void cudamaster_cpu_fail(const char* what) {
    executor::fail_block(what);
}
