// The recording of a call: what has happened so far, what is written of it, and who needs what its launches leave.
#pragma once

#include "trace/alike.h"
#include "trace/table.h"
#include "trace/trace.h"

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace executor {
namespace trace {

struct Known;

struct Recording {
    bool on = false;
    int output = -1;
    Table table;
    Count seed = 0; // of which clusters are drawn: it begins with the table's and goes on
    Allocations allocations;
    unsigned numbers = 1; // 0 are the program's own variables
    std::vector<Range> own;
    std::unique_ptr<Launch> launch; // at hand, if it is recorded
    Known* known = nullptr;         // of launches before (known.cpp)
    // Of units of work that were left out, as launches left them, of calls before, too: a kernel's last block may be the one
    // that resets its counter, and it was left out.
    std::map<const void*, unsigned> left_counters;
    Count host_instructions = 0; // since the last event
    Count launches = 0, calls = 0;
    // Of the call so far:
    Count recorded = 0, executed = 0;     // events
    std::map<std::string, unsigned> seen; // launches of each shape
    unsigned made = 0;                    // launches
    unsigned needed = 0;                  // the last of them whose results somebody needs
    unsigned needed_then = ~0u;           // the same of the call before
    bool lacking = false;                 // nobody has what blocks of some launch would have left
    bool shared = false;                  // the host may read what launches left, and nobody sees it
};
Recording& state();

// Reads what is said before anything is recorded, if that has not been done.
void prepare();
// A call begins, or ends.
void call_begins();
void call_ends();

// Writes lines; and, before any, what the host has done since the last.
void write_all(const std::string& text);
void write_host();
template <class... Values> void write_line(const char* format, Values... values) {
    write_host();
    char line[256];
    std::snprintf(line, sizeof line, format, values...);
    write_all(line);
}

// What launches left is needed, or what inputs hold. Where it is not there the call is to be made again: the process ends.
void needs_results();
void needs_values();
// Whether somebody needs what the launch leaves.
bool is_needed(const Launch& launch);

} // namespace trace
} // namespace executor
