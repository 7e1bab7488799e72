// Matrices that are spread over a warp: ldmatrix, stmatrix, movmatrix and mma.sync. Whichever lane comes last does what
// concerns all of them. As in mma.h the lanes come together without an order of what they read and wrote.
#pragma once

#include "cudamaster_cpu/observed.h"
#include "cudamaster_cpu/ptx/convert.h"
#include "cudamaster_cpu/ptx/memory.h"

namespace cudamaster_cpu {
namespace ptx {

constexpr B32 kWholeWarp = 0xffffffffu;

// Up to four matrices of 8 x 8 elements of 16 bits: of each a lane has two neighbours in row lane / 4.
struct Tiles {
    B32 words[4];
    int count;
};

CUDAMASTER_CPU_UNSEEN inline void transpose_tiles(CudamasterCpuExchange* all) {
    auto tiles = [all](int lane) CUDAMASTER_CPU_PART { return reinterpret_cast<Tiles*>(all->values[lane]); };
    for (int tile = 0; tile < tiles(0)->count; ++tile) {
        B16 elements[8][8];
        for (int lane = 0; lane < 32; ++lane)
            for (int i = 0; i < 2; ++i)
                elements[lane / 4][2 * (lane % 4) + i] = static_cast<B16>(tiles(lane)->words[tile] >> 16 * i);
        for (int lane = 0; lane < 32; ++lane)
            tiles(lane)->words[tile] = elements[2 * (lane % 4)][lane / 4] |
                                       static_cast<B32>(elements[2 * (lane % 4) + 1][lane / 4]) << 16;
    }
}
CUDAMASTER_CPU_ONE inline void meet_for(Tiles* tiles, bool transposed) {
    vote(kWholeWarp, CUDAMASTER_CPU_CONVERGES, reinterpret_cast<B64>(tiles),
         transposed ? transpose_tiles : nullptr);
}

template <class... Tags> constexpr int tiles_of = has<t_x4, Tags...> ? 4 : has<t_x2, Tags...> ? 2 : 1;

// Lanes 8i to 8i + 7 have the addresses of the rows of matrix i: where the running lane's words are.
struct Rows {
    B64 of[4];
};
template <class... Tags> CUDAMASTER_CPU_ONE Rows rows_of(B64 address) {
    CudamasterCpuExchange* all = exchange(kWholeWarp, CUDAMASTER_CPU_CONVERGES, address);
    Rows rows;
    for (int tile = 0; tile < tiles_of<Tags...>; ++tile)
        rows.of[tile] = all->values[8 * tile + cudamaster_cpu_lane() / 4];
    --all->unread;
    for (int tile = 0; tile < tiles_of<Tags...>; ++tile)
        if (rows.of[tile] % 16)
            cudamaster_cpu_fail("a row of a matrix at an address that is no multiple of 16");
    return rows;
}
template <class... Tags> CUDAMASTER_CPU_PART inline B32* word_of(const Rows& rows, int tile) {
    return reinterpret_cast<B32*>(place<t_shared>(rows.of[tile])) + cudamaster_cpu_lane() % 4;
}

template <class... Tags> CUDAMASTER_CPU_PART inline Tiles loaded_tiles(B64 address) {
    Rows rows = rows_of<Tags...>(address);
    Tiles tiles{{}, tiles_of<Tags...>};
    for (int tile = 0; tile < tiles_of<Tags...>; ++tile)
        tiles.words[tile] = *word_of<Tags...>(rows, tile);
    // Nobody goes on, and writes there, before all have read.
    meet_for(&tiles, has<t_trans, Tags...>);
    return tiles;
}
template <class... Tags> CUDAMASTER_CPU_PART inline B32 ldmatrix(B64 address) {
    return loaded_tiles<Tags...>(address).words[0];
}
template <class... Tags, class... Targets>
CUDAMASTER_CPU_PART inline auto ldmatrix(B64 address, Targets&&... targets)
    -> std::enable_if_t<(sizeof...(Targets) > 1)> {
    Tiles tiles = loaded_tiles<Tags...>(address);
    int i = 0;
    ((targets = tiles.words[i++]), ...);
}
template <class... Tags, class... Words>
CUDAMASTER_CPU_PART inline void stmatrix(B64 address, Words... words) {
    Rows rows = rows_of<Tags...>(address);
    Tiles tiles{{words...}, tiles_of<Tags...>};
    meet_for(&tiles, has<t_trans, Tags...>);
    for (int tile = 0; tile < tiles_of<Tags...>; ++tile)
        *word_of<Tags...>(rows, tile) = tiles.words[tile];
}
template <class... Tags> inline B32 movmatrix(B32 word) {
    Tiles tiles{{word}, 1};
    meet_for(&tiles, true);
    return tiles.words[0];
}

// Elements of factors: how many bits, and their values.
template <class Tag> struct Element {
    static constexpr int bits = Typed<Tag>::width;
    static constexpr bool integer = Typed<Tag>::integer;
    CUDAMASTER_CPU_PART static double value(B64 raw) {
        using T = Typed<Tag>;
        if constexpr (T::narrow)
            return narrow_float<typename T::Value>(static_cast<B16>(raw));
        else if constexpr (std::is_same<Tag, t_tf32>::value) // the upper 19 bits are read
            return bit_cast<float>(static_cast<B32>(raw) & 0xffffe000u);
        else if constexpr (T::integer)
            return static_cast<double>(static_cast<typename T::Value>(raw));
        else
            return bit_cast<typename T::Value>(static_cast<typename T::Bits>(raw));
    }
};
template <bool e4m3> struct Eight {
    static constexpr int bits = 8;
    static constexpr bool integer = false;
    CUDAMASTER_CPU_PART static double value(B64 raw) {
        return half_value(eight_to_half<e4m3>(static_cast<B8>(raw)));
    }
};
template <> struct Element<t_e4m3> : Eight<true> {};
template <> struct Element<t_e5m2> : Eight<false> {};
template <bool is_signed> struct Four {
    static constexpr int bits = 4;
    static constexpr bool integer = true;
    CUDAMASTER_CPU_PART static double value(B64 raw) {
        int number = static_cast<int>(raw & 15);
        return is_signed && number > 7 ? number - 16 : number;
    }
};
template <> struct Element<t_s4> : Four<true> {};
template <> struct Element<t_u4> : Four<false> {};
template <> struct Element<t_b1> {
    static constexpr int bits = 1;
    static constexpr bool integer = true;
    CUDAMASTER_CPU_PART static double value(B64 raw) { return static_cast<double>(raw & 1); }
};

template <class Tag> struct ShapeOf {
    static constexpr int m = 0, n = 0, k = 0;
};
#define CUDAMASTER_CPU_SHAPE(m_, n_, k_)                                                                     \
    template <> struct ShapeOf<t_m##m_##n##n_##k##k_> {                                                      \
        static constexpr int m = m_, n = n_, k = k_;                                                         \
    };
CUDAMASTER_CPU_SHAPE(8, 8, 4)
CUDAMASTER_CPU_SHAPE(8, 8, 16)
CUDAMASTER_CPU_SHAPE(8, 8, 32)
CUDAMASTER_CPU_SHAPE(8, 8, 128)
CUDAMASTER_CPU_SHAPE(16, 8, 4)
CUDAMASTER_CPU_SHAPE(16, 8, 8)
CUDAMASTER_CPU_SHAPE(16, 8, 16)
CUDAMASTER_CPU_SHAPE(16, 8, 32)
CUDAMASTER_CPU_SHAPE(16, 8, 64)
CUDAMASTER_CPU_SHAPE(16, 8, 128)
CUDAMASTER_CPU_SHAPE(16, 8, 256)
#undef CUDAMASTER_CPU_SHAPE

// Types of d, a, b and c among the tags.
template <class Tag>
constexpr bool is_element =
    Typed<Tag>::is || std::is_same<Tag, t_e4m3>::value || std::is_same<Tag, t_e5m2>::value ||
    std::is_same<Tag, t_s4>::value || std::is_same<Tag, t_u4>::value || std::is_same<Tag, t_b1>::value;
template <int number, class... Tags> struct ElementAt;
template <int number, class Tag, class... More> struct ElementAt<number, Tag, More...> {
    static constexpr auto find() {
        if constexpr (!is_element<Tag>)
            return typename ElementAt<number, More...>::type{};
        else if constexpr (number > 0)
            return typename ElementAt<number - 1, More...>::type{};
        else
            return Tag{};
    }
    using type = decltype(find());
};

// How the executor names types. Four bits and one are whole numbers like any other, 8 bits are made f16 first.
template <class Tag> constexpr int product_kind() {
    return std::is_same<Tag, t_f16>::value    ? CUDAMASTER_CPU_F16
           : std::is_same<Tag, t_bf16>::value ? CUDAMASTER_CPU_BF16
           : std::is_same<Tag, t_tf32>::value ? CUDAMASTER_CPU_TF32
           : std::is_same<Tag, t_f32>::value  ? CUDAMASTER_CPU_F32
           : Element<Tag>::integer            ? CUDAMASTER_CPU_S32
                                              : CUDAMASTER_CPU_F16;
}

// A product of the warp: the registers of one lane, and what becomes of all of them.
template <class Shape, class D, class A, class B, class C, bool is_and, bool is_xor, bool saturates>
struct Product {
    static constexpr int m = ShapeOf<Shape>::m, n = ShapeOf<Shape>::n, k = ShapeOf<Shape>::k;
    static constexpr bool is_double = std::is_same<A, t_f64>::value;
    static constexpr int word = is_double ? 64 : 32, per_word = word / Element<A>::bits;
    static constexpr int a_words = m * k / 32 / per_word, b_words = k * n / 32 / per_word;
    template <class T>
    static constexpr int sum_words = std::is_same<T, t_f16>::value ? m * n / 64 : m * n / 32;
    static constexpr int words = a_words + b_words + sum_words<C>;
    B64 in[words];
    B64 out[sum_words<D>];

