// Which blocks of a launch are its sample, and which are drawn to be compared with it; how much of a call is recorded and
// executed.
#pragma once

#include "trace/trace.h"

#include <vector>

namespace executor {
namespace trace {

constexpr Count kRecordedOfLaunch = 40'000'000;  // events of threads that are recorded in one launch
constexpr Count kExecutedOfCall = 1'500'000'000; // that take place in one call, recorded or not
constexpr Count kExecutedForNobody = 2'000'000;  // of blocks that are not recorded and that nobody needs
// Of tensor cores' products, that take as long here as one event.
constexpr unsigned kMultiplicationsOfEvent = 4;
constexpr unsigned kSample = 64;    // blocks of the largest sample
constexpr unsigned kLeastDrawn = 2; // clusters that are compared with it

// The place of a block in the order of clusters, which is the grid's where a cluster is one block.
unsigned long long in_clusters(const Job& job, unsigned long long block);

// About so many blocks in groups of neighbours, spread over the grid: the first and the last are among them.
Plan plan_of(const Job& job, Count wanted);
// The sample of a launch whose blocks cost so much, with so many of its shape before it: what was launched often is looked
// at less closely.
Plan sample_of(const Job& job, const Cost& cost, unsigned before);
// Only the first cluster of the launch is recorded; any other may be drawn to be run beside it.
void keep_to_first(const Job& job, Launch& launch);

// At most so many clusters that are not in the sample, at random places. They say whether those in the sample are like
// others: a kernel may know which these are.
std::vector<unsigned long long> draw(const Plan& plan, unsigned most);
// At most so many of the clusters that these blocks are in, at least one.
std::vector<unsigned long long> draw_of(const Job& job, const Work& blocks, unsigned most);

// How many launches of this one's shape the call has made before.
unsigned& seen_before(const Job& job);
// Whether the budget of recorded events is spent; how many events may still be executed, of so many in all.
bool all_recorded();
Count may_execute(Count most = kExecutedOfCall);

} // namespace trace
} // namespace executor
