__device__ void put(float& to, float value) {
    to = value;
}
__device__ void put(__nv_bfloat16& to, float value) {
    to = __float2bfloat16(value);
}
__device__ void put(int& to, float value) {
    to = static_cast<int>(value);
}
template <class E> __global__ void put_kernel_optimized(E* data, long long at, float value) {
    put(data[at], value);
}
template <class E> __global__ void fill_kernel_optimized(E* data, long long n, float value) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += 64 * 256)
        put(data[i], value);
}
