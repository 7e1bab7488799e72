// What the compiler calls in an observed candidate, and atomics and fences of the headers. A call-out is made before
// the access; its return address is its place in the program.
#include "trace/trace.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace executor {
namespace trace {

__thread Tracer* recorder;
__thread Count accesses;
__thread Count instructions;
__thread Count instructions_at_question;
__thread unsigned work_since_question;
__thread Count multiplications;
__thread Count steps_left;
const char* program_base;
const unsigned* place_orders;

namespace {

// An access to what is none of the thread's own variables. It is apart, so that those are passed by without a register of the
// caller being saved: there are a hundred times as many in kernels with tiles in registers.
__attribute__((noinline)) void access_memory(Tracer& tracer, const void* address, unsigned thread, Act kind,
                                             unsigned bytes, const void* site, bool asks) {
    Lane& lane = tracer.lane(thread);
    tracer.uses(lane, kind, reinterpret_cast<uintptr_t>(address), asks);
    if (kind == Act::kLoad)
        tracer.may_see_sum(reinterpret_cast<uintptr_t>(address));
    else
        tracer.overwrites(reinterpret_cast<uintptr_t>(address), bytes);
    tracer.note(lane, thread, kind, reinterpret_cast<uintptr_t>(address), bytes, site);
}

inline __attribute__((always_inline)) void access(Act kind, const void* address, unsigned bytes,
                                                  const void* site, bool asks = false) {
    Tracer* tracer = recorder;
    if (__builtin_expect(!tracer, 0)) {
        if (!worker && kind != Act::kStore)
            host_reads(address);
        return;
    }
    const Worker& self = *worker;
    // A thread's own variables: registers, mostly.
    if (static_cast<size_t>(static_cast<const char*>(address) - self.current->stack) <
        kGuardBytes + kStackBytes)
        return tracer->uses_own(tracer->lane(self.linear), self.linear);
    access_memory(*tracer, address, self.linear, kind, bytes, site, asks);
}

inline bool is_own(const void* address) {
    return static_cast<size_t>(static_cast<const char*>(address) - worker->current->stack) <
           kGuardBytes + kStackBytes;
}

// What a library's function moves is a loop over 16 bytes at a time. A thread's own variables are registers, mostly.
void moved(const void* to, const void* from, size_t bytes, const void* site) {
    if (!worker) {
        host_moves(bytes);
        if (from)
            host_reads(from);
        return;
    }
    if (is_own(to) && (!from || is_own(from)))
        return;
    accesses += (from ? 2 : 1) * ((bytes + 15) / 16);
    Tracer* tracer = recorder;
    if (__builtin_expect(!tracer, 0))
        return;
    unsigned thread = worker->linear;
    for (size_t done = 0; done < bytes; done += 16) {
        auto part = static_cast<unsigned>(std::min<size_t>(bytes - done, 16));
        tracer->note(tracer->lane(thread), thread, Act::kBlock, 0, 0, site);
        if (from)
            access(Act::kLoad, static_cast<const char*>(from) + done, part, site);
        access(Act::kStore, static_cast<const char*>(to) + done, part, site);
    }
}

// The host's heap stands in for the device's. What a kernel does there lies in no buffer and would cost nothing.
void takes_from_heap() {
    if (worker)
        fail_block("what a kernel does in memory from the device's heap is not counted");
}

// The thread asks for what another one may write meanwhile.
inline __attribute__((always_inline)) void asks(const volatile void* address) {
    if (Tracer* tracer = recorder) {
        if (__builtin_expect(units != nullptr, 0))
            asks_beside_units(reinterpret_cast<uintptr_t>(address));
        tracer->asks(worker->linear, reinterpret_cast<uintptr_t>(address));
    }
}

// What it did since it asked before is what it does again and again, if that is little and no work.
inline __attribute__((always_inline)) void waits() {
    if (!(work_since_question & kWork) && instructions - instructions_at_question < kOfQuestion)
        instructions = instructions_at_question;
    instructions_at_question = instructions;
    work_since_question = 0;
}

inline __attribute__((always_inline)) void executes(const void* site) {
    unsigned found = instructions_at(site);
    instructions += found & ~kWork;
    work_since_question |= found;
}

// A range is as many accesses of 16 bytes.
void access_range(Act kind, const void* address, size_t bytes, const void* site) {
    const char* at = static_cast<const char*>(address);
    if (!recorder) {
        if (!worker && kind != Act::kStore)
            host_reads(address);
        return;
    }
    if (is_own(address) && is_own(at + bytes - 1)) {
        unsigned thread = worker->linear;
        for (size_t done = 0; done < bytes; done += 16)
            recorder->uses_own(recorder->lane(thread), thread);
        return;
    }
    for (size_t done = 0; done < bytes; done += 16)
        access(kind, at + done, static_cast<unsigned>(std::min<size_t>(bytes - done, 16)), site);
}

} // namespace
void copies_asynchronously(const void* to, const void* from, unsigned bytes, unsigned from_source,
                           const void* site) {
    accesses += 2;
    if (from_source)
        access(Act::kCopy, from, from_source, site);
    access(Act::kStore, to, bytes, site);
}
void stores_asynchronously(const void* to, unsigned bytes, bool reduces, const void* site) {
    accesses += 1;
    access(reduces ? Act::kAtomic : Act::kStore, to, bytes, site);
}

} // namespace trace
} // namespace executor

