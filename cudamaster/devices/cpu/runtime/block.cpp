// Runs the threads of one block: back to back on one stack, each on a stack of its own only once another one
// waits.
#include "executor.h"
#include "switch.h"

#include <sched.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

__thread uint3 threadIdx;
__thread uint3 blockIdx;
__thread dim3 blockDim;
__thread dim3 gridDim;
__thread unsigned char* cudamaster_cpu_dynamic_shared;

namespace executor {

__thread Worker* worker;

namespace {

void enter(Worker& self, Fibre* fibre) {
    self.current = fibre;
    threadIdx = fibre->index;
    self.linear = fibre->linear;
}

// Suspends the running fibre and goes on with another one.
inline __attribute__((always_inline)) void switch_to(Worker& self, Fibre* from, Fibre* to) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->sanitizer_stack, to->stack + kGuardBytes, kStackBytes);
#endif
    enter(self, to);
    switch_stack(&from->stack_pointer, to->stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from->sanitizer_stack, nullptr, nullptr);
#endif
}

void go_home(Worker& self, Fibre* from) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->sanitizer_stack, self.home_bottom, self.home_bytes);
#endif
    switch_stack(&from->stack_pointer, self.home);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from->sanitizer_stack, nullptr, nullptr);
#endif
}

Fibre* take_idle(Worker& self) {
    Fibre* fibre = self.idle;
    if (!fibre)
        return new_fibre(self);
    self.idle = fibre->next;
    return fibre;
}

bool barrier_complete(const Worker& self) {
    return self.barrier.arrived && self.barrier.arrived + self.exited == self.total;
}

void release_barrier(Worker& self) {
    Barrier& barrier = self.barrier;
    switch (barrier.kind) {
    case CUDAMASTER_CPU_SYNC_COUNT:
        barrier.result = barrier.count;
        break;
    case CUDAMASTER_CPU_SYNC_AND:
        barrier.result = barrier.count == static_cast<int>(barrier.arrived);
        break;
    case CUDAMASTER_CPU_SYNC_OR:
        barrier.result = barrier.count != 0;
        break;
    case CUDAMASTER_CPU_SYNC_GRID:
        grid_wait(*self.job);
        if (self.job->failed.load(std::memory_order_relaxed)) {
            self.block_failed = true;
            go_home(self, self.current);
        }
        break;
    default:
        break;
    }
    barrier.arrived = 0;
    barrier.count = 0;
    self.ready.append(barrier.waiting);
}

CudamasterCpuExchange* complete(Worker& self, Warp& warp, Slot& slot) {
    CudamasterCpuExchange* exchange = &slot.exchanges[slot.turn];
    exchange->arrived = slot.arrived;
    exchange->unread = static_cast<unsigned>(__builtin_popcount(slot.arrived));
    if (slot.arrived != ~0u)
        for (unsigned lane = 0; lane < kWarp; ++lane)
            if (!(slot.arrived >> lane & 1))
                exchange->values[lane] = ~0ull;
    if (slot.combine)
        slot.combine(exchange);
    slot.arrived = 0;
    slot.turn ^= 1;
    --warp.open;
    self.ready.append(slot.waiting);
    return exchange;
}

Slot& slot_of(Warp& warp, unsigned mask) {
    for (auto& slot : warp.slots)
        if (slot->mask == mask)
            return *slot;
    for (auto& slot : warp.slots)
        if (!slot->arrived && !slot->exchanges[0].unread && !slot->exchanges[1].unread) {
            slot->mask = mask;
            return *slot;
        }
    warp.slots.push_back(std::make_unique<Slot>());
    warp.slots.back()->mask = mask;
    return *warp.slots.back();
}

// Lanes that ended can't arrive any more: what waited for them alone goes on.
void thread_exits(Worker& self) {
    ++self.exited;
    Warp& warp = self.warps[self.linear / kWarp];
    warp.exited |= 1u << self.linear % kWarp;
    if (__builtin_expect(warp.open != 0, 0))
        for (auto& slot : warp.slots)
            if (slot->arrived && ((slot->arrived | warp.exited) & slot->mask) == slot->mask)
                complete(self, warp, *slot);
    if (__builtin_expect(self.barrier.arrived != 0, 0) && barrier_complete(self))
        release_barrier(self);
}

// Nothing can run: the threads that asked which lanes run with them are the ones that do.
void answer_active_mask(Worker& self) {
    Fibre* first = self.asking.head;
    FibreList others, released;
    unsigned mask = 0;
    while (self.asking.head) {
        Fibre* fibre = self.asking.pop();
        bool together = fibre->linear / kWarp == first->linear / kWarp && fibre->site == first->site;
        (together ? released : others).push(fibre);
        if (together)
            mask |= 1u << fibre->linear % kWarp;
    }
    for (Fibre* fibre = released.head; fibre; fibre = fibre->next)
        fibre->active_mask = mask;
    self.asking = others;
    self.ready.append(released);
}

