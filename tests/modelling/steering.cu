// Kernels of test_steering.py, each launched from a function of its own. Of all but the last few, numbers in memory steer the
// work, each by another way from the load to the branch or address.
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include <cstring>

namespace cg = cooperative_groups;

#define KERNEL(name)                                                                                         \
    __global__ void name(const float*, const int*, float*, int);                                             \
    void launch_##name(const float* in, const int* ints, float* out, int n) {                                \
        name<<<64, 128>>>(in, ints, out, n);                                                                 \
    }                                                                                                        \
    __global__ void name([[maybe_unused]] const float* in, [[maybe_unused]] const int* ints, float* out,     \
                         [[maybe_unused]] int n)
#define PLACE const int i = blockIdx.x * blockDim.x + threadIdx.x

// What a steered kernel does as often as it was told.
__device__ __forceinline__ float work(const float* in, int passes) {
    float sum = 0;
    for (int k = 0; k < passes; ++k)
        sum = sum * 0.5f + in[k];
    return sum;
}

__device__ int kept;
__device__ float table[64];
__device__ int (*chosen)(int);
__constant__ int settings[4];

// Memory of others and of oneself.
KERNEL(by_a_number) {
    PLACE;
    out[i] = work(in, ints[i]);
}
KERNEL(by_shared_memory) {
    PLACE;
    __shared__ int passes[128];
    passes[threadIdx.x] = ints[i];
    __syncthreads();
    out[i] = work(in, passes[threadIdx.x ^ 1]);
}
extern __shared__ int dynamic[];
KERNEL(by_dynamic_shared_memory) {
    PLACE;
    dynamic[threadIdx.x] = ints[i];
    __syncthreads();
    out[i] = work(in, dynamic[127 - threadIdx.x]);
}
KERNEL(by_what_a_launch_left) {
    PLACE;
    out[i] = work(in, kept);
}
KERNEL(by_a_constant) {
    PLACE;
    out[i] = work(in, settings[i & 3]);
}
KERNEL(by_a_pointer) {
    PLACE;
    out[i] = *reinterpret_cast<float* const*>(ints)[i];
}
KERNEL(by_a_place_in_a_table) {
    PLACE;
    out[i] = table[ints[i] & 63];
}
KERNEL(by_a_store) {
    PLACE;
    out[ints[i]] = 1;
}
KERNEL(by_the_answer_of_an_atomic) {
    PLACE;
    out[i] = work(in, atomicAdd(&kept, 1));
}
KERNEL(by_a_ticket) {
    PLACE;
    __shared__ bool last;
    if (threadIdx.x == 0)
        last = atomicInc(reinterpret_cast<unsigned*>(&kept), gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (last)
        out[i] = work(in, 1000);
}
KERNEL(by_an_atomic_alone) {
    PLACE;
    atomicAdd(out + ints[i], 1.0f);
}

// A thread's own variables.
KERNEL(by_an_array) {
    PLACE;
    int places[8];
    for (int k = 0; k < 8; ++k)
        places[(i + k) % 8] = ints[i + k];
    out[i] = work(in, places[n % 8]);
}
KERNEL(by_a_part_of_an_array) {
    PLACE;
    int places[8] = {};
    for (int k = -4; k < n % 5; ++k)
        places[k + 4] = ints[i + k + 4];
    out[i] = work(in, places[0]) + work(in, places[1]);
}
KERNEL(by_an_array_from_behind) {
    PLACE;
    int places[8] = {};
    int* at = places + 7;
    for (int k = 0; k < n % 9; ++k)
        *at-- = ints[i + k];
    out[i] = work(in, places[1]) + work(in, places[0]);
}
KERNEL(by_a_lower_place) {
    PLACE;
    int places[8] = {};
    int* middle = places + 4;
    middle[-(n % 5)] = ints[i];
    out[i] = work(in, places[2]);
}
KERNEL(by_a_counter_on_the_stack) {
    PLACE;
    volatile int k = ints[i];
    while (k > 0)
        k = k - 1;
    out[i] = 1;
}
KERNEL(by_bytes_read_as_a_word) {
    PLACE;
    unsigned char bytes[4] = {};
    bytes[n & 3] = reinterpret_cast<const unsigned char*>(in)[i];
    int passes;
    memcpy(&passes, bytes, 4);
    out[i] = work(in, passes);
}
KERNEL(by_a_byte) {
    PLACE;
    volatile short pair[2] = {0, 0};
    pair[1] = static_cast<short>(ints[i]);
    int passes;
    memcpy(&passes, const_cast<short*>(pair), 4);
    out[i] = work(in, passes);
}
struct Large {
    int values[64];
};
KERNEL(by_a_copied_struct) {
    PLACE;
    Large large = reinterpret_cast<const Large*>(ints)[i];
    volatile Large* seen = &large;
    out[i] = work(in, seen->values[7]);
}
KERNEL(by_a_copy) {
    PLACE;
    int own[32];
    memcpy(own, ints + i, sizeof own);
    out[i] = work(in, own[n % 32]);
}
KERNEL(by_the_length_of_a_copy) {
    PLACE;
    memcpy(out, in, ints[i]);
}
KERNEL(by_many_registers) {
    PLACE;
    int v[40];
#pragma unroll
    for (int k = 0; k < 40; ++k)
        v[k] = ints[i + 64 * k];
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 40; ++k)
        sum += in[n + k] * v[(k * 7) % 40];
    int passes = 0;
#pragma unroll
    for (int k = 0; k < 40; ++k)
        passes ^= v[k];
    out[i] = sum + work(in, passes);
}
KERNEL(by_a_pointer_to_a_pointer) {
    PLACE;
    __shared__ int* where[128];
    int passes = 3;
    where[threadIdx.x] = &passes;
    __syncthreads();
    **reinterpret_cast<int* volatile*>(&where[threadIdx.x]) = ints[i];
    out[i] = work(in, *const_cast<volatile int*>(&passes));
}
KERNEL(by_one_of_two_variables) {
    PLACE;
    volatile int one = 1, other = 2;
    volatile int* which = n & 1 ? &one : &other;
    *which = ints[i];
    out[i] = work(in, one + other);
}

