// Checks a launch as the driver would, and spreads its blocks over OS threads.
#include "executor.h"
#include "limits.h"
#include "observe.h"
#include "streams.h"

#include <link.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unistd.h>

namespace executor {

namespace {

std::mutex attributes_mutex;
std::map<const void*, int>& dynamic_shared_limits() {
    static auto* limits = new std::map<const void*, int>;
    return *limits;
}

std::map<const void*, bool>& large_clusters() {
    static auto* allowed = new std::map<const void*, bool>;
    return *allowed;
}

bool allows_large_clusters(const void* function) {
    std::lock_guard<std::mutex> lock(attributes_mutex);
    for (const auto& [known, value] : large_clusters())
        if (value && (!function || known == function))
            return true;
    return false;
}

// Of kernels with __cluster_dims__, once they have been launched.
std::map<const void*, dim3>& own_clusters() {
    static auto* shapes = new std::map<const void*, dim3>;
    return *shapes;
}

const void* kernel_key(const CudamasterCpuLaunch& launch) {
    return launch.function ? launch.function : reinterpret_cast<const void*>(launch.invoke);
}

// Of the launch's clusters; a kernel of which nobody knows yet says so when it runs.
dim3 cluster_shape(const CudamasterCpuLaunch& launch) {
    std::lock_guard<std::mutex> lock(attributes_mutex);
    auto own = own_clusters().find(kernel_key(launch));
    if (own != own_clusters().end())
        return own->second;
    return launch.cluster.x ? launch.cluster : dim3(1, 1, 1);
}

size_t dynamic_shared_limit(const void* function) {
    std::lock_guard<std::mutex> lock(attributes_mutex);
    int limit = kStaticShared;
    for (const auto& [known, value] : dynamic_shared_limits())
        // A template whose arguments the launch deduces is known by no address: any opt-in counts for it.
        if (!function || known == function)
            limit = std::max(limit, value);
    return static_cast<size_t>(limit);
}

unsigned worker_count() {
    static const unsigned count = [] {
        const char* wanted = std::getenv("CUDAMASTER_CPU_THREADS");
        long value = wanted ? std::strtol(wanted, nullptr, 10) : 0;
        if (value > 0)
            return static_cast<unsigned>(std::min(value, 1024L));
        cpu_set_t set;
        if (sched_getaffinity(0, sizeof set, &set) == 0)
            return static_cast<unsigned>(std::max(CPU_COUNT(&set), 1));
        return std::max(std::thread::hardware_concurrency(), 1u);
    }();
    return count;
}

// A pool that lasts as long as the process. The host's own threads never run device code.
struct Pool {
    struct Member {
        std::condition_variable wake;
        std::atomic<Job*> job{nullptr};
        Worker worker;
    };
    std::mutex launching; // launches of several host threads take turns
    std::mutex mutex;
    std::condition_variable done;
    std::vector<std::unique_ptr<Member>> members;
    std::atomic<unsigned> busy{0};
};

// Waking a thread takes longer than many a kernel: look a while before going to sleep.
template <class Condition> bool comes_soon(Condition condition) {
    constexpr auto kPatience = std::chrono::microseconds(50);
    auto start = std::chrono::steady_clock::now();
    do {
        if (condition())
            return true;
        sched_yield();
    } while (std::chrono::steady_clock::now() - start < kPatience);
    return condition();
}

Pool& pool() {
    static Pool* only = new Pool;
    return *only;
}

// The block to run in place of one that was drawn: the latest is kept back. kNoBlock for the first.
unsigned long long instead_of(Job& job, unsigned long long block) {
    unsigned long long kept = job.kept_back.load();
    do {
        if (kept != Job::kNoBlock && kept > block)
            return block;
    } while (!job.kept_back.compare_exchange_weak(kept, block));
    return kept;
}

void work_on(Worker& self, Job& job, unsigned long long own_block) {
    const CudamasterCpuLaunch& launch = *job.launch;
    self.job = &job;
    self.invoke = launch.invoke;
    self.closure = launch.closure;
    prepare_shared(self, launch.shared_bytes);
    blockDim = launch.block;
    gridDim = launch.grid;
    auto run = [&](unsigned long long block) {
        unsigned long long number = job.reversed ? job.blocks - 1 - block : block;
        run_block(self, block_at(number), number);
    };
    if (job.cluster_size > 1) {
        run_clusters(self, job, static_cast<unsigned>(own_block));
    } else if (launch.cooperative) {
        run(own_block);
        leave_grid(job);
    } else {
        auto stops = [&] {
            return job.failed.load(std::memory_order_relaxed) || job.again.load(std::memory_order_relaxed);
        };
        const bool keeps_back = observe::keeps_last_back(job);
        while (!stops()) {
            unsigned long long first = job.next_block.fetch_add(job.chunk, std::memory_order_relaxed);
            unsigned long long end = std::min(first + job.chunk, job.blocks);
            for (; first < end && !stops(); ++first)
                if (observe::wants_block(job, first)) {
                    unsigned long long next = keeps_back ? instead_of(job, first) : first;
                    if (next != Job::kNoBlock)
                        run(next);
                }
            if (end >= job.blocks)
                break;
        }
        if (keeps_back && job.drawing.fetch_sub(1) == 1 && !stops() && job.kept_back.load() != Job::kNoBlock)
            run(job.kept_back.load());
    }
    if (!shared_intact(self, launch.shared_bytes)) {
        job.failed.store(true);
        set_sticky_error(cudaErrorIllegalAddress);
        std::fprintf(stderr, "cuda device error: kernel %s: write past the end of dynamic shared memory\n",
                     launch.kernel);
    }
}

void member_main(Pool& owner, Pool::Member& member, unsigned number) {
    Worker& self = member.worker;
    worker = &self;
    self.block = &blockIdx;
    install_alternate_stack();
    pthread_attr_t attributes;
    void* bottom = nullptr;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &bottom, &self.home_bytes);
    pthread_attr_destroy(&attributes);
    self.home_bottom = bottom;
    for (;;) {
        if (!comes_soon([&] { return member.job.load() != nullptr; })) {
            std::unique_lock<std::mutex> lock(owner.mutex);
            member.wake.wait(lock, [&] { return member.job.load() != nullptr; });
        }
        work_on(self, *member.job.load(), number);
        member.job.store(nullptr);
        if (owner.busy.fetch_sub(1) == 1) {
            std::lock_guard<std::mutex> lock(owner.mutex);
            owner.done.notify_all();
        }
    }
}

void run_job(Job& job, unsigned workers) {
    Pool& owner = pool();
    std::lock_guard<std::mutex> turn(owner.launching);
    open_for_launch(*job.launch);
    close_host_memory(*job.launch);
    while (owner.members.size() < workers) {
        owner.members.push_back(std::make_unique<Pool::Member>());
        unsigned number = static_cast<unsigned>(owner.members.size() - 1);
        std::thread([&owner, number, member = owner.members.back().get()] {
            member_main(owner, *member, number);
        }).detach();
    }
    {
        std::lock_guard<std::mutex> lock(owner.mutex);
        owner.busy.store(workers);
        for (unsigned i = 0; i < workers; ++i) {
            owner.members[i]->job.store(&job);
            owner.members[i]->wake.notify_one();
        }
    }
    if (!comes_soon([&] { return owner.busy.load() == 0; })) {
        std::unique_lock<std::mutex> lock(owner.mutex);
        std::vector<Watch> watches(workers);
        while (!owner.done.wait_for(lock, std::chrono::seconds(1), [&] { return owner.busy.load() == 0; }))
            for (unsigned i = 0; i < workers; ++i)
                watches[i].look(owner.members[i]->worker, *job.launch);
    }
    reopen_host_memory();
    close_after_launch();
}

// Of the call that is recorded: the kernels that it has launched, where launches are told in place of being executed.
bool in_recorded_call = false;
std::set<const void*>& told_kernels() {
    static auto* kernels = new std::set<const void*>;
    return *kernels;
}

// The descriptor that launches of the recorded call are told to; -1 where they are executed.
int told_to() {
    static const int output = [] {
        const char* wanted = std::getenv("CUDAMASTER_CPU_TOLD");
        return wanted ? static_cast<int>(std::strtol(wanted, nullptr, 10)) : -1;
    }();
    return in_recorded_call ? output : -1;
}

// Where a kernel is in the program, an instance of a template by itself.
size_t place_of(const CudamasterCpuLaunch& launch) {
    uintptr_t base = 0;
    auto take = [](dl_phdr_info* info, size_t, void* to) {
        *static_cast<uintptr_t*>(to) = info->dlpi_addr;
        return 1; // the first entry is the program itself
    };
    dl_iterate_phdr(take, &base);
    return static_cast<size_t>(reinterpret_cast<uintptr_t>(kernel_key(launch)) - base);
}

// A line for each kernel of a call.
void tell(const CudamasterCpuLaunch& launch) {
    if (told_kernels().insert(kernel_key(launch)).second)
        dprintf(told_to(), "kernel %zx %s\n", place_of(launch), launch.kernel);
}

// A line for each kernel that this program executes, where somebody asks for it.
void note_executed(const CudamasterCpuLaunch& launch) {
    static const int output = [] {
        const char* wanted = std::getenv("CUDAMASTER_CPU_EXECUTED");
        return wanted ? static_cast<int>(std::strtol(wanted, nullptr, 10)) : -1;
    }();
    static auto* known = new std::set<const void*>;
    if (output < 0)
        return;
    static std::mutex mutex;
    std::lock_guard<std::mutex> lock(mutex);
    if (known->insert(kernel_key(launch)).second)
        dprintf(output, "executed %zx %s\n", place_of(launch),
                reinterpret_cast<const char*>(getauxval(AT_EXECFN)));
}

cudaError_t check(const CudamasterCpuLaunch& launch) {
    const dim3 &grid = launch.grid, &block = launch.block;
    if (!grid.x || !grid.y || !grid.z || grid.x > kMaxGridX || grid.y > kMaxGridYZ || grid.z > kMaxGridYZ)
        return cudaErrorInvalidConfiguration;
    unsigned long long threads = 1ull * block.x * block.y * block.z;
    if (!threads || block.x > kMaxBlockXY || block.y > kMaxBlockXY || block.z > kMaxBlockZ ||
        threads > kMaxThreads)
        return cudaErrorInvalidConfiguration;
    if (launch.shared_bytes > dynamic_shared_limit(launch.function))
        return cudaErrorInvalidValue;
    const dim3 shape = cluster_shape(launch), &said = launch.cluster;
    if (said.x && (said.x != shape.x || said.y != shape.y || said.z != shape.z))
        return cudaErrorInvalidClusterSize;
    unsigned long long size = 1ull * shape.x * shape.y * shape.z;
    if (!size || size > kMaxCluster || (size > kPortableCluster && !allows_large_clusters(launch.function)) ||
        grid.x % shape.x || grid.y % shape.y || grid.z % shape.z)
        return cudaErrorInvalidClusterSize;
    if (launch.cooperative) {
        int per_sm = 0;
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, launch.function, static_cast<int>(threads),
                                                      launch.shared_bytes);
        if (1ull * grid.x * grid.y * grid.z > 1ull * per_sm * multiprocessors())
            return cudaErrorCooperativeLaunchTooLarge;
    }
    return cudaSuccess;
}

} // namespace

