// Runs the threads of one block: back to back on one stack, each on a stack of its own only once another one
// waits.
#include "observe.h"
#include "schedule.h"

#include <sched.h>
#include <algorithm>
#include <cstdio>

__thread uint3 threadIdx;
__thread uint3 blockIdx;
__thread dim3 blockDim;
__thread dim3 gridDim;

namespace executor {

__thread Worker* worker;

namespace {

// What waited for this thread alone goes on.
void thread_exits(Worker& self) {
    observe::thread_ends(self);
    ++self.exited;
    self.current->polls = 0;
    Warp& warp = self.warps[self.linear / kWarp];
    warp.exited |= 1u << self.linear % kWarp;
    if (__builtin_expect(warp.open != 0, 0))
        complete_without_exited(self, warp);
    if (__builtin_expect(self.barrier.arrived != 0, 0) && barrier_complete(self))
        release_barrier(self);
    if (__builtin_expect(self.numbered_used, 0))
        release_numbered_without_exited(self);
    leave_cluster(self);
}

// `number` counts the threads in the order in which they start.
void set_index(Worker& self, unsigned number) {
    unsigned linear = self.job->reversed ? self.total - 1 - number : number;
    self.linear = linear;
    unsigned x = linear % blockDim.x, rest = linear / blockDim.x;
    threadIdx = {x, rest % blockDim.y, rest / blockDim.y};
}

// Stacks that threads have left in the middle of the kernel are new ones again.
void renew_left(Worker& self) {
    while (self.left.head) {
        Fibre* fibre = self.left.pop();
        reset_fibre(*fibre);
        keep_idle(self, fibre);
    }
}

// Threads that will never go on leave their stacks behind.
void abandon_threads(Worker& self) {
    self.ready = {};
    self.left = {};
    self.asking = {};
    self.at_mbarriers = {};
    self.at_cluster = {};
    self.polling = false;
    self.barrier = {};
    for (NumberedBarrier& barrier : self.numbered)
        barrier = {};
    self.idle = nullptr;
    for (auto& fibre : self.fibres) {
        reset_fibre(*fibre);
        keep_idle(self, fibre.get());
    }
    for (Warp& warp : self.warps) {
        warp.slots.clear();
        warp.open = 0;
    }
}

// Whether warps have taken more registers than others gave back, even where each thread began with as many as a block of that
// size may have. A GPU then waits for them for ever.
bool has_too_many_registers(const Worker& self) {
    constexpr unsigned kRegisters = 1 << 16, kMost = 256;
    unsigned warps = (self.total + kWarp - 1) / kWarp;
    unsigned each = std::min(kRegisters / (warps * kWarp) / 8 * 8, kMost);
    long long more = 0;
    for (unsigned warp = 0; warp < warps; ++warp)
        if (unsigned registers = self.warps[warp].registers)
            more += static_cast<long long>(registers) - each;
    return more > 0;
}

// All threads have ended: a copy or a product that none of them has waited for is never done for certain.
void fail_left_open(Worker& self) {
    for (unsigned number = 0; number < self.total; ++number) {
        set_index(self, number);
        const char* what =
            has_unread_source(self, self.linear)
                ? "ends before its copy in bulk has read shared memory: a "
                  "cp.async.bulk.wait_group behind its commit_group is missing"
            : lacks_bulk(self, self.linear) ? "ends before a copy in bulk into its shared memory has come: a "
                                              "wait at its mbarrier is missing"
            : has_open_products(self, self.linear)
                ? "ends before its wgmma is done: a wgmma.wait_group behind its "
                  "commit_group is missing"
            : lacks_products(self, self.linear)
                ? "ends before all four warps of a warpgroup have made a wgmma: warps 0 to 3, 4 to 7 "
                  "and so on make each together"
            : has_too_many_registers(self)
                ? "has taken more registers by setmaxnreg.inc than it has: a GPU waits there until "
                  "setmaxnreg.dec of other warps gives some back"
                : nullptr;
        if (!what)
            continue;
        std::fprintf(stderr, "cuda device error: a block %s\n", what);
        print_where(self.job->launch->kernel, what);
        self.block_failed = true;
        self.cluster->failed = in_cluster(self);
        return;
    }
}

} // namespace

void fibre_main() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
    Worker& self = *worker;
    if (in_cluster(self) && self.job->launch->cooperative)
        observe::uncounted("a cooperative launch of clusters");
    for (;;) {
        Fibre* me = self.current;
        // A fibre that was idle is woken to start a thread, even where others are ready.
        if (self.started < self.total) {
            set_index(self, self.started);
            bool rows = !self.job->reversed;
            do {
                ++self.started;
                observe::thread_begins(self);
                self.invoke(self.closure);
                thread_exits(self);
                if (self.started >= self.total || self.ready.head)
                    break;
                // Other threads may have started on other stacks meanwhile, so only a neighbour is one step
                // away.
                if (rows && self.linear + 1 == self.started && threadIdx.x + 1 < blockDim.x) {
                    ++threadIdx.x;
                    ++self.linear;
                } else {
                    set_index(self, self.started);
                }
            } while (true);
        }
        if (self.exited == self.total) {
            keep_idle(self, me);
            go_home(self, me);
            continue;
        }
        Fibre* to = next_fibre(self);
        if (!to)
            fail_deadlock(self);
        keep_idle(self, me);
        if (to != me)
            switch_to(self, me, to);
    }
}

