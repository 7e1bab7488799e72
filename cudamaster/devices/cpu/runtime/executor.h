// The executor's own structures: fibres, warps, and the worker that runs one block at a time.
#pragma once

#include "cudamaster_cpu/abi.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

// The built-in variables. Device code sees them as constants, which they are to any one thread.
extern __thread uint3 threadIdx;
extern __thread uint3 blockIdx;
extern __thread dim3 blockDim;
extern __thread dim3 gridDim;

namespace executor {

constexpr unsigned kWarp = 32;
constexpr unsigned kMaxThreads = 1024;
constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kGuardBytes = 4096;
constexpr size_t kStaticShared = 48 << 10;
constexpr size_t kOptInShared = 227 << 10;
constexpr int kFaultExitCode = 70;
constexpr unsigned kMaxCluster = 16, kPortableCluster = 8;

enum class Wait : unsigned char { kNone, kBarrier, kNumbered, kMbarrier, kCluster, kWarp, kActiveMask };

// One stack, and the device thread that is suspended on it.
struct Fibre {
    void* stack_pointer = nullptr;
    void* sanitizer_stack = nullptr;
    Fibre* next = nullptr;
    uint3 index{};
    unsigned linear = 0;
    int ptx_line = 0; // while it is suspended
    Wait wait = Wait::kNone;
    unsigned mask = 0;
    const char* operation = "";
    const void* site = nullptr;
    bool learns_later = false;     // of what others did before the phase that it waits for
    const void* refused = nullptr; // the mbarrier at which its last try failed at once
    unsigned refusals = 0;         // since it last waited at one
    unsigned active_mask = 0;      // or what a numbered barrier gives back
    unsigned polls = 0;            // of mbarriers, in vain, since it saw a phase complete
    char* stack = nullptr;
    char* top = nullptr;
};

struct FibreList {
    Fibre* head = nullptr;
    Fibre* tail = nullptr;
    void push(Fibre* fibre) {
        fibre->next = nullptr;
        if (tail)
            tail->next = fibre;
        else
            head = fibre;
        tail = fibre;
    }
    Fibre* pop() {
        Fibre* fibre = head;
        head = fibre->next;
        if (!head)
            tail = nullptr;
        return fibre;
    }
    void append(FibreList& other) {
        if (!other.head)
            return;
        if (tail)
            tail->next = other.head;
        else
            head = other.head;
        tail = other.tail;
        other = {};
    }
};

// A collective in progress among the lanes of one mask. Its two exchanges take turns: a lane may bring its
// value to the next collective before slower lanes have read the last one.
struct Slot {
    unsigned mask = 0;
    unsigned arrived = 0;
    unsigned turn = 0;
    const char* operation = "";
    CudamasterCpuCombine combine = nullptr;
    FibreList waiting;
    CudamasterCpuExchange exchanges[2] = {};
};

struct Warp {
    unsigned exited = 0;    // lanes that ended, or that the block never had
    unsigned open = 0;      // slots with lanes waiting
    unsigned registers = 0; // of each thread, by setmaxnreg; 0 where it was not said
    std::vector<std::unique_ptr<Slot>> slots;
};

struct Barrier {
    unsigned arrived = 0;
    int kind = 0;
    int count = 0;
    int result = 0;
    FibreList waiting;
};

// A barrier with a number. It may be for some of the block's threads, and some may come without waiting.
struct NumberedBarrier {
    unsigned expected = 0; // threads; 0 are all
    unsigned arrived = 0;
    int kind = CUDAMASTER_CPU_ARRIVE; // of those who wait
    int count = 0;
    FibreList waiting;
    unsigned members[kMaxThreads / kWarp] = {}; // who has come, by warp and lane
    unsigned takers[kMaxThreads / kWarp] = {};  // who waits
};
constexpr unsigned kNumberedBarriers = 16;

struct Worker;

// Blocks that are alive together and reach each other's shared memory. Each has an OS thread of its own, and these take
// turns: one of them runs, until no thread of its block can go on. So nothing of a cluster is ever done at the same time, and
// what is found in it does not depend on the machine. A block without others is a cluster of one.
struct Cluster {
    static constexpr unsigned kNobody = ~0u;
    unsigned size = 1;
    Worker* members[kMaxCluster] = {}; // by rank
    bool failed = false;               // a block of it was given up: the others are, too
    unsigned begun = 0;
    void* observed = nullptr; // what an observer keeps of it
    // Its barrier. Threads come to it and wait for it in two steps.
    unsigned phase = 0, arrived = 0;
    unsigned arrived_exited = 0; // of those some have ended since
    // Of the OS threads.
    std::mutex mutex;
    std::condition_variable gathered, passed[kMaxCluster];
    unsigned waiting = 0, generation = 0; // where they gather
    unsigned turn = kNobody;
    unsigned long long number = 0; // of the cluster in the grid
};

// An asynchronous copy into shared memory: it takes place when its thread waits for it, and not before.
struct Copy {
    char* target;
    const char* source;
    unsigned bytes;
    unsigned from_source; // the rest becomes zero
    const void* site;
    unsigned thread;
    const void* barrier; // that tells of it, where no wait of the thread does
    unsigned late; // of an observer: as what it knows this one and those that will be waited for with it
};
struct Copies {
    std::vector<Copy> pending;
    std::vector<size_t> groups; // where each committed group ends in `pending`
    size_t landed = 0;          // before those in `pending`
    unsigned late = 0;          // of the next one, where some before it will be waited for with it
};

// Bytes of a copy in bulk that lie side by side on both sides. Outside of a tensor there is no source.
struct BulkPiece {
    char* target;
    const char* source;
    unsigned bytes;
};
// A copy in bulk: for an mbarrier, or for a group of its thread. Or the arrival that a thread's single copies make.
struct Bulk {
    std::vector<BulkPiece> pieces;
    unsigned bytes = 0;     // of all pieces
    unsigned char fill = 0; // of pieces without a source
    void* barrier = nullptr;
    Worker* issuer = nullptr;
    unsigned thread = 0;
    const void* site = nullptr;
    bool arrives = false;
    CudamasterCpuReduce reduce = nullptr; // in place of a write
    bool generic = false;                 // st.async, red.async: threads' own proxy, no fence between the two
    size_t copies = 0;                    // single copies of the thread before it
    bool again = false;                   // the source was read for another block already
    bool taken = false;                   // its source was read ...
    std::vector<char> content;            // ... and was this
    unsigned read = 0, written = 0;       // of an observer: as what it knows the two
};
struct BulkGroups {
    std::vector<Bulk> pending;
    std::vector<size_t> ends; // of each committed group
};

// Accumulators of a thread's products, told apart by where the first one is.
struct Accumulators {
    const void* first = nullptr;
    std::vector<unsigned> bits; // as the last product left them, or the first in flight found them
    unsigned in_flight = 0;
    unsigned long long fences = 0; // that the thread had made when a product changed them last
};

// Products of a thread's warpgroup that nobody has waited for, the oldest first. A block has thousands of them, so their
// room is used again, and where their accumulators are is only kept if anybody looks at these.
class PendingProducts {
  public:
    void push(const CudamasterCpuWgmma& product, bool with_accumulators) {
        if (behind_ == room_.size() && first_) {
            std::copy(room_.begin() + static_cast<long>(first_), room_.end(), room_.begin());
            if (accumulators_.size() == room_.size())
                std::copy(accumulators_.begin() + static_cast<long>(first_), accumulators_.end(),
                          accumulators_.begin());
            behind_ -= std::exchange(first_, 0);
        }
        if (behind_ == room_.size())
            room_.emplace_back();
        if (with_accumulators) {
            accumulators_.resize(room_.size());
            std::copy(product.d, product.d + product.count, accumulators_[behind_].begin());
        }
        room_[behind_++] = product;
    }
    void pop(size_t count) {
        first_ += count;
        if (first_ == behind_)
            first_ = behind_ = 0;
    }
    size_t size() const { return behind_ - first_; }
    bool empty() const { return first_ == behind_; }
    const CudamasterCpuWgmma& operator[](size_t i) {
        CudamasterCpuWgmma& product = room_[first_ + i];
        product.d = first_ + i < accumulators_.size() ? accumulators_[first_ + i].data() : nullptr;
        return product;
    }

