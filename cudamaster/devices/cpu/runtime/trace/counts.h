// What is summed up over the recorded blocks of a launch.
#pragma once

#include "executor.h"
#include "trace/lines.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace executor {
namespace trace {

using Count = unsigned long long;

extern const char* program_base;            // where the executable lies
extern const unsigned* place_orders;        // Program::orders
extern const unsigned short* place_weights; // Program::weights

// Global memory: an allocation, or the program's own variables.
struct Range {
    unsigned long long begin, end;
    unsigned buffer;
    size_t bytes;
    unsigned long long first_line = 0; // the number of its first line
    // The number of the line of memory that begins at 128 x `line`: which set of a cache it goes to must not depend on where
    // the host has put the range this time.
    unsigned long long number_of(unsigned long long line) const { return line - (begin >> 7) + first_line; }
};
constexpr int kLineBits = 31; // of lines within a range

// What is known of the executable, by place: a place is behind a call, less than 16 MiB from where the program lies.
// Pages that nothing touches take no memory.
constexpr unsigned kPlaces = 1 << 24;
constexpr unsigned kWork = 1 << 15;       // a thread that waits does nothing like this
constexpr unsigned short kUnanswered = 1; // in place of a weight behind an atomic whose answer nobody takes
struct Program {
    // Instructions of basic blocks, with kWork if loops that wait are not made of such.
    unsigned short* weights = static_cast<unsigned short*>(std::calloc(kPlaces, sizeof(unsigned short)));
    unsigned weight_of(unsigned place) const { return weights[place] & ~kWork; }
    unsigned* orders = static_cast<unsigned*>(std::calloc(kPlaces, sizeof(unsigned)));
    // By a load's number in that order: the numbers of the loads that its address is made from.
    std::vector<std::vector<unsigned>> origins;
    // By the number of a basic block: that of the first of those which compilers for GPUs make into one, 0 for none.
    std::vector<unsigned> loops;
    unsigned loop_of(unsigned order) const { return order < loops.size() ? loops[order] : 0; }
    // By a load's number: whether its value is split behind it; by a basic block's: whether it is a loop, or in one, whose
    // passes wait for each other; by an atomic's number: whether lanes at one address of shared memory are one.
    std::vector<bool> split, alone, ones;
    bool is_one(unsigned order) const { return order < ones.size() && ones[order]; }
    bool is_split(unsigned order) const { return order < split.size() && split[order]; }
    std::unordered_map<unsigned, unsigned> registers; // of a kernel, by where it begins
    // Functions by which launches are made and that no value in memory steers, by where they begin: whether it is the kernel
    // that the launch names which they call.
    std::unordered_map<unsigned, bool> unsteered;
    unsigned registers_of(unsigned function) const {
        auto found = registers.find(function);
        return found == registers.end() ? 0 : found->second;
    }
    bool is_alone(unsigned order) const { return order < alone.size() && alone[order]; }
    const std::vector<unsigned>& origins_of(unsigned order) const {
        static const std::vector<unsigned> none;
        return order < origins.size() ? origins[order] : none;
    }
};

struct TrafficCounts {
    Count load_requests = 0, load_sectors = 0, missed_sectors = 0, common_sectors = 0, store_requests = 0,
          store_sectors = 0, atomic_requests = 0, atomic_sectors = 0, lines = 0, missed_lines = 0,
          store_lines = 0, wavefronts = 0, lookups = 0, sends = 0;
    Count bulk[3] = {}; // sectors of copies in bulk, by Ask
    bool any() const {
        return load_requests || store_requests || atomic_requests || bulk[0] || bulk[1] || bulk[2];
    }
    void add(const TrafficCounts& more) {
        load_requests += more.load_requests;
        load_sectors += more.load_sectors;
        missed_sectors += more.missed_sectors;
        common_sectors += more.common_sectors;
        store_requests += more.store_requests;
        store_sectors += more.store_sectors;
        atomic_requests += more.atomic_requests;
        atomic_sectors += more.atomic_sectors;
        lines += more.lines;
        missed_lines += more.missed_lines;
        store_lines += more.store_lines;
        wavefronts += more.wavefronts;
        lookups += more.lookups;
        sends += more.sends;
        for (int i = 0; i < 3; ++i)
            bulk[i] += more.bulk[i];
    }
};

struct Spread {
    Count sum = 0, count = 0, largest = 0;
    void note(Count value) { note(value, 1); }
    // Of what was recorded in part it is known how many times as much there was: the largest is the largest whole.
    void note(Count value, double times) {
        sum += value;
        ++count;
        largest = std::max(largest, static_cast<Count>(static_cast<double>(value) * times));
    }
    void add(const Spread& more) {
        sum += more.sum;
        count += more.count;
        largest = std::max(largest, more.largest);
    }
};

// The way of a warp, or of a block: the sum over the stretches between its barriers of the most that a warp of it does
// there, as the others wait for that one.
struct Way {
    Count instructions = 0, waits = 0, cold_waits = 0, far_waits = 0, remote_waits = 0;
};
struct Ways {
    Spread instructions, waits, cold_waits, far_waits, remote_waits;
    void note(const Way& way, double times) {
        instructions.note(way.instructions, times);
        waits.note(way.waits, times);
        cold_waits.note(way.cold_waits, times);
        far_waits.note(way.far_waits, times);
        remote_waits.note(way.remote_waits, times);
    }
};

// How many times as much there was as was recorded.
inline double times_recorded(Count events, Count dropped) {
    return events ? 1 + static_cast<double>(dropped) / static_cast<double>(events) : 1;
}

// Executions of a basic block: by warps, and by their threads.
struct Executions {
    Count warps = 0, lanes = 0;
};

struct SharedCounts {
    Count requests[3] = {}, wavefronts[3] = {}; // by Ask
    Count remote[3] = {};                       // requests among these to another block's, by Ask
    Count remote_bytes = 0;                     // that their lanes take or bring
    Count bulk_bytes = 0;                       // that copies in bulk read and write
    Count factor_bytes = 0;                     // that products of warpgroups read
};

// Of products of warpgroups, by the type of their factors: f16 and bf16, TF32, floating point of 8 bits, integers.
constexpr unsigned kFactorTypes = 4;
struct ProductCounts {
    Count operations[kFactorTypes] = {}; // a multiplication and an addition are two
};

// Of one block.
struct BlockCounts {
    // By place in the program, which has less than 16 MiB; pages that nothing touches take no memory.
    Executions* executed = static_cast<Executions*>(std::calloc(1 << 24, sizeof(Executions)));
    std::vector<unsigned> places; // where it is not zero
    TrafficCounts traffic[kMostBuffers + 1];
    unsigned buffers = 0; // that there may be traffic of
    SharedCounts shared;
    ProductCounts products;
    Count atomic_lanes = 0, atomic_addresses = 0, atomic_requests = 0;
    Count events = 0, dropped = 0;
    AddressMap<Count> atomics;
    Spread barriers, waits, cold_waits, far_waits, remote_waits, instructions, cluster_fences,
        cluster_barriers, grid_barriers, fences, tickets, slept_ns;
    Count all_instructions = 0;
    Way way;

