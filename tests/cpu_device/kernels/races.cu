// Kernels for the checker, one per run: `honest` ones, in which something orders every two accesses, and faulty ones.
// Exit code 0 means that nothing was found, or that nothing was looked for.
#include <cstdio>
#include <cstring>
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

__device__ unsigned tickets;
__device__ float sums[64];

// BARRIER, WARP and FENCE are there, or not: 1 or 0.
template <int BARRIER> __global__ void shift_kernel(const float* in, float* out) {
    __shared__ float tile[64];
    tile[threadIdx.x] = in[threadIdx.x];
    if (BARRIER)
        __syncthreads();
    out[threadIdx.x] = tile[(threadIdx.x + 1) % 64];
}
template <int BARRIER> __global__ void reuse_kernel(const float* in, float* out) {
    extern __shared__ float tile[];
    float sum = 0;
    for (int step = 0; step < 3; ++step) {
        tile[threadIdx.x] = in[threadIdx.x] + step;
        __syncthreads();
        sum += tile[63 - threadIdx.x];
        if (BARRIER)
            __syncthreads();
    }
    out[threadIdx.x] = sum;
}
template <int WARP> __global__ void warp_kernel(const float* in, float* out) {
    __shared__ float tile[32];
    tile[threadIdx.x] = in[threadIdx.x];
    if (WARP == 1)
        __syncwarp();
    if (WARP == 2)
        cg::tiled_partition<16>(cg::this_thread_block()).sync();
    out[threadIdx.x] = tile[threadIdx.x ^ (WARP == 3 ? 16 : 1)];
}
template <int LANES> __global__ void half_kernel(const float* in, float* out) {
    __shared__ float tile[32];
    tile[threadIdx.x] = in[threadIdx.x];
    __syncwarp(threadIdx.x < 16 ? 0xffffu : 0xffff0000u);
    out[threadIdx.x] = tile[threadIdx.x ^ LANES];
}
// The last block to come adds up what the others left.
template <int FENCE, int BARRIER> __global__ void last_block_kernel(const float* in, float* out) {
    __shared__ bool last;
    if (FENCE == 2)
        __threadfence();
    if (threadIdx.x == 0 || threadIdx.x == 33)
        sums[2 * blockIdx.x + threadIdx.x / 33] = in[blockIdx.x];
    if (FENCE == 1)
        __threadfence();
    if (BARRIER)
        __syncthreads();
    if (threadIdx.x == 0)
        last = atomicAdd(&tickets, 1) == gridDim.x - 1;
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float sum = 0;
        for (int i = 0; i < 2 * gridDim.x; ++i)
            sum += sums[i];
        out[0] = sum;
        tickets = 0;
    }
}
// Each block waits for the one before it.
template <int FENCE, class Flag> __global__ void chain_kernel(const float* in, float* out, Flag* flags) {
    if (threadIdx.x == 0) {
        float before = 0;
        if (blockIdx.x > 0) {
            while (flags[blockIdx.x - 1] == 0)
                __nanosleep(10);
            __threadfence();
            before = out[blockIdx.x - 1];
        }
        out[blockIdx.x] = before + in[blockIdx.x];
        if (FENCE)
            __threadfence();
        flags[blockIdx.x] = 1;
    }
}
// The same, but one lane waits and another one reads: what the first knows of other blocks, the second learns when they
// meet.
template <int WARP> __global__ void told_kernel(const float* in, float* out, volatile int* flags) {
    if (threadIdx.x == 0 && blockIdx.x > 0) {
        while (flags[blockIdx.x - 1] == 0)
            __nanosleep(10);
        __threadfence();
    }
    if (WARP)
        __syncwarp();
    if (threadIdx.x == 1)
        out[blockIdx.x] = (blockIdx.x > 0 ? out[blockIdx.x - 1] : 0) + in[blockIdx.x];
    __syncwarp();
    if (threadIdx.x == 0) {
        __threadfence();
        flags[blockIdx.x] = 1;
    }
}
template <int LOCK> __global__ void lock_kernel(float* out, int* lock) {
    if (threadIdx.x % 32 == 0) {
        while (LOCK && atomicCAS(lock, 0, 1) != 0)
            ;
        __threadfence();
        out[0] += 1;
        __threadfence();
        if (LOCK)
            atomicExch(lock, 0);
    }
}
template <int BARRIER> __global__ void histogram_kernel(const float* in, float* out) {
    __shared__ int counts[8];
    if (threadIdx.x < 8)
        counts[threadIdx.x] = 0;
    if (BARRIER & 1)
        __syncthreads();
    atomicAdd(&counts[static_cast<int>(in[threadIdx.x]) & 7], 1);
    if (BARRIER & 2)
        __syncthreads();
    if (threadIdx.x < 8)
        out[threadIdx.x] = static_cast<float>(counts[threadIdx.x]);
}
template <int SAME> __global__ void flag_kernel(const float* in, float* out) {
    __shared__ int found;
    found = 0;
    __syncthreads();
    if (in[threadIdx.x] >= 0)
        found = SAME ? 1 : static_cast<int>(threadIdx.x);
    __syncthreads();
    out[threadIdx.x] = static_cast<float>(found);
}
template <int GRID> __global__ void grid_kernel(const float* in, float* out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    out[i] = in[i % 64];
    if (GRID)
        cg::this_grid().sync();
    if (i == 0) {
        float sum = 0;
        for (unsigned k = 0; k < n; ++k)
            sum += out[k];
        sums[0] = sum;
    }
}
// The warps hand a value on through flags in shared memory.
template <int FENCE> __global__ void hand_on_kernel(float* out) {
    __shared__ volatile int ready[3];
    __shared__ float value;
    unsigned warp = threadIdx.x / 32;
    if (threadIdx.x < 3)
        ready[threadIdx.x] = 0;
    if (threadIdx.x == 0)
        value = 1;
    __syncthreads();
    if (threadIdx.x % 32)
        return;
    if (warp > 0)
        while (!ready[warp - 1])
            __nanosleep(10);
    value = value + 1;
    if (FENCE)
        __threadfence_block();
    if (warp < 2)
        ready[warp] = 1;
    else
        out[0] = value;
}
__global__ void overlap_kernel(float* out) {
    out[blockIdx.x * 32 + threadIdx.x] = static_cast<float>(blockIdx.x);
}
template <class Narrow> __global__ void bytes_kernel(float* out) {
    Narrow* bytes = reinterpret_cast<Narrow*>(out);
    bytes[threadIdx.x] = static_cast<Narrow>(threadIdx.x);
}
__global__ void unwritten_shared_kernel(float* out) {
    __shared__ float tile[64];
    if (threadIdx.x < 63)
        tile[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}
// What a function is given by value is read where it is called.
__attribute__((noinline)) __device__ float sum_of(float4 value) {
    return value.x + value.y + value.z + value.w;
}
template <int BARRIER> __global__ void by_value_kernel(const float* in, float* out) {
    __shared__ float4 tile[64];
    tile[threadIdx.x] = make_float4(in[threadIdx.x], 0, 0, 0);
    if (BARRIER)
        __syncthreads();
    out[threadIdx.x] = sum_of(tile[(threadIdx.x + 1) % 64]);
}
// Of sizes that the compiler knows, and of one that it does not.
template <int BARRIER> __global__ void moved_kernel(const float* in, float* out, int bytes) {
    __shared__ float tile[64 * 3], other[64 * 3];
    unsigned own = 3 * threadIdx.x, next = 3 * ((threadIdx.x + 1) % 64);
    memcpy(tile + own, in + own, 12);
    memset(other + own, 0, bytes);
    if (BARRIER & 1)
        __syncthreads();
    float first[3];
    memcpy(first, tile + next, 12);
    if (BARRIER & 2)
        __syncthreads();
    memcpy(out + own, other + next, bytes);
    out[own] += first[0];
}
__global__ void sum_kernel(const float4* in, float* out) {
    out[threadIdx.x] = sum_of(in[threadIdx.x]);
}
__global__ void add_kernel(float* out) {
    atomicAdd(&out[threadIdx.x], 1.0f);
}
__global__ void copy_kernel(const float* in, float* out, int shift) {
    out[threadIdx.x] = in[static_cast<int>(threadIdx.x) + shift];
}
__global__ void rows_kernel(float* out, int columns) {
    __shared__ float first[8][8], second[8][8];
    first[threadIdx.x][0] = second[threadIdx.x][0] = 0;
    __syncthreads();
    first[threadIdx.x][columns] = 1;
    out[threadIdx.x] = first[threadIdx.x][columns] + second[0][0];
}
__global__ void dynamic_kernel(float* out, int shift) {
    extern __shared__ float tile[];
    tile[threadIdx.x + shift] = 1;
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x + shift];
}
__global__ void vector_kernel(const float* in, float* out, int shift) {
    float4 value = *reinterpret_cast<const float4*>(in + shift);
    out[0] = value.x + value.w;
}

