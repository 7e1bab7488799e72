// What the compiler calls in a candidate before each access to memory (-fsanitize=thread), and where an address does not
// suit its type (-fsanitize=alignment). Atomics of the headers tell of themselves; others are made here.
#include "check.h"
#include "../mismatch.h"
#include "cudamaster_cpu/observed.h"

#include <cstring>

#define SITE __builtin_return_address(0)

using executor::check::kAtomic;
using executor::check::kReads;
using executor::check::kVolatile;
using executor::check::kWrite;
using executor::check::observe_access;

#define CUDAMASTER_CPU_SIZE(bytes)                                                                           \
    void __tsan_read##bytes(void* address) {                                                                 \
        observe_access(address, bytes, 0, SITE);                                                             \
    }                                                                                                        \
    void __tsan_write##bytes(void* address) {                                                                \
        observe_access(address, bytes, kWrite, SITE);                                                        \
    }                                                                                                        \
    void __tsan_unaligned_read##bytes(void* address) {                                                       \
        observe_access(address, bytes, 0, SITE);                                                             \
    }                                                                                                        \
    void __tsan_unaligned_write##bytes(void* address) {                                                      \
        observe_access(address, bytes, kWrite, SITE);                                                        \
    }                                                                                                        \
    void __tsan_volatile_read##bytes(void* address) {                                                        \
        observe_access(address, bytes, kVolatile, SITE);                                                     \
    }                                                                                                        \
    void __tsan_volatile_write##bytes(void* address) {                                                       \
        observe_access(address, bytes, kVolatile | kWrite, SITE);                                            \
    }                                                                                                        \
    void __tsan_unaligned_volatile_read##bytes(void* address) {                                              \
        observe_access(address, bytes, kVolatile, SITE);                                                     \
    }                                                                                                        \
    void __tsan_unaligned_volatile_write##bytes(void* address) {                                             \
        observe_access(address, bytes, kVolatile | kWrite, SITE);                                            \
    }

#define CUDAMASTER_CPU_CHANGE(bits, type, name)                                                              \
    type __tsan_atomic##bits##_##name(volatile type* address, type value, int) {                             \
        observe_access(const_cast<type*>(address), sizeof(type), kAtomic | kWrite | kReads, SITE);           \
        return __atomic_##name(address, value, __ATOMIC_RELAXED);                                            \
    }
#define CUDAMASTER_CPU_EXCHANGE(bits, type, name)                                                            \
    int __tsan_atomic##bits##_compare_exchange_##name(volatile type* address, type* expected, type value,    \
                                                      int, int) {                                            \
        observe_access(const_cast<type*>(address), sizeof(type), kAtomic | kWrite | kReads, SITE);           \
        return __atomic_compare_exchange_n(address, expected, value, false, __ATOMIC_RELAXED,                \
                                           __ATOMIC_RELAXED);                                                \
    }
// clang's: what was there is the result.
#define CUDAMASTER_CPU_EXCHANGE_VALUE(bits, type)                                                            \
    type __tsan_atomic##bits##_compare_exchange_val(volatile type* address, type expected, type value, int,  \
                                                    int) {                                                   \
        observe_access(const_cast<type*>(address), sizeof(type), kAtomic | kWrite | kReads, SITE);           \
        __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);   \
        return expected;                                                                                     \
    }
#define CUDAMASTER_CPU_ATOMICS(bits, type)                                                                   \
    type __tsan_atomic##bits##_load(const volatile type* address, int) {                                     \
        observe_access(const_cast<type*>(address), sizeof(type), kAtomic, SITE);                             \
        return __atomic_load_n(address, __ATOMIC_RELAXED);                                                   \
    }                                                                                                        \
    void __tsan_atomic##bits##_store(volatile type* address, type value, int) {                              \
        observe_access(const_cast<type*>(address), sizeof(type), kAtomic | kWrite, SITE);                    \
        __atomic_store_n(address, value, __ATOMIC_RELAXED);                                                  \
    }                                                                                                        \
    type __tsan_atomic##bits##_exchange(volatile type* address, type value, int) {                           \
        observe_access(const_cast<type*>(address), sizeof(type), kAtomic | kWrite, SITE);                    \
        return __atomic_exchange_n(address, value, __ATOMIC_RELAXED);                                        \
    }                                                                                                        \
    CUDAMASTER_CPU_CHANGE(bits, type, fetch_add)                                                             \
    CUDAMASTER_CPU_CHANGE(bits, type, fetch_sub)                                                             \
    CUDAMASTER_CPU_CHANGE(bits, type, fetch_and)                                                             \
    CUDAMASTER_CPU_CHANGE(bits, type, fetch_or)                                                              \
    CUDAMASTER_CPU_CHANGE(bits, type, fetch_xor)                                                             \
    CUDAMASTER_CPU_CHANGE(bits, type, fetch_nand)                                                            \
    CUDAMASTER_CPU_EXCHANGE(bits, type, strong)                                                              \
    CUDAMASTER_CPU_EXCHANGE(bits, type, weak)                                                                \
    CUDAMASTER_CPU_EXCHANGE_VALUE(bits, type)

