// Warp matrix multiply-accumulate: fragments spread over the lanes, products computed by whichever lane comes
// last.
//
// An element of a matrix lives in one lane only, in row-major order of the tile: lane i holds elements i, i +
// 32, ... CUDA leaves that mapping open. Sums are made as tensor cores make them (runtime/products.cpp).
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cudamaster_cpu/observed.h"

namespace nvcuda {
namespace wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
} // namespace precision

namespace details {

template <class Type> struct Storage {
    using type = Type;
};
template <> struct Storage<precision::tf32> {
    using type = float;
};

template <class Use, int m, int n, int k> struct Extent;
template <int m, int n, int k> struct Extent<matrix_a, m, n, k> {
    static constexpr int rows = m, columns = k;
};
template <int m, int n, int k> struct Extent<matrix_b, m, n, k> {
    static constexpr int rows = k, columns = n;
};
template <int m, int n, int k> struct Extent<accumulator, m, n, k> {
    static constexpr int rows = m, columns = n;
};

template <int m, int n, int k, class Type> constexpr bool known_shape() {
    bool halves =
        (m == 16 && n == 16 && k == 16) || (m == 32 && n == 8 && k == 16) || (m == 8 && n == 32 && k == 16);
    bool tf32 = m == 16 && n == 16 && k == 8;
    if (std::is_same<Type, precision::tf32>::value)
        return tf32;
    if (std::is_same<Type, __half>::value || std::is_same<Type, __nv_bfloat16>::value ||
        std::is_same<Type, signed char>::value || std::is_same<Type, unsigned char>::value)
        return halves;
    return (halves || tf32) && (std::is_same<Type, float>::value || std::is_same<Type, int>::value);
}

CUDAMASTER_CPU_PART inline double number(double value) {
    return value;
}
CUDAMASTER_CPU_PART inline double number(float value) {
    return value;
}
CUDAMASTER_CPU_PART inline double number(int value) {
    return value;
}
CUDAMASTER_CPU_PART inline double number(signed char value) {
    return value;
}
CUDAMASTER_CPU_PART inline double number(unsigned char value) {
    return value;
}
CUDAMASTER_CPU_PART inline double number(__half value) {
    return __half2float(value);
}
CUDAMASTER_CPU_PART inline double number(__nv_bfloat16 value) {
    return __bfloat162float(value);
}

// A tensor core reads the upper 19 bits of a tf32 operand.
CUDAMASTER_CPU_PART inline float truncate_tf32(float value) {
    return __uint_as_float(__float_as_uint(value) & 0xffffe000u);
}

} // namespace details

template <class Use, int m, int n, int k, class Type, class Layout = void> class fragment {
    static_assert(details::known_shape<m, n, k, Type>(),
                  "unsupported on the CPU device: wmma fragment of this shape and type");

  public:
    using element_type = Type;
    using storage_element_type = typename details::Storage<Type>::type;
    static constexpr int rows = details::Extent<Use, m, n, k>::rows;
    static constexpr int columns = details::Extent<Use, m, n, k>::columns;
    static constexpr int num_elements = rows * columns / 32;
    static constexpr int num_storage_elements = num_elements;
    storage_element_type x[num_elements];
};

inline float __float_to_tf32(float value) {
    // To nearest, ties away from zero.
    unsigned int bits = __float_as_uint(value);
    return value == value ? __uint_as_float((bits + 0x1000u) & 0xffffe000u) : value;
}

template <class Use, int m, int n, int k, class Type, class Layout, class Value>
void fill_fragment(fragment<Use, m, n, k, Type, Layout>& target, const Value& value) {
    for (auto& element : target.x)
        element = static_cast<typename details::Storage<Type>::type>(value);
}

