#include "flights.h"
#include "check.h"

#include <algorithm>

namespace executor {
namespace check {

void Flights::take_off(const char* bytes, size_t count, const Access& copy) {
    uintptr_t first = reinterpret_cast<uintptr_t>(bytes);
    for (uintptr_t at = first >> shift_; at < (first + count) >> shift_; ++at)
        all_[at].push_back(copy);
}

void Flights::land(const char* bytes, size_t count, uint32_t block, unsigned thread) {
    uintptr_t first = reinterpret_cast<uintptr_t>(bytes);
    for (uintptr_t at = first >> shift_; at < (first + count) >> shift_; ++at) {
        auto found = all_.find(at);
        if (found == all_.end())
            continue;
        auto& those = found->second;
        auto own = std::find_if(those.begin(), those.end(), [&](const Access& one) {
            return one.thread == thread && state().clock.block_of(one.segment) == block;
        });
        if (own != those.end())
            those.erase(own);
        if (those.empty())
            all_.erase(found);
    }
}

const Access* Flights::in_the_way(uintptr_t address, size_t bytes, const Access& now) const {
    for (uintptr_t at = address >> shift_; at <= (address + bytes - 1) >> shift_; ++at) {
        auto found = all_.find(at);
        if (found == all_.end())
            continue;
        for (const Access& copy : found->second)
            if (conflict(copy, now))
                return &copy;
    }
    return nullptr;
}

} // namespace check
} // namespace executor