extern "C" {
CUDAMASTER_CPU_SIZE(1)
CUDAMASTER_CPU_SIZE(2)
CUDAMASTER_CPU_SIZE(4)
CUDAMASTER_CPU_SIZE(8)
CUDAMASTER_CPU_SIZE(16)
CUDAMASTER_CPU_ATOMICS(8, unsigned char)
CUDAMASTER_CPU_ATOMICS(16, unsigned short)
CUDAMASTER_CPU_ATOMICS(32, unsigned int)
CUDAMASTER_CPU_ATOMICS(64, unsigned long long)

void __tsan_read_range(void* address, unsigned long bytes) {
    observe_access(address, bytes, 0, SITE);
}
void __tsan_write_range(void* address, unsigned long bytes) {
    observe_access(address, bytes, kWrite, SITE);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_atomic_signal_fence(int) {}
void __tsan_atomic_thread_fence(int) {
    cudamaster_cpu_observe_fence(1);
}

void cudamaster_cpu_observe_atomic(const void* address, unsigned int bytes, const void* site) {
    observe_access(address, bytes, kAtomic | kWrite | kReads, site);
}

void cudamaster_cpu_observe_unchanged() {}
void cudamaster_cpu_observe_cluster_fence() {}
void cudamaster_cpu_observe_sleep(unsigned) {}
void cudamaster_cpu_observe_uncounted(const char*) {}
unsigned long long cudamaster_cpu_observe_clock(int) {
    return 0;
}

// A candidate has these in place of the library's functions. In pieces, as a kernel's own loop would go.
void* cudamaster_cpu_observe_memcpy(void* to, const void* from, size_t bytes) {
    executor::check::observe_range(from, bytes, 0, SITE);
    executor::check::observe_range(to, bytes, kWrite, SITE);
    return std::memcpy(to, from, bytes);
}
void* cudamaster_cpu_observe_memmove(void* to, const void* from, size_t bytes) {
    executor::check::observe_range(from, bytes, 0, SITE);
    executor::check::observe_range(to, bytes, kWrite, SITE);
    return std::memmove(to, from, bytes);
}
void* cudamaster_cpu_observe_memset(void* to, int value, size_t bytes) {
    executor::check::observe_range(to, bytes, kWrite, SITE);
    return std::memset(to, value, bytes);
}

void cudamaster_cpu_observe_fence(int) {
    executor::Worker* self = executor::worker;
    if (!self || !self->running)
        return;
    executor::check::Locked locked;
    executor::check::settle_doubts(*executor::check::block_state);
    executor::check::state().clock.fence(executor::check::block_state->clock, self->linear);
}

void __ubsan_handle_type_mismatch_v1(CudamasterCpuMismatch* mismatch, void* address) {
    executor::Worker* self = executor::worker;
    if (!self || !self->running)
        return;
    executor::check::Locked locked;
    executor::check::BlockState& block = *executor::check::block_state;
    executor::check::Access now;
    now.segment = block.clock.segment;
    now.thread = static_cast<uint16_t>(self->linear);
    now.place = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(SITE) - executor::check::state().image);
    now.kind = mismatch->access == 1 ? kWrite : 0;
    now.count = 1;
    executor::check::report_misaligned(reinterpret_cast<uintptr_t>(address), mismatch->type->name,
                                       1ul << mismatch->alignment_bits, now);
}
}

#undef SITE
