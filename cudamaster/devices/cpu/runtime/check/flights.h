// Bytes that asynchronous copies and products have still to write, or to read, for nobody has waited for them.
#pragma once

#include "knowledge.h"

#include <unordered_map>

namespace executor {
namespace check {

class Flights {
  public:
    // Bytes are told apart by address >> shift.
    explicit Flights(unsigned shift) : shift_(shift) {}
    bool empty() const { return lines_.empty(); }
    void clear() { lines_.clear(); }
    void take_off(const char* bytes, size_t count, const Access& copy);
    // What a thread's copy was for is done; the bytes are those that took off together.
    void land(const char* bytes, size_t count, uint32_t block, unsigned thread);
    // The copy that the access does not wait for, if any: bytes that one may yet write, or a write to what one may yet read.
    const Access* in_the_way(uintptr_t address, size_t bytes, const Access& now) const;

  private:
    struct Stretch {
        uintptr_t first, end;
    };
    struct Flight {
        uintptr_t first, end;
        Access copy;
    };
    Stretch chunks(uintptr_t first, size_t count) const;

    unsigned shift_;
    std::unordered_map<uintptr_t, std::vector<Flight>> lines_; // by lines of 128 bytes that they touch
};

} // namespace check
} // namespace executor
