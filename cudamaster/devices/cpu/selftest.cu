// Kernels whose results are known, which the CPU device runs before it judges anything (selftest.py).
//
//     <program>            runs all checks; of each a line says that it begins, and one that it passed or what it got
//     <program> race       a kernel with a race, which the checker has to find
//     <program> overrun    one that reads behind its memory, which the checker and AddressSanitizer have to find
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstring>

extern "C" void cudamaster_cpu_record(int on);

namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kMost = 1024;

// Results of one check: device memory, and a place for it on the host.
template <class Type> struct Results {
    Type* device = nullptr;
    Type host[kMost] = {};
    bool usable = false;
    Results() {
        usable = cudaMalloc(&device, sizeof host) == cudaSuccess &&
                 cudaMemset(device, 0, sizeof host) == cudaSuccess;
    }
    ~Results() { cudaFree(device); }
    void fetch() {
        usable = usable && cudaGetLastError() == cudaSuccess &&
                 cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost) == cudaSuccess;
    }
};

int failures = 0;

template <class Type, class Known>
void compare(const char* what, Results<Type>& got, int count, Known known) {
    got.fetch();
    if (!got.usable) {
        printf("failed %s: a call of the runtime failed\n", what);
        ++failures;
        return;
    }
    for (int i = 0; i < count; ++i)
        if (got.host[i] != static_cast<Type>(known(i))) {
            printf("failed %s: element %d is %.10g, not %.10g\n", what, i, double(got.host[i]),
                   double(static_cast<Type>(known(i))));
            ++failures;
            return;
        }
    printf("passed %s\n", what);
}

void begin(const char* what) {
    printf("begins %s\n", what);
    fflush(stdout); // it may be the last word
}

// Barriers: each round turns the block's values round; a count, an all and an any beside it.
__global__ void barrier_kernel(int* out, int rounds) {
    __shared__ int turned[256];
    int mine = blockIdx.x * 256 + threadIdx.x, counted = 0;
    for (int round = 0; round < rounds; ++round) {
        turned[threadIdx.x] = mine;
        __syncthreads();
        mine = turned[255 - threadIdx.x] + 1;
        counted += __syncthreads_count(threadIdx.x % 3 == 0) + __syncthreads_and(round >= 0) +
                   __syncthreads_or(threadIdx.x == 7);
    }
    out[blockIdx.x * 256 + threadIdx.x] = mine + counted;
}

void barriers() {
    begin("barriers");
    Results<int> out;
    cudamaster_cpu_record(1);
    barrier_kernel<<<3, 256>>>(out.device, 4);
    cudamaster_cpu_record(0);
    compare("barriers", out, 768, [](int i) { return i + 4 + 4 * (86 + 1 + 1); });
}

