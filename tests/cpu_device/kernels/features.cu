// Kernels with known answers, one check per feature. A failed EXPECT prints its line and makes the exit
// code 1.
#include <cfenv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

static int failures = 0;
#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            if (failures++ < 5)                                                                              \
                fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                      \
        }                                                                                                    \
    } while (0)

template <class Type> struct Buffer {
    Type* data = nullptr;
    size_t count;
    explicit Buffer(size_t count_) : count(count_) {
        EXPECT(cudaMalloc(&data, count * sizeof(Type)) == cudaSuccess);
        cudaMemset(data, 0, count * sizeof(Type));
    }
    ~Buffer() { cudaFree(data); }
    std::vector<Type> get() const {
        std::vector<Type> values(count);
        EXPECT(cudaMemcpy(values.data(), data, count * sizeof(Type), cudaMemcpyDeviceToHost) == cudaSuccess);
        return values;
    }
};

// Launches and indices.
namespace outer {
template <class Type, int Scale> __global__ void index_kernel(Type* out, int n, Type offset) {
    int i = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    int at = i * (blockDim.x * blockDim.y * blockDim.z) + t;
    if (at < n)
        out[at] = at * Scale + offset;
}
} // namespace outer
__global__ void deduced(float* out, float value) {
    out[threadIdx.x] = value;
}
template <class Type> __global__ void deduced_template(Type* out, Type value) {
    out[threadIdx.x] = value;
}
struct Pair {
    int first, second;
};
__global__ void converting_kernel(const int* none, Pair pair, float* out, float more = 0.5f) {
    *out = none ? -1 : pair.first * 10 + pair.second + more;
}
template <class Type> __global__ void converting_template(const Type* none, Pair pair, float* out) {
    *out = none ? -1 : pair.first * 10 + pair.second + sizeof(Type);
}
#define LAUNCH(kernel, blocks, ...)                                                                          \
    kernel<<<blocks, 32>>>(__VA_ARGS__);                                                                     \
    EXPECT(cudaGetLastError() == cudaSuccess)

static void launches() {
    Buffer<float> out(2 * 3 * 2 * 4 * 4 * 2);
    outer::index_kernel<float, (3 > 2 ? 2 : 1)><<<dim3(2, 3, 2), dim3(4, 4, 2), 0,
                                                  nullptr>>>(out.data, // all of it
                                                             static_cast<int>(out.count), 1);
    auto values = out.get();
    for (size_t i = 0; i < out.count; ++i)
        EXPECT(values[i] == 2 * i + 1);
    LAUNCH(deduced, 1, out.data, 7);
    LAUNCH(deduced_template, 1, out.data + 32, 9.0f);
    void (*pointer)(float*, float) = deduced;
    pointer<<<1, 16>>>(out.data + 64, 5.0f);
    int calls = 0;
    deduced<<<1, 32>>>(out.data + 96, static_cast<float>(++calls));
    values = out.get();
    EXPECT(values[31] == 7 && values[32] == 9 && values[79] == 5 && values[80] == 161 && values[96] == 1);
    EXPECT(calls == 1);
    converting_kernel<<<1, 1>>>(0, {4, 2}, out.data, 1);
    converting_kernel<<<1, 1>>>(NULL, Pair{5, 2}, out.data + 1);
    converting_template<short><<<1, 1>>>(0, {6, 2}, out.data + 2);
    values = out.get();
    EXPECT(values[0] == 43 && values[1] == 52.5f && values[2] == 64);
    float value = 3;
    float* data = out.data;
    void* arguments[] = {&data, &value};
    EXPECT(cudaLaunchKernel((void*)deduced, dim3(1), dim3(32), arguments, 0, nullptr) == cudaSuccess);
    EXPECT(out.get()[5] == 3);
}