bool reversed_order() {
    static const bool reversed = [] {
        const char* order = std::getenv("CUDAMASTER_CPU_THREAD_ORDER");
        return order && std::strcmp(order, "reversed") == 0;
    }();
    return reversed;
}

int multiprocessors() {
    static const int count = [] {
        const char* wanted = std::getenv("CUDAMASTER_CPU_MULTIPROCESSORS");
        long value = wanted ? std::strtol(wanted, nullptr, 10) : 0;
        return value > 0 ? static_cast<int>(std::min<long>(value, kMultiprocessors)) : kMultiprocessors;
    }();
    return count;
}

} // namespace executor

using namespace executor;

cudaError_t executor::run_launch(const CudamasterCpuLaunch& given) {
    const CudamasterCpuLaunch* launch = &given;
    install_fault_handlers();
    if (worker) // a host function can't be reached from device code, but a callback that launches is an error
                // too
        return report(cudaErrorNotSupported);
    if (cudaError_t sticky = sticky_error())
        return report(sticky);
    if (cudaError_t error = check(*launch))
        return report(error);
    if (told_to() >= 0) {
        tell(*launch);
        return report(cudaSuccess);
    }
    note_executed(*launch);
    Job job;
    job.launch = launch;
    job.shape = cluster_shape(*launch);
    job.cluster_size = job.shape.x * job.shape.y * job.shape.z;
    job.blocks = 1ull * launch->grid.x * launch->grid.y * launch->grid.z;
    job.threads = launch->block.x * launch->block.y * launch->block.z;
    job.reversed = reversed_order();
    unsigned long long together =
        worker_count() * 1ull * job.cluster_size; // one block of a cluster runs at a time
    unsigned workers =
        static_cast<unsigned>(launch->cooperative ? job.blocks : std::min(together, job.blocks));
    if (job.cluster_size > 1)
        for (unsigned i = 0; i < workers / job.cluster_size; ++i) {
            job.clusters.push_back(std::make_unique<Cluster>());
            job.clusters.back()->size = job.cluster_size;
        }
    job.chunk = std::clamp<unsigned long long>(job.blocks / (workers * 8ull), 1, 256);
#if defined(CUDAMASTER_CPU_OBSERVED)
    job.chunk = std::min<unsigned long long>(job.chunk, 8); // few blocks of many may be observed
#endif
    observe::launch_begins(job);
    for (unsigned pass = 0; observe::wants_pass(job, pass) && !job.failed.load(); ++pass) {
        job.next_block.store(0);
        job.kept_back.store(Job::kNoBlock);
        job.drawing.store(workers);
        run_job(job, workers);
        if (job.again.load())
            break;
    }
    observe::launch_ends(job);
    if (job.again.load()) {
        {
            std::lock_guard<std::mutex> lock(attributes_mutex);
            own_clusters()[kernel_key(*launch)] = job.wanted;
        }
        return run_launch(given);
    }
    if (job.failed.load())
        set_sticky_error(cudaErrorLaunchFailure);
    return report(sticky_error());
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
    if (!function)
        return report(cudaErrorInvalidDeviceFunction);
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || static_cast<size_t>(value) > kOptInShared)
            return report(cudaErrorInvalidValue);
        std::lock_guard<std::mutex> lock(attributes_mutex);
        dynamic_shared_limits()[function] = value;
    }
    if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed) {
        std::lock_guard<std::mutex> lock(attributes_mutex);
        large_clusters()[function] = value != 0;
    }
    return report(cudaSuccess);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
    *attributes = {};
    attributes->maxThreadsPerBlock = kMaxThreads;
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = 90;
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(dynamic_shared_limit(function));
    return report(cudaSuccess);
}

cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) {
    return report(cudaSuccess);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int block_size,
                                                          size_t shared_bytes) {
    if (block_size <= 0 || block_size > static_cast<int>(kMaxThreads)) {
        *blocks = 0;
        return report(cudaErrorInvalidValue);
    }
    int warps = (block_size + 31) / 32;
    int fit = std::min(kMaxBlocksPerMultiprocessor, kThreadsPerMultiprocessor / 32 / warps);
    // Each block takes 1 KB of shared memory for the system.
    size_t shared = shared_bytes + kReservedShared;
    *blocks = std::min(fit, static_cast<int>(kSharedPerMultiprocessor / shared));
    return report(cudaSuccess);
}

cudaError_t cudamaster_cpu_active_clusters(int* clusters, const void* function,
                                           const cudaLaunchConfig_t* config) {
    *clusters = 0;
    unsigned long long size = 1;
    for (unsigned i = 0; i < config->numAttrs; ++i)
        if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) {
            const auto& shape = config->attrs[i].val.clusterDim;
            size = 1ull * shape.x * shape.y * shape.z;
        }
    int blocks = 0;
    if (cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &blocks, function, static_cast<int>(config->blockDim.x * config->blockDim.y * config->blockDim.z),
            config->dynamicSmemBytes))
        return error;
    if (!size || size > (allows_large_clusters(function) ? kMaxCluster : kPortableCluster))
        return report(cudaErrorInvalidClusterSize);
    *clusters = static_cast<int>(static_cast<unsigned>(blocks * multiprocessors()) / size);
    return report(cudaSuccess);
}

cudaError_t cudamaster_cpu_cluster_size(int* blocks, const void* function, const cudaLaunchConfig_t*) {
    *blocks = static_cast<int>(allows_large_clusters(function) ? kMaxCluster : kPortableCluster);
    return report(cudaSuccess);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void*, int blocks, int) {
    *bytes = 0;
    if (blocks <= 0)
        return report(cudaErrorInvalidValue);
    size_t share = kSharedPerMultiprocessor / static_cast<unsigned>(blocks);
    *bytes = share > kReservedShared ? std::min(share - kReservedShared, kOptInShared) : 0;
    return report(cudaSuccess);
}

void cudamaster_cpu_record(int on) {
    if (told_to() >= 0)
        dprintf(told_to(), "end\n"); // of the call before
    in_recorded_call = on != 0;
    if (told_to() >= 0) {
        told_kernels().clear();
        dprintf(told_to(), "call\n");
    }
    observe::recording(on != 0);
}