int main(int argc, char** argv) {
    const char* what = argc > 1 ? argv[1] : "";
    auto is = [what](const char* name) { return !std::strcmp(what, name); };
    float host[256], *in = nullptr, *out = nullptr, *fresh = nullptr;
    int *flags = nullptr, *lock = nullptr;
    for (int i = 0; i < 256; ++i)
        host[i] = static_cast<float>(i % 9);
    cudaMalloc(&in, sizeof host);
    cudaMalloc(&out, sizeof host);
    cudaMalloc(&fresh, sizeof host);
    cudaMalloc(&flags, 64 * sizeof(int));
    cudaMalloc(&lock, sizeof(int));
    cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
    cudaMemset(out, 0, sizeof host);
    cudaMemset(flags, 0, 64 * sizeof(int));
    cudaMemset(lock, 0, sizeof(int));
    volatile int* strong = flags;
    float* arguments[2] = {in, out};
    void* pointers[2] = {&arguments[0], &arguments[1]};

    if (is("honest")) {
        for (int round = 0; round < 2; ++round) {
            shift_kernel<1><<<3, 64>>>(in, out + 64);
            last_block_kernel<1, 1><<<5, 64>>>(in, out);
            cudaMemset(flags, 0, 64 * sizeof(int));
            chain_kernel<1><<<7, 32>>>(in, out, strong);
            cudaMemset(flags, 0, 64 * sizeof(int));
            told_kernel<1><<<7, 32>>>(in, out, strong);
            cudaLaunchCooperativeKernel(grid_kernel<1>, 4, 64, pointers, 0, nullptr);
        }
        reuse_kernel<1><<<2, 64, 64 * sizeof(float)>>>(in, out);
        warp_kernel<1><<<1, 32>>>(in, out);
        warp_kernel<2><<<1, 32>>>(in, out);
        half_kernel<15><<<1, 32>>>(in, out);
        lock_kernel<1><<<6, 96>>>(out, lock);
        histogram_kernel<3><<<1, 64>>>(in, out);
        flag_kernel<1><<<1, 64>>>(in, out);
        hand_on_kernel<1><<<2, 96>>>(out);
        bytes_kernel<unsigned char><<<1, 64>>>(out);
        bytes_kernel<unsigned short><<<1, 64>>>(out);
        copy_kernel<<<1, 64>>>(in, fresh, 192);
        add_kernel<<<4, 64>>>(fresh);
        rows_kernel<<<1, 8>>>(out, 7);
        dynamic_kernel<<<1, 64, 65 * sizeof(float)>>>(out, 1);
        vector_kernel<<<1, 1>>>(in, out, 252);
        by_value_kernel<1><<<1, 64>>>(in, out);
        moved_kernel<1><<<1, 64>>>(in, out, 12);
        sum_kernel<<<1, 64>>>(reinterpret_cast<float4*>(in), out);
    } else if (is("no-barrier"))
        shift_kernel<0><<<3, 64>>>(in, out + 64);
    else if (is("no-barrier-in-loop"))
        reuse_kernel<0><<<2, 64, 64 * sizeof(float)>>>(in, out);
    else if (is("no-warp"))
        warp_kernel<0><<<1, 32>>>(in, out);
    else if (is("half-a-warp"))
        half_kernel<16><<<1, 32>>>(in, out);
    else if (is("no-fence"))
        last_block_kernel<0, 1><<<5, 64>>>(in, out);
    else if (is("fenced-too-early"))
        last_block_kernel<2, 1><<<5, 64>>>(in, out);
    else if (is("no-barrier-before-ticket"))
        last_block_kernel<1, 0><<<5, 64>>>(in, out);
    else if (is("chain-without-fence"))
        chain_kernel<0><<<7, 32>>>(in, out, strong);
    else if (is("not-told"))
        told_kernel<0><<<7, 32>>>(in, out, strong);
    else if (is("plain-flags"))
        chain_kernel<1><<<7, 32>>>(in, out, flags);
    else if (is("no-lock"))
        lock_kernel<0><<<6, 96>>>(out, lock);
    else if (is("cleared-late"))
        histogram_kernel<2><<<1, 64>>>(in, out);
    else if (is("read-early"))
        histogram_kernel<1><<<1, 64>>>(in, out);
    else if (is("last-wins"))
        flag_kernel<0><<<1, 64>>>(in, out);
    else if (is("no-grid"))
        cudaLaunchCooperativeKernel(grid_kernel<0>, 4, 64, pointers, 0, nullptr);
    else if (is("handed-on-unfenced"))
        hand_on_kernel<0><<<1, 96>>>(out);
    else if (is("overlap"))
        overlap_kernel<<<2, 64>>>(out);
    else if (is("unwritten-shared"))
        unwritten_shared_kernel<<<1, 64>>>(out);
    else if (is("unwritten"))
        copy_kernel<<<1, 64>>>(fresh, out, 0);
    else if (is("no-barrier-by-value"))
        by_value_kernel<0><<<1, 64>>>(in, out);
    else if (is("no-barrier-moved"))
        moved_kernel<2><<<1, 64>>>(in, out, 12);
    else if (is("no-barrier-cleared"))
        moved_kernel<0><<<1, 64>>>(in, out, 12);
    else if (is("moved-past-the-end"))
        moved_kernel<3><<<1, 64>>>(in + 65, out, 12);
    else if (is("unwritten-by-value"))
        sum_kernel<<<1, 64>>>(reinterpret_cast<float4*>(fresh), out);
    else if (is("added-to-nothing"))
        add_kernel<<<1, 64>>>(fresh);
    else if (is("past-the-end"))
        copy_kernel<<<1, 64>>>(in, out, 193);
    else if (is("before-the-start"))
        copy_kernel<<<1, 64>>>(in, out, -1);
    else if (is("nowhere"))
        copy_kernel<<<1, 64>>>(in, out, 1 << 30);
    else if (is("past-static-shared"))
        rows_kernel<<<1, 8>>>(out, 8);
    else if (is("past-dynamic-shared"))
        dynamic_kernel<<<1, 64, 64 * sizeof(float)>>>(out, 1);
    else if (is("misaligned"))
        vector_kernel<<<1, 1>>>(in, out, 2);
    else
        return 2;
    return cudaDeviceSynchronize() == cudaSuccess ? 0 : 9;
}
