// Products of a warpgroup with a sparse first factor, of whole numbers, held against the same product made here. The argument
// says where the factor is, or what is wrong.
#include <cstdio>
#include <cstring>

constexpr int kRows = 64, kInner = 32, kColumns = 8;

// `selector` is the pair of lanes whose word is the one that counts; the others' say something else.
template <bool registers, int selector>
__global__ void __launch_bounds__(128) product_kernel(const unsigned short* packed, const unsigned short* b,
                                                      const unsigned* places, float* out) {
    __shared__ __align__(128) unsigned short shared[kRows * kInner / 2 + kColumns * kInner];
    unsigned t = threadIdx.x, lane = t % 32, row = t / 32 * 16 + lane / 4;
    // Eight rows of 16 bytes lie together: of A two such columns, of B four.
    for (unsigned i = t; i < kRows * kInner / 2; i += 128)
        shared[i / 16 / 8 * 128 + i % 16 / 8 * 64 + i / 16 % 8 * 8 + i % 8] = packed[i];
    for (unsigned i = t; i < kColumns * kInner; i += 128)
        shared[kRows * kInner / 2 + i % kInner / 8 * 64 + i / kInner * 8 + i % 8] = b[i];
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    unsigned long long start = (__cvta_generic_to_shared(shared) & 0x3ffff) >> 4;
    unsigned long long of_a = start | 8ull << 16 | 16ull << 32;
    unsigned long long of_b = (start + kRows * kInner / 16) | 8ull << 16 | 8ull << 32;
    const unsigned* pairs = (const unsigned*)packed;
    unsigned a[4];
    for (int i = 0; i < 4; ++i)
        a[i] = pairs[(row + i % 2 * 8) * kInner / 4 + i / 2 * 4 + lane % 4];
    unsigned word = lane % 4 / 2 == selector ? places[t / 32 * 16 + lane / 4 * 2 + lane % 2] : 0x4444;
    float d[4] = {};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    if (registers)
        asm volatile(
            "{ .reg .pred p; setp.ne.b32 p, %10, 0;\n"
            "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
            "%8, %9, %11, p, 1, 1, 0; }"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(of_b), "r"(word), "r"(0), "n"(selector));
    else
        asm volatile(
            "{ .reg .pred p; setp.ne.b32 p, %7, 0;\n"
            "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, %6, %8, p, "
            "1, 1, 0, 0; }"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "l"(of_a), "l"(of_b), "r"(word), "r"(0), "n"(selector));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 4; ++i)
        out[(row + i / 2 * 8) * kColumns + lane % 4 * 2 + i % 2] = d[i];
}

static unsigned short bits(int whole) {
    float value = (float)whole;
    unsigned word;
    std::memcpy(&word, &value, 4);
    return (unsigned short)(word >> 16);
}

int main(int, char** names) {
    static unsigned short packed[kRows * kInner / 2], b[kColumns * kInner];
    static unsigned places[kRows];
    static float wanted[kRows * kColumns], got[kRows * kColumns];
    bool wrong = !std::strcmp(names[1], "out-of-order");
    static const unsigned kTwo[] = {0x4, 0x8, 0xc, 0x9, 0xd, 0xe};
    unsigned random = 1;
    auto next = [&](unsigned below) { return (random = random * 1664525 + 1013904223) / 65536 % below; };
    for (int column = 0; column < kColumns; ++column)
        for (int k = 0; k < kInner; ++k)
            b[column * kInner + k] = bits((column * 7 + k * 5) % 9 - 4);
    for (int row = 0; row < kRows; ++row)
        for (int four = 0; four < kInner / 4; ++four) {
            unsigned two = kTwo[next(6)];
            places[row / 16 * 16 + row % 8 * 2 + four / 4] |= two << (row / 8 % 2 * 16 + four % 4 * 4);
            for (int i = 0; i < 2; ++i) {
                int whole = (int)next(9) - 4, k = four * 4 + (two >> 2 * i & 3);
                packed[row * kInner / 2 + four * 2 + i] = bits(whole);
                for (int column = 0; column < kColumns; ++column)
                    wanted[row * kColumns + column] += whole * ((column * 7 + k * 5) % 9 - 4);
            }
        }
    if (wrong)
        places[5] = 0x44444441;
    unsigned short *to_packed, *to_b;
    unsigned* to_places;
    float* out;
    cudaMalloc(&to_packed, sizeof packed);
    cudaMalloc(&to_b, sizeof b);
    cudaMalloc(&to_places, sizeof places);
    cudaMalloc(&out, sizeof got);
    cudaMemcpy(to_packed, packed, sizeof packed, cudaMemcpyHostToDevice);
    cudaMemcpy(to_b, b, sizeof b, cudaMemcpyHostToDevice);
    cudaMemcpy(to_places, places, sizeof places, cudaMemcpyHostToDevice);
    if (!std::strcmp(names[1], "shared"))
        product_kernel<false, 0><<<1, 128>>>(to_packed, to_b, to_places, out);
    else if (!std::strcmp(names[1], "shared-upper"))
        product_kernel<false, 1><<<1, 128>>>(to_packed, to_b, to_places, out);
    else if (!std::strcmp(names[1], "registers-upper"))
        product_kernel<true, 1><<<1, 128>>>(to_packed, to_b, to_places, out);
    else
        product_kernel<true, 0><<<1, 128>>>(to_packed, to_b, to_places, out);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 9;
    cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost);
    return std::memcmp(got, wanted, sizeof got) ? 3 : 0;
}
