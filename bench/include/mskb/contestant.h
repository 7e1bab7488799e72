// The judge's side of a worker process: starts it, asks it for calls, and does not trust it.
//
// A worker that crashes, ends or takes too long is a result. Its clock is checked against the judge's own: `outside` is
// how long the judge waited for the reply, and is longer than what the worker says by what a message takes.
#pragma once
#include <algorithm>
#include <csignal>
#include <optional>
#include <spawn.h>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <vector>
#include "mskb/arena.h"
#include "mskb/channel.h"

namespace mskb {

#ifdef MSKB_CPU_DEVICE
constexpr double kJudgeSpin = 0; // the processors belong to the kernels
#else
constexpr double kJudgeSpin =
    0.1; // seconds in which a reply is waited for without sleeping: waking takes 0.1 ms
#endif
constexpr double kStartLimit = 120;                // seconds that a worker may take to make its context
constexpr double kPrepareLimit = 20;               // and to prepare for a call
constexpr double kEndLimit = 30;                   // and to end
constexpr size_t kMostHostBytes = size_t{4} << 30; // host memory of a worker beyond its copies of the buffers

enum class Ended { kDone, kFault, kTimeout };

// What came of a request.
struct Outcome {
    Ended ended = Ended::kDone;
    double seconds = 0, outside = 0;
    double limit = 0;          // seconds that a call was given, of a timeout
    std::string error, detail; // of a fault
    bool gone = false;         // the fault: its process has ended
    std::string unsettled;     // what the call left behind
    size_t asked = 0;          // bytes of the largest allocation of its process so far
    uint64_t sealed = 0;       // the seal of what the call before left, where that was asked for
};

class Contestant {
  public:
    // Starts `command` as a worker; it is waited for at the first request.
    Contestant(const char* who, std::vector<std::string> command) : who_(who) {
        static int number = 0;
        std::string name = "mskb-" + std::to_string(getpid()) + "-" + std::to_string(++number);
        sockaddr_un address;
        socklen_t length = channel_address(name, address);
        listening_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (listening_ < 0 || bind(listening_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
            listen(listening_, 1) != 0)
            harness_failure("no socket for a worker");
        command.insert(command.end(), {"--channel", name});
        std::vector<char*> words;
        for (std::string& word : command)
            words.push_back(word.data());
        words.push_back(nullptr);
        if (int error = posix_spawnp(&process_, words[0], nullptr, nullptr, words.data(), environ))
            harness_failure("the worker " + command[0] + " does not start: " + std::strerror(error));
    }
    Contestant(const Contestant&) = delete;
    Contestant& operator=(const Contestant&) = delete;
    ~Contestant() {
        leave();
        wait_for_end();
        close(listening_);
    }

    // Lets the worker end by itself, which a tool that watches it needs to finish its report. One that nobody has spoken
    // to may still be coming up.
    void leave() {
        if (!met_ && process_ > 0)
            kill(process_, SIGKILL);
        channel_.reset();
    }

    // Waits for that; kills it when it takes too long. Its status, 0 when it was known to have ended.
    int wait_for_end() {
        int status = 0;
        if (process_ <= 0) // which would mean all processes
            return status;
        for (Clock::time_point start = Clock::now(); seconds_since(start) < kEndLimit; usleep(2'000))
            if (waitpid(process_, &status, WNOHANG) == process_)
                return ended_with(status);
        kill(process_, SIGKILL);
        waitpid(process_, &status, 0);
        return ended_with(status);
    }

    const char* who() const { return who_; }
    bool met() const { return met_; } // it has come up
    pid_t process() const { return process_; }

    // Gives the worker its memory, of which buffers take `for_slots` bytes; what keeps it from harm is then in `isolation`.
    Outcome start(const SharedMemory& memory, size_t for_slots, std::string& isolation) {
        Outcome outcome = accepted();
        if (outcome.ended != Ended::kDone)
            return outcome;
        Request request{};
        request.ask = Ask::kMemory;
        request.memory_bytes = memory.bytes();
        request.scratch = for_slots;
        Reply reply;
        outcome = exchange(request, kStartLimit, reply, memory.descriptor());
        isolation = outcome.ended == Ended::kDone ? reply.detail : "";
        return outcome;
    }

    Outcome begin_case(const std::vector<double>& sizes, const Layout& layout) {
        Request request{};
        request.ask = Ask::kCase;
        request.sizes = sizes.size();
        request.buffers = layout.spans.size();
        if (request.sizes > kMostSizes || request.buffers > kMostBuffers)
            harness_failure("a card has more sizes or buffers than a message holds");
        std::copy(sizes.begin(), sizes.end(), request.size);
        std::copy(layout.spans.begin(), layout.spans.end(), request.buffer);
        host_bytes_ = kMostHostBytes + 3 * layout.bytes;
        Reply reply;
        return exchange(request, kPrepareLimit, reply);
    }

    // One call, or what stands in its place, on the buffers of a slot as they are: prepared, then under the clock. With
    // a key in `seal`, what the call before it left is sealed first.
    Outcome call(Ask ask, size_t slot, const std::optional<MaskKey>& mask, double limit_s, int repeats = 1,
                 const std::optional<SealKey>& seal = std::nullopt) {
        Request request{};
        Reply reply;
        request.ask = Ask::kPrepare;
        request.slot = slot;
        request.masked = mask.has_value();
        request.mask = mask.value_or(MaskKey{});
        request.sealed = seal.has_value();
        request.seal = seal.value_or(SealKey{});
        Outcome outcome = exchange(request, kPrepareLimit, reply);
        if (outcome.ended != Ended::kDone)
            return outcome;
        uint64_t sealed = reply.seal;
        request.ask = ask;
        request.repeats = repeats;
        outcome = exchange(request, limit_s, reply);
        outcome.sealed = sealed;
        return outcome;
    }

    // So many calls, one behind the other, after warm-ups that leave the caches hot. `limit_s` is that of one.
    Outcome repeat(size_t slot, int warmups, int calls, double limit_s) {
        Outcome outcome =
            call(Ask::kRepeat, slot, std::nullopt, limit_s * std::max(warmups, 1), std::max(warmups, 1));
        if (outcome.ended != Ended::kDone)
            return outcome;
        Request request{};
        Reply reply;
        request.ask = Ask::kRepeat;
        request.repeats = calls;
        return exchange(request, limit_s * calls, reply);
    }

  private:
    Outcome accepted() {
        for (Clock::time_point start = Clock::now(); seconds_since(start) < kStartLimit;) {
            pollfd entry{listening_, POLLIN, 0};
            if (poll(&entry, 1, 20) > 0) {
                int descriptor = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
                ucred peer{};
                socklen_t length = sizeof peer;
                getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &length);
                if (descriptor >= 0 && peer.uid == getuid()) {
                    channel_.emplace(descriptor);
                    met_ = true;
                    return {};
                }
                close(descriptor);
            }
            int status = 0;
            if (waitpid(process_, &status, WNOHANG) == process_)
                return ended(ended_with(status));
        }
        return timed_out(kStartLimit);
    }

    // Sends a request and waits for its reply.
    Outcome exchange(Request& request, double limit_s, Reply& reply, int passed = -1) {
        // Known to no one before the request: a reply that was sent in advance does not have it.
        if (getentropy(&request.number, sizeof request.number) != 0)
            harness_failure("no random numbers");
        Clock::time_point start = Clock::now();
        bool sent = channel_->send(request, passed);
        for (;;) {
            int got = sent ? channel_->look(reply) : -1;
            Outcome outcome;
            outcome.outside = seconds_since(start);
            if (got > 0 && reply.number != request.number) {
                kill(process_, SIGKILL);
                return fault("forged reply", "its process answered before it was asked");
            }
            if (got > 0)
                return told(reply, outcome);
            if (got < 0)
                return ended(wait_for_end());
            if (outcome.outside > limit_s)
                return timed_out(limit_s);
            if (outcome.outside >= kJudgeSpin) {
                channel_->wait(std::min(0.05, std::max(limit_s - outcome.outside, 0.001)));
                if (resident_bytes() > host_bytes_) {
                    kill(process_, SIGKILL);
                    return fault("out of host memory",
                                 "it took more than " + std::to_string(host_bytes_ >> 20) + " MiB");
                }
            }
        }
    }

    Outcome told(const Reply& reply, Outcome outcome) const {
        outcome.seconds = reply.seconds;
        // The worker's texts end where its fields do, whatever it wrote there.
        std::string name(reply.name, strnlen(reply.name, sizeof reply.name));
        std::string detail(reply.detail, strnlen(reply.detail, sizeof reply.detail));
        if (reply.error != 0)
            return fault(name, detail);
        // The call is a part of what the judge waited for. Who says that it took longer makes up for other lies, or makes the
        // other side look like a liar; of what is no number no order can be made.
        if (!(reply.seconds >= 0 && reply.seconds <= outcome.outside))
            return fault("forged reply", "its process reports a time that cannot have passed");
        outcome.unsettled = detail;
        outcome.asked = reply.asked;
        return outcome;
    }

    static Outcome fault(const std::string& error, const std::string& detail) {
        Outcome outcome;
        outcome.ended = Ended::kFault;
        outcome.error = error;
        outcome.detail = detail;
        return outcome;
    }

    Outcome timed_out(double limit_s) {
        if (process_ > 0)
            kill(process_, SIGKILL);
        wait_for_end(); // until then it holds the device
        Outcome outcome;
        outcome.ended = Ended::kTimeout;
        outcome.limit = limit_s;
        return outcome;
    }

    int ended_with(int status) {
        process_ = -1;
        return status;
    }

    static Outcome ended(int status) {
        Outcome outcome =
            WIFSIGNALED(status)
                ? fault("killed", "the process was killed by signal " + std::to_string(WTERMSIG(status)))
                : fault("ended",
                        "the process ended by itself with exit code " + std::to_string(WEXITSTATUS(status)));
        outcome.gone = true;
        return outcome;
    }

    size_t resident_bytes() const {
        std::string path = "/proc/" + std::to_string(process_) + "/statm";
        size_t pages = 0;
        if (FILE* file = std::fopen(path.c_str(), "r")) {
            if (std::fscanf(file, "%*s %zu", &pages) != 1)
                pages = 0;
            std::fclose(file);
        }
        return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
    }

    const char* who_;
    int listening_ = -1;
    pid_t process_ = -1;
    std::optional<Channel> channel_;
    bool met_ = false;
    size_t host_bytes_ = kMostHostBytes;
};

} // namespace mskb
