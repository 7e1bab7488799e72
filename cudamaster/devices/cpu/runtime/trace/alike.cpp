// Launches as they are compared, and their lines with other buffers.
#include "trace/alike.h"
#include "trace/lines.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace executor {
namespace trace {

namespace {

struct Comparing {
    const Allocations& allocations;
    Given given;

    // Pointers of a struct are at multiples of 8 bytes, a tensor map's too.
    void take(const unsigned char* value, size_t bytes) {
        size_t done = 0;
        for (; done + sizeof(uintptr_t) <= bytes; done += sizeof(uintptr_t)) {
            uintptr_t word = 0;
            std::memcpy(&word, value + done, sizeof word);
            take_word(word);
        }
        for (; done < bytes; ++done)
            given.text += "," + std::to_string(value[done]);
        given.text += ";";
    }
    void take_word(uintptr_t word) {
        auto behind = allocations.upper_bound(reinterpret_cast<const void*>(word));
        if (behind != allocations.begin()) {
            const auto& [base, allocation] = *std::prev(behind);
            const auto [number, bytes] = allocation;
            const auto begin = reinterpret_cast<uintptr_t>(base);
            if (word - begin <= bytes) { // an end belongs to what it ends
                // Those from the last number on are one buffer, which has no role.
                const auto next = static_cast<unsigned>(given.roles.size() + 1);
                const unsigned role =
                    number < kMostBuffers ? given.roles.try_emplace(number, next).first->second : 0;
                given.text += ' ' + std::to_string(role);
                for (size_t each : {bytes, word - begin, begin % 128})
                    given.text += ":" + std::to_string(each);
                return;
            }
        }
        given.text += " =" + std::to_string(word);
    }
};

constexpr char kTraffic[] = ",\"traffic\":[", kShared[] = "],\"shared\":[", kBuffer[] = "{\"buffer\":";

} // namespace

Given given_of(const Job& job, const Allocations& allocations) {
    const CudamasterCpuLaunch& launch = *job.launch;
    Comparing comparing{allocations, {}};
    comparing.given.text = std::to_string(reinterpret_cast<uintptr_t>(launch.invoke));
    auto take = [](void* to, const void* value, size_t bytes) {
        static_cast<Comparing*>(to)->take(static_cast<const unsigned char*>(value), bytes);
    };
    if (!launch.arguments(launch.closure, take, &comparing))
        return {};
    return std::move(comparing.given);
}

std::string renamed(const std::string& line, const Names& names) {
    const size_t begin = line.find(kTraffic) + std::strlen(kTraffic), end = line.find(kShared);
    std::map<unsigned, std::string> parts; // what is written of a buffer, behind its number
    for (size_t at = begin; at < end;) {
        at += std::strlen(kBuffer);
        const auto buffer = static_cast<unsigned>(std::strtoul(line.c_str() + at, nullptr, 10));
        const auto name = names.find(buffer);
        if (buffer && name == names.end())
            return {};
        const size_t next = std::min(line.find(kBuffer, at), end);
        const size_t from = line.find(',', at), last = next == end ? end : next - 1; // but for the comma
        parts[buffer ? name->second : 0] = line.substr(from, last - from);
        at = next;
    }
    std::string text = line.substr(0, begin);
    for (const auto& [name, part] : parts)
        text += (name == parts.begin()->first ? "" : ",") + (kBuffer + std::to_string(name)) + part;
    return text + line.substr(end);
}

Names reversed(const Names& names) {
    Names back;
    for (const auto& [from, to] : names)
        back[to] = from;
    return back;
}

} // namespace trace
} // namespace executor
