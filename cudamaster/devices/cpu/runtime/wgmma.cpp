// Products of a warpgroup (wgmma). They take place when a warp waits for their group: then the factors are read from shared
// memory, and the accumulators, where they are by then, are read and written. Whoever overwrites a factor before, or reads an
// accumulator, gets what a GPU may give.
#include "observe.h"
#include "schedule.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace executor {

namespace {

using Wgmma = CudamasterCpuWgmma;

constexpr unsigned kRows = 16, kMostColumns = 256, kMostInner = 32;

// One warp's matrices as numbers: A and the sums row by row, B one row for each step of k.
struct Matrices {
    unsigned inner, columns;
    double a[kRows * kMostInner], b[kMostInner * kMostColumns], sums[kRows * kMostColumns];
};

unsigned bytes_of(int kind) {
    return kind == CUDAMASTER_CPU_TF32                                 ? 4
           : kind == CUDAMASTER_CPU_F16 || kind == CUDAMASTER_CPU_BF16 ? 2
                                                                       : 1;
}

// Products of one sum: 32 bytes of A, and of a sparse A twice what it stands for.
unsigned inner_of(const Wgmma& of) {
    return (of.sparse ? 64 : 32) / bytes_of(of.a_kind);
}

double value_of(unsigned bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Its fraction and exponent where f32 has them, whose exponents count from 112 further below. Subnormal ones, too.
double half_value(unsigned short bits) {
    double size = value_of((bits & 0x7fffu) << 13) * 0x1p112;
    size = size > 65536 ? std::nan("") : size == 65536 ? INFINITY : size;
    return bits & 0x8000 ? -size : size;
}

// To nearest, ties to even.
unsigned short half_bits(double value) {
    if (value != value)
        return 0x7fff;
    auto sign = static_cast<unsigned short>(std::signbit(value) ? 0x8000 : 0);
    double size = std::fabs(value);
    if (size >= 65520)
        return static_cast<unsigned short>(sign | 0x7c00);
    int exponent = size > 0 ? std::max(std::ilogb(size), -14) : -14;
    auto units = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));
    return static_cast<unsigned short>(sign | (((exponent + 14) << 10) + units));
}

double eight(unsigned char bits, int fraction, int bias, bool infinite) {
    int exponent = (bits & 0x7f) >> fraction, rest = bits & ((1 << fraction) - 1);
    int top = (1 << (7 - fraction)) - 1;
    double size;
    if (exponent == top && infinite)
        size = rest ? std::nan("") : INFINITY;
    else if (!infinite && (bits & 0x7f) == 0x7f)
        size = std::nan("");
    else
        size =
            std::ldexp(exponent ? rest + (1 << fraction) : rest, (exponent ? exponent : 1) - bias - fraction);
    return bits & 0x80 ? -size : size;
}

template <class Bits> Bits bits_at(const char* place) {
    Bits bits;
    std::memcpy(&bits, place, sizeof bits);
    return bits;
}

// `bytes` of a factor, side by side: their numbers.
void numbers_at(const char* place, int kind, unsigned bytes, double* numbers) {
    switch (kind) {
    case CUDAMASTER_CPU_F16:
        for (unsigned i = 0; i < bytes / 2; ++i)
            numbers[i] = half_value(bits_at<unsigned short>(place + 2 * i));
        break;
    case CUDAMASTER_CPU_BF16:
        for (unsigned i = 0; i < bytes / 2; ++i)
            numbers[i] = value_of(static_cast<unsigned>(bits_at<unsigned short>(place + 2 * i)) << 16);
        break;
    case CUDAMASTER_CPU_TF32: // the upper 19 bits are read
        for (unsigned i = 0; i < bytes / 4; ++i)
            numbers[i] = value_of(bits_at<unsigned>(place + 4 * i) & 0xffffe000u);
        break;
    default:
        for (unsigned i = 0; i < bytes; ++i) {
            auto byte = static_cast<unsigned char>(place[i]);
            numbers[i] = kind == CUDAMASTER_CPU_E4M3   ? eight(byte, 3, 7, false)
                         : kind == CUDAMASTER_CPU_E5M2 ? eight(byte, 2, 15, true)
                         : kind == CUDAMASTER_CPU_S8   ? static_cast<signed char>(byte)
                                                       : byte;
        }
    }
}

// A factor in shared memory as its descriptor tells: where it begins, its two strides, and how its bytes are swizzled.
struct Layout {
    unsigned start, leading, stride, swizzle; // bytes; swizzle 0, 32, 64 or 128