namespace details {

// The lanes come together, as at __syncwarp; but what they have written is in no order for that.
CUDAMASTER_CPU_ONE inline void converge() {
    --cudamaster_cpu::exchange(0xffffffffu, CUDAMASTER_CPU_CONVERGES, 0)->unread;
}

template <class Fragment>
CUDAMASTER_CPU_PART inline void walk_alignment(const void* address, unsigned int leading) {
    // The real instructions fault on addresses that are no multiple of 32 bytes and leading dimensions of odd
    // size.
    constexpr unsigned int step = 16 / sizeof(typename Fragment::storage_element_type);
    if (reinterpret_cast<size_t>(address) % 32 || leading % step)
        __trap();
}

// The lane that holds an element as its number element / 32. A checked build deals them out in another way: a kernel
// whose lanes read what they happen to have written themselves leans on a mapping that CUDA leaves open.
CUDAMASTER_CPU_PART constexpr int owner(int element) {
#if defined(CUDAMASTER_CPU_CHECKED)
    return (element + 5 * (element / 32) + 11) % 32;
#else
    return element % 32;
#endif
}
CUDAMASTER_CPU_PART constexpr int element_of(int lane, int i) {
    return i * 32 + (lane - owner(i * 32) + 32) % 32;
}

template <class Fragment, class Access> CUDAMASTER_CPU_PART inline void each_element(Access access) {
    int lane = static_cast<int>(cudamaster_cpu_lane());
    for (int i = 0; i < Fragment::num_elements; ++i) {
        int element = element_of(lane, i);
        access(i, element / Fragment::columns, element % Fragment::columns);
    }
}

// The build that counts sees what a GPU does in place of what this header does: pieces of 16 bytes of the tile's lines,
// neighbouring lanes on neighbouring lines as ldmatrix has them, in one request for 32 of them.
#if defined(CUDAMASTER_CPU_OBSERVED) && !defined(CUDAMASTER_CPU_CHECKED)
#define CUDAMASTER_CPU_FRAGMENT CUDAMASTER_CPU_ONE
template <class Memory>
CUDAMASTER_CPU_PART void sees_tile(const Memory* address, unsigned int leading, int lines, int length,
                                   int stored, const void* site) {
    int bytes = length * static_cast<int>(sizeof(Memory)), piece = bytes < 16 ? bytes : 16,
        pieces = bytes / piece;
    for (int i = static_cast<int>(cudamaster_cpu_lane()); i < lines * pieces; i += 32)
        cudamaster_cpu_observe_fragment(
            reinterpret_cast<const char*>(address + static_cast<size_t>(i % lines) * leading) +
                i / lines * piece,
            static_cast<unsigned>(piece), stored, site);
}
#define CUDAMASTER_CPU_SEES_TILE(address, leading, lines, length, stored)                                    \
    details::sees_tile(address, leading, lines, length, stored, __builtin_return_address(0))
#else
#define CUDAMASTER_CPU_FRAGMENT
#define CUDAMASTER_CPU_SEES_TILE(address, leading, lines, length, stored)
#endif

} // namespace details

template <class Use, int m, int n, int k, class Type, class Layout, class Memory>
CUDAMASTER_CPU_FRAGMENT void load_matrix_sync(fragment<Use, m, n, k, Type, Layout>& target,
                                              const Memory* address, unsigned int leading) {
    using Fragment = fragment<Use, m, n, k, Type, Layout>;
    details::walk_alignment<Fragment>(address, leading);
    constexpr bool by_rows = std::is_same<Layout, row_major>::value;
    CUDAMASTER_CPU_SEES_TILE(address, leading, by_rows ? Fragment::rows : Fragment::columns,
                             by_rows ? Fragment::columns : Fragment::rows, 0);
    details::converge();
    details::each_element<Fragment>([&](int i, int row, int column) CUDAMASTER_CPU_PART {
        size_t at = by_rows ? static_cast<size_t>(row) * leading + column
                            : static_cast<size_t>(column) * leading + row;
        target.x[i] = address[at];
    });
    details::converge();
}

template <int m, int n, int k, class Type, class Memory>
CUDAMASTER_CPU_FRAGMENT void load_matrix_sync(fragment<accumulator, m, n, k, Type>& target,
                                              const Memory* address, unsigned int leading, layout_t layout) {
    using Fragment = fragment<accumulator, m, n, k, Type>;
    details::walk_alignment<Fragment>(address, leading);
    CUDAMASTER_CPU_SEES_TILE(address, leading, layout == mem_row_major ? Fragment::rows : Fragment::columns,
                             layout == mem_row_major ? Fragment::columns : Fragment::rows, 0);
    details::converge();
    details::each_element<Fragment>([&](int i, int row, int column) CUDAMASTER_CPU_PART {
        target.x[i] = address[layout == mem_row_major ? static_cast<size_t>(row) * leading + column
                                                      : static_cast<size_t>(column) * leading + row];
    });
    details::converge();
}