// Barriers.
__global__ void reverse_kernel(int* data) {
    __shared__ int tile[256];
    tile[threadIdx.x] = data[blockIdx.x * 256 + threadIdx.x];
    __syncthreads();
    data[blockIdx.x * 256 + threadIdx.x] = tile[255 - threadIdx.x];
}
__global__ void voting_kernel(int* out) {
    int t = threadIdx.x;
    int count = __syncthreads_count(t % 3 == 0);
    int all = __syncthreads_and(t < 100), none = __syncthreads_and(t < 99);
    int any = __syncthreads_or(t == 57), no = __syncthreads_or(t > 100);
    out[t] = count == 34 && all && !none && any && !no;
}
__global__ void early_exit_kernel(int* out, int n) {
    __shared__ int sum;
    if (threadIdx.x == 0)
        sum = 0;
    __syncthreads();
    if (static_cast<int>(threadIdx.x) >= n)
        return;
    atomicAdd(&sum, 1);
    __syncthreads();
    out[threadIdx.x] = sum;
}

static void barriers() {
    Buffer<int> data(512);
    std::vector<int> input(512);
    for (int i = 0; i < 512; ++i)
        input[i] = i;
    cudaMemcpy(data.data, input.data(), 2048, cudaMemcpyHostToDevice);
    reverse_kernel<<<2, 256>>>(data.data);
    auto values = data.get();
    for (int i = 0; i < 512; ++i)
        EXPECT(values[i] == i / 256 * 256 + 255 - i % 256);
    voting_kernel<<<1, 100>>>(data.data);
    values = data.get();
    for (int i = 0; i < 100; ++i)
        EXPECT(values[i] == 1);
    early_exit_kernel<<<1, 128>>>(data.data, 37);
    values = data.get();
    EXPECT(values[0] == 37 && values[36] == 37);
}