    void execute(unsigned place, unsigned lanes) {
        Executions& here = executed[place];
        if (!here.warps++)
            places.push_back(place);
        here.lanes += lanes;
    }
    void clear() {
        for (unsigned place : places)
            executed[place] = {};
        places.clear();
        std::memset(static_cast<void*>(traffic), 0, sizeof(TrafficCounts) * (buffers + 1));
        shared = {};
        products = {};
        atomic_lanes = atomic_addresses = atomic_requests = events = dropped = all_instructions = 0;
        atomics.clear();
        barriers = waits = cold_waits = far_waits = remote_waits = instructions = cluster_fences =
            cluster_barriers = grid_barriers = fences = tickets = slept_ns = {};
        way = {};
    }
};

struct Hits {
    Count count = 0;
    unsigned long long first_group = 0;
    bool of_many = false; // groups
};

struct Sum {
    Count count = 0, read = 0, written = 0;
};
inline Sum sectors_of(Sum sum, const LineSet::Entry& entry) {
    sum.read += static_cast<Count>(__builtin_popcount(entry.read));
    sum.written += static_cast<Count>(__builtin_popcount(entry.written));
    return sum;
}

// Which blocks of a launch are recorded: groups of neighbours, whole clusters. Blocks count in the order of clusters here,
// those of a cluster by their ranks.
struct Plan {
    unsigned long long blocks = 0, group_blocks = 1, cluster_blocks = 1;
    std::vector<unsigned long long> groups; // first block of each, ascending
    bool only_those = false;                // no others are run