  private:
    static constexpr size_t kMostAccumulators = 128;
    std::vector<CudamasterCpuWgmma> room_;
    std::vector<std::array<void*, kMostAccumulators>> accumulators_;
    size_t first_ = 0, behind_ = 0;
};

// Products that a thread's warpgroup has begun.
struct WgmmaGroups {
    PendingProducts pending;
    std::vector<size_t> ends; // of each committed group
    unsigned long long fences = 0;
    std::vector<Accumulators> accumulators;
};

// What the four warps of a warpgroup multiply: each has to come to the same products, with the same operands.
struct Warpgroup {
    static constexpr unsigned kWarps = 4;
    struct Product {
        unsigned long long a_descriptor, b_descriptor;
        unsigned columns;
        int a_kind, scale_d;
    };
    std::deque<Product> products; // that not all have come to
    unsigned long long first = 0; // and which one that is
    unsigned long long made[kWarps] = {};
};

// One launch as its workers share it.
struct Job {
    const CudamasterCpuLaunch* launch = nullptr;
    dim3 shape{1, 1, 1};       // of a cluster
    unsigned cluster_size = 1; // in blocks
    std::vector<std::unique_ptr<Cluster>>
        clusters; // of as many as run at a time, where they are of several blocks
    unsigned long long blocks = 0;
    unsigned threads = 0;
    unsigned long long chunk = 1;
    bool reversed = false;
    std::atomic<unsigned long long> next_block{0};
    // Where an observer wants the last block to run behind all others: the latest that was drawn, and workers that draw.
    static constexpr unsigned long long kNoBlock = ~0ull;
    std::atomic<unsigned long long> kept_back{kNoBlock};
    std::atomic<unsigned> drawing{0};
    std::atomic<bool> failed{false};
    std::atomic<bool> again{false}; // a block has said that it is for clusters of another shape
    dim3 wanted{};                  // which it is
    // Grid barrier of a cooperative launch.
    std::mutex grid_mutex;
    std::condition_variable grid_released;
    unsigned long long grid_arrived = 0;
    unsigned long long grid_ended = 0;
    unsigned long long grid_generation = 0;
};

// What one OS thread needs to run blocks.
struct Worker {
    Fibre* current = nullptr;
    FibreList ready;
    Fibre* idle = nullptr;
    FibreList left; // their threads ended within the kernel: idle, once another stack is in use
    void (*invoke)(const void*) = nullptr;
    const void* closure = nullptr;
    Job* job = nullptr;
    unsigned started = 0;
    unsigned total = 0;
    unsigned exited = 0;
    unsigned linear = 0;          // of the thread that runs now
    const uint3* block = nullptr; // its blockIdx, for other OS threads
    bool running = false;
    bool block_failed = false;
    Barrier barrier;
    Cluster alone; // of blocks without others
    Cluster* cluster = &alone;
    unsigned rank = 0;
    bool ended = false;   // the block has, and others of its cluster have not
    bool polling = false; // a thread of it has let other blocks run
    bool outside = false; // waits for other clusters
    FibreList at_cluster; // threads at the barrier of the cluster
    std::vector<unsigned>
        came_to; // by thread: the cluster's phase after that it has come to; 0 once it has waited
    unsigned yields = 0;
    NumberedBarrier numbered[kNumberedBarriers];
    bool numbered_used = false;
    std::vector<Copies> copies;          // by thread, where any has made one
    std::vector<Bulk> bulks;             // on their way to mbarriers
    std::vector<BulkGroups> bulk_groups; // by thread, where any has made one
    std::vector<WgmmaGroups> wgmmas;     // by thread, where any has made one
    std::vector<Warpgroup> warpgroups;   // of them, where any has made one
    FibreList at_mbarriers;
    unsigned polls = 0;
    unsigned stalls = 0;    // since a phase of any mbarrier was complete
    unsigned questions = 0; // yields of its threads, since copies came to those who wait at mbarriers
    FibreList asking;       // threads in __activemask
    Warp warps[kMaxThreads / kWarp];
    void* home = nullptr; // the worker's own stack while a block runs
    void* home_sanitizer_stack = nullptr;
    const void* home_bottom = nullptr;
    size_t home_bytes = 0;
    std::vector<std::unique_ptr<Fibre>> fibres;
    char* shared_arena = nullptr;
    uintptr_t variables = 0; // thread-local ones, shared variables among them
    size_t variable_bytes = 0;
    struct ExactShared {
        const void* key;
        void* memory;
        size_t bytes;
    };
    std::vector<ExactShared> exact_shared;
    void* observer =
        nullptr; // of an observer that keeps something; thread-local variables are poisoned with each launch
};

extern __thread Worker* worker;

bool reversed_order();
int multiprocessors();

// fibres.cpp
Fibre* new_fibre(Worker& self);
void reset_fibre(Fibre& fibre);
bool in_stack_guard(const Worker& self, const void* address);
[[noreturn]] void fibre_main();

// block.cpp
// `place` is that of the block in the grid, `number` counts it there.
void run_block(Worker& self, uint3 place, unsigned long long number);
uint3 block_at(unsigned long long number);
[[noreturn]] void abandon_block(Worker& self);
// The running thread lets others of its block or cluster go on, for which it waits.
void let_others_run(Worker& self);

// barrier.cpp
inline bool barrier_complete(const Worker& self) {
    return self.barrier.arrived && self.barrier.arrived + self.exited == self.total;
}
void release_barrier(Worker& self);
void leave_grid(Job& job);
void release_numbered_without_exited(Worker& self);
void leave_cluster(Worker& self);
unsigned missing_in_cluster(const Cluster& cluster); // threads at its barrier

// cluster.cpp
inline bool in_cluster(const Worker& self) {
    return self.cluster->size > 1;
}
void run_clusters(Worker& self, Job& job, unsigned member);
// The block's turn comes; it has prepared and begins; it ends for good.
void wait_for_turn(Worker& self);
void begin_in_cluster(Worker& self);
void end_in_cluster(Worker& self);
// No thread of the block can go on: others of its cluster run until one can. False where no block can go on.
bool wait_for_cluster(Worker& self);
// The others may run for a while, for a thread polls. False where there was no need or nobody could.
bool share_turn(Worker& self, bool alone);
// While the block waits for other clusters.
class OutsideOfCluster {
  public:
    explicit OutsideOfCluster(Worker& self);
    ~OutsideOfCluster();
    OutsideOfCluster(const OutsideOfCluster&) = delete;
    OutsideOfCluster& operator=(const OutsideOfCluster&) = delete;

