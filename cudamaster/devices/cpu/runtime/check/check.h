// The observer that finds faults: races, reads of what nothing wrote, accesses outside of a buffer, misaligned ones.
//
// Each is told on stderr the moment it is found, as one line of JSON behind kFindingMark; the process ends with the
// launch, or once there are kMostFindings. Python (cudamaster/faults/cpu_checker.py) turns offsets in the program into
// lines of the region. Everything here runs on device threads' stacks under one lock.
#pragma once

#include "../observe.h"
#include "flights.h"
#include "shadow.h"

#include <algorithm>
#include <string>

namespace executor {
namespace check {

constexpr char kFindingMark[] = "cuda device finding: ";
constexpr unsigned kMostFindings = 20;
// Of a call; a second or two. The verification cases of our kernels have fewer.
constexpr unsigned long long kMostAccesses = 1 << 25;
constexpr size_t kRedZone = 256; // between static shared variables

// A write that something unordered wrote before: a race unless it leaves what was there. Its call-out comes before it,
// so that the next one looks.
struct Doubt {
    Range* range;
    uintptr_t address;
    size_t bytes;
    unsigned char old[16];
    Access before, now;
};

// What the blocks of a cluster have in common.
struct ClusterState {
    Flights flights{2}; // of their shared memory
    struct Mbarrier {
        Known gathered, passed_on;
        Proxied gathered_proxied, passed_on_proxied;
        Access init;
        bool init_fenced = false;
        uint16_t number = 0;
        uint32_t phases = 0; // that were complete
        bool copies = false; // some end at it
        Access last;         // use of it
        std::vector<Access>
            announced; // bytes in this phase, by who has not arrived in it: an arrival has to be behind that

        KnownBlock::Thread phase(uint32_t count) const { return {number, init.segment, count}; }
    };
    std::map<const void*, Mbarrier> mbarriers;
    uint16_t made = 0; // of them
    // Of its barrier.
    Gathering gathered;
    Known passed_on;
    Proxied passed_on_proxied;
};

struct Visit {
    const Range* range;
    uintptr_t address;
    Access access;
};

// What one worker's block needs.
struct BlockState {
    BlockClock clock;
    std::vector<Doubt> doubts;
    struct Variable {
        Range* range;
        char* memory;
    };
    std::map<const void*, Variable> variables; // static shared ones, by key
    char* free_memory = nullptr;               // for more of them
    size_t free_bytes = 0;
    ClusterState of_cluster;
    ClusterState* cluster = &of_cluster; // of the first of its cluster
    std::map<uint64_t, Visit>
        visits; // to its shared memory from other blocks: the last of each of their threads
    bool ended = false;
    uint32_t late = 0;             // which the running thread begins
    uint32_t product = 0;          // of the running thread, pieces of which have been told
    const void* dynamic = nullptr; // base of the range of dynamic shared memory
    size_t dynamic_bytes = 0;
    uintptr_t harmless[64] = {}; // pages of nobody's memory, seen in this launch
    unsigned long long launch = 0;
    const char* tls_begin = nullptr;
    const char* tls_end = nullptr;
};

struct State {
    std::mutex lock;
    unsigned long long accesses = 0; // of this call
    bool concurrent = false;         // several OS threads run blocks
    LaunchClock clock;
    Ranges ranges;
    Flights stores{4}; // to global memory: whole chunks
    const CudamasterCpuLaunch* launch = nullptr;
    unsigned long long launches = 0;
    unsigned long long grid_generation = 0;
    uintptr_t image = 0; // where the program was loaded
    unsigned findings = 0;
};

extern State* the_state;
inline State& state() {
    return *the_state;
}
extern __thread BlockState* block_state;

// Holds the lock where it is needed.
class Locked {
  public:
    Locked() : held_(state().concurrent) {
        if (held_)
            state().lock.lock();
    }
    ~Locked() {
        if (held_)
            state().lock.unlock();
    }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

  private:
    bool held_;
};

// hooks.cpp
void rest();

// What runs now was looked at before, or there is too much of it.
extern bool resting;

// access.cpp
void look_at_access(const void* address, size_t bytes, unsigned kind, const void* site);
inline __attribute__((always_inline)) void observe_access(const void* address, size_t bytes, unsigned kind,
                                                          const void* site) {
    if (!resting)
        look_at_access(address, bytes, kind, site);
}
// The same of what a loop does, with 16 bytes in each pass.
inline void observe_range(const void* address, size_t bytes, unsigned kind, const void* site) {
    for (size_t done = 0; done < bytes; done += 16)
        observe_access(static_cast<const char*>(address) + done, std::min<size_t>(bytes - done, 16), kind,
                       site);
}
void settle_doubts(BlockState& block);
// Bytes that a copy of the running thread will write, or read; and that of a thread has.
void take_off(Flights& flights, const char* bytes, size_t count, unsigned kind, const void* site);
void land(Flights& flights, const BlockState& block, const char* bytes, size_t count, unsigned thread);
void look_for_visitors(BlockState& block);
// What the running thread does now.
Access access_now(const BlockState& block, unsigned thread, size_t bytes, unsigned kind, const void* site);

// report.cpp
void report_race(const Range& range, uintptr_t address, const Access& before, const Access& now);
void report_early(const Range& range, uintptr_t address, const Access& copy, const Access& now);
void report_unfenced(const Range& range, uintptr_t address, const Access& before, const Access& now);
void report_ended(const Range& range, uintptr_t address, const Access& now);
void report_unstarted(const Range& range, uintptr_t address, const Access& now);
void report_unwritten(const Range& range, uintptr_t address, const Access& now);
void report_outside(const Range* near, uintptr_t address, const Access& now);
void report_misaligned(uintptr_t address, const char* type, unsigned long alignment, const Access& now);
void end_after_findings();

} // namespace check
} // namespace executor
