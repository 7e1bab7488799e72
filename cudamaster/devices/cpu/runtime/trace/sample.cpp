// The sample of a launch. A block at the start, one in the middle and one at the end of the grid say what a block costs.
//
// Budgets count events and not seconds: the same call is sampled in the same way on every machine.
#include "trace/sample.h"
#include "trace/recording.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>

namespace executor {
namespace trace {

namespace {

constexpr Count kRecordedOfCall = 120'000'000; // events of threads that are recorded in one call
constexpr unsigned kGroups = 8, kGroupBlocks = kSample / kGroups;

// Launches of one shape.
std::string shape_of(const Job& job) {
    const CudamasterCpuLaunch& shape = *job.launch;
    char text[160];
    std::snprintf(text, sizeof text, "%p %u %u %u %u", reinterpret_cast<const void*>(shape.invoke),
                  shape.grid.x, shape.grid.y, shape.block.x, shape.block.y);
    return text;
}

} // namespace

unsigned long long in_clusters(const Job& job, unsigned long long block) {
    if (job.cluster_size == 1)
        return block;
    const dim3 &grid = job.launch->grid, &shape = job.shape;
    unsigned long long x = block % grid.x, y = block / grid.x % grid.y, z = block / grid.x / grid.y;
    unsigned long long wide = grid.x / shape.x, high = grid.y / shape.y;
    unsigned long long cluster = x / shape.x + wide * (y / shape.y + high * (z / shape.z));
    return cluster * job.cluster_size + x % shape.x + shape.x * (y % shape.y + shape.y * (z % shape.z));
}

Plan plan_of(const Job& job, Count wanted) {
    Plan plan;
    const unsigned long long blocks = job.blocks, cluster = job.cluster_size;
    plan.blocks = blocks;
    plan.cluster_blocks = cluster;
    plan.group_blocks = std::min(blocks, (kGroupBlocks + cluster - 1) / cluster * cluster);
    unsigned long long whole = blocks / plan.group_blocks;
    std::vector<unsigned long long> groups;
    for (unsigned i = 0; i < std::min<unsigned long long>(kGroups, whole); ++i)
        groups.push_back((whole <= kGroups ? i : (whole - 1) * i / (kGroups - 1)) * plan.group_blocks);
    if (whole < kGroups && blocks % plan.group_blocks)
        groups.push_back(whole * plan.group_blocks); // one that is cut short
    if (wanted >= std::min<Count>(blocks, kSample)) {
        plan.groups = groups;
        return plan;
    }
    while (plan.group_blocks > cluster && wanted / plan.group_blocks < 4)
        plan.group_blocks = std::max(plan.group_blocks / 2 / cluster, 1ull) * cluster;
    size_t most = std::max<size_t>(wanted / plan.group_blocks, 3);
    std::vector<size_t> chosen = {0, groups.size() / 2, groups.size() - 1}; // those of the trials
    for (size_t i = 1; i < groups.size() && chosen.size() < most; ++i)
        chosen.push_back(i);
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (size_t i : chosen)
        plan.groups.push_back(groups[i]);
    return plan;
}

Plan sample_of(const Job& job, const Cost& cost, unsigned before) {
    const Recording& recording = state();
    Count left = kRecordedOfCall - std::min(recording.recorded, kRecordedOfCall);
    Count wanted = std::min(left / 4, kRecordedOfLaunch) / cost.events;
    wanted = std::min<Count>(wanted, before < 8 ? kSample : before < 64 ? 16 : 4);
    return plan_of(job, std::max<Count>(wanted, 3));
}

void keep_to_first(const Job& job, Launch& launch) {
    launch.plan.groups = {0};
    launch.plan.group_blocks = job.cluster_size;
    launch.plan.only_those = true;
    launch.stage = Stage::kAll;
}

Count drawn_below(Count most, Count& seed) {
    Count mixed = seed += 0x9e3779b97f4a7c15; // splitmix64
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
    return (mixed ^ mixed >> 31) % most;
}

std::vector<unsigned long long> draw(const Plan& plan, unsigned most) {
    const unsigned long long size = plan.cluster_blocks, clusters = plan.blocks / size;
    std::set<unsigned long long> found;
    // A grid that is not much more than its sample may have fewer.
    for (unsigned tried = 0; tried < 8 * most && found.size() < most; ++tried)
        if (unsigned long long block = drawn_below(clusters, state().seed) * size; !plan.has(block))
            found.insert(block);
    return {found.begin(), found.end()};
}

std::vector<unsigned long long> draw_of(const Job& job, const Work& blocks, unsigned most) {
    std::set<unsigned long long> found;
    for (unsigned i = 0; i < most; ++i) {
        const auto block =
            std::next(blocks.begin(), static_cast<long>(drawn_below(blocks.size(), state().seed)))->first;
        found.insert(block - block % job.cluster_size);
    }
    return {found.begin(), found.end()};
}

unsigned& seen_before(const Job& job) {
    return state().seen[shape_of(job)];
}

bool all_recorded() {
    return state().recorded >= kRecordedOfCall;
}

Count may_execute(Count most) {
    return most - std::min(state().executed, most);
}

} // namespace trace
} // namespace executor