    bool has(unsigned long long block) const {
        auto after = std::upper_bound(groups.begin(), groups.end(), block);
        return after != groups.begin() && block - after[-1] < group_blocks;
    }
    unsigned long long size() const { return groups.size() * group_blocks; }
    // Says first what a block costs: the first, and one in the middle and at the end. With each its whole cluster.
    bool tries(unsigned long long block) const {
        block -= block % cluster_blocks;
        return block == groups.front() || block == groups[groups.size() / 2] || block == groups.back();
    }
};

using Work = std::map<unsigned long long, std::pair<Count, Count>>; // accesses and instructions of blocks

// What a block has done by so many units of work, of what does not go on as it began: it comes to fewer and fewer new lines.
struct SoFar {
    Count units = 0;
    Count far_waits = 0, way_far_waits = 0;
    std::map<unsigned, Sum> lines; // by buffer
};

// Work that blocks take from a counter in global memory, unit by unit, until there is none (units.cpp).
struct Units {
    unsigned* counter = nullptr;
    unsigned first = 0, last = 0, step = 0; // its value at first, at last, and what it goes on by
    bool apart = false;                     // some are left out
    Count asked = 0;                        // how often the block at hand took from it
    Count least = 0, most = 0;              // units that there are
    Count taken = 0, taken_before = 0;      // by the first block; of these before any was left out
    Count events_before = 0;                // the block's then
    Count known = 0;                        // units from then on whose events are known,
    double squares = 0;                     // and the sum of the squares of how much two that follow differ;
    double step_square = 0;                 // by how much one of these exceeds those beside it, at most;
    double last_square = 0, last_but_one = 0; // of these
    Count events = 0, of_last = 0;            // until the unit at hand, and of the one before
    Count first_asked = 0, of_first = 0;      // instructions of threads until the first unit, and of that
    SoFar earlier, before_earlier;            // the second at half as many units as the first
    unsigned left = 0;                        // as the last block has left the counter
    Count look = 0, closer = 0; // the unit that a block looks for, and how much nearer the next one is
    bool found = false;         // such a block has found one
    Count each = 1;             // of so many units one is taken,
    Count seed = 0;             // at random
    Count number_of(unsigned value) const { // a counter may go down
        return static_cast<int>(step) < 0 ? (first - value) / (0 - step) : (value - first) / step;
    }
};

// Events of a block, and what its products of tensor cores take beside them.
struct Cost {
    Count events = 1, products = 0;
    Count all() const { return events + products; }
};

enum class Stage { kFirstBlock, kOtherTrials, kAll };

// One launch that is recorded.
struct Launch {
    Plan plan;
    Stage stage = Stage::kFirstBlock;
    unsigned long long threads = 0;
    size_t l1_bytes = 0;
    std::vector<Range> ranges;        // by address
    std::vector<size_t> bytes;        // by buffer
    std::atomic<bool> waiting{false}; // one of the trials waited for another block
    bool unsteered = false;           // by what lies in memory
    std::atomic<bool> hollow{false};  // values were not computed
    bool few = false;                 // a cooperative one: others than recorded and drawn blocks end at once
    std::atomic<bool> overwritten{
        false};                        // an mbarrier's word or a tensor's map may be, which steers after all
    std::atomic<bool> left_out{false}; // blocks of a cooperative launch were ended at their limit
    std::atomic<bool> alone{false};    // and recorded ones too: of a group its first block is left
    std::atomic<bool> talks{false};    // a recorded block asks for what others may write
    std::atomic<Count> waited{0};      // yields of blocks that may wait for one that is left out
    bool unlike = false; // a pass was spent on comparing it with one that it only seemed to be like
    Cost cost;           // of a block, by the first ones
    Units units;         // if the first block takes all there are
    LineSet common;      // what the first block read: others that want it may find it in their SM's L1

    std::mutex mutex;                      // of what follows
    std::vector<unsigned long long> tried; // blocks that need not be run again
    Count traced = 0;
    std::map<unsigned, Executions> executed;
    std::map<unsigned, TrafficCounts> traffic;
    SharedCounts shared;
    ProductCounts products;
    Count atomic_lanes = 0, atomic_addresses = 0, atomic_requests = 0, events = 0, dropped = 0;
    AddressMap<Hits> atomics;
    Spread barriers, waits, cold_waits, far_waits, remote_waits, instructions, block_instructions,
        cluster_fences, cluster_barriers, grid_barriers, fences, tickets, slept_ns;
    Ways ways;                                    // of blocks
    std::map<unsigned, Sum> of_block;             // lines by buffer
    std::map<unsigned long long, LineSet> groups; // by first block
    LineSet all;
    // Plain accesses of blocks that are recorded and of those that are run beside them.
    std::atomic<Count> own_accesses{0}, other_accesses{0}, other_blocks{0};
    std::atomic<Count> own_instructions{0}, other_instructions{0};
    // Where most blocks are left out: first blocks of the clusters that are run beside the sample, ascending, and the
    // accesses and instructions of each block.
    std::vector<unsigned long long> drawn;
    std::vector<Count> drawn_accesses, drawn_instructions;
    Work own_work, drawn_work; // of recorded blocks, and of those
    void forget_drawn() {
        drawn.clear();
        drawn_accesses.clear();
        drawn_instructions.clear();
        drawn_work.clear();
    }
    bool draws(unsigned long long block) const {
        return std::binary_search(drawn.begin(), drawn.end(), block - block % plan.cluster_blocks);
    }

    std::atomic<Count> multiplications{0}; // of blocks that are recorded

    void note(unsigned long long block, Count accesses, Count instructions, Count multiplied, bool recorded) {
        std::lock_guard<std::mutex> lock(mutex);
        if (!recorded && !drawn.empty()) {
            drawn_accesses.push_back(accesses);
            drawn_instructions.push_back(instructions);
            drawn_work[block] = {accesses, instructions};
            return;
        }
        (recorded ? own_accesses : other_accesses) += accesses;
        (recorded ? own_instructions : other_instructions) += instructions;
        multiplications += recorded ? multiplied : 0;
        other_blocks += !recorded;
        if (recorded)
            own_work[block] = {accesses, instructions};
    }
    void add(unsigned long long block, const BlockCounts& counts, const LineSet& lines);
    std::string line(const Job& job) const; // JSON
};

} // namespace trace
} // namespace executor