// Flags, and values made of them.
KERNEL(by_a_comparison) {
    PLACE;
    if (in[i] > 0)
        out[i] = work(in, 100);
}
KERNEL(by_a_double) {
    PLACE;
    if (static_cast<double>(in[i]) * 2.5 >= 1.0)
        out[i] = work(in, 100);
}
KERNEL(by_a_nan) {
    PLACE;
    if (in[i] != in[i])
        out[i] = work(in, 100);
}
KERNEL(by_a_number_less_itself) {
    PLACE;
    float none = in[i] - in[i];
    if (none == 0)
        out[i] = work(in, 100);
}
KERNEL(by_a_choice) {
    PLACE;
    int place = in[i] > 0 ? i : n;
    out[i] = in[place];
}
KERNEL(by_a_chosen_number) {
    PLACE;
    float most = fmaxf(in[i], in[i + 1]);
    out[i] = work(in, static_cast<int>(most));
}
KERNEL(by_a_branch_that_chooses) {
    PLACE;
    int passes = n;
    if (in[i] > 1)
        passes = i;
    out[i] = work(in, passes);
}
KERNEL(by_how_many_are_larger) {
    PLACE;
    int passes = 0;
    for (int k = 0; k < 16; ++k)
        passes += in[i + k] > in[n];
    out[i] = work(in, passes);
}
KERNEL(by_a_carry) {
    PLACE;
    unsigned low = ints[i], sum = low + static_cast<unsigned>(n);
    int passes = 0;
    passes += sum < low ? 100 : 0;
    out[i] = work(in, passes);
}
KERNEL(by_a_wide_carry) {
    PLACE;
    unsigned __int128 wide = static_cast<unsigned __int128>(static_cast<unsigned long long>(ints[i])) << 40;
    wide += static_cast<unsigned __int128>(n) << 63;
    out[i] = work(in, static_cast<int>(wide >> 64));
}
KERNEL(by_a_bit) {
    PLACE;
    if (ints[i] >> (n & 31) & 1)
        out[i] = work(in, 100);
}
KERNEL(by_a_mask) {
    PLACE;
    int mask = -(ints[i] < n);
    out[i] = work(in, 100 & mask);
}
KERNEL(by_a_switch) {
    PLACE;
    switch (ints[i]) {
    case 0:
        out[i] = sqrtf(in[i]);
        break;
    case 1:
        out[i] = work(in, 10);
        break;
    case 2:
        out[i] = work(in, 20);
        break;
    case 3:
        out[i] = in[i] / 3;
        break;
    case 4:
        out[i] = work(in, 40);
        break;
    case 5:
        out[n] = 4;
        break;
    case 6:
        out[i] = work(in, 60);
        break;
    default:
        break;
    }
}
KERNEL(by_a_label) {
    PLACE;
    static const void* const kLabels[] = {&&none, &&some, &&many};
    goto* kLabels[ints[i] % 3];
none:
    out[i] = 0;
    return;
some:
    out[i] = work(in, 10);
    return;
many:
    out[i] = work(in, 1000);
}
KERNEL(by_a_division) {
    PLACE;
    out[i] = static_cast<float>(n / ints[i]);
}
KERNEL(by_a_remainder) {
    PLACE;
    out[i] = in[ints[i] % 16];
}
KERNEL(by_a_search) {
    PLACE;
    int at = i;
    while (in[at] != 0)
        ++at;
    out[i] = static_cast<float>(at);
}

