// Barriers in shared memory (mbarrier), and copies in bulk that end at them or in groups of their thread.
//
// Copies are late: bytes for an mbarrier land when threads wait for it and nobody else can go on, those of a group when its
// thread waits for the group. A group whose source alone was waited for (.read) is written at the end of the block, when
// nobody has waited for it before; one that was not waited for at all never takes place.
#include "observe.h"
#include "schedule.h"

#include <algorithm>
#include <cstring>

namespace executor {

namespace {

// An mbarrier as its 64 bits have it.
struct Phase {
    unsigned expected : 20; // arrivals of each phase
    unsigned pending : 20;  // those that this one lacks
    int bytes : 23;         // that were announced and have not come
    unsigned parity : 1;    // of this phase
};
static_assert(sizeof(Phase) >= 8, "as large as an mbarrier, or larger");

constexpr unsigned long long kNever = ~0ull; // shared memory that nothing wrote
constexpr int kMostBytes = (1 << 20) - 1;
// A prime: of several barriers that a thread polls in turn, each is once the one that is polled then.
constexpr unsigned kMostPolls = 61, kMostStalls = 2;
constexpr unsigned kMostPollsInVain = 1 << 14; // of one thread; then it waits as try_wait does

unsigned long long& word_at(void* place) {
    if (reinterpret_cast<uintptr_t>(place) % 8)
        fail_block("an mbarrier at an address that is no multiple of 8");
    return *static_cast<unsigned long long*>(place);
}

Phase phase_at(void* place) {
    unsigned long long word = word_at(place);
    if (word == kNever)
        fail_block("an mbarrier that was not initialised");
    observe::mbarrier_is_met(owner_of(place), place, word);
    Phase phase;
    phase.expected = static_cast<unsigned>(word & 0xfffff);
    phase.pending = static_cast<unsigned>(word >> 20 & 0xfffff);
    phase.bytes = static_cast<int>(static_cast<long long>(word << 1) >> 41);
    phase.parity = static_cast<unsigned>(word >> 63);
    return phase;
}

void put(void* place, const Phase& phase) {
    word_at(place) = phase.expected | static_cast<unsigned long long>(phase.pending) << 20 |
                     (static_cast<unsigned long long>(phase.bytes) & 0x7fffff) << 40 |
                     static_cast<unsigned long long>(phase.parity) << 63;
    observe::mbarrier_is_left(owner_of(place), place, word_at(place));
}

void passes(Worker& self, const void* place, unsigned thread, bool learns_later) {
    if (learns_later)
        observe::mbarrier_passes_relaxed(self, place, thread);
    else
        observe::mbarrier_passes(self, place, thread);
}

// A phase that is complete gives way to the next one, and wakes who waits for it: threads of the block that it belongs to.
void settle(Worker& self, void* place, Phase phase) {
    if (phase.pending || phase.bytes) {
        put(place, phase);
        return;
    }
    phase.parity ^= 1;
    phase.pending = phase.expected;
    put(place, phase);
    for (unsigned i = 0; i < self.cluster->size; ++i)
        self.cluster->members[i]->stalls = 0;
    observe::mbarrier_completes(self, place);
    FibreList others;
    while (self.at_mbarriers.head) {
        Fibre* fibre = self.at_mbarriers.pop();
        bool woken = fibre->site == place && fibre->mask != phase.parity;
        if (woken) {
            fibre->active_mask = 1;
            passes(self, place, fibre->linear, fibre->learns_later);
        }
        (woken ? self.ready : others).push(fibre);
    }
    self.at_mbarriers = others;
}

void change_bytes(void* place, Phase& phase, long long by) {
    (void)place;
    long long bytes = phase.bytes + by;
    if (bytes > kMostBytes || bytes < -kMostBytes)
        fail_block("an mbarrier's count of bytes is out of its range");
    phase.bytes = static_cast<int>(bytes);
}

void take_arrivals(Phase& phase, unsigned count) {
    if (!count || count > phase.pending)
        fail_block("more arrivals at an mbarrier than its phase expects");
    phase.pending -= count;
}

void write_piece(const Bulk& bulk, const BulkPiece& piece, const char* content) {
    if (!content)
        std::memset(piece.target, bulk.fill, piece.bytes);
    else if (bulk.reduce)
        bulk.reduce(piece.target, content, piece.bytes);
    else
        std::memcpy(piece.target, content, piece.bytes);
}

void write_pieces(const Bulk& bulk) {
    const char* content = bulk.content.data();
    for (const BulkPiece& piece : bulk.pieces) {
        write_piece(bulk, piece, bulk.taken ? content : piece.source);
        content += bulk.taken ? piece.bytes : 0;
    }
}

void store(Worker& self, const Bulk& bulk) {
    write_pieces(bulk);
    observe::bulk_written(self, bulk);
}

void land(const Bulk& bulk) {
    const char* source = bulk.pieces.front().source;
    if (!bulk.taken && source && owner_of(source).ended)
        fail_block("a block of the cluster has ended while a copy out of its shared memory was on its way");
    write_pieces(bulk);
    observe::bulk_lands(*bulk.issuer, bulk);
}

// Copies for one mbarrier, in their order, until its phase is complete: what the phase did not count is on its way still.
void land_for(Worker& self, void* place) {
    unsigned parity = phase_at(place).parity;
    for (size_t i = 0; i < self.bulks.size() && phase_at(place).parity == parity;) {
        if (self.bulks[i].barrier != place) {
            ++i;
            continue;
        }
        Bulk bulk = std::move(self.bulks[i]);
        self.bulks.erase(self.bulks.begin() + static_cast<long>(i));
        Phase phase = phase_at(place);
        if (bulk.arrives) {
            land_copies_of(self, bulk.thread, bulk.copies, place);
            take_arrivals(phase, 1);
        } else {
            land(bulk);
            change_bytes(place, phase, -static_cast<long long>(bulk.bytes));
        }
        settle(self, place, phase);
    }
}

BulkGroups& own_groups(Worker& self) {
    if (self.bulk_groups.empty())
        self.bulk_groups.resize(kMaxThreads);
    return self.bulk_groups[self.linear];
}

void check_bulk(const void* target, const void* source, unsigned bytes) {
    if (reinterpret_cast<uintptr_t>(target) % 16)
        fail_block("cp.async.bulk to an address that is no multiple of 16");
    if (reinterpret_cast<uintptr_t>(source) % 16)
        fail_block("cp.async.bulk from an address that is no multiple of 16");
    if (bytes % 16)
        fail_block("cp.async.bulk of a size that is no multiple of 16");
}

void take_source(Worker& self, Bulk& bulk) {
    if (bulk.taken)
        return;
    for (const BulkPiece& piece : bulk.pieces)
        bulk.content.insert(bulk.content.end(), piece.source, piece.source + piece.bytes);
    bulk.taken = true;
    observe::bulk_lands(self, bulk);
}

Bulk bulk_of(void* target, const void* source, unsigned bytes, void* place, CudamasterCpuReduce reduce,
             const void* site) {
    Bulk bulk;
    bulk.pieces = {{static_cast<char*>(target), static_cast<const char*>(source), bytes}};
    bulk.bytes = bytes;
    bulk.barrier = place;
    bulk.reduce = reduce;
    bulk.issuer = worker;
    bulk.thread = worker->linear;
    bulk.site = site;
    return bulk;
}

Bulk bulk_copy(void* target, const void* source, unsigned bytes, void* place, CudamasterCpuReduce reduce,
               const void* site) {
    check_bulk(target, source, bytes);
    return bulk_of(target, source, bytes, place, reduce, site);
}

// On its way to an mbarrier.
void set_off(Bulk bulk) {
    Worker& self = *worker;
    phase_at(bulk.barrier);
    observe::bulk_starts(self, bulk); // who waits for it knows of the copy
    if (bulk.generic)                 // and of what its thread did before, in the same proxy
        observe::mbarrier_arrives(self, bulk.barrier, self.linear);
    owner_of(bulk.barrier).bulks.push_back(std::move(bulk));
}

// Of one whose phase changes from afar.
void settle_at(void* place, const Phase& phase) {
    settle(owner_of(place), place, phase);
}

} // namespace

void start_bulk(Bulk bulk) {
    if (bulk.barrier) {
        if (&owner_of(bulk.barrier) != &owner_of(bulk.pieces.front().target))
            fail_block("a copy in bulk with an mbarrier of another block than its target's");
        set_off(std::move(bulk));
        return;
    }
    observe::bulk_starts(*worker, bulk);
    own_groups(*worker).pending.push_back(std::move(bulk));
}

// What threads wait for at mbarriers comes now. Whether anybody can go on then.
bool land_at_mbarriers(Worker& self) {
    std::vector<void*> places;
    for (Fibre* fibre = self.at_mbarriers.head; fibre; fibre = fibre->next)
        places.push_back(const_cast<void*>(fibre->site));
    for (void* place : places) {
        land_for(self, place);
        if (self.ready.head)
            return true;
    }
    return false;
}

// Whether a thread's try fails at once: its first at a barrier does, as the hardware's may, so that who takes no notice of
// the answer reads too early.
bool refuse(Fibre* fibre, const void* place) {
    bool first = fibre->refused != place;
    fibre->refused = first ? place : nullptr;
    return first;
}

// Where nothing comes the waits end without it, as waits of the hardware do after a while.
bool give_up_at_mbarriers(Worker& self) {
    if (!self.at_mbarriers.head || self.stalls++ >= kMostStalls)
        return false;
    for (Fibre* fibre = self.at_mbarriers.head; fibre; fibre = fibre->next)
        fibre->active_mask = 0;
    self.ready.append(self.at_mbarriers);
    return true;
}

// Whose source nobody waited for: the shared memory may be another block's when it is read.
bool has_unread_source(const Worker& self, unsigned thread) {
    if (self.bulk_groups.empty())
        return false;
    const auto& pending = self.bulk_groups[thread].pending;
    return std::any_of(pending.begin(), pending.end(), [](const Bulk& bulk) { return !bulk.taken; });
}

// Whether a copy of the thread into the block's shared memory is on its way still: another block's may be there when it comes.
bool lacks_bulk(const Worker& self, unsigned thread) {
    return std::any_of(self.bulks.begin(), self.bulks.end(),
                       [&](const Bulk& bulk) { return !bulk.arrives && bulk.thread == thread; });
}

void end_bulks(Worker& self) {
    self.bulks.clear();
    self.stalls = 0;
    for (BulkGroups& groups : self.bulk_groups) {
        for (Bulk& bulk : groups.pending)
            if (bulk.taken && !self.block_failed)
                store(self, bulk);
        groups = {};
    }
}

void describe_mbarrier(const void* place, unsigned parity, char* text, size_t bytes) {
    Phase phase = phase_at(const_cast<void*>(place));
    char name[100];
    name_of_shared(place, name, sizeof name);
    std::snprintf(
        text, bytes,
        "waits at the mbarrier %s for its phase of parity %u: %u arrivals and %d bytes are missing%s", name,
        parity, phase.pending, phase.bytes, phase.bytes < 0 ? ": more came than were expected" : "");
}

} // namespace executor

