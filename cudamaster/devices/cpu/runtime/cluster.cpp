// Clusters of several blocks: their OS threads take turns, and a deadlock is one of all blocks.
#include "observe.h"
#include "schedule.h"

#include <utility>

namespace executor {

namespace {

constexpr unsigned kYieldsOfTurn = 32, kYieldsOfCopies = 256;

bool can_go(const Worker& block) {
    return block.polling || block.ready.head || block.started < block.total || block.asking.head;
}

// The caller holds the mutex, or the turn while nobody is outside.
Worker* next_member(const Cluster& cluster, const Worker& self) {
    for (unsigned i = 1; i < cluster.size; ++i) {
        unsigned step = self.job->reversed ? cluster.size - i : i;
        Worker* member = cluster.members[(self.rank + step) % cluster.size];
        if (!member->ended && !member->outside && (cluster.failed || can_go(*member)))
            return member;
    }
    return nullptr;
}

bool any_outside(const Cluster& cluster) {
    for (unsigned i = 0; i < cluster.size; ++i)
        if (cluster.members[i]->outside)
            return true;
    return false;
}

Worker* any_alive(const Cluster& cluster) {
    for (unsigned i = 0; i < cluster.size; ++i)
        if (!cluster.members[i]->ended && !cluster.members[i]->outside)
            return cluster.members[i];
    return nullptr;
}

// The caller holds the mutex.
void give_turn(Cluster& cluster, const Worker* to) {
    cluster.turn = to ? to->rank : Cluster::kNobody;
    if (to)
        cluster.passed[to->rank].notify_one();
}

void take_turn(Cluster& cluster, const Worker& self, std::unique_lock<std::mutex>& lock) {
    cluster.passed[self.rank].wait(lock, [&] { return cluster.turn == self.rank; });
}

// Gives the turn to the member, to nobody where there is none, and waits until it is back. Where the cluster has failed
// meanwhile, so has the block. The lock is the one under which the caller has chosen the member: a block that comes back
// from outside in between would see that somebody has the turn and wait for it, and then nobody would ever give it.
void let_run(Worker& self, const Worker* member, std::unique_lock<std::mutex> lock) {
    Cluster& cluster = *self.cluster;
    give_turn(cluster, member);
    take_turn(cluster, self, lock);
    lock.unlock(); // an abandoned block never comes back to where the lock would end
    if (cluster.failed)
        abandon_block(self);
}

bool land_in(const Cluster& cluster) {
    for (unsigned i = 0; i < cluster.size; ++i)
        if (!cluster.members[i]->ended && land_at_mbarriers(*cluster.members[i]))
            return true;
    return false;
}

// Nobody can go on: copies that are waited for come; then waits end without what they wait for.
bool stirs(const Cluster& cluster) {
    if (land_in(cluster))
        return true;
    for (unsigned i = 0; i < cluster.size; ++i)
        if (!cluster.members[i]->ended && give_up_at_mbarriers(*cluster.members[i]))
            return true;
    return false;
}

// All OS threads of the cluster come here; one of them draws the next cluster of the grid.
void gather(Cluster& cluster, Job& job) {
    std::unique_lock<std::mutex> lock(cluster.mutex);
    unsigned generation = cluster.generation;
    if (++cluster.waiting < cluster.size) {
        cluster.gathered.wait(lock, [&] { return cluster.generation != generation; });
        return;
    }
    cluster.waiting = 0;
    ++cluster.generation;
    bool stops = job.failed.load() || job.again.load();
    cluster.number = stops ? job.blocks : job.next_block.fetch_add(1);
    cluster.failed = false;
    cluster.begun = cluster.phase = cluster.arrived = cluster.arrived_exited = 0;
    for (unsigned i = 0; i < cluster.size; ++i)
        cluster.members[i]->ended = false;
    cluster.turn = job.reversed ? cluster.size - 1 : 0;
    cluster.gathered.notify_all();
}

bool wants_cluster(const Job& job, uint3 first) {
    for (unsigned rank = 0; rank < job.cluster_size; ++rank) {
        unsigned x = rank % job.shape.x, rest = rank / job.shape.x;
        if (observe::wants_block(job, first.x + x +
                                          gridDim.x * (first.y + rest % job.shape.y +
                                                       1ull * gridDim.y * (first.z + rest / job.shape.y))))
            return true;
    }
    return false;
}

} // namespace

void run_clusters(Worker& self, Job& job, unsigned member) {
    Cluster& cluster = *job.clusters[member / job.cluster_size];
    self.cluster = &cluster;
    self.rank = member % job.cluster_size;
    cluster.members[self.rank] = &self;
    const dim3& shape = job.shape;
    unsigned long long clusters = job.blocks / job.cluster_size;
    unsigned wide = gridDim.x / shape.x, high = gridDim.y / shape.y;
    bool first = true;
    for (;;) {
        gather(cluster, job);
        free_exact_shared(self); // of the cluster before
        unsigned long long number = cluster.number;
        if (number >= clusters || (job.launch->cooperative && !first))
            break;
        first = false;
        if (job.reversed)
            number = clusters - 1 - number;
        uint3 corner{static_cast<unsigned>(number % wide) * shape.x,
                     static_cast<unsigned>(number / wide % high) * shape.y,
                     static_cast<unsigned>(number / wide / high) * shape.z};
        if (!wants_cluster(job, corner))
            continue;
        unsigned x = self.rank % shape.x, rest = self.rank / shape.x;
        uint3 place{corner.x + x, corner.y + rest % shape.y, corner.z + rest / shape.y};
        run_block(self, place, place.x + gridDim.x * (place.y + 1ull * gridDim.y * place.z));
        if (job.launch->cooperative)
            leave_grid(job);
    }
    self.cluster = &self.alone;
    self.rank = 0;
}

void wait_for_turn(Worker& self) {
    std::unique_lock<std::mutex> lock(self.cluster->mutex);
    take_turn(*self.cluster, self, lock);
}

// Each prepares in its turn, and none begins before all have.
void begin_in_cluster(Worker& self) {
    Cluster& cluster = *self.cluster;
    unsigned next = (self.rank + (self.job->reversed ? cluster.size - 1 : 1)) % cluster.size;
    std::unique_lock<std::mutex> lock(cluster.mutex);
    give_turn(cluster, cluster.members[next]);
    take_turn(cluster, self, lock);
}

void end_in_cluster(Worker& self) {
    Cluster& cluster = *self.cluster;
    std::unique_lock<std::mutex> lock(cluster.mutex);
    self.ended = true;
    const Worker* next = next_member(cluster, self);
    // Where nobody can go on, one of those who are left finds that out.
    give_turn(cluster, next ? next : any_alive(cluster));
}

bool wait_for_cluster(Worker& self) {
    Cluster& cluster = *self.cluster;
    while (!self.ready.head) {
        std::unique_lock<std::mutex> lock(cluster.mutex);
        const Worker* next = next_member(cluster, self);
        if (!next) {
            // Who waits at the grid's barrier brings nothing, so copies come as where nobody can go on.
            lock.unlock();
            if (stirs(cluster))
                continue;
            // Others may have come back meanwhile.
            lock.lock();
            next = next_member(cluster, self);
            if (!next && !any_outside(cluster))
                return false;
        }
        let_run(self, next, std::move(lock));
    }
    return true;
}

bool share_turn(Worker& self, bool alone) {
    Cluster& cluster = *self.cluster;
    if (++self.yields % kYieldsOfCopies == 0)
        land_in(cluster);
    if (!alone && self.yields % kYieldsOfTurn)
        return false;
    std::unique_lock<std::mutex> lock(cluster.mutex);
    const Worker* next = next_member(cluster, self);
    if (!next)
        return false;
    self.polling = true;
    let_run(self, next, std::move(lock));
    self.polling = false;
    return true;
}

OutsideOfCluster::OutsideOfCluster(Worker& self) : self_(self) {
    if (!in_cluster(self))
        return;
    std::lock_guard<std::mutex> lock(self.cluster->mutex);
    self.outside = true;
    // Where nobody can go on, one of those who are left has the copies come that they wait for.
    const Worker* next = next_member(*self.cluster, self);
    give_turn(*self.cluster, next ? next : any_alive(*self.cluster));
}

OutsideOfCluster::~OutsideOfCluster() {
    if (!in_cluster(self_))
        return;
    Cluster& cluster = *self_.cluster;
    std::unique_lock<std::mutex> lock(cluster.mutex);
    self_.outside = false;
    self_.polling = true; // it can go on
    if (cluster.turn == Cluster::kNobody)
        cluster.turn = self_.rank;
    take_turn(cluster, self_, lock);
    self_.polling = false;
}

Worker& owner_of(const void* place) {
    Worker& self = *worker;
    if (in_cluster(self))
        for (unsigned i = 0; i < self.cluster->size; ++i)
            if (holds_shared(*self.cluster->members[i], place))
                return *self.cluster->members[i];
    return self;
}

} // namespace executor

using namespace executor;

dim3 cudamaster_cpu_cluster_shape() {
    return worker->job->shape;
}
int cudamaster_cpu_in_clusters() {
    return worker->job->launch->cluster.x > 0 || worker->job->cluster_size > 1;
}
unsigned cudamaster_cpu_cluster_rank() {
    return worker->rank;
}
unsigned cudamaster_cpu_rank_of(const void* place) {
    return owner_of(place).rank;
}

void cudamaster_cpu_cluster_dims(unsigned x, unsigned y, unsigned z) {
    Job& job = *worker->job;
    if (job.shape.x == x && job.shape.y == y && job.shape.z == z)
        return;
    job.wanted = {x, y, z};
    job.again.store(true);
    abandon_block(*worker);
}