// Functions.
KERNEL(by_counting_bits) {
    PLACE;
    out[i] = work(in, __popc(ints[i]) + __clz(ints[i + 1]) + __ffs(ints[i + 2]));
}
KERNEL(by_the_bits_of_a_number) {
    PLACE;
    out[i] = work(in, __float_as_int(in[i]) >> 23);
}
KERNEL(by_a_power) {
    PLACE;
    if (expf(in[i]) > 2)
        out[i] = work(in, 100);
}
KERNEL(by_a_half) {
    PLACE;
    if (__hgt(__float2bfloat16(in[i]), __float2bfloat16(1.0f)))
        out[i] = work(in, 100);
}
KERNEL(by_a_shuffle) {
    PLACE;
    out[i] = work(in, __shfl_xor_sync(~0u, ints[i], 1));
}
KERNEL(by_a_ballot) {
    PLACE;
    if (__ballot_sync(~0u, in[i] > 0) & 1)
        out[i] = work(in, 100);
}
KERNEL(by_a_vote_of_the_block) {
    PLACE;
    out[i] = work(in, __syncthreads_count(in[i] > 0));
}
KERNEL(by_a_group) {
    PLACE;
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    out[i] = work(in, warp.shfl(ints[i], 3) + warp.any(in[i] > 0));
}
KERNEL(by_a_match) {
    PLACE;
    out[i] = work(in, __popc(__match_any_sync(~0u, ints[i])));
}
KERNEL(by_a_fragment) {
    PLACE;
    using namespace nvcuda;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums;
    wmma::load_matrix_sync(sums, in, 16, wmma::mem_row_major);
    out[i] = work(in, static_cast<int>(sums.x[0]));
}
KERNEL(by_where_a_fragment_is) {
    using namespace nvcuda;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums;
    wmma::load_matrix_sync(sums, in + ints[blockIdx.x], 16, wmma::mem_row_major);
    wmma::store_matrix_sync(out + 256 * blockIdx.x, sums, 16, wmma::mem_row_major);
}
KERNEL(by_a_volatile_load) {
    PLACE;
    while (*const_cast<const volatile int*>(ints) < n)
        __nanosleep(20);
    out[i] = 1;
}
KERNEL(by_the_clock) {
    PLACE;
    const long long begun = clock64();
    out[i] = work(in, static_cast<int>(clock64() - begun));
}
KERNEL(by_an_instruction) {
    PLACE;
    int passes;
    asm volatile("ld.global.s32 %0, [%1];" : "=r"(passes) : "l"(ints + i));
    out[i] = work(in, passes);
}
KERNEL(by_a_predicate) {
    PLACE;
    int passes;
    asm("{ .reg .pred p; setp.gt.f32 p, %1, 0f00000000; selp.s32 %0, 100, 0, p; }"
        : "=r"(passes)
        : "f"(in[i]));
    out[i] = work(in, passes);
}
KERNEL(by_an_asynchronous_copy) {
    PLACE;
    __shared__ int passes[128];
    unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(passes + threadIdx.x));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(ints + i));
    asm volatile("cp.async.wait_all;");
    __syncthreads();
    out[i] = work(in, passes[threadIdx.x ^ 1]);
}
KERNEL(by_where_a_copy_goes) {
    PLACE;
    __shared__ int own[1024];
    unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(own + ints[i]));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(ints + i));
    asm volatile("cp.async.wait_all;");
    out[i] = static_cast<float>(own[n]);
}
__device__ int once(int x) {
    return x + 1;
}
__device__ int twice(int x) {
    return static_cast<int>(work(table, x));
}
KERNEL(by_a_function_in_memory) {
    PLACE;
    out[i] = static_cast<float>(chosen(n));
}
KERNEL(by_a_chosen_function) {
    PLACE;
    int (*const functions[2])(int) = {once, twice};
    out[i] = static_cast<float>(functions[ints[i] & 1](n));
}
struct Shape {
    __device__ virtual int passes(int n) const = 0;
};
struct Small : Shape {
    __device__ int passes(int n) const override { return n; }
};
struct Wide : Shape {
    __device__ int passes(int n) const override { return 2 * n; }
};
KERNEL(by_a_virtual_function) {
    PLACE;
    out[i] = work(in, reinterpret_cast<const Shape*>(ints)[i].passes(n));
}
// Not taken into the kernel, as they call themselves.
__device__ int down(const int* ints, int depth, int a, int b, int c, int d, int e, int passes) {
    if (depth <= 0)
        return static_cast<int>(work(table, passes)) + a + b + c + d + e;
    return down(ints, depth - 1, b, c, d, e, a, passes) + down(ints, depth - 2, e, d, c, b, a, passes);
}
KERNEL(by_an_argument_on_the_stack) {
    PLACE;
    out[i] = static_cast<float>(down(ints, n, 1, 2, 3, 4, 5, ints[i]));
}
__device__ int fills(const int* ints, int* to, int depth) {
    if (depth <= 0) {
        to[-2] = ints[1];
        return 0;
    }
    return fills(ints, to, depth - 1) + fills(ints, to, depth - 2);
}
KERNEL(by_what_a_function_wrote) {
    PLACE;
    int places[8] = {};
    out[i] = static_cast<float>(fills(ints, places + 4, n)) + work(in, places[2]);
}
__device__ int __clz_of_mine(const int* ints, int depth) {
    if (depth <= 0)
        return static_cast<int>(work(table, ints[5]));
    return __clz_of_mine(ints, depth - 1) + __clz_of_mine(ints, depth - 2);
}
KERNEL(by_a_function_with_a_known_name) {
    PLACE;
    out[i] = static_cast<float>(__clz_of_mine(ints, n));
}
struct Two {
    long long values[4];
};
__device__ Two returns(const int* ints, int depth) {
    if (depth <= 0)
        return {{ints[1], ints[2], 0, 0}};
    Two one = returns(ints, depth - 1), other = returns(ints, depth - 2);
    one.values[0] += other.values[1];
    return one;
}
KERNEL(by_a_returned_struct) {
    PLACE;
    out[i] = work(in, static_cast<int>(returns(ints, n).values[0]));
}
KERNEL(by_an_array_of_any_length) {
    PLACE;
    auto* own = static_cast<int*>(__builtin_alloca(4 * n));
    for (int k = 0; k < n; ++k)
        own[k] = ints[i + k];
    out[i] = work(in, own[n / 2]);
}
struct Given {
    int passes;
    int many[16];
};
__global__ void by_its_own_parameter(const int* ints, const float* in, float* out, Given given) {
    PLACE;
    const_cast<volatile int&>(given.passes) = ints[i];
    out[i] = work(in, given.passes);
}
void launch_by_its_own_parameter(const float* in, const int* ints, float* out, int n) {
    by_its_own_parameter<<<64, 128>>>(ints, in, out, Given{n, {}});
}

