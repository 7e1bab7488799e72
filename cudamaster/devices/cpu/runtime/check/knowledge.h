// Accesses of device threads, and what somebody knows of those of others.
#pragma once

#include "../executor.h"

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace executor {
namespace check {

enum Kind : uint8_t {
    kWrite = 1,
    kVolatile = 2,
    kAtomic = 4,
    kReads = 8,  // an atomic that needs the old value
    kAsync = 16, // by an asynchronous copy in bulk, or a product of a warpgroup: through a proxy of their own
    kBarrier =
        32, // of an mbarrier: its init or end, or as an atomic an arrival or a wait, which hand on what they say
    kLate = 64, // made at some time up to a wait: `count` tells which of the launch's late ones it belongs to
};

struct Access {
    uint32_t segment = 0; // 0: there was none
    uint32_t count = 0;   // of its thread, within the segment
    uint32_t place = 0;   // in the program: offset of the return address
    uint16_t thread = 0;
    uint8_t kind = 0;
    uint8_t bytes = 0;

    bool strong() const { return kind & (kVolatile | kAtomic); }
};

inline bool conflict(const Access& a, const Access& b) {
    return ((a.kind | b.kind) & kWrite) && !(a.strong() && b.strong());
}

// What somebody knows of a block: all of the segments below `below`, and of some threads more.
struct KnownBlock {
    struct Thread {
        uint16_t thread;
        uint32_t segment, count;
    };
    uint32_t below = 0;
    std::vector<Thread> threads; // in their order

    bool covers(const Access& access) const;
    void add(Thread more);
    void join(const KnownBlock& other);
};

using Knowledge = std::map<uint32_t, KnownBlock>; // by the block's number in the launch

// In place of a block: what is known of mbarriers. Their number in the cluster is the thread, and the count says how far: 1 of
// its init, one more of each phase that is complete, and so of the copies that came in it.
constexpr uint32_t kMbarriers = ~0u;

using Known = std::shared_ptr<const Knowledge>;

Known joined(const Known& a, const Known& b);

// What a thread knows to be ordered before asynchronous copies and products by fences between proxies, which are for one
// kind of memory or for both.
struct Proxied {
    enum Memory { kShared, kGlobal, kMemories };
    struct {
        uint32_t below = 0; // segments of any block
        Known known;
    } of[kMemories];

    void join(const Proxied& other);
    bool any() const;
    bool same_as(const Proxied& other) const;
};

// What many threads bring together; most of them bring the same.
class Gathering {
  public:
    void add(const Known& more);
    void add(const Proxied& more);
    Knowledge& known() { return known_.all; }
    // What there is, and then nothing.
    Known take_known() { return known_.take(); }
    Proxied take_proxied();

  private:
    struct One {
        Knowledge all;
        Known last;
        void add(const Known& more);
        Known take();
    };
    One known_, proxied_[Proxied::kMemories];
    uint32_t below_[Proxied::kMemories] = {};
};

} // namespace check
} // namespace executor