// Warps.
__global__ void warp_kernel(int* out) {
    int lane = threadIdx.x % 32;
    int sum = lane;
    for (int step = 16; step; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    bool ok = sum == 496;
    ok &= __shfl_sync(~0u, lane, 5) == 5 && __shfl_sync(~0u, lane, 5, 8) == lane / 8 * 8 + 5;
    ok &= __shfl_up_sync(~0u, lane, 3) == (lane >= 3 ? lane - 3 : lane);
    ok &= __shfl_down_sync(~0u, lane, 3, 16) == (lane % 16 < 13 ? lane + 3 : lane);
    ok &= __shfl_sync(~0u, lane * 1.5, 7) == 10.5 && __shfl_sync(~0u, 1ll << lane, 31) == 1ll << 31;
    ok &= __ballot_sync(~0u, lane % 2) == 0xaaaaaaaau && __any_sync(~0u, lane == 9) &&
          !__any_sync(~0u, lane > 31);
    ok &= __all_sync(~0u, lane >= 0) && !__all_sync(~0u, lane);
    ok &= __match_any_sync(~0u, lane / 8) == 0xffu << lane / 8 * 8;
    int same = 0;
    ok &= __match_all_sync(~0u, 4, &same) == ~0u && same;
    ok &= __reduce_add_sync(~0u, lane) == 496 && __reduce_max_sync(~0u, lane) == 31 &&
          __reduce_min_sync(~0u, -lane) == -31;
    ok &= __reduce_or_sync(~0u, 1u << lane) == ~0u && __reduce_and_sync(~0u, ~(1u << lane)) == 0;
    // Partial masks, different in the two halves, and a barrier among some lanes only.
    if (lane < 12) {
        ok &= __shfl_sync(0xfffu, lane, 11) == 11 && __ballot_sync(0xfffu, 1) == 0xfffu;
        __syncwarp(0xfffu);
    } else {
        unsigned int mask = ~0xfffu;
        for (int i = 0; i < lane % 2 + 1; ++i)
            sum += i;
        ok &= __reduce_add_sync(mask, 1) == 20;
    }
    unsigned int together = lane % 4 == 1 ? __activemask() : 0;
    ok &= lane % 4 != 1 || together == 0x22222222u;
    __syncwarp();
    out[threadIdx.x] = ok;
}
__global__ void partial_warp_kernel(int* out) {
    // The last warp has 8 lanes; the full mask names lanes that do not exist.
    unsigned int votes = __ballot_sync(0xffffffffu, 1);
    if (threadIdx.x >= 36)
        return;
    out[threadIdx.x] = __popc(votes) + __popc(__ballot_sync(0xffffffffu, 1));
}

static void warps() {
    Buffer<int> out(128);
    warp_kernel<<<1, 128>>>(out.data);
    for (int value : out.get())
        EXPECT(value == 1);
    partial_warp_kernel<<<1, 40>>>(out.data);
    auto values = out.get();
    EXPECT(values[0] == 64 && values[32] == 12 && cudaGetLastError() == cudaSuccess);
}

// Atomics, contended across blocks.
__global__ void atomics_kernel(int* i, unsigned int* u, unsigned long long* l, float* f, double* d) {
    atomicAdd(i, 1);
    atomicSub(i + 1, 1);
    atomicMin(i + 2, -static_cast<int>(threadIdx.x));
    atomicMax(i + 3, static_cast<int>(threadIdx.x + blockIdx.x));
    atomicInc(u, 6);
    atomicDec(u + 1, 6);
    atomicOr(u + 2, 1u << threadIdx.x % 32);
    atomicXor(u + 3, 1u);
    atomicAdd(l, 1ull << 32);
    atomicMax(l + 1, static_cast<unsigned long long>(blockIdx.x) << 40);
    atomicAdd(f, 1.0f);
    atomicAdd(d, 0.5);
    float old = f[1];
    int* bits = reinterpret_cast<int*>(f + 1);
    for (int seen = __float_as_int(old), expected;; seen = expected) {
        expected = atomicCAS(bits, seen, __float_as_int(__int_as_float(seen) + 2.0f));
        if (expected == seen)
            break;
    }
}
__device__ int lock_word;
__device__ int guarded;
__global__ void lock_kernel() {
    while (atomicCAS(&lock_word, 0, 1) != 0) {
    }
    __threadfence();
    int value = *reinterpret_cast<volatile int*>(&guarded);
    *reinterpret_cast<volatile int*>(&guarded) = value + 1;
    __threadfence();
    atomicExch(&lock_word, 0);
}
// One thread waits for a later one of its block.
__global__ void wait_kernel(int* flag) {
    if (threadIdx.x == 0)
        while (atomicAdd(flag, 0) == 0) {
        }
    if (threadIdx.x == 63)
        atomicExch(flag, 1);
}
__global__ void plain_wait_kernel(volatile int* flags) {
    unsigned int t = threadIdx.x;
    if (t + 1 < blockDim.x)
        while (flags[t + 1] == 0)
            ;
    flags[t] = 1;
}

static void atomics() {
    Buffer<int> i(4);
    Buffer<unsigned int> u(4);
    Buffer<unsigned long long> l(2);
    Buffer<float> f(2);
    Buffer<double> d(1);
    atomics_kernel<<<50, 100>>>(i.data, u.data, l.data, f.data, d.data);
    EXPECT(i.get()[0] == 5000 && i.get()[1] == -5000 && i.get()[2] == -99 && i.get()[3] == 148);
    EXPECT(u.get()[0] == 5000 % 7 && u.get()[1] == (7 - 5000 % 7) % 7 && u.get()[2] == ~0u &&
           u.get()[3] == 0);
    EXPECT(l.get()[0] == 5000ull << 32 && l.get()[1] == 49ull << 40);
    EXPECT(f.get()[0] == 5000 && f.get()[1] == 10000 && d.get()[0] == 2500);
    lock_kernel<<<20, 32>>>();
    int result = 0;
    EXPECT(cudaMemcpyFromSymbol(&result, guarded, sizeof result) == cudaSuccess && result == 640);
    wait_kernel<<<1, 64>>>(i.data + 3);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    Buffer<int> flags(64);
    plain_wait_kernel<<<1, 64>>>(flags.data);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess && flags.get()[0] == 1);
}