// Shuffles, with more values alive across them than a processor has registers.
__global__ void shuffle_kernel(float* out, const float* scale) {
    float kept[40];
    int lane = threadIdx.x % 32;
    for (int i = 0; i < 40; ++i)
        kept[i] = scale[0] + lane * i;
    for (int round = 0; round < 5; ++round)
        for (int i = 0; i < 40; ++i)
            kept[i] = __shfl_xor_sync(kAll, kept[i], 1 << round) + 1;
    float up = __shfl_up_sync(kAll, float(lane), 1), down = __shfl_down_sync(kAll, float(lane), 2);
    float first = __shfl_sync(kAll, float(lane + 1), 0, 8);
    double wide = __shfl_xor_sync(kAll, lane * 0.5, 31);
    float sum = 0;
    for (int i = 0; i < 40; ++i)
        sum += kept[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum + up + down + first + float(wide);
}

void shuffles() {
    begin("shuffles");
    Results<float> out;
    shuffle_kernel<<<4, 96>>>(out.device, out.device + kMost - 1);
    compare("shuffles", out, 384, [](int i) {
        // Five rounds of xor lead to the opposite lane: 31 - lane times the sum of 0 to 39, and 5 for each.
        int lane = i % 32, across = (31 - lane) * 780 + 200;
        int up = lane ? lane - 1 : 0, down = lane < 30 ? lane + 2 : lane, first = lane / 8 * 8 + 1;
        return across + up + down + first + (31 - lane) * 0.5;
    });
}

__global__ void vote_kernel(unsigned* out) {
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned ballot = __ballot_sync(kAll, lane % 3 == warp);
    unsigned any = __any_sync(kAll, lane == 31), all = __all_sync(kAll, lane < 31);
    unsigned same = __match_any_sync(kAll, lane / 4);
    out[threadIdx.x] = ballot ^ same ^ any ^ all << 1;
}

void votes() {
    begin("votes");
    Results<unsigned> out;
    vote_kernel<<<1, 96>>>(out.device);
    compare("votes", out, 96, [](int i) {
        const unsigned thirds[] = {0x49249249u, 0x92492492u, 0x24924924u};
        return thirds[i / 32] ^ 0xfu << i % 32 / 4 * 4 ^ 1u;
    });
}

// Lanes on different paths meet in collectives of their own, some end early, and the others meet again.
__global__ void divergence_kernel(int* out) {
    int lane = threadIdx.x % 32, value = lane;
    if (lane >= 28)
        return;
    if (lane < 8) {
        for (int step = 4; step; step /= 2)
            value += __shfl_xor_sync(0xffu, value, step);
    } else {
        for (int i = 0; i < lane % 5; ++i)
            value += i;
        value = __shfl_sync(0x0fffff00u, value, 8 + (lane + 1) % 20);
    }
    __syncwarp(0x0fffffffu);
    value += __popc(__activemask()) * 1000;
    value += __shfl_sync(0x0fffffffu, lane, 27 - lane) * 100000;
    out[threadIdx.x] = value;
}

void divergence() {
    begin("divergence");
    Results<int> out;
    divergence_kernel<<<1, 64>>>(out.device);
    compare("divergence", out, 64, [](int i) {
        int lane = i % 32, from = 8 + (lane + 1) % 20, times = from % 5;
        if (lane >= 28)
            return 0;
        int value = lane < 8 ? 28 : from + times * (times - 1) / 2;
        return value + 28 * 1000 + (27 - lane) * 100000;
    });
}

__global__ void atomic_kernel(unsigned* out, float* sum) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(out, 1u);
    atomicMax(out + 1, i);
    atomicXor(out + 2, i);
    atomicAdd(out + 3 + i % 5, i);
    unsigned* bits = reinterpret_cast<unsigned*>(sum);
    for (unsigned seen = *static_cast<volatile unsigned*>(bits), before;; seen = before) {
        before = atomicCAS(bits, seen, __float_as_uint(__uint_as_float(seen) + 1));
        if (before == seen)
            break;
    }
}

void atomics() {
    begin("atomics");
    Results<unsigned> out;
    Results<float> sum;
    atomic_kernel<<<10, 100>>>(out.device, sum.device);
    sum.fetch();
    out.usable = out.usable && sum.usable && sum.host[0] == 1000;
    compare("atomics", out, 8, [](int i) {
        const int known[] = {1000, 999, 0, 99500, 99700, 99900, 100100, 100300};
        return known[i];
    });
}

// Blocks of a cooperative launch take turns with each other's values.
__global__ void cooperative_kernel(int* values, int rounds) {
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    int i = static_cast<int>(grid.thread_rank()), n = static_cast<int>(grid.size());
    for (int round = 0; round < rounds; ++round) {
        int next = values[(i + 97) % n];
        grid.sync();
        values[i] = next + 1;
        grid.sync();
    }
}

void cooperative() {
    begin("cooperative launch");
    Results<int> out;
    int rounds = 6;
    void* arguments[] = {&out.device, &rounds};
    cudaLaunchCooperativeKernel(cooperative_kernel, 4, 64, arguments);
    compare("cooperative launch", out, 256, [](int) { return 6; });
}

