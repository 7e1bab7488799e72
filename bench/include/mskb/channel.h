// What the judge and a worker say to each other: one request, one reply, over a local socket.
//
// A worker is the process that a baseline or a candidate runs in. It gets sizes and memory, never the seed or what has to
// come of a call, and its replies are only believed as far as the judge's own clock bears them out (contestant.h).
#pragma once
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "mskb/mask.h"

namespace mskb {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr size_t kMostBuffers = 64, kMostSizes = 32;
constexpr size_t kMostSlots = 16; // calls of a series at most: so many are prepared together

enum class Ask : int {
    kMemory,  // map this memory, whose descriptor comes along
    kCase,    // the sizes and buffers of the calls to come
    kPrepare, // what the call before left is sealed (seal.h); then buffers in place, cold caches, device idle
    kCall,    // one call under the clock
    kRepeat,  // several, one behind the other, and a wait for the last
    kEmpty,   // an empty launch in its place
    kDeviceTime, // one call, timed on the device
    kProfile,    // one call between the profiler's start and stop
    kLaunches,   // one call, whose launches are printed
};

// Of a seal (seal.h). The second number is added: where all of an output is known, a seal would give away the first.
struct SealKey {
    uint64_t of_words, added;
};

struct Request {
    struct Span {
        size_t offset, bytes; // of the data within a slot; guard zones lie around it
        bool read, written;   // it holds inputs, outputs; neither is scratch memory
        unsigned char poison; // the byte that what is not read is filled with before a call
    };
    Ask ask;
    int repeats;                  // of a call
    uint64_t number;              // of the request, drawn at random; the reply has it too
    size_t memory_bytes, scratch; // the offset of what nobody needs, to fill the cache with
    size_t slot;                  // to prepare: the offset at which the buffers of the next call begin
    MaskKey mask;                 // and the key that its inputs are masked with (mask.h), ...
    bool masked;                  // ... if they are
    SealKey seal;                 // and the key to seal with what the call before left, ...
    bool sealed;                  // ... if that is to be
    size_t sizes, buffers;
    double size[kMostSizes];
    Span buffer[kMostBuffers];
};

struct Reply {
    uint64_t number;  // of the request
    double seconds;   // of the call, by the worker's clock
    int error;        // of the runtime, 0 for none
    char name[64];    // of the error
    char detail[320]; // of the error, or what the call left behind
    uint64_t seal;    // of what the call before left, to a request to prepare that asks for one
    size_t asked;     // bytes of the largest allocation so far
};

// Copies a text into a field of a message, cut to fit.
template <size_t kRoom> void put(char (&field)[kRoom], const char* text) {
    std::strncpy(field, text, kRoom - 1);
    field[kRoom - 1] = '\0';
}

// One end of the connection. A peer that is gone makes every call return false.
class Channel {
  public:
    explicit Channel(int descriptor) : descriptor_(descriptor) {}
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;
    ~Channel() { close(descriptor_); }

    template <class Message> bool send(const Message& message, int passed = -1) const {
        iovec part{const_cast<Message*>(&message), sizeof message};
        msghdr header{};
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
        if (passed >= 0) {
            header.msg_control = room;
            header.msg_controllen = sizeof room;
            cmsghdr* control = CMSG_FIRSTHDR(&header);
            control->cmsg_level = SOL_SOCKET;
            control->cmsg_type = SCM_RIGHTS;
            control->cmsg_len = CMSG_LEN(sizeof(int));
            std::memcpy(CMSG_DATA(control), &passed, sizeof passed);
        }
        return sendmsg(descriptor_, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof message);
    }

    // The next message, and a descriptor that may come with it. Looks for it without sleeping for `spin_s` seconds: to
    // be woken takes longer than a short call does.
    template <class Message> bool receive(Message& message, double spin_s, int* passed = nullptr) const {
        for (Clock::time_point start = Clock::now();;) {
            int flags = seconds_since(start) < spin_s ? MSG_DONTWAIT : 0;
            ssize_t got = take(message, flags, passed);
            if (got < 0 && (errno == EAGAIN || errno == EINTR))
                continue;
            return got == static_cast<ssize_t>(sizeof message);
        }
    }

    // Sleeps until a message, or the end of the peer, is there, and for so many seconds at most.
    void wait(double seconds) const {
        pollfd entry{descriptor_, POLLIN, 0};
        poll(&entry, 1, static_cast<int>(seconds * 1e3));
    }

    // Tries once; 0 when nothing is there yet, 1 for a message, -1 when the peer is gone.
    template <class Message> int look(Message& message) const {
        ssize_t got = take(message, MSG_DONTWAIT, nullptr);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        return got == static_cast<ssize_t>(sizeof message) ? 1 : -1;
    }

  private:
    template <class Message> ssize_t take(Message& message, int flags, int* passed) const {
        iovec part{&message, sizeof message};
        msghdr header{};
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
        header.msg_control = passed != nullptr ? room : nullptr;
        header.msg_controllen = passed != nullptr ? sizeof room : 0;
        ssize_t got = recvmsg(descriptor_, &header, flags | MSG_CMSG_CLOEXEC);
        if (got > 0 && passed != nullptr)
            if (const cmsghdr* control = CMSG_FIRSTHDR(&header))
                std::memcpy(passed, CMSG_DATA(control), sizeof(int));
        return got;
    }

    int descriptor_;
};

// Address of a listening judge: a name without a file, as processes of other users cannot take it (they are refused).
inline socklen_t channel_address(const std::string& name, sockaddr_un& address) {
    address = {};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 2);
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                  std::min(name.size(), sizeof address.sun_path - 2));
}

} // namespace mskb
