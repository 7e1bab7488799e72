// Asynchronous copies of single threads: late, as runtime/copies.cpp has it.
#pragma once

#include "cudamaster_cpu/ptx/memory.h"

namespace cudamaster_cpu {
namespace ptx {

template <class... Tags>
CUDAMASTER_CPU_PART inline void cp_async(B64 target, B64 source, long long bytes, B32 from) {
    if (has<t_cg, Tags...> && bytes != 16)
        cudamaster_cpu_fail("cp.async.cg of something else than 16 bytes");
    cudamaster_cpu_copy_async(place<t_shared>(target), place<t_global>(source), static_cast<unsigned>(bytes),
                              from);
}
template <class... Tags> CUDAMASTER_CPU_PART inline void cp_async(B64 target, B64 source, long long bytes) {
    cp_async<Tags...>(target, source, bytes, static_cast<B32>(bytes));
}
// With the source ignored, zeros come.
template <class... Tags>
CUDAMASTER_CPU_PART inline void cp_async(B64 target, B64 source, long long bytes, bool ignored) {
    cp_async<Tags...>(target, source, bytes, ignored ? 0u : static_cast<B32>(bytes));
}
template <class... Tags> inline void cp_async_commit_group() {
    cudamaster_cpu_copy_commit();
}
template <class... Tags> inline void cp_async_wait_group(long long left) {
    cudamaster_cpu_copy_wait(static_cast<unsigned>(left));
}
template <class... Tags> inline void cp_async_wait_all() {
    cudamaster_cpu_copy_wait_all();
}

template <class... Tags> inline void cp_async_mbarrier_arrive(B64 address) {
    cudamaster_cpu_copy_arrive(place<Tags..., t_shared>(address), has<t_noinc, Tags...>);
}

// In bulk: into shared memory with an mbarrier, out of it in groups.
template <class... Tags>
CUDAMASTER_CPU_PART inline void cp_async_bulk(B64 target, B64 source, B32 bytes, B64 barrier) {
    char* from = has<t_global, Tags...> ? place<t_global>(source) : place<t_shared>(source);
    cudamaster_cpu_bulk_load(place<t_shared_cluster>(target), from, bytes, place<t_shared_cluster>(barrier));
}
template <class... Tags>
CUDAMASTER_CPU_PART inline void cp_async_bulk(B64 target, B64 source, B32 bytes, B64 barrier, B16 blocks) {
    cudamaster_cpu_bulk_multicast(place<t_shared>(target), place<t_global>(source), bytes,
                                  place<t_shared>(barrier), blocks);
}
template <class... Tags> CUDAMASTER_CPU_PART inline void cp_async_bulk(B64 target, B64 source, B32 bytes) {
    cudamaster_cpu_bulk_store(place<t_global>(target), place<t_shared>(source), bytes);
}
// Element by element, each as an atomic; the executor tells an observer of them.
template <class... Tags>
CUDAMASTER_CPU_UNSEEN inline void reduce_in_bulk(char* target, const char* content, unsigned bytes) {
    for (unsigned at = 0; at < bytes; at += sizeof(Bits<Tags...>)) {
        Bits<Tags...> value;
        __builtin_memcpy(&value, content + at, sizeof value);
        atomic_update(reinterpret_cast<Bits<Tags...>*>(target + at),
                      [value](Bits<Tags...> old)
                          CUDAMASTER_CPU_PART { return updated<Tags...>(old, value); });
    }
}
template <class... Tags>
CUDAMASTER_CPU_PART inline void cp_reduce_async_bulk(B64 target, B64 source, B32 bytes) {
    cudamaster_cpu_bulk_reduce(place<t_global>(target), place<t_shared>(source), bytes, nullptr,
                               reduce_in_bulk<Tags...>);
}
template <class... Tags>
CUDAMASTER_CPU_PART inline void cp_reduce_async_bulk(B64 target, B64 source, B32 bytes, B64 barrier) {
    cudamaster_cpu_bulk_reduce(place<t_shared_cluster>(target), place<t_shared>(source), bytes,
                               place<t_shared_cluster>(barrier), reduce_in_bulk<Tags...>);
}
// Registers on their way to a block of the cluster.
template <class... Tags, class... Values>
CUDAMASTER_CPU_PART inline void st_async_values(B64 target, B64 barrier, Values... values) {
    Bits<Tags...> content[] = {static_cast<Bits<Tags...>>(values)...};
    cudamaster_cpu_store_async(place<t_shared_cluster>(target), content, sizeof content,
                               place<t_shared_cluster>(barrier), nullptr);
}
template <class... Tags> CUDAMASTER_CPU_PART inline void st_async(B64 target, Bits<Tags...> a, B64 barrier) {
    st_async_values<Tags...>(target, barrier, a);
}
template <class... Tags>
CUDAMASTER_CPU_PART inline void st_async(B64 target, Bits<Tags...> a, Bits<Tags...> b, B64 barrier) {
    st_async_values<Tags...>(target, barrier, a, b);
}
template <class... Tags>
CUDAMASTER_CPU_PART inline void st_async(B64 target, Bits<Tags...> a, Bits<Tags...> b, Bits<Tags...> c,
                                         Bits<Tags...> d, B64 barrier) {
    st_async_values<Tags...>(target, barrier, a, b, c, d);
}
template <class... Tags> CUDAMASTER_CPU_PART inline void red_async(B64 target, Bits<Tags...> a, B64 barrier) {
    cudamaster_cpu_store_async(place<t_shared_cluster>(target), &a, sizeof a,
                               place<t_shared_cluster>(barrier), reduce_in_bulk<Tags...>);
}
template <class... Tags> inline void cp_async_bulk_prefetch(B64, B32) {}

// Boxes of tensors.
struct Coordinates {
    B32 at[5];
};
template <class... Tags>
constexpr unsigned dimensions = has<t_1d, Tags...>   ? 1
                                : has<t_2d, Tags...> ? 2
                                : has<t_3d, Tags...> ? 3
                                : has<t_4d, Tags...> ? 4
                                                     : 5;
template <class... Tags> CUDAMASTER_CPU_PART inline CudamasterCpuBox box_at(B64 map, const Coordinates& at) {
    CudamasterCpuBox box{reinterpret_cast<const void*>(map), {}, dimensions<Tags...>};
    for (unsigned i = 0; i < box.dimensions; ++i)
        box.at[i] = static_cast<int>(at.at[i]);
    return box;
}
template <class... Tags>
CUDAMASTER_CPU_PART inline void cp_async_bulk_tensor(B64 target, B64 map, const Coordinates& at,
                                                     B64 barrier) {
    CudamasterCpuBox box = box_at<Tags...>(map, at);
    cudamaster_cpu_tensor_load(place<t_shared_cluster>(target), box, place<t_shared_cluster>(barrier));
}
template <class... Tags>
CUDAMASTER_CPU_PART inline void cp_async_bulk_tensor(B64 target, B64 map, const Coordinates& at, B64 barrier,
                                                     B16 blocks) {
    CudamasterCpuBox box = box_at<Tags...>(map, at);
    cudamaster_cpu_tensor_multicast(place<t_shared>(target), box, place<t_shared>(barrier), blocks);
}
template <class... Tags>
CUDAMASTER_CPU_PART inline void cp_async_bulk_tensor(B64 map, const Coordinates& at, B64 source) {
    CudamasterCpuBox box = box_at<Tags...>(map, at);
    cudamaster_cpu_tensor_store(box, place<t_shared>(source), nullptr);
}
// An operation on elements of a type that the map names: those that an H200 does not stop at.
template <class... Tags> inline CudamasterCpuReduce reduction_of(int type) {
    constexpr bool adds = has<t_add, Tags...>,
                   bits = has<t_and, Tags...> || has<t_or, Tags...> || has<t_xor, Tags...>;
    constexpr bool counts = has<t_inc, Tags...> || has<t_dec, Tags...>;
    if constexpr (bits) {
        switch (type) {
        case CUDAMASTER_CPU_OF_U32:
        case CUDAMASTER_CPU_OF_S32:
            return reduce_in_bulk<Tags..., t_b32>;
        case CUDAMASTER_CPU_OF_U64:
            return reduce_in_bulk<Tags..., t_b64>;
        default:
            return nullptr;
        }
    } else if constexpr (counts) {
        return type == CUDAMASTER_CPU_OF_U32 ? reduce_in_bulk<Tags..., t_u32> : nullptr;
    } else {
        switch (type) {
        case CUDAMASTER_CPU_OF_U32:
            return reduce_in_bulk<Tags..., t_u32>;
        case CUDAMASTER_CPU_OF_S32:
            return reduce_in_bulk<Tags..., t_s32>;
        case CUDAMASTER_CPU_OF_U64:
            return reduce_in_bulk<Tags..., t_u64>;
        case CUDAMASTER_CPU_OF_S64:
            return adds ? nullptr : reduce_in_bulk<Tags..., t_s64>;
        case CUDAMASTER_CPU_OF_F16:
            return reduce_in_bulk<Tags..., t_f16>;
        case CUDAMASTER_CPU_OF_BF16:
            return reduce_in_bulk<Tags..., t_bf16>;
        default:
            break;
        }
        if constexpr (adds)
            return type == CUDAMASTER_CPU_OF_F32   ? reduce_in_bulk<Tags..., t_f32>
                   : type == CUDAMASTER_CPU_OF_F64 ? reduce_in_bulk<Tags..., t_f64>
                                                   : nullptr;
        return nullptr;
    }
}
template <class... Tags>
CUDAMASTER_CPU_PART inline void cp_reduce_async_bulk_tensor(B64 map, const Coordinates& at, B64 source) {
    CudamasterCpuBox box = box_at<Tags...>(map, at);
    cudamaster_cpu_tensor_store(box, place<t_shared>(source), reduction_of<Tags...>);
}
template <class... Tags> inline void cp_async_bulk_prefetch_tensor(B64, const Coordinates&) {}

template <class... Tags> inline void cp_async_bulk_commit_group() {
    cudamaster_cpu_bulk_commit();
}
template <class... Tags> inline void cp_async_bulk_wait_group(long long left) {
    cudamaster_cpu_bulk_wait(static_cast<unsigned>(left), has<t_read, Tags...>);
}

// Barriers in shared memory. The state that an arrival gives has the parity of its phase as the barrier does, in bit 63.
template <class... Tags> inline void* mbarrier_place(B64 address) {
    if constexpr (in_shared<Tags...>)
        return place<Tags...>(address);
    else
        return reinterpret_cast<void*>(address); // generic
}
template <class... Tags> CUDAMASTER_CPU_PART inline void fence_of_scope() {
    if constexpr (has<t_cluster, Tags...> && !has<t_relaxed, Tags...>)
        CUDAMASTER_CPU_SEES_CLUSTER_FENCE();
}
template <class... Tags> inline void mbarrier_init(B64 address, B32 count) {
    cudamaster_cpu_mbarrier_init(mbarrier_place<Tags...>(address), count);
}
template <class... Tags> inline void mbarrier_inval(B64 address) {
    cudamaster_cpu_mbarrier_inval(mbarrier_place<Tags...>(address));
}
template <class... Tags> inline void mbarrier_expect_tx(B64 address, B32 bytes) {
    cudamaster_cpu_mbarrier_bytes(mbarrier_place<Tags...>(address), bytes);
}
template <class... Tags> inline void mbarrier_complete_tx(B64 address, B32 bytes) {
    cudamaster_cpu_mbarrier_bytes(mbarrier_place<Tags...>(address), -static_cast<long long>(bytes));
}
template <class... Tags>
constexpr int arriving = (has<t_noComplete, Tags...> ? CUDAMASTER_CPU_NO_COMPLETE : 0) |
                         (has<t_relaxed, Tags...> ? CUDAMASTER_CPU_RELAXED : 0);
template <class... Tags> inline B64 mbarrier_arrive(B64 address, B32 count = 1) {
    fence_of_scope<Tags...>();
    return cudamaster_cpu_mbarrier_arrive(mbarrier_place<Tags...>(address), count, 0, arriving<Tags...>);
}
template <class... Tags> inline B64 mbarrier_arrive_expect_tx(B64 address, B32 bytes) {
    fence_of_scope<Tags...>();
    return cudamaster_cpu_mbarrier_arrive(mbarrier_place<Tags...>(address), 1, bytes, arriving<Tags...>);
}
template <class... Tags> inline B64 mbarrier_arrive_drop(B64 address, B32 count = 1) {
    fence_of_scope<Tags...>();
    return cudamaster_cpu_mbarrier_arrive(mbarrier_place<Tags...>(address), count, 0,
                                          CUDAMASTER_CPU_DROPS | arriving<Tags...>);
}
template <class... Tags> inline B64 mbarrier_arrive_drop_expect_tx(B64 address, B32 bytes) {
    fence_of_scope<Tags...>();
    return cudamaster_cpu_mbarrier_arrive(mbarrier_place<Tags...>(address), 1, bytes,
                                          CUDAMASTER_CPU_DROPS | arriving<Tags...>);
}
template <class... Tags> constexpr int learning = has<t_relaxed, Tags...> ? CUDAMASTER_CPU_LEARNS_LATER : 0;
// A wait that is over sees what those did who arrived.
template <class... Tags> CUDAMASTER_CPU_PART inline bool passed(int over) {
    if constexpr (has<t_cluster, Tags...> && !has<t_relaxed, Tags...>)
        if (over)
            fence_of_scope<Tags...>();
    return over;
}
template <class... Tags> inline bool mbarrier_test_wait(B64 address, B64 state) {
    return passed<Tags...>(cudamaster_cpu_mbarrier_wait(mbarrier_place<Tags...>(address),
                                                        static_cast<B32>(state >> 63), learning<Tags...>));
}
template <class... Tags> inline bool mbarrier_test_wait_parity(B64 address, B32 parity) {
    return passed<Tags...>(
        cudamaster_cpu_mbarrier_wait(mbarrier_place<Tags...>(address), parity & 1, learning<Tags...>));
}
template <class... Tags> inline bool mbarrier_try_wait(B64 address, B64 state, B32 = 0) {
    return passed<Tags...>(cudamaster_cpu_mbarrier_wait(mbarrier_place<Tags...>(address),
                                                        static_cast<B32>(state >> 63),
                                                        CUDAMASTER_CPU_TRIES | learning<Tags...>));
}
template <class... Tags> inline bool mbarrier_try_wait_parity(B64 address, B32 parity, B32 = 0) {
    return passed<Tags...>(cudamaster_cpu_mbarrier_wait(mbarrier_place<Tags...>(address), parity & 1,
                                                        CUDAMASTER_CPU_TRIES | learning<Tags...>));
}
template <class... Tags> inline B32 mbarrier_pending_count(B64 state) {
    return static_cast<B32>(state >> 20 & 0xfffff);
}
template <class... Tags> inline void fence_mbarrier_init() {
    ::__threadfence_of_proxies();
    cudamaster_cpu_proxy_fence(CUDAMASTER_CPU_OF_INITS);
}

} // namespace ptx
} // namespace cudamaster_cpu