    // Which lane has an element of an accumulator, and as its how manieth.
    CUDAMASTER_CPU_PART static constexpr int lane_of_sum(int row, int column) {
        return row % 8 * 4 + column / 2;
    }
    CUDAMASTER_CPU_PART static constexpr int number_of_sum(int row, int column) {
        return row / 8 * 2 + column % 2;
    }

    template <class T> CUDAMASTER_CPU_PART static B64 sum_bits(const B64* words_of_lane, int number) {
        return std::is_same<T, t_f16>::value ? words_of_lane[number / 2] >> 16 * (number % 2) & 0xffff
                                             : words_of_lane[number];
    }

    CUDAMASTER_CPU_PART static B64 bits_of(double sum) {
        if constexpr (std::is_same<D, t_f32>::value)
            return finished<>(static_cast<float>(sum));
        else if constexpr (std::is_same<D, t_f16>::value)
            return narrow_of<Half>(sum);
        else if constexpr (is_double)
            return bit_cast<B64>(sum);
        else if constexpr (saturates)
            return static_cast<B32>(clamped<int>(static_cast<long long>(sum)));
        else
            return static_cast<B32>(static_cast<long long>(sum));
    }

    CUDAMASTER_CPU_UNSEEN static void multiply(CudamasterCpuExchange* all) {
        if (all->arrived != kWholeWarp)
            cudamaster_cpu_fail("mma.sync without all lanes of its warp");
        if (!cudamaster_cpu_wants_product(1ull * m * n * k))
            return;
        auto part = [all](int lane)
                        CUDAMASTER_CPU_PART { return reinterpret_cast<Product*>(all->values[lane]); };
        double a[m][k], b[k][n], sums[m][n];
        for (int lane = 0; lane < 32; ++lane) {
            const B64* words_of_lane = part(lane)->in;
            for (int i = 0; i < a_words * per_word; ++i) {
                int of = i / per_word,
                    inner = of / (m / 8) * 4 * per_word + lane % 4 * per_word + i % per_word;
                B64 raw = words_of_lane[of] >> Element<A>::bits * (i % per_word) % 64;
                a[lane / 4 + of % (m / 8) * 8][inner] = Element<A>::value(raw);
            }
            for (int i = 0; i < b_words * per_word; ++i) {
                int of = i / per_word, inner = of * 4 * per_word + lane % 4 * per_word + i % per_word;
                B64 raw = words_of_lane[a_words + of] >> Element<B>::bits * (i % per_word) % 64;
                b[inner][lane / 4] = Element<B>::value(raw);
            }
        }
        for (int row = 0; row < m; ++row)
            for (int column = 0; column < n; ++column)
                sums[row][column] = Element<C>::value(sum_bits<C>(
                    part(lane_of_sum(row, column))->in + a_words + b_words, number_of_sum(row, column)));
        add(sums, a, b);
        for (int row = 0; row < m; ++row)
            for (int column = 0; column < n; ++column) {
                B64* out_of_lane = part(lane_of_sum(row, column))->out;
                int number = number_of_sum(row, column);
                B64 bits = bits_of(sums[row][column]);
                if constexpr (!std::is_same<D, t_f16>::value)
                    out_of_lane[number] = bits;
                else if (number % 2)
                    out_of_lane[number / 2] |= bits << 16;
                else
                    out_of_lane[number / 2] = bits;
            }
    }