// Memory spaces.
__constant__ float coefficients[4];
__constant__ int table[3] = {5, 6, 7};
extern __shared__ __align__(16) unsigned char raw_bytes[];
__global__ void constant_kernel(float* out) {
    out[threadIdx.x] = coefficients[threadIdx.x] + table[threadIdx.x % 3];
}
template <class Type> __global__ void dynamic_kernel(Type* out, int n) {
    extern __shared__ double words[];
    Type* values = reinterpret_cast<Type*>(words);
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        values[i] = static_cast<Type>(i);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        out[i] = values[n - 1 - i];
}
__global__ void file_scope_kernel(int* out) {
    int* values = reinterpret_cast<int*>(raw_bytes);
    values[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = values[31 - threadIdx.x];
}
__global__ void fresh_kernel(int* out) {
    __shared__ int stale[32];
    out[threadIdx.x] = stale[threadIdx.x];
    stale[threadIdx.x] = 1;
}
__global__ void vector_kernel(const float4* in, float4* out, uchar4* bytes) {
    float4 v = __ldg(in + threadIdx.x);
    out[threadIdx.x] = make_float4(v.w, v.z, v.y, v.x);
    bytes[threadIdx.x] = make_uchar4(1, 2, 3, static_cast<unsigned char>(threadIdx.x));
}

// Every way to write a __shared__ declaration; true where all are aligned as they ask.
template <class Type> struct Holder {
    typedef Type Value;
};
template <int N> __global__ void declarations_kernel(int* out) {
    __shared__ alignas(128) float a[N];
    __shared__ __align__(64) float b[33];
    __align__(64) __shared__ char c[33];
    volatile __shared__ int d[3];
    __shared__ typename Holder<float>::Value e[3], *f;
    __shared__ union {
        int i;
        float x;
    } both;
    static __shared__ unsigned long long g;
    __shared__ float4 h[4];
    extern __shared__ alignas(128) float dynamic_floats[];
    a[0] = b[0] = c[0] = e[0] = g = 2;
    d[0] = both.i = 3;
    f = e;
    h[3] = make_float4(a[0], *f, both.i, d[0]);
    dynamic_floats[0] = h[3].z;
    auto at = [](const void* address) { return reinterpret_cast<size_t>(address); };
    out[0] = at(a) % 128 == 0 && at(b) % 64 == 0 && at(c) % 64 == 0 && at(h) % 16 == 0 &&
             at(dynamic_floats) % 128 == 0 && dynamic_floats[0] == 3;
}

static void memory() {
    Buffer<float> out(60000);
    float host[4] = {1, 2, 3, 4};
    EXPECT(cudaMemcpyToSymbol(coefficients, host, sizeof host) == cudaSuccess);
    constant_kernel<<<1, 4>>>(out.data);
    EXPECT(out.get()[0] == 6 && out.get()[3] == 9);
    // More than 48 KB has to be asked for.
    int n = 20000;
    dynamic_kernel<float><<<1, 128, n * sizeof(float)>>>(out.data, n);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess);
    EXPECT(cudaFuncSetAttribute(dynamic_kernel<float>, cudaFuncAttributeMaxDynamicSharedMemorySize, n * 4) ==
           0);
    dynamic_kernel<float><<<1, 128, n * sizeof(float)>>>(out.data, n);
    EXPECT(cudaGetLastError() == cudaSuccess && out.get()[0] == n - 1 && out.get()[n - 1] == 0);
    EXPECT(cudaFuncSetAttribute(dynamic_kernel<float>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                227 * 1024 + 1) == cudaErrorInvalidValue);
    Buffer<int> ints(64);
    file_scope_kernel<<<1, 32, 128>>>(ints.data);
    EXPECT(ints.get()[0] == 31);
    declarations_kernel<5><<<1, 1, 100>>>(ints.data);
    EXPECT(ints.get()[0] == 1);
    fresh_kernel<<<1, 32>>>(ints.data);
    fresh_kernel<<<1, 32>>>(ints.data + 32);
    for (int value : ints.get())
        EXPECT(value == -1);
    Buffer<float4> in4(32), out4(32);
    Buffer<uchar4> bytes(32);
    vector_kernel<<<1, 32>>>(in4.data, out4.data, bytes.data);
    EXPECT(bytes.get()[7].w == 7 && sizeof(float3) == 12 && alignof(float4) == 16 && alignof(double2) == 16);
    // Fresh memory is poison, and bases are aligned as on a GPU.
    unsigned char* raw = nullptr;
    unsigned char fresh[100];
    EXPECT(cudaMalloc(&raw, 100) == cudaSuccess);
    EXPECT(cudaMemcpy(fresh, raw, 100, cudaMemcpyDefault) == cudaSuccess && fresh[0] == 0xff &&
           fresh[99] == 0xff);
    EXPECT(reinterpret_cast<size_t>(raw) % 256 == 0);
    EXPECT(cudaFree(raw) == cudaSuccess && cudaFree(raw) == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
}

// Cooperative groups.
__global__ void groups_kernel(int* out) {
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<8>(block);
    bool ok = tile.size() == 8 && tile.thread_rank() == threadIdx.x % 8 &&
              tile.meta_group_rank() == threadIdx.x / 8;
    int first = static_cast<int>(threadIdx.x) / 8 * 8;
    ok &= cg::reduce(tile, static_cast<int>(threadIdx.x), cg::plus<int>()) == 8 * first + 28;
    ok &= cg::inclusive_scan(tile, 2) == 2 * (static_cast<int>(tile.thread_rank()) + 1);
    ok &= tile.shfl(static_cast<int>(threadIdx.x), 3) == first + 3;
    ok &= tile.ballot(tile.thread_rank() < 2) == 3;
    auto warp = cg::tiled_partition<32>(block);
    ok &= cg::reduce(warp, 1, cg::plus<int>()) == 32;
    if (threadIdx.x % 3 == 0) {
        auto some = cg::coalesced_threads();
        unsigned int expected = threadIdx.x < 32 ? 11 : 11 - (threadIdx.x / 32 == 2);
        ok &= some.size() == 11 || some.size() == 10 || expected == 0;
        ok &= cg::reduce(some, 1, cg::plus<int>()) == static_cast<int>(some.size());
    }
    block.sync();
    out[threadIdx.x] = ok;
}
__global__ void grid_kernel(int* data, int* out, int rounds) {
    cg::grid_group grid = cg::this_grid();
    int i = static_cast<int>(grid.thread_rank()), n = static_cast<int>(grid.size());
    for (int round = 0; round < rounds; ++round) {
        int next = data[(i + 97) % n];
        grid.sync();
        data[i] = next + 1;
        grid.sync();
    }
    out[i] = data[i];
}

static void groups() {
    Buffer<int> data(24 * 64), out(24 * 64);
    groups_kernel<<<1, 96>>>(out.data);
    auto values = out.get();
    for (int i = 0; i < 96; ++i)
        EXPECT(values[i] == 1);
    int rounds = 10;
    void* arguments[] = {&data.data, &out.data, &rounds};
    EXPECT(cudaLaunchCooperativeKernel(grid_kernel, 24, 64, arguments) == cudaSuccess);
    values = out.get();
    for (int value : values)
        EXPECT(value == rounds);
    EXPECT(cudaLaunchCooperativeKernel(grid_kernel, 132 * 32 + 1, 64, arguments) ==
           cudaErrorCooperativeLaunchTooLarge);
    EXPECT(cudaGetLastError() == cudaErrorCooperativeLaunchTooLarge);
}

// Device memory that a kernel reaches in other ways than through its parameters, memory that the host may touch,
// and what the device says that it has left.
struct Node {
    int value;
    Node* next;
};
__device__ Node* head;
__global__ void link_kernel(Node* first, Node* second) {
    first->next = second;
    second->next = nullptr;
    first->value = second->value = 4;
    head = first;
}
__global__ void follow_kernel(int* out) {
    int sum = 0;
    for (Node* node = head; node; node = node->next)
        sum += node->value++;
    atomicAdd(out, sum);
}

static void access() {
    Node *first = nullptr, *second = nullptr;
    EXPECT(cudaMalloc(&first, sizeof(Node)) == cudaSuccess);
    EXPECT(cudaMallocAsync(&second, sizeof(Node), nullptr) == cudaSuccess);
    link_kernel<<<1, 1>>>(first, second);
    int* managed = nullptr;
    int* pinned = nullptr;
    EXPECT(cudaMallocManaged(&managed, 4) == cudaSuccess && cudaMallocHost(&pinned, 4) == cudaSuccess);
    managed[0] = pinned[0] = 0;
    follow_kernel<<<1, 1>>>(managed);
    follow_kernel<<<1, 1>>>(pinned);
    EXPECT(managed[0] == 8 && pinned[0] == 10);
    cudaPointerAttributes attributes[3];
    cudaPointerGetAttributes(&attributes[0], first);
    cudaPointerGetAttributes(&attributes[1], managed);
    cudaPointerGetAttributes(&attributes[2], pinned);
    EXPECT(attributes[0].type == cudaMemoryTypeDevice && attributes[0].hostPointer == nullptr);
    EXPECT(attributes[1].type == cudaMemoryTypeManaged && attributes[1].hostPointer == managed);
    EXPECT(attributes[2].type == cudaMemoryTypeHost);
    EXPECT(cudaFreeHost(pinned) == cudaSuccess && cudaFree(managed) == cudaSuccess);
    EXPECT(cudaFree(first) == cudaSuccess && cudaFreeAsync(second, nullptr) == cudaSuccess);

    char *grid = nullptr, rows[3][5], back[3][5] = {};
    size_t pitch = 0;
    memset(rows, 7, sizeof rows);
    EXPECT(cudaMallocPitch(&grid, &pitch, 5, 3) == cudaSuccess);
    EXPECT(cudaMemcpy2D(grid, pitch, rows, 5, 5, 3, cudaMemcpyHostToDevice) == cudaSuccess);
    EXPECT(cudaMemset2D(grid, pitch, 8, 2, 3) == cudaSuccess);
    EXPECT(cudaMemcpy2D(back, 5, grid, pitch, 5, 3, cudaMemcpyDeviceToHost) == cudaSuccess);
    EXPECT(back[2][1] == 8 && back[2][2] == 7);
    EXPECT(cudaFree(grid) == cudaSuccess);

    size_t total = 0, before = 0, during = 0, pinning = 0, after = 0;
    EXPECT(cudaMemGetInfo(&before, &total) == cudaSuccess && before <= total);
    EXPECT(cudaMalloc(&grid, 1000001) == cudaSuccess && cudaMemGetInfo(&during, &total) == cudaSuccess);
    EXPECT(cudaMallocHost(&pinned, 4096) == cudaSuccess && cudaMemGetInfo(&pinning, &total) == cudaSuccess);
    EXPECT(cudaFree(grid) == cudaSuccess && cudaFreeHost(pinned) == cudaSuccess);
    EXPECT(cudaMemGetInfo(&after, &total) == cudaSuccess);
    EXPECT(before - during == 1000001 && pinning == during && after == before);
}

// Launches that a GPU refuses, and what is left in the error state.
__global__ void empty_kernel() {}

static void refusals() {
    empty_kernel<<<1, 1025>>>();
    EXPECT(cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration && cudaGetLastError() == cudaSuccess);
    empty_kernel<<<0, 32>>>();
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    empty_kernel<<<1, dim3(1, 1, 65)>>>();
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    empty_kernel<<<dim3(1, 65536), 32>>>();
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    empty_kernel<<<1, 32, 300 << 10>>>();
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    void* pointer = nullptr;
    EXPECT(cudaMalloc(&pointer, size_t{1} << 60) == cudaErrorMemoryAllocation);
    EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation);
    empty_kernel<<<1, 1024>>>();
    EXPECT(cudaDeviceSynchronize() == cudaSuccess && cudaGetLastError() == cudaSuccess);
    cudaDeviceProp properties;
    EXPECT(cudaGetDeviceProperties(&properties, 0) == cudaSuccess && properties.major == 9);
    EXPECT(properties.multiProcessorCount == 132 && properties.sharedMemPerBlockOptin == 232448);
}

