// Calls of the workers on the inputs of one case, and the lines that say how a call ended.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>
#include "mskb/arena.h"
#include "mskb/device_work.h"
#include "mskb/input_set.h"
#include "mskb/options.h"
#include "mskb/report.h"
#include "mskb/task.h"
#include "mskb/workers.h"

namespace mskb {

constexpr double kSlowest = 1000;      // a candidate is stopped at so many times the baseline's time
constexpr double kBaselineLimit = 600; // seconds that a call of the baseline may take
constexpr size_t kMostSlots = 8;       // calls that are prepared together ...
constexpr size_t kSlotBytes = size_t{256} << 20; // ... as far as they take no more memory than this

inline uint64_t label_stream(const std::string& label) {
    uint64_t hash = 0xcbf29ce484222325ull;
    for (unsigned char c : label)
        hash = (hash ^ c) * 0x100000001b3ull;
    return hash;
}

class CaseCalls {
  public:
    CaseCalls(const Options& options, const Report& report, Workers& workers, const SharedMemory& memory,
              size_t for_slots, int index, const Row& row)
        : workers(workers), options_(options), report_(report), memory_(memory), for_slots_(for_slots),
          index_(index), row_(row), specs_(task().buffers(row.sizes)), layout_(specs_) {}

    Workers& workers;
    double baseline_seconds = 0; // what a call takes; bounds what a candidate may take

    const std::vector<BufferSpec>& specs() const { return specs_; }
    // The buffers in use: those that inputs are placed in and calls are made on.
    const std::vector<WorkingBuffer>& working() const { return working_; }

    Line line(const char* event) const { return std::move(Line(event).add("index", index_)); }
    void write(const Line& line) const { report_.write(line); }

    Inputs make_inputs(uint64_t stream, const Inputs* donor = nullptr) const {
        return Inputs(task(), row_, specs_, options_.seed, label_stream(row_.label), stream, donor);
    }

    void begin() {
        add_slot();
        use(0);
        for (Contestant* worker : workers.all())
            settle(*worker, worker->begin_case(row_.sizes, layout_));
    }

    // Lets the processes of so many pairs of the candidate take part from here on, as far as they do not yet.
    void join(size_t pairs) {
        for (Contestant* worker : workers.join(pairs))
            settle(*worker, worker->begin_case(row_.sizes, layout_));
    }

    // How many calls can be prepared together, each on buffers of its own.
    size_t slots() {
        size_t room = std::min(kMostSlots, for_slots_ / std::max<size_t>(layout_.bytes, 1));
        while (slots_.size() < room)
            add_slot();
        return slots_.size();
    }

    void use(size_t slot) {
        working_ = slots_.at(slot);
        slot_ = slot;
    }

    void place(const Inputs& inputs) {
        inputs.place(working_, !options_.launches);
        masks_[slot_] = 0;
    }

    // So that they can be read from the start of the next call on, and not before.
    void place_masked(const Inputs& inputs) {
        inputs.place(working_);
        if (getentropy(&masks_[slot_], sizeof masks_[slot_]) != 0)
            harness_failure("no random numbers");
        for (size_t i = 0; i < specs_.size(); ++i)
            if (specs_[i].is_read() && specs_[i].bytes() > 0)
                mask(working_[i].get(), specs_[i].bytes(), masks_[slot_]);
    }

    // One call of a worker on the buffers in use, as they are, or what stands in its place.
    Outcome call(Contestant& worker, Ask ask) {
        MSKB_CUDA(cudaDeviceSynchronize());
        Outcome outcome =
            worker.call(ask, slot_ * layout_.bytes, std::exchange(masks_[slot_], 0), limit(worker));
        settle(worker, outcome);
        return outcome;
    }

    // Calls one behind the other on the same inputs, after warm-ups.
    Outcome repeat(Contestant& worker, const Inputs& inputs) {
        place(inputs);
        MSKB_CUDA(cudaDeviceSynchronize());
        Outcome outcome =
            worker.repeat(slot_ * layout_.bytes, options_.warmups, options_.calls, limit(worker));
        settle(worker, outcome);
        return outcome;
    }

    Outcome call(Contestant& worker, Ask ask, const Inputs& inputs) {
        place(inputs);
        return call(worker, ask);
    }

  private:
    // Seconds that a call of a worker may take.
    double limit(const Contestant& worker) const {
        bool trusted = std::string(worker.who()) == "baseline";
        return trusted ? kBaselineLimit : std::max(options_.call_limit_s, kSlowest * baseline_seconds);
    }

    void add_slot() {
        unsigned char* base = memory_.base() + slots_.size() * layout_.bytes;
        slots_.emplace_back();
        for (const Request::Span& span : layout_.spans)
            slots_.back().emplace_back(base + span.offset, span.bytes);
    }

    // A fault or a timeout ends the run: the worker is of no use any more.
    void settle(Contestant& worker, const Outcome& outcome) const {
        if (outcome.ended == Ended::kTimeout) {
            write(line("timeout").add("who", worker.who()).add("limit_s", outcome.limit));
            std::_Exit(kTimeoutExit);
        }
        if (outcome.ended == Ended::kFault) {
            write(line("fault")
                      .add("who", worker.who())
                      .add("error", outcome.error)
                      .add("detail", outcome.detail)
                      .add("gone", outcome.gone));
            worker.leave();
            worker.wait_for_end();
            std::_Exit(kFaultExit);
        }
    }

    const Options& options_;
    const Report& report_;
    const SharedMemory& memory_;
    size_t for_slots_; // bytes of it
    int index_;
    const Row& row_;
    std::vector<BufferSpec> specs_;
    Layout layout_;
    std::vector<std::vector<WorkingBuffer>> slots_;
    std::vector<WorkingBuffer> working_; // of the slot in use
    size_t slot_ = 0;
    uint64_t masks_[kMostSlots] = {}; // keys of the inputs that are in a slot, 0 for none
};

} // namespace mskb
