// Notices a thread that runs on and on while others of its block wait for their turn. A store by one of them may be
// what it waits for: threads give way at barriers, collectives, atomics and fences only. It may as well be just
// slow, so this is a note for whoever wonders why the time limit was reached, and no error.
#include "executor.h"

#include <cstdio>

namespace executor {

namespace {

constexpr unsigned kPatienceSeconds = 3;

// Another thread writes these while we look; a stale value does no harm.
template <class Value> Value glance(const Value& value) {
    return __atomic_load_n(&value, __ATOMIC_RELAXED);
}

} // namespace

void Watch::look(const Worker& worker, const CudamasterCpuLaunch& launch) {
    const uint3* at = glance(worker.block);
    if (!at) // its thread has not begun: a busy machine takes its time over those of a cooperative launch
        return;
    unsigned started = glance(worker.started), linear = glance(worker.linear);
    uint3 block{glance(at->x), glance(at->y), glance(at->z)};
    bool keeps_out = glance(worker.running) && !in_cluster(worker) &&
                     (started < glance(worker.total) || glance(worker.ready.head));
    bool same = started == started_ && linear == linear_ && block.x == block_.x && block.y == block_.y &&
                block.z == block_.z;
    seconds_ = keeps_out && same ? seconds_ + 1 : 0;
    started_ = started;
    linear_ = linear;
    block_ = block;
    if (seconds_ != kPatienceSeconds)
        return;
    unsigned x = linear % launch.block.x, rest = linear / launch.block.x;
    std::fprintf(
        stderr,
        "cuda device note: kernel %s, block (%u,%u,%u), thread (%u,%u,%u): has run for %u s while "
        "others of its block wait for their turn; if it waits for one of them, it never ends on this "
        "device unless the loop has an atomic, a fence or __nanosleep in it\n",
        launch.kernel, block.x, block.y, block.z, x, rest % launch.block.y, rest / launch.block.y,
        kPatienceSeconds);
}

} // namespace executor
