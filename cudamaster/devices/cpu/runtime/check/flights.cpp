#include "flights.h"
#include "check.h"

#include <algorithm>

namespace executor {
namespace check {

namespace {

constexpr unsigned kLineBits = 7;

// Calls `visit` with the flights of each line that the bytes touch, until it returns true.
template <class Lines, class Visit>
void each_line(Lines& lines, uintptr_t first, uintptr_t end, Visit visit) {
    for (uintptr_t at = first >> kLineBits; at <= (end - 1) >> kLineBits; ++at) {
        auto found = lines.find(at);
        if (found != lines.end() && visit(found))
            return;
    }
}

} // namespace

// Whole chunks: what is left at the end counts for nothing.
Flights::Stretch Flights::chunks(uintptr_t first, size_t count) const {
    return {first >> shift_ << shift_, (first + count) >> shift_ << shift_};
}

void Flights::take_off(const char* bytes, size_t count, const Access& copy) {
    auto [first, end] = chunks(reinterpret_cast<uintptr_t>(bytes), count);
    if (first == end)
        return;
    for (uintptr_t at = first >> kLineBits; at <= (end - 1) >> kLineBits; ++at)
        lines_[at].push_back({first, end, copy});
}

void Flights::land(const char* bytes, size_t count, uint32_t block, unsigned thread) {
    auto [first, end] = chunks(reinterpret_cast<uintptr_t>(bytes), count);
    if (first == end)
        return;
    each_line(lines_, first, end, [&, first = first, end = end](auto line) {
        auto& those = line->second;
        auto own = std::find_if(those.begin(), those.end(), [&](const Flight& one) {
            return one.first == first && one.end == end && one.copy.thread == thread &&
                   state().clock.block_of(one.copy.segment) == block;
        });
        if (own != those.end())
            those.erase(own);
        if (those.empty())
            lines_.erase(line);
        return false;
    });
}

const Access* Flights::in_the_way(uintptr_t address, size_t bytes, const Access& now) const {
    const Access* found = nullptr;
    uintptr_t first = address >> shift_ << shift_, end = address + bytes;
    each_line(lines_, first, end, [&](auto line) {
        for (const Flight& one : line->second)
            if (one.first < end && first < one.end && conflict(one.copy, now)) {
                found = &one.copy;
                break;
            }
        return found != nullptr;
    });
    return found;
}

} // namespace check
} // namespace executor
