// Hides inputs of calls to come: calls that are prepared together lie side by side in memory, and a candidate that read
// on would do all of them at the first. A buffer is masked with the bits of a key, which its worker gets, and undoes it
// by, right before the call.
#pragma once
#include <cstddef>
#include <cstdint>
#include "mskb/random.h"

namespace mskb {

// Masks word `i` of a buffer, or makes it readable again; the last word may be a part of one.
MSKB_HD void mask_word(unsigned char* data, size_t bytes, uint64_t key, size_t i) {
    constexpr size_t kWord = sizeof(uint64_t);
    uint64_t bits = bits_at(key, i);
    if ((i + 1) * kWord <= bytes) {
        reinterpret_cast<uint64_t*>(data)[i] ^= bits;
        return;
    }
    for (size_t at = i * kWord; at < bytes; ++at)
        data[at] ^= static_cast<unsigned char>(bits >> (at % kWord * 8));
}

MSKB_HD size_t mask_words(size_t bytes) {
    return (bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t);
}

} // namespace mskb
