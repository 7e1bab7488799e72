// What the executor tells: the hooks of observe.h. Most hand on to the tracer of the block that a worker runs, or to the launch
// at hand (launches.cpp).
#include "observe.h"
#include "trace/known.h"
#include "trace/launches.h"
#include "trace/recording.h"
#include "trace/sample.h"
#include "trace/trace.h"

#include <link.h>
#include <cstdio>
#include <utility>

namespace executor {
namespace trace {

namespace {

constexpr unsigned kBytesOfAccess = 4; // of what a copy in bulk moves
constexpr Count kPatienceOfTrials = 20'000;
constexpr Count kPatience = 200'000; // yields of blocks while others are left out: they wait for one of those

__thread bool left_out; // the block of this OS thread was ended at its limit

int find_shared(dl_phdr_info* info, size_t, void* found) {
    auto& shared = *static_cast<SharedMemory*>(found);
    for (int i = 0; i < info->dlpi_phnum; ++i)
        if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data) {
            shared.begin[0] = reinterpret_cast<uintptr_t>(info->dlpi_tls_data);
            shared.end[0] = shared.begin[0] + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

// That of a block of the running thread's cluster, null where it is not recorded: all of a cluster are, or none.
Tracer* tracer_of(const Worker& block) {
    return recorder ? static_cast<Tracer*>(block.observer) : nullptr;
}

} // namespace

void leave_out() {
    Launch& launch = *state().launch;
    launch.left_out = true;
    if (recorder)
        launch.alone = true;
    left_out = true;
    abandon_block(*worker);
}

} // namespace trace

namespace observe {

using namespace trace;

void launch_begins(const Job& job) {
    Recording& recording = state();
    recording.launch.reset();
    ++recording.launches;
    if (!recording.on)
        return;
    recording.launch = launch_of(job);
    write_host();
}

bool wants_pass(const Job& job, unsigned pass) {
    Launch* launch = state().launch.get();
    return launch ? goes_on(job, *launch, pass) : pass == 0;
}

void launch_ends(const Job& job) {
    std::unique_ptr<Launch> launch = std::move(state().launch);
    if (launch && !job.again.load()) // in clusters of another shape
        conclude(job, std::move(launch));
}

// Of many a launch, the block that finds that it is the last one does more than others. Which one that is must not hang on
// this host's threads, so the last one is in the sample. Where blocks are skipped, none finds that.
bool keeps_last_back(const Job&) {
    const Launch* launch = state().launch.get();
    return launch && launch->stage == Stage::kAll && !launch->plan.only_those;
}

bool wants_block(const Job& job, unsigned long long number) {
    const Launch* launch = state().launch.get();
    return !launch || runs(job, *launch, in_clusters(job, number));
}

void block_begins(Worker& self, unsigned long long number) {
    Recording& recording = state();
    Launch* launch = recording.launch.get();
    unsigned long long block = in_clusters(*self.job, number);
    time_begins(recording.launches);
    recorder = nullptr;
    units = nullptr;
    accesses = multiplications = instructions = instructions_at_question = 0;
    work_since_question = 0;
    left_out = false;
    steps_left = launch ? steps_of(*self.job, *launch, block) : 0;
    if (launch && launch->units.apart && launch->stage == Stage::kOtherTrials)
        return looks_for_units(launch->units);
    if (!launch || !launch->plan.has(block))
        return;
    if (launch->stage == Stage::kFirstBlock && recording.table.one_unit_of > 1 && self.job->blocks > 1 &&
        self.job->cluster_size == 1) {
        units = &launch->units;
        units->each = recording.table.one_unit_of;
        units->seed = recording.table.seed + recording.made; // the same whatever launches before drew
    }
    if (!self.observer)
        self.observer = new Tracer;
    auto* tracer = static_cast<Tracer*>(self.observer);
    SharedMemory shared;
    dl_iterate_phdr(&find_shared, &shared);
    shared.begin[1] = reinterpret_cast<uintptr_t>(cudamaster_cpu_dynamic_shared);
    shared.end[1] = shared.begin[1] + (self.job->launch->shared_bytes + 127) / 128 * 128;
    const void* variables[] = {&threadIdx, &blockIdx, &blockDim, &gridDim, &cudamaster_cpu_dynamic_shared};
    for (int i = 0; i < 5; ++i)
        shared.built_in[i] = reinterpret_cast<uintptr_t>(variables[i]);
    tracer->begin_block(self, *launch, recording.table.program, shared);
    recorder = tracer;
}

void block_ends(Worker& self) {
    Tracer* tracer = recorder;
    Launch* launch = state().launch.get();
    if (launch && launch->units.apart && launch->stage != Stage::kAll)
        units_end(launch->units);
    if (launch && launch->units.apart) {
        std::lock_guard<std::mutex> lock(launch->mutex);
        launch->units.left = *launch->units.counter;
    }
    unsigned long long block = blockIdx.x + 1ull * gridDim.x * (blockIdx.y + 1ull * gridDim.y * blockIdx.z);
    const bool begun = !self.block_failed || (left_out && (tracer || !launch->few));
    if (launch && begun && (tracer || launch->stage == Stage::kAll))
        launch->note(in_clusters(*self.job, block), accesses, instructions, multiplications,
                     tracer && !left_out);
    if (!tracer)
        return;
    tracer->end_block();
    recorder = nullptr;
    if (tracer->talks())
        launch->talks = true;
    if (!self.block_failed)
        state().launch->add(in_clusters(*self.job, block), tracer->counts(), tracer->lines());
}

// A trial that waits for a block before it is run again with the others, in their order.
bool gave_up(Worker&) {
    const Launch* launch = state().launch.get();
    return launch && (launch->stage == Stage::kOtherTrials || left_out);
}

void thread_begins(Worker& self) {
    if (recorder)
        recorder->thread_begins(self.linear);
}
void thread_ends(Worker& self) {
    if (recorder)
        recorder->thread_ends(self.linear);
}
void barrier_arrives(Worker& self, int kind) {
    if (recorder) {
        recorder->lane(self.linear).grid_barriers += kind == CUDAMASTER_CPU_SYNC_GRID;
        recorder->barrier_arrives(self.linear, kind);
    }
}
void barrier_completes(Worker& self, int) {
    time_is_shared(self.job->threads);
    if (recorder)
        recorder->barrier_completes();
}
void warp_arrives(Worker&, unsigned) {}
void warp_completes(Worker&, unsigned warp, unsigned arrived) {
    if (recorder)
        recorder->warp_completes(warp, arrived);
}

void numbered_completes(Worker&, const unsigned*, const unsigned*) {}
void waited(Worker& self, const void* place) {
    if (recorder)
        recorder->waited(self.linear, place);
}

// Two requests, as if the thread had made them; when they are done nobody is asked.
void copy_starts(Worker&, Copy& copy) {
    copies_asynchronously(copy.target, copy.source, copy.bytes, copy.from_source, copy.site);
    if (recorder)
        recorder->copy_starts(copy.thread);
}
void copy_lands(Worker& self, const Copy& copy) {
    if (Tracer* tracer = tracer_of(self))
        tracer->copy_lands(copy.thread, copy.barrier != nullptr);
}
void copies_will_arrive(Worker&, const void* place) {
    if (recorder)
        recorder->bulk_comes(place, 0);
}

// Only such operations write it, so who waits there is steered by nothing else in memory.
void mbarrier_is_met(Worker& owner, const void* place, unsigned long long word) {
    Tracer* tracer = tracer_of(owner);
    if (tracer && !tracer->left_so(place, word))
        state().launch->overwritten = true;
}
void mbarrier_is_left(Worker& owner, const void* place, unsigned long long word) {
    if (Tracer* tracer = tracer_of(owner))
        tracer->leaves(place, word);
}
void mbarrier_begins(Worker&, const void*, const void*) {}
void mbarrier_ends(Worker&, const void*, const void*) {}
void mbarrier_is_used(Worker&, const void*, bool, const void*) {}
void mbarrier_expects(Worker&, const void*, const void*) {}
void proxy_fence(Worker&, int) {}
void bulk_written(Worker&, const Bulk&) {}
void mbarrier_arrives(Worker&, const void*, unsigned) {}
void mbarrier_completes(Worker&, const void*) {}
void mbarrier_passes(Worker&, const void*, unsigned) {}
void mbarrier_arrives_relaxed(Worker&, const void*, unsigned) {}
void mbarrier_passes_relaxed(Worker&, const void*, unsigned) {}
void cluster_arrives(Worker&, unsigned) {}
void cluster_arrives_relaxed(Worker&, unsigned) {}
void cluster_completes(Cluster&) {}
void cluster_passes(Worker&, unsigned thread) {
    if (recorder)
        recorder->passes_cluster(thread);
}

// A word that is stored to another block is a request of its warp to shared memory. What a copy does in global memory
// counts for the block of its thread, once for all targets; what comes into shared memory for the block whose that is.
void bulk_starts(Worker&, Bulk& bulk) {
    if (bulk.generic) {
        stores_asynchronously(bulk.pieces.front().target, bulk.bytes, bulk.reduce != nullptr, bulk.site);
        if (Tracer* target = tracer_of(owner_of(bulk.barrier)))
            target->store_comes(bulk.barrier);
        return;
    }
    if (!bulk.again) {
        accesses += bulk.bytes / kBytesOfAccess;
        if (recorder)
            recorder->bulk_starts(bulk);
    }
    Tracer* target = bulk.barrier ? tracer_of(owner_of(bulk.barrier)) : nullptr;
    if (target)
        target->bulk_comes(bulk.barrier, bulk.bytes);
}
void bulk_lands(Worker&, const Bulk& bulk) {
    Tracer* target = bulk.barrier ? tracer_of(owner_of(bulk.barrier)) : nullptr;
    for (size_t i = 0; target && i < bulk.pieces.size(); ++i)
        target->overwrites(reinterpret_cast<uintptr_t>(bulk.pieces[i].target), bulk.pieces[i].bytes);
}
// By a map in memory of the device a copy goes where a launch before may have said. Others were given to the launch.
void map_is_read(Worker&, const void* map, unsigned, const void*) {
    Recording& recording = state();
    auto lies_in = [&](uintptr_t begin, size_t bytes) {
        return reinterpret_cast<uintptr_t>(map) - begin < bytes;
    };
    bool of_device = false;
    for (const Range& range : recording.own)
        of_device |= lies_in(range.begin, range.bytes);
    auto behind = recording.allocations.upper_bound(map);
    if (behind != recording.allocations.begin()) {
        const auto& [base, allocation] = *std::prev(behind);
        of_device |= lies_in(reinterpret_cast<uintptr_t>(base), allocation.second);
    }
    if (of_device && recording.launch)
        recording.launch->overwritten = true;
}

// All threads of a warp say the same.
void product_starts(Worker& self, const CudamasterCpuWgmma& product) {
    if (self.linear % kWarp)
        return;
    accesses += product.columns;
    if (recorder)
        recorder->product_starts(product);
}
void multiplies(unsigned long long times) {
    multiplications += times;
}
void products_end(Worker&, unsigned, unsigned) {}
bool wants_pieces() {
    return false;
}
// Of a launch that nothing steers none matters, if no later one is steered by what it leaves.
bool wants_products() {
    Recording& recording = state();
    Launch* launch = recording.launch.get();
    if (!launch || !launch->unsteered || recording.made <= recording.needed_then)
        return true;
    launch->hollow = true;
    return false;
}
// No value of a counted call is checked. Those by which a kernel decides what it does are right to f32.
bool wants_all_bits() {
    return false;
}
void piece_starts(Worker&, const char*, unsigned, const void*) {}
void piece_lands(Worker&, const char*, unsigned) {}

void uncounted(const char* what) {
    static thread_local char text[128];
    std::snprintf(text, sizeof text, "%s is not counted", what);
    fail_block(text);
}

void yields(Worker& self) {
    Launch* launch = state().launch.get();
    if (!launch || !self.running)
        return;
    if (launch->stage == Stage::kOtherTrials && ++launch->waited > kPatienceOfTrials) {
        launch->waiting = true;
        abandon_block(self);
    }
    if (launch->stage == Stage::kAll && (launch->plan.only_those || launch->left_out) &&
        ++launch->waited > kPatience)
        fail_block("a block waits for one that is left out of the sample");
}

bool poisons() {
    return false; // of outputs of gigabytes few blocks are run
}
void allocated(const void* base, size_t bytes) {
    Recording& recording = state();
    recording.allocations[base] = {recording.numbers++, bytes};
    if (recording.on)
        write_line("{\"event\":\"alloc\",\"bytes\":%zu}\n", bytes);
}
void freed(const void* base) {
    Recording& recording = state();
    recording.allocations.erase(base);
    if (recording.on)
        write_line("{\"event\":\"free\"}\n");
}
void copied(const void*, size_t, size_t whole, bool host) {
    if (host)
        needs_values();
    if (state().on && whole)
        write_line("{\"event\":\"copy\",\"bytes\":%zu,\"host\":%s}\n", whole, host ? "true" : "false");
}
void filled(const void*, size_t, size_t whole) {
    if (state().on && whole)
        write_line("{\"event\":\"memset\",\"bytes\":%zu}\n", whole);
}
// A host that waits may read what launches left, by a function that nobody sees.
void found_done() {
    needs_values();
}
void shared_with_host() {
    state().shared = true;
}
void synchronised() {
    needs_values();
    if (state().on)
        write_line("{\"event\":\"synchronise\"}\n");
}

void recording(bool on) {
    prepare();
    if (state().output < 0)
        return;
    if (!on)
        return call_ends();
    forget_call();
    call_begins();
}

} // namespace observe
} // namespace executor