using namespace executor;
using namespace executor::trace;

extern "C" {

void __tsan_init() {}

void __sanitizer_cov_trace_pc() {
    Tracer* tracer = recorder;
    if (__builtin_expect(!tracer, 0)) {
        if (!worker) {
            host_executes(__builtin_return_address(0));
            return;
        }
        executes(__builtin_return_address(0));
        if (__builtin_expect(--steps_left == 0, 0))
            leave_out();
        return;
    }
    executes(__builtin_return_address(0));
    if (__builtin_expect(--steps_left == 0, 0))
        leave_out();
    unsigned thread = worker->linear;
    tracer->note(tracer->lane(thread), thread, Act::kBlock, 0, 0, __builtin_return_address(0));
}

void __tsan_func_entry(void*) {
    if (Tracer* tracer = recorder)
        ++tracer->lane(worker->linear).depth;
}
void __tsan_func_exit() {
    if (Tracer* tracer = recorder)
        --tracer->lane(worker->linear).depth;
}

#define CALLOUT(name, bytes, plain)                                                                          \
    void __tsan_##name##read##bytes(void* address) {                                                         \
        accesses += plain;                                                                                   \
        if (!plain) {                                                                                        \
            asks(address);                                                                                   \
            waits();                                                                                         \
        }                                                                                                    \
        access(Act::kLoad, address, bytes, __builtin_return_address(0), !plain);                             \
    }                                                                                                        \
    void __tsan_##name##write##bytes(void* address) {                                                        \
        accesses += plain;                                                                                   \
        access(Act::kStore, address, bytes, __builtin_return_address(0));                                    \
    }
#define CALLOUTS(name, plain)                                                                                \
    CALLOUT(name, 1, plain)                                                                                  \
    CALLOUT(name, 2, plain) CALLOUT(name, 4, plain) CALLOUT(name, 8, plain) CALLOUT(name, 16, plain)
CALLOUTS(, 1)
CALLOUTS(unaligned_, 1)
CALLOUTS(volatile_, 0)
CALLOUTS(unaligned_volatile_, 0)
#undef CALLOUTS
#undef CALLOUT

void __tsan_read_range(void* address, size_t bytes) {
    access_range(Act::kLoad, address, bytes, __builtin_return_address(0));
}
void __tsan_write_range(void* address, size_t bytes) {
    access_range(Act::kStore, address, bytes, __builtin_return_address(0));
}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// A traced candidate has these in place of the library's functions (toolchain.py), which call out for nothing.
void* cudamaster_cpu_observe_memcpy(void* to, const void* from, size_t bytes) {
    moved(to, from, bytes, __builtin_return_address(0));
    return std::memcpy(to, from, bytes);
}
void* cudamaster_cpu_observe_memmove(void* to, const void* from, size_t bytes) {
    moved(to, from, bytes, __builtin_return_address(0));
    return std::memmove(to, from, bytes);
}
void* cudamaster_cpu_observe_memset(void* to, int value, size_t bytes) {
    moved(to, nullptr, bytes, __builtin_return_address(0));
    return std::memset(to, value, bytes);
}
void* cudamaster_cpu_observe_malloc(size_t bytes) {
    takes_from_heap();
    return std::malloc(bytes);
}
void* cudamaster_cpu_observe_calloc(size_t count, size_t bytes) {
    takes_from_heap();
    return std::calloc(count, bytes);
}
void* cudamaster_cpu_observe_realloc(void* before, size_t bytes) {
    takes_from_heap();
    return std::realloc(before, bytes);
}
#define NEW(name, operation, ...)                                                                            \
    void* cudamaster_cpu_observe_##name __VA_ARGS__ {                                                        \
        takes_from_heap();                                                                                   \
        return operation;                                                                                    \
    }
NEW(_Znwm, ::operator new(bytes), (size_t bytes))
NEW(_Znam, ::operator new[](bytes), (size_t bytes))
NEW(_ZnwmRKSt9nothrow_t, ::operator new(bytes, none), (size_t bytes, const std::nothrow_t& none))
NEW(_ZnamRKSt9nothrow_t, ::operator new[](bytes, none), (size_t bytes, const std::nothrow_t& none))
NEW(_ZnwmSt11align_val_t, ::operator new(bytes, to), (size_t bytes, std::align_val_t to))
NEW(_ZnamSt11align_val_t, ::operator new[](bytes, to), (size_t bytes, std::align_val_t to))
#undef NEW