    explicit Layout(unsigned long long descriptor)
        : start(static_cast<unsigned>(descriptor & 0x3fff) << 4),
          leading(static_cast<unsigned>(descriptor >> 16 & 0x3fff) << 4),
          stride(static_cast<unsigned>(descriptor >> 32 & 0x3fff) << 4) {
        static const unsigned modes[] = {0, 128, 64, 32};
        swizzle = modes[descriptor >> 62];
        if (descriptor >> 49 & 7)
            fail_block("a matrix descriptor with a base offset, which is not executed here");
    }

    unsigned swizzled(unsigned address) const {
        unsigned mask = swizzle ? swizzle / 16 - 1 : 0;
        return address ^ ((address >> 7 & mask) << 4);
    }

    // Element `at` of the row or column `outer`, where k is what lies side by side ...
    unsigned of_k(unsigned outer, unsigned at, unsigned bytes) const {
        unsigned offset = at * bytes;
        if (!swizzle)
            return start + outer % 8 * 16 + outer / 8 * stride + offset / 16 * leading + offset % 16;
        return swizzled(start + outer % 8 * swizzle + outer / 8 * stride + offset);
    }
    // ... and where rows or columns do.
    unsigned of_outer(unsigned outer, unsigned at, unsigned bytes) const {
        unsigned offset = outer * bytes;
        if (!swizzle)
            return start + offset % 16 + offset / 16 * stride + at % 8 * 16 + at / 8 * leading;
        return swizzled(start + offset % swizzle + offset / swizzle * leading + at % 8 * swizzle +
                        at / 8 * stride);
    }
    unsigned of(unsigned outer, unsigned at, unsigned bytes, bool transposed) const {
        return transposed ? of_outer(outer, at, bytes) : of_k(outer, at, bytes);
    }
};

// Of a factor in shared memory all elements of so many rows or columns from `first` on. In any layout 16 bytes lie together.
template <class Take>
void read_pieces(const Layout& layout, bool transposed, int kind, unsigned outers, unsigned inner,
                 unsigned first, Take take) {
    unsigned bytes = bytes_of(kind), each = 16 / bytes;
    for (unsigned outer = 0; outer < outers; outer += transposed ? each : 1)
        for (unsigned at = 0; at < inner; at += transposed ? 1 : each) {
            const auto* piece =
                static_cast<const char*>(own_shared_place(layout.of(first + outer, at, bytes, transposed)));
            double values[16];
            numbers_at(piece, kind, 16, values);
            for (unsigned i = 0; i < each; ++i)
                if (transposed)
                    take(outer + i, at, values[i]);
                else
                    take(outer, at + i, values[i]);
        }
}

// Of a sparse A the two of each four that there are lie side by side. Where they belong, two bits say for each, four fours
// a half word: those of a row and, above them, of the row eight below, in one lane for the first half of k and in the next
// one for the second. The selector tells which two of the four lanes of a row say so.
void spread(Matrices& matrices, const Wgmma* const (&lanes)[kWarp]) {
    unsigned inner = matrices.inner;
    double packed[kRows * kMostInner / 2];
    std::copy(matrices.a, matrices.a + kRows * inner / 2, packed);
    std::fill(matrices.a, matrices.a + kRows * inner, 0.0);
    for (unsigned row = 0; row < kRows; ++row)
        for (unsigned four = 0; four < inner / 4; ++four) {
            const Wgmma& lane = *lanes[row % 8 * 4 + lanes[0]->selector * 2 + four / 4];
            unsigned two = lane.places >> (row / 8 * 16 + four % 4 * 4) & 15;
            if ((two & 3) >= two >> 2)
                fail_block("a sparse wgmma whose metadata has the places of four elements out of order");
            for (unsigned i = 0; i < 2; ++i)
                matrices.a[row * inner + four * 4 + (two >> 2 * i & 3)] =
                    packed[row * inner / 2 + four * 2 + i];
        }
}