    template <int inner>
    CUDAMASTER_CPU_UNSEEN static void add_as_tensor_cores(double (&sums)[m][n], const double (&a)[m][inner],
                                                          const double (&b)[inner][n]) {
        CudamasterCpuProduct product{m, n, inner, product_kind<D>(), product_kind<A>(), product_kind<B>()};
        cudamaster_cpu_product(&product, *sums, *a, *b);
    }

    // Hopper has no mma.sync of 8-bit floating point: it is two products of f16, first of the lower two of each four
    // elements, and their sum is added like any other.
    CUDAMASTER_CPU_UNSEEN static void add_eight_bits(double (&sums)[m][n], const double (&a)[m][k],
                                                     const double (&b)[k][n]) {
        double products[m][n] = {}, some_a[m][k / 2], some_b[k / 2][n];
        for (int first = 0; first < 4; first += 2) {
            for (int i = 0; i < k / 2; ++i) {
                int inner = i / 2 * 4 + first + i % 2;
                for (int row = 0; row < m; ++row)
                    some_a[row][i] = a[row][inner];
                for (int column = 0; column < n; ++column)
                    some_b[i][column] = b[inner][column];
            }
            add_as_tensor_cores(products, some_a, some_b);
        }
        for (int row = 0; row < m; ++row)
            for (int column = 0; column < n; ++column)
                sums[row][column] += products[row][column];
    }

