// What the headers of cuda/ share: scopes, sizes that are known to be aligned, and cuda::std, which is the host's library.
#pragma once

#include "cuda_runtime.h"
#include "cudamaster_cpu/ptx.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace cuda {

namespace std {
using namespace ::std;
}

enum thread_scope {
    thread_scope_system = 0,
    thread_scope_device = 1,
    thread_scope_block = 2,
    thread_scope_thread = 10
};

template <::std::size_t Alignment> struct aligned_size_t {
    static constexpr ::std::size_t align = Alignment;
    ::std::size_t value;
    explicit constexpr aligned_size_t(::std::size_t size) : value(size) {}
    constexpr operator ::std::size_t() const { return value; }
};

enum class async_contract_fulfillment { none, async };

} // namespace cuda

namespace cudamaster_cpu {
namespace cxx {

// A group of one.
struct Alone {
    static constexpr unsigned int size() { return 1; }
    static constexpr unsigned int thread_rank() { return 0; }
};

// A group's copy: asynchronous from global to shared memory in pieces of 16, 8 or 4 bytes, one thread after the other;
// all else is copied at once. Whether the thread has begun an asynchronous one.
template <class Group>
CUDAMASTER_CPU_PART inline bool copy_together(const Group& group, void* to, const void* from,
                                              ::std::size_t bytes) {
    auto* target = static_cast<char*>(to);
    auto* source = static_cast<const char*>(from);
    ::std::size_t aligned =
        reinterpret_cast<::std::size_t>(target) | reinterpret_cast<::std::size_t>(source) | bytes;
    ::std::size_t step = aligned % 16 == 0 ? 16 : aligned % 8 == 0 ? 8 : aligned % 4 == 0 ? 4 : 1;
    bool late = step > 1 && cudamaster_cpu_space(target) == CUDAMASTER_CPU_SHARED &&
                cudamaster_cpu_space(source) == CUDAMASTER_CPU_GLOBAL;
    bool any = false;
    for (::std::size_t at = group.thread_rank() * step; at < bytes; at += group.size() * step) {
        if (late)
            cudamaster_cpu_copy_async(target + at, source + at, static_cast<unsigned int>(step),
                                      static_cast<unsigned int>(step));
        else
            for (::std::size_t i = at; i < at + step; ++i)
                target[i] = source[i];
        any |= late;
    }
    return any;
}

} // namespace cxx
} // namespace cudamaster_cpu