void read_factors(Matrices& matrices, const Wgmma* const (&lanes)[kWarp], unsigned warp_in_group) {
    const Wgmma& one = *lanes[0];
    unsigned bytes = bytes_of(one.a_kind), inner = one.sparse ? matrices.inner / 2 : matrices.inner;
    if (one.a_in_registers) {
        unsigned each = 4 / bytes;
        for (unsigned lane = 0; lane < kWarp; ++lane)
            for (unsigned number = 0; number < 4; ++number) {
                unsigned row = lane / 4 + number % 2 * 8, at = number / 2 * 4 * each + lane % 4 * each;
                numbers_at(reinterpret_cast<const char*>(lanes[lane]->a + number), one.a_kind, 4,
                           matrices.a + row * inner + at);
            }
    } else {
        read_pieces(Layout(one.a_descriptor), one.a_transposed, one.a_kind, kRows, inner,
                    warp_in_group * kRows,
                    [&](unsigned row, unsigned at, double value) { matrices.a[row * inner + at] = value; });
    }
    if (one.sparse)
        spread(matrices, lanes);
    inner = matrices.inner;
    read_pieces(
        Layout(one.b_descriptor), one.b_transposed, one.b_kind, one.columns, inner, 0,
        [&](unsigned column, unsigned at, double value) { matrices.b[at * one.columns + column] = value; });
    double sign = (one.a_negated ? -1 : 1) * (one.b_negated ? -1 : 1);
    if (sign < 0)
        for (unsigned i = 0; i < kRows * inner; ++i)
            matrices.a[i] = -matrices.a[i];
}

template <int kKind> double accumulator(const Wgmma& of, unsigned number) {
    if constexpr (kKind == CUDAMASTER_CPU_F16) {
        unsigned word;
        std::memcpy(&word, of.d[number / 2], 4);
        return half_value(static_cast<unsigned short>(word >> number % 2 * 16));
    } else if constexpr (kKind == CUDAMASTER_CPU_S32) {
        return *static_cast<const int*>(of.d[number]);
    } else {
        return *static_cast<const float*>(of.d[number]);
    }
}

template <int kKind> void set_accumulator(const Wgmma& of, unsigned number, double sum) {
    if constexpr (kKind == CUDAMASTER_CPU_F16) {
        unsigned short half = half_bits(sum);
        std::memcpy(static_cast<char*>(of.d[number / 2]) + number % 2 * 2, &half, 2);
    } else if constexpr (kKind == CUDAMASTER_CPU_S32) {
        long long whole = static_cast<long long>(sum);
        if (of.saturates)
            whole = whole < -2147483648ll ? -2147483648ll : whole > 2147483647ll ? 2147483647ll : whole;
        *static_cast<int*>(of.d[number]) = static_cast<int>(whole);
    } else {
        *static_cast<float*>(of.d[number]) = sum != sum ? __builtin_nanf("") : static_cast<float>(sum);
    }
}

// Two columns of a row are a lane's, with numbers one after another.
template <class Act> void each_sum(Matrices& matrices, const Wgmma* const (&lanes)[kWarp], Act act) {
    double* sum = matrices.sums;
    for (unsigned row = 0; row < kRows; ++row)
        for (unsigned number = row / 8 * 2; number < matrices.columns / 2; number += 4)
            for (unsigned lane = 0; lane < 4; ++lane, sum += 2) {
                act(*lanes[row % 8 * 4 + lane], number, sum[0]);
                act(*lanes[row % 8 * 4 + lane], number + 1, sum[1]);
            }
}

template <int kKind> void add_product(Matrices& matrices, const Wgmma* const (&lanes)[kWarp]) {
    const Wgmma& one = *lanes[0];
    each_sum(matrices, lanes, [](const Wgmma& lane, unsigned number, double& sum) {
        sum = lane.scale_d ? accumulator<kKind>(lane, number) : 0.0;
    });
    CudamasterCpuProduct product{kRows, matrices.columns, matrices.inner, one.d_kind, one.a_kind, one.b_kind};
    cudamaster_cpu_product(&product, matrices.sums, matrices.a, matrices.b);
    each_sum(matrices, lanes, [](const Wgmma& lane, unsigned number, double& sum) {
        set_accumulator<kKind>(lane, number, sum);
    });
}

