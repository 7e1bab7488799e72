#include <cuda_fp16.h>

// Round to nearest, ties to even, to so many bits behind the point.
__device__ float rounded_to(float value, int bits) {
    unsigned int word = __float_as_uint(value), dropped = 23 - bits;
    word += (1u << (dropped - 1)) - 1 + ((word >> dropped) & 1);
    return __uint_as_float(word & ~((1u << dropped) - 1));
}
// 10: TF32; 7: BF16; 3: the wider FP8; 16: FP16, whose range is small too.
__device__ float narrow(float value, int format) {
    return format == 16 ? __half2float(__float2half(value)) : rounded_to(value, format);
}
template <class E> __global__ void round_kernel_optimized(E* to, const E* from, long long n, int format) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += 64 * 256)
        put(to[i], narrow(static_cast<float>(from[i]), format));
}