    CUDAMASTER_CPU_UNSEEN static void add(double (&sums)[m][n], const double (&a)[m][k],
                                          const double (&b)[k][n]) {
        if constexpr (is_double || is_xor) {
            for (int row = 0; row < m; ++row)
                for (int inner = 0; inner < k; ++inner)
                    for (int column = 0; column < n; ++column)
                        sums[row][column] = is_xor
                                                ? sums[row][column] + (a[row][inner] != b[inner][column])
                                                : ::fma(a[row][inner], b[inner][column], sums[row][column]);
        } else if constexpr (Element<A>::bits == 8 && !Element<A>::integer) {
            add_eight_bits(sums, a, b);
        } else {
            add_as_tensor_cores(sums, a, b);
        }
    }
};

// The registers of a, b and c, then those of d.
template <class Aligned, class Shape, class... Tags, class... Registers>
CUDAMASTER_CPU_ONE void mma_sync(Registers&&... registers) {
    using Whole = Product<Shape, typename ElementAt<0, Tags...>::type, typename ElementAt<1, Tags...>::type,
                          typename ElementAt<2, Tags...>::type, typename ElementAt<3, Tags...>::type,
                          has<t_and, Tags...>, has<t_xor, Tags...>, has<t_satfinite, Tags...>>;
    if constexpr (!has<t_f16, Tags...> && !has<t_bf16, Tags...> && !has<t_tf32, Tags...>)
        CUDAMASTER_CPU_SEES_UNCOUNTED("mma.sync of 8 bits and fewer, and of double precision,");
    Whole whole;
    int i = 0;
    auto bring = [&](B64 bits) CUDAMASTER_CPU_PART {
        if (i < Whole::words)
            whole.in[i] = bits;
        ++i;
    };
    (bring(static_cast<B64>(registers)), ...);
    vote(kWholeWarp, "mma_sync", reinterpret_cast<B64>(&whole), Whole::multiply);
    i = 0;
    auto take = [&](auto& target) CUDAMASTER_CPU_PART {
        if (i >= Whole::words)
            target = static_cast<std::conditional_t<Whole::is_double, B64, B32>>(whole.out[i - Whole::words]);
        ++i;
    };
    (take(registers), ...);
}

} // namespace ptx
} // namespace cudamaster_cpu