using namespace executor;

void cudamaster_cpu_mbarrier_init(void* place, unsigned count) {
    if (!count || count >= 1u << 20)
        fail_block("an mbarrier for less than 1 or more than 2^20 - 1 arrivals");
    observe::mbarrier_begins(*worker, place, __builtin_return_address(0));
    word_at(place) = 0;
    put(place, {count, count, 0, 0});
}

void cudamaster_cpu_proxy_fence(int of) {
    observe::proxy_fence(*worker, of);
}

void cudamaster_cpu_mbarrier_inval(void* place) {
    observe::mbarrier_ends(*worker, place, __builtin_return_address(0));
    phase_at(place);
    word_at(place) = kNever;
}

void cudamaster_cpu_mbarrier_bytes(void* place, long long by) {
    if (by > 0)
        observe::mbarrier_expects(*worker, place, __builtin_return_address(0));
    else
        observe::mbarrier_is_used(*worker, place, false, __builtin_return_address(0));
    Phase phase = phase_at(place);
    change_bytes(place, phase, by);
    settle_at(place, phase);
}

unsigned long long cudamaster_cpu_mbarrier_arrive(void* place, unsigned count, unsigned bytes, int how) {
    Worker& self = *worker;
    observe::mbarrier_is_used(self, place, false, __builtin_return_address(0));
    Phase phase = phase_at(place);
    unsigned long long state = word_at(place);
    if (how & CUDAMASTER_CPU_RELAXED)
        observe::mbarrier_arrives_relaxed(self, place, self.linear);
    else
        observe::mbarrier_arrives(self, place, self.linear);
    change_bytes(place, phase, bytes);
    take_arrivals(phase, count);
    if (how & CUDAMASTER_CPU_NO_COMPLETE && !phase.pending && !phase.bytes)
        fail_block("mbarrier.arrive.noComplete that completes a phase");
    if (how & CUDAMASTER_CPU_DROPS) {
        if (phase.expected <= count)
            fail_block("mbarrier.arrive_drop by the last who is expected");
        phase.expected -= count;
    }
    settle_at(place, phase);
    return state;
}