template <int m, int n, int k, class Type, class Memory>
CUDAMASTER_CPU_FRAGMENT void store_matrix_sync(Memory* address,
                                               const fragment<accumulator, m, n, k, Type>& source,
                                               unsigned int leading, layout_t layout) {
    using Fragment = fragment<accumulator, m, n, k, Type>;
    details::walk_alignment<Fragment>(address, leading);
    CUDAMASTER_CPU_SEES_TILE(address, leading, layout == mem_row_major ? Fragment::rows : Fragment::columns,
                             layout == mem_row_major ? Fragment::columns : Fragment::rows, 1);
    details::converge();
    details::each_element<Fragment>([&](int i, int row, int column) CUDAMASTER_CPU_PART {
        address[layout == mem_row_major ? static_cast<size_t>(row) * leading + column
                                        : static_cast<size_t>(column) * leading + row] = source.x[i];
    });
    details::converge();
}

namespace details {

// One lane's part of a product, where the lane that computes it finds it.
template <class D, class A, class B, class C> struct Product {
    D* d;
    const A* a;
    const B* b;
    const C* c;
};

template <class Type> constexpr int kind_of() {
    return std::is_same<Type, __half>::value            ? CUDAMASTER_CPU_F16
           : std::is_same<Type, __nv_bfloat16>::value   ? CUDAMASTER_CPU_BF16
           : std::is_same<Type, precision::tf32>::value ? CUDAMASTER_CPU_TF32
           : std::is_same<Type, float>::value           ? CUDAMASTER_CPU_F32
                                                        : CUDAMASTER_CPU_S32;
}

template <int m, int n, int k, class D, class A, class B, class C>
CUDAMASTER_CPU_UNSEEN void multiply(CudamasterCpuExchange* all) {
    using Part = Product<D, A, B, C>;
    constexpr bool is_tf32 = std::is_same<typename A::element_type, precision::tf32>::value;
    if (all->arrived != 0xffffffffu)
        __trap(); // a matrix needs the whole warp
    if (!cudamaster_cpu_wants_product(1ull * m * n * k))
        return;
    Part* parts[32];
    for (int lane = 0; lane < 32; ++lane)
        parts[lane] = reinterpret_cast<Part*>(all->values[lane]);
    double a[m][k], b[k][n];
    for (int i = 0; i < m * k; ++i) {
        double value = details::number(parts[owner(i)]->a->x[i / 32]);
        a[i / k][i % k] = is_tf32 ? truncate_tf32(static_cast<float>(value)) : value;
    }
    for (int i = 0; i < k * n; ++i) {
        double value = details::number(parts[owner(i)]->b->x[i / 32]);
        b[i / n][i % n] = is_tf32 ? truncate_tf32(static_cast<float>(value)) : value;
    }
    double sums[m][n];
    for (int i = 0; i < m * n; ++i)
        sums[i / n][i % n] = details::number(parts[owner(i)]->c->x[i / 32]);
    constexpr int kind = kind_of<typename A::element_type>();
    CudamasterCpuProduct product{m, n, k, kind_of<typename D::element_type>(), kind, kind};
    cudamaster_cpu_product(&product, *sums, *a, *b);
    for (int i = 0; i < m * n; ++i)
        parts[owner(i)]->d->x[i / 32] = static_cast<typename D::storage_element_type>(sums[i / n][i % n]);
}

} // namespace details

template <int m, int n, int k, class Input, class InputB, class LayoutA, class LayoutB, class Out, class In>
CUDAMASTER_CPU_ONE void mma_sync(fragment<accumulator, m, n, k, Out>& d,
                                 const fragment<matrix_a, m, n, k, Input, LayoutA>& a,
                                 const fragment<matrix_b, m, n, k, InputB, LayoutB>& b,
                                 const fragment<accumulator, m, n, k, In>& c, bool = false) {
    static_assert(std::is_same<Input, InputB>::value, "both factors have one type");
    using Part = details::Product<std::decay_t<decltype(d)>, std::decay_t<decltype(a)>,
                                  std::decay_t<decltype(b)>, std::decay_t<decltype(c)>>;
    Part part{&d, &a, &b, &c};
    cudamaster_cpu::vote(0xffffffffu, "mma_sync", reinterpret_cast<unsigned long long>(&part),
                         details::multiply<m, n, k, std::decay_t<decltype(d)>, std::decay_t<decltype(a)>,
                                           std::decay_t<decltype(b)>, std::decay_t<decltype(c)>>);
}

} // namespace wmma
} // namespace nvcuda
