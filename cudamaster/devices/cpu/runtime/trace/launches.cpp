// A launch from its start to its end: what the tracer is told of it, which blocks each of its passes runs, and what becomes
// of it.
//
// The first blocks say what a block costs, and by that the sample is planned. Blocks that are not recorded run too, where all
// of them together are cheap enough, so that later launches find what they left; else they are left out, and the launch says
// so. Launches that do the same are counted once (known.cpp), and of work that one block takes from a counter it does a part
// (units.cpp).
#include "trace/launches.h"
#include "trace/known.h"
#include "trace/recording.h"
#include "trace/sample.h"

#include <algorithm>
#include <map>
#include <utility>

namespace executor {
namespace trace {

namespace {

// Events of a call where no block may be left out, since others wait for it.
constexpr Count kExecutedWaiting = 6'000'000'000;
// Of clusters drawn beside the sample, where most blocks are left out.
constexpr Count kExecutedToCompare = 8'000'000;
constexpr unsigned kMostDrawn = 32;
constexpr unsigned kTogether = 16;     // blocks of a cooperative launch that are recorded
constexpr unsigned kDrawnTogether = 8; // beside these, whose blocks' cost is not known before

// Whether what a launch does hangs on nothing in memory.
bool is_unsteered(const Job& job) {
    const auto& unsteered = state().table.program.unsteered;
    auto found = [&](const void* function) {
        return unsteered.find(static_cast<unsigned>(static_cast<const char*>(function) - program_base));
    };
    auto called = found(reinterpret_cast<const void*>(job.launch->invoke));
    if (called == unsteered.end() || !called->second)
        return called != unsteered.end();
    auto kernel = job.launch->function ? found(job.launch->function) : unsteered.end();
    return kernel != unsteered.end() && !kernel->second;
}

size_t share_of_l1(const Job& job) {
    const Multiprocessor& sm = state().table.multiprocessor;
    size_t shared = job.launch->shared_bytes + sm.reserved_bytes, warps = (job.threads + kWarp - 1) / kWarp;
    size_t resident = std::min({sm.blocks, sm.warps / warps, sm.shared_bytes / std::max<size_t>(shared, 1)});
    resident = std::min<size_t>(std::max<size_t>(resident, 1), (job.blocks + sm.count - 1) / sm.count);
    return (sm.l1_bytes - std::min({resident * shared, sm.shared_bytes, sm.l1_bytes})) / resident;
}

// The device's memory, by address, and of how many bytes each buffer is.
void tell_of_memory(Launch& launch) {
    const Recording& recording = state();
    launch.ranges = recording.own;
    launch.bytes.resize(recording.numbers + 1);
    for (Range& range : launch.ranges) {
        range.first_line = (range.begin - reinterpret_cast<uintptr_t>(program_base)) >> 7;
        launch.bytes[0] += range.bytes;
    }
    std::map<unsigned, std::pair<unsigned long long, size_t>> allocations; // by number, which is their order
    for (const auto& [base, allocation] : recording.allocations)
        allocations[allocation.first] = {reinterpret_cast<uintptr_t>(base), allocation.second};
    unsigned long long range = 0;
    for (const auto& [number, allocation] : allocations) {
        auto [begin, bytes] = allocation;
        unsigned buffer = std::min(number, kMostBuffers);
        launch.ranges.push_back({begin, begin + bytes, buffer, bytes,
                                 std::min<unsigned long long>(++range, kMostBuffers) << kLineBits});
        launch.bytes.at(buffer) = bytes;
    }
    std::sort(launch.ranges.begin(), launch.ranges.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
}

// The first block has left out units of work. The last one looks for their end, and others say whether any are left.
bool wants_pass_for_units(const Job& job, Launch& launch) {
    if (launch.stage == Stage::kAll)
        return false;
    launch.stage = Stage::kOtherTrials;
    if (looks_again(launch.units))
        return true;
    keep_to_first(job, launch);
    launch.drawn = draw(launch.plan, kMostDrawn);
    return !launch.drawn.empty();
}

// By what the blocks so far have cost: the sample, whether others are run, and if not, which ones to compare with it.
void plan_others(const Job& job, Launch& launch) {
    Recording& recording = state();
    launch.stage = Stage::kAll;
    const Count traced = std::max<Count>(launch.traced, 1);
    const Cost& cost = launch.cost = {std::max<Count>((launch.events + launch.dropped) / traced, 1),
                                      launch.multiplications / traced / kMultiplicationsOfEvent};
    const unsigned before = seen_before(job)++;
    launch.plan = sample_of(job, cost, before);
    const Count all = cost.all() * job.blocks,
                may = may_execute(launch.waiting ? kExecutedWaiting : kExecutedOfCall);
    launch.plan.only_those = all > (is_needed(launch) ? may : std::min(may, kExecutedForNobody));
    recording.lacking |= launch.plan.only_those && all <= may;
    recording.executed += launch.plan.only_those ? 0 : all;
    if (!launch.plan.only_those)
        return;
    const Count few = kExecutedToCompare / (cost.all() * job.cluster_size);
    const Count drawn = before < 8 ? std::clamp<Count>(few, kLeastDrawn, kMostDrawn) : kLeastDrawn;
    launch.drawn = draw(launch.plan, static_cast<unsigned>(drawn));
}

// All blocks of a cooperative launch start. Where nobody needs what they leave and nothing in memory steers them, few go on.
void plan_together(const Job& job, Launch& launch) {
    launch.plan = plan_of(job, kTogether);
    launch.stage = Stage::kAll;
    launch.few = launch.unsteered && !is_needed(launch);
    if (!launch.few)
        return;
    state().lacking = true;
    launch.drawn = draw(launch.plan, kDrawnTogether);
}

} // namespace

std::unique_ptr<Launch> launch_of(const Job& job) {
    Recording& recording = state();
    const bool unsteered = is_unsteered(job);
    if (!unsteered || recording.shared)
        needs_values();
    compare_anew();
    ++recording.made;
    auto launch = std::make_unique<Launch>();
    launch->threads = job.threads;
    launch->unsteered = unsteered;
    launch->l1_bytes = share_of_l1(job);
    tell_of_memory(*launch);
    launch->plan = plan_of(job, kSample);
    return launch;
}

bool goes_on(const Job& job, Launch& launch, unsigned pass) {
    if (job.launch->cooperative) {
        if (pass == 0)
            plan_together(job, launch);
        return pass == 0;
    }
    if (launch.units.apart && pass > 0)
        return wants_pass_for_units(job, launch);
    if (pass == 1 && seems_like_one(job, launch))
        return true;
    if (pass == 2 && is_like_one(job, launch))
        return false;
    pass -= launch.unlike; // the one that found that out
    if (pass == 1 && begins_as_before(job, launch))
        return !launch.drawn.empty();
    if (pass < 2) {
        launch.stage = pass == 0 ? Stage::kFirstBlock : Stage::kOtherTrials;
        if (pass == 1)
            launch.common = launch.all;
        return true;
    }
    if (launch.stage == Stage::kAll || launch.tried.size() == job.blocks)
        return false;
    plan_others(job, launch);
    return true;
}

bool runs(const Job& job, const Launch& launch, unsigned long long block) {
    if (launch.stage == Stage::kFirstBlock)
        return block < job.cluster_size;
    if (launch.units.apart && launch.stage == Stage::kOtherTrials)
        return block == job.blocks - 1;
    if (launch.stage == Stage::kOtherTrials)
        return block >= job.cluster_size && launch.plan.tries(block);
    if (std::find(launch.tried.begin(), launch.tried.end(), block) != launch.tried.end())
        return false;
    return !launch.plan.only_those || launch.plan.has(block) || launch.draws(block);
}

// Blocks of a cooperative launch wait for each other: there is one pass. Nothing says first what a block costs, so each
// has its share of what may be executed. What goes beyond it is ended, and no barrier waits for it any more.
Count steps_of(const Job& job, const Launch& launch, unsigned long long block) {
    if (!job.launch->cooperative || launch.plan.tries(block) || launch.draws(block))
        return 0;
    if (launch.few && !launch.plan.has(block))
        return 1;
    return launch.plan.has(block) ? kRecordedOfLaunch
                                  : kExecutedOfCall / std::max<Count>(job.blocks, kTogether);
}

void conclude(const Job& job, std::unique_ptr<Launch> launch) {
    Recording& recording = state();
    recording.recorded += launch->events;
    recording.lacking |= launch->hollow;
    if (launch->units.apart)
        recording.left_counters[launch->units.counter] = launch->units.left;
    if (launch->talks && !launch->units.apart) // but for its own counter
        needs_results();
    if (launch->overwritten)
        needs_values();
    if (job.failed.load() || !launch->traced)
        write_line("{\"event\":\"failed\"}\n");
    else if (!write_known(job, *launch)) {
        std::string line = launch->line(job);
        write_all(line);
        if (launch->plan.only_those && !launch->waiting && !launch->talks)
            keep(std::move(line), std::move(launch));
    }
}

} // namespace trace
} // namespace executor