uint3 block_at(unsigned long long number) {
    return {static_cast<unsigned>(number % gridDim.x), static_cast<unsigned>(number / gridDim.x % gridDim.y),
            static_cast<unsigned>(number / gridDim.x / gridDim.y)};
}

void run_block(Worker& self, uint3 place, unsigned long long number) {
    Job& job = *self.job;
    blockIdx = place;
    Cluster& cluster = *self.cluster;
    cluster.members[self.rank] = &self;
    if (in_cluster(self))
        wait_for_turn(self);
    else
        cluster.phase = cluster.arrived = cluster.arrived_exited = cluster.begun = 0;
    self.started = 0;
    self.exited = 0;
    self.total = job.threads;
    for (unsigned warp = 0; warp * kWarp < job.threads; ++warp) {
        unsigned lanes = job.threads - warp * kWarp;
        self.warps[warp].exited = lanes >= kWarp ? 0 : ~0u << lanes;
        self.warps[warp].registers = 0;
    }
    if (self.numbered_used) // arrivals that the block before left behind are not this one's
        std::fill(std::begin(self.numbered), std::end(self.numbered), NumberedBarrier{});
    self.numbered_used = false;
    set_index(self, 0);
    observe::block_begins(self, number);
    ++cluster.begun;
    if (in_cluster(self))
        begin_in_cluster(self);
    self.block_failed = cluster.failed;
    if (!self.block_failed) {
        self.running = true;
        leave_home(self, take_idle(self));
        self.running = false;
    }
    if (!self.block_failed)
        fail_left_open(self);
    observe::block_ends(self);
    if (self.block_failed) {
        if (!observe::gave_up(self) && !job.again.load())
            job.failed.store(true);
        abandon_threads(self);
    }
    renew_left(self);
    self.came_to.clear();
    drop_copies(self);
    end_bulks(self);
    end_wgmmas(self);
    self.block_failed = false;
    if (in_cluster(self))
        end_in_cluster(self); // its shared memory stays for the others
    else
        free_exact_shared(self);
}

// Of a block's threads, before copies come to others that wait for them at mbarriers.
constexpr unsigned kMostYields = 1 << 14;

void let_others_run(Worker& self) {
    Fibre* to = nullptr;
    if (self.running) {
        // Threads that have not started come first: a waiting loop must not keep them out.
        if (in_cluster(self) && share_turn(self, self.started == self.total && !self.ready.head))
            return;
        if (self.started < self.total)
            to = take_idle(self);
        else if (self.ready.head)
            to = self.ready.pop();
    }
    if (!to) {
        sched_yield();
        return;
    }
    Fibre* me = self.current;
    keep_place(self, me);
    self.ready.push(me);
    switch_to(self, me, to);
}

void abandon_block(Worker& self) {
    self.block_failed = true;
    self.cluster->failed = in_cluster(self);
    go_home(self, self.current);
    __builtin_unreachable();
}

} // namespace executor

using namespace executor;

void cudamaster_cpu_exit() {
    Worker& self = *worker;
    thread_exits(self);
    renew_left(self);
    Fibre *me = self.current, *to = take_idle(self);
    self.left.push(me);
    switch_to(self, me, to);
    __builtin_unreachable();
}

void cudamaster_cpu_yield() {
    Worker& self = *worker;
    observe::yields(self);
    // Copies come when nobody has anything else to do. Threads that ask again and again may ask for what one of those does
    // who wait for the copies.
    if (self.running && self.at_mbarriers.head && ++self.questions >= kMostYields) {
        self.questions = 0;
        land_at_mbarriers(self);
    }
    let_others_run(self);
}

unsigned cudamaster_cpu_lane() {
    return worker->linear % kWarp;
}
void cudamaster_cpu_registers(unsigned each) {
    worker->warps[worker->linear / kWarp].registers = each;
}
int cudamaster_cpu_cooperative() {
    return worker->job->launch->cooperative;
}
size_t cudamaster_cpu_dynamic_shared_bytes() {
    return worker->job->launch->shared_bytes;
}
