// Launches that are alike: the same kernel on the same grid, with arguments that differ only in which allocations they
// point into. Nothing in memory steers them, so they do the same. What is written of one holds for the others, once each
// allocation stands by its role.
#pragma once

#include "executor.h"

#include <map>
#include <string>
#include <utility>

namespace executor {
namespace trace {

using Allocations = std::map<const void*, std::pair<unsigned, size_t>>; // number and bytes, by address
// By the number of a buffer: with which other number it is written, and of how many bytes.
using Names = std::map<unsigned, std::pair<unsigned, size_t>>;

// What a launch is given.
struct Given {
    // Its kernel and its arguments; empty if their bytes do not say what they are. A pointer into an allocation is that
    // one's role, with the place in a line of 128 bytes or, but for its first pointer, how far it is behind that.
    std::string text;
    // By the numbers of allocations: which the arguments point into first, second and so on.
    std::map<unsigned, unsigned> roles;
    Names to_roles() const;
    Names from_roles(const Allocations& allocations) const;
};
Given given_of(const Job& job, const Allocations& allocations);

// A launch's line with other names for its buffers, in their order; the program's own variables keep theirs. Empty if a
// buffer has no other name.
std::string renamed(const std::string& line, const Names& names);

} // namespace trace
} // namespace executor
