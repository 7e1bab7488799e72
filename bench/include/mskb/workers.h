// The worker processes of a run: two of each kind where calls are timed.
//
// One process may run a kernel slower than another does, by a few hundred nanoseconds a call for as long as both live
// (where code and stacks come to lie). So turns are taken by pairs of processes, one pair after the other.
//
// A judge that makes several runs keeps the baseline's processes, which are trusted; every candidate gets new ones.
#pragma once
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <list>
#include <optional>
#include <string>
#include <vector>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#endif
#include "mskb/contestant.h"
#include "mskb/options.h"
#include "mskb/report.h"

namespace mskb {

constexpr int kWrongExit = 1;  // not all cases are right
constexpr int kFaultExit = 70; // a worker's fault ended the run
constexpr int kTimeoutExit = 75;

// Hardware queues of contexts that are made meanwhile, by this process or by one that it starts: making one with eight,
// as usual, takes 0.2 s on an H200, with one 0.1, and the driver makes one at a time for the whole machine.
class Queues {
  public:
    explicit Queues(int count) { setenv(kName, std::to_string(count).c_str(), 1); }
    ~Queues() { usual(); }
    static void usual() { unsetenv(kName); } // eight
    Queues(const Queues&) = delete;
    Queues& operator=(const Queues&) = delete;

  private:
    static constexpr const char* kName = "CUDA_DEVICE_MAX_CONNECTIONS";
};
constexpr int kUntimedQueues = 2; // where nothing is timed: enough for two streams to run side by side

// Thrown where a worker ends a run, or a baseline that is wrong; its report says why.
struct RunOver {
    int code;        // the judge's exit code for it
    std::string who; // whose worker it was
};

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
    // Starts those of a run; they come up while the judge does. A candidate that is still being built is started once it
    // is there. Those of the run before end first, but for the baseline's.
    void start(const Options& options) {
        for (Kind* kind : {&rivals_, &candidates_})
            for (Contestant& worker : *kind)
                worker.leave();
        rivals_.clear();
        candidates_.clear();
        joined_ = 0;
        options_ = &options;
        if (!options.output.empty())
            print_to(options.output);
        for (size_t pair = 0; pair < most_pairs(); ++pair) {
            if ((pair == 0 || options.rival.empty()) && !shown() && baselines_.size() <= pair)
                start(baselines_, "baseline", options.baseline);
            if (!options.rival.empty())
                start(rivals_, "rival", options.rival);
        }
        if (!options.ahead)
            start_candidates();
    }

    // Gives the new workers their memory; those of the candidate as each of them is needed (join).
    void admit(const Report& report, const SharedMemory& memory, size_t for_slots) {
        report_ = &report;
        memory_ = &memory;
        for_slots_ = for_slots;
        for (Kind* kind : {&baselines_, &rivals_})
            for (Contestant& worker : *kind)
                if (!worker.met())
                    admit(worker);
        if (options_->baseline_only)
            tell_isolation();
    }

    // Waits for the candidate's processes of so many pairs; gives those that were not waited for before. The first of
    // them says what keeps it from harm. Throws RunOver where one does not come up.
    std::vector<Contestant*> join(size_t pairs) {
        std::vector<Contestant*> joined;
        if (options_->baseline_only)
            return joined;
        if (candidates_.empty()) {
            await_candidate();
            start_candidates();
        }
        for (; joined_ < pairs; ++joined_) {
            joined.push_back(&candidate(joined_));
            admit(*joined.back());
            if (joined_ == 0)
                tell_isolation();
        }
        return joined;
    }

    // Whether the candidate is still being built.
    bool awaited() const {
        pollfd entry{STDIN_FILENO, POLLIN, 0};
        return options_->ahead && candidates_.empty() && poll(&entry, 1, 0) == 0;
    }

