// What the judge does on the device: filling and masking inputs, sealing and comparing outputs. So an output of gigabytes
// stays where it is. The kernels are in judge.cu.
#pragma once
#include <cstdint>
#include <vector>
#include "mskb/buffers.h"
#include "mskb/mask.h"
#include "mskb/task.h"

namespace mskb {

enum class Generator {
    kUniform,
    kSpiked,
    kHeavyTailed,
    kIntegers,
    kDistribution,
    kSequence,
    kAttentionMask,
    kOnes
};

// A buffer whose elements do not depend on each other: element i is a function of these and of i.
struct Fill {
    Generator generator;
    uint64_t key;        // of the random numbers
    double a, b;         // the generator's arguments
    double outliers = 1; // some elements of a uniform buffer are so many times larger; 1 where none are
};

// How far an element may be from the baseline's: a slack for values of about the baseline's size, and its rounding.
struct Tolerance {
    static constexpr int kLeast = -128, kBins = 256; // binary exponents of values
    double slack[kBins];
    bool rounds;

    MSKB_HD static int bin(double value) {
        int exponent = exponent_of(value);
        if (exponent < kLeast || !(value == value))
            return 0;
        return exponent >= kLeast + kBins ? kBins - 1 : exponent - kLeast;
    }
    MSKB_HD double at(double value, Kind kind) const {
        return slack[bin(value)] + (rounds ? rounding(kind, value) : 0);
    }
};

// Elements of an output that are further from the baseline's.
struct Difference {
    static constexpr int kKept = 64;
    unsigned long long count;
    unsigned long long kept[kKept]; // indices of some of them, in no order
};

void fill(void* data, const BufferSpec& spec, const Fill& rule);
void mask(void* data, size_t bytes, const MaskKey& key, uint32_t buffer);
void seal(const unsigned char* data, size_t bytes, uint64_t key, uint64_t more, unsigned long long* sum);
bool differs(const void* data, const BufferSpec& spec, const Fill& rule);
bool differs(const void* data, const void* other, size_t bytes);

// Elements `wanted` of a buffer as numbers, on the host.
std::vector<double> gather(const void* data, const BufferSpec& spec, const std::vector<size_t>& wanted);

// Holds every element of `got` against `other`. NaN differs from everything.
Difference compare_on_device(const void* got, const void* other, const BufferSpec& spec,
                             const Tolerance& tolerance);

// The same of many outputs, whose numbers of such elements are read all at once.
class Differences {
  public:
    explicit Differences(size_t most);
    // Adds an output to number `which`.
    void add(size_t which, const void* got, const void* other, const BufferSpec& spec,
             const Tolerance& tolerance);
    std::vector<bool> any() const; // of each number

  private:
    ReusedBuffer found_;
};

// The largest difference of an element of `got` from that of `other`. NaN differs infinitely from all but NaN.
double largest_difference(const void* got, const void* other, const BufferSpec& spec);

// The root of the mean square of an output's elements, of those that are finite.
double root_mean_square(const void* data, const BufferSpec& spec);

// What is wrong with the elements begin .. begin + count - 1 of `got` by the same comparison.
std::vector<Flaw> flaws(const void* got, const void* other, const BufferSpec& spec,
                        const Tolerance& tolerance, size_t begin, size_t count);

} // namespace mskb