void cudamaster_cpu_observe_atomic(const void* address, unsigned bytes, const void* site) {
    if (instructions_at(site) != kUnanswered) {
        if (__builtin_expect(units != nullptr, 0))
            takes_unit(address, bytes);
        if (recorder)
            recorder->asks(worker->linear, reinterpret_cast<uintptr_t>(address));
    } else if (Tracer* tracer = recorder)
        tracer->adds_quietly(reinterpret_cast<uintptr_t>(address));
    access(Act::kAtomic, address, bytes, site);
}
void cudamaster_cpu_observe_unchanged() {
    if (Tracer* tracer = recorder) {
        Lane& lane = tracer->lane(worker->linear);
        lane.added = lane.added_before;
    }
}
void cudamaster_cpu_observe_fragment(const void* address, unsigned bytes, int stored, const void* site) {
    accesses += 1;
    access(stored ? Act::kStore : Act::kLoad, address, bytes, site);
}
// One behind what the thread has done in memory.
void cudamaster_cpu_observe_fence(int scope) {
    Tracer* tracer = recorder;
    if (!tracer || scope < 1)
        return;
    Lane& lane = tracer->lane(worker->linear);
    lane.fenced = lane.stored || lane.used || lane.added;
    lane.fences += lane.fenced;
    lane.added_to = lane.stored || lane.used ? 0 : lane.added_to;
    lane.stored = lane.used = lane.added = false;
}
void cudamaster_cpu_observe_cluster_fence() {
    if (Tracer* tracer = recorder)
        ++tracer->lane(worker->linear).cluster_fences;
}
unsigned long long cudamaster_cpu_observe_clock(int nanoseconds) {
    Count now = time_of_thread();
    return nanoseconds ? now / clock_mhz() * 1000 + now % clock_mhz() * 1000 / clock_mhz() : now;
}
void cudamaster_cpu_observe_sleep(unsigned nanoseconds) {
    passes(Count{nanoseconds} * clock_mhz() / 1000);
    if (Tracer* tracer = recorder)
        tracer->sleeps(worker->linear, nanoseconds, __builtin_return_address(0));
}
void cudamaster_cpu_observe_uncounted(const char* what) {
    observe::uncounted(what);
}

// Atomics that a candidate makes by the compiler's own builtins. Orders are the strongest: nobody here is after speed.
#define ATOMIC_OPERATION(bits, type, name)                                                                   \
    type __tsan_atomic##bits##_##name(volatile type* address, type value, int) {                             \
        asks(address);                                                                                       \
        access(Act::kAtomic, const_cast<type*>(address), bits / 8, __builtin_return_address(0));             \
        return __atomic_##name(address, value, __ATOMIC_SEQ_CST);                                            \
    }
#define ATOMICS(bits, type)                                                                                  \
    type __tsan_atomic##bits##_load(const volatile type* address, int) {                                     \
        asks(address);                                                                                       \
        access(Act::kLoad, const_cast<const type*>(address), bits / 8, __builtin_return_address(0));         \
        return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                                   \
    }                                                                                                        \
    void __tsan_atomic##bits##_store(volatile type* address, type value, int) {                              \
        access(Act::kStore, const_cast<type*>(address), bits / 8, __builtin_return_address(0));              \
        __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                                  \
    }                                                                                                        \
    type __tsan_atomic##bits##_exchange(volatile type* address, type value, int) {                           \
        asks(address);                                                                                       \
        access(Act::kAtomic, const_cast<type*>(address), bits / 8, __builtin_return_address(0));             \
        return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);                                        \
    }                                                                                                        \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile type* address, type* expected, type value,    \
                                                      int, int) {                                            \
        asks(address);                                                                                       \
        access(Act::kAtomic, const_cast<type*>(address), bits / 8, __builtin_return_address(0));             \
        return __atomic_compare_exchange_n(address, expected, value, false, __ATOMIC_SEQ_CST,                \
                                           __ATOMIC_SEQ_CST);                                                \
    }                                                                                                        \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile type* address, type* expected, type value, int, \
                                                    int) {                                                   \
        asks(address);                                                                                       \
        access(Act::kAtomic, const_cast<type*>(address), bits / 8, __builtin_return_address(0));             \
        return __atomic_compare_exchange_n(address, expected, value, true, __ATOMIC_SEQ_CST,                 \
                                           __ATOMIC_SEQ_CST);                                                \
    }                                                                                                        \
    type __tsan_atomic##bits##_compare_exchange_val(volatile type* address, type expected, type value, int,  \
                                                    int) {                                                   \
        asks(address);                                                                                       \
        access(Act::kAtomic, const_cast<type*>(address), bits / 8, __builtin_return_address(0));             \
        __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);   \
        return expected;                                                                                     \
    }                                                                                                        \
    ATOMIC_OPERATION(bits, type, fetch_add)                                                                  \
    ATOMIC_OPERATION(bits, type, fetch_sub)                                                                  \
    ATOMIC_OPERATION(bits, type, fetch_and)                                                                  \
    ATOMIC_OPERATION(bits, type, fetch_or)                                                                   \
    ATOMIC_OPERATION(bits, type, fetch_xor)                                                                  \
    ATOMIC_OPERATION(bits, type, fetch_nand)
ATOMICS(8, unsigned char)
ATOMICS(16, unsigned short)
ATOMICS(32, unsigned int)
ATOMICS(64, unsigned long long)
#undef ATOMICS
#undef ATOMIC_OPERATION

void __tsan_atomic_thread_fence(int) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

} // extern "C"