    // Those that take part.
    std::vector<Contestant*> all() {
        std::vector<Contestant*> there;
        for (Kind* kind : {&baselines_, &rivals_})
            for (Contestant& worker : *kind)
                there.push_back(&worker);
        for (size_t pair = 0; pair < joined_; ++pair)
            there.push_back(&candidate(pair));
        return there;
    }

    size_t pairs() const { return judged() ? most_pairs() : 1; }
    Contestant& baseline() { return baselines_.front(); }
    Contestant& candidate(size_t pair = 0) { return *std::next(candidates_.begin(), pair); }
    // What the candidate is timed against.
    Contestant& opponent(size_t pair = 0) {
        return *std::next((rivalled() ? rivals_ : baselines_).begin(), pair);
    }
    bool judged() const { return !options_->baseline_only; } // else the baseline is checked alone
    bool rivalled() const { return !rivals_.empty(); } // else the candidate is timed against the baseline

    // Lets all of them end, at once: the end of a context takes a while.
    void leave() {
        for (Kind* kind : {&baselines_, &rivals_, &candidates_})
            for (Contestant& worker : *kind)
                worker.leave();
    }

  private:
    using Kind = std::list<Contestant>; // which stay where they are

    // Without a command, this executable itself is the worker.
    void start(Kind& kind, const char* who, std::vector<std::string> command) const {
        if (command.empty())
            command = {"/proc/self/exe", "--work", who};
        std::optional<Queues> few;
        if (options_->calls == 0 && !shown())
            few.emplace(kUntimedQueues);
        kind.emplace_back(who, std::move(command));
    }

    void start_candidates() {
        for (size_t pair = 0; pair < (judged() ? most_pairs() : 0); ++pair)
            start(candidates_, "candidate", options_->candidate);
    }

    // What workers print from here on goes to that file, and what the judge does.
    static void print_to(const std::string& path) {
        int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (file < 0 || dup2(file, 1) < 0 || dup2(file, 2) < 0)
            harness_failure("what workers print cannot be written to " + path);
        close(file);
    }

    // Whoever builds it says on standard input that it is there. Without a word there is nothing to judge.
    static void await_candidate() {
        char word = 0;
        ssize_t got;
        while ((got = read(STDIN_FILENO, &word, 1)) < 0 && errno == EINTR) {
        }
        if (got <= 0)
            std::_Exit(0);
    }

    bool shown() const { return options_->profile > 0 || options_->launches; } // calls of the candidate alone
    size_t most_pairs() const {
        bool timed = options_->calls > 0 && !shown() && !options_->baseline_only;
        return timed ? options_->pairs : 1;
    }

    // One that does not come up has failed before its first case. Only one of them makes a call at a time: on one core
    // all of them find the same caches.
    void admit(Contestant& worker) {
        Outcome outcome = worker.start(*memory_, for_slots_, isolation_);
        if (outcome.ended == Ended::kDone) {
            if (worker.process() > 0)
                run_on(options_->workers_core, worker.process());
            return;
        }
        std::string why = outcome.ended == Ended::kTimeout ? "it did not start in time"
                                                           : outcome.error + ", " + outcome.detail;
        if (std::string(worker.who()) == "baseline")
            harness_failure("the baseline's worker failed at its start: " + why);
        report_->write(Line("fault")
                           .add("index", 0)
                           .add("who", worker.who())
                           .add("error", "failed at its start")
                           .add("detail", why)
                           .add("gone", outcome.gone));
        throw RunOver{kFaultExit, worker.who()};
    }

    void tell_isolation() const { report_->write(Line("isolation").add("text", isolation_)); }

    const Options* options_ = nullptr; // of the run
    const Report* report_ = nullptr;
    const SharedMemory* memory_ = nullptr;
    size_t for_slots_ = 0;  // bytes of it
    std::string isolation_; // of the last that was admitted
    size_t joined_ = 0;     // of the candidates
    Kind baselines_, rivals_, candidates_;
};

} // namespace mskb
