// What the executor tells the checker of (../observe.h), and what the harness does.
#include "check.h"
#include "cudamaster_cpu/observed.h"

#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace executor {
namespace check {

__thread BlockState* block_state;

namespace {

// The program's writable data holds the device's variables.
int add_image(dl_phdr_info* info, size_t, void* all) {
    State& target = *static_cast<State*>(all);
    target.image = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; ++i)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_W)
            target.ranges.add(reinterpret_cast<void*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr),
                              info->dlpi_phdr[i].p_memsz, Space::kVariable, true);
    return 1; // the first entry is the program itself
}

int find_tls(dl_phdr_info* info, size_t, void* block) {
    auto* state = static_cast<BlockState*>(block);
    for (int i = 0; i < info->dlpi_phnum; ++i)
        if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data) {
            state->tls_begin = static_cast<const char*>(info->dlpi_tls_data);
            state->tls_end = state->tls_begin + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

// One block after the other: what is found does not depend on which blocks happen to meet. A cooperative launch has a
// thread for each all the same.
__attribute__((constructor)) void have_one_worker() {
    setenv("CUDAMASTER_CPU_THREADS", "1", 1);
    // Cells come and go with every call: memory that is given back has to be filled with zeros again.
    mallopt(M_MMAP_THRESHOLD, 1 << 28);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    // The threads of a cooperative launch take turns: a heap for each would only be memory to open and to close.
    mallopt(M_ARENA_MAX, 1);
}

BlockState& own_block_state() {
    if (!block_state) {
        block_state = new BlockState;
        dl_iterate_phdr(&find_tls, block_state);
    }
    return *block_state;
}

void set_written(const void* target, size_t bytes, bool written) {
    uintptr_t address = reinterpret_cast<uintptr_t>(target);
    if (Range* range = state().ranges.find(address))
        range->set_written(address - range->base, bytes, written);
    state().ranges.forget();
}

} // namespace

// The rest of a call of too many accesses is not looked at; what it writes then nobody sees.
void rest() {
    resting = true;
    state().ranges.set_all_written();
}

State* the_state;
bool resting = false;

// Before the first allocation of the program.
__attribute__((constructor)) void make_state() {
    the_state = new State;
    dl_iterate_phdr(&add_image, the_state);
}

} // namespace check

namespace observe {

using namespace check;

void launch_begins(const Job& job) {
    std::lock_guard<std::mutex> lock(state().lock);
    state().launch = job.launch;
    ++state().launches;
    state().concurrent = job.launch->cooperative;
    state().grid_generation = 0;
    state().clock.begin_launch();
    state().stores.clear();
}

bool wants_pass(const Job&, unsigned pass) {
    return pass == 0;
}

void launch_ends(const Job&) {
    end_after_findings();
}

bool poisons() {
    return true;
}
bool gave_up(Worker&) {
    return false;
}
bool keeps_last_back(const Job&) {
    return false;
}
bool wants_block(const Job&, unsigned long long) {
    return true;
}

void block_begins(Worker& self, unsigned long long block) {
    BlockState& own = own_block_state();
    Locked locked;
    if (own.launch != state().launches) {
        own.launch = state().launches;
        std::fill(std::begin(own.harmless), std::end(own.harmless), 0);
    }
    self.observer = &own;
    if (!self.cluster->begun) {
        own.of_cluster = {};
        self.cluster->observed = &own;
    }
    const auto& first = *static_cast<BlockState*>(self.cluster->observed);
    own.cluster = const_cast<ClusterState*>(&first.of_cluster);
    own.visits.clear();
    own.ended = false;
    own.product = 0;
    state().clock.begin_block(own.clock, static_cast<uint32_t>(block), self.job->threads,
                              self.cluster->begun ? first.clock.first_segment : 0);
    size_t bytes = self.job->launch->shared_bytes;
    const void* base = cudamaster_cpu_dynamic_shared;
    if (bytes != own.dynamic_bytes || base != own.dynamic) {
        if (own.dynamic)
            state().ranges.remove(own.dynamic);
        own.dynamic = bytes ? base : nullptr;
        own.dynamic_bytes = bytes;
        if (bytes)
            state().ranges.add(base, bytes, Space::kDynamicShared, false).owner = &own;
    }
}

void block_ends(Worker& self) {
    Locked locked;
    settle_doubts(*block_state);
    if (!self.block_failed)
        look_for_visitors(*block_state);
}

void thread_begins(Worker&) {}
void thread_ends(Worker& self) {
    if (!state().concurrent)
        return;
    Locked locked;
    state().clock.arrive_at_grid(block_state->clock, self.linear, true);
}
void barrier_arrives(Worker& self, int kind) {
    if (kind != CUDAMASTER_CPU_SYNC_GRID)
        return;
    Locked locked;
    state().clock.arrive_at_grid(block_state->clock, self.linear, false);
}
void warp_arrives(Worker&, unsigned) {}
void yields(Worker&) {}

void barrier_completes(Worker& self, int kind) {
    Locked locked;
    settle_doubts(*block_state);
    if (kind != CUDAMASTER_CPU_SYNC_GRID) {
        state().clock.pass_barrier(block_state->clock);
        return;
    }
    if (self.job->grid_generation != state().grid_generation) {
        state().grid_generation = self.job->grid_generation;
        state().clock.complete_grid_barrier();
    }
    state().clock.pass_grid_barrier(block_state->clock);
}

void warp_completes(Worker& self, unsigned warp, unsigned arrived) {
    Locked locked;
    settle_doubts(*block_state);
    for (const auto& slot : self.warps[warp].slots)
        if (slot->arrived == arrived && (!std::strcmp(slot->operation, CUDAMASTER_CPU_CONVERGES) ||
                                         !std::strcmp(slot->operation, "mma_sync")))
            return;
    state().clock.meet(block_state->clock, warp, arrived);
}

void numbered_completes(Worker&, const unsigned* members, const unsigned* takers) {
    Locked locked;
    settle_doubts(*block_state);
    state().clock.exchange(block_state->clock, members, takers);
}

void multiplies(unsigned long long) {}
// The first lane stands for its warp in what a product reads.
void product_starts(Worker& self, const CudamasterCpuWgmma&) {
    if (self.linear % kWarp)
        return;
    Locked locked;
    BlockState& block = *block_state;
    block.clock.products[self.linear / kWarp].push_back(block.product ? block.product
                                                                      : state().clock.begin_late());
    block.product = 0;
}
void products_end(Worker&, unsigned warp, unsigned count) {
    Locked locked;
    state().clock.end_products(block_state->clock, warp, count);
}
bool wants_pieces() {
    return true;
}
bool wants_products() {
    return true;
}
bool wants_all_bits() {
    return true;
}
void waited(Worker&, const void*) {}
void copies_will_arrive(Worker&, const void*) {}
void uncounted(const char*) {}

void allocated(const void* base, size_t bytes) {
    std::lock_guard<std::mutex> lock(state().lock);
    state().ranges.add(base, bytes, Space::kGlobal, false);
}

void freed(const void* base) {
    std::lock_guard<std::mutex> lock(state().lock);
    state().ranges.remove(base);
}

void copied(const void* target, size_t bytes, size_t, bool) {
    std::lock_guard<std::mutex> lock(state().lock);
    set_written(target, bytes, true);
}

void filled(const void* target, size_t bytes, size_t) {
    std::lock_guard<std::mutex> lock(state().lock);
    set_written(target, bytes, true);
}

void synchronised() {}
void found_done() {}
void shared_with_host() {}
void recording(bool) {}

} // namespace observe
} // namespace executor

