// Collectives among the lanes of a warp: a slot per mask, completed by the last lane to come.
#include "observe.h"
#include "schedule.h"

#include <cstring>

namespace executor {

namespace {

CudamasterCpuExchange* complete(Worker& self, Warp& warp, Slot& slot) {
    CudamasterCpuExchange* exchange = &slot.exchanges[slot.turn];
    exchange->arrived = slot.arrived;
    exchange->unread = static_cast<unsigned>(__builtin_popcount(slot.arrived));
    if (slot.arrived != ~0u)
        for (unsigned lane = 0; lane < kWarp; ++lane)
            if (!(slot.arrived >> lane & 1))
                exchange->values[lane] = ~0ull;
    observe::warp_completes(self, static_cast<unsigned>(&warp - self.warps), slot.arrived);
    if (slot.combine)
        slot.combine(exchange);
    slot.arrived = 0;
    slot.turn ^= 1;
    --warp.open;
    self.ready.append(slot.waiting);
    return exchange;
}

Slot& slot_of(Warp& warp, unsigned mask) {
    for (auto& slot : warp.slots)
        if (slot->mask == mask)
            return *slot;
    for (auto& slot : warp.slots)
        if (!slot->arrived && !slot->exchanges[0].unread && !slot->exchanges[1].unread) {
            slot->mask = mask;
            return *slot;
        }
    warp.slots.push_back(std::make_unique<Slot>());
    warp.slots.back()->mask = mask;
    return *warp.slots.back();
}

} // namespace

// Lanes that ended can't arrive any more.
void complete_without_exited(Worker& self, Warp& warp) {
    for (auto& slot : warp.slots)
        if (slot->arrived && ((slot->arrived | warp.exited) & slot->mask) == slot->mask)
            complete(self, warp, *slot);
}

// Nothing can run: the threads that asked which lanes run with them are the ones that do.
void answer_active_mask(Worker& self) {
    Fibre* first = self.asking.head;
    FibreList others, released;
    unsigned mask = 0;
    while (self.asking.head) {
        Fibre* fibre = self.asking.pop();
        bool together = fibre->linear / kWarp == first->linear / kWarp && fibre->site == first->site;
        (together ? released : others).push(fibre);
        if (together)
            mask |= 1u << fibre->linear % kWarp;
    }
    for (Fibre* fibre = released.head; fibre; fibre = fibre->next)
        fibre->active_mask = mask;
    self.asking = others;
    self.ready.append(released);
}

} // namespace executor

using namespace executor;

CudamasterCpuExchange* cudamaster_cpu_warp(unsigned mask, const char* operation, unsigned long long value,
                                           CudamasterCpuCombine combine) {
    Worker& self = *worker;
    unsigned lane = self.linear % kWarp;
    if (__builtin_expect(!(mask >> lane & 1), 0))
        fail_block("a warp collective whose mask leaves out the lane that calls it");
    observe::warp_arrives(self, mask);
    Warp& warp = self.warps[self.linear / kWarp];
    Slot& slot = slot_of(warp, mask);
    CudamasterCpuExchange* exchange = &slot.exchanges[slot.turn];
    if (!slot.arrived) {
        slot.operation = operation;
        slot.combine = combine;
        ++warp.open;
    } else if (__builtin_expect(slot.operation != operation, 0) &&
               std::strcmp(slot.operation, operation) != 0) {
        fail_block("lanes of one mask meet in different warp collectives");
    }
    exchange->values[lane] = value;
    slot.arrived |= 1u << lane;
    if (((slot.arrived | warp.exited) & mask) == mask)
        return complete(self, warp, slot);
    Fibre* me = self.current;
    slot.waiting.push(me);
    me->wait = Wait::kWarp;
    me->operation = operation;
    me->mask = mask;
    block_current(self, me);
    return exchange;
}

unsigned cudamaster_cpu_activemask() {
    Worker& self = *worker;
    Fibre* me = self.current;
    me->site = __builtin_return_address(0);
    me->wait = Wait::kActiveMask;
    self.asking.push(me);
    block_current(self, me);
    return me->active_mask;
}