KERNEL(by_halves_of_a_pointer) {
    PLACE;
    int passes[4] = {};
    unsigned long long whole = reinterpret_cast<unsigned long long>(passes + 1);
    unsigned low = static_cast<unsigned>(whole), high = static_cast<unsigned>(whole >> 32);
    for (int k = 0; k < 2 * n; ++k)
        low ^= 0x5a5a * k, high ^= 0x1234 * k;
    for (int k = 0; k < 2 * n; ++k)
        low ^= 0x5a5a * k, high ^= 0x1234 * k;
    *reinterpret_cast<int*>(static_cast<unsigned long long>(high) << 32 | low) = ints[i];
    out[i] = work(in, passes[1]);
}
union Bytes {
    int* whole;
    unsigned char part[8];
};
KERNEL(by_a_part_of_a_pointer) {
    PLACE;
    int passes[16] = {};
    Bytes bytes{passes + 8};
    for (int k = 0; k < n % 3; ++k)
        bytes.part[0] -= 4;
    *bytes.whole = ints[i];
    out[i] = work(in, passes[6]) + work(in, passes[7]);
}
KERNEL(by_swapped_pointers) {
    PLACE;
    int one = 3, other = 4, *first = &one, *second = &other;
    for (int k = 0; k < n; ++k) {
        int* kept_one = first;
        first = second;
        second = kept_one;
    }
    *first = ints[i];
    out[i] = work(in, one);
}
KERNEL(by_a_list_of_its_own) {
    PLACE;
    struct Node {
        Node* next;
        int passes;
    } nodes[4] = {{&nodes[1], 0}, {&nodes[2], 1}, {&nodes[3], 2}, {&nodes[0], 3}};
    Node* at = nodes;
    for (int k = 0; k < n; ++k)
        at = at->next;
    at->passes = ints[i];
    out[i] = work(in, nodes[2].passes);
}
KERNEL(by_what_a_function_gives_back) {
    PLACE;
    int exponent;
    frexpf(in[i], &exponent);
    out[i] = work(in, exponent);
}
KERNEL(by_a_chosen_pointer) {
    PLACE;
    const float* from = in[i] > 0 ? in : out;
    out[i] = from[i];
}
KERNEL(by_the_less_of_two) {
    PLACE;
    out[i] = work(in, min(ints[i], n));
}
KERNEL(by_an_exchange) {
    PLACE;
    out[i] = work(in, atomicExch(&kept, n));
}
KERNEL(by_a_loop_around_an_atomic) {
    PLACE;
    while (atomicCAS(&kept, 0, 1) != 0) {
    }
    out[i] = 1;
}
KERNEL(by_an_atomic_variable) {
    PLACE;
    cuda::atomic_ref<int, cuda::thread_scope_device> seen(kept);
    out[i] = work(in, seen.load(cuda::memory_order_relaxed));
}
KERNEL(by_a_built_in_atomic) {
    PLACE;
    out[i] = work(in, __atomic_load_n(&kept, __ATOMIC_RELAXED));
}
KERNEL(by_how_long_it_sleeps) {
    PLACE;
    __nanosleep(ints[i]);
    out[i] = 1;
}
KERNEL(by_a_sum_of_the_warp) {
    PLACE;
    out[i] = work(in, __reduce_add_sync(~0u, ints[i]));
}
KERNEL(by_a_trap) {
    PLACE;
    if (ints[i] < 0)
        __trap();
    out[i] = 1;
}
KERNEL(by_a_mask_of_lanes) {
    PLACE;
    __syncwarp(ints[i]);
    out[i] = 1;
}
KERNEL(by_a_loaded_answer_of_a_barrier) {
    PLACE;
    if (__syncthreads_or(in[i] > 0))
        out[i] = work(in, 100);
}
KERNEL(by_another_block_of_the_cluster) {
    PLACE;
    __shared__ int passes;
    passes = ints[i];
    cg::cluster_group cluster = cg::this_cluster();
    cluster.sync();
    out[i] = work(in, *cluster.map_shared_rank(&passes, 0));
    cluster.sync();
}
KERNEL(by_a_cached_load) {
    PLACE;
    out[i] = work(in, __ldg(ints + i)) + work(in, __ldcg(ints + i + 1));
}
KERNEL(by_a_range) {
    PLACE;
    for (int k = ints[i]; k < ints[i + 1]; ++k)
        out[i] += in[k];
}

