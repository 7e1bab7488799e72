// Prefix sums over the threads of a group.
#pragma once

#include "cooperative_groups/reduce.h"

namespace cooperative_groups {

template <class Group, class Type, class Operator>
Type inclusive_scan(const Group& group, Type value, Operator&& combine) {
    unsigned int count = static_cast<unsigned int>(group.size()),
                 rank = static_cast<unsigned int>(group.thread_rank());
    for (unsigned int step = 1; step < count; step *= 2) {
        Type other = group.shfl_up(value, step);
        if (rank >= step)
            value = combine(other, value);
    }
    return value;
}
template <class Group, class Type> Type inclusive_scan(const Group& group, Type value) {
    return inclusive_scan(group, value, plus<Type>());
}
// Rank 0 gets a zero of the type.
template <class Group, class Type, class Operator>
Type exclusive_scan(const Group& group, Type value, Operator&& combine) {
    Type before = group.shfl_up(inclusive_scan(group, value, combine), 1);
    return group.thread_rank() == 0 ? Type{} : before;
}
template <class Group, class Type> Type exclusive_scan(const Group& group, Type value) {
    return exclusive_scan(group, value, plus<Type>());
}

} // namespace cooperative_groups
