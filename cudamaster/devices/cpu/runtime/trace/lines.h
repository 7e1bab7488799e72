// Global memory as a GPU's caches see it: lines of 128 bytes in sectors of 32.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace executor {
namespace trace {

enum class Ask : unsigned char { kLoad, kStore, kAtomic };

// One line of a request: sectors, whether it is the request's first, and whether the warp waits anew for that.
struct LineRequest {
    unsigned long long line : 40; // of addresses of 47 bits
    unsigned long long sectors : 4;
    unsigned long long first : 1;
    unsigned long long ask : 2;
    unsigned long long waits : 1;
    unsigned long long copied : 1; // asynchronously
    unsigned long long buffer : 9;
};
static_assert(sizeof(LineRequest) == 8, "there are many");

constexpr unsigned kMostBuffers = 511;

// DRAM gives two sectors at once: those of the pairs that some are of.
inline unsigned pairs_of(unsigned sectors) {
    unsigned either = (sectors | sectors >> 1) & 0x5;
    return either | either << 1;
}

// Set-associative, least recently used goes first. Only loads stay in it.
class L1 {
  public:
    void reset(size_t bytes) {
        sets_ = std::max<size_t>(bytes / (128 * kWays), 1);
        ways_.assign(sets_ * kWays, {});
        time_ = 0;
    }
    // Sectors that were not there, and now are. `comes` if there are any, or if what was asked for came in with one of the
    // last `lately` requests.
    unsigned load(unsigned long long line, unsigned sectors, unsigned lately, bool& comes) {
        Way* set = &ways_[(line ^ line >> 11) % sets_ * kWays];
        last_ = set;
        ++time_;
        for (unsigned i = 0; i < kWays; ++i) {
            if (set[i].line == line && set[i].sectors) {
                unsigned missed = sectors & ~set[i].sectors;
                set[i].sectors |= sectors;
                set[i].used = time_;
                if (missed)
                    set[i].came = time_;
                comes = time_ - set[i].came <= lately;
                last_ = &set[i];
                return missed;
            }
            if (set[i].used < last_->used)
                last_ = &set[i];
        }
        *last_ = {line, sectors, time_, time_, 0};
        comes = true;
        return sectors;
    }
    // What the last request missed comes from afar.
    void comes_from_afar() { last_->far = time_; }
    // Whether something of its line has come from there with one of the last `lately` requests.
    bool is_from_afar(unsigned lately) const { return last_->far && time_ - last_->far <= lately; }

  private:
    static constexpr unsigned kWays = 8;
    struct Way {
        unsigned long long line = 0;
        unsigned sectors = 0;
        unsigned long long used = 0, came = 0, far = 0;
    };
    std::vector<Way> ways_;
    Way* last_ = nullptr; // that was asked for
    size_t sets_ = 1;
    unsigned long long time_ = 0;
};

// What is known of addresses, none of which is 0, in the order in which they came.
template <class Value> class AddressMap {
  public:
    Value& operator[](unsigned long long address) {
        if ((entries_.size() + 1) * 2 > places_.size())
            grow();
        unsigned& place = places_[at(address)];
        if (!place) {
            entries_.push_back({address, {}});
            place = static_cast<unsigned>(entries_.size());
        }
        return entries_[place - 1].second;
    }
    auto begin() const { return entries_.begin(); }
    auto end() const { return entries_.end(); }
    void clear() {
        if (entries_.empty())
            return;
        entries_.clear();
        std::fill(places_.begin(), places_.end(), 0);
    }

  private:
    size_t at(unsigned long long address) const {
        size_t place = address * 0x9e3779b97f4a7c15ull >> 20 & (places_.size() - 1);
        while (places_[place] && entries_[places_[place] - 1].first != address)
            place = (place + 1) & (places_.size() - 1);
        return place;
    }
    void grow() {
        places_.assign(std::max<size_t>(places_.size() * 2, 64), 0);
        for (size_t i = 0; i < entries_.size(); ++i)
            places_[at(entries_[i].first)] = static_cast<unsigned>(i + 1);
    }
    std::vector<std::pair<unsigned long long, Value>> entries_;
    std::vector<unsigned> places_; // of an address: which entry is its, from 1 on; 0 is free
};

// Distinct lines, with the sectors that were read and written.
class LineSet {
  public:
    struct Entry {
        unsigned long long line; // + 1, 0 is free
        unsigned char read, written;
        unsigned short buffer;
    };
    // Sectors that were not read before.
    unsigned add(unsigned long long line, unsigned read, unsigned written, unsigned buffer) {
        if ((used_.size() + 1) * 2 > entries_.size())
            grow();
        Entry& entry = entries_[place(line + 1)];
        if (!entry.line) {
            entry = {line + 1, 0, 0, static_cast<unsigned short>(buffer)};
            used_.push_back(static_cast<unsigned>(&entry - entries_.data()));
        }
        unsigned fresh = read & ~entry.read;
        entry.read = static_cast<unsigned char>(entry.read | read);
        entry.written = static_cast<unsigned char>(entry.written | written);
        return fresh;
    }
    void add(const LineSet& other) {
        other.each(
            [this](const Entry& entry) { add(entry.line - 1, entry.read, entry.written, entry.buffer); });
    }
    // Sectors of a line that are read.
    unsigned read(unsigned long long line) const {
        return entries_.empty() ? 0 : entries_[place(line + 1)].read;
    }
    template <class Take> void each(Take take) const {
        for (unsigned at : used_)
            take(entries_[at]);
    }
    void clear() {
        for (unsigned at : used_)
            entries_[at] = {};
        used_.clear();
    }

  private:
    size_t place(unsigned long long key) const {
        size_t at = key * 0x9e3779b97f4a7c15ull >> 20 & (entries_.size() - 1);
        while (entries_[at].line && entries_[at].line != key)
            at = (at + 1) & (entries_.size() - 1);
        return at;
    }
    void grow() {
        std::vector<Entry> old(std::max<size_t>(entries_.size() * 2, 1024));
        old.swap(entries_);
        std::vector<unsigned> before;
        before.swap(used_);
        for (unsigned at : before) {
            size_t now = place(old[at].line);
            entries_[now] = old[at];
            used_.push_back(static_cast<unsigned>(now));
        }
    }
    std::vector<Entry> entries_;
    std::vector<unsigned> used_;
};

} // namespace trace
} // namespace executor
