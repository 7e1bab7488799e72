// How tensor cores add up products, for mma.h, mma.sync and wgmma alike.
//
// The rule was found from what an H200 makes of random tiles (docs/ptx.md, tests/cpu_device/h200_ptx.npz), where it gives all
// bits of mma.sync: products are exact; they and the sum so far are aligned to the greatest exponent among them, which of a
// product is the sum of its factors' exponents; what lies 25 binary places or more below its unit is cut off of each;
// what is left is added without error, and cut off to f32, or rounded to nearest for f16. All of k at once.
//
// wgmma of 8 bits has 13 places instead and cuts its sums off to as many: so say published models of Hopper (MMA-Sim,
// arXiv 2511.10909); no GPU was asked here. What becomes of f32 that overflows is not known either: infinity here.
#include "observe.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace executor {
namespace products {

namespace {

using Shape = CudamasterCpuProduct;

// The exponent of zero, one below that of any product, and the largest shape of floating point.
constexpr int kNone = -100000, kLeast = -400;
constexpr unsigned kMostInner = 32, kMostColumns = 256, kTogether = 4;

bool of_eight_bits(int kind) {
    return kind == CUDAMASTER_CPU_E4M3 || kind == CUDAMASTER_CPU_E5M2;
}
bool whole(int kind) {
    return kind == CUDAMASTER_CPU_S32 || kind == CUDAMASTER_CPU_S8 || kind == CUDAMASTER_CPU_U8;
}

// Of subnormal numbers the exponent is that of the smallest normal one.
int least_exponent(int kind) {
    return kind == CUDAMASTER_CPU_E4M3                                 ? -6
           : kind == CUDAMASTER_CPU_F16 || kind == CUDAMASTER_CPU_E5M2 ? -14
                                                                       : -126;
}
int exponent(double value, int least) {
    unsigned long long bits;
    std::memcpy(&bits, &value, sizeof bits);
    return value == 0 ? kNone : std::max(static_cast<int>(bits >> 52 & 0x7ff) - 1023, least);
}
double power_of_two(int exponent) {
    unsigned long long bits = static_cast<unsigned long long>(exponent + 1023) << 52;
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Toward zero, to the 23 places of f32 or so many fewer.
double cut_off(double value, int places_less) {
    auto single = static_cast<float>(value);
    if (!std::isfinite(single))
        return single;
    unsigned bits;
    std::memcpy(&bits, &single, sizeof bits);
    if (std::fabs(static_cast<double>(single)) > std::fabs(value))
        --bits;
    bits &= ~0u << places_less;
    std::memcpy(&single, &bits, sizeof single);
    return single;
}

// To nearest, ties to even.
double to_half(double value) {
    double size = std::fabs(value);
    if (!(size < 65520))
        return value != value ? value : std::copysign(INFINITY, value);
    double unit = power_of_two(std::max(exponent(size, -14), -14) - 10);
    return std::nearbyint(value / unit) * unit;
}

// In double: whole numbers, and where infinities and NaN take part.
void add_plainly(const Shape& shape, double* sums, const double* a, const double* b) {
    for (unsigned i = 0; i < shape.inner; ++i)
        for (unsigned column = 0; column < shape.columns; ++column)
            sums[column] += a[i] * b[i * shape.columns + column];
}

bool finite(const double* values, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i)
        sum += values[i] * 0;
    return sum == 0;
}

// `kTogether` numbers at once, wherever they lie.
typedef double Doubles
    __attribute__((vector_size(kTogether * sizeof(double)), aligned(alignof(double)), may_alias));
typedef int Ints __attribute__((vector_size(kTogether * sizeof(int)), aligned(alignof(int)), may_alias));

// `kRows` rows and twice `kTogether` columns, whose sums stay in registers.
template <unsigned kRows> void add_tile(const Shape& shape, double* sums, const double* a, const double* b) {
    const unsigned inner = shape.inner, columns = shape.columns;
    Doubles left[kRows], right[kRows];
    for (unsigned row = 0; row < kRows; ++row) {
        left[row] = *reinterpret_cast<const Doubles*>(sums + row * columns);
        right[row] = *reinterpret_cast<const Doubles*>(sums + row * columns + kTogether);
    }
    for (unsigned i = 0; i < inner; ++i, b += columns) {
        const Doubles of_left = *reinterpret_cast<const Doubles*>(b),
                      of_right = *reinterpret_cast<const Doubles*>(b + kTogether);
        for (unsigned row = 0; row < kRows; ++row) {
            left[row] += a[row * inner + i] * of_left;
            right[row] += a[row * inner + i] * of_right;
        }
    }
    for (unsigned row = 0; row < kRows; ++row) {
        *reinterpret_cast<Doubles*>(sums + row * columns) = left[row];
        *reinterpret_cast<Doubles*>(sums + row * columns + kTogether) = right[row];
    }
}

// Right to the bits that the sums have, not as tensor cores cut them off.
void add_to_f32(const Shape& shape, double* sums, const double* a, const double* b) {
    constexpr unsigned kRows = 4, kColumns = 2 * kTogether;
    const unsigned columns = shape.columns, count = shape.rows * columns;
    if (columns % kColumns == 0 && shape.rows % kRows == 0) {
        for (unsigned row = 0; row < shape.rows; row += kRows)
            for (unsigned column = 0; column < columns; column += kColumns)
                add_tile<kRows>(shape, sums + row * columns + column, a + row * shape.inner, b + column);
    } else {
        for (unsigned row = 0; row < shape.rows; ++row)
            add_plainly(shape, sums + row * columns, a + row * shape.inner, b);
    }
    if (shape.d_kind == CUDAMASTER_CPU_F16)
        std::transform(sums, sums + count, sums, to_half);
    else
        for (unsigned i = 0; i < count; ++i)
            sums[i] = static_cast<float>(sums[i]);
}

Ints larger(Ints a, Ints b) {
    Ints greater = a > b;
    return (a & greater) | (b & ~greater);
}
// Toward zero. Addends are less than 2^27 in size, so that a whole number has room for them.
void drop_fractions(Doubles& values) {
    values = __builtin_convertvector(__builtin_convertvector(values, Ints), Doubles);
}

// `kTogether` columns of one row.
void add_aligned(const Shape& shape, double* sums, const double* a, const int* a_exponents, const double* b,
                 const int* b_exponents, int places) {
    Ints tops{};
    for (unsigned c = 0; c < kTogether; ++c)
        tops[c] = std::max(kLeast, exponent(sums[c], least_exponent(shape.d_kind)));
    for (unsigned i = 0; i < shape.inner; ++i)
        tops = larger(tops, a_exponents[i] + *reinterpret_cast<const Ints*>(b_exponents + i * shape.columns));
    Doubles up{}, down{};
    for (unsigned c = 0; c < kTogether; ++c) {
        up[c] = power_of_two(places - tops[c]);
        down[c] = power_of_two(tops[c] - places);
    }
    Doubles& sum = *reinterpret_cast<Doubles*>(sums);
    Doubles total = sum * up;
    drop_fractions(total);
    for (unsigned i = 0; i < shape.inner; ++i) {
        Doubles product = a[i] * *reinterpret_cast<const Doubles*>(b + i * shape.columns) * up;
        drop_fractions(product);
        total += product;
    }
    sum = total * down;
}
void add_row(const Shape& shape, double* sums, const double* a, const double* b, const int* b_exponents) {
    bool eight = of_eight_bits(shape.a_kind);
    int a_exponents[kMostInner];
    for (unsigned i = 0; i < shape.inner; ++i)
        a_exponents[i] = exponent(a[i], least_exponent(shape.a_kind));
    for (unsigned c = 0; c < shape.columns; c += kTogether)
        add_aligned(shape, sums + c, a, a_exponents, b + c, b_exponents + c, eight ? 13 : 25);
    for (unsigned c = 0; c < shape.columns; ++c)
        sums[c] = shape.d_kind == CUDAMASTER_CPU_F16 ? to_half(sums[c]) : cut_off(sums[c], eight ? 10 : 0);
}

} // namespace

} // namespace products
} // namespace executor

