// Launches whose counts are known from one before: of any call those that do the same in other allocations (alike.h), and of
// the call at hand those with long blocks that begin as one before did.
#pragma once

#include "trace/trace.h"

#include <memory>
#include <string>

namespace executor {
namespace trace {

// A call begins, or a launch of it.
void forget_call();
void compare_anew();

// Whether the launch, of which the first cluster was run, seems to do what one before did, whose counts hold for it then. If
// so, clusters are drawn that say whether it does.
bool seems_like_one(const Job& job, Launch& launch);
// Those were run, if there were any: whether they did the same. If not, the launch goes on as if they had not been run.
bool is_like_one(const Job& job, Launch& launch);
// Whether its blocks are long, and it begins as one did that was counted with what the call's budget had: it is not looked
// at any closer. One cluster is drawn beside the first.
bool begins_as_before(const Job& job, Launch& launch);

// Writes of the launch what is known of it; false if it was counted itself.
bool write_known(const Job& job, const Launch& launch);
// That was written of one that left out blocks. It may hold for later ones.
void keep(std::string line, std::unique_ptr<Launch> launch);

} // namespace trace
} // namespace executor
