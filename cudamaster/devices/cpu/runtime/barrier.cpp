// Barriers of a block and of a cooperative launch's grid: the last thread to come wakes the others.
#include "observe.h"
#include "schedule.h"

namespace executor {

namespace {

// The caller holds the mutex.
void release_grid(Job& job) {
    job.grid_arrived = 0;
    ++job.grid_generation;
    job.grid_released.notify_all();
}

void grid_wait(Job& job) {
    std::unique_lock<std::mutex> lock(job.grid_mutex);
    if (++job.grid_arrived + job.grid_ended == job.blocks) {
        release_grid(job);
        return;
    }
    unsigned long long generation = job.grid_generation;
    job.grid_released.wait(lock, [&] { return job.grid_generation != generation || job.failed.load(); });
}

} // namespace

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
        if (self.job->failed.load(std::memory_order_relaxed))
            abandon_block(self);
        break;
    default:
        break;
    }
    observe::barrier_completes(self, barrier.kind);
    barrier.arrived = 0;
    barrier.count = 0;
    self.ready.append(barrier.waiting);
}

void leave_grid(Job& job) {
    std::lock_guard<std::mutex> lock(job.grid_mutex);
    ++job.grid_ended;
    // The grid barrier waits for blocks that are still there.
    if (job.failed.load() || (job.grid_arrived && job.grid_arrived + job.grid_ended == job.blocks))
        release_grid(job);
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
    observe::barrier_arrives(self, kind);
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
