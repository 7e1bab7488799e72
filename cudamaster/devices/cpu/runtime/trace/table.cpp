// The table that the tracer is given: a line each of what an SM of the GPU has, with the seed of what is drawn, and of the
// figures that counting goes by; then the table of instructions: a line "place instructions number" each, "w place" for
// blocks that loops which wait are not made of, "q place" for atomics whose answer nobody takes, lines "< number origin" for
// loads whose address comes from other loads, "@ number first" for basic blocks of a loop that is made one block,
// "! number" for loads whose values are split, "~ number" for loops whose passes wait for each other, "+ number" for
// additions whose lanes at one address are one, "r place registers" for kernels, "u place" for functions that no value in
// memory steers, with a 1 behind it if they call the kernel that the launch names, "n" if a first call is guessed to need
// nothing of what its launches leave, "i" if inputs hold nothing, "s many" if of so many units of work one may be taken, and
// the empty line that ends it.
#include "trace/table.h"

#include <unistd.h>
#include <cstdio>

namespace executor {
namespace trace {

namespace {

void take_multiprocessor(const char* line, Table& table) {
    Multiprocessor sm;
    Count seed = 0;
    if (std::sscanf(line, "%zu %zu %zu %zu %zu %zu %zu %llu", &sm.count, &sm.l1_bytes, &sm.shared_bytes,
                    &sm.reserved_bytes, &sm.warps, &sm.blocks, &sm.clock_mhz, &seed) < 7)
        return;
    table.multiprocessor = sm;
    table.seed = seed;
}

void take_rules(const char* line, Table& table) {
    Rules rules;
    if (std::sscanf(line, "%llu %llu %llu %llu %llu %llu %llu %llu %llu", &rules.unrolled_passes,
                    &rules.other_registers, &rules.least_room, &rules.requests_on_their_way,
                    &rules.longest_sleep_ns, &rules.host_instructions, &rules.question_cycles,
                    &rules.access_cycles, &rules.waited_part) == 9)
        table.rules = rules;
}

// A line of what calls may be spared.
bool spares(const char* line, Table& table) {
    if (std::sscanf(line, "s %llu", &table.one_unit_of) == 1)
        return true;
    table.needs_nothing |= line[0] == 'n';
    table.empty |= line[0] == 'i';
    return line[0] == 'n' || line[0] == 'i';
}

// One that says something of a load, an atomic or a basic block, by its number.
bool tells_of_number(const char* line, Program& program) {
    unsigned number = 0, other = 0;
    if (std::sscanf(line, "< %u %u", &number, &other) == 2 && number < kPlaces && other < kPlaces) {
        program.origins.resize(std::max<size_t>(program.origins.size(), number + 1));
        program.origins[number].push_back(other);
        return true;
    }
    if (std::sscanf(line, "@ %u %u", &number, &other) == 2 && number < kPlaces) {
        program.loops.resize(std::max<size_t>(program.loops.size(), number + 1));
        program.loops[number] = other;
        return true;
    }
    char sign[2] = {};
    if (std::sscanf(line, "%1[!~+] %u", sign, &number) != 2 || number >= kPlaces)
        return false;
    std::vector<bool>& those = *sign == '!' ? program.split : *sign == '~' ? program.alone : program.ones;
    those.resize(std::max<size_t>(those.size(), number + 1));
    those[number] = true;
    return true;
}

// One that says something of what begins at a place, or lies before it.
bool tells_of_place(const char* line, Program& program) {
    unsigned place = 0, named = 0, registers = 0, weight = 0, number = 0;
    if (std::sscanf(line, "u %x %u", &place, &named) == 2)
        program.unsteered[place] = named != 0;
    else if (std::sscanf(line, "q %x", &place) == 1)
        program.weights[place % kPlaces] = kUnanswered;
    else if (std::sscanf(line, "w %x", &place) == 1)
        program.weights[place % kPlaces] |= kWork;
    else if (std::sscanf(line, "r %x %u", &place, &registers) == 2)
        program.registers[place] = registers;
    else if (std::sscanf(line, "%x %u %u", &place, &weight, &number) == 3) {
        program.weights[place % kPlaces] = static_cast<unsigned short>(std::min(weight, kWork - 1));
        program.orders[place % kPlaces] = number;
    } else
        return false;
    return true;
}

} // namespace

void read_table(int descriptor, Table& table) {
    lseek(descriptor, 0, SEEK_SET);
    int copy = dup(descriptor);
    if (FILE* file = copy < 0 ? nullptr : fdopen(copy, "r")) {
        char line[128];
        if (std::fgets(line, sizeof line, file))
            take_multiprocessor(line, table);
        if (std::fgets(line, sizeof line, file))
            take_rules(line, table);
        while (std::fgets(line, sizeof line, file))
            if (!tells_of_number(line, table.program) && !spares(line, table) &&
                !tells_of_place(line, table.program))
                break;
        std::fclose(file);
    }
    lseek(descriptor, 0, SEEK_END);
}

} // namespace trace
} // namespace executor
