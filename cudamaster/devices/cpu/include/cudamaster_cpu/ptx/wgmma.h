// Products of a warpgroup. They are described here, and made by runtime/wgmma.cpp when they are waited for.
#pragma once

#include "cudamaster_cpu/ptx/memory.h"

namespace cudamaster_cpu {
namespace ptx {

// Where an accumulator is: the variable that the statement names, which the product finds and changes later.
template <class Value> CUDAMASTER_CPU_PART inline void* place_of(Value& value) {
    static_assert(sizeof(Value) == 4, "an accumulator has 32 bits");
    return const_cast<std::remove_cv_t<Value>*>(&value);
}

template <class Tag> constexpr int kind_of() {
    return std::is_same<Tag, t_f16>::value    ? CUDAMASTER_CPU_F16
           : std::is_same<Tag, t_bf16>::value ? CUDAMASTER_CPU_BF16
           : std::is_same<Tag, t_tf32>::value ? CUDAMASTER_CPU_TF32
           : std::is_same<Tag, t_e4m3>::value ? CUDAMASTER_CPU_E4M3
           : std::is_same<Tag, t_e5m2>::value ? CUDAMASTER_CPU_E5M2
           : std::is_same<Tag, t_s8>::value   ? CUDAMASTER_CPU_S8
           : std::is_same<Tag, t_u8>::value   ? CUDAMASTER_CPU_U8
           : std::is_same<Tag, t_s32>::value  ? CUDAMASTER_CPU_S32
                                              : CUDAMASTER_CPU_F32;
}

// Takes the operands one after the other; their types tell them apart.
struct WgmmaOperands {
    CudamasterCpuWgmma product{};
    void* accumulators[128]; // as many as there are are set
    int registers = 0, descriptors = 0, numbers = 0;
    long long constants[5] = {1, 1, 0, 0, 0};

    CUDAMASTER_CPU_PART void take(void* place) { accumulators[product.count++] = place; }
    CUDAMASTER_CPU_PART void take(B32 word) {
        (descriptors ? product.places : product.a[registers++]) = word;
    }
    CUDAMASTER_CPU_PART void take(B64 descriptor) {
        product.a_descriptor = product.b_descriptor;
        product.b_descriptor = descriptor;
        ++descriptors;
    }
    CUDAMASTER_CPU_PART void take(bool scale) { product.scale_d = scale; }
    CUDAMASTER_CPU_PART void take(long long constant) { constants[numbers++] = constant; }
    CUDAMASTER_CPU_PART void take(int constant) { constants[numbers++] = constant; }
};

template <class D, class A, class B, class... More>
CUDAMASTER_CPU_PART inline void make_product(WgmmaOperands& all, const long long* constants,
                                             const void* site) {
    CudamasterCpuWgmma& product = all.product;
    product.d_kind = kind_of<D>();
    product.a_kind = kind_of<A>();
    product.b_kind = kind_of<B>();
    product.columns = product.count * (std::is_same<D, t_f16>::value ? 4 : 2);
    product.a_in_registers = all.registers > 0;
    product.a_negated = constants[0] < 0;
    product.b_negated = constants[1] < 0;
    // Of a factor in registers it need not be said how it lies.
    product.a_transposed = all.registers ? 0 : static_cast<int>(constants[2]);
    product.b_transposed = static_cast<int>(constants[all.registers ? 2 : 3]);
    product.saturates = has<t_satfinite, More...>;
    product.site = site;
    product.d = all.accumulators;
    cudamaster_cpu_wgmma(&product);
}
template <class Sync, class Aligned, class Shape, class D, class A, class B, class... More, class... Operands>
CUDAMASTER_CPU_ONE void wgmma_mma_async(Operands... operands) {
    WgmmaOperands all;
    (all.take(operands), ...);
    make_product<D, A, B, More...>(all, all.constants, __builtin_return_address(0));
}
// The first of its constants is the selector.
template <class Sync, class Aligned, class Shape, class D, class A, class B, class... Operands>
CUDAMASTER_CPU_ONE void wgmma_mma_async_sp(Operands... operands) {
    WgmmaOperands all;
    (all.take(operands), ...);
    all.product.sparse = 1;
    all.product.selector = static_cast<unsigned>(all.constants[0]);
    make_product<D, A, B>(all, all.constants + 1, __builtin_return_address(0));
}
template <class... Tags> inline void wgmma_fence() {
    cudamaster_cpu_wgmma_fence();
}
template <class... Tags> inline void wgmma_commit_group() {
    cudamaster_cpu_wgmma_commit();
}
template <class... Tags> inline void wgmma_wait_group(long long left) {
    cudamaster_cpu_wgmma_wait(static_cast<unsigned>(left));
}

} // namespace ptx
} // namespace cudamaster_cpu