  private:
    Worker& self_;
};
// Whose shared memory the place is in: the running block's own where it is nobody's.
Worker& owner_of(const void* place);

// copies.cpp
void drop_copies(Worker& self);
// How many single copies the running thread has made that may be in flight; and so many of a thread land.
size_t pending_copies(Worker& self);
void land_copies_of(Worker& self, unsigned thread, size_t count, const void* barrier);

// mbarrier.cpp
// Nobody can go on: copies come that threads of the block wait for; or its waits end without them, a few times.
bool land_at_mbarriers(Worker& self);
bool give_up_at_mbarriers(Worker& self);
bool has_unread_source(const Worker& self, unsigned thread);
bool lacks_bulk(const Worker& self, unsigned thread);
void end_bulks(Worker& self);
void start_bulk(Bulk bulk);
// The places in the shared memory of each of the cluster's `blocks` (bits), and whether it is not the first of them.
template <class Act> void to_each_block(unsigned blocks, void* target, void* barrier, Act act) {
    bool again = false;
    for (unsigned rank = 0; blocks >> rank; ++rank)
        if (blocks >> rank & 1) {
            act(cudamaster_cpu_in_block(target, rank), cudamaster_cpu_in_block(barrier, rank), again);
            again = true;
        }
}

// wgmma.cpp
bool has_open_products(const Worker& self, unsigned thread);
// Whether some warps of the thread's warpgroup have made products that others have not.
bool lacks_products(const Worker& self, unsigned thread);
void end_wgmmas(Worker& self);
void describe_mbarrier(const void* place, unsigned parity, char* text, size_t bytes);

// warp.cpp
void complete_without_exited(Worker& self, Warp& warp);
void answer_active_mask(Worker& self);

// failure.cpp
[[noreturn]] void fail_deadlock(Worker& self);
[[noreturn]] void fail_block(const char* what);

// shared.cpp
void prepare_shared(Worker& self, size_t bytes);
bool shared_intact(Worker& self, size_t bytes);
// Of an exact allocation's alignment its shared address keeps so much.
inline size_t kept_alignment(size_t bytes) {
    size_t step = 16;
    while (step <= bytes && step < 1024)
        step *= 2;
    return step;
}
// Where in the block's dynamic array a place is, -1 where it is in none.
long long offset_in_dynamic(const Worker& self, const void* place);
// A place in the block's own window; one outside of it ends the block.
void* own_shared_place(unsigned offset);
bool holds_shared(const Worker& self, const void* place);

// names.cpp
// "full", "at byte 8 of full", "at byte 512 of dynamic shared memory"
void name_of_shared(const void* place, char* text, size_t bytes);
// The block's static shared variable with that key, null where it has none yet; more than a block may have ends it.
void* known_shared(const Worker& self, const void* key, size_t bytes);
void free_exact_shared(Worker& self);

// watch.cpp
class Watch {
  public:
    // Called once a second, by a thread other than the worker's.
    void look(const Worker& worker, const CudamasterCpuLaunch& launch);

