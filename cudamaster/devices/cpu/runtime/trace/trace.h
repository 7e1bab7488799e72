// Counts what a kernel does, as a GPU would see it: what the warps of a sample of its blocks execute and ask of memory.
//
//   call-outs (callouts.cpp)  each thread of a recorded block notes its basic blocks and accesses, in their order
//   warps (warps.cpp)         the threads of a warp are brought together again: at each step, those whose next event is
//                             the first in the order of the program's blocks go on, in step. In that order, which is
//                             worked out in Python, paths that meet come before the block where they do, and a loop
//                             before what is behind it: threads wait for each other there, as they do on a GPU.
//   lines (lines.h)           requests to global memory as lines and sectors, through an L1 cache of the block's share
//   counts (counts.h)         sums over blocks: whole numbers, so that the order in which blocks end does not matter
//   clock (clock.cpp)         what time it is for a kernel
//   table (table.cpp)         what the tracer is told before anything is recorded
//   recording (recording.cpp) the call so far, who needs what its launches leave, and what is written: a line of JSON for
//                             each event of the call
//   launches (launches.cpp)   which blocks each pass of a launch runs, and which of them are recorded
//   sample (sample.cpp)       blocks of a grid that stand for it, others at random, and how many a call can afford
//   known (known.cpp)         launches whose counts are those of one before
//   alike (alike.cpp)         which launches do the same, but in other allocations
//   units (units.cpp)         a block that takes work from a counter gets a part of it
//   hooks (hooks.cpp)         what the executor tells of launches, blocks and threads
//
// The descriptor in CUDAMASTER_CPU_TRACE is read first: how many instructions each basic block has (building them
// from the program is Python's), then written to.
#pragma once

