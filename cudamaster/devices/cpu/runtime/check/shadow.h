// What is known of each piece of device memory: who wrote it last, and who read it since.
//
// A range is an allocation, the device's variables, or an array in shared memory. Its pages get cells at the first
// access; a cell stands for four bytes until somebody accesses fewer, then for two or for one on that page.
#pragma once

#include "clocks.h"

namespace executor {
namespace check {

struct Cell {
    Access write;  // the last plain one
    Access strong; // the last atomic or volatile one since
    Access read;
    std::vector<Access>* more =
        nullptr; // reads and strong writes beside these that nothing orders before them
    // Two lanes of this warp have read since the last write: what a third one reads tells nothing new.
    uint32_t twice_segment = 0, twice_count = 0;
    uint16_t twice_warp = 0;
    bool written = false;
};

struct Page {
    unsigned shift = 2; // a cell stands for 1 << shift bytes
    std::vector<Cell> cells;

    Page() = default;
    Page(const Page&) = delete;
    Page& operator=(const Page&) = delete;
    ~Page();
};

struct BlockState;

enum class Space : uint8_t { kGlobal, kVariable, kDynamicShared, kStaticShared };

constexpr unsigned kPageBits = 12;

class Range {
  public:
    Range(const void* base, size_t bytes, Space space, bool written);

    uintptr_t base;
    size_t bytes;
    Space space;
    unsigned called = 0;                // calls that it was an output of
    const void* key = nullptr;          // of a static shared variable
    struct BlockState* owner = nullptr; // of shared memory

    bool shared() const { return space == Space::kDynamicShared || space == Space::kStaticShared; }
    bool holds(uintptr_t address) const { return address - base < bytes; }
    // The page of an offset; its cells are fine enough for an access there.
    Page& page(size_t offset, unsigned shift);
    static void refine(Page& page, unsigned shift);
    // The host's work on a part: nothing before it matters any more.
    void set_written(size_t offset, size_t count, bool written);

  private:
    struct Slot {
        std::unique_ptr<Page> page;
        bool written = false; // what its cells begin as
    };
    std::vector<Slot> slots_;
};

// All ranges; a kernel's threads look for few of them again and again.
class Ranges {
  public:
    // A stretch of one page, as it was looked up last.
    struct Part {
        uintptr_t begin = 1, end = 0;
        Range* range = nullptr;
        Page* page = nullptr;
        uintptr_t page_begin = 0;
    };
    Part& recent(uintptr_t address) { return recent_[address >> 8 & (kParts - 1)]; }
    void forget();
    // Of the host's memory and the device's: nothing before matters any more.
    void set_all_written();

    Range* find(uintptr_t address);
    Range& add(const void* base, size_t bytes, Space space, bool written);
    void remove(const void* base);
    // The range that ends last before the address, and the one that begins first behind it.
    std::pair<Range*, Range*> neighbours(uintptr_t address);

  private:
    std::map<uintptr_t, std::unique_ptr<Range>> all_;
    static constexpr size_t kParts = 1024;
    Part recent_[kParts];
};

} // namespace check
} // namespace executor
