// A 16-bit format's two types, and the arithmetic on one value of it. cuda_bf16.h and cuda_fp16.h include
// this file and then narrow_functions.h, each after defining as macros what differs:
//
//     __narrow, __narrow2            the types to define: one value and a pair
//     __narrow_raw, __narrow2_raw    their bits, as types
//     __narrow_name(before, after)   the two joined with the format's name between: __float2 half _rn
//     __narrow_ops                   the namespace for the arithmetic
//     __narrow_bits, __narrow_value  conversion from float and to float
//     __narrow_infinity              the bits of infinity
//
// Macros and not templates: arguments of the functions convert as they do with CUDA's own headers, which have
// plain overloads, and a call that is ambiguous there is ambiguous here.

struct __align__(2) __narrow {
    unsigned short __x;

    __narrow() = default;
    CUDAMASTER_CPU_PART constexpr __narrow(__narrow_raw raw) : __x(raw.x) {}
    CUDAMASTER_CPU_PART __narrow(float value) : __x(__narrow_bits(value)) {}
    CUDAMASTER_CPU_PART __narrow(double value) : __x(__narrow_bits(cudamaster_cpu::to_float_odd(value))) {}
    CUDAMASTER_CPU_PART __narrow(int value) : __narrow(static_cast<double>(value)) {}
    CUDAMASTER_CPU_PART __narrow(unsigned int value) : __narrow(static_cast<double>(value)) {}
    __narrow(short value) : __narrow(static_cast<double>(value)) {}
    __narrow(unsigned short value) : __narrow(static_cast<double>(value)) {}
    __narrow(long value) : __narrow(static_cast<long long>(value)) {}
    __narrow(unsigned long value) : __narrow(static_cast<unsigned long long>(value)) {}
    __narrow(long long value)
        : __narrow(value < 0 ? -from_magnitude(0ull - static_cast<unsigned long long>(value))
                             : from_magnitude(static_cast<unsigned long long>(value))) {}
    __narrow(unsigned long long value) : __narrow(from_magnitude(value)) {}

    CUDAMASTER_CPU_PART operator __narrow_raw() const { return {__x}; }
    CUDAMASTER_CPU_PART operator float() const { return __narrow_value(__x); }
    explicit operator bool() const { return (__x & 0x7fff) != 0; }
    explicit operator double() const { return __narrow_value(__x); }
    explicit operator char() const { return cudamaster_cpu::saturate<signed char>(::truncf(float(*this))); }
    explicit operator signed char() const {
        return cudamaster_cpu::saturate<signed char>(::truncf(float(*this)));
    }
    explicit operator unsigned char() const {
        return cudamaster_cpu::saturate<unsigned char>(::truncf(float(*this)));
    }
    explicit operator short() const { return cudamaster_cpu::saturate<short>(::truncf(float(*this))); }
    explicit operator unsigned short() const {
        return cudamaster_cpu::saturate<unsigned short>(::truncf(float(*this)));
    }
    explicit operator int() const { return cudamaster_cpu::saturate<int>(::truncf(float(*this))); }
    explicit operator unsigned int() const {
        return cudamaster_cpu::saturate<unsigned int>(::truncf(float(*this)));
    }
    explicit operator long() const { return static_cast<long>(static_cast<long long>(*this)); }
    explicit operator unsigned long() const {
        return static_cast<unsigned long>(static_cast<unsigned long long>(*this));
    }
    explicit operator long long() const {
        return cudamaster_cpu::saturate<long long>(::truncf(float(*this)));
    }
    explicit operator unsigned long long() const {
        return cudamaster_cpu::saturate<unsigned long long>(::truncf(float(*this)));
    }

    template <class Number> __narrow& assign(Number value) { return *this = __narrow(value); }
    __narrow& operator=(float value) { return assign(value); }
    __narrow& operator=(double value) { return assign(value); }
    __narrow& operator=(int value) { return assign(value); }
    __narrow& operator=(unsigned int value) { return assign(value); }
    __narrow& operator=(short value) { return assign(value); }
    __narrow& operator=(unsigned short value) { return assign(value); }
    __narrow& operator=(long long value) { return assign(value); }
    __narrow& operator=(unsigned long long value) { return assign(value); }
    __narrow& operator=(__narrow_raw raw) {
        __x = raw.x;
        return *this;
    }

