// What an observer of kernels is told by the executor. Without CUDAMASTER_CPU_OBSERVED, which builds for running have
// not, every hook is an empty function and costs nothing.
//
// An observed build is linked to one observer, trace/ (what a kernel does, counted) or check/ (what it does wrong). It
// defines the hooks below and the call-outs that -fsanitize=thread and -fsanitize-coverage=trace-pc make the compiler
// put into candidates: __tsan_read4 and the like, told apart by their return addresses. Atomics, conversions, warp
// collectives and other single instructions of a GPU are functions in the headers that are not looked into
// (CUDAMASTER_CPU_ONE); atomics tell by cudamaster_cpu_observe_atomic.
#pragma once

#include "executor.h"

namespace executor {
namespace observe {

#if defined(CUDAMASTER_CPU_OBSERVED)
#define CUDAMASTER_CPU_HOOK(declaration) declaration;
#define CUDAMASTER_CPU_HOOK_BOOL(declaration, otherwise) declaration;
#else
#define CUDAMASTER_CPU_HOOK(declaration)                                                                     \
    inline declaration {}
#define CUDAMASTER_CPU_HOOK_BOOL(declaration, otherwise)                                                     \
    inline declaration {                                                                                     \
        return otherwise;                                                                                    \
    }
#endif

// Host thread. A launch goes over its blocks once for each pass that is wanted, at least once; passes count from 0.
CUDAMASTER_CPU_HOOK(void launch_begins([[maybe_unused]] const Job& job))
CUDAMASTER_CPU_HOOK_BOOL(bool wants_pass([[maybe_unused]] const Job& job, [[maybe_unused]] unsigned pass),
                         pass == 0)
CUDAMASTER_CPU_HOOK(void launch_ends([[maybe_unused]] const Job& job))

// Whether the last block of a pass runs once all others are over. (Not asked of clusters and cooperative launches.)
CUDAMASTER_CPU_HOOK_BOOL(bool keeps_last_back([[maybe_unused]] const Job& job), false)

// A worker's thread, `worker` is set. `block` counts in the grid's order.
CUDAMASTER_CPU_HOOK_BOOL(bool wants_block([[maybe_unused]] const Job& job,
                                          [[maybe_unused]] unsigned long long block),
                         true)
CUDAMASTER_CPU_HOOK(void block_begins([[maybe_unused]] Worker& self,
                                      [[maybe_unused]] unsigned long long block))
CUDAMASTER_CPU_HOOK(void block_ends([[maybe_unused]] Worker& self)) // given up too: self.block_failed

// Whether a block that was given up is no failure of the launch: an observer gave it up.
CUDAMASTER_CPU_HOOK_BOOL(bool gave_up([[maybe_unused]] Worker& self), false)

// A device thread: the one with number self.linear in its block.
CUDAMASTER_CPU_HOOK(void thread_begins([[maybe_unused]] Worker& self))
CUDAMASTER_CPU_HOOK(void thread_ends([[maybe_unused]] Worker& self))
// It comes to a barrier of the block or the grid; then, once for all of them and before any goes on, that is complete.
CUDAMASTER_CPU_HOOK(void barrier_arrives([[maybe_unused]] Worker& self, [[maybe_unused]] int kind))
CUDAMASTER_CPU_HOOK(void barrier_completes([[maybe_unused]] Worker& self, [[maybe_unused]] int kind))
// It comes to a collective of the lanes in `mask`, __syncwarp among them; then that is complete: `arrived` took part.
CUDAMASTER_CPU_HOOK(void warp_arrives([[maybe_unused]] Worker& self, [[maybe_unused]] unsigned mask))
CUDAMASTER_CPU_HOOK(void warp_completes([[maybe_unused]] Worker& self, [[maybe_unused]] unsigned warp,
                                        [[maybe_unused]] unsigned arrived))
// A barrier of some threads is complete: `members` came, `takers` of them waited; both by warp.
CUDAMASTER_CPU_HOOK(void numbered_completes([[maybe_unused]] Worker& self,
                                            [[maybe_unused]] const unsigned* members,
                                            [[maybe_unused]] const unsigned* takers))
// It starts an asynchronous copy; the copy is made, and its thread knows.
CUDAMASTER_CPU_HOOK(void copy_starts([[maybe_unused]] Worker& self, [[maybe_unused]] Copy& copy))
CUDAMASTER_CPU_HOOK(void copy_lands([[maybe_unused]] Worker& self, [[maybe_unused]] const Copy& copy))
// An mbarrier is about to be initialised, or to end; a thread to arrive there, to wait or to announce bytes.
CUDAMASTER_CPU_HOOK(void mbarrier_begins([[maybe_unused]] Worker& self, [[maybe_unused]] const void* place,
                                         [[maybe_unused]] const void* site))
CUDAMASTER_CPU_HOOK(void mbarrier_ends([[maybe_unused]] Worker& self, [[maybe_unused]] const void* place,
                                       [[maybe_unused]] const void* site))
CUDAMASTER_CPU_HOOK(void mbarrier_is_used([[maybe_unused]] Worker& self, [[maybe_unused]] const void* place,
                                          [[maybe_unused]] bool waits, [[maybe_unused]] const void* site))
CUDAMASTER_CPU_HOOK(void mbarrier_expects([[maybe_unused]] Worker& self, [[maybe_unused]] const void* place,
                                          [[maybe_unused]] const void* site))
// Somebody looks at the word of one of a block, and leaves it changed.
CUDAMASTER_CPU_HOOK(void mbarrier_is_met([[maybe_unused]] Worker& owner, [[maybe_unused]] const void* place,
                                         [[maybe_unused]] unsigned long long word))
CUDAMASTER_CPU_HOOK(void mbarrier_is_left([[maybe_unused]] Worker& owner, [[maybe_unused]] const void* place,
                                          [[maybe_unused]] unsigned long long word))
// A thread arrives or makes its single copies arrive, a phase is complete, a thread sees that.
CUDAMASTER_CPU_HOOK(void mbarrier_arrives([[maybe_unused]] Worker& self, [[maybe_unused]] const void* place,
                                          [[maybe_unused]] unsigned thread))
// The same relaxed: it hands on what was fenced before, and what it sees it learns at its next fence.
CUDAMASTER_CPU_HOOK(void mbarrier_arrives_relaxed([[maybe_unused]] Worker& self,
                                                  [[maybe_unused]] const void* place,
                                                  [[maybe_unused]] unsigned thread))
CUDAMASTER_CPU_HOOK(void mbarrier_passes_relaxed([[maybe_unused]] Worker& self,
                                                 [[maybe_unused]] const void* place,
                                                 [[maybe_unused]] unsigned thread))
CUDAMASTER_CPU_HOOK(void mbarrier_completes([[maybe_unused]] Worker& self,
                                            [[maybe_unused]] const void* place))
CUDAMASTER_CPU_HOOK(void mbarrier_passes([[maybe_unused]] Worker& self, [[maybe_unused]] const void* place,
                                         [[maybe_unused]] unsigned thread))
// The barrier of a cluster: a thread comes with what it knows, all have come, a thread has waited.
CUDAMASTER_CPU_HOOK(void cluster_arrives([[maybe_unused]] Worker& self, [[maybe_unused]] unsigned thread))
CUDAMASTER_CPU_HOOK(void cluster_arrives_relaxed([[maybe_unused]] Worker& self,
                                                 [[maybe_unused]] unsigned thread))
CUDAMASTER_CPU_HOOK(void cluster_completes([[maybe_unused]] Cluster& cluster))
CUDAMASTER_CPU_HOOK(void cluster_passes([[maybe_unused]] Worker& self, [[maybe_unused]] unsigned thread))
// What it knows of is ordered before copies in bulk and products of warpgroups: kinds of CudamasterCpuProxyFence.
CUDAMASTER_CPU_HOOK(void proxy_fence([[maybe_unused]] Worker& self, [[maybe_unused]] int of))
// The same as of single copies; of one for several blocks once for each; of one that leaves shared
// memory, when its source has been read.
CUDAMASTER_CPU_HOOK(void bulk_starts([[maybe_unused]] Worker& self, [[maybe_unused]] Bulk& bulk))
CUDAMASTER_CPU_HOOK(void bulk_lands([[maybe_unused]] Worker& self, [[maybe_unused]] const Bulk& bulk))
// One that leaves shared memory is there.
CUDAMASTER_CPU_HOOK(void bulk_written([[maybe_unused]] Worker& issuer, [[maybe_unused]] const Bulk& bulk))
// It uses a tensor map that lies in memory.
CUDAMASTER_CPU_HOOK(void map_is_read([[maybe_unused]] Worker& self, [[maybe_unused]] const void* map,
                                     [[maybe_unused]] unsigned bytes, [[maybe_unused]] const void* site))
// Bytes of shared memory that a product of the running thread's warpgroup will read; and those that it has.
CUDAMASTER_CPU_HOOK(void piece_starts([[maybe_unused]] Worker& self, [[maybe_unused]] const char* piece,
                                      [[maybe_unused]] unsigned bytes, [[maybe_unused]] const void* site))
CUDAMASTER_CPU_HOOK(void piece_lands([[maybe_unused]] Worker& self, [[maybe_unused]] const char* piece,
                                     [[maybe_unused]] unsigned bytes))
// A product of its warpgroup has begun; each thread says so. All lanes of a warp have waited for its `count` oldest ones.
// Whether the observer wants to hear of the pieces, too.
CUDAMASTER_CPU_HOOK(void product_starts([[maybe_unused]] Worker& self,
                                        [[maybe_unused]] const CudamasterCpuWgmma& product))
// So many multiplications of factors are made here for a product of tensor cores.
CUDAMASTER_CPU_HOOK(void multiplies([[maybe_unused]] unsigned long long times))
CUDAMASTER_CPU_HOOK(void products_end([[maybe_unused]] Worker& self, [[maybe_unused]] unsigned warp,
                                      [[maybe_unused]] unsigned count))
CUDAMASTER_CPU_HOOK_BOOL(bool wants_pieces(), false)
// Whether it matters what tensor cores add up, and all bits of it.
CUDAMASTER_CPU_HOOK_BOOL(bool wants_products(), true)
CUDAMASTER_CPU_HOOK_BOOL(bool wants_all_bits(), true)
// Its copies up to now will arrive at an mbarrier of the block.
CUDAMASTER_CPU_HOOK(void copies_will_arrive([[maybe_unused]] Worker& self,
                                            [[maybe_unused]] const void* place))
// It has waited at a barrier of some threads, of the cluster, or at an mbarrier (`place`, else null).
CUDAMASTER_CPU_HOOK(void waited([[maybe_unused]] Worker& self, [[maybe_unused]] const void* place))
// It does something that an observer who counts has no way to count.
CUDAMASTER_CPU_HOOK(void uncounted([[maybe_unused]] const char* what))
// It lets others run, for it may be waiting.
CUDAMASTER_CPU_HOOK(void yields([[maybe_unused]] Worker& self))

// Host thread: calls of the runtime, once they have succeeded.
// Whether new memory is filled with a pattern; else it is zero, and takes none until it is used.
CUDAMASTER_CPU_HOOK_BOOL(bool poisons(), true)
CUDAMASTER_CPU_HOOK(void allocated([[maybe_unused]] const void* base, [[maybe_unused]] size_t bytes))
CUDAMASTER_CPU_HOOK(void freed([[maybe_unused]] const void* base))
// A copy or a filling of rows is told row by row: `whole` are the bytes of all of them at the first, and 0 at the others.
// `host` says whether one side is memory of the host.
CUDAMASTER_CPU_HOOK(void copied([[maybe_unused]] const void* target, [[maybe_unused]] size_t bytes,
                                [[maybe_unused]] size_t whole, [[maybe_unused]] bool host))
CUDAMASTER_CPU_HOOK(void filled([[maybe_unused]] const void* target, [[maybe_unused]] size_t bytes,
                                [[maybe_unused]] size_t whole))
CUDAMASTER_CPU_HOOK(void synchronised())
// The host learns that all work is done without waiting for it, and may read what that left.
CUDAMASTER_CPU_HOOK(void found_done())
// The host may read what kernels write there, without a call.
CUDAMASTER_CPU_HOOK(void shared_with_host())
// Between the two comes the one call of the wrapper that is to be recorded.
CUDAMASTER_CPU_HOOK(void recording([[maybe_unused]] bool on))

#undef CUDAMASTER_CPU_HOOK
#undef CUDAMASTER_CPU_HOOK_BOOL

} // namespace observe
} // namespace executor
