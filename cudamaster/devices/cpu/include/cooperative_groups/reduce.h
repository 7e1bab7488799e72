// Reductions over the threads of a group, every thread getting the result.
#pragma once

#include "cooperative_groups.h"

namespace cooperative_groups {

#define CUDAMASTER_CPU_OPERATOR(name, expression)                                                            \
    template <class Type = void> struct name {                                                               \
        Type operator()(const Type& a, const Type& b) const { return expression; }                           \
    };
CUDAMASTER_CPU_OPERATOR(plus, a + b)
CUDAMASTER_CPU_OPERATOR(less, b < a ? b : a)
CUDAMASTER_CPU_OPERATOR(greater, a < b ? b : a)
CUDAMASTER_CPU_OPERATOR(bit_and, a& b)
CUDAMASTER_CPU_OPERATOR(bit_or, a | b)
CUDAMASTER_CPU_OPERATOR(bit_xor, a ^ b)
#undef CUDAMASTER_CPU_OPERATOR

// A tree over the ranks: all threads get the sum that rank 0 has.
template <class Group, class Type, class Operator>
Type reduce(const Group& group, Type value, Operator&& combine) {
    unsigned int count = static_cast<unsigned int>(group.size()),
                 rank = static_cast<unsigned int>(group.thread_rank());
    unsigned int step = 1;
    while (step < count)
        step *= 2;
    for (step /= 2; step; step /= 2) {
        Type other = group.shfl_down(value, step);
        if (rank < step && rank + step < count)
            value = combine(value, other);
    }
    return group.shfl(value, 0);
}

} // namespace cooperative_groups
