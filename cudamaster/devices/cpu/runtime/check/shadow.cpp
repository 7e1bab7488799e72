#include "shadow.h"

#include <algorithm>
#include <cstring>

namespace executor {
namespace check {

Page::~Page() {
    for (Cell& cell : cells)
        delete cell.more;
}

Range::Range(const void* base_, size_t bytes_, Space space_, bool written)
    : base(reinterpret_cast<uintptr_t>(base_)), bytes(bytes_), space(space_),
      slots_((bytes_ >> kPageBits) + 1) {
    for (Slot& slot : slots_)
        slot.written = written;
}

Page& Range::page(size_t offset, unsigned shift) {
    Slot& slot = slots_[offset >> kPageBits];
    if (!slot.page) {
        slot.page = std::make_unique<Page>();
        slot.page->shift = shift;
        size_t begin = offset >> kPageBits << kPageBits;
        slot.page->cells.resize((std::min<size_t>(bytes - begin, 1 << kPageBits) + (1u << shift) - 1) >>
                                shift);
        for (Cell& cell : slot.page->cells)
            cell.written = slot.written;
    }
    refine(*slot.page, shift);
    return *slot.page;
}

void Range::refine(Page& page, unsigned shift) {
    while (page.shift > shift) {
        std::vector<Cell> finer;
        finer.reserve(page.cells.size() * 2);
        for (Cell& cell : page.cells) {
            finer.push_back(cell);
            finer.push_back(cell);
            if (cell.more)
                finer.back().more = new std::vector<Access>(*cell.more);
        }
        page.cells.swap(finer);
        --page.shift;
    }
}

void Range::set_written(size_t offset, size_t count, bool written) {
    size_t end = std::min(offset + count, bytes);
    while (offset < end) {
        size_t begin = offset >> kPageBits << kPageBits, last = std::min(begin + (1 << kPageBits), bytes);
        size_t stop = std::min(end, last);
        Slot& slot = slots_[offset >> kPageBits];
        if (offset == begin && stop == last) {
            slot.page.reset();
            slot.written = written;
        } else {
            unsigned shift = static_cast<unsigned>(__builtin_ctzll(offset | stop | 4));
            Page& cells = page(offset, shift);
            for (size_t i = offset - begin; i < stop - begin; i += 1ull << cells.shift) {
                Cell& cell = cells.cells[i >> cells.shift];
                delete cell.more;
                cell = {};
                cell.written = written;
            }
        }
        offset = stop;
    }
}

void Ranges::forget() {
    std::fill(std::begin(recent_), std::end(recent_), Part());
}

void Ranges::set_all_written() {
    forget();
    for (auto& [base, range] : all_)
        if (!range->shared())
            range->set_written(0, range->bytes, true);
}

Range* Ranges::find(uintptr_t address) {
    auto after = all_.upper_bound(address);
    if (after == all_.begin() || !std::prev(after)->second->holds(address))
        return nullptr;
    return std::prev(after)->second.get();
}

Range& Ranges::add(const void* base, size_t bytes, Space space, bool written) {
    forget();
    auto& slot = all_[reinterpret_cast<uintptr_t>(base)];
    slot = std::make_unique<Range>(base, bytes, space, written);
    return *slot;
}

void Ranges::remove(const void* base) {
    forget();
    all_.erase(reinterpret_cast<uintptr_t>(base));
}

std::pair<Range*, Range*> Ranges::neighbours(uintptr_t address) {
    auto after = all_.upper_bound(address);
    return {after == all_.begin() ? nullptr : std::prev(after)->second.get(),
            after == all_.end() ? nullptr : after->second.get()};
}

} // namespace check
} // namespace executor
