// What the harness does on the device beside calling wrappers: filling inputs, comparing outputs. So an output of
// gigabytes stays where it is. The kernels are in driver.cu.
#pragma once
#include <cstdint>
#include <vector>
#include "mskb/buffers.h"

namespace mskb {

enum class Generator { kUniform, kSpiked, kHeavyTailed, kIntegers, kDistribution, kSequence, kAttentionMask };

// A buffer whose elements do not depend on each other: element i is a function of these and of i.
struct Fill {
    Generator generator;
    uint64_t key; // of the random numbers
    double a, b;  // the generator's arguments
};

// Elements of an output that are further from the baseline's than both bounds allow.
struct Difference {
    static constexpr int kKept = 5;
    unsigned long long count, first, last;
    unsigned long long kept[kKept]; // indices of some of them
};

void fill(const DeviceBuffer& data, const BufferSpec& spec, const Fill& rule);
bool differs(const DeviceBuffer& data, const BufferSpec& spec, const Fill& rule);
bool differs(const DeviceBuffer& data, const DeviceBuffer& other);

// Elements `wanted` of a buffer as numbers, on the host.
std::vector<double> gather(const void* data, const BufferSpec& spec, const std::vector<size_t>& wanted);

// Holds every element of `got` against `other`: |got - other| <= slack + ulps * ulp(other).
Difference compare_on_device(const void* got, const void* other, const BufferSpec& spec, double slack,
                             double ulps);

// The least that a call can be: one launch of a kernel that does nothing.
void empty_launch();

} // namespace mskb
