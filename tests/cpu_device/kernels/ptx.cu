// Inline PTX on memory and among threads, one check per group. It is a program for a GPU as well.
#include <cstdio>
#include <cstring>
#include <vector>
#include <cuda_pipeline.h>

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
        cudaMalloc(&data, count * sizeof(Type));
        cudaMemset(data, 0, count * sizeof(Type));
    }
    explicit Buffer(const std::vector<Type>& values) : Buffer(values.size()) {
        cudaMemcpy(data, values.data(), count * sizeof(Type), cudaMemcpyHostToDevice);
    }
    ~Buffer() { cudaFree(data); }
    std::vector<Type> get() const {
        std::vector<Type> values(count);
        EXPECT(cudaMemcpy(values.data(), data, count * sizeof(Type), cudaMemcpyDeviceToHost) == cudaSuccess);
        return values;
    }
};

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// Templates that macros put together, one of them by another.
#define LOAD_AS(type, letter, out, address, offset)                                                          \
    asm volatile("ld.global." #type " %0, [%1+" #offset "];" : "=" letter(out) : "l"(address) : "memory")
#define LOAD_WORD(out, address, offset) LOAD_AS(u32, "r", out, address, offset)

// Loads and stores of all widths, in two spaces, with hints, offsets and vectors.
__global__ void memory_kernel(const unsigned char* in, unsigned long long* out, unsigned* copied) {
    extern __shared__ __align__(1024) unsigned char dynamic[];
    __shared__ uint4 fixed[8];
    unsigned t = threadIdx.x;
    unsigned to = shared_address(fixed + t), dynamic_to = shared_address(dynamic) + 16 * t;
    if (t < 8) {
        unsigned a, b, c, d;
        asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                     : "l"(in + 16 * t));
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d)
                     : "memory");
        asm volatile("st.shared.v2.u64 [%0], {%1, %2};" ::"r"(dynamic_to),
                     "l"((unsigned long long)b << 32 | a), "l"((unsigned long long)d << 32 | c)
                     : "memory");
    }
    asm volatile("barrier.sync 0;" ::: "memory");
    if (t < 8) {
        unsigned word;
        asm volatile("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; ld.shared.u32 %0, [wide + 4]; }"
                     : "=r"(word)
                     : "l"(fixed + (t ^ 1)));
        copied[t] = word;
    }
    if (t == 0) {
        int byte;
        unsigned plain;
        short half;
        unsigned long long wide;
        asm volatile("ld.global.s8 %0, [%1+3];" : "=r"(byte) : "l"(in));
        out[0] = (unsigned long long)(long long)byte;
        asm volatile("ld.global.u8 %0, [%1+3];" : "=r"(plain) : "l"(in));
        out[1] = plain;
        asm volatile("ld.global.s16 %0, [%1+%2];" : "=h"(half) : "l"(in), "n"(2));
        out[2] = (unsigned short)half;
        asm volatile("ld.global.cg.b64 %0, [%1+8];" : "=l"(wide) : "l"(in));
        out[3] = wide;
        asm volatile("ld.shared.b64 %0, [%1+8];" : "=l"(wide) : "r"(shared_address(fixed)));
        out[4] = wide;
        asm volatile("ld.shared::cta.b64 %0, [%1];" : "=l"(wide) : "r"(shared_address(dynamic)));
        out[5] = wide;
        asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(wide) : "l"(in));
        out[6] = wide;
        asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(out + 7), "l"(wide) : "memory");
        asm volatile("st.global.u8 [%0], %1;" ::"l"((char*)(out + 8)), "r"(0x1234) : "memory");
        unsigned is_shared, is_global, is_local, local[2] = {7, 8};
        asm volatile(
            "{ .reg .pred p, q, r; isspacep.shared p, %3; isspacep.global q, %4; isspacep.local r, %5;\n"
            "selp.u32 %0, 1, 0, p; selp.u32 %1, 1, 0, q; selp.u32 %2, 1, 0, r; }"
            : "=r"(is_shared), "=r"(is_global), "=r"(is_local)
            : "l"(fixed), "l"(in), "l"(local));
        out[9] = is_shared * 100 + is_global * 10 + is_local;
        unsigned word, more;
        LOAD_WORD(word, in, 4);
        LOAD_AS(u32, "r", more, in, 8);
        out[14] = word ^ more;
        unsigned second;
        asm volatile("ld.u32 %0, [%1+4];" : "=r"(second) : "l"(local));
        out[10] = second;
        out[11] = shared_address(dynamic) % 1024;
        asm volatile("prefetch.global.L2 [%0];" ::"l"(in));
        asm volatile("{ .reg .b64 policy; createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
                     "ld.global.L2::cache_hint.u64 %0, [%1], policy; }"
                     : "=l"(wide)
                     : "l"(in));
        out[12] = wide;
        unsigned long long generic;
        asm volatile("cvta.shared.u64 %0, %1;"
                     : "=l"(generic)
                     : "l"((unsigned long long)shared_address(fixed)));
        out[13] = generic == (unsigned long long)fixed;
    }
}
static void memory() {
    std::vector<unsigned char> bytes(128);
    for (size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<unsigned char>(i * 37 + 130);
    Buffer<unsigned char> in(bytes);
    Buffer<unsigned long long> out(16);
    Buffer<unsigned> copied(8);
    memory_kernel<<<1, 64, 256>>>(in.data, out.data, copied.data);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    auto got = out.get();
    unsigned long long words[2];
    std::memcpy(words, bytes.data(), 16);
    EXPECT(got[0] == (unsigned long long)(signed char)bytes[3]);
    EXPECT(got[1] == bytes[3]);
    EXPECT(got[2] == (bytes[2] | bytes[3] << 8));
    EXPECT(got[3] == words[1] && got[4] == words[1] && got[5] == words[0] && got[6] == words[0] &&
           got[7] == words[0]);
    EXPECT(got[8] == 0x34);
    EXPECT(got[9] == 111);
    EXPECT(got[10] == 8);
    EXPECT(got[11] == 0);
    EXPECT(got[12] == words[0]);
    EXPECT(got[13] == 1);
    EXPECT(got[14] == ((words[0] >> 32) ^ (words[1] & 0xffffffff)));
    auto words_of = copied.get();
    for (int t = 0; t < 8; ++t) {
        unsigned wanted;
        std::memcpy(&wanted, bytes.data() + 16 * (t ^ 1) + 4, 4);
        EXPECT(words_of[t] == wanted);
    }
}

// Atomics and reductions.
__global__ void atomics_kernel(unsigned* u, int* s, float* f, unsigned long long* w, unsigned* halves,
                               unsigned* olds) {
    __shared__ unsigned count;
    unsigned t = threadIdx.x, old;
    if (t == 0)
        count = 0;
    __syncthreads();
    asm volatile("atom.shared.add.u32 %0, [%1], 1;" : "=r"(old) : "r"(shared_address(&count)) : "memory");
    olds[t] = old;
    asm volatile("red.global.add.u32 [%0], %1;" ::"l"(u), "r"(t) : "memory");
    asm volatile("red.global.max.s32 [%0], %1;" ::"l"(s), "r"((int)t - 40) : "memory");
    asm volatile("red.relaxed.gpu.global.min.s32 [%0+4], %1;" ::"l"(s), "r"((int)t - 40) : "memory");
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(f), "f"((float)t) : "memory");
    asm volatile("red.global.v2.f32.add [%0], {%1, %2};" ::"l"(f + 2), "f"(1.0f), "f"(2.0f) : "memory");
    asm volatile("red.global.or.b32 [%0+4], %1;" ::"l"(u), "r"(1u << (t % 32)) : "memory");
    asm volatile("red.global.and.b32 [%0+8], %1;" ::"l"(u), "r"(~(1u << (t % 16))) : "memory");
    asm volatile("red.global.inc.u32 [%0+12], %1;" ::"l"(u), "r"(9) : "memory");
    asm volatile("atom.acq_rel.gpu.global.exch.b64 %0, [%1], %2;"
                 : "=l"(w[1 + t])
                 : "l"(w), "l"(t + 1ull)
                 : "memory");
    asm volatile("red.global.add.noftz.f16x2 [%0], %1;" ::"l"(halves), "r"(0x40003c00) : "memory");
    asm volatile("red.global.add.noftz.bf16x2 [%0+4], %1;" ::"l"(halves), "r"(0x40003f80) : "memory");
    unsigned expected = 5, wanted = 6;
    asm volatile("atom.global.cas.b32 %0, [%1+16], %2, %3;"
                 : "=r"(old)
                 : "l"(u), "r"(expected), "r"(wanted)
                 : "memory");
    if (t == 0)
        u[5] = old;
}
static void atomics() {
    Buffer<unsigned> u(std::vector<unsigned>{0, 0, 0xffffffff, 0, 5, 0}), halves(2), olds(64);
    Buffer<int> s(std::vector<int>{-1000, 1000});
    Buffer<float> f(4);
    Buffer<unsigned long long> w(65);
    atomics_kernel<<<1, 64>>>(u.data, s.data, f.data, w.data, halves.data, olds.data);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    auto us = u.get();
    EXPECT(us[0] == 2016 && us[1] == 0xffffffff && us[2] == 0xffff0000 && us[3] == 64 % 10 && us[4] == 6);
    EXPECT(us[5] == 5 || us[5] == 6);
    auto ss = s.get();
    EXPECT(ss[0] == 23 && ss[1] == -40);
    auto fs = f.get();
    EXPECT(fs[0] == 2016 && fs[2] == 64 && fs[3] == 128);
    auto hs = halves.get();
    EXPECT(hs[0] == 0x58005400); // 128 and 64
    EXPECT(hs[1] == 0x43004280);
    unsigned long long seen = 0;
    for (unsigned long long value : w.get())
        seen += value;
    EXPECT(seen == 64 * 65 / 2);
    unsigned sum = 0;
    for (unsigned value : olds.get())
        sum += value;
    EXPECT(sum == 2016);
}

