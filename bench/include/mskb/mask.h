// Hides inputs of calls to come: calls that are prepared together lie side by side in memory, and a candidate that read
// on would do all of them at the first. A buffer is masked with a stream of bits, whose key its worker gets, and undoes it
// by, right before the call.
//
// The bits are those of ChaCha (Bernstein, 2008) with eight rounds and a key of 256 bits: many inputs are known in part,
// such as the first offset of a sparse matrix, and from known words nobody gets the others.
#pragma once
#include <cstddef>
#include <cstdint>
#include "mskb/number.h"

namespace mskb {

struct MaskKey {
    uint32_t words[8];
};

constexpr size_t kMaskBlock = 64; // bytes that are made together

MSKB_HD uint32_t rotated(uint32_t x, int k) {
    return (x << k) | (x >> (32 - k));
}

MSKB_HD void quarter_round(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
    a += b, d = rotated(d ^ a, 16);
    c += d, b = rotated(b ^ c, 12);
    a += b, d = rotated(d ^ a, 8);
    c += d, b = rotated(b ^ c, 7);
}

// Block `i` of the stream of a buffer, which has a number among those of a key.
MSKB_HD void mask_bits(const MaskKey& key, uint32_t buffer, uint64_t i, uint32_t (&bits)[16]) {
    const uint32_t first[16] = {0x61707865,   0x3320646e,        0x79622d32,   0x6b206574,
                                key.words[0], key.words[1],      key.words[2], key.words[3],
                                key.words[4], key.words[5],      key.words[6], key.words[7],
                                uint32_t(i),  uint32_t(i >> 32), buffer,       0};
    for (int k = 0; k < 16; ++k)
        bits[k] = first[k];
    for (int round = 0; round < 8; round += 2) {
        for (int k = 0; k < 4; ++k) // the columns
            quarter_round(bits[k], bits[4 + k], bits[8 + k], bits[12 + k]);
        for (int k = 0; k < 4; ++k) // and the diagonals
            quarter_round(bits[k], bits[4 + (k + 1) % 4], bits[8 + (k + 2) % 4], bits[12 + (k + 3) % 4]);
    }
    for (int k = 0; k < 16; ++k)
        bits[k] += first[k];
}

// Masks block `i` of a buffer, or makes it readable again; the last block may be a part of one.
MSKB_HD void mask_block(unsigned char* data, size_t bytes, const MaskKey& key, uint32_t buffer, size_t i) {
    uint32_t bits[16];
    mask_bits(key, buffer, i, bits);
    size_t begin = i * kMaskBlock;
    if (begin + kMaskBlock <= bytes) {
        // Buffers are aligned (arena.h), and a device writes four words as fast as one.
        uint4* words = reinterpret_cast<uint4*>(data + begin);
        for (int k = 0; k < 4; ++k) {
            uint4 word = words[k];
            word.x ^= bits[4 * k], word.y ^= bits[4 * k + 1];
            word.z ^= bits[4 * k + 2], word.w ^= bits[4 * k + 3];
            words[k] = word;
        }
        return;
    }
    for (size_t at = begin; at < bytes; ++at)
        data[at] ^= static_cast<unsigned char>(bits[(at - begin) / 4] >> (at % 4 * 8));
}

MSKB_HD size_t mask_blocks(size_t bytes) {
    return (bytes + kMaskBlock - 1) / kMaskBlock;
}

} // namespace mskb
