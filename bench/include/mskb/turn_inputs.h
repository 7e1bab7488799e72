// Inputs that are made before the turns of a case (case_time.h): what takes the host long is done then.
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
        fill(0);
    }

    // Makes others for the turns from `begin` on, with new structure too: else a candidate could have it that what it knows
    // from calls that are forgotten comes back in those that count.
    void begin_anew(size_t begin) {
        while (made_.size() > warmups_)
            made_.pop_back();
        fill(begin);
    }

    const Inputs& warmup(size_t k) const { return made_[k]; }
    const Inputs& turn(size_t turn) const { return made_[warmups_ + turn - begin_]; }
    // Of a turn beyond those that were wanted.
    Inputs further(size_t turn) const {
        return make_(warmups_ + turn, &made_[(warmups_ + turn - begin_) % fresh_]);
    }
    // Structure that every process knows from its warm-ups.
    const Inputs& known(size_t number) const { return made_[number % std::min(warmups_, fresh_)]; }
    const std::vector<Inputs>& all() const { return made_; }

  private:
    void fill(size_t begin) {
        begin_ = begin;
        for (size_t k = made_.size(); k < count_; ++k)
            made_.push_back(make_(begin + k, k < fresh_ ? nullptr : &made_[k % fresh_]));
    }

    size_t warmups_, count_, fresh_, begin_ = 0;
    Make make_;
    std::vector<Inputs> made_;
};

} // namespace mskb
