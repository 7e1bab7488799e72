// Threads among each other: collectives of a warp, barriers, fences; and special registers.
#pragma once

#include "cudamaster_cpu/ptx/registers.h"

namespace cudamaster_cpu {
namespace ptx {

// The lane that a shuffle reads, and whether it is inside of the segment; `control` has its ends.
template <class... Tags> CUDAMASTER_CPU_PART inline B32 source_lane(B32 by, B32 control, bool* inside) {
    B32 lane = cudamaster_cpu_lane(), segment = control >> 8 & 31, end = control & 31;
    B32 last = (lane & segment) | (end & ~segment), first = lane & segment;
    by &= 31;
    B32 source = has<t_up, Tags...>     ? lane - by
                 : has<t_down, Tags...> ? lane + by
                 : has<t_bfly, Tags...> ? lane ^ by
                                        : first | (by & ~segment);
    *inside = has<t_up, Tags...> ? static_cast<int>(source) >= static_cast<int>(last) : source <= last;
    return *inside ? source : lane;
}
template <class... Tags> CUDAMASTER_CPU_ONE B32 shfl_sync(B32 a, B32 by, B32 control, B32 mask) {
    bool inside;
    B32 source = source_lane<Tags...>(by, control, &inside);
    return shuffle(mask, "shfl.sync", a, source);
}
template <class... Tags, class D, class P>
inline void shfl_sync(B32 a, B32 by, B32 control, B32 mask, D&& d, P&& p) {
    B32 result = shfl_sync<Tags...>(a, by, control, mask);
    bool inside;
    source_lane<Tags...>(by, control, &inside);
    d = result;
    p = inside;
}

template <class... Tags> inline auto vote_sync(bool predicate, B32 mask) {
    if constexpr (has<t_ballot, Tags...>)
        return ::__ballot_sync(mask, predicate);
    else if constexpr (has<t_all, Tags...>)
        return ::__all_sync(mask, predicate) != 0;
    else if constexpr (has<t_any, Tags...>)
        return ::__any_sync(mask, predicate) != 0;
    else { // all the same
        B32 votes = ::__ballot_sync(mask, predicate);
        return votes == 0 || ::__popc(votes) == ::__popc(::__ballot_sync(mask, 1));
    }
}
template <class... Tags> inline B32 match_any_sync(Bits<Tags...> a, B32 mask) {
    return ::__match_any_sync(mask, a);
}
template <class... Tags> inline B32 match_all_sync(Bits<Tags...> a, B32 mask) {
    int same;
    return ::__match_all_sync(mask, a, &same);
}
template <class... Tags, class D, class P>
inline void match_all_sync(Bits<Tags...> a, B32 mask, D&& d, P&& p) {
    int same;
    d = ::__match_all_sync(mask, a, &same);
    p = same != 0;
}
template <class... Tags> inline B32 redux_sync(B32 a, B32 mask) {
    auto value = static_cast<typename Type<Tags...>::Value>(a);
    if constexpr (has<t_add, Tags...>)
        return static_cast<B32>(::__reduce_add_sync(mask, value));
    else if constexpr (has<t_min, Tags...>)
        return static_cast<B32>(::__reduce_min_sync(mask, value));
    else if constexpr (has<t_max, Tags...>)
        return static_cast<B32>(::__reduce_max_sync(mask, value));
    else if constexpr (has<t_and, Tags...>)
        return ::__reduce_and_sync(mask, a);
    else if constexpr (has<t_or, Tags...>)
        return ::__reduce_or_sync(mask, a);
    else
        return ::__reduce_xor_sync(mask, a);
}
template <class... Tags> inline B32 activemask() {
    return ::__activemask();
}
// The lowest lane is the one.
template <class... Tags, class D, class P> inline void elect_sync(B32 mask, D&& d, P&& p) {
    B32 there = ::__ballot_sync(mask, 1), leader = static_cast<B32>(__builtin_ctz(there));
    d = leader;
    p = leader == cudamaster_cpu_lane();
}
template <class... Tags> inline void bar_warp_sync(B32 mask) {
    ::__syncwarp(mask);
}

// Barriers of the block, by their numbers.
template <class... Tags> inline auto bar(B32 number, B32 threads = 0) {
    cudamaster_cpu_numbered_barrier(number, threads,
                                    has<t_arrive, Tags...> ? CUDAMASTER_CPU_ARRIVE : CUDAMASTER_CPU_SYNC, 0);
}
template <class... Tags> inline auto bar(B32 number, B32 threads, bool predicate) {
    constexpr int kind = has<t_popc, Tags...>  ? CUDAMASTER_CPU_SYNC_COUNT
                         : has<t_and, Tags...> ? CUDAMASTER_CPU_SYNC_AND
                                               : CUDAMASTER_CPU_SYNC_OR;
    int result = cudamaster_cpu_numbered_barrier(number, threads, kind, predicate);
    return static_cast<std::conditional_t<has<t_popc, Tags...>, B32, bool>>(result);
}
template <class... Tags> inline auto bar(B32 number, bool predicate) {
    return bar<Tags...>(number, 0u, predicate);
}
template <class... Tags, class... Values> inline auto barrier(Values... values) {
    return bar<Tags...>(values...);
}

// Clusters.
template <class... Tags> inline void barrier_cluster_arrive() {
    cudamaster_cpu_cluster_arrive(!has<t_relaxed, Tags...>);
}
template <class... Tags> inline void barrier_cluster_wait() {
    cudamaster_cpu_cluster_wait();
}
template <class... Tags> inline void* cluster_place(Bits<Tags...> address) {
    if constexpr (has<t_shared_cluster, Tags...>)
        return cudamaster_cpu_cluster_place(address);
    else
        return reinterpret_cast<void*>(static_cast<B64>(address));
}
template <class... Tags> inline Bits<Tags...> mapa(Bits<Tags...> address, B32 rank) {
    void* there = cudamaster_cpu_in_block(cluster_place<Tags...>(address), rank);
    if constexpr (has<t_shared_cluster, Tags...>)
        return cudamaster_cpu_shared_address(there);
    else
        return static_cast<Bits<Tags...>>(reinterpret_cast<B64>(there));
}
template <class... Tags> inline B32 getctarank(Bits<Tags...> address) {
    return cudamaster_cpu_rank_of(cluster_place<Tags...>(address));
}

// Fences.
template <class... Tags> inline void membar() {
    if constexpr (has<t_cta, Tags...>)
        ::__threadfence_block();
    else
        ::__threadfence();
}
template <class... Tags> inline void fence() {
    if constexpr (has<t_cta, Tags...>)
        ::__threadfence_block();
    else
        ::__threadfence();
}
// Without a kind of memory it is for all.
template <class... Tags>
constexpr int proxy_fence_of = has<t_global, Tags...> ? CUDAMASTER_CPU_OF_GLOBAL
                               : has<t_shared_cta, Tags...> || has<t_shared_cluster, Tags...>
                                   ? CUDAMASTER_CPU_OF_SHARED
                                   : CUDAMASTER_CPU_OF_SHARED | CUDAMASTER_CPU_OF_GLOBAL;
template <class... Tags> inline void fence_proxy() {
    if constexpr (has<t_async, Tags...>) {
        ::__threadfence_of_proxies();
        cudamaster_cpu_proxy_fence(proxy_fence_of<Tags...>);
    } else {
        ::__threadfence_block();
    }
}
// Of a tensor map that was written by threads.
template <class... Tags> inline void fence_proxy(B64 map, long long bytes) {
    if (map % 128 || bytes != 128)
        cudamaster_cpu_fail("fence.proxy.tensormap of something else than 128 bytes at a multiple of them");
    fence_proxy<Tags...>();
}

template <class... Tags> inline void nanosleep(B32 nanoseconds) {
    ::__nanosleep(nanoseconds);
}
template <class... Tags> inline void exit() {
    cudamaster_cpu_exit();
}
template <class... Tags> inline void trap() {
    ::__trap();
}
// Registers are whatever a thread needs here, but a block may not take more than there are. A launch begins when those before
// it have ended.
template <class... Tags> inline void setmaxnreg(long long registers) {
    if (registers < 24 || registers > 256 || registers % 8)
        cudamaster_cpu_fail("setmaxnreg of something else than 24 to 256 registers in steps of 8");
    cudamaster_cpu_registers(static_cast<unsigned>(registers));
}
template <class... Tags> inline void griddepcontrol() {}

// Special registers.
#define CUDAMASTER_CPU_SPECIAL(name, type, expression)                                                       \
    inline type special_##name() {                                                                           \
        return static_cast<type>(expression);                                                                \
    }
#define CUDAMASTER_CPU_SPECIALS(name, variable)                                                              \
    CUDAMASTER_CPU_SPECIAL(name##_x, B32, variable.x)                                                        \
    CUDAMASTER_CPU_SPECIAL(name##_y, B32, variable.y)                                                        \
    CUDAMASTER_CPU_SPECIAL(name##_z, B32, variable.z)
CUDAMASTER_CPU_SPECIALS(tid, threadIdx)
CUDAMASTER_CPU_SPECIALS(ntid, blockDim)
CUDAMASTER_CPU_SPECIALS(ctaid, blockIdx)
CUDAMASTER_CPU_SPECIALS(nctaid, gridDim)
#define CUDAMASTER_CPU_OF_CLUSTER(axis)                                                                      \
    CUDAMASTER_CPU_SPECIAL(clusterid_##axis, B32, blockIdx.axis / cudamaster_cpu_cluster_shape().axis)       \
    CUDAMASTER_CPU_SPECIAL(nclusterid_##axis, B32, gridDim.axis / cudamaster_cpu_cluster_shape().axis)       \
    CUDAMASTER_CPU_SPECIAL(cluster_ctaid_##axis, B32, blockIdx.axis % cudamaster_cpu_cluster_shape().axis)   \
    CUDAMASTER_CPU_SPECIAL(cluster_nctaid_##axis, B32, cudamaster_cpu_cluster_shape().axis)
CUDAMASTER_CPU_OF_CLUSTER(x)
CUDAMASTER_CPU_OF_CLUSTER(y)
CUDAMASTER_CPU_OF_CLUSTER(z)
#undef CUDAMASTER_CPU_OF_CLUSTER
inline B32 blocks_of_cluster() {
    dim3 shape = cudamaster_cpu_cluster_shape();
    return shape.x * shape.y * shape.z;
}
CUDAMASTER_CPU_SPECIAL(cluster_ctarank, B32, cudamaster_cpu_cluster_rank())
CUDAMASTER_CPU_SPECIAL(cluster_nctarank, B32, blocks_of_cluster())
CUDAMASTER_CPU_SPECIAL(is_explicit_cluster, bool, cudamaster_cpu_in_clusters() != 0)
CUDAMASTER_CPU_SPECIAL(laneid, B32, cudamaster_cpu_lane())
CUDAMASTER_CPU_SPECIAL(warpid, B32,
                       (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / 32)
CUDAMASTER_CPU_SPECIAL(nwarpid, B32, 64)
CUDAMASTER_CPU_SPECIAL(smid, B32, ::__smid())
CUDAMASTER_CPU_SPECIAL(nsmid, B32, 132)
CUDAMASTER_CPU_SPECIAL(gridid, B64, 1)
CUDAMASTER_CPU_SPECIAL(lanemask_eq, B32, 1u << cudamaster_cpu_lane())
CUDAMASTER_CPU_SPECIAL(lanemask_lt, B32, (1u << cudamaster_cpu_lane()) - 1)
CUDAMASTER_CPU_SPECIAL(lanemask_le, B32, (2u << cudamaster_cpu_lane()) - 1)
CUDAMASTER_CPU_SPECIAL(lanemask_gt, B32, ~((2u << cudamaster_cpu_lane()) - 1))
CUDAMASTER_CPU_SPECIAL(lanemask_ge, B32, ~((1u << cudamaster_cpu_lane()) - 1))
CUDAMASTER_CPU_SPECIAL(clock64, B64, ::clock64())
CUDAMASTER_CPU_SPECIAL(clock, B32, ::clock64())
CUDAMASTER_CPU_SPECIAL(clock_hi, B32, ::clock64() >> 32)
CUDAMASTER_CPU_SPECIAL(globaltimer, B64, ::__globaltimer())
CUDAMASTER_CPU_SPECIAL(globaltimer_lo, B32, ::__globaltimer())
CUDAMASTER_CPU_SPECIAL(globaltimer_hi, B32, ::__globaltimer() >> 32)
CUDAMASTER_CPU_SPECIAL(dynamic_smem_size, B32, cudamaster_cpu_dynamic_shared_bytes())
CUDAMASTER_CPU_SPECIAL(total_smem_size, B32, cudamaster_cpu_dynamic_shared_bytes())
#undef CUDAMASTER_CPU_SPECIALS
#undef CUDAMASTER_CPU_SPECIAL

} // namespace ptx
} // namespace cudamaster_cpu
