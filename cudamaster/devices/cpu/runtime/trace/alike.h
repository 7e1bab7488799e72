// Launches that are alike: the same kernel on the same grid, with arguments that differ only in which allocations they
// point into. What is written of one holds for the others, once each allocation stands by its role.
#pragma once

#include "executor.h"

#include <map>
#include <string>
#include <utility>

namespace executor {
namespace trace {

using Allocations = std::map<const void*, std::pair<unsigned, size_t>>; // number and bytes, by address
using Names = std::map<unsigned, unsigned>;                             // of buffers, by other names

// What a launch is given.
struct Given {
    // Its kernel and its arguments; empty if their bytes do not say what they are. A pointer into an allocation is that
    // one's role with what else counts may go by: its bytes, the place in it, and where in a line of 128 bytes it begins.
    std::string text;
    Names roles; // of allocations, by number: which of them the arguments point into first, second and so on
};
Given given_of(const Job& job, const Allocations& allocations);

// A launch's line with other names for its buffers, in their order; the program's own variables keep theirs. Empty if a
// buffer has no other name.
std::string renamed(const std::string& line, const Names& names);
// The way back.
Names reversed(const Names& names);

} // namespace trace
} // namespace executor