// Places on the stack that are lost sight of.
KERNEL(by_an_array_below_all_others) {
    PLACE;
    int places[8] = {};
#pragma unroll 1
    for (int k = 0; k < (n & 7); ++k)
        places[k] = ints[i + k];
    out[i] = work(in, places[3]);
}
KERNEL(by_a_pointer_in_an_array) {
    PLACE;
    volatile int passes = 1;
    volatile int* where[4] = {};
    where[n & 3] = &passes;
    volatile int* one = where[1];
    if (n == 1 || n == 5)
        *one = ints[i];
    out[i] = work(in, passes);
}
KERNEL(by_a_pointer_as_a_double) {
    PLACE;
    int places[8] = {};
    int* at = places + 7;
    double number;
    memcpy(&number, &at, 8);
    for (int k = 0; k < n % 9; ++k) {
        number -= __longlong_as_double(4);
        memcpy(&at, &number, 8);
        *at = ints[i + k];
    }
    out[i] = work(in, places[1]) + work(in, places[0]);
}
KERNEL(by_halves_that_are_moved_up) {
    PLACE;
    int passes[4] = {};
    unsigned long long whole = reinterpret_cast<unsigned long long>(passes + 1), low = whole << 32;
    unsigned high = static_cast<unsigned>(whole >> 32);
    for (int k = 0; k < 2 * n; ++k)
        low ^= 0x5a5aull * k << 32, high ^= 0x1234u * k;
    for (int k = 0; k < 2 * n; ++k)
        low ^= 0x5a5aull * k << 32, high ^= 0x1234u * k;
    *reinterpret_cast<int*>(static_cast<unsigned long long>(high) << 32 | low >> 32) = ints[i];
    out[i] = work(in, passes[1]);
}
KERNEL(by_an_atomic_of_the_compiler) {
    PLACE;
    out[i] = work(in, __atomic_fetch_add(&kept, 1, __ATOMIC_RELAXED));
}

