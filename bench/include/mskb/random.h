// Random numbers of the inputs. Elements that do not depend on each other are hashes of their index, so that a
// device makes them in parallel and again at any time; what has structure takes a sequence, xoshiro256**. Both are
// seeded through SplitMix64: a recorded seed gives the same inputs everywhere (the distributions of <random> do
// not).
#pragma once
#include <cstdint>
#include "mskb/number.h"

namespace mskb {

MSKB_HD uint64_t splitmix(uint64_t& state) {
    uint64_t z = (state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// Random bits number `i` of the stream `key`: SplitMix64 at that place.
MSKB_HD uint64_t bits_at(uint64_t key, uint64_t i) {
    uint64_t state = key + i * 0x9E3779B97F4A7C15ull;
    return splitmix(state);
}

// The same as a number of [0, 1).
MSKB_HD double unit_at(uint64_t key, uint64_t i) {
    return static_cast<double>(bits_at(key, i) >> 11) * 0x1.0p-53;
}

class Rng {
  public:
    // Independent streams for every (seed, stream, substream).
    Rng(uint64_t seed, uint64_t stream, uint64_t substream) {
        uint64_t state = seed;
        state = splitmix(state) ^ stream;
        state = splitmix(state) ^ substream;
        for (uint64_t& word : s_)
            word = splitmix(state);
    }

    uint64_t bits() {
        uint64_t result = rotate(s_[1] * 5, 7) * 9, t = s_[1] << 17;
        s_[2] ^= s_[0];
        s_[3] ^= s_[1];
        s_[1] ^= s_[2];
        s_[0] ^= s_[3];
        s_[2] ^= t;
        s_[3] = rotate(s_[3], 45);
        return result;
    }

    double unit() { return static_cast<double>(bits() >> 11) * 0x1.0p-53; } // [0, 1)
    double uniform(double low, double high) { return low + (high - low) * unit(); }
    uint64_t below(uint64_t n) { return static_cast<uint64_t>(unit() * static_cast<double>(n)); } // [0, n)

  private:
    static uint64_t rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
    uint64_t s_[4];
};

} // namespace mskb