// Collectives of a warp.
__global__ void warps_kernel(unsigned* out) {
    unsigned t = threadIdx.x, at = t;
    auto put = [&](unsigned value) {
        out[at] = value;
        at += 32;
    };
    unsigned x, p;
    asm volatile("{ .reg .pred q; shfl.sync.down.b32 %0|q, %2, 3, 0x1f, 0xffffffff; selp.u32 %1, 1, 0, q; }"
                 : "=r"(x), "=r"(p)
                 : "r"(t * 7));
    put(x);
    put(p);
    asm volatile("shfl.sync.bfly.b32 %0, %1, 5, 0x1f, -1;" : "=r"(x) : "r"(t));
    put(x);
    asm volatile("{ .reg .pred q; shfl.sync.up.b32 %0|q, %2, 2, 0x1800, 0xffffffff; selp.u32 %1, 1, 0, q; }"
                 : "=r"(x), "=r"(p)
                 : "r"(t));
    put(x);
    put(p);
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x181f, 0xffffffff;" : "=r"(x) : "r"(t), "r"(t + 1));
    put(x);
    asm volatile("{ .reg .pred a; setp.gt.u32 a, %1, 20; vote.sync.ballot.b32 %0, a, 0xffffffff; }"
                 : "=r"(x)
                 : "r"(t));
    put(x);
    asm volatile("{ .reg .pred a, b; setp.gt.u32 a, %1, 20; vote.sync.any.pred b, a, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, b; vote.sync.all.pred b, !a, 0xffffffff; @b add.u32 %0, %0, 2; }"
                 : "=r"(x)
                 : "r"(t));
    put(x);
    asm volatile("match.any.sync.b32 %0, %1, 0xffffffff;" : "=r"(x) : "r"(t % 4));
    put(x);
    asm volatile("redux.sync.add.s32 %0, %1, 0xffffffff;" : "=r"(x) : "r"((int)t - 16));
    put(x);
    asm volatile("redux.sync.min.u32 %0, %1, 0xffffffff;" : "=r"(x) : "r"(t ^ 9));
    put(x);
    asm volatile("{ .reg .pred e; elect.sync %0|e, 0xffffffff; selp.u32 %1, 1, 0, e; }" : "=r"(x), "=r"(p));
    put(x * 10 + p);
    asm volatile("bar.warp.sync 0xffffffff;");
    unsigned lane, below;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
    put(lane + below);
    unsigned long long before, after;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(before));
    asm volatile("nanosleep.u32 20;");
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(after));
    put(before != 0 && after != 0);
    asm("{ .reg .u16 a, b; .reg .b32 w; mov.b32 {a, b}, %1; mov.b32 w, {b, a}; mov.b32 %0, w; }"
        : "=r"(x)
        : "r"(t << 16 | 5));
    put(x);
    asm("{ .reg .u32 %%sum<2>; mov.u32 %%sum0, 0; mov.u32 %%sum1, %1;\n"
        "again: add.u32 %%sum0, %%sum0, %%sum1; sub.u32 %%sum1, %%sum1, 1; .reg .pred more;\n"
        "setp.gt.s32 more, %%sum1, 0; @more bra again; mov.u32 %0, %%sum0; }"
        : "=r"(x)
        : "r"(t + 1));
    put(x);
    asm("{ add.cc.u32 %0, %1, 0xffffffff; addc.u32 %0, %1, 0; }" : "=&r"(x) : "r"(t));
    put(x);
}
static void warps() {
    constexpr int kinds = 17;
    Buffer<unsigned> out(32 * kinds);
    warps_kernel<<<1, 32>>>(out.data);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    auto got = out.get();
    for (unsigned t = 0; t < 32; ++t) {
        unsigned source = t % 8 >= 2 ? t - 2 : t;
        unsigned wanted[kinds] = {(t + 3 < 32 ? t + 3 : t) * 7,
                                  t + 3 < 32,
                                  t ^ 5,
                                  source,
                                  t % 8 >= 2,
                                  (t & 0x18) | ((t + 1) & 7),
                                  0xffe00000,
                                  1,
                                  0x11111111u << t % 4,
                                  static_cast<unsigned>(-16),
                                  0,
                                  t == 0,
                                  t + ((1u << t) - 1),
                                  1,
                                  5u << 16 | t,
                                  (t + 1) * (t + 2) / 2,
                                  t + (t > 0)};
        for (int kind = 0; kind < kinds; ++kind) {
            if (got[kind * 32 + t] != wanted[kind])
                fprintf(stderr, "kind %d lane %u: %u, not %u\n", kind, t, got[kind * 32 + t], wanted[kind]);
            EXPECT(got[kind * 32 + t] == wanted[kind]);
        }
    }
}