KERNEL(by_upper_bytes) {
    PLACE;
    unsigned long long passes = reinterpret_cast<const unsigned long long*>(ints)[i];
    out[i] = work(in, static_cast<int>((passes & ~255ull) >> 4));
}
KERNEL(by_an_aligned_pointer) {
    PLACE;
    int places[128] = {};
    unsigned long long at = reinterpret_cast<unsigned long long>(places + 100 + (n & 1));
    if (n & 2)
        reinterpret_cast<int*>(at)[2] = 1;
    *reinterpret_cast<int*>(at & ~255ull) = ints[i];
    float sum = 0;
#pragma unroll
    for (int k = 36; k < 101; ++k)
        sum += work(in, places[k]);
    out[i] = sum;
}
// Lanes that negate and lanes that do not go apart, and what follows is counted for each.
KERNEL(by_negations) {
    PLACE;
    float a = 0, b = n, c = 2 * n;
    int best = 0;
    for (int k = 0; k < 100; ++k) {
        float x = in[i + 128 * k];
        if (x > a) {
            a = x, best = k;
            b = -b, c = -c;
        }
        a = a * 0.5f, b += x, c += b;
    }
    out[i] = a + b + c + best;
}

// The first half of an address is written over by a number, and comes back.
KERNEL(by_a_half_of_an_address) {
    PLACE;
    int places[2] = {};
    int* volatile place = places;
    auto* halves = reinterpret_cast<volatile unsigned*>(const_cast<int**>(&place));
    const unsigned low = halves[0];
    halves[0] = i;
    halves[0] = low + 4;
    *place = ints[i];
    out[i] = work(in, places[1]);
}

// Nothing in memory steers these.
KERNEL(plain_fence) {
    PLACE;
    float sum = in[i];
    __syncwarp();
    out[i] = sum;
    __threadfence();
    out[i + n] = sum * in[i + n];
    __syncwarp();
}
KERNEL(plain_atomic) {
    PLACE;
    atomicAdd(out + i % n, in[i]);
    atomicMax(reinterpret_cast<int*>(out) + n + i % n, ints[i]);
}
KERNEL(plain_reduction) {
    PLACE;
    out[i] = __reduce_add_sync(~0u, ints[i]);
}
KERNEL(plain_two_results) {
    PLACE;
    float sine, cosine;
    sincospif(in[i], &sine, &cosine);
    out[i] = sine + cosine;
}
KERNEL(plain) {
    PLACE;
    out[i] = work(in, n);
}
KERNEL(plain_maximum) {
    PLACE;
    float most = in[i];
    for (int k = 0; k < n; ++k)
        most = fmaxf(most, in[i + k]);
    out[i] = most;
}
KERNEL(plain_tile) {
    PLACE;
    __shared__ float tile[32][33];
    for (int k = threadIdx.x; k < 1024; k += blockDim.x)
        tile[k / 32][k % 32] = in[k];
    __syncthreads();
    float sums[4] = {};
    for (int k = 0; k < n; ++k)
        for (int m = 0; m < 4; ++m)
            sums[m] += tile[k % 32][(threadIdx.x + m) % 32];
    for (int m = 0; m < 4; ++m)
        out[4 * i + m] = sums[m];
}
KERNEL(plain_sum) {
    PLACE;
    __shared__ float parts[4];
    float sum = in[i];
    for (int by = 16; by > 0; by /= 2)
        sum += __shfl_xor_sync(~0u, sum, by);
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = sum;
    __syncthreads();
    out[i] = expf(in[i]) / (parts[0] + parts[1] + parts[2] + parts[3]);
}

KERNEL(plain_copy) {
    PLACE;
    __shared__ float own[2][128];
    for (int k = 0; k < n; ++k) {
        unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&own[k & 1][threadIdx.x]));
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(in + 128 * k + i));
        asm volatile("cp.async.commit_group;");
        asm volatile("cp.async.wait_group 0;");
        __syncthreads();
        out[i] += own[k & 1][threadIdx.x ^ 1];
    }
}
KERNEL(plain_product) {
    using namespace nvcuda;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums;
    wmma::fill_fragment(sums, 0.0f);
    for (int k = 0; k < n; ++k) {
        wmma::load_matrix_sync(a, reinterpret_cast<const __nv_bfloat16*>(in) + 16 * k, 16);
        wmma::load_matrix_sync(b, reinterpret_cast<const __nv_bfloat16*>(ints) + 16 * k, 16);
        wmma::mma_sync(sums, a, b, sums);
    }
    wmma::store_matrix_sync(out + 256 * blockIdx.x, sums, 16, wmma::mem_row_major);
}
KERNEL(plain_array) {
    PLACE;
    float sums[16] = {};
    for (int k = 0; k < n; ++k)
        sums[k % 16] += in[i + k];
    for (int k = 0; k < 16; ++k)
        out[16 * i + k] = sums[k];
}
__device__ float* aligned;
KERNEL(plain_aligned) {
    alignas(64) float own[16];
    for (int k = 0; k < 16; ++k)
        own[k] = 1;
    aligned = own;
}
KERNEL(plain_half) {
    PLACE;
    const auto* from = reinterpret_cast<const __nv_bfloat162*>(in);
    float2 sum = {};
    for (int k = 0; k < n / 3; ++k) {
        float2 next = __bfloat1622float2(from[i + k]);
        sum.x += next.x, sum.y = fmaxf(sum.y, next.y);
    }
    reinterpret_cast<__nv_bfloat162*>(out)[i] = __float22bfloat162_rn(sum);
}

