// What the tracer is told before anything is recorded: of the GPU that is modelled, of the figures of counting, of the
// program, and of what its calls may be spared. Python writes it (modelling/tracing.py).
#pragma once

#include "trace/trace.h"

namespace executor {
namespace trace {

// An SM of the GPU that is modelled, and how many it has.
struct Multiprocessor {
    size_t count = 132, l1_bytes = 256 << 10, shared_bytes = 228 << 10, reserved_bytes = 1 << 10, warps = 64,
           blocks = 32, clock_mhz = 1965;
};

struct Table {
    Multiprocessor multiprocessor;
    Count seed = 0; // of what is drawn: kernels do not know it
    Rules rules;
    Program program;
    bool needs_nothing = false; // a first call is guessed to need nothing of what its launches leave
    bool empty = false;         // inputs hold nothing
    Count one_unit_of = 0;      // units of work is taken, at least; 0: all are
};

// Reads a file from its start; it is at its end then.
void read_table(int descriptor, Table& table);

} // namespace trace
} // namespace executor