void describe_wait(const Worker& self, const Fibre& fibre) {
    char what[160];
    if (fibre.wait == Wait::kWarp) {
        const Warp& warp = self.warps[fibre.linear / kWarp];
        unsigned arrived = 0;
        for (const auto& slot : warp.slots)
            if (slot->mask == fibre.mask)
                arrived = slot->arrived;
        std::snprintf(what, sizeof what, "waits in %s(mask 0x%08x) for lanes 0x%08x that never come",
                      fibre.operation, fibre.mask, fibre.mask & ~arrived & ~warp.exited);
    } else {
        std::snprintf(what, sizeof what, "waits in %s that %u of %u threads never reach", fibre.operation,
                      self.total - self.exited - self.barrier.arrived, self.total);
    }
    threadIdx = fibre.index;
    print_where(self.job->launch->kernel, what);
}

[[noreturn]] void deadlock(Worker& self) {
    std::fprintf(stderr, "cuda device deadlock: no thread of the block can go on\n");
    const Fibre* first = nullptr;
    unsigned shown = 0;
    for (const auto& fibre : self.fibres) {
        if (fibre->wait == Wait::kNone)
            continue;
        // The first of each kind says it all.
        if (first && first->wait == fibre->wait && first->mask == fibre->mask)
            continue;
        first = fibre.get();
        describe_wait(self, *fibre);
        if (++shown == 4)
            break;
    }
    self.block_failed = true;
    go_home(self, self.current);
    __builtin_unreachable();
}

// The next fibre to run when the current one can't: a woken thread, then one that was not started yet.
inline Fibre* next_fibre(Worker& self) {
    if (__builtin_expect(self.ready.head != nullptr, 1))
        return self.ready.pop();
    if (self.started < self.total)
        return take_idle(self);
    while (self.asking.head) {
        answer_active_mask(self);
        if (self.ready.head)
            return self.ready.pop();
    }
    return nullptr;
}

void block_current(Worker& self, Fibre* me) {
    me->index = threadIdx;
    me->linear = self.linear;
    Fibre* to = next_fibre(self);
    if (!to)
        deadlock(self);
    if (to != me)
        switch_to(self, me, to);
    me->wait = Wait::kNone;
}

void first_index(Worker& self) {
    if (self.job->reversed) {
        threadIdx = {blockDim.x - 1, blockDim.y - 1, blockDim.z - 1};
        self.linear = self.total - 1;
    } else {
        threadIdx = {0, 0, 0};
        self.linear = 0;
    }
}

// `number` counts the threads in the order in which they start.
void set_index(Worker& self, unsigned number) {
    unsigned linear = self.job->reversed ? self.total - 1 - number : number;
    self.linear = linear;
    unsigned x = linear % blockDim.x, rest = linear / blockDim.x;
    threadIdx = {x, rest % blockDim.y, rest / blockDim.y};
}

} // namespace

void fibre_main() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
    Worker& self = *worker;
    for (;;) {
        Fibre* me = self.current;
        // A fibre that was idle is woken to start a thread, even where others are ready.
        if (self.started < self.total) {
            set_index(self, self.started);
            bool rows = !self.job->reversed;
            do {
                ++self.started;
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
            me->next = self.idle;
            self.idle = me;
            go_home(self, me);
            continue;
        }
        Fibre* to = next_fibre(self);
        if (!to)
            deadlock(self);
        me->next = self.idle;
        self.idle = me;
        if (to != me)
            switch_to(self, me, to);
    }
}

void run_block(Worker& self, unsigned long long block) {
    Job& job = *self.job;
    unsigned long long number = job.reversed ? job.blocks - 1 - block : block;
    blockIdx = {static_cast<unsigned>(number % gridDim.x),
                static_cast<unsigned>(number / gridDim.x % gridDim.y),
                static_cast<unsigned>(number / gridDim.x / gridDim.y)};
    self.started = 0;
    self.exited = 0;
    self.total = job.threads;
    for (unsigned warp = 0; warp * kWarp < job.threads; ++warp) {
        unsigned lanes = job.threads - warp * kWarp;
        self.warps[warp].exited = lanes >= kWarp ? 0 : ~0u << lanes;
    }
    Fibre* first = take_idle(self);
    self.current = first;
    first_index(self);
    first->index = threadIdx;
    first->linear = self.linear;
    self.running = true;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&self.home_sanitizer_stack, first->stack + kGuardBytes, kStackBytes);