int cudamaster_cpu_mbarrier_wait(void* place, unsigned parity, int how) {
    Worker& self = *worker;
    bool blocks = how & CUDAMASTER_CPU_TRIES, learns_later = how & CUDAMASTER_CPU_LEARNS_LATER;
    if (&owner_of(place) != &self)
        fail_block("a wait at an mbarrier of another block of the cluster");
    bool refuses = blocks && phase_at(place).parity == parity && refuse(self.current, place);
    if (!refuses)
        observe::mbarrier_is_used(self, place, true, __builtin_return_address(0));
    blocks = blocks && !refuses;
    unsigned& polls = refuses ? self.current->refusals : self.polls;
    if (phase_at(place).parity == parity && !blocks && ++polls % kMostPolls == 0)
        land_for(self, place);
    Fibre* me = self.current;
    if (phase_at(place).parity != parity) {
        me->polls = 0;
        observe::waited(self, place);
        passes(self, place, self.linear, learns_later);
        return 1;
    }
    if (!blocks && ++me->polls < kMostPollsInVain) {
        // One that tries several barriers in turn polls; one that tries again waits, so its first try costs nothing.
        if (!refuses || polls > 1)
            let_others_run(self);
        return 0;
    }
    me->refusals = 0;
    me->wait = Wait::kMbarrier;
    me->site = place;
    me->mask = parity;
    me->learns_later = learns_later;
    me->operation = "an mbarrier";
    keep_place(self, me);
    self.at_mbarriers.push(me);
    block_current(self, me);
    if (me->active_mask)
        observe::waited(self, place);
    return static_cast<int>(me->active_mask);
}

