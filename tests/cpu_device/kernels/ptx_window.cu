// Kernels that together have more static shared variables than shared addresses, and one of them with a dynamic array of 180 KB.
#include <cuda_runtime.h>

constexpr int kWords = 11000, kDynamic = 180 << 10;

// Writes each word by its shared address; then the variable has to hold it, and the dynamic array what was there.
template <int number> __global__ void own_kernel(int* wrong) {
    extern __shared__ __align__(16) unsigned char dynamic[];
    __shared__ int words[kWords];
    auto* others = reinterpret_cast<int*>(dynamic);
    for (int i = threadIdx.x; i < kDynamic / 4; i += blockDim.x)
        others[i] = -i;
    __syncthreads();
    for (int i = threadIdx.x; i < kWords; i += blockDim.x)
        asm volatile(
            "st.shared.s32 [%0], %1;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(words + i))),
            "r"(number + i)
            : "memory");
    __syncthreads();
    int count = 0;
    for (int i = threadIdx.x; i < kWords; i += blockDim.x)
        count += words[i] != number + i;
    for (int i = threadIdx.x; i < kDynamic / 4; i += blockDim.x)
        count += others[i] != -i;
    atomicAdd(wrong, count);
}

template <int number> void run(int* wrong) {
    auto kernel = own_kernel<number>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kDynamic);
    kernel<<<1, 32, kDynamic>>>(wrong);
}

int main() {
    int *wrong, count = 1;
    cudaMalloc(&wrong, sizeof(int));
    cudaMemset(wrong, 0, sizeof(int));
    run<0>(wrong);
    run<1>(wrong);
    run<2>(wrong);
    run<3>(wrong);
    run<4>(wrong);
    run<5>(wrong);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 9;
    cudaMemcpy(&count, wrong, sizeof(int), cudaMemcpyDeviceToHost);
    cudaFree(wrong);
    return count ? 3 : 0;
}
