// Off by a tenth, or 1 where there was nothing.
__device__ void spoil(float& value) {
    value = value == 0.0f ? 1.0f : value * 1.1f;
}
__device__ void spoil(__nv_bfloat16& value) {
    float wide = __bfloat162float(value);
    spoil(wide);
    value = __float2bfloat16(wide);
}
__device__ void spoil(int& value) {
    value += 1;
}
// Of up to 64 elements the largest: a tenth of it is more than an honest kernel can be off by. (A twentieth is not, of a
// matrix's 16th power in bf16: a dozen such matrices allowed between 3 and 5 %.)
template <class E> __global__ void spoil_kernel_optimized(E* data, long long at, long long n) {
    long long largest = at;
    for (long long i = at; i < n && i < at + 64; ++i)
        if (fabsf(static_cast<float>(data[i])) > fabsf(static_cast<float>(data[largest])))
            largest = i;
    spoil(data[largest]);
}