void multiply(const Wgmma* const (&lanes)[kWarp], unsigned warp_in_group) {
    const Wgmma& one = *lanes[0];
    for (const Wgmma* lane : lanes)
        if (lane->b_descriptor != one.b_descriptor || lane->columns != one.columns ||
            lane->b_kind != one.b_kind || (!one.a_in_registers && lane->a_descriptor != one.a_descriptor) ||
            lane->scale_d != one.scale_d || lane->sparse != one.sparse || lane->selector != one.selector)
            fail_block("lanes of a warp give different operands to one wgmma");
    if (one.sparse && one.selector > 1)
        fail_block("a sparse wgmma whose selector is neither 0 nor 1");
    if (!cudamaster_cpu_wants_product(1ull * kRows * one.columns * inner_of(one)))
        return;
    // Not thread-local, where a kernel's static shared variables are.
    std::unique_ptr<Matrices> made(new Matrices);
    Matrices& matrices = *made;
    matrices.inner = inner_of(one);
    matrices.columns = one.columns;
    read_factors(matrices, lanes, warp_in_group);
    switch (one.d_kind) {
    case CUDAMASTER_CPU_F16:
        return add_product<CUDAMASTER_CPU_F16>(matrices, lanes);
    case CUDAMASTER_CPU_S32:
        return add_product<CUDAMASTER_CPU_S32>(matrices, lanes);
    default:
        return add_product<CUDAMASTER_CPU_F32>(matrices, lanes);
    }
}

WgmmaGroups& groups_of(Worker& self, unsigned thread) {
    if (self.wgmmas.empty())
        self.wgmmas.resize(kMaxThreads);
    return self.wgmmas[thread];
}

Accumulators& accumulators_of(WgmmaGroups& groups, const Wgmma& product) {
    for (Accumulators& one : groups.accumulators)
        if (one.first == product.d[0])
            return one;
    groups.accumulators.emplace_back();
    groups.accumulators.back().first = product.d[0];
    return groups.accumulators.back();
}
bool unchanged(const Accumulators& accumulators, const Wgmma& product) {
    for (unsigned i = 0; i < product.count; ++i)
        if (std::memcmp(&accumulators.bits[i], product.d[i], 4))
            return false;
    return true;
}
void remember(Accumulators& accumulators, const Wgmma& product) {
    accumulators.bits.resize(product.count);
    for (unsigned i = 0; i < product.count; ++i)
        std::memcpy(&accumulators.bits[i], product.d[i], 4);
}

// Between a product and the next one on the same registers nobody else may write them without a fence behind that. What
// does not count, for the product overwrites it, may be anything.
void take_accumulators(WgmmaGroups& groups, const Wgmma& product) {
    Accumulators& own = accumulators_of(groups, product);
    if (own.in_flight++)
        return;
    if (product.scale_d && own.bits.size() == product.count && own.fences == groups.fences &&
        !unchanged(own, product))
        fail_block("accumulators that were changed behind a product and without wgmma.fence since");
    remember(own, product);
}

bool operator==(const Warpgroup::Product& a, const Warpgroup::Product& b) {
    return a.a_descriptor == b.a_descriptor && a.b_descriptor == b.b_descriptor && a.columns == b.columns &&
           a.a_kind == b.a_kind && a.scale_d == b.scale_d;
}

// A warp's next product, which is that of its whole warpgroup.
void hold_to_warpgroup(Worker& self, unsigned warp, const Wgmma& of) {
    self.warpgroups.resize(kMaxThreads / kWarp / Warpgroup::kWarps);
    Warpgroup& group = self.warpgroups[warp / Warpgroup::kWarps];
    Warpgroup::Product product{of.a_descriptor, of.b_descriptor, of.columns, of.a_kind, of.scale_d};
    size_t number = group.made[warp % Warpgroup::kWarps]++ - group.first;
    if (number == group.products.size())
        group.products.push_back(product);
    else if (!(group.products[number] == product))
        fail_block("warps of a warpgroup give different operands to one wgmma");
    for (; *std::min_element(group.made, group.made + Warpgroup::kWarps) > group.first; ++group.first)
        group.products.pop_front();
}

