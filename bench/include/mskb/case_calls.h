// Calls of the workers on the inputs of one case, and the lines that say how a call ended.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include "mskb/arena.h"
#include "mskb/device_work.h"
#include "mskb/input_set.h"
#include "mskb/options.h"
#include "mskb/report.h"
#include "mskb/seal.h"
#include "mskb/task.h"
#include "mskb/workers.h"

namespace mskb {

constexpr double kSlowest = 1000;      // a candidate is stopped at so many times the baseline's time
constexpr double kBaselineLimit = 600; // seconds that a call of the baseline may take
constexpr size_t kSlotBytes = size_t{256}
                              << 20; // calls are prepared together as far as they take no more memory, ...
constexpr size_t kFewestSlots = 4;   // ... and so many in any case, if an eighth of the device has room

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

    int index() const { return index_; }
    Line line(const char* event) const { return std::move(Line(event).add("index", index_)); }
    // Of a case whose turn has not come, lines are held back.
    void write(const Line& line) {
        if (held_)
            held_->push_back(line);
        else
            report_.write(line);
    }
    void hold() { held_.emplace(); }
    void release() {
        for (const Line& line : std::exchange(held_, std::nullopt).value_or(std::vector<Line>()))
            report_.write(line);
    }

    Inputs make_inputs(uint64_t stream, const Inputs* donor = nullptr) const {
        return Inputs(task(), row_, specs_, options_.seed, label_stream(row_.label), stream, donor);
    }

    // From here on the workers, and the memory that is shared with them, are this case's.
    void begin() {
        places_.clear();
        place_of_.clear();
        add_place(); // with guard zones around its buffers
        use(0);
        for (Contestant* worker : workers.all())
            settle(*worker, worker->begin_case(row_.sizes, layout_));
    }

    // Lets the processes of so many pairs of the candidate take part from here on, as far as they do not yet.
    void join(size_t pairs) {
        for (Contestant* worker : workers.join(pairs))
            settle(*worker, worker->begin_case(row_.sizes, layout_));
    }

    // How many calls can be prepared together, each in a slot: on buffers of its own.
    size_t slots() {
        size_t room = std::min(kMostSlots, for_slots_ / std::max<size_t>(layout_.bytes, 1));
        while (places_.size() < room)
            add_place();
        return places_.size();
    }

    // Draws where the slots lie. A candidate knows addresses, and is not to know which call of a series it is in by them.
    void draw_places(Rng& rng) {
        for (size_t k = place_of_.size(); k > 1; --k)
            std::swap(place_of_[k - 1], place_of_[rng.below(k)]);
    }

    void use(size_t slot) {
        slot_ = slot;
        working_ = places_.at(place_of_.at(slot));
    }

    void place(const Inputs& inputs) {
        inputs.place(working_, !options_.launches, !options_.told);
        masks_[slot_].reset();
    }

    // So that they can be read from the start of the next call on, and not before.
    void place_masked(const Inputs& inputs) {
        inputs.place(working_);
        MaskKey& key = masks_[slot_].emplace();
        fill_secretly(key);
        for (size_t i = 0; i < specs_.size(); ++i)
            if (specs_[i].is_read() && specs_[i].bytes() > 0)
                mask(working_[i].get(), specs_[i].bytes(), key, static_cast<uint32_t>(i));
    }

    // One call of a worker on the buffers in use, as they are, or what stands in its place.
    Outcome call(Contestant& worker, Ask ask) { return call(worker, ask, std::nullopt); }

    // A call each on the slots `begin` to `end` - 1, in order; `ended` takes what came of them. Where they are `sealed`, so
    // is what each but the last left, and `late` can be asked.
    template <class Take>
    void series(Contestant& worker, size_t begin, size_t end, bool sealed, const Take& ended) {
        sealed_.clear();
        for (size_t k = begin; k < end; ++k) {
            use(k);
            std::optional<SealKey> key;
            if (sealed && k > begin)
                fill_secretly(key.emplace());
            Outcome outcome = call(worker, Ask::kCall, key);
            if (key)
                sealed_.push_back({k - 1, *key, outcome.sealed});
            ended(k, outcome);
        }
    }

    // How many calls of that series left something else than lies there now. What the last one left is what is looked at.
    size_t late() {
        size_t broken = 0;
        for (const Sealed& left : sealed_) {
            use(left.slot);
            sealer_.begin(left.key);
            for (size_t i = 0; i < specs_.size(); ++i)
                if (specs_[i].is_written())
                    sealer_.add(working_[i].get(), specs_[i].bytes());
            broken += sealer_.seal() != left.seal;
        }
        return broken;
    }

    // Calls one behind the other on the same inputs, after warm-ups.
    Outcome repeat(Contestant& worker, const Inputs& inputs) {
        place(inputs);
        MSKB_CUDA(cudaDeviceSynchronize());
        Outcome outcome = worker.repeat(offset(), options_.warmups, options_.calls, limit(worker));
        settle(worker, outcome);
        return outcome;
    }

    Outcome call(Contestant& worker, Ask ask, const Inputs& inputs) {
        place(inputs);
        return call(worker, ask);
    }

  private:
    Outcome call(Contestant& worker, Ask ask, const std::optional<SealKey>& seal) {
        MSKB_CUDA(cudaDeviceSynchronize());
        Outcome outcome =
            worker.call(ask, offset(), std::exchange(masks_[slot_], std::nullopt), limit(worker), 1, seal);
        settle(worker, outcome);
        return outcome;
    }

    // Seconds that a call of a worker may take.
    double limit(const Contestant& worker) const {
        bool trusted = std::string(worker.who()) == "baseline";
        return trusted ? kBaselineLimit : std::max(options_.call_limit_s, kSlowest * baseline_seconds);
    }

    // Of the slot in use, in the memory that is shared.
    size_t offset() const { return place_of_[slot_] * layout_.bytes; }

    void add_place() {
        unsigned char* base = memory_.base() + places_.size() * layout_.bytes;
        place_of_.push_back(places_.size());
        places_.emplace_back();
        for (const Request::Span& span : layout_.spans)
            places_.back().emplace_back(base + span.offset, span.bytes);
    }

    // A key that nobody knows.
    template <class Key> static void fill_secretly(Key& key) {
        if (getentropy(&key, sizeof key) != 0)
            harness_failure("no random numbers");
    }

    // A fault or a timeout ends the run: the worker is of no use any more. Throws RunOver.
    void settle(Contestant& worker, const Outcome& outcome) {
        if (outcome.ended == Ended::kTimeout) {
            write(line("timeout").add("who", worker.who()).add("limit_s", outcome.limit));
            throw RunOver{kTimeoutExit, worker.who()};
        }
        if (outcome.ended == Ended::kFault) {
            write(line("fault")
                      .add("who", worker.who())
                      .add("error", outcome.error)
                      .add("detail", outcome.detail)
                      .add("gone", outcome.gone));
            worker.leave();
            worker.wait_for_end();
            throw RunOver{kFaultExit, worker.who()};
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
    std::vector<std::vector<WorkingBuffer>> places_; // for slots
    std::vector<size_t> place_of_;                   // each slot
    std::vector<WorkingBuffer> working_;             // of the slot in use
    size_t slot_ = 0;
    std::optional<std::vector<Line>> held_;
    std::optional<MaskKey> masks_[kMostSlots]; // of the inputs that are in a slot
    struct Sealed {
        size_t slot;
        SealKey key;
        uint64_t seal;
    };
    std::vector<Sealed> sealed_; // what the calls of a series but its last left
    Sealer sealer_{seal};
};

} // namespace mskb