// Barriers with numbers: half of the block makes what the other half takes.
__global__ void barriers_kernel(unsigned* out) {
    __shared__ unsigned stage[64];
    unsigned t = threadIdx.x;
    unsigned total;
    asm volatile("{ .reg .pred odd; .reg .u32 bit; and.b32 bit, %1, 1; setp.ne.u32 odd, bit, 0;\n"
                 "bar.red.popc.u32 %0, 0, odd; }"
                 : "=r"(total)
                 : "r"(t));
    if (t < 64) {
        for (unsigned round = 0; round < 3; ++round) {
            asm volatile("bar.sync 2, 128;" ::: "memory"); // free
            stage[t] = t * 10 + round;
            asm volatile("bar.arrive 1, 128;" ::: "memory"); // full
        }
    } else {
        unsigned sum = 0;
        for (unsigned round = 0; round < 3; ++round) {
            asm volatile("bar.arrive 2, 128;" ::: "memory");
            asm volatile("barrier.sync 1, 128;" ::: "memory");
            sum += stage[127 - t];
        }
        out[t - 64] = sum + total;
    }
}
// Arrivals that a block leaves behind are not the next one's.
__global__ void leftover_kernel(unsigned* out) {
    __shared__ unsigned values[32];
    unsigned t = threadIdx.x;
    if (t >= 32) {
        values[t - 32] = blockIdx.x * 32 + t;
        asm volatile("bar.arrive 1, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 1, 64;" ::: "memory");
        out[blockIdx.x * 32 + t] = values[t];
    }
    __syncthreads();
    if (t >= 32)
        asm volatile("bar.arrive 1, 64;" ::: "memory");
}
static void leftovers() {
    Buffer<unsigned> out(200 * 32);
    leftover_kernel<<<200, 64>>>(out.data);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    auto got = out.get();
    for (unsigned i = 0; i < 200 * 32; ++i)
        EXPECT(got[i] == i + 32);
}