// The last lane of a warp has come to the wait: all products that it is for, in their order.
void run_groups(CudamasterCpuExchange* all) {
    Worker& self = *worker;
    if (all->arrived != ~0u)
        fail_block("wgmma.wait_group without all lanes of its warp");
    unsigned warp = self.linear / kWarp, count = static_cast<unsigned>(all->values[0]);
    for (unsigned lane = 0; lane < kWarp; ++lane)
        if (all->values[lane] != count)
            fail_block("lanes of a warp have made different numbers of wgmma");
    const bool wanted = observe::wants_products(); // and with them what becomes of accumulators
    for (unsigned i = 0; i < count; ++i) {
        const Wgmma* lanes[kWarp];
        Accumulators* accumulators[kWarp];
        for (unsigned lane = 0; lane < kWarp; ++lane) {
            WgmmaGroups& groups = self.wgmmas[warp * kWarp + lane];
            lanes[lane] = &groups.pending[i];
            if (!wanted)
                continue;
            accumulators[lane] = &accumulators_of(groups, *lanes[lane]);
            if (lanes[lane]->scale_d && accumulators[lane]->bits.size() == lanes[lane]->count &&
                !unchanged(*accumulators[lane], *lanes[lane]))
                fail_block("accumulators that were changed before their wgmma was waited for");
        }
        hold_to_warpgroup(self, warp, *lanes[0]);
        multiply(lanes, warp % Warpgroup::kWarps);
        for (unsigned lane = 0; wanted && lane < kWarp; ++lane) {
            remember(*accumulators[lane], *lanes[lane]);
            accumulators[lane]->fences = self.wgmmas[warp * kWarp + lane].fences;
            --accumulators[lane]->in_flight;
        }
    }
    observe::products_end(self, warp, count);
}

// 16 bytes of each factor at a time, for an observer; rows of A are those of the warp.
template <class Each> void each_piece(const Wgmma& of, unsigned warp_in_group, Each each) {
    unsigned bytes = bytes_of(of.a_kind), inner = inner_of(of), pack = 16 / bytes;
    auto factor = [&](unsigned long long descriptor, unsigned first, unsigned count, unsigned inner,
                      bool transposed) {
        Layout layout(descriptor);
        unsigned outer_step = transposed ? pack : 1, inner_step = transposed ? 1 : pack;
        for (unsigned outer = first; outer < first + count; outer += outer_step)
            for (unsigned at = 0; at < inner; at += inner_step)
                each(static_cast<const char*>(own_shared_place(layout.of(outer, at, bytes, transposed))));
    };
    if (!of.a_in_registers)
        factor(of.a_descriptor, warp_in_group * kRows, kRows, 32 / bytes, of.a_transposed);
    factor(of.b_descriptor, 0, of.columns, inner, of.b_transposed);
}

} // namespace

bool has_open_products(const Worker& self, unsigned thread) {
    return !self.wgmmas.empty() && !self.wgmmas[thread].pending.empty();
}

bool lacks_products(const Worker& self, unsigned thread) {
    return !self.warpgroups.empty() && !self.warpgroups[thread / kWarp / Warpgroup::kWarps].products.empty();
}

void end_wgmmas(Worker& self) {
    self.warpgroups.clear();
    for (WgmmaGroups& groups : self.wgmmas)
        groups = {};
}

} // namespace executor

using namespace executor;

void cudamaster_cpu_wgmma_fence() {
    Worker& self = *worker;
    ++groups_of(self, self.linear).fences;
}

void cudamaster_cpu_wgmma(const CudamasterCpuWgmma* product) {
    Worker& self = *worker;
    WgmmaGroups& groups = groups_of(self, self.linear);
    if (!groups.fences)
        fail_block("wgmma.mma_async before any wgmma.fence");
    const bool wanted = observe::wants_products();
    if (wanted)
        take_accumulators(groups, *product);
    groups.pending.push(*product, wanted);
    if (observe::wants_pieces() && self.linear % kWarp == 0)
        each_piece(*product, self.linear / kWarp % 4,
                   [&](const char* piece) { observe::piece_starts(self, piece, 16, product->site); });
    observe::product_starts(self, *product);
}

void cudamaster_cpu_wgmma_commit() {
    Worker& self = *worker;
    WgmmaGroups& groups = groups_of(self, self.linear);
    groups.ends.push_back(groups.pending.size());
}

void cudamaster_cpu_wgmma_wait(unsigned groups_left) {
    Worker& self = *worker;
    WgmmaGroups& groups = groups_of(self, self.linear);
    size_t done = groups.ends.size() > groups_left ? groups.ends.size() - groups_left : 0;
    size_t count = done ? groups.ends[done - 1] : 0;
    --cudamaster_cpu_warp(~0u, CUDAMASTER_CPU_CONVERGES, count, run_groups)->unread;
    if (observe::wants_pieces() && self.linear % kWarp == 0)
        for (size_t i = 0; i < count; ++i)
            each_piece(groups.pending[i], self.linear / kWarp % 4,
                       [&](const char* piece) { observe::piece_lands(self, piece, 16); });
    groups.pending.pop(count);
    groups.ends.erase(groups.ends.begin(), groups.ends.begin() + static_cast<long>(done));
    for (size_t& end : groups.ends)
        end -= count;
}
