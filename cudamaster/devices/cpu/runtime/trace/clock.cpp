// The clock that kernels see while they are counted. The host's would say how fast this host is: a thread that waits until a
// time has come would make as many passes as the host has time for. Here time stands still but for threads that ask for it,
// or sleep. It goes on by more and more for one that asks again and again: a wait of N cycles takes a few hundred passes, is
// at most a sixteenth longer than N, and the same on every machine.
#include "trace/trace.h"

namespace executor {
namespace trace {

namespace {

constexpr unsigned kBits = 40; // of the time within a launch; what is above counts launches

struct Time {
    Count passed, waited; // of the thread since its block began, and of its wait
};
__thread Time times[kMaxThreads];
__thread bool used; // by a thread of the block
__thread Count begun;

} // namespace

void time_begins(Count launch) {
    begun = launch << kBits;
    if (std::exchange(used, false))
        std::fill(std::begin(times), std::end(times), Time{});
}

// No thread sees an earlier time than one that it has met.
void time_is_shared(unsigned threads) {
    if (!used)
        return;
    Count latest = 0;
    for (unsigned i = 0; i < threads; ++i)
        latest = std::max(latest, times[i].passed);
    for (unsigned i = 0; i < threads; ++i)
        times[i] = {latest, 0};
}

void passes(Count cycles) {
    used = true;
    times[worker->linear].passed += cycles;
}

Count time_of_thread() {
    if (!worker || !worker->running)
        return 0;
    Time& time = times[worker->linear];
    Lane* lane = recorder ? &recorder->lane(worker->linear) : nullptr;
    bool worked = lane && std::exchange(lane->worked, false), waits = time.passed && !worked;
    const Rules& of = rules();
    Count cycles =
        worked ? of.access_cycles : std::max(of.question_cycles, waits ? time.waited / of.waited_part : 0);
    time.waited = waits ? time.waited + cycles : 0;
    if (lane && waits)
        lane->waited_cycles += cycles;
    passes(cycles);
    return begun + time.passed;
}

} // namespace trace
} // namespace executor