static void barriers() {
    leftovers();
    Buffer<unsigned> out(64);
    barriers_kernel<<<1, 128>>>(out.data);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    auto got = out.get();
    for (unsigned i = 0; i < 64; ++i)
        EXPECT(got[i] == (63 - i) * 30 + 3 + 64);
}

// Tiles of matrices.
__global__ void tiles_kernel(unsigned* out) {
    __shared__ __align__(16) unsigned short a[32 * 8], b[32 * 8];
    unsigned t = threadIdx.x;
    for (unsigned i = t; i < 256; i += 32) {
        a[i] = static_cast<unsigned short>(i);
        b[i] = 0;
    }
    __syncwarp();
    unsigned x[4], y[4], z;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(a + 8 * t)));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(y[0]), "=r"(y[1])
                 : "r"(shared_address(a + 8 * (t % 16))));
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(y[2])
                 : "r"(shared_address(a + 8 * (t % 8))));
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(z) : "r"(x[0]));
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     shared_address(b + 8 * t)),
                 "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
    __syncwarp();
    out[t] = x[0];
    out[32 + t] = x[3];
    out[64 + t] = y[0];
    out[96 + t] = y[1];
    out[128 + t] = y[2];
    out[160 + t] = z;
    for (unsigned i = 0; i < 8; ++i)
        out[192 + 8 * t + i] = b[8 * t + i];
}
static void tiles() {
    Buffer<unsigned> out(192 + 256);
    tiles_kernel<<<1, 32>>>(out.data);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    auto got = out.get();
    for (unsigned t = 0; t < 32; ++t) {
        unsigned row = t / 4, column = 2 * (t % 4), pair = row * 8 + column;
        EXPECT(got[t] == ((pair + 1) << 16 | pair));
        EXPECT(got[32 + t] == ((192 + pair + 1) << 16 | (192 + pair)));
        unsigned turned = column * 8 + row;
        EXPECT(got[64 + t] == ((turned + 8) << 16 | turned));
        EXPECT(got[96 + t] == ((64 + turned + 8) << 16 | (64 + turned)));
        EXPECT(got[128 + t] == got[t]);
        EXPECT(got[160 + t] == got[64 + t]);
        for (unsigned i = 0; i < 8; ++i)
            EXPECT(got[192 + 8 * t + i] == t / 8 * 64 + i * 8 + t % 8);
    }
}