#include "trace/counts.h"
#include "trace/lines.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace executor {
namespace trace {

// A copy is what an asynchronous copy of a thread reads: no later instruction needs it, but who waits for the copy does.
enum class Act : unsigned char { kBlock, kLoad, kStore, kAtomic, kCopy };

// One step of a thread. `key` orders steps by place in the program, deeper calls first. The address of a basic block is
// its place.
struct Event {
    unsigned key;
    Act kind;
    unsigned char bytes;
    unsigned short unused;
    unsigned long long address;
    bool operator==(const Event& other) const {
        return key == other.key && kind == other.kind && bytes == other.bytes && address == other.address;
    }
};

constexpr size_t kEventsOfLane = 1 << 16; // that are kept between two barriers; the others are counted

// Asynchronous copies of a thread that were begun when it had waited for so many before.
struct Copying {
    unsigned long long waited;
    unsigned count;
};

struct Lane {
    Event* next = nullptr;
    Event* end = nullptr; // steps that are not kept take room, too
    Event* begin = nullptr;
    unsigned depth = 0; // of calls
    unsigned long long dropped = 0;
    unsigned long long waits = 0; // but at barriers of the whole block
    unsigned long long cluster_fences = 0;
    unsigned long long cluster_barriers = 0;
    unsigned long long grid_barriers = 0;
    unsigned long long fences = 0;
    unsigned long long tickets = 0;       // atomics behind a fence
    bool stored = false;                  // since its last fence, or used memory otherwise but to ask:
    bool used = false;                    // who asks again and again has nothing to wait for
    bool added = false;                   // changed something by an atomic
    bool added_before = false;            // by one before the last
    unsigned long long added_to = 0;      // where, if it did nothing else before its last fence
    bool fenced = false;                  // since it used memory last
    unsigned long long copies_waited = 0; // one after another: what was begun together comes together
    std::vector<Copying> copying;         // on their way, the oldest first
    unsigned long long slept_ns = 0;
    const void* slept_at = nullptr;       // where it slept last
    Event* last_pass = nullptr;           // where the record of what came behind that sleep begins
    Event* pass_before = nullptr;         // and behind the sleep there before
    bool asked = false;                   // since then, for what another thread may write
    bool worked = false;                  // used memory since it asked what time it is
    unsigned long long waited_cycles = 0; // until a time had come
    size_t steps() const { return begin ? kEventsOfLane - static_cast<size_t>(end - next) : 0; }
};

// Room for the events of one warp.
struct Room {
    Event* memory = nullptr;
    Room();
    Event* of_lane(unsigned lane) const;
};

struct WarpTrace {
    Room* room = nullptr;
    unsigned pending = 0; // threads that are still on their way to the next barrier, or their end
    unsigned live = 0;
    Count events = 0, dropped = 0;
    std::vector<LineRequest> requests; // since the last barrier of the block
    unsigned long long barriers = 0, instructions = 0, waits = 0, cold_waits = 0, far_waits = 0;
    unsigned long long copies_waited = 0; // of the lane that waits most
    unsigned long long remote_waits = 0; // for other blocks' shared memory, and what they store to this one's
    Way at_barrier;                      // what it had done when the block's last barrier was over
    std::map<const void*, Count> copies_waited_for; // by mbarrier; of the lane that waits most
    std::map<const void*, Count> stores_waited_for; // the same of what other blocks store
};

// Where a block's shared memory is: the program's thread-local variables, and the dynamic array.
struct SharedMemory {
    unsigned long long begin[2] = {}, end[2] = {};
    // Built-in variables lie among the thread-local ones.
    unsigned long long built_in[5] = {};
    bool is_built_in(unsigned long long address) const {
        for (unsigned long long variable : built_in)
            if (address - variable < sizeof(dim3))
                return true;
        return false;
    }
    bool has(unsigned long long address) const {
        return (address >= begin[0] && address < end[0]) || (address >= begin[1] && address < end[1]);
    }
};

// What is recorded of the block that an OS thread runs.
class Tracer {
  public:
    void begin_block(const Worker& block, const Launch& launch, const Program& program,
                     const SharedMemory& shared);
    void end_block();
    const BlockCounts& counts() const { return counts_; }
    const LineSet& lines() const { return lines_; }
    void thread_begins(unsigned thread);
    void thread_ends(unsigned thread);
    void barrier_arrives(unsigned thread, int kind);
    void barrier_completes();
    void warp_completes(unsigned warp, unsigned arrived);
    // A copy in bulk that a thread of the block has begun, but for what it does in other blocks' shared memory.
    void bulk_starts(const Bulk& bulk);
    // So many bytes come into the block's shared memory, for an mbarrier.
    void bulk_comes(const void* barrier, unsigned bytes);
    // The same of a word that a thread of the cluster stores.
    void store_comes(const void* barrier) { barriers_of_stores_.insert(barrier); }
    // The word of an mbarrier, as an operation on it leaves it; and whether it is what the last one has left.
    void leaves(const void* barrier, unsigned long long word) {
        const auto at = reinterpret_cast<uintptr_t>(barrier);
        first_word_ = words_.empty() ? at : std::min(first_word_, at);
        last_word_ = words_.empty() ? at : std::max(last_word_, at);
        words_[barrier] = word;
    }
    bool left_so(const void* barrier, unsigned long long word) const {
        auto found = words_.find(barrier);
        return found != words_.end() && found->second == word;
    }
    // Something else changes these bytes: a word there is no longer what an operation has left.
    void overwrites(uintptr_t address, size_t bytes) {
        if (words_.empty() || address >= last_word_ + 8 || address + bytes <= first_word_)
            return;
        for (auto word = words_.begin(); word != words_.end();) {
            const auto at = reinterpret_cast<uintptr_t>(word->first);
            word = address < at + 8 && at < address + bytes ? words_.erase(word) : std::next(word);
        }
    }
    void copy_starts(unsigned thread);
    void copy_lands(unsigned thread, bool for_arrival);
    void passes_cluster(unsigned thread) { ++lanes_[thread].cluster_barriers; }
    void product_starts(const CudamasterCpuWgmma& product);
    void waited(unsigned thread, const void* place);
    void sleeps(unsigned thread, unsigned nanoseconds, const void* site);

    void note(Lane& lane, unsigned thread, Act kind, unsigned long long address, unsigned bytes,
              const void* site);
    // A step to a thread's own variables, registers mostly: it has no price, and kernels with tiles in registers make a
    // hundred times as many of these as of others. What is dropped goes by them as well.
    void uses_own(Lane& lane, unsigned thread) {
        if (__builtin_expect(lane.next == lane.end, 0)) {
            if (!lane.begin)
                return uses_own_in_new_room(lane, thread);
            ++lane.dropped;
            return;
        }
        --lane.end;
    }
    Lane& lane(unsigned thread) { return lanes_[thread]; }
    // It reads what another thread may write.
    void asks(unsigned thread, unsigned long long address) {
        lanes_[thread].asked = true;
        talks_ |= !shared_.has(address);
    }
    // It changes by an atomic whose answer nobody takes what a thread of the block may load later: that asks, too.
    void adds_quietly(unsigned long long address) {
        if (talks_ || shared_.has(address))
            return;
        first_sum_ = std::min(first_sum_, address);
        last_sum_ = std::max(last_sum_, address);
        sums_.insert(address);
    }
    void may_see_sum(unsigned long long address) {
        if (__builtin_expect(address - first_sum_ <= last_sum_ - first_sum_, 0) && first_sum_ <= last_sum_)
            talks_ = talks_ || sums_.count(address);
    }
    bool is_global(unsigned long long address) { return range_of(address) != nullptr; }
    SoFar so_far(Count units) const;
    // Whether a thread of the block has asked, in memory that other blocks have, too.
    bool talks() const { return talks_; }
    // Memory is about to be used; who `asks` reads what another thread may write.
    void uses(Lane& lane, Act kind, unsigned long long address, bool asks);

