// Element i of a generated input. inputs.h says what the generators make.
#pragma once
#include "mskb/device_work.h"
#include "mskb/random.h"

namespace mskb {

constexpr int kHeavy =
    8; // elements that carry half of a distribution's mass, or a third of a heavy-tailed sum
constexpr int kOutliers = 4; // about so many elements are far larger than the others, and at least one

MSKB_HD double uniform_at(const Fill& rule, uint64_t i, uint64_t n) {
    double value = rule.a + (rule.b - rule.a) * unit_at(rule.key, i);
    if (!(rule.outliers > 1))
        return value;
    bool drawn = unit_at(rule.key + 1, i) * static_cast<double>(n) < kOutliers - 1;
    if (!drawn && i != bits_at(rule.key + 2, 0) % n)
        return value;
    double range = fabs(rule.a) > fabs(rule.b) ? fabs(rule.a) : fabs(rule.b);
    double magnitude = (0.5 + 0.5 * unit_at(rule.key + 3, i)) * range * rule.outliers;
    return value < 0 ? -magnitude : magnitude;
}

MSKB_HD double spiked_at(const Fill& rule, uint64_t i, uint64_t n) {
    double value = rule.a + (rule.b - rule.a) * unit_at(rule.key, i);
    uint64_t draw = bits_at(rule.key + 1, i);
    if (draw % 256 != 0 && i != bits_at(rule.key + 2, 0) % n)
        return value;
    double range = fabs(rule.a) > fabs(rule.b) ? fabs(rule.a) : fabs(rule.b);
    double magnitude = (16 + 48 * unit_at(rule.key + 3, i)) * range;
    return rule.a < 0 && (draw >> 8) % 2 ? -magnitude : magnitude;
}

MSKB_HD double heavy_tailed_at(const Fill& rule, uint64_t i, uint64_t n) {
    double value = spiked_at(rule, i, n), range = fabs(rule.a) > fabs(rule.b) ? fabs(rule.a) : fabs(rule.b);
    for (int k = 0; k < kHeavy; ++k)
        if (i == bits_at(rule.key + 4, k) % n)
            value += range * static_cast<double>(n) / 16 * (0.5 + unit_at(rule.key + 5, k));
    return value;
}

MSKB_HD double distribution_at(const Fill& rule, uint64_t i, uint64_t n) {
    // Neighbours share a number u as 0.5 + u and 1.5 - u, so the sum is exact without adding anything up.
    double u = unit_at(rule.key, i / 2);
    double light = i + 1 == n && n % 2 == 1 ? 1.0 : i % 2 == 0 ? 0.5 + u : 1.5 - u;
    double value = 0.5 * light / static_cast<double>(n);
    for (int k = 0; k < kHeavy; ++k)
        if (i == bits_at(rule.key + 1, k) % n)
            value += 0.5 / kHeavy;
    return value;
}

MSKB_HD double sequence_at(const Fill& rule, uint64_t i, uint64_t n) {
    double u = unit_at(rule.key, i), length = static_cast<double>(n);
    switch (static_cast<int>(rule.a)) {
    case 1:
        return floor(5 * u) - 2;
    case 2:
        return 2 * (static_cast<double>(i) + u) / length - 1;
    case 3:
        return 1 - 2 * (static_cast<double>(i) + u) / length;
    case 4:
        return 0.5;
    case 5: {
        const double extremes[] = {0.0, INFINITY, 1e38, 2e-38, 3e4, 1.0};
        uint64_t bits = bits_at(rule.key, i) >> 3;
        return (bits % 2 ? 1 : -1) * extremes[bits / 4 % 6] * (bits / 2 % 2 ? 1.0 : 0.75);
    }
    default:
        return 2 * u - 1;
    }
}

MSKB_HD double attention_mask_at(const Fill& rule, uint64_t i) {
    uint64_t length = static_cast<uint64_t>(rule.a), column = i % length, row = i / length % length;
    if (column >= row)
        return column > row ? 1.0 : 0.0;
    return 100 * unit_at(rule.key, i) < rule.b ? 1.0 : 0.0;
}

MSKB_HD double value_at(const Fill& rule, uint64_t i, uint64_t n) {
    switch (rule.generator) {
    case Generator::kUniform:
        return uniform_at(rule, i, n);
    case Generator::kSpiked:
        return spiked_at(rule, i, n);
    case Generator::kHeavyTailed:
        return heavy_tailed_at(rule, i, n);
    case Generator::kIntegers:
        return rule.a + floor((rule.b - rule.a + 1) * unit_at(rule.key, i));
    case Generator::kDistribution:
        return distribution_at(rule, i, n);
    case Generator::kSequence:
        return sequence_at(rule, i, n);
    case Generator::kAttentionMask:
        return attention_mask_at(rule, i);
    case Generator::kOnes:
        return 100 * unit_at(rule.key, i) < rule.a ? 1.0 : 0.0;
    }
    return NAN;
}

} // namespace mskb
