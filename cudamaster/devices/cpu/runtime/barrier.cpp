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
    case CUDAMASTER_CPU_SYNC_GRID: {
        OutsideOfCluster outside(self);
        grid_wait(*self.job);
    }
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

namespace {

bool numbered_complete(const Worker& self, const NumberedBarrier& barrier) {
    return barrier.arrived &&
           barrier.arrived == (barrier.expected ? barrier.expected : self.total - self.exited);
}

// What the barrier gives to those who waited.
int release_numbered(Worker& self, NumberedBarrier& barrier) {
    int result = barrier.kind == CUDAMASTER_CPU_SYNC_AND  ? barrier.count == static_cast<int>(barrier.arrived)
                 : barrier.kind == CUDAMASTER_CPU_SYNC_OR ? barrier.count != 0
                                                          : barrier.count;
    observe::numbered_completes(self, barrier.members, barrier.takers);
    for (Fibre* fibre = barrier.waiting.head; fibre; fibre = fibre->next)
        fibre->active_mask = static_cast<unsigned>(result);
    FibreList waiting = barrier.waiting;
    barrier = {};
    self.ready.append(waiting);
    return result;
}

// Complete with all who have not ended.
void settle_cluster(Cluster& cluster) {
    if (!cluster.arrived || missing_in_cluster(cluster))
        return;
    ++cluster.phase;
    cluster.arrived = cluster.arrived_exited = 0;
    for (unsigned rank = 0; rank < cluster.size; ++rank) {
        Worker& member = *cluster.members[rank];
        // Threads that have ended have come, too.
        for (unsigned thread = 0; thread < member.total; ++thread)
            if (member.warps[thread / kWarp].exited >> thread % kWarp & 1)
                observe::cluster_arrives(member, thread);
    }
    observe::cluster_completes(cluster);
    for (unsigned rank = 0; rank < cluster.size; ++rank)
        cluster.members[rank]->ready.append(cluster.members[rank]->at_cluster);
}

} // namespace

// The running thread has ended.
void leave_cluster(Worker& self) {
    Cluster& cluster = *self.cluster;
    if (!cluster.arrived)
        return;
    cluster.arrived_exited += !self.came_to.empty() && self.came_to[self.linear] == cluster.phase + 1;
    settle_cluster(cluster);
}

unsigned missing_in_cluster(const Cluster& cluster) {
    unsigned total = 0, exited = 0;
    for (unsigned rank = 0; rank < cluster.size; ++rank) {
        total += cluster.members[rank]->total;
        exited += cluster.members[rank]->exited;
    }
    return total - exited - (cluster.arrived - cluster.arrived_exited);
}

void release_numbered_without_exited(Worker& self) {
    for (NumberedBarrier& barrier : self.numbered)
        if (!barrier.expected && numbered_complete(self, barrier))
            release_numbered(self, barrier);
}

} // namespace executor

using namespace executor;

int cudamaster_cpu_numbered_barrier(unsigned number, unsigned threads, int kind, int predicate) {
    Worker& self = *worker;
    if (number >= kNumberedBarriers)
        fail_block("a barrier with a number above 15");
    if (threads % kWarp)
        fail_block("a barrier for threads that are no multiple of a warp");
    bool arrives = kind == CUDAMASTER_CPU_ARRIVE;
    if (arrives && !threads)
        fail_block("bar.arrive for no threads");
    NumberedBarrier& barrier = self.numbered[number];
    // __syncthreads is barrier 0 for all.
    if (number == 0 && !arrives && !barrier.arrived && (!threads || threads == self.total))
        return cudamaster_cpu_barrier(kind, predicate);
    if (barrier.arrived && barrier.expected != threads)
        fail_block("threads come to one barrier for different numbers of threads");
    if (!arrives && barrier.waiting.head && barrier.kind != kind)
        fail_block("threads of the block meet in different barriers");
    if (!arrives)
        barrier.kind = kind;
    self.numbered_used = true;
    barrier.expected = threads;
    ++barrier.arrived;
    barrier.count += predicate != 0;
    unsigned warp = self.linear / kWarp, bit = 1u << self.linear % kWarp;
    barrier.members[warp] |= bit;
    if (!arrives)
        barrier.takers[warp] |= bit;
    if (!arrives)
        observe::waited(self, nullptr);
    if (numbered_complete(self, barrier))
        return release_numbered(self, barrier);
    if (arrives)
        return 0;
    Fibre* me = self.current;
    barrier.waiting.push(me);
    me->wait = Wait::kNumbered;
    me->operation = "a numbered barrier";
    me->mask = number;
    block_current(self, me);
    return static_cast<int>(me->active_mask);
}

void cudamaster_cpu_cluster_arrive(int tells) {
    Worker& self = *worker;
    Cluster& cluster = *self.cluster;
    if (self.came_to.empty())
        self.came_to.resize(self.total);
    unsigned& came_to = self.came_to[self.linear];
    if (came_to)
        fail_block("barrier.cluster.arrive twice without barrier.cluster.wait");
    came_to = cluster.phase + 1;
    ++cluster.arrived;
    if (tells)
        observe::cluster_arrives(self, self.linear);
    else
        observe::cluster_arrives_relaxed(self, self.linear);
    settle_cluster(cluster);
}

void cudamaster_cpu_cluster_wait() {
    Worker& self = *worker;
    Cluster& cluster = *self.cluster;
    if (self.came_to.empty() || !self.came_to[self.linear])
        fail_block("barrier.cluster.wait without barrier.cluster.arrive");
    if (cluster.phase < self.came_to[self.linear]) {
        Fibre* me = self.current;
        self.at_cluster.push(me);
        me->wait = Wait::kCluster;
        me->operation = "barrier.cluster.wait";
        me->mask = 0;
        block_current(self, me);
    }
    self.came_to[self.linear] = 0;
    observe::waited(self, nullptr);
    observe::cluster_passes(self, self.linear);
}

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
