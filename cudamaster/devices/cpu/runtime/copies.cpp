// Asynchronous copies of single threads (cp.async). They take place at the wait that guarantees them: until then the target
// holds what was there, and the source may still be changed, as the hardware may not have read it yet. Copies that nobody
// waits for never take place.
#include "executor.h"
#include "observe.h"

#include <algorithm>
#include <cstring>

namespace executor {

namespace {

Copies& own_copies(Worker& self) {
    if (self.copies.empty())
        self.copies.resize(kMaxThreads);
    return self.copies[self.linear];
}

void land(Worker& self, Copies& copies, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        const Copy& copy = copies.pending[i];
        std::memcpy(copy.target, copy.source, copy.from_source);
        std::memset(copy.target + copy.from_source, 0, copy.bytes - copy.from_source);
        observe::copy_lands(self, copy);
    }
    copies.landed += count;
    copies.pending.erase(copies.pending.begin(), copies.pending.begin() + static_cast<long>(count));
}

} // namespace

size_t pending_copies(Worker& self) {
    Copies& copies = own_copies(self);
    copies.late = 0;
    return copies.landed + copies.pending.size();
}

void land_copies_of(Worker& self, unsigned thread, size_t count, const void* barrier) {
    Copies& copies = self.copies[thread];
    if (count <= copies.landed)
        return;
    count -= copies.landed;
    for (size_t& end : copies.groups)
        end -= std::min(end, count);
    for (size_t i = 0; i < count; ++i)
        copies.pending[i].barrier = barrier;
    land(self, copies, count);
}

void drop_copies(Worker& self) {
    for (Copies& copies : self.copies) {
        copies.pending.clear();
        copies.groups.clear();
        copies.landed = 0;
        copies.late = 0;
    }
}

} // namespace executor

using namespace executor;

void cudamaster_cpu_copy_async(void* target, const void* source, unsigned bytes, unsigned from_source) {
    Worker& self = *worker;
    if (bytes != 4 && bytes != 8 && bytes != 16)
        fail_block("cp.async of something else than 4, 8 or 16 bytes");
    if (from_source > bytes)
        fail_block("cp.async that takes more from its source than it writes");
    if (reinterpret_cast<uintptr_t>(target) % bytes || reinterpret_cast<uintptr_t>(source) % bytes)
        fail_block("cp.async at an address that is no multiple of its size");
    Copy copy{static_cast<char*>(target),
              static_cast<const char*>(source),
              bytes,
              from_source,
              __builtin_return_address(0),
              self.linear,
              nullptr,
              0};
    Copies& copies = own_copies(self);
    copy.late = copies.late;
    observe::copy_starts(self, copy);
    copies.late = copy.late;
    copies.pending.push_back(copy);
}

void cudamaster_cpu_copy_commit() {
    Copies& copies = own_copies(*worker);
    copies.groups.push_back(copies.pending.size());
    copies.late = 0;
}

void cudamaster_cpu_copy_wait(unsigned groups_left) {
    Worker& self = *worker;
    Copies& copies = own_copies(self);
    if (copies.groups.size() <= groups_left)
        return;
    size_t groups = copies.groups.size() - groups_left, count = copies.groups[groups - 1];
    copies.groups.erase(copies.groups.begin(), copies.groups.begin() + static_cast<long>(groups));
    for (size_t& end : copies.groups)
        end -= count;
    land(self, copies, count);
}

void cudamaster_cpu_copy_wait_all() {
    Worker& self = *worker;
    Copies& copies = own_copies(self);
    copies.groups.clear();
    copies.late = 0;
    land(self, copies, copies.pending.size());
}