#endif
    switch_stack(&self.home, first->stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(self.home_sanitizer_stack, nullptr, nullptr);
#endif
    self.running = false;
    if (self.block_failed) {
        // Threads that will never go on leave their stacks behind.
        job.failed.store(true);
        self.ready = {};
        self.asking = {};
        self.barrier = {};
        self.idle = nullptr;
        for (auto& fibre : self.fibres) {
            reset_fibre(*fibre);
            fibre->next = self.idle;
            self.idle = fibre.get();
        }
        for (Warp& warp : self.warps) {
            warp.slots.clear();
            warp.open = 0;
        }
        self.block_failed = false;
    }
    for (auto& shared : self.exact_shared)
        std::free(shared.memory);
    self.exact_shared.clear();
}

void fail_block(const char* what) {
    Worker& self = *worker;
    std::fprintf(stderr, "cuda device error: %s\n", what);
    print_where(self.job->launch->kernel, what);
    self.block_failed = true;
    go_home(self, self.current);
    __builtin_unreachable();
}

} // namespace executor

using namespace executor;

int cudamaster_cpu_barrier(int kind, int predicate) {
    Worker& self = *worker;
    Barrier& barrier = self.barrier;
    if (!barrier.arrived)
        barrier.kind = kind;
    else if (__builtin_expect(barrier.kind != kind, 0))
        fail_block("threads of the block meet in different barriers");
    ++barrier.arrived;
    barrier.count += predicate != 0;
    if (barrier_complete(self)) {
        release_barrier(self);
        return barrier.result;
    }
    Fibre* me = self.current;
    barrier.waiting.push(me);
    me->wait = Wait::kBarrier;
    me->operation = kind == CUDAMASTER_CPU_SYNC_GRID ? "a grid barrier" : "a block barrier";
    me->mask = 0;
    block_current(self, me);
    return barrier.result;
}

CudamasterCpuExchange* cudamaster_cpu_warp(unsigned mask, const char* operation, unsigned long long value,
                                           CudamasterCpuCombine combine) {
    Worker& self = *worker;
    unsigned lane = self.linear % kWarp;
    if (__builtin_expect(!(mask >> lane & 1), 0))
        fail_block("a warp collective whose mask leaves out the lane that calls it");
    Warp& warp = self.warps[self.linear / kWarp];
    Slot& slot = slot_of(warp, mask);
    CudamasterCpuExchange* exchange = &slot.exchanges[slot.turn];
    if (!slot.arrived) {
        slot.operation = operation;
        slot.combine = combine;
        ++warp.open;
    } else if (__builtin_expect(slot.operation != operation, 0) &&
               std::strcmp(slot.operation, operation) != 0) {
        fail_block("lanes of one mask meet in different warp collectives");
    }
    exchange->values[lane] = value;
    slot.arrived |= 1u << lane;
    if (((slot.arrived | warp.exited) & mask) == mask)
        return complete(self, warp, slot);
    Fibre* me = self.current;
    slot.waiting.push(me);
    me->wait = Wait::kWarp;
    me->operation = operation;
    me->mask = mask;
    block_current(self, me);
    return exchange;
}

unsigned cudamaster_cpu_activemask() {
    Worker& self = *worker;
    Fibre* me = self.current;
    me->site = __builtin_return_address(0);
    me->wait = Wait::kActiveMask;
    self.asking.push(me);
    block_current(self, me);
    return me->active_mask;
}

void cudamaster_cpu_yield() {
    Worker& self = *worker;
    Fibre* to = nullptr;
    if (self.running) {
        // Threads that have not started come first: a waiting loop must not keep them out.
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
    me->index = threadIdx;
    me->linear = self.linear;
    self.ready.push(me);
    switch_to(self, me, to);
}

void* cudamaster_cpu_exact_shared(const void* key, size_t bytes, size_t alignment) {
    Worker& self = *worker;
    size_t total = bytes;
    for (auto& shared : self.exact_shared) {
        if (shared.key == key)
            return shared.memory;
        total += shared.bytes;
    }
    if (total > kStaticShared)
        fail_block("more than 48 KB of static shared memory");
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment, bytes) != 0)
        fail_block("no memory for shared variables");
    std::memset(memory, 0xff, bytes);
    self.exact_shared.push_back({key, memory, bytes});
    return memory;
}

unsigned cudamaster_cpu_lane() {
    return worker->linear % kWarp;
}
int cudamaster_cpu_cooperative() {
    return worker->job->launch->cooperative;
}
size_t cudamaster_cpu_dynamic_shared_bytes() {
    return worker->job->launch->shared_bytes;
}