  private:
    void make_room(Lane& lane, unsigned thread);
    // The first step of a thread since a barrier: the last that callers do, so that they keep nothing for what comes behind.
    __attribute__((noinline)) void uses_own_in_new_room(Lane& lane, unsigned thread) {
        make_room(lane, thread);
        --lane.end;
    }
    __attribute__((noinline)) void note_in_new_room(Lane& lane, unsigned thread, Act kind,
                                                    unsigned long long address, unsigned bytes,
                                                    const void* site) {
        make_room(lane, thread);
        note(lane, thread, kind, address, bytes, site);
    }
    void arrive(unsigned warp);
    void merge(unsigned warp); // warps.cpp
    struct Step;
    void take(WarpTrace& warp, const Step& step);
    void pass(WarpTrace& warp, const Step& step, unsigned key, bool same);
    bool only_asks(const Event* step, const Event* end) const;
    static Count wavefronts_of(const Step& step, bool shares, bool in_line);
    static Count sends_of(const Step& step, const unsigned long long* lines, const unsigned* sectors,
                          unsigned count, bool in_line);
    void take_shared(WarpTrace& warp, const Step& step, bool remote);
    bool waits_anew(const Step& step, bool& asked);
    void take_global(WarpTrace& warp, const Step& step, const Range& range);
    bool is_remote(unsigned long long address) const;
    const Range* range_of(unsigned long long address);
    void drain();
    void ends_stretch(); // between two barriers of the block

