// Registers of inline PTX: bits in unsigned integers of their width, and what an instruction's type makes of them.
//
// The modifiers of an instruction are its function's template arguments, a tag t_<modifier> each (tags.def).
#pragma once

#include "cudamaster_cpu/atomics.h"
#include "cudamaster_cpu/narrow.h"

namespace cudamaster_cpu {
namespace ptx {

typedef unsigned char B8;
typedef unsigned short B16;
typedef unsigned int B32;
typedef unsigned long long B64;
typedef unsigned __int128 B128;

#define X(name)                                                                                              \
    struct t_##name {};
#include "cudamaster_cpu/ptx/tags.def"
#undef X

template <class Wanted, class... Tags> constexpr bool has = (std::is_same<Wanted, Tags>::value || ...);

// Types: what a tag's bits are, and what value they stand for.
struct Half {};
struct Bfloat {};
template <class Tag> struct Typed {
    static constexpr bool is = false;
};
template <class Tag_, class Bits_, class Value_, bool packed_ = false> struct TypedAs {
    using Tag = Tag_;
    using Bits = Bits_;
    using Value = Value_;
    static constexpr bool is = true;
    static constexpr bool packed = packed_; // two in a register; Value is that of one
    static constexpr bool integer = std::is_integral<Value_>::value || std::is_same<Value_, B128>::value;
    static constexpr bool narrow = std::is_same<Value_, Half>::value || std::is_same<Value_, Bfloat>::value;
    static constexpr int width = sizeof(Bits_) * 8;
};
template <> struct Typed<t_b8> : TypedAs<t_b8, B8, B8> {};
template <> struct Typed<t_u8> : TypedAs<t_u8, B8, B8> {};
template <> struct Typed<t_s8> : TypedAs<t_s8, B8, signed char> {};
template <> struct Typed<t_b16> : TypedAs<t_b16, B16, B16> {};
template <> struct Typed<t_u16> : TypedAs<t_u16, B16, B16> {};
template <> struct Typed<t_s16> : TypedAs<t_s16, B16, short> {};
template <> struct Typed<t_b32> : TypedAs<t_b32, B32, B32> {};
template <> struct Typed<t_u32> : TypedAs<t_u32, B32, B32> {};
template <> struct Typed<t_s32> : TypedAs<t_s32, B32, int> {};
template <> struct Typed<t_b64> : TypedAs<t_b64, B64, B64> {};
template <> struct Typed<t_u64> : TypedAs<t_u64, B64, B64> {};
template <> struct Typed<t_s64> : TypedAs<t_s64, B64, long long> {};
template <> struct Typed<t_b128> : TypedAs<t_b128, B128, B128> {};
template <> struct Typed<t_f32> : TypedAs<t_f32, B32, float> {};
template <> struct Typed<t_f64> : TypedAs<t_f64, B64, double> {};
template <> struct Typed<t_tf32> : TypedAs<t_tf32, B32, float> {};
template <> struct Typed<t_f16> : TypedAs<t_f16, B16, Half> {};
template <> struct Typed<t_bf16> : TypedAs<t_bf16, B16, Bfloat> {};
template <> struct Typed<t_f16x2> : TypedAs<t_f16x2, B32, Half, true> {};
template <> struct Typed<t_bf16x2> : TypedAs<t_bf16x2, B32, Bfloat, true> {};
template <> struct Typed<t_u16x2> : TypedAs<t_u16x2, B32, B16, true> {};
template <> struct Typed<t_s16x2> : TypedAs<t_s16x2, B32, short, true> {};
template <> struct Typed<t_e4m3x2> : TypedAs<t_e4m3x2, B16, B8, true> {};
template <> struct Typed<t_e5m2x2> : TypedAs<t_e5m2x2, B16, B8, true> {};
template <> struct Typed<t_pred> : TypedAs<t_pred, bool, bool> {};

// The types among the tags, in their order: the last is what most instructions compute with.
struct None {
    static constexpr bool is = false;
};
template <class... Tags> struct TypesOf {
    using Last = None;
    using First = None;
};
template <class Tag, class... More> struct TypesOf<Tag, More...> {
    using Rest = TypesOf<More...>;
    using Last = std::conditional_t<Rest::Last::is, typename Rest::Last,
                                    std::conditional_t<Typed<Tag>::is, Typed<Tag>, None>>;
    using First = std::conditional_t<Typed<Tag>::is, Typed<Tag>, typename Rest::First>;
};
template <class... Tags> using Type = typename TypesOf<Tags...>::Last;
template <class... Tags> using FirstType = typename TypesOf<Tags...>::First;
template <class... Tags> using Bits = typename Type<Tags...>::Bits;

template <class T> using TagOf = typename T::Tag;

// What nothing has written: all ones, as memory that nothing wrote.
struct Unset {
    template <class Bits> constexpr operator Bits() const { return static_cast<Bits>(~Bits(0)); }
};
constexpr Unset unset{};

// Which line of the source a statement is in. Builds whose accesses are looked at say nothing: it would be one of them.
struct Here {
#if CUDAMASTER_CPU_OBSERVED
    void at(int) {}
#else
    ~Here() { cudamaster_cpu_ptx_line = 0; }
    void at(int line) { cudamaster_cpu_ptx_line = line; }
#endif
};

// A destination `_`.
struct Sink {
    template <class Value> void operator=(const Value&) {}
    operator B64() const { return 0; }
};

// An operand of the statement as its constraint has it.
template <char letter, class Value> constexpr bool fits() {
    using Plain = std::remove_cv_t<std::remove_reference_t<Value>>;
    constexpr bool whole = std::is_integral<Plain>::value || std::is_enum<Plain>::value ||
                           std::is_pointer<Plain>::value || std::is_same<Plain, B128>::value ||
                           std::is_same<Plain, __int128>::value;
    switch (letter) {
    case 'h':
        return whole && sizeof(Plain) == 2;
    case 'r':
        return whole && sizeof(Plain) == 4;
    case 'l':
        return whole && sizeof(Plain) == 8;
    case 'q':
        return whole && sizeof(Plain) == 16;
    case 'f':
        return std::is_same<Plain, float>::value;
    default:
        return std::is_same<Plain, double>::value;
    }
}

template <char letter>
using Operand = std::conditional_t<
    letter == 'h', B16,
    std::conditional_t<letter == 'r' || letter == 'f', B32, std::conditional_t<letter == 'q', B128, B64>>>;

template <char letter, class Value> CUDAMASTER_CPU_PART inline Operand<letter> read(Value&& value) {
    using Plain = std::decay_t<Value>; // an array is the address of its first element
    static_assert(fits<letter, Plain>(), "asm operand's type or size does not match that of its constraint");
    Plain plain = value;
    return bit_cast<Operand<letter>>(plain);
}
template <char letter, class Value>
CUDAMASTER_CPU_PART inline void write(Value& target, Operand<letter> bits) {
    static_assert(fits<letter, Value>(), "asm operand's type or size does not match that of its constraint");
    target = bit_cast<std::remove_cv_t<Value>>(bits);
}

// `mov` between a register and a vector of its parts.
template <int width, class... Parts> CUDAMASTER_CPU_PART inline auto pack(Parts... parts) {
    using Whole =
        std::conditional_t<width == 128, B128,
                           std::conditional_t<width == 64, B64, std::conditional_t<width == 32, B32, B16>>>;
    constexpr int part = width / static_cast<int>(sizeof...(Parts));
    Whole whole = 0;
    int at = 0;
    ((whole = static_cast<Whole>(whole | static_cast<Whole>(static_cast<Whole>(parts) << at)), at += part),
     ...);
    return whole;
}
template <class Whole, class... Parts> CUDAMASTER_CPU_PART inline void unpack(Whole whole, Parts&&... parts) {
    constexpr int part = static_cast<int>(sizeof(Whole) * 8 / sizeof...(Parts));
    int at = 0;
    ((parts = static_cast<std::decay_t<Parts>>(whole >> at), at += part), ...);
}

// An operation on each half of packed values.
template <class Operation, class... Values>
CUDAMASTER_CPU_PART inline B32 halves(Operation operation, Values... values) {
    B32 low = static_cast<B16>(operation(static_cast<B16>(values)...));
    B32 high = static_cast<B16>(operation(static_cast<B16>(values >> 16)...));
    return high << 16 | low;
}

template <class T> CUDAMASTER_CPU_PART inline typename T::Value value_of(typename T::Bits bits) {
    return bit_cast<typename T::Value>(bits);
}
template <class Value> CUDAMASTER_CPU_PART inline float narrow_float(B16 bits) {
    return std::is_same<Value, Half>::value ? half_value(bits) : bf16_value(bits);
}
template <class Value>
CUDAMASTER_CPU_PART inline B16 narrow_of(double value, Rounding rounding = Rounding::kNearest) {
    float odd = to_float_odd(value);
    return std::is_same<Value, Half>::value ? half_bits(odd, rounding) : bf16_bits(odd, rounding);
}

} // namespace ptx
} // namespace cudamaster_cpu