// Products that change registers of the thread, choices between two values, and numbers that a warp has in common.
__device__ __forceinline__ void multiply(float (&d)[4]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, "
                 "{%4, %4}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(0x3f803f80));
}
__device__ __forceinline__ void multiply_together(float (&d)[4]) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %4, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "l"(0ull));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
// Of factors in shared memory, of one in registers, and of a sparse one there.
__device__ __forceinline__ void begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void finish() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
__device__ __forceinline__ void multiply_at(float (&d)[4], unsigned long long a, unsigned long long b,
                                            int adds) {
    begin();
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %6, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, p, 1, -1, 0, 0;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "l"(a), "l"(b), "r"(adds));
    finish();
}
__device__ __forceinline__ void multiply_words(float (&d)[4], const int* a, unsigned long long b, int adds) {
    begin();
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %9, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p, "
        "1, -1, 0;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));
    finish();
}
__device__ __forceinline__ void multiply_sparse(float (&d)[4], const int* a, unsigned long long b, int places,
                                                int adds) {
    begin();
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %10, 0;\n"
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, "
        "%9, 1, p, 1, -1, 0;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(places), "r"(adds));
    finish();
}
__device__ __forceinline__ void multiply_bytes(int (&d)[4], unsigned long long b) {
    begin();
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8.satfinite {%0, %1, %2, %3}, %4, %5, 1;"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "l"(0ull), "l"(b));
    finish();
}
__device__ unsigned long long descriptors[64];
__device__ __forceinline__ void load_box(void* to, const void* map, int at, unsigned long long* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, 0}], "
        "[%3];" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
        "l"(map), "r"(at), "r"(static_cast<unsigned>(__cvta_generic_to_shared(barrier)))
        : "memory");
}
KERNEL(by_a_sum_of_a_warp) {
    PLACE;
    float d[4] = {};
    multiply(d);
    out[i] = work(in, static_cast<int>(d[2]));
}
KERNEL(by_a_sum_of_a_warpgroup) {
    PLACE;
    float d[4] = {};
    multiply_together(d);
    out[i] = work(in, static_cast<int>(d[2]));
}
KERNEL(by_a_sum_at_an_index) {
    PLACE;
    float d[12] = {};
    for (int k = 0; k < n; ++k)
        multiply_together(*reinterpret_cast<float (*)[4]>(d + 4 * (k % 3)));
    out[i] = work(in, static_cast<int>(d[5]));
}
#define KEPT(d) out[i] = d[0] + d[1] + d[2] + d[3]
KERNEL(by_the_first_descriptor) {
    PLACE;
    float d[4] = {};
    multiply_at(d, descriptors[n], 0, 1);
    KEPT(d);
}
KERNEL(by_the_second_descriptor) {
    PLACE;
    float d[4] = {};
    multiply_at(d, 0, 64 | (ints[n] & 7), 1);
    KEPT(d);
}
KERNEL(by_whether_a_product_adds) {
    PLACE;
    float d[4] = {};
    multiply_at(d, 0, 0, ints[n]);
    KEPT(d);
}
KERNEL(by_whether_a_sum_is_added_to) {
    PLACE;
    float d[4] = {};
    multiply_at(d, 0, 0, 0);
    multiply_at(d, 0, 0, d[1] > 0);
    KEPT(d);
}
KERNEL(by_where_a_sum_lies) {
    PLACE;
    float d[16] = {};
    multiply_at(*reinterpret_cast<float (*)[4]>(d + 4 * (ints[n] & 3)), 0, 0, 1);
    out[i] = d[0] + d[5];
}
KERNEL(by_the_descriptor_beside_words) {
    PLACE;
    float d[4] = {};
    multiply_words(d, ints + i, descriptors[n], 1);
    KEPT(d);
}
KERNEL(by_whether_a_product_of_words_adds) {
    PLACE;
    float d[4] = {};
    multiply_words(d, ints + i, 0, ints[n]);
    KEPT(d);
}
KERNEL(by_the_descriptor_of_a_sparse_product) {
    PLACE;
    float d[4] = {};
    multiply_sparse(d, ints + i, descriptors[n], 0x44444444, 1);
    KEPT(d);
}
KERNEL(by_whether_a_sparse_product_adds) {
    PLACE;
    float d[4] = {};
    multiply_sparse(d, ints + i, 0, 0x44444444, ints[n]);
    KEPT(d);
}
KERNEL(by_a_sum_of_a_sparse_product) {
    PLACE;
    float d[4] = {};
    multiply_sparse(d, ints + i, 0, 0x44444444, 1);
    out[i] = work(in, static_cast<int>(d[3]));
}
KERNEL(by_a_descriptor_of_bytes) {
    PLACE;
    int d[4] = {};
    multiply_bytes(d, descriptors[n]);
    KEPT(d);
}
KERNEL(plain_bytes) {
    PLACE;
    int d[4] = {};
    multiply_bytes(d, n);
    KEPT(d);
}
KERNEL(plain_words_of_a_factor) {
    PLACE;
    float d[4] = {};
    for (int k = 0; k < n; ++k)
        multiply_words(d, ints + 4 * k + i, 4 * k, k > 0);
    KEPT(d);
}
KERNEL(plain_places_of_a_sparse_factor) {
    PLACE;
    float d[4] = {};
    for (int k = 0; k < n; ++k)
        multiply_sparse(d, ints + 4 * k + i, 4 * k, ints[k], k > 0);
    KEPT(d);
}
// Four words are there before it is known whether the product adds.
KERNEL(plain_words_that_are_kept) {
    PLACE;
    float d[4] = {};
    for (int k = 0; k < n; ++k) {
        const int words[4] = {ints[i + k], ints[i + 1], ints[i + 2], ints[i + 3]};
        multiply_words(d, words, 4 * k, k > 0);
    }
    KEPT(d);
}
KERNEL(by_where_a_box_lies) {
    __shared__ alignas(128) float tile[512];
    __shared__ unsigned long long barrier;
    load_box(tile, out, ints[n], &barrier);
}
KERNEL(by_who_comes_to_a_barrier) {
    asm volatile("barrier.sync 1, %0;" ::"r"(ints[n]) : "memory");
}
KERNEL(by_one_of_two_numbers) {
    PLACE;
    out[i] = work(in, ints[i] & 1 ? 10 : 20);
}
KERNEL(by_one_of_two_shuffles) {
    PLACE;
    int passes;
    if (threadIdx.x & 16)
        passes = __shfl_sync(~0u, ints[i], 0) + 1;
    else
        passes = __shfl_sync(~0u, n, 0) * 3;
    out[i] = work(in, passes);
}
KERNEL(by_shuffles_of_two_types) {
    PLACE;
    int passes;
    if (threadIdx.x & 16)
        passes = static_cast<int>(__shfl_sync(~0u, static_cast<unsigned>(ints[i]), 0)) + 1;
    else
        passes = __shfl_sync(~0u, n, 0) * 3;
    out[i] = work(in, passes);
}
KERNEL(by_divisions) {
    PLACE;
    float sum = in[i];
    for (int k = 0; k < n; ++k)
        sum = in[i + k] > 1 ? sum / in[n] : sum - in[n];
    out[i] = sum;
}
KERNEL(by_a_lane_that_is_read) {
    PLACE;
    out[i] = work(in, __shfl_sync(~0u, n + i, ints[i]));
}
KERNEL(plain_products) {
    PLACE;
    __shared__ alignas(128) float tile[512];
    __shared__ unsigned long long barrier;
    float d[4] = {}, e[4] = {};
    const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
    const unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
    for (int k = 0; k < n; ++k) {
        if (warp == 0)
            load_box(tile, out, k, &barrier);
        asm volatile("{.reg .pred done;\n"
                     "again:\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                     "@!done bra again;}" ::"r"(place),
                     "r"(k & 1)
                     : "memory");
        multiply(d);
        multiply_together(e);
        asm volatile("barrier.sync 1, 64;" ::: "memory");
    }
    out[i] = (d[0] + d[1] + d[2] + d[3]) * (e[0] + e[1] + e[2] + e[3]) * tile[threadIdx.x];
}
KERNEL(plain_choice) {
    PLACE;
    unsigned sum = 0;
    for (int k = 0; k < n; ++k) {
        unsigned bits = __float_as_uint(in[i + k]), rounded = bits + 0x7fff + (bits >> 16 & 1);
        sum ^= ((rounded & 0x7f800000) == 0x7f800000 ? bits : rounded) & 0xffff0000;
    }
    out[i] = __uint_as_float(sum);
}

int main() {
    return 0;
}