    Lane lanes_[kMaxThreads];
    WarpTrace warps_[kMaxThreads / kWarp];
    std::vector<std::unique_ptr<Room>> rooms_;
    std::vector<Room*> free_rooms_;
    unsigned threads_ = 0;
    const Program* program_ = nullptr;
    const Launch* launch_ = nullptr;
    const Range* last_range_ = nullptr;
    SharedMemory shared_;
    bool talks_ = false;
    unsigned long long first_sum_ = ~0ull, last_sum_ = 0; // of what was changed so
    std::unordered_set<unsigned long long> sums_;
    const Cluster* cluster_ = nullptr;                          // of several blocks
    std::set<const void*> barriers_of_copies_;                  // mbarriers that copies come to
    std::unordered_map<const void*, unsigned long long> words_; // of mbarriers
    uintptr_t first_word_ = 0, last_word_ = 0;
    std::set<const void*> barriers_of_stores_; // those of words that threads of the cluster store
    std::map<std::pair<unsigned, const void*>, Count> waited_for_; // by thread and mbarrier
    BlockCounts counts_;
    L1 l1_;
    LineSet lines_;
    // Loads are on their way together until one needs what another brings, or the program goes back to the start of a
    // loop. Four passes of a short loop without a store are one, as compilers for GPUs unroll it, behind those that are
    // left over.
    void begins_anew();
    bool waits_for(unsigned number);
    void ends_loop(WarpTrace& warp);
    bool asked_ = false, asked_remote_ = false, stored_ = false;
    // Of shared memory, since the last basic block or pass of a loop.
    bool stored_shared_ = false, loaded_shared_ = false;
    bool split_ = false; // what was asked for is split at the end of its basic block
    unsigned room_ = 0;  // words that a thread's registers hold of what is on its way, 0 if nobody knows
    unsigned loop_ = 0, loop_depth_ = 0, in_loop_ = 0; // that at hand, and the number of its last block
    bool pass_stored_ = false;                         // this pass of it has, to global memory
    unsigned depth_ = 0, reached_[256] = {}; // the last basic block at each depth of calls, by its number
    unsigned group_ = 0;                     // of loads that are on their way together
    std::vector<unsigned> asked_in_;         // by a load's number: the last group that it was in
    struct Pass {
        unsigned long long waits, remote_waits; // of the warp until then
        size_t requests;                        // the same
        unsigned lanes;                         // that take part, a bit for each
        unsigned words;                         // that a lane asks for
    };
    std::vector<Pass> passes_; // of the basic block or loop at hand
};

// A basic block of the wrapper, or of what it calls on the host (recording.cpp).
void host_executes(const void* site);
// It reads there: what a launch left, if that is the device's memory.
void host_reads(const void* address);
// So many bytes are moved there by a library's function.
void host_moves(size_t bytes);

// st.async and red.async.
void stores_asynchronously(const void* to, unsigned bytes, bool reduces, const void* site);
// An asynchronous copy of a thread.
void copies_asynchronously(const void* to, const void* from, unsigned bytes, unsigned from_source,
                           const void* site);

// The tracer of this OS thread's block, null where nothing is recorded.
extern __thread Tracer* recorder;
// Plain accesses of the block, recorded or not. Volatile ones and atomics are not among them: who waits makes as many
// of those as he has time for.
extern __thread Count accesses;
// Instructions of all its threads, recorded or not, but for those between two questions of one who waits.
extern __thread Count instructions;
extern __thread Count instructions_at_question;
extern __thread unsigned work_since_question; // has kWork if there was any
constexpr Count kOfQuestion = 64;
// What is known of the block's units of work, if it takes such and some may be left out; else null.
extern __thread Units* units;
// A thread of it is about to change this by an atomic whose answer it takes.
void takes_unit(const void* address, unsigned bytes);
// It asks for something else.
void asks_beside_units(unsigned long long address);
// Whether a block has to look for the last unit, once more; such a block begins; and a block has ended that took some.
bool looks_again(Units& of);
void looks_for_units(Units& of);
void units_end(Units& of);
// From now on some are left out: what the launch leaves is not what it would. (recording.cpp)
void leaves_units_out();
// They are needed: the call is counted once more, with all units.
void needs_units();
// Whether a launch that left out units left a counter so, and nobody has written there since.
bool was_left_so(const void* counter, unsigned value);
// A number below `most` that kernels do not know; the seed goes on (sample.cpp).
Count drawn_below(Count most, Count& seed);
// What time it is for the thread; 0 outside of kernels (clock.cpp).
Count time_of_thread();
// So many cycles more have passed for it.
void passes(Count cycles);
// A block begins, and its threads have met.
void time_begins(Count launch);
void time_is_shared(unsigned threads);
// Figures that counting goes by, as the table's second line says them (devices/cpu/counting.py).
struct Rules {
    Count unrolled_passes = 1; // of a loop, which compilers for GPUs make into one
    // Registers of a thread that hold no word which is on its way; words that it has room for at least.
    Count other_registers = 0, least_room = 1;
    Count requests_on_their_way = 0; // of each warp
    Count longest_sleep_ns = ~0u;    // a GPU ends a sleep by then
    Count host_instructions = 0;     // between two calls of the runtime; fewer are part of these
    // The clock goes on by so much from one question to the next, or behind an access to memory, or by that part of what
    // a thread has waited.
    Count question_cycles = 1, access_cycles = 1, waited_part = 1;
};
const Rules& rules();
// Cycles of the SM's clock in a microsecond.
unsigned clock_mhz();
// Instructions of a basic block, and kWork.
inline unsigned instructions_at(const void* site) {
    return place_weights[static_cast<unsigned>(static_cast<const char*>(site) - program_base) % kPlaces];
}
// Multiplications of factors that the block had made, whose time here is long.
extern __thread Count multiplications;
// Basic blocks that the block may yet execute before it is left out; 0 at its start is no limit.
extern __thread Count steps_left;
// Ends the block, which has come to its limit: others stand for it (hooks.cpp).
[[noreturn]] void leave_out();

// A fence waits for what was done in global memory, and an atomic is its ticket if nothing of that comes between them, but
// for one that only goes on with what it did before the fence.
inline void Tracer::uses(Lane& lane, Act kind, unsigned long long address, bool asks) {
    if (shared_.has(address)) {
        lane.worked = lane.worked || !shared_.is_built_in(address);
        return;
    }
    lane.worked = true;
    lane.stored |= kind == Act::kStore;
    if (!lane.used && !asks && kind != Act::kAtomic)
        lane.used = range_of(address) != nullptr; // and no parameter
    if (kind == Act::kAtomic) {
        lane.tickets += lane.fenced && lane.added_to != address;
        lane.added_before = std::exchange(lane.added, true);
        lane.added_to = address;
    }
    lane.fenced = false;
}

inline void Tracer::note(Lane& lane, unsigned thread, Act kind, unsigned long long address, unsigned bytes,
                         const void* site) {
    if (__builtin_expect(lane.next == lane.end, 0)) {
        if (!lane.begin)
            return note_in_new_room(lane, thread, kind, address, bytes, site);
        ++lane.dropped;
        return;
    }
    unsigned place = static_cast<unsigned>(static_cast<const char*>(site) - program_base) % kPlaces;
    unsigned order = place_orders[place];
    unsigned key = (255u - std::min(lane.depth, 254u)) << 24 | (order ? order : place);
    *lane.next++ = {key, kind, static_cast<unsigned char>(bytes), 0, kind == Act::kBlock ? place : address};
}

} // namespace trace
} // namespace executor
