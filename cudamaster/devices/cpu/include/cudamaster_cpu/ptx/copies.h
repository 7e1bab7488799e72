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

} // namespace ptx
} // namespace cudamaster_cpu