// Intrinsics with answers from their definition.
__global__ void intrinsics_kernel(int* out) {
    bool ok = __popc(0xf0f0u) == 8 && __clz(1) == 31 && __clz(0) == 32 && __ffs(0) == 0 && __ffs(8) == 4;
    ok &= __brev(1u) == 0x80000000u && __byte_perm(0x03020100u, 0x07060504u, 0x7531u) == 0x07050301u;
    ok &= __funnelshift_l(0x80000000u, 1u, 1) == 3u && __funnelshift_r(1u, 1u, 1) == 0x80000000u;
    ok &= __mulhi(1 << 30, 8) == 2 && __umulhi(~0u, 2u) == 1u && __umul64hi(~0ull, 2) == 1;
    ok &= __dp4a(0x01ff02fe, 0x01010101, 10) == 10;
    ok &= __float2int_rn(2.5f) == 2 && __float2int_rz(-2.9f) == -2 && __float2int_ru(2.1f) == 3;
    ok &= __float2int_rz(3e9f) == 2147483647 && __float2int_rz(NAN) == 0 && __float2uint_rz(-1.0f) == 0;
    ok &= __double2ll_rz(1e30) == 9223372036854775807ll;
    ok &=
        __fadd_ru(1.0f, 1e-10f) > 1.0f && __fadd_rd(1.0f, 1e-10f) == 1.0f && __fadd_rn(1.0f, 1e-10f) == 1.0f;
    ok &= __fmaf_rn(1 + 0x1p-12f, 1 + 0x1p-12f, -1) == 0x1p-11f + 0x1p-24f;
    ok &= min(3, 5u) == 3u && max(2.0f, NAN) == 2.0f && __saturatef(NAN) == 0 && rsqrtf(4.0f) == 0.5f;
    ok &= fabs(erfinv(0.5) - 0.47693627620446987) < 1e-14 && fabs(normcdf(1.0) - 0.8413447460685429) < 1e-14;
    ok &= __fns(0xf0u, 0, 2) == 5;
    out[0] = ok;
    printf("device says %d\n", 42);
}