// Asynchronous copies: two stages, each waited for before it is read.
__global__ void copies_kernel(const float4* in, float* out, int stages) {
    __shared__ float4 stage[2][32];
    unsigned t = threadIdx.x;
    auto start = [&](int number) {
        if (number < stages)
            asm volatile(
                "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&stage[number % 2][t])),
                "l"(in + number * 32 + t)
                : "memory");
        asm volatile("cp.async.commit_group;");
    };
    start(0);
    float sum = 0;
    for (int number = 0; number < stages; ++number) {
        start(number + 1);
        asm volatile("cp.async.wait_group %0;" ::"n"(1) : "memory");
        __syncthreads();
        float4 value = stage[number % 2][31 - t];
        sum += value.x + value.y + value.z + value.w;
        __syncthreads();
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[t] = sum;
    // Four of eight bytes, then none.
    __shared__ float2 part[32];
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(part + t)), "l"(in),
                 "r"(4));
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[32 + t] = part[t].x * 10 + part[t].y;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, 0;" ::"r"(shared_address(part + t)), "l"(in));
    asm volatile("{ .reg .pred p; setp.eq.u32 p, 1, 0; @p cp.async.wait_all; }" ::: "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[64 + t] = part[t].x;
    // The same by what C++ has for it.
    __pipeline_memcpy_async(&part[t], reinterpret_cast<const float2*>(in) + 1, sizeof(float2));
    __pipeline_commit();
    __pipeline_memcpy_async(&stage[0][t], in + 1, sizeof(float4), 8);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    out[96 + t] = part[t].y;
    __pipeline_wait_prior(0);
    out[128 + t] = stage[0][t].x + 10 * stage[0][t].y + 100 * stage[0][t].w;
}
static void copies() {
    std::vector<float4> values(32 * 5);
    for (size_t i = 0; i < values.size(); ++i)
        values[i] = make_float4(i + 3, 2 * i, 0, 1);
    Buffer<float4> in(values);
    Buffer<float> out(160);
    copies_kernel<<<1, 32>>>(in.data, out.data, 5);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    auto got = out.get();
    for (int t = 0; t < 32; ++t) {
        float sum = 0;
        for (int number = 0; number < 5; ++number) {
            float4 value = values[number * 32 + 31 - t];
            sum += value.x + value.y + value.z + value.w;
        }
        EXPECT(got[t] == sum);
        EXPECT(got[32 + t] == 30);
        EXPECT(got[64 + t] == 0);
        EXPECT(got[96 + t] == 1);
        EXPECT(got[128 + t] == 24);
    }
}

