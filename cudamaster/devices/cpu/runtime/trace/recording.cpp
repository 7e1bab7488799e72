// What is written of a call, and whether somebody needs what its launches leave.
//
// Nobody needs that if no later launch of the call is steered by what it loads (steering.py), the host reads nothing, and the
// launch's blocks ask for nothing that others write. Which launch is the last that somebody needs is guessed: by the call
// before, and for a first call, if the table says so, none is. A guess that was wrong is written down and ends the process.
// The call is then the first of another one, where less is guessed if it was a first one already (tracing.py).
#include "trace/recording.h"

#include <link.h>
#include <unistd.h>
#include <cstdlib>
#include <utility>

// The linker's own: what lies between them are managed variables, if there are any.
extern "C" {
extern const char __start_cudamaster_managed[] __attribute__((weak));
extern const char __stop_cudamaster_managed[] __attribute__((weak));
}

namespace executor {
namespace trace {

namespace {

int look_at_program(dl_phdr_info* info, size_t, void*) {
    program_base = reinterpret_cast<const char*>(info->dlpi_addr);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& part = info->dlpi_phdr[i];
        if (part.p_type == PT_LOAD && part.p_flags & PF_W)
            state().own.push_back({info->dlpi_addr + part.p_vaddr,
                                   info->dlpi_addr + part.p_vaddr + part.p_memsz, 0, part.p_memsz});
    }
    return 1; // the first entry is the program itself
}

} // namespace

Recording& state() {
    static auto* only = new Recording;
    return *only;
}

const unsigned short* place_weights = state().table.program.weights;

void prepare() {
    Recording& recording = state();
    const char* descriptor = std::getenv("CUDAMASTER_CPU_TRACE");
    if (!descriptor || recording.output >= 0)
        return;
    recording.output = std::atoi(descriptor);
    place_orders = recording.table.program.orders;
    recording.shared |= __start_cudamaster_managed != __stop_cudamaster_managed;
    dl_iterate_phdr(&look_at_program, nullptr);
    read_table(recording.output, recording.table);
    recording.seed = recording.table.seed;
    if (recording.table.needs_nothing)
        recording.needed_then = 0;
}

void call_begins() {
    Recording& recording = state();
    recording.on = true;
    recording.lacking = false;
    ++recording.calls;
    recording.made = recording.needed = 0;
    recording.recorded = recording.executed = recording.host_instructions = 0;
    recording.seen.clear();
    write_line("{\"event\":\"call\"}\n");
}

void call_ends() {
    Recording& recording = state();
    recording.on = false;
    recording.needed_then = recording.needed;
    recording.lacking = false;
    write_line("{\"event\":\"end\"}\n");
}

void write_all(const std::string& text) {
    const char* at = text.data();
    for (size_t left = text.size(); left > 0;) {
        ssize_t written = write(state().output, at, left);
        if (written <= 0)
            std::abort();
        at += written;
        left -= static_cast<size_t>(written);
    }
}

void write_host() {
    Recording& recording = state();
    Count instructions = std::exchange(recording.host_instructions, 0);
    if (instructions < recording.table.rules.host_instructions)
        return; // that is part of the calls' own time
    char line[64];
    std::snprintf(line, sizeof line, "{\"event\":\"host\",\"instructions\":%llu}\n", instructions);
    write_all(line);
}

void needs_results() {
    Recording& recording = state();
    recording.needed = recording.made;
    if (!recording.on || !recording.lacking)
        return;
    write_line("{\"event\":\"again\"}\n");
    _exit(EXIT_FAILURE);
}

void needs_values() {
    Recording& recording = state();
    recording.lacking |= recording.table.empty;
    needs_results();
}

bool is_needed(const Launch& launch) {
    return launch.waiting || launch.talks || state().made <= state().needed_then;
}

void leaves_units_out() {
    state().lacking = true;
    write_line("{\"event\":\"short\"}\n");
}

void needs_units() {
    needs_results();
}

bool was_left_so(const void* counter, unsigned value) {
    const auto& left = state().left_counters;
    auto found = left.find(counter);
    return found != left.end() && found->second == value;
}

const Rules& rules() {
    return state().table.rules;
}

unsigned clock_mhz() {
    return static_cast<unsigned>(state().table.multiprocessor.clock_mhz);
}

// Apart from the call-out, which saves no registers for it.
__attribute__((noinline)) void host_executes(const void* site) {
    Recording& recording = state();
    if (recording.on)
        recording.host_instructions += instructions_at(site) & ~kWork;
}

void host_reads(const void* address) {
    Recording& recording = state();
    if (!recording.on || (recording.needed == recording.made && !recording.table.empty))
        return;
    auto behind = recording.allocations.upper_bound(address);
    if (behind == recording.allocations.begin())
        return;
    const auto& [base, allocation] = *std::prev(behind);
    if (static_cast<const char*>(address) < static_cast<const char*>(base) + allocation.second)
        needs_values();
}

void host_moves(size_t bytes) {
    Recording& recording = state();
    if (recording.on)
        recording.host_instructions += bytes / 16;
}

} // namespace trace
} // namespace executor
