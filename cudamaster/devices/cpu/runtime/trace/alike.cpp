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
    std::map<unsigned, uintptr_t> first; // pointer into an allocation, by its role

    // Pointers of a struct are at multiples of 8 bytes, a tensor map's too.
    void take(const unsigned char* value, size_t bytes) {
        size_t done = 0;
        for (; done + sizeof(uintptr_t) <= bytes; done += sizeof(uintptr_t)) {
            uintptr_t word = 0;
            std::memcpy(&word, value + done, sizeof word);
            if (unsigned number = number_of(word))
                take_pointer(word, number);
            else
                given.text += " =" + std::to_string(word);
        }
        for (; done < bytes; ++done)
            given.text += ' ' + std::to_string(value[done]);
        given.text += ';';
    }
    // That of the allocation which has the address, 0 for none. From kMostBuffers on all are one buffer, which has no role.
    unsigned number_of(uintptr_t address) const {
        auto behind = allocations.upper_bound(reinterpret_cast<const void*>(address));
        if (behind == allocations.begin())
            return 0;
        const auto& [base, allocation] = *std::prev(behind);
        const auto [number, bytes] = allocation;
        // With the address behind its last byte, as an end may be handed over.
        const bool has = address - reinterpret_cast<uintptr_t>(base) <= bytes;
        return has && number < kMostBuffers ? number : 0;
    }
    void take_pointer(uintptr_t address, unsigned number) {
        const auto next = static_cast<unsigned>(given.roles.size() + 1);
        const unsigned role = given.roles.try_emplace(number, next).first->second;
        auto [found, is_first] = first.try_emplace(role, address);
        given.text += ' ' + std::to_string(role) + (is_first ? '%' : '+') +
                      std::to_string(is_first ? address % 128 : address - found->second);
    }
};

constexpr char kTraffic[] = ",\"traffic\":[", kShared[] = "],\"shared\":[",
               kBuffer[] = "{\"buffer\":", kBytes[] = ",\"bytes\":", kLoad[] = ",\"load\":";

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

Names Given::to_roles() const {
    Names names;
    for (const auto& [number, role] : roles)
        names[number] = {role, 0};
    return names;
}

Names Given::from_roles(const Allocations& allocations) const {
    Names names;
    for (const auto& [base, allocation] : allocations)
        if (auto found = roles.find(allocation.first); found != roles.end())
            names[found->second] = allocation;
    return names;
}

std::string renamed(const std::string& line, const Names& names) {
    const size_t begin = line.find(kTraffic) + std::strlen(kTraffic), end = line.find(kShared);
    std::map<unsigned, std::string> parts; // what is written of a buffer, by its other name
    for (size_t at = begin; at < end;) {
        at += std::strlen(kBuffer);
        const auto buffer = static_cast<unsigned>(std::strtoul(line.c_str() + at, nullptr, 10));
        const auto name = names.find(buffer);
        if (buffer && name == names.end())
            return {};
        const size_t next = std::min(line.find(kBuffer, at), end), last = next == end ? end : next - 1;
        const size_t from = line.find(buffer ? kLoad : kBytes, at);
        const auto [other, bytes] = buffer ? name->second : std::pair{0u, size_t(0)};
        parts[other] = kBuffer + std::to_string(other) + (buffer ? kBytes + std::to_string(bytes) : "") +
                       line.substr(from, last - from);
        at = next;
    }
    std::string text = line.substr(0, begin);
    for (const auto& [other, part] : parts)
        text += (other == parts.begin()->first ? "" : ",") + part;
    return text + line.substr(end);
}

} // namespace trace
} // namespace executor
