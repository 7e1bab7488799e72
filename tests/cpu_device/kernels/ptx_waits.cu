// Kernels that wait too little, one by name; and those that wait as much as they have to. STEP(n) stands where a mutant
// leaves something out.
#include <cstdio>
#include <cstring>

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

enum Left { kNothing, kWait, kOneGroup, kBarrier, kSecondBarrier, kSource, kFree, kFull };

template <int left> __global__ void stream_kernel(float4* in, float* out, int stages) {
    __shared__ float4 stage[2][64];
    unsigned t = threadIdx.x;
    auto start = [&](int number) {
        if (number < stages)
            asm volatile(
                "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&stage[number % 2][t])),
                "l"(in + number * 64 + t)
                : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    start(0);
    float sum = 0;
    for (int number = 0; number < stages; ++number) {
        start(number + 1);
        if (left == kSource && number + 1 < stages)
            in[(number + 1) * 64 + t] = make_float4(0, 0, 0, 0);
        if (left == kOneGroup)
            asm volatile("cp.async.wait_group 2;" ::: "memory");
        else if (left != kWait)
            asm volatile("cp.async.wait_group 1;" ::: "memory");
        if (left != kBarrier)
            __syncthreads();
        float4 value = stage[number % 2][63 - t];
        sum += value.x + value.y + value.z + value.w;
        if (left != kSecondBarrier)
            __syncthreads();
    }
    out[t] = sum;
}

// Each thread reads what it has copied itself: no barrier is needed, but the wait is.
template <int left> __global__ void own_kernel(const float4* in, float* out) {
    __shared__ float4 stage[64];
    unsigned t = threadIdx.x;
    stage[t] = make_float4(1, 1, 1, 1);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(stage + t)), "l"(in + t)
                 : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (left != kWait)
        asm volatile("cp.async.wait_group 0;" ::: "memory");
    out[t] = stage[t].x + stage[t].y;
}

// Two warps make what the others take, by barriers with numbers.
template <int left> __global__ void halves_kernel(float4*, float* out, int rounds) {
    __shared__ float stage[64];
    unsigned t = threadIdx.x;
    float sum = 0;
    if (t < 64)
        for (int round = 0; round < rounds; ++round) {
            if (left != kFree)
                asm volatile("bar.sync 2, 128;" ::: "memory");
            stage[t] = t + round;
            if (left != kFull)
                asm volatile("bar.arrive 1, 128;" ::: "memory");
        }
    else
        for (int round = 0; round < rounds; ++round) {
            if (left != kFree)
                asm volatile("bar.arrive 2, 128;" ::: "memory");
            if (left != kFull)
                asm volatile("bar.sync 1, 128;" ::: "memory");
            sum += stage[127 - t];
        }
    if (t >= 64)
        out[t - 64] = sum;
}

int main(int, char** names) {
    const int stages = 5;
    float4 values[64 * stages];
    float wanted[64] = {}, own[64], halves[64] = {}, got[64];
    for (int i = 0; i < 64 * stages; ++i)
        values[i] = make_float4(i, 2 * i, 3, 4);
    for (int t = 0; t < 64; ++t) {
        own[t] = 3 * t;
        for (int number = 0; number < stages; ++number) {
            const float4& value = values[number * 64 + 63 - t];
            wanted[t] += value.x + value.y + value.z + value.w;
            halves[t] += 63 - t + number;
        }
    }
    float4* in;
    float* out;
    cudaMalloc(&in, sizeof values);
    cudaMalloc(&out, sizeof got);
    cudaMemcpy(in, values, sizeof values, cudaMemcpyHostToDevice);
    const char* name = names[1];
    const float* right = wanted;
    auto is = [&](const char* other) { return !std::strcmp(name, other); };
    if (is("stream"))
        stream_kernel<kNothing><<<1, 64>>>(in, out, stages);
    else if (is("no-wait"))
        stream_kernel<kWait><<<1, 64>>>(in, out, stages);
    else if (is("one-group-too-few"))
        stream_kernel<kOneGroup><<<1, 64>>>(in, out, stages);
    else if (is("no-barrier"))
        stream_kernel<kBarrier><<<1, 64>>>(in, out, stages);
    else if (is("no-second-barrier"))
        stream_kernel<kSecondBarrier><<<1, 64>>>(in, out, stages);
    else if (is("source"))
        stream_kernel<kSource><<<1, 64>>>(in, out, stages);
    else if (is("own"))
        own_kernel<kNothing><<<1, 64>>>(in, out), right = own;
    else if (is("own-no-wait"))
        own_kernel<kWait><<<1, 64>>>(in, out), right = own;
    else if (is("halves"))
        halves_kernel<kNothing><<<1, 128>>>(in, out, stages), right = halves;
    else if (is("halves-not-free"))
        halves_kernel<kFree><<<1, 128>>>(in, out, stages), right = halves;
    else
        halves_kernel<kFull><<<1, 128>>>(in, out, stages), right = halves;
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 9;
    cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost);
    cudaFree(in);
    cudaFree(out);
    return std::memcmp(got, right, sizeof got) ? 3 : 0;
}
