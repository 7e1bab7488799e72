template <class E> __global__ void copy_kernel_optimized(E* to, const E* from, long long n) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += 64 * 256)
        to[i] = from[i];
}
// Every `step`-th element stands for its neighbours, too.
template <class E> __global__ void sample_kernel_optimized(E* to, const E* from, long long n, int step) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += 64 * 256)
        to[i] = from[i % step == step - 1 ? i - 1 : i];
}
