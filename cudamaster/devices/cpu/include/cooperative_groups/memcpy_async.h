// Copies that a group makes together, each thread a part: late, at the group's wait.
#pragma once

#include "cooperative_groups.h"
#include "cudamaster_cpu/cxx/scopes.h"

namespace cooperative_groups {

namespace details {
template <class Layout> struct BytesOf {
    static ::std::size_t of(Layout count, ::std::size_t element) { return count * element; }
};
template <::std::size_t Alignment> struct BytesOf<cuda::aligned_size_t<Alignment>> {
    static ::std::size_t of(cuda::aligned_size_t<Alignment> bytes, ::std::size_t) { return bytes.value; }
};
} // namespace details

// `bytes` count bytes; the layouts of the other form count elements.
template <class Group, class Target, class Source, class Size>
CUDAMASTER_CPU_PART inline void memcpy_async(const Group& group, Target* to, const Source* from,
                                             const Size& bytes) {
    cudamaster_cpu::cxx::copy_together(group, to, from, static_cast<::std::size_t>(bytes));
    cudamaster_cpu_copy_commit();
}
template <class Group, class Target, class Source, class ToLayout, class FromLayout>
CUDAMASTER_CPU_PART inline void memcpy_async(const Group& group, Target* to, const ToLayout& to_layout,
                                             const Source* from, const FromLayout& from_layout) {
    ::std::size_t there = details::BytesOf<ToLayout>::of(to_layout, sizeof(Target));
    ::std::size_t here = details::BytesOf<FromLayout>::of(from_layout, sizeof(Source));
    memcpy_async(group, to, from, there < here ? there : here);
}

template <unsigned int Groups, class Group> void wait_prior(const Group& group) {
    cudamaster_cpu_copy_wait(Groups);
    group.sync();
}
template <class Group> void wait(const Group& group) {
    wait_prior<0>(group);
}

} // namespace cooperative_groups