// A third of the threads ends before the first barrier, half of the others in a function behind it.
__device__ __noinline__ unsigned left_behind(unsigned t, unsigned value) {
    asm volatile("{ .reg .pred p; setp.eq.u32 p, %0, 1; @p exit; }" ::"r"(t % 2));
    return value + 1;
}
__global__ void exits_kernel(unsigned* out) {
    __shared__ unsigned words[100];
    unsigned t = threadIdx.x;
    words[t] = 1000 + t;
    if (t % 3 == 0)
        asm volatile("exit;");
    __syncthreads();
    unsigned* mine = out + blockIdx.x * 100 + t;
    *mine = words[(t + 1) % 3 == 0 ? t - 1 : t + 1];
    *mine = left_behind(t, *mine);
    __syncthreads();
    words[t] = 0;
    asm volatile("exit;");
    *mine = 7;
}
// A cluster of one block: neighbours' words between arrival and wait of two phases; a third of the threads ends behind its
// arrival, a third of the others before its second.
__global__ void cluster_kernel(unsigned* out) {
    __shared__ unsigned words[96];
    unsigned t = threadIdx.x, remote, rank;
    words[t] = t + 1;
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    if (t % 3 == 0)
        asm volatile("exit;");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(words)), "r"(0));
    asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(rank) : "r"(remote));
    unsigned value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(remote + (95 - t) * 4) : "memory");
    out[t] = value + rank;
    if (t % 9 == 1)
        return;
    asm volatile("barrier.cluster.arrive;" ::: "memory");
    asm volatile("barrier.cluster.wait;" ::: "memory");
    words[t] = 0;
}
static void cluster() {
    Buffer<unsigned> out(96);
    cudaMemset(out.data, 0, 96 * sizeof(unsigned));
    cluster_kernel<<<1, 96>>>(out.data);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    auto got = out.get();
    for (unsigned t = 0; t < 96; ++t)
        EXPECT(got[t] == (t % 3 == 0 ? 0 : 96 - t));
}
// What breaks the barrier's rules, by number.
__global__ void cluster_mistakes_kernel(unsigned* out, int mistake) {
    __shared__ unsigned words[64];
    unsigned t = threadIdx.x;
    words[t] = t;
    if (mistake == 3 && t == 5)
        for (;;)
            __syncthreads();
    if (mistake != 0)
        asm volatile("barrier.cluster.arrive;" ::: "memory");
    if (mistake == 1)
        asm volatile("barrier.cluster.arrive;" ::: "memory");
    if (mistake != 2)
        asm volatile("barrier.cluster.wait;" ::: "memory");
    out[t] = words[63 - t];
}
static void cluster_mistake(int mistake) {
    Buffer<unsigned> out(64);
    cluster_mistakes_kernel<<<1, 64>>>(out.data, mistake);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
}

static void exits() {
    Buffer<unsigned> out(5 * 100);
    cudaMemset(out.data, 0, 5 * 100 * sizeof(unsigned));
    exits_kernel<<<5, 100>>>(out.data);
    EXPECT(cudaDeviceSynchronize() == cudaSuccess);
    auto got = out.get();
    for (unsigned i = 0; i < 500; ++i) {
        unsigned t = i % 100, other = (t + 1) % 3 == 0 ? t - 1 : t + 1;
        EXPECT(got[i] == (t % 3 == 0 ? 0 : t % 2 ? 1000 + other : 1001 + other));
    }
}

int main(int count, char** names) {
    struct {
        const char* name;
        void (*check)();
    } checks[] = {{"memory", memory},     {"atomics", atomics}, {"warps", warps}, {"tiles", tiles},
                  {"barriers", barriers}, {"copies", copies},   {"exits", exits}, {"cluster", cluster}};
    if (count > 1 && !std::strncmp(names[1], "cluster-mistake-", 16))
        cluster_mistake(names[1][16] - '0');
    for (auto& each : checks)
        if (count < 2 || !std::strcmp(names[1], each.name))
            each.check();
    if (failures)
        fprintf(stderr, "%d failures\n", failures);
    return failures != 0;
}
