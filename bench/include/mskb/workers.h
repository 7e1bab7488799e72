// The worker processes of a run: two of each kind where calls are timed.
//
// One process may run a kernel slower than another does, by a few hundred nanoseconds a call for as long as both live
// (where code and stacks come to lie). So turns are taken by pairs of processes, one pair after the other.
#pragma once
#include <algorithm>
#include <list>
#include <string>
#include <vector>
#ifdef __linux__
#include <sched.h>
#endif
#include "mskb/contestant.h"
#include "mskb/options.h"
#include "mskb/report.h"

namespace mskb {

constexpr int kFaultExit = 70; // a worker's fault ended the run
constexpr int kTimeoutExit = 75;

// Puts a process's main thread on one processor core; 0 is this process, and a core below 0 is any.
inline void run_on([[maybe_unused]] int core, [[maybe_unused]] pid_t process = 0) {
#ifdef __linux__
    if (core < 0)
        return;
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    if (sched_setaffinity(process, sizeof cores, &cores) != 0)
        harness_failure("there is no processor core " + std::to_string(core));
#endif
}

class Workers {
  public:
    // Starts them; they come up while the judge does.
    explicit Workers(const Options& options) {
        bool shown = options.profile > 0 || options.launches; // calls of the candidate alone
        bool timed = options.calls > 0 && !shown && !options.baseline_only;
        for (int pair = 0; pair < (timed ? options.pairs : 1); ++pair) {
            if ((pair == 0 || options.rival.empty()) && !shown)
                start(baselines_, "baseline", options.baseline);
            if (!options.rival.empty())
                start(rivals_, "rival", options.rival);
            if (!options.baseline_only)
                start(candidates_, "candidate", options.candidate);
        }
    }

    // Gives them their memory, and says what keeps the last of them, a candidate if there is one, from harm. Only one
    // of them makes a call at a time: on one core all of them find the same caches.
    void admit(const Report& report, const SharedMemory& memory, size_t for_slots, int core) {
        std::string isolation;
        for (Contestant* worker : all()) {
            admit(report, *worker, memory, for_slots, isolation);
            if (worker->process() > 0)
                run_on(core, worker->process());
        }
        report.write(Line("isolation").add("text", isolation));
    }

    std::vector<Contestant*> all() {
        std::vector<Contestant*> there;
        for (Kind* kind : {&baselines_, &rivals_, &candidates_})
            for (Contestant& worker : *kind)
                there.push_back(&worker);
        return there;
    }

    size_t pairs() const { return std::max<size_t>(candidates_.size(), 1); }
    Contestant& baseline() { return baselines_.front(); }
    Contestant& candidate(size_t pair = 0) { return *std::next(candidates_.begin(), pair); }
    // What the candidate is timed against.
    Contestant& opponent(size_t pair = 0) {
        return *std::next((rivalled() ? rivals_ : baselines_).begin(), pair);
    }
    bool judged() const { return !candidates_.empty(); } // else the baseline is checked alone
    bool rivalled() const { return !rivals_.empty(); }   // else the candidate is timed against the baseline

    // Lets all of them end, at once: the end of a context takes a while.
    void leave() {
        for (Contestant* worker : all())
            worker->leave();
    }

  private:
    using Kind = std::list<Contestant>; // which stay where they are

    // Without a command, this executable itself is the worker.
    static void start(Kind& kind, const char* who, std::vector<std::string> command) {
        if (command.empty())
            command = {"/proc/self/exe", "--work", who};
        kind.emplace_back(who, std::move(command));
    }

    // One that does not come up has failed before its first case.
    static void admit(const Report& report, Contestant& worker, const SharedMemory& memory, size_t for_slots,
                      std::string& isolation) {
        Outcome outcome = worker.start(memory, for_slots, isolation);
        if (outcome.ended == Ended::kDone)
            return;
        std::string why = outcome.ended == Ended::kTimeout ? "it did not start in time"
                                                           : outcome.error + ", " + outcome.detail;
        if (std::string(worker.who()) == "baseline")
            harness_failure("the baseline's worker failed at its start: " + why);
        report.write(Line("fault")
                         .add("index", 0)
                         .add("who", worker.who())
                         .add("error", "failed at its start")
                         .add("detail", why)
                         .add("gone", outcome.gone));
        std::_Exit(kFaultExit);
    }

    Kind baselines_, rivals_, candidates_;
};

} // namespace mskb
