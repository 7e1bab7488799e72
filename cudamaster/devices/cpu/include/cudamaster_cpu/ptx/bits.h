// Logic, shifts, fields, and sums of small products.
#pragma once

#include "cudamaster_cpu/ptx/registers.h"

namespace cudamaster_cpu {
namespace ptx {

template <class... Tags> inline Bits<Tags...> and_(Bits<Tags...> a, Bits<Tags...> b) {
    return a & b;
}
template <class... Tags> inline Bits<Tags...> or_(Bits<Tags...> a, Bits<Tags...> b) {
    return a | b;
}
template <class... Tags> inline Bits<Tags...> xor_(Bits<Tags...> a, Bits<Tags...> b) {
    return a ^ b;
}
template <class... Tags> inline Bits<Tags...> not_(Bits<Tags...> a) {
    if constexpr (has<t_pred, Tags...>)
        return !a;
    else
        return static_cast<Bits<Tags...>>(~a);
}
template <class... Tags> inline Bits<Tags...> cnot(Bits<Tags...> a) {
    return a == 0;
}

CUDAMASTER_CPU_PART inline B32 looked_up(B32 a, B32 b, B32 c, int table) {
    B32 result = 0;
    for (int i = 0; i < 8; ++i)
        if (table >> i & 1)
            result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return result;
}
template <class... Tags> CUDAMASTER_CPU_CONST inline B32 lop3(B32 a, B32 b, B32 c, int table) {
    return looked_up(a, b, c, table);
}
template <class... Tags, class D, class P>
inline void lop3(B32 a, B32 b, B32 c, int table, bool with, D&& d, P&& p) {
    B32 result = lop3<t_b32>(a, b, c, table);
    d = result;
    p = has<t_or, Tags...> ? (result != 0 || with) : (result != 0 && with);
}

template <class... Tags> inline Bits<Tags...> shl(Bits<Tags...> a, B32 by) {
    return by < static_cast<B32>(Type<Tags...>::width) ? static_cast<Bits<Tags...>>(a << by)
                                                       : Bits<Tags...>(0);
}
template <class... Tags> inline Bits<Tags...> shr(Bits<Tags...> a, B32 by) {
    using Value = typename Type<Tags...>::Value;
    constexpr B32 width = Type<Tags...>::width;
    auto value = static_cast<Value>(a);
    if (by >= width)
        return static_cast<Bits<Tags...>>(value < 0 ? -1 : 0);
    return static_cast<Bits<Tags...>>(value >> by);
}
template <class... Tags> CUDAMASTER_CPU_CONST inline B32 shf(B32 low, B32 high, B32 by) {
    B64 both = static_cast<B64>(high) << 32 | low;
    B32 count = has<t_wrap, Tags...> ? by & 31 : by < 32 ? by : 32;
    return static_cast<B32>(has<t_l, Tags...> ? both << count >> 32 : both >> count);
}

template <class... Tags> CUDAMASTER_CPU_CONST inline B32 prmt(B32 a, B32 b, B32 c) {
    B32 i = c & 3, selector = c;
    if constexpr (has<t_f4e, Tags...>)
        selector = 0x3210 + 0x1111 * i;
    else if constexpr (has<t_b4e, Tags...>)
        selector = (i & 7) | (i + 7 & 7) << 4 | (i + 6 & 7) << 8 | (i + 5 & 7) << 12;
    else if constexpr (has<t_rc8, Tags...>)
        selector = 0x1111 * i;
    else if constexpr (has<t_ecl, Tags...>)
        selector = i == 0 ? 0x3210 : i == 1 ? 0x3211 : i == 2 ? 0x3222 : 0x3333;
    else if constexpr (has<t_ecr, Tags...>)
        selector = i == 0 ? 0x0000 : i == 1 ? 0x1110 : i == 2 ? 0x2210 : 0x3210;
    else if constexpr (has<t_rc16, Tags...>)
        selector = i & 1 ? 0x3232 : 0x1010;
    return ::__byte_perm(a, b, selector);
}

template <class... Tags> CUDAMASTER_CPU_CONST inline B32 popc(Bits<Tags...> a) {
    return static_cast<B32>(__builtin_popcountll(a));
}
template <class... Tags> CUDAMASTER_CPU_CONST inline B32 clz(Bits<Tags...> a) {
    constexpr int width = Type<Tags...>::width;
    return a ? static_cast<B32>(__builtin_clzll(a) - (64 - width)) : width;
}
template <class... Tags> CUDAMASTER_CPU_CONST inline Bits<Tags...> brev(Bits<Tags...> a) {
    Bits<Tags...> result = 0;
    for (int i = 0; i < Type<Tags...>::width; ++i)
        result |= (a >> i & 1) << (Type<Tags...>::width - 1 - i);
    return result;
}
// The highest bit that differs from the sign; all ones where there is none.
template <class... Tags> CUDAMASTER_CPU_CONST inline B32 bfind(Bits<Tags...> a) {
    if (static_cast<typename Type<Tags...>::Value>(a) < 0)
        a = static_cast<Bits<Tags...>>(~a);
    if (!a)
        return ~0u;
    B32 position = static_cast<B32>(63 - __builtin_clzll(a));
    return has<t_shiftamt, Tags...> ? Type<Tags...>::width - 1 - position : position;
}
// The n-th bit that is set, from a base upwards or downwards.
template <class... Tags> CUDAMASTER_CPU_CONST inline B32 fns(B32 mask, B32 base, B32 offset) {
    int n = static_cast<int>(offset), step = n < 0 ? -1 : 1;
    int left = n == 0 ? 0 : n * step - 1;
    for (int at = static_cast<int>(base); at >= 0 && at < 32; at += step) {
        if (mask >> at & 1 && left-- == 0)
            return static_cast<B32>(at);
        if (n == 0)
            break;
    }
    return ~0u;
}

// A position or a length. Beyond 255 the manual leaves it open: of 32 bits an H200 looks at the lowest eight of it, of 64
// at all.
template <class T> CUDAMASTER_CPU_PART inline int field_limit(B32 number) {
    return static_cast<int>(T::width == 32 ? number & 0xff : number < 0xff ? number : 0xff);
}
template <class... Tags>
CUDAMASTER_CPU_CONST inline Bits<Tags...> bfe(Bits<Tags...> a, B32 position, B32 length) {
    using T = Type<Tags...>;
    int from = field_limit<T>(position), count = field_limit<T>(length), last = from + count - 1;
    int top = T::width - 1;
    bool fill = std::is_signed<typename T::Value>::value && count && a >> (last < top ? last : top) & 1;
    Bits<Tags...> result = 0;
    for (int i = 0; i <= top; ++i) {
        bool bit = i < count && from + i <= top ? a >> (from + i) & 1 : fill;
        result |= static_cast<Bits<Tags...>>(bit) << i;
    }
    return result;
}
template <class... Tags>
CUDAMASTER_CPU_CONST inline Bits<Tags...> bfi(Bits<Tags...> a, Bits<Tags...> b, B32 position, B32 length) {
    using T = Type<Tags...>;
    int from = field_limit<T>(position), count = field_limit<T>(length);
    for (int i = 0; i < count && from + i < T::width; ++i) {
        auto bit = static_cast<Bits<Tags...>>(1) << (from + i);
        b = a >> i & 1 ? b | bit : b & ~bit;
    }
    return b;
}
template <class... Tags> CUDAMASTER_CPU_CONST inline B32 szext(B32 a, B32 bits) {
    B32 count = has<t_wrap, Tags...> ? bits & 31 : bits < 32 ? bits : 32;
    if (count == 32)
        return a;
    B32 low = a & ((1u << count) - 1);
    bool negative = has<t_s32, Tags...> && count && low >> (count - 1) & 1;
    return negative ? low | ~0u << count : low;
}
template <class... Tags> CUDAMASTER_CPU_CONST inline B32 bmsk(B32 from, B32 count) {
    if constexpr (has<t_wrap, Tags...>) {
        from &= 31;
        count &= 31;
    }
    if (from >= 32)
        return 0;
    B64 ones = count >= 32 ? 0xffffffffull : (1ull << count) - 1;
    return static_cast<B32>(ones << from);
}

template <bool is_signed> CUDAMASTER_CPU_PART inline int small(B32 value, int at, int width) {
    B32 part = value >> at & ((1u << width) - 1);
    return is_signed && part >> (width - 1) ? static_cast<int>(part) - (1 << width) : static_cast<int>(part);
}
template <class A, class B> CUDAMASTER_CPU_CONST inline B32 dp4a(B32 a, B32 b, B32 c) {
    for (int i = 0; i < 32; i += 8)
        c += static_cast<B32>(small<std::is_same<A, t_s32>::value>(a, i, 8) *
                              small<std::is_same<B, t_s32>::value>(b, i, 8));
    return c;
}
template <class Part, class A, class B> CUDAMASTER_CPU_CONST inline B32 dp2a(B32 a, B32 b, B32 c) {
    int from = std::is_same<Part, t_hi>::value ? 16 : 0;
    for (int i = 0; i < 2; ++i)
        c += static_cast<B32>(small<std::is_same<A, t_s32>::value>(a, i * 16, 16) *
                              small<std::is_same<B, t_s32>::value>(b, from + i * 8, 8));
    return c;
}

} // namespace ptx
} // namespace cudamaster_cpu
