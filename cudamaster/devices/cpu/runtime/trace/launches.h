// A launch that is recorded, from its start to its end.
#pragma once

#include "trace/trace.h"

#include <memory>

namespace executor {
namespace trace {

// One that begins, as the tracer is told of it.
std::unique_ptr<Launch> launch_of(const Job& job);
// Whether it goes over its blocks in this pass, from 0 on; and which ones are run then, by their place in clusters.
bool goes_on(const Job& job, Launch& launch, unsigned pass);
bool runs(const Job& job, const Launch& launch, unsigned long long block);
// Basic blocks that a block may execute, as steps_left.
Count steps_of(const Job& job, const Launch& launch, unsigned long long block);
// It has ended: writes of it, and who needs what it leaves.
void conclude(const Job& job, std::unique_ptr<Launch> launch);

} // namespace trace
} // namespace executor
