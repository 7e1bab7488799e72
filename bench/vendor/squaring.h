// The products that make a power of a matrix: squares of squares, and products of those that P's binary digits ask for,
// as torch.linalg.matrix_power makes them.
#pragma once
#include <cuda_runtime.h>
#include "vendor/check.h"

namespace vendor {

template <class T> class Powers {
  public:
    void hold(long long n) {
        for (Memory& memory : own_)
            memory.hold(n * n * sizeof(T));
    }

    // B = A^P by multiply(left, right, to) of N x N matrices; the last of the products goes to B.
    template <class Multiply> void raise(const T* A, T* B, int N, int P, const Multiply& multiply) const {
        const T *square = A,
                *power = P & 1 ? A : nullptr; // A^(2^i), and the product of those that P has so far
        if (P == 1)
            VENDOR_CHECK(cudaMemcpyAsync(B, A, sizeof(T) * N * N, cudaMemcpyDeviceToDevice));
        for (int rest = P >> 1; rest > 0; rest >>= 1) {
            bool last = rest == 1;
            T* to = last && power == nullptr ? B : unused(square, power);
            multiply(square, square, to);
            square = to;
            if (rest & 1 && power == nullptr) {
                power = square;
            } else if (rest & 1) {
                to = last ? B : unused(square, power);
                multiply(power, square, to);
                power = to;
            }
        }
    }

  private:
    T* unused(const T* square, const T* power) const {
        for (const Memory& memory : own_)
            if (memory.get() != square && memory.get() != power)
                return memory.as<T>();
        return nullptr; // not reached: three are more than two
    }

    Memory own_[3];
};

} // namespace vendor
