// A reference in Python: a process of its own, which the judge starts once and asks about inputs
// (cudamaster/judging/reference_server.py).
//
// A file without a name holds what both of them see: the inputs as doubles or 64-bit integers, and for each output the
// wanted elements, their values and their scales. Questions and answers are lines on a socket; the process sleeps between
// them, so it disturbs no timed call, and it ends with the judge. It makes an output as a whole and keeps it, so that
// another question about the same inputs costs nothing.
#pragma once
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include "mskb/buffers.h"
#include "mskb/channel.h"
#include "mskb/report.h"
#include "mskb/side_by_side.h"
#include "mskb/task.h"

namespace mskb {

constexpr size_t kKeptResults = size_t{1}
                                << 30; // bytes of outputs that the process may keep, beside the latest ones

constexpr double kMostAnswerSeconds = 300; // of a run, half of what its caller gives it at least

class PythonReference {
  public:
    // Starts `command`, which answers a question within `limit_s` seconds. Without a command nothing can be asked.
    PythonReference(const std::vector<std::string>& command, double limit_s, const Helpers& helpers)
        : limit_s_(limit_s) {
        if (command.empty())
            return;
        int sockets[2];
        file_ = memfd_create("mskb-reference", MFD_CLOEXEC);
        if (file_ < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
            harness_failure("no memory or socket for the reference");
        std::vector<char*> words;
        for (const std::string& word : command)
            words.push_back(const_cast<char*>(word.c_str()));
        words.push_back(nullptr);
        const pid_t judge = getpid();
        process_ = fork();
        if (process_ == 0)
            become(words.data(), sockets[1], judge, helpers);
        close(sockets[1]);
        socket_ = sockets[0];
        if (process_ < 0)
            harness_failure("the process of the reference does not start");
    }
    PythonReference(const PythonReference&) = delete;
    PythonReference& operator=(const PythonReference&) = delete;
    ~PythonReference() {
        if (process_ <= 0)
            return;
        close(socket_);
        kill(process_, SIGKILL);
        waitpid(process_, nullptr, 0);
        if (base_ != nullptr)
            munmap(base_, bytes_);
        close(file_);
    }

    // From here on it answers for another run, whose candidate is not to pay for the others'.
    void begin_run() { waited_s_ = 0; }

    // Whether it still has what came of the inputs with that number, so that they need not be there.
    bool has(uint64_t serial) const {
        return std::any_of(kept_.begin(), kept_.end(),
                           [&](const Kept& kept) { return kept.serial == serial; });
    }

    // Whether the process itself said why the last question has no answer. If not, somebody may have kept it from that.
    bool replied() const { return replied_; }

    // Fills in `expected` for the inputs `host`, number `serial`. Empty, or why it failed.
    std::string answer(uint64_t serial, const Sizes& sizes, const std::vector<BufferSpec>& specs,
                       const std::vector<const void*>& host, std::vector<Expected>& expected) {
        if (process_ <= 0)
            return "the judge was started without its process (--reference)";
        const bool known = has(serial);
        size_t end = 0;
        auto place = [&](size_t elements) { return std::exchange(end, end + elements * sizeof(double)); };
        std::vector<size_t> inputs, outputs;
        for (size_t i = 0; i < specs.size(); ++i) {
            inputs.push_back(place(specs[i].is_read() && !known ? specs[i].length : 0));
            outputs.push_back(place(3 * expected[i].wanted.size()));
        }
        if (!room(end))
            return "there is no room for " + std::to_string(end >> 20) + " MiB of inputs as doubles";
        for (size_t i = 0; i < specs.size(); ++i) {
            if (specs[i].is_read() && !known)
                put(base_ + inputs[i], host[i], specs[i]);
            std::copy(expected[i].wanted.begin(), expected[i].wanted.end(), at<int64_t>(outputs[i]));
        }
        const std::string forgotten = forget(serial, specs);
        std::string reply = ask(question(serial, known, forgotten, sizes, specs, expected, inputs, outputs));
        if (reply != "done")
            return reply;
        for (size_t i = 0; i < specs.size(); ++i) {
            const size_t count = expected[i].wanted.size();
            const double* values = at<double>(outputs[i]) + count;
            std::copy(values, values + count, expected[i].value.begin());
            std::copy(values + count, values + 2 * count, expected[i].scale.begin());
        }
        return "";
    }

  private:
    struct Kept {
        uint64_t serial;
        size_t bytes;
    };
    static constexpr int kSocket = 3, kFile = 4; // descriptors of the process

    // The new process: with those two descriptors alone, where helpers run, and killed when the judge ends.
    [[noreturn]] void become(char* const* words, int socket, pid_t judge, const Helpers& helpers) const {
#ifdef __linux__
        prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
        helpers.settle();
        const int nothing = open("/dev/null", O_RDWR);
        const int high[] = {fcntl(socket, F_DUPFD, 16), fcntl(file_, F_DUPFD, 16)};
        for (int stream = 0; stream < 3; ++stream)
            dup2(nothing, stream);
        dup2(high[0], kSocket);
        dup2(high[1], kFile);
        for (int other = kFile + 1; other < 1024; ++other)
            close(other);
        if (getppid() == judge)
            execvp(words[0], words);
        _exit(127);
    }

    // Maps `bytes` of the file, and more where there were more.
    bool room(size_t bytes) {
        if (bytes <= bytes_ && base_ != nullptr)
            return true;
        if (base_ != nullptr)
            munmap(base_, bytes_);
        bytes_ = std::max(bytes, size_t{4096});
        base_ = nullptr;
        if (ftruncate(file_, static_cast<off_t>(bytes_)) != 0)
            return false;
        void* base = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
        base_ = base == MAP_FAILED ? nullptr : static_cast<unsigned char*>(base);
        return base_ != nullptr;
    }

    template <class T> T* at(size_t offset) const { return reinterpret_cast<T*>(base_ + offset); }

    static void put(unsigned char* to, const void* from, const BufferSpec& spec) {
        for (size_t e = 0; e < static_cast<size_t>(spec.length); ++e)
            if (is_whole(spec.kind))
                reinterpret_cast<int64_t*>(to)[e] = static_cast<int64_t>(element(from, spec.kind, e));
            else
                reinterpret_cast<double*>(to)[e] = element(from, spec.kind, e);
    }

    // Inputs whose outputs the process is to forget, as JSON, so that there is room for those of `serial`.
    std::string forget(uint64_t serial, const std::vector<BufferSpec>& specs) {
        std::string list;
        if (has(serial))
            return "[]";
        Kept made{serial, 0};
        for (const BufferSpec& spec : specs)
            made.bytes += spec.is_written() ? 2 * sizeof(double) * static_cast<size_t>(spec.length) : 0;
        kept_.push_back(made);
        size_t all = 0;
        for (const Kept& kept : kept_)
            all += kept.bytes;
        for (; all > kKeptResults && kept_.size() > 1; kept_.pop_front()) {
            all -= kept_.front().bytes;
            list += (list.empty() ? "" : ",") + std::to_string(kept_.front().serial);
        }
        return "[" + list + "]";
    }

    static std::string question(uint64_t serial, bool known, const std::string& forgotten, const Sizes& sizes,
                                const std::vector<BufferSpec>& specs, const std::vector<Expected>& expected,
                                const std::vector<size_t>& inputs, const std::vector<size_t>& outputs) {
        std::string numbers, read, written;
        for (const Named& each : task().numbers(sizes))
            numbers +=
                (numbers.empty() ? "" : ",") + Line::quoted(each.name) + ":" +
                (each.whole ? std::to_string(static_cast<long long>(each.value)) : Line::number(each.value));
        const std::vector<std::vector<long long>> shapes = task().shapes(sizes);
        for (size_t i = 0; i < specs.size(); ++i) {
            std::string shape;
            for (long long side : shapes[i])
                shape += (shape.empty() ? "" : ",") + std::to_string(side);
            auto buffer = [&](const char* kind, size_t offset) {
                return std::move(Line(kind)
                                     .add("name", specs[i].name)
                                     .add("length", specs[i].length)
                                     .raw("shape", "[" + shape + "]")
                                     .add("whole", is_whole(specs[i].kind))
                                     .add("offset", offset));
            };
            if (specs[i].is_read())
                read += (read.empty() ? "" : ",") + buffer("input", inputs[i]).json();
            if (specs[i].is_written())
                written += (written.empty() ? "" : ",") +
                           buffer("output", outputs[i]).add("wanted", expected[i].wanted.size()).json();
        }
        Line line = Line("question").raw("serial", std::to_string(serial)).add("known", known);
        line.raw("forget", forgotten).raw("numbers", "{" + numbers + "}");
        return line.raw("inputs", "[" + read + "]").raw("outputs", "[" + written + "]").json() + "\n";
    }

    // The answer to a question, "done" or why there is none.
    std::string ask(const std::string& line) {
        for (size_t sent = 0; sent < line.size();) {
            ssize_t count = send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
            if (count < 0 && errno == EINTR)
                continue;
            if (count <= 0)
                return ended();
            sent += static_cast<size_t>(count);
        }
        std::string reply;
        replied_ = false;
        for (Clock::time_point start = Clock::now();;) {
            const double left = limit_s_ - seconds_since(start);
            pollfd entry{socket_, POLLIN, 0};
            if (waited_s_ + seconds_since(start) > kMostAnswerSeconds)
                return "its answers took more than " + Line::number(kMostAnswerSeconds) + " s in all";
            if (left <= 0 || poll(&entry, 1, static_cast<int>(left * 1e3) + 1) == 0)
                return "it took longer than " + Line::number(limit_s_) + " s";
            char text[4096];
            ssize_t count = recv(socket_, text, sizeof text, MSG_DONTWAIT);
            if (count < 0 && (errno == EINTR || errno == EAGAIN))
                continue;
            if (count <= 0)
                return ended();
            reply.append(text, static_cast<size_t>(count));
            if (reply.back() != '\n')
                continue;
            waited_s_ += seconds_since(start);
            replied_ = true;
            return reply.substr(0, reply.size() - 1);
        }
    }

    // How the process ended.
    std::string ended() {
        int status = 0;
        waitpid(std::exchange(process_, -1), &status, 0);
        close(socket_);
        if (WIFSIGNALED(status))
            return "its process was killed by signal " + std::to_string(WTERMSIG(status));
        return "its process ended with exit code " + std::to_string(WEXITSTATUS(status));
    }

    double limit_s_, waited_s_ = 0;
    bool replied_ = false;
    pid_t process_ = -1;
    int socket_ = -1, file_ = -1;
    unsigned char* base_ = nullptr; // of the file
    size_t bytes_ = 0;
    std::deque<Kept> kept_; // what the process has, the oldest first
};

} // namespace mskb
