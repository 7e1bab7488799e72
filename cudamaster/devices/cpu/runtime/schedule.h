// Which device thread of a block runs next, and the change to it. Inlined into whatever makes a thread wait:
// a barrier of 1024 threads comes by here 1024 times.
#pragma once

#include "executor.h"
#include "switch.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace executor {

// Suspends the running fibre and goes on with another one.
inline __attribute__((always_inline)) void switch_to(Worker& self, Fibre* from, Fibre* to) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->sanitizer_stack, to->stack + kGuardBytes, kStackBytes);
#endif
    self.current = to;
    threadIdx = to->index;
    self.linear = to->linear;
    from->ptx_line = cudamaster_cpu_ptx_line;
    cudamaster_cpu_ptx_line = to->ptx_line;
    switch_stack(&from->stack_pointer, to->stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from->sanitizer_stack, nullptr, nullptr);
#endif
}

// Suspends the running fibre and goes on with the worker's own stack: the block is over.
inline void go_home(Worker& self, Fibre* from) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->sanitizer_stack, self.home_bottom, self.home_bytes);
#endif
    switch_stack(&from->stack_pointer, self.home);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from->sanitizer_stack, nullptr, nullptr);
#endif
}

// The worker's own stack is suspended meanwhile.
inline void leave_home(Worker& self, Fibre* to) {
    self.current = to;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&self.home_sanitizer_stack, to->stack + kGuardBytes, kStackBytes);
#endif
    cudamaster_cpu_ptx_line = 0;
    switch_stack(&self.home, to->stack_pointer);
    cudamaster_cpu_ptx_line = 0;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(self.home_sanitizer_stack, nullptr, nullptr);
#endif
}

inline void keep_idle(Worker& self, Fibre* fibre) {
    fibre->next = self.idle;
    self.idle = fibre;
}

inline Fibre* take_idle(Worker& self) {
    Fibre* fibre = self.idle;
    if (!fibre)
        return new_fibre(self);
    self.idle = fibre->next;
    fibre->refused = nullptr;
    return fibre;
}

// The next fibre to run when the current one can't: a woken thread, then one that was not started yet.
inline Fibre* next_fibre(Worker& self) {
    if (__builtin_expect(self.ready.head != nullptr, 1))
        return self.ready.pop();
    if (self.started < self.total)
        return take_idle(self);
    while (self.asking.head) {
        answer_active_mask(self);
        if (self.ready.head)
            return self.ready.pop();
    }
    if (in_cluster(self))
        return wait_for_cluster(self) ? self.ready.pop() : nullptr;
    if (self.at_mbarriers.head && (land_at_mbarriers(self) || give_up_at_mbarriers(self)))
        return self.ready.pop();
    return nullptr;
}

// The fibre, which runs, comes back to its place in the kernel when it is switched to again.
inline void keep_place(Worker& self, Fibre* me) {
    me->index = threadIdx;
    me->linear = self.linear;
}

// Returns once whatever `me` waits for has put it among the ready ones.
inline void block_current(Worker& self, Fibre* me) {
    keep_place(self, me);
    Fibre* to = next_fibre(self);
    if (!to)
        fail_deadlock(self);
    if (to != me)
        switch_to(self, me, to);
    me->wait = Wait::kNone;
}

} // namespace executor