static void intrinsics() {
    Buffer<int> out(1);
    intrinsics_kernel<<<1, 1>>>(out.data);
    EXPECT(out.get()[0] == 1);
}

// Floating-point control is each thread's own, SSE's and x87's: the others run between one's barriers.
__global__ void control_kernel(int* out, const float* tiny) {
    const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    int mode = modes[threadIdx.x % 4];
    bool ok = fegetround() == FE_TONEAREST;
    fesetround(mode);
    for (int i = 0; i < 4; ++i) {
        __syncthreads();
        volatile float narrow = tiny[0];
        volatile long double wide = tiny[1];
        narrow = 1 + narrow;
        wide = 1 + wide;
        ok &=
            fegetround() == mode && (narrow > 1) == (mode == FE_UPWARD) && (wide > 1) == (mode == FE_UPWARD);
        ok &= __shfl_xor_sync(0xffffffffu, static_cast<int>(threadIdx.x), 1) == (threadIdx.x ^ 1);
    }
    fesetround(FE_TONEAREST);
    out[threadIdx.x] = ok;
}

static void control() {
    Buffer<int> out(96);
    Buffer<float> tiny(2);
    const float values[] = {1e-20f, 1e-37f};
    EXPECT(cudaMemcpy(tiny.data, values, sizeof values, cudaMemcpyHostToDevice) == cudaSuccess);
    control_kernel<<<1, 96>>>(out.data, tiny.data);
    for (int value : out.get())
        EXPECT(value == 1);
}

int main(int, char** arguments) {
    struct {
        const char* name;
        void (*check)();
    } checks[] = {{"launches", launches}, {"barriers", barriers},     {"warps", warps},
                  {"atomics", atomics},   {"memory", memory},         {"groups", groups},
                  {"refusals", refusals}, {"intrinsics", intrinsics}, {"access", access},
                  {"control", control}};
    for (auto& entry : checks)
        if (!strcmp(arguments[1], entry.name)) {
            entry.check();
            return failures ? 1 : 0;
        }
    return 2;
}