  private:
    unsigned started_ = 0;
    unsigned linear_ = 0;
    uint3 block_{};
    unsigned seconds_ = 0; // for which nothing changed
};

// memory.cpp
bool canaries_intact();
// Keeps a range open to the runtime, where it lies in a device allocation.
class Opened {
  public:
    Opened(const void* address, size_t bytes);
    ~Opened();
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;

  private:
    char* base_ = nullptr; // of the allocation, and its pieces
    size_t first_ = 0;
    size_t last_ = 0;
};
void open_for_launch(const CudamasterCpuLaunch& launch);
void close_after_launch();
bool is_allocated(const void* address);
bool open_on_touch(const void* address);
bool is_device_memory(const void* address);
bool describe_address(const void* address, char* text, size_t bytes);

// host.cpp
void close_host_memory(const CudamasterCpuLaunch& launch);
void reopen_host_memory();

// fault.cpp
void install_fault_handlers();
void install_alternate_stack();
void print_where(const char* kernel, const char* what);
void print_host_access(const void* address);
void print_misaligned(const void* address, const char* type, unsigned long alignment, const char* file,
                      unsigned line);

// errors.cpp
cudaError_t report(cudaError_t error);
cudaError_t sticky_error();
void set_sticky_error(cudaError_t error);

} // namespace executor