// The arrival comes when the thread's copies up to now have.
void cudamaster_cpu_copy_arrive(void* place, int counted) {
    Worker& self = *worker;
    observe::mbarrier_is_used(self, place, false, __builtin_return_address(0));
    Phase phase = phase_at(place);
    if (!counted) {
        ++phase.pending;
        put(place, phase);
    }
    observe::mbarrier_arrives(self, place, self.linear);
    observe::copies_will_arrive(self, place);
    Bulk bulk;
    bulk.barrier = place;
    bulk.thread = self.linear;
    bulk.arrives = true;
    bulk.copies = pending_copies(self);
    self.bulks.push_back(bulk);
}

void cudamaster_cpu_bulk_load(void* target, const void* source, unsigned bytes, void* place) {
    start_bulk(bulk_copy(target, source, bytes, place, nullptr, __builtin_return_address(0)));
}

void cudamaster_cpu_bulk_multicast(void* target, const void* source, unsigned bytes, void* place,
                                   unsigned blocks) {
    const void* site = __builtin_return_address(0);
    to_each_block(blocks, target, place, [&](void* to, void* arrived, bool again) {
        Bulk bulk = bulk_copy(to, source, bytes, arrived, nullptr, site);
        bulk.again = again;
        start_bulk(std::move(bulk));
    });
}

void cudamaster_cpu_bulk_store(void* target, const void* source, unsigned bytes) {
    start_bulk(bulk_copy(target, source, bytes, nullptr, nullptr, __builtin_return_address(0)));
}

void cudamaster_cpu_bulk_reduce(void* target, const void* source, unsigned bytes, void* place,
                                CudamasterCpuReduce reduce) {
    start_bulk(bulk_copy(target, source, bytes, place, reduce, __builtin_return_address(0)));
}

void cudamaster_cpu_store_async(void* target, const void* content, unsigned bytes, void* place,
                                CudamasterCpuReduce reduce) {
    if (reinterpret_cast<uintptr_t>(target) % bytes)
        fail_block("st.async or red.async at an address that is no multiple of its size");
    if (&owner_of(target) != &owner_of(place))
        fail_block("st.async or red.async with an mbarrier of another block than its target's");
    Bulk bulk = bulk_of(target, nullptr, bytes, place, reduce, __builtin_return_address(0));
    bulk.content.assign(static_cast<const char*>(content), static_cast<const char*>(content) + bytes);
    bulk.taken = true;
    bulk.generic = true;
    set_off(std::move(bulk));
}

void cudamaster_cpu_bulk_commit() {
    BulkGroups& groups = own_groups(*worker);
    groups.ends.push_back(groups.pending.size());
}

void cudamaster_cpu_bulk_wait(unsigned groups_left, int read_only) {
    Worker& self = *worker;
    BulkGroups& groups = own_groups(self);
    if (groups.ends.size() <= groups_left)
        return;
    size_t done = groups.ends.size() - groups_left, count = groups.ends[done - 1];
    for (size_t i = 0; i < count; ++i)
        take_source(self, groups.pending[i]);
    if (read_only)
        return;
    for (size_t i = 0; i < count; ++i)
        store(self, groups.pending[i]);
    groups.pending.erase(groups.pending.begin(), groups.pending.begin() + static_cast<long>(count));
    groups.ends.erase(groups.ends.begin(), groups.ends.begin() + static_cast<long>(done));
    for (size_t& end : groups.ends)
        end -= count;
}
