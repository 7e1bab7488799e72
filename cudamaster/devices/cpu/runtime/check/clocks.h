// What orders the accesses of two device threads. Every launch numbers segments: a block is in a new one after each of
// its barriers. Within a segment each thread counts on whenever it meets lanes of its warp, or fences.
//
// Ordered are: launches, and what lies on two sides of a grid barrier; two segments of one block; within a segment what
// lanes of a warp did before they met; and what a thread knows because it read, by an atomic or a volatile access, a
// location that another one wrote in such a way behind a fence. That other thread then passes on what itself knew when
// it fenced. Barriers and warp collectives hand such knowledge on to all who meet there.
#pragma once

#include "knowledge.h"

#include <deque>
#include <unordered_map>

namespace executor {
namespace check {

// Of the block that a worker runs.
struct BlockClock {
    uint32_t block = 0;
    uint32_t first_segment = 0; // of the cluster
    uint32_t own_segment = 0;   // the first of the block
    uint32_t segment = 0;
    unsigned threads = 0;
    bool knows = false; // some thread knows of others, or has fenced
    uint32_t count[kMaxThreads];
    bool met_any[kMaxThreads / kWarp];
    // How far a lane knows another one, and behind those the products that the warp has waited for.
    uint32_t met[kMaxThreads / kWarp][kWarp][kWarp + 1];
    uint32_t waited[kMaxThreads / kWarp];               // times that a warp has waited for products
    std::deque<uint32_t> products[kMaxThreads / kWarp]; // that are under way, each a late one
    bool unfenced[kMaxThreads];                         // has used global memory since its last fence
    Known known[kMaxThreads], fenced[kMaxThreads];
    bool proxies = false;                            // some thread has fenced for the asynchronous proxy
    bool unproxied[Proxied::kMemories][kMaxThreads]; // has written there since its last such fence
    Proxied proxied[kMaxThreads];
    bool saw =
        false; // some thread has seen a phase complete, and learns of what was before at its next fence
    Known seen[kMaxThreads];
    Proxied seen_proxied[kMaxThreads];
};

// Of the launch that runs; all under the lock of check.cpp.
class LaunchClock {
  public:
    void begin_launch();
    // `first_segment` is 0 where the block is the first of its cluster.
    void begin_block(BlockClock& clock, uint32_t block, unsigned threads, uint32_t first_segment);
    void pass_barrier(BlockClock& clock);
    // A thread comes to a barrier of the grid, or ends; all blocks are in it; each then passes that, as one of its own.
    void arrive_at_grid(const BlockClock& clock, unsigned thread, bool ends);
    void complete_grid_barrier();
    void pass_grid_barrier(BlockClock& clock);
    void meet(BlockClock& clock, unsigned warp, unsigned mask);
    // Copies and products that are made at some time up to a wait: who knows of their beginning knows nothing of them, only who
    // knows of that wait, or of the phase of an mbarrier that they complete in.
    uint32_t begin_late();
    void end_late(uint32_t which, const BlockClock& clock, unsigned thread);
    void end_late_in_phase(uint32_t which, const KnownBlock::Thread& phase);
    // What a product reads is known to all lanes once the warp has waited for it.
    void end_products(BlockClock& clock, unsigned warp, unsigned count);
    // What members have done is known to takers; both by warp.
    void exchange(BlockClock& clock, const unsigned* members, const unsigned* takers);
    // What a thread knows up to now, itself among it; and what it learns.
    Known knowledge(BlockClock& clock, unsigned thread);
    void add_knowledge(BlockClock& clock, unsigned thread, Knowledge& to);
    // Whether the thread knows anything that the block has done.
    bool knows_of(const BlockClock& clock, unsigned thread, const BlockClock& other) const;
    void learn(BlockClock& clock, unsigned thread, const Known& more, const Proxied& proxied);
    // The same at its next fence.
    void see(BlockClock& clock, unsigned thread, const Known& more, const Proxied& proxied);
    void fence(BlockClock& clock, unsigned thread);
    // What the thread knows comes before asynchronous copies and products of whoever learns of the fence.
    void proxy_fence(BlockClock& clock, unsigned thread, bool of_shared, bool of_global);
    void acquire(BlockClock& clock, unsigned thread, uintptr_t location);
    void release(BlockClock& clock, unsigned thread, uintptr_t location);

    bool ordered(const BlockClock& clock, unsigned thread, const Access& before) const;
    bool proxied(const BlockClock& clock, unsigned thread, const Access& before,
                 Proxied::Memory memory) const;
    bool is_known(const Known& known, const Access& before) const;
    bool knows_phase(const BlockClock& clock, unsigned thread, const KnownBlock::Thread& phase) const;
    uint32_t block_of(uint32_t segment) const { return blocks_[segment - base_]; }
    bool is_over(const Access& access) const;
    bool of_this_launch(uint32_t segment) const { return segment >= base_; }

  private:
    struct Late {
        uint32_t before = 0; // segments that there were when it was done; 0: it is under way
        bool in_phase = false;
        Access place; // the end of the wait, or the phase
    };
    const Late& late(const Access& access) const { return late_[access.count]; }
    uint32_t segments() const { return base_ + static_cast<uint32_t>(blocks_.size()); }
    bool is_ordered(const BlockClock& clock, unsigned thread, const Access& before) const;
    uint32_t next_segment(uint32_t block);
    // Of a block what a thread knows by itself and by its warp; then it counts on.
    void add_own(const BlockClock& clock, unsigned thread, KnownBlock& known) const;

    uint32_t base_ = 1;    // first segment of the launch
    uint32_t ordered_ = 1; // segments below are ordered before all that runs now
    std::vector<uint32_t> blocks_;
    std::vector<Late> late_;
    struct Released {
        Known fenced;
        Proxied proxied;
    };
    std::unordered_map<uintptr_t, Released> released_;
    bool proxies_ = false; // some block has fenced for the asynchronous proxy
    // Of the grid's barriers.
    Gathering at_grid_;
    struct {
        bool came, ended; // some thread has, and had written since its last such fence
    } unproxied_[Proxied::kMemories] = {};
    Proxied of_grid_; // what all know since the last one
};

} // namespace check
} // namespace executor