using namespace executor;

namespace {

// Each has a place of its own, the same in every block of an OS thread, with room around it that belongs to nobody.
char* place_of_variable(check::BlockState& block, const void* key, size_t bytes, size_t alignment) {
    auto& variable = block.variables[key];
    if (!variable.range) {
        size_t step = std::max({alignment, kept_alignment(bytes), check::kRedZone});
        size_t wanted = (bytes + step - 1) / step * step + 2 * step;
        if (block.free_bytes < wanted) {
            block.free_bytes = std::max<size_t>(wanted, 1 << 20);
            void* memory = mmap(nullptr, block.free_bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (memory == MAP_FAILED)
                fail_block("no memory for shared variables");
            block.free_memory = static_cast<char*>(memory);
        }
        auto from = (reinterpret_cast<uintptr_t>(block.free_memory) + 2 * step - 1) / step * step;
        variable.memory = reinterpret_cast<char*>(from);
        block.free_bytes -= wanted;
        block.free_memory += wanted;
        variable.range =
            &check::state().ranges.add(variable.memory, bytes, check::Space::kStaticShared, false);
        variable.range->key = key;
        variable.range->owner = &block;
    }
    return variable.memory;
}

} // namespace

// All blocks of a cluster have it, whichever comes to the declaration first.
void* cudamaster_cpu_exact_shared(const void* key, size_t bytes, size_t alignment) {
    Worker& self = *worker;
    if (void* known = known_shared(self, key, bytes))
        return known;
    check::Locked locked;
    for (unsigned rank = 0; rank < self.cluster->size; ++rank) {
        Worker& member = *self.cluster->members[rank];
        char* memory =
            place_of_variable(*static_cast<check::BlockState*>(member.observer), key, bytes, alignment);
        std::memset(memory, 0xff, bytes);
        member.exact_shared.push_back({key, memory, bytes});
    }
    return known_shared(self, key, bytes);
}

extern "C" void cudamaster_cpu_unwritten(const void* base, size_t bytes);
// The harness's outputs hold poison: whatever copied it there, nothing has written them. It says so before each call, of
// inputs with no bytes.
// The first call of a case is looked at; further ones, on other inputs in the same buffers, are the sanitizer's.
void cudamaster_cpu_unwritten(const void* base, size_t bytes) {
    std::lock_guard<std::mutex> lock(check::state().lock);
    check::Range* range = check::state().ranges.find(reinterpret_cast<uintptr_t>(base));
    check::resting = range && range->called++ > 0;
    check::state().accesses = 0;
    check::set_written(base, bytes, false);
}
