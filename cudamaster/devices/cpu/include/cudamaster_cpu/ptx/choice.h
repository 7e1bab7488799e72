// Comparisons, and choices by their outcome.
#pragma once

#include "cudamaster_cpu/ptx/arithmetic.h"

namespace cudamaster_cpu {
namespace ptx {

template <class... Tags> CUDAMASTER_CPU_PART inline bool compared_reals(double a, double b) {
    bool unordered = a != a || b != b;
    if constexpr (has<t_eq, Tags...>)
        return a == b;
    else if constexpr (has<t_ne, Tags...>)
        return !unordered && a != b;
    else if constexpr (has<t_lt, Tags...>)
        return a < b;
    else if constexpr (has<t_le, Tags...>)
        return a <= b;
    else if constexpr (has<t_gt, Tags...>)
        return a > b;
    else if constexpr (has<t_ge, Tags...>)
        return a >= b;
    else if constexpr (has<t_equ, Tags...>)
        return unordered || a == b;
    else if constexpr (has<t_neu, Tags...>)
        return unordered || a != b;
    else if constexpr (has<t_ltu, Tags...>)
        return unordered || a < b;
    else if constexpr (has<t_leu, Tags...>)
        return unordered || a <= b;
    else if constexpr (has<t_gtu, Tags...>)
        return unordered || a > b;
    else if constexpr (has<t_geu, Tags...>)
        return unordered || a >= b;
    else if constexpr (has<t_num, Tags...>)
        return !unordered;
    else
        return unordered;
}
template <class... Tags, class Value> CUDAMASTER_CPU_PART inline bool compared_integers(Value a, Value b) {
    if constexpr (has<t_eq, Tags...>)
        return a == b;
    else if constexpr (has<t_ne, Tags...>)
        return a != b;
    else if constexpr (has<t_lt, Tags...> || has<t_lo, Tags...>)
        return a < b;
    else if constexpr (has<t_le, Tags...> || has<t_ls, Tags...>)
        return a <= b;
    else if constexpr (has<t_gt, Tags...> || has<t_hi, Tags...>)
        return a > b;
    else
        return a >= b;
}
// Of one value; of a half of packed ones.
template <class... Tags, class Bits> CUDAMASTER_CPU_PART inline bool compared(Bits a, Bits b) {
    using T = Type<Tags...>;
    using Value = typename T::Value;
    if constexpr (T::integer)
        return compared_integers<Tags...>(static_cast<Value>(a), static_cast<Value>(b));
    else if constexpr (T::narrow)
        return compared_reals<Tags...>(narrow_float<Value>(narrow_flushed<Value, Tags...>(a)),
                                       narrow_float<Value>(narrow_flushed<Value, Tags...>(b)));
    else
        return compared_reals<Tags...>(flushed<Tags...>(bit_cast<Value>(a)),
                                       flushed<Tags...>(bit_cast<Value>(b)));
}
template <class... Tags> CUDAMASTER_CPU_PART inline bool combined(bool outcome, bool with) {
    return has<t_and, Tags...>   ? outcome && with
           : has<t_or, Tags...>  ? outcome || with
           : has<t_xor, Tags...> ? outcome != with
                                 : outcome;
}

template <class... Tags>
CUDAMASTER_CPU_CONST inline bool setp(Bits<Tags...> a, Bits<Tags...> b, bool with = false) {
    return combined<Tags...>(compared<Tags...>(a, b), with);
}
template <class... Tags, class P, class Q>
inline void setp(Bits<Tags...> a, Bits<Tags...> b, bool with, P&& p, Q&& q) {
    bool outcome = setp<Tags...>(a, b, with);
    q = combined<Tags...>(!compared<Tags...>(a, b), with);
    p = outcome;
}
template <class... Tags, class P, class Q> inline void setp(Bits<Tags...> a, Bits<Tags...> b, P&& p, Q&& q) {
    if constexpr (Type<Tags...>::packed) {
        bool low = compared<Tags...>(static_cast<B16>(a), static_cast<B16>(b));
        q = compared<Tags...>(static_cast<B16>(a >> 16), static_cast<B16>(b >> 16));
        p = low;
    } else {
        bool outcome = compared<Tags...>(a, b);
        q = !outcome;
        p = outcome;
    }
}

// What "true" is in a type: one where it is floating point, all bits where it is none.
template <class D> CUDAMASTER_CPU_PART inline auto truth(bool outcome) {
    if constexpr (std::is_same<typename D::Value, float>::value)
        return outcome ? 0x3f800000u : 0u;
    else if constexpr (D::narrow)
        return static_cast<B16>(!outcome                                       ? 0
                                : std::is_same<typename D::Value, Half>::value ? 0x3c00
                                                                               : 0x3f80);
    else
        return outcome ? static_cast<typename D::Bits>(~typename D::Bits(0)) : typename D::Bits(0);
}
template <class... Tags>
CUDAMASTER_CPU_CONST inline auto set(Bits<Tags...> a, Bits<Tags...> b, bool with = false) {
    using D = FirstType<Tags...>;
    if constexpr (Type<Tags...>::packed)
        return halves([](B16 x, B16 y) CUDAMASTER_CPU_PART { return truth<D>(compared<Tags...>(x, y)); }, a,
                      b);
    else
        return truth<D>(combined<Tags...>(compared<Tags...>(a, b), with));
}

template <class... Tags> inline Bits<Tags...> selp(Bits<Tags...> a, Bits<Tags...> b, bool which) {
    return which ? a : b;
}
template <class... Tags>
inline auto slct(typename FirstType<Tags...>::Bits a, typename FirstType<Tags...>::Bits b, B32 which) {
    if constexpr (std::is_same<Type<Tags...>, Typed<t_f32>>::value)
        return flushed<Tags...>(bit_cast<float>(which)) >= 0 ? a : b;
    else
        return static_cast<int>(which) >= 0 ? a : b;
}

} // namespace ptx
} // namespace cudamaster_cpu
