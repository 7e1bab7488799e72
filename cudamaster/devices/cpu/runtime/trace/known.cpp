// What was written of launches, by what they were given and by what their first cluster did; and whether it holds for the one
// at hand. A few clusters of that are run beside the first to see whether it does.
#include "trace/known.h"
#include "trace/alike.h"
#include "trace/recording.h"
#include "trace/sample.h"

#include <algorithm>
#include <map>
#include <utility>

namespace executor {
namespace trace {

namespace {

// A block of so many events is long: once the call's budget is spent, a launch that does in its first cluster what one
// before did is not looked at any closer.
constexpr Count kLongBlock = 1'000'000;
constexpr unsigned kLeastAgreed = 2; // launches that were like one, behind which one block is drawn of each
constexpr size_t kMostAlike = 1000;  // that are kept

} // namespace

// What was written of a launch that left out blocks, and itself without the lines that it touched, which are many.
struct Written {
    std::string line;
    std::unique_ptr<Launch> launch;
};

// What was written of one of the launches that are alike, with roles for buffers, and what blocks beside its sample did, or
// all blocks if they are in it.
struct Like {
    std::string line;
    Work blocks;
};

// Launches that are alike: what a block costs, and by the size of the sample what was written. In one call they all have the
// counts of the first, whose sample hangs on nothing that calls before have done.
struct Alike {
    Cost cost;
    std::map<unsigned long long, Like> written;
    Count call = 0;
    const Like* of_call = nullptr;
    unsigned agreed = 0; // launches whose drawn blocks did the same, since one's did not
};

// The launch at hand.
struct AtHand {
    std::string first;    // what would be written of its first cluster, empty if its blocks are short
    std::string compared; // what it is given and what its first cluster does, empty if it is not compared
    Given given;
    const Like* like = nullptr; // what is written of it again if blocks beside its first cluster do the same
    bool as_before = false;
};

struct Known {
    // By what launches were given and what their first cluster does.
    std::map<std::string, Alike> alike;
    // Launches of the call with long blocks that left out others, by what was written of their first cluster alone.
    std::map<std::string, Written> written;
    AtHand at_hand;
};

namespace {

Known& known() {
    Known*& only = state().known;
    if (!only)
        only = new Known;
    return *only;
}

// Where the line of a launch says what blocks beside the sample do.
std::pair<size_t, size_t> of_blocks_beside(const std::string& line) {
    return {line.find(",\"accesses\":"), line.find(",\"executed\":")};
}

// What was written of a launch that this one seems to be like: by what it is given, and by its first cluster. Null if there
// is none with a sample as large as this one's would be, or if its blocks would all be run.
const Like* one_like(const Job& job, const Launch& launch) {
    Recording& recording = state();
    const Count of_first = launch.events + launch.multiplications / kMultiplicationsOfEvent;
    if (!launch.unsteered || is_needed(launch) || job.blocks == job.cluster_size ||
        of_first * (job.blocks / job.cluster_size) <= kExecutedForNobody)
        return nullptr;
    AtHand& now = known().at_hand;
    const Count instructions = recording.host_instructions;
    now.given = given_of(job, recording.allocations);
    recording.host_instructions = instructions; // code of the program has handed out the arguments
    const std::string line = now.given.text.empty() ? "" : renamed(launch.line(job), now.given.to_roles());
    if (line.empty())
        return nullptr;
    now.compared = now.given.text + line;
    auto found = known().alike.find(now.compared);
    if (found == known().alike.end())
        return nullptr;
    Alike& alike = found->second;
    if (alike.cost.all() * job.blocks <= std::min(may_execute(), kExecutedForNobody))
        return nullptr;
    if (alike.call == recording.calls)
        return alike.of_call;
    auto same = alike.written.find(sample_of(job, alike.cost, seen_before(job)).size());
    return same == alike.written.end() ? nullptr : &same->second;
}

// What was written of that one holds for this launch. What is left of budgets is what it would be if this one had been
// counted.
void take_counts_of(const Job& job, const Like& one) {
    Recording& recording = state();
    Alike& alike = known().alike[known().at_hand.compared];
    alike.call = recording.calls;
    alike.of_call = &one;
    recording.lacking |= alike.cost.all() * job.blocks <= may_execute();
    unsigned& before = seen_before(job);
    recording.recorded += (sample_of(job, alike.cost, before).size() - job.cluster_size) * alike.cost.events;
    ++before;
}

// Whether blocks did what they did of a launch before.
bool did_the_same(const Work& blocks, const Work& before) {
    return !blocks.empty() && std::includes(before.begin(), before.end(), blocks.begin(), blocks.end());
}

// It only seemed to be like another one: it goes on as if none of its blocks but the first cluster's had been run.
void go_on_unlike(const Job& job, Launch& launch) {
    known().at_hand.like = nullptr;
    launch.unlike = true;
    launch.waited = 0;
    launch.forget_drawn();
    launch.plan = plan_of(job, kSample);
}

} // namespace

void forget_call() {
    known().written.clear();
}

void compare_anew() {
    known().at_hand = {};
}

bool seems_like_one(const Job& job, Launch& launch) {
    AtHand& now = known().at_hand;
    now.like = one_like(job, launch);
    if (!now.like)
        return false;
    const bool agreed = known().alike[now.compared].agreed >= kLeastAgreed;
    keep_to_first(job, launch);
    launch.drawn = draw_of(job, now.like->blocks, agreed ? 1 : kLeastDrawn);
    return true;
}

bool is_like_one(const Job& job, Launch& launch) {
    AtHand& now = known().at_hand;
    if (!now.like)
        return false;
    unsigned& agreed = known().alike[now.compared].agreed;
    if (did_the_same(launch.drawn_work, now.like->blocks)) {
        ++agreed;
        take_counts_of(job, *now.like);
        return true;
    }
    agreed = 0;
    go_on_unlike(job, launch);
    return false;
}

bool begins_as_before(const Job& job, Launch& launch) {
    if (launch.events <= launch.traced * kLongBlock)
        return false;
    AtHand& now = known().at_hand;
    now.first = launch.line(job);
    now.as_before = all_recorded() && known().written.count(now.first);
    if (!now.as_before)
        return false;
    keep_to_first(job, launch);
    launch.drawn = draw(launch.plan, 1);
    return true;
}

bool write_known(const Job& job, const Launch& launch) {
    const AtHand& now = known().at_hand;
    if (now.like) {
        write_all(renamed(now.like->line, now.given.from_roles(state().allocations)));
        return true;
    }
    if (!now.as_before)
        return false;
    const auto& [line, before] = known().written[now.first];
    before->drawn_accesses = launch.drawn_accesses;
    before->drawn_instructions = launch.drawn_instructions;
    const std::string anew = before->line(job);
    const auto [begin, end] = of_blocks_beside(line);
    const auto [from, to] = of_blocks_beside(anew);
    write_all(line.substr(0, begin) + anew.substr(from, to - from) + line.substr(end));
    return true;
}

void keep(std::string line, std::unique_ptr<Launch> launch) {
    const AtHand& now = known().at_hand;
    auto& every = known().alike;
    Work& blocks = launch->traced == launch->plan.blocks ? launch->own_work : launch->drawn_work;
    if (!now.compared.empty() && !blocks.empty())
        if (std::string roles = renamed(line, now.given.to_roles()); !roles.empty()) {
            if (every.size() >= kMostAlike)
                every.clear();
            Alike& alike = every[now.compared];
            alike.cost = launch->cost;
            alike.call = state().calls;
            Like& like = alike.written[launch->plan.size()];
            like = {std::move(roles), std::move(blocks)};
            alike.of_call = &like;
        }
    if (now.first.empty())
        return;
    launch->groups.clear();
    launch->all = launch->common = {};
    known().written[now.first] = {std::move(line), std::move(launch)};
}

} // namespace trace
} // namespace executor