int cudamaster_cpu_wants_product(unsigned long long multiplications) {
    executor::observe::multiplies(multiplications);
    return executor::observe::wants_products();
}

void cudamaster_cpu_product(const CudamasterCpuProduct* product, double* sums, const double* a,
                            const double* b) {
    using namespace executor::products;
    const CudamasterCpuProduct& shape = *product;
    if (whole(shape.a_kind)) {
        for (unsigned row = 0; row < shape.rows; ++row)
            add_plainly(shape, sums + row * shape.columns, a + row * shape.inner, b);
        return;
    }
    if (shape.inner > kMostInner || shape.columns > kMostColumns || shape.columns % kTogether)
        executor::fail_block("a product of a shape that tensor cores do not have");
    if (!executor::observe::wants_all_bits()) {
        add_to_f32(shape, sums, a, b);
        return;
    }
    static thread_local double clean[kMostInner * kMostColumns];
    static thread_local int b_exponents[kMostInner * kMostColumns];
    unsigned count = shape.inner * shape.columns;
    bool b_finite = finite(b, count);
    for (unsigned i = 0; i < count; ++i) {
        clean[i] = b_finite || std::isfinite(b[i]) ? b[i] : 0;
        b_exponents[i] = exponent(clean[i], least_exponent(shape.b_kind));
    }
    for (unsigned row = 0; row < shape.rows; ++row, sums += shape.columns, a += shape.inner) {
        double special[kMostColumns];
        bool a_finite = finite(a, shape.inner);
        bool all_finite = a_finite && b_finite && finite(sums, shape.columns);
        if (!all_finite) {
            std::copy_n(sums, shape.columns, special);
            add_plainly(shape, special, a, b);
            std::replace_if(sums, sums + shape.columns, [](double sum) { return !std::isfinite(sum); }, 0);
        }
        if (a_finite)
            add_row(shape, sums, a, clean, b_exponents);
        for (unsigned c = 0; c < shape.columns && !all_finite; ++c)
            if (!a_finite || !std::isfinite(special[c]))
                sums[c] = special[c];
    }
}