  private:
    // Bits that no double can hold only say that there was something.
    static double from_magnitude(unsigned long long value) {
        if (value >> 53)
            value = (value & ~0x7ffull) | ((value & 0x7ff) != 0) << 11;
        return static_cast<double>(value);
    }
};

struct __align__(4) __narrow2 {
    __narrow x, y;

    __narrow2() = default;
    CUDAMASTER_CPU_PART __narrow2(const __narrow& x_, const __narrow& y_) : x(x_), y(y_) {}
    CUDAMASTER_CPU_PART __narrow2(const __narrow2_raw& raw)
        : x(__narrow_raw{raw.x}), y(__narrow_raw{raw.y}) {}
    CUDAMASTER_CPU_PART operator __narrow2_raw() const { return {x.__x, y.__x}; }
};

namespace __narrow_ops {

using One = __narrow;
using Two = __narrow2;

CUDAMASTER_CPU_PART inline One raw(unsigned short bits) {
    return One(__narrow_raw{bits});
}
CUDAMASTER_CPU_PART inline One from(double value) {
    return raw(__narrow_bits(to_float_odd(value)));
}
CUDAMASTER_CPU_PART inline float value(One a) {
    return __narrow_value(a.__x);
}
CUDAMASTER_CPU_PART inline bool nan(One a) {
    return (a.__x & 0x7fff) > __narrow_infinity;
}
// Sums are exact in double or far from a tie; products are exact; a quotient is never near a tie.
CUDAMASTER_CPU_CONST inline One add(One a, One b) {
    return from(static_cast<double>(value(a)) + value(b));
}
CUDAMASTER_CPU_CONST inline One sub(One a, One b) {
    return from(static_cast<double>(value(a)) - value(b));
}
CUDAMASTER_CPU_CONST inline One mul(One a, One b) {
    return from(static_cast<double>(value(a)) * value(b));
}
CUDAMASTER_CPU_CONST inline One div(One a, One b) {
    return from(static_cast<double>(value(a)) / value(b));
}
CUDAMASTER_CPU_CONST inline One fma(One a, One b, One c) {
    return from(fma_odd(value(a), value(b), value(c)));
}
CUDAMASTER_CPU_CONST inline One neg(One a) {
    return nan(a) ? raw(0x7fff) : raw(a.__x ^ 0x8000);
}
CUDAMASTER_CPU_CONST inline One abs(One a) {
    return nan(a) ? raw(0x7fff) : raw(a.__x & 0x7fff);
}
CUDAMASTER_CPU_CONST inline One sat(One a) {
    return nan(a) || value(a) <= 0 ? raw(0) : value(a) > 1 ? One(1.0f) : a;
}
// -0 is less than +0; NaN gives way, unless both are.
CUDAMASTER_CPU_CONST inline One min(One a, One b) {
    if (nan(a) || nan(b))
        return nan(a) ? (nan(b) ? raw(0x7fff) : b) : a;
    return value(a) < value(b) || (value(a) == value(b) && a.__x & 0x8000) ? a : b;
}
CUDAMASTER_CPU_CONST inline One max(One a, One b) {
    if (nan(a) || nan(b))
        return nan(a) ? (nan(b) ? raw(0x7fff) : b) : a;
    return value(a) > value(b) || (value(a) == value(b) && !(a.__x & 0x8000)) ? a : b;
}
CUDAMASTER_CPU_CONST inline One min_nan(One a, One b) {
    return nan(a) || nan(b) ? raw(0x7fff) : min(a, b);
}
CUDAMASTER_CPU_CONST inline One max_nan(One a, One b) {
    return nan(a) || nan(b) ? raw(0x7fff) : max(a, b);
}

} // namespace __narrow_ops