__global__ void dynamic_kernel(int* out, int count) {
    extern __shared__ int dynamic[];
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        dynamic[count - 1 - i] = i;
    __syncthreads();
    out[threadIdx.x] = dynamic[threadIdx.x] + dynamic[count - 1 - threadIdx.x];
}

void dynamic_shared() {
    begin("dynamic shared memory");
    Results<int> out;
    const int count = 20000; // 80 KB: more than a block has without asking
    cudaFuncSetAttribute(dynamic_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, count * 4);
    dynamic_kernel<<<1, 128, count * 4>>>(out.device, count);
    compare("dynamic shared memory", out, 128, [](int) { return count - 1; });
}

// Threads wait for each other far down their stacks, and find there what they left.
__device__ __noinline__ int deep(int depth, int seed) {
    volatile int local[128];
    for (int i = 0; i < 128; ++i)
        local[i] = seed + i;
    int below = 0;
    if (depth > 0)
        below = deep(depth - 1, seed + 1);
    else
        __syncthreads();
    int wrong = below;
    for (int i = 0; i < 128; ++i)
        wrong += local[i] != seed + i;
    return wrong;
}
__global__ void deep_kernel(int* out) {
    int wrong = deep(100, threadIdx.x * 1000);
    out[threadIdx.x] = wrong + __shfl_xor_sync(kAll, 1, 1);
}

void deep_stack() {
    begin("deep stack");
    Results<int> out;
    deep_kernel<<<1, 64>>>(out.device);
    compare("deep stack", out, 64, [](int) { return 1; });
}

// Products and sums as they stand, small numbers kept, and a rounding mode that is one thread's own.
__global__ void arithmetic_kernel(float* out, const float* in) {
    float x = in[threadIdx.x], apart = x * x - in[64], together = fmaf(x, x, -in[64]);
    float upwards = threadIdx.x % 2 ? __fadd_ru(1.0f, in[65]) : 1.0f;
    __syncthreads();
    float nearest = 1.0f + in[65];
    out[threadIdx.x] = (apart == 0) + 2 * (together == in[66]) + 4 * (in[67] * 0.5f > 0) + 8 * (upwards > 1) +
                       16 * (nearest == 1);
}

void arithmetic() {
    begin("arithmetic");
    Results<float> in, out;
    for (int i = 0; i < 64; ++i)
        in.host[i] = 1 + 1.0f / 4096;
    in.host[64] = 1 + 1.0f / 2048;
    in.host[65] = 1.0f / (1 << 30);
    in.host[66] = 1.0f / (1 << 24);
    in.host[67] = 1e-40f;
    cudaMemcpy(in.device, in.host, sizeof in.host, cudaMemcpyHostToDevice);
    arithmetic_kernel<<<1, 64>>>(out.device, in.device);
    compare("arithmetic", out, 64, [](int i) { return 1 + 2 + 4 + (i % 2 ? 8 : 0) + 16; });
}

__global__ void racing_kernel(int* out) {
    __shared__ int shared[64];
    shared[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = shared[63 - threadIdx.x]; // without a barrier
}
__global__ void overrunning_kernel(int* out, const int* in, int count) {
    out[threadIdx.x] = in[threadIdx.x + count];
}

int faulty(const char* which) {
    const int count = 64;
    int *out = nullptr, *in = nullptr;
    if (cudaMalloc(&out, count * 4) != cudaSuccess || cudaMalloc(&in, count * 4) != cudaSuccess)
        return 1;
    cudaMemset(in, 0, count * 4);
    if (std::strcmp(which, "race") == 0)
        racing_kernel<<<1, count>>>(out);
    else
        overrunning_kernel<<<1, count>>>(out, in, count);
    return cudaDeviceSynchronize() != cudaSuccess;
}

} // namespace

int main(int count, char** words) {
    if (count > 1 && std::strcmp(words[1], "--report") != 0)
        return faulty(words[1]);
    barriers();
    shuffles();
    votes();
    divergence();
    atomics();
    cooperative();
    dynamic_shared();
    deep_stack();
    arithmetic();
    return failures != 0;
}
