// Inputs of the turns of a case (case_time.h). What takes the host long is done before the first of them, and once more
// after half of those that were asked for, which often are not needed.
#pragma once
#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace mskb {

template <class Inputs> class TurnInputs {
  public:
    // Makes those of call `number`, the warm-ups' first, with structure of their own or that of a donor.
    using Make = std::function<Inputs(size_t number, const Inputs* donor)>;

    // `wanted` turns, of which as many have structure of their own as make `fresh` with the warm-ups.
    TurnInputs(size_t warmups, size_t wanted, size_t fresh, Make make)
        : warmups_(warmups), count_(warmups + wanted), fresh_(fresh), make_(std::move(make)) {
        made_.reserve(count_); // they stay where they are
        begin_anew(0);
    }

    // Makes others for the turns from `begin` on, with new structure too: else a candidate could have it that what it knows
    // from calls that are forgotten comes back in those that count.
    void begin_anew(size_t begin) {
        while (made_.size() > warmups_)
            made_.pop_back();
        begin_ = begin;
        fill(warmups_ + (count_ - warmups_ + 1) / 2);
    }

    const Inputs& warmup(size_t k) const { return made_[k]; }
    const Inputs& turn(size_t turn) {
        size_t k = warmups_ + turn - begin_;
        if (k >= made_.size())
            fill(count_);
        return made_[k];
    }
    // Of a turn beyond those that were wanted.
    Inputs further(size_t turn) {
        fill(count_);
        return make_(warmups_ + turn, &made_[(warmups_ + turn - begin_) % fresh_]);
    }
    // Structure that every process knows from its warm-ups.
    const Inputs& known(size_t number) const { return made_[number % std::min(warmups_, fresh_)]; }
    // Those that were made so far.
    const std::vector<Inputs>& made() const { return made_; }

  private:
    void fill(size_t count) {
        for (size_t k = made_.size(); k < count; ++k)
            made_.push_back(make_(begin_ + k, k < fresh_ ? nullptr : &made_[k % fresh_]));
    }

    size_t warmups_, count_, fresh_, begin_ = 0;
    Make make_;
    std::vector<Inputs> made_;
};

} // namespace mskb
