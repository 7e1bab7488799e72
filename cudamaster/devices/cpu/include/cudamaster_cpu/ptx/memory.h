// Loads, stores, atomics, and what concerns addresses. An access is one of the kernel's own, so whoever observes the
// kernel sees it as any other.
#pragma once

#include "cudamaster_cpu/ptx/arithmetic.h"

namespace cudamaster_cpu {
namespace ptx {

template <class... Tags>
constexpr bool in_shared =
    has<t_shared, Tags...> || has<t_shared_cta, Tags...> || has<t_shared_cluster, Tags...>;

// Addresses of shared memory are those of a window of their own; all others are the host's.
template <class... Tags> CUDAMASTER_CPU_PART inline char* place(B64 address) {
    if constexpr (has<t_shared_cluster, Tags...>)
        return static_cast<char*>(cudamaster_cpu_cluster_place(address));
    else if constexpr (in_shared<Tags...>)
        return static_cast<char*>(cudamaster_cpu_shared_place(address));
    else
        return reinterpret_cast<char*>(address);
}

template <class... Tags>
constexpr int count = has<t_v2, Tags...>   ? 2
                      : has<t_v4, Tags...> ? 4
                      : has<t_v8, Tags...> ? 8
                                           : 1;
template <class Bits, int n> struct VectorOf {
    typedef Bits type __attribute__((vector_size(sizeof(Bits) * n)));
};
template <class Bits> struct VectorOf<Bits, 1> {
    using type = Bits;
};
template <class... Tags> using Vector = typename VectorOf<Bits<Tags...>, count<Tags...>>::type;

template <class... Tags>
constexpr bool is_strong =
    has<t_volatile, Tags...> || has<t_relaxed, Tags...> || has<t_acquire, Tags...> || has<t_release, Tags...>;

// No other thread sees half of a strong access to .b128: a vector of 16 bytes is moved by one instruction of the host,
// an __int128 by two.
typedef B64 Halves __attribute__((vector_size(16)));

template <class... Tags> CUDAMASTER_CPU_PART inline Vector<Tags...> loaded(B64 address) {
    if constexpr (is_strong<Tags...>) {
        spun(); // a loop may wait for it
        if constexpr (std::is_same<Vector<Tags...>, B128>::value) {
            Halves halves = *reinterpret_cast<const volatile Halves*>(place<Tags...>(address));
            return static_cast<B128>(halves[1]) << 64 | halves[0];
        } else {
            return *reinterpret_cast<const volatile Vector<Tags...>*>(place<Tags...>(address));
        }
    } else {
        return *reinterpret_cast<const Vector<Tags...>*>(place<Tags...>(address));
    }
}
template <class... Tags> CUDAMASTER_CPU_PART inline void before_release() {
    if constexpr (has<t_release, Tags...> || has<t_acq_rel, Tags...>) {
        if constexpr (has<t_cta, Tags...>)
            ::__threadfence_block();
        else
            ::__threadfence();
    }
}

template <class... Tags> CUDAMASTER_CPU_PART inline auto ld(B64 address) {
    auto value = loaded<Tags...>(address);
    using T = Type<Tags...>;
    if constexpr (T::integer)
        return static_cast<typename T::Value>(value);
    else
        return value;
}
template <class... Tags, class... Targets>
CUDAMASTER_CPU_PART inline auto ld(B64 address, Targets&&... targets)
    -> std::enable_if_t<(sizeof...(Targets) > 1)> {
    using T = Type<Tags...>;
    auto values = loaded<Tags...>(address);
    int i = 0;
    auto next = [&]() CUDAMASTER_CPU_PART {
        if constexpr (T::integer)
            return static_cast<typename T::Value>(values[i++]);
        else
            return values[i++];
    };
    ((targets = static_cast<std::decay_t<Targets>>(next())), ...);
}
template <class... Tags> CUDAMASTER_CPU_PART inline auto ldu(B64 address) {
    return ld<Tags...>(address);
}
template <class... Tags, class... Targets>
CUDAMASTER_CPU_PART inline auto ldu(B64 address, Targets&&... targets)
    -> std::enable_if_t<(sizeof...(Targets) > 1)> {
    ld<Tags...>(address, targets...);
}

template <class... Tags, class... Values> CUDAMASTER_CPU_PART inline void st(B64 address, Values... values) {
    before_release<Tags...>();
    Vector<Tags...> value;
    if constexpr (count<Tags...> == 1)
        value = (static_cast<Bits<Tags...>>(values), ...);
    else
        value = Vector<Tags...>{static_cast<Bits<Tags...>>(values)...};
    if constexpr (is_strong<Tags...> && std::is_same<Vector<Tags...>, B128>::value)
        *reinterpret_cast<volatile Halves*>(place<Tags...>(address)) =
            Halves{static_cast<B64>(value), static_cast<B64>(value >> 64)};
    else if constexpr (is_strong<Tags...>)
        *reinterpret_cast<volatile Vector<Tags...>*>(place<Tags...>(address)) = value;
    else
        *reinterpret_cast<Vector<Tags...>*>(place<Tags...>(address)) = value;
}

// What an atomic leaves in place of what was there.
template <class... Tags>
CUDAMASTER_CPU_PART inline Bits<Tags...> updated(Bits<Tags...> old, Bits<Tags...> with) {
    using T = Type<Tags...>;
    if constexpr (has<t_add, Tags...>)
        return add<TagOf<T>>(old, with);
    else if constexpr (has<t_min, Tags...>)
        return min<TagOf<T>>(old, with);
    else if constexpr (has<t_max, Tags...>)
        return max<TagOf<T>>(old, with);
    else if constexpr (has<t_inc, Tags...>)
        return old >= with ? 0 : old + 1;
    else if constexpr (has<t_dec, Tags...>)
        return old == 0 || old > with ? with : old - 1;
    else if constexpr (has<t_and, Tags...>)
        return old & with;
    else if constexpr (has<t_or, Tags...>)
        return old | with;
    else if constexpr (has<t_xor, Tags...>)
        return old ^ with;
    else
        return with;
}
template <class... Tags> CUDAMASTER_CPU_ONE Bits<Tags...> atom_one(Bits<Tags...>* at, Bits<Tags...> value) {
    CUDAMASTER_CPU_SEES_ATOMIC(at);
    return atomic_update(at, [value](Bits<Tags...> old)
                                 CUDAMASTER_CPU_PART { return updated<Tags...>(old, value); });
}
template <class... Tags>
CUDAMASTER_CPU_ONE Bits<Tags...> atom_cas(Bits<Tags...>* at, Bits<Tags...> compare, Bits<Tags...> value) {
    CUDAMASTER_CPU_SEES_ATOMIC(at);
    if (!__atomic_compare_exchange_n(at, &compare, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        CUDAMASTER_CPU_SEES_UNCHANGED();
        spun();
    }
    return compare;
}
template <class... Tags> CUDAMASTER_CPU_PART inline Bits<Tags...>* atomic_place(B64 address) {
    before_release<Tags...>();
    if (address % (sizeof(Bits<Tags...>) * count<Tags...>))
        cudamaster_cpu_fail("an atomic at an address that is no multiple of its size");
    return reinterpret_cast<Bits<Tags...>*>(place<Tags...>(address));
}
template <class... Tags> inline Bits<Tags...> atom(B64 address, Bits<Tags...> value) {
    return atom_one<Tags...>(atomic_place<Tags...>(address), value);
}
template <class... Tags> inline Bits<Tags...> atom(B64 address, Bits<Tags...> compare, Bits<Tags...> value) {
    return atom_cas<Tags...>(atomic_place<Tags...>(address), compare, value);
}
// Vectors: each element in a step of its own.
template <class... Tags, class... Values>
inline auto red(B64 address, Values... values) -> std::enable_if_t<sizeof...(Values) == count<Tags...>> {
    auto* at = atomic_place<Tags...>(address);
    int i = 0;
    ((void)atom_one<Tags...>(at + i++, values), ...);
}
template <class... Tags, class D, class E>
inline auto atom(B64 address, Bits<Tags...> a, Bits<Tags...> b, D&& d, E&& e)
    -> std::enable_if_t<count<Tags...> == 2> {
    auto* at = atomic_place<Tags...>(address);
    d = atom_one<Tags...>(at, a);
    e = atom_one<Tags...>(at + 1, b);
}
template <class... Tags, class D, class E, class F, class G>
inline auto atom(B64 address, Bits<Tags...> a, Bits<Tags...> b, Bits<Tags...> c, Bits<Tags...> x, D&& d,
                 E&& e, F&& f, G&& g) -> std::enable_if_t<count<Tags...> == 4> {
    auto* at = atomic_place<Tags...>(address);
    d = atom_one<Tags...>(at, a);
    e = atom_one<Tags...>(at + 1, b);
    f = atom_one<Tags...>(at + 2, c);
    g = atom_one<Tags...>(at + 3, x);
}

// Addresses.
template <class... Tags> inline Bits<Tags...> cvta(Bits<Tags...> address) {
    if constexpr (!in_shared<Tags...>)
        return address;
    else if constexpr (has<t_to, Tags...>)
        return cudamaster_cpu_shared_address(reinterpret_cast<const void*>(static_cast<B64>(address)));
    else
        return static_cast<Bits<Tags...>>(reinterpret_cast<B64>(place<Tags...>(address)));
}
template <class... Tags> inline bool isspacep(B64 address) {
    int space = cudamaster_cpu_space(reinterpret_cast<const void*>(address));
    if (has<t_shared_cluster, Tags...> && space == CUDAMASTER_CPU_CLUSTER)
        return true;
    return space == (in_shared<Tags...>      ? CUDAMASTER_CPU_SHARED
                     : has<t_local, Tags...> ? CUDAMASTER_CPU_LOCAL
                     : has<t_const, Tags...> ? CUDAMASTER_CPU_CONSTANT
                                             : CUDAMASTER_CPU_GLOBAL);
}

// Hints.
template <class... Tags> inline void prefetch(B64) {}
template <class... Tags> inline void prefetchu(B64) {}
template <class... Tags> inline void applypriority(B64, long long) {}
template <class... Tags> inline B64 createpolicy_fractional(B32 = 0) {
    return 0;
}
// What is discarded holds nothing any more.
template <class... Tags> inline void discard(B64 address, long long bytes) {
    if (bytes != 128 || address % 128)
        cudamaster_cpu_fail("discard of something else than 128 bytes at a multiple of them");
    __builtin_memset(place<Tags...>(address), 0xff, 128);
}

} // namespace ptx
} // namespace cudamaster_cpu
