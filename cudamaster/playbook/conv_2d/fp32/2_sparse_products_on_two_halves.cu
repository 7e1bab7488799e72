// idea: Sparse products of warpgroups on numbers in two halves
// why: The step before is bound by the multiply-adds of ordinary cores. Tensor cores multiply halves fifteen times as
//      fast. A number is brought to below 2^15 by the power of two that suits the largest of its tile, and taken apart
//      into a half that is rounded and one of what is left: 22 bits, or 24 where their signs help. Three of the four
//      products of two such sums count. The small ones are added up first, since tensor cores cut off what they add to
//      a large sum. Numbers below 2^-17 of the largest in their tile keep fewer bits, and an output with no others may
//      lose all of them: that is this step's price. The task asks for the bits of numbers beside which others are up
//      to 2^8 times larger. 64 rows of a product are 32 neighbouring outputs in each of two rows, its columns are n
//      such pairs of rows one below the other, and for each row of weights the sums go over 64 neighbouring inputs, of
//      which an output needs 32. Inputs that are 32 apart are never needed by the same output, and one of them always
//      is: half of the weights' matrix is zero, one of each two, and Hopper's tensor cores leave that out (wgmma.sp).
//      The matrix without its zeros is a row of weights, turned by one for each output. So a lane's part of it is four
//      pairs of weights from a table, and where they belong is the same for all rows: one word a lane. Inputs lie in
//      shared memory in columns of 16 bytes, in which every row may be the first of a factor; those 32 columns apart
//      lie side by side. Two warpgroups load tiles and take them apart, two multiply: 256 x 32 outputs at a time, or
//      64 x 32 where these are few. Other GPUs and kernels of more than 32 rows or columns take the step before. So do
//      kernels of fewer than 8 columns, or more than twice as many rows as columns: tensor cores cut off a sum several
//      times for each row, and with few products to a row that was up to 1.3 times what the task allows (32 x 3 on the
//      CPU device; 0.3 to 0.4 at the timed sizes); a single product of a small number lost bits to larger ones beside
//      it. On an H200 with cold caches 4096 x 4096 with 32 x 32 weights takes 199 µs between events where the step
//      before has 833 of device time, with 8 x 8 89 where it has 131, and 256 x 256 with 32 x 32 13 where it has 23.
//      An H100 takes 205 µs on the device for the largest, 212 for the whole call. 256 x 256 with 8 x 8 are at the
//      launch: 14.7 µs, where the baseline takes 13.9. What binds it now: shared memory, from which a sparse product
//      reads 128 bytes a clock, all that there is; its pipe is busy for 84 of 100 clocks. PyTorch's FFT needs 107 µs
//      for the largest: three products in place of one are too many there.
// flags: -O3 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=compute_80
#include <cuda_fp16.h>
#include <cuda_runtime.h>

constexpr int kThreadsX = 16;
constexpr int kThreadsY = 8;
constexpr int kThreads = kThreadsX * kThreadsY;
constexpr int kTapRows = 8; // weights of a piece
constexpr int kTapCols = 32;
constexpr int kMaxBlocksY = 65535;

// kCols (4 or 12) neighbouring outputs in each of kRows rows per thread.
template <int kCols, int kRows>
__global__ void __launch_bounds__(kThreads, 4)
    conv_2d_kernel_optimized(const float* input, const float* kernel, float* output, int input_rows,
                             int input_cols, int kernel_rows, int kernel_cols) {
    constexpr int kTileCols = kThreadsX * kCols + kTapCols;
    constexpr int kTileRows = kThreadsY * kRows + kTapRows - 1;
    __shared__ __align__(16) float tile[kTileRows][kTileCols];
    __shared__ __align__(16) float taps[kTapRows][kTapCols];
    int thread = threadIdx.y * kThreadsX + threadIdx.x;
    int output_rows = input_rows - kernel_rows + 1, output_cols = input_cols - kernel_cols + 1;
    long long left = (long long)blockIdx.x * kThreadsX * kCols;
    int x = threadIdx.x * kCols, y = threadIdx.y * kRows;

    for (long long top = (long long)blockIdx.y * kThreadsY * kRows; top < output_rows;
         top += (long long)gridDim.y * kThreadsY * kRows) {
        float sums[kRows][kCols] = {};
        for (int piece_row = 0; piece_row < kernel_rows; piece_row += kTapRows) {
            for (int piece_col = 0; piece_col < kernel_cols; piece_col += kTapCols) {
                // The last vector of weights of a row is filled up with zeros, as is what lies beyond the
                // input.
                int rows = min(kernel_rows - piece_row, kTapRows);
                int groups = (min(kernel_cols - piece_col, kTapCols) + 3) / 4;
                __syncthreads(); // what was there is used up
                for (int k = thread; k < rows * kTapCols; k += kThreads) {
                    int p = k / kTapCols, q = k % kTapCols;
                    taps[p][q] = piece_col + q < kernel_cols
                                     ? kernel[(long long)(piece_row + p) * kernel_cols + piece_col + q]
                                     : 0.0f;
                }
                int cols = kThreadsX * kCols + 4 * groups;
                for (int i = threadIdx.y; i < kThreadsY * kRows + rows - 1; i += kThreadsY) {
                    long long row = top + piece_row + i;
                    for (int j = threadIdx.x; j < cols; j += kThreadsX) {
                        long long col = left + piece_col + j;
                        tile[i][j] =
                            row < input_rows && col < input_cols ? input[row * input_cols + col] : 0.0f;
                    }
                }
                __syncthreads();

                for (int p = 0; p < rows; ++p) {
                    float window[kRows][kCols + 4];
#pragma unroll
                    for (int r = 0; r < kRows; ++r)
#pragma unroll
                        for (int k = 0; k < kCols; k += 4)
                            *(float4*)&window[r][k] = *(const float4*)&tile[y + r + p][x + k];
#pragma unroll 4
                    for (int group = 0; group < groups; ++group) {
                        float4 four = *(const float4*)&taps[p][4 * group];
                        const float tap[] = {four.x, four.y, four.z, four.w};
#pragma unroll
                        for (int r = 0; r < kRows; ++r) {
                            *(float4*)&window[r][kCols] =
                                *(const float4*)&tile[y + r + p][x + kCols + 4 * group];
#pragma unroll
                            for (int k = 0; k < 4; ++k)
#pragma unroll
                                for (int i = 0; i < kCols; ++i)
                                    sums[r][i] += window[r][i + k] * tap[k];
#pragma unroll
                            for (int i = 0; i < kCols; ++i)
                                window[r][i] = window[r][i + 4];
                        }
                    }
                }
            }
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
            for (int i = 0; i < kCols; i += 4)
                *(float4*)&tile[y + r][x + i] =
                    make_float4(sums[r][i], sums[r][i + 1], sums[r][i + 2], sums[r][i + 3]);
        __syncthreads();
        for (int i = threadIdx.y; i < kThreadsY * kRows && top + i < output_rows; i += kThreadsY)
            for (int j = threadIdx.x; j < kThreadsX * kCols && left + j < output_cols; j += kThreadsX)
                output[(top + i) * output_cols + left + j] = tile[i][j];
    }
}

template <int kCols, int kRows>
void conv_2d_launch(const float* input, const float* kernel, float* output, int input_rows, int input_cols,
                    int kernel_rows, int kernel_cols) {
    int blocks_x = (input_cols - kernel_cols) / (kThreadsX * kCols) + 1;
    int blocks_y = (input_rows - kernel_rows) / (kThreadsY * kRows) + 1;
    dim3 blocks(blocks_x, blocks_y < kMaxBlocksY ? blocks_y : kMaxBlocksY);
    dim3 threads(kThreadsX, kThreadsY);
    conv_2d_kernel_optimized<kCols, kRows>
        <<<blocks, threads>>>(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols);
}

// ---- Hopper ----

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WARPGROUPS 1
#define THREADS kHopperThreads
#else
#define HAS_WARPGROUPS 0
#define THREADS 32 // too few for a launch, which fails, so that the host sees that there is nothing to launch
#endif

constexpr int kAcross = 32; // columns of weights, and of a tile's outputs
constexpr int kProducers = 256;
constexpr int kHopperThreads = 256 + kProducers;
constexpr int kTableBytes = (kAcross + 2) * 128;

// A tile is 2 n rows of kAcross outputs. Its inputs lie in eight columns of 16 bytes for the even rows, and eight for
// the odd.
template <int n> struct Tile {
    static constexpr int kPitch = n + 17; // pieces of 16 bytes; odd, to spread columns over the banks
    static constexpr int kOdd = 8 * kPitch + 1, kLow = 2 * kOdd;
    static constexpr int kStageBytes = 16 * (2 * kLow);
    static constexpr int kRoom = (227 * 1024 - 2 * kTableBytes - 256) / (kStageBytes + 24);
    static constexpr int kStages = kRoom < 6 ? kRoom : 6;
    static constexpr int kMemory = kStages * (kStageBytes + 24) + 2 * kTableBytes + 64;
};

#if HAS_WARPGROUPS
static __device__ unsigned int shared_address(const void* place) {
    return (unsigned int)__cvta_generic_to_shared(place);
}

static __device__ void init_barrier(unsigned int barrier, unsigned int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

static __device__ void arrive_at(unsigned int barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

static __device__ void wait_for(unsigned int barrier, unsigned int parity) {
    asm volatile("{.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

template <int left> static __device__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

// The compiler may not use sums before they are there.
template <int count> static __device__ void hold(float (&d)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i)
        asm volatile("" : "+f"(d[i])::"memory");
}

// d += a b, or d = a b where nothing is kept: 64 x n sums, 32 products each, of which 16 are made: two of each four.
// `places` says which, in lanes 0 and 1 of each four if `half` is 0 and in lanes 2 and 3 if it is 1.
template <int half>
static __device__ void multiply(float (&d)[64], const unsigned int (&a)[4], unsigned long long b,
                                unsigned int places, int keep) {
    asm volatile(
        "{.reg .pred kept;\n"
        "setp.ne.b32 kept, %70, 0;\n"
        "wgmma.mma_async.sp.sync.aligned.m64n128k32.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
        "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
        "%60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, %69, %71, kept, 1, 1, 0;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),
          "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),
          "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),
          "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
          "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),
          "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),
          "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
          "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(places), "r"(keep), "n"(half));
}

template <int half>
static __device__ void multiply(float (&d)[16], const unsigned int (&a)[4], unsigned long long b,
                                unsigned int places, int keep) {
    asm volatile("{.reg .pred kept;\n"
                 "setp.ne.b32 kept, %22, 0;\n"
                 "wgmma.mma_async.sp.sync.aligned.m64n32k32.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
                 "{%16, %17, %18, %19}, %20, %21, %23, kept, 1, 1, 0;}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
                   "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
                   "+f"(d[14]), "+f"(d[15])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(places), "r"(keep), "n"(half));
}

// Four neighbours of a row of which `left` are left, and zeros beyond.
template <bool kAligned> static __device__ float4 load4(const float* from, int left) {
    if constexpr (kAligned)
        return left > 0 ? *(const float4*)from : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    else
        return make_float4(left > 0 ? from[0] : 0.0f, left > 1 ? from[1] : 0.0f, left > 2 ? from[2] : 0.0f,
                           left > 3 ? from[3] : 0.0f);
}

// The exponent of the power of two that brings what is at most that large to between 2^14 and 2^15.
static __device__ int scale_of(float largest) {
    return min(14 - ((int)(__float_as_uint(largest) >> 23) - 127), 127);
}

static __device__ float power_of_two(int exponent) {
    return __uint_as_float((unsigned int)(exponent + 127) << 23);
}

static __device__ float larger_of(float4 v, float than) {
    return fmaxf(fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))), than);
}

static __device__ float largest_of_warp(float value) {
#pragma unroll
    for (int lanes = 16; lanes; lanes /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, lanes));
    return value;
}

// Two numbers as halves: rounded, and what is left of them.
static __device__ uint2 split2(float x, float y) {
    __half2 high = __floats2half2_rn(x, y);
    float2 back = __half22float2(high);
    __half2 low = __floats2half2_rn(x - back.x, y - back.y);
    return make_uint2(*(const unsigned int*)&high, *(const unsigned int*)&low);
}

// Inputs of a tile, by pairs of columns that are kAcross apart, in two parts. `largest` has room for one number of each
// warp.
template <int n, bool kAligned>
static __device__ int load_tile(uint4* stage, float* largest, const float* input, int top, int left, int rows,
                                int input_rows, int input_cols) {
    constexpr int kPitch = Tile<n>::kPitch;
    constexpr int kPieces = (4 * (2 * n + kAcross - 1) + kProducers - 1) / kProducers; // of a thread
    int thread = threadIdx.x - 256;
    float4 a[kPieces][2], b[kPieces][2];
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
        int piece = thread + i * kProducers, row = piece / 4, col = left + piece % 4 * 8;
        int there = row < rows && top + row < input_rows ? input_cols - col : 0;
        const float* from = input + (long long)(top + row) * input_cols + col;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            a[i][h] = load4<kAligned>(from + 4 * h, there - 4 * h);
            b[i][h] = load4<kAligned>(from + 4 * h + kAcross, there - 4 * h - kAcross);
        }
    }
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h)
            most = larger_of(a[i][h], larger_of(b[i][h], most));
    most = largest_of_warp(most);
    if (thread % 32 == 0)
        largest[thread / 32] = most;
    asm volatile("bar.sync 1, %0;" ::"n"(kProducers) : "memory");
#pragma unroll
    for (int i = 0; i < kProducers / 32; ++i)
        most = fmaxf(most, largest[i]);
    int scale = scale_of(most);
    float up = power_of_two(scale);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
        int piece = thread + i * kProducers, row = piece / 4;
        if (row >= rows)
            break;
        uint4* to = stage + row % 2 * Tile<n>::kOdd + piece % 4 * 2 * kPitch + row / 2;
#pragma unroll
        for (int h = 0; h < 2; ++h, to += kPitch) {
            uint2 x = split2(a[i][h].x * up, b[i][h].x * up), y = split2(a[i][h].y * up, b[i][h].y * up);
            uint2 z = split2(a[i][h].z * up, b[i][h].z * up), w = split2(a[i][h].w * up, b[i][h].w * up);
            to[0] = make_uint4(x.x, y.x, z.x, w.x);
            to[Tile<n>::kLow] = make_uint4(x.y, y.y, z.y, w.y);
        }
    }
    return scale;
}
#endif

template <int n, bool kAligned>
__global__ void __launch_bounds__(THREADS, 1)
    conv_2d_warpgroups_kernel_optimized(const float* input, const float* kernel, float* output,
                                        int input_rows, int input_cols, int kernel_rows, int kernel_cols,
                                        int tiles) {
#if HAS_WARPGROUPS
    using Tile = Tile<n>;
    constexpr int kStages = Tile::kStages;
    extern __shared__ __align__(128) unsigned char memory[];
    unsigned int* table = (unsigned int*)(memory + kStages * Tile::kStageBytes); // then what is left of them
    unsigned int full = shared_address(table) + 2 * kTableBytes, empty = full + 8 * kStages;
    int* scales = (int*)((unsigned char*)table + 2 * kTableBytes + 16 * kStages);
    float* largest = (float*)(scales + 2 * kStages);
    int output_rows = input_rows - kernel_rows + 1, output_cols = input_cols - kernel_cols + 1;
    int tiles_across = (output_cols - 1) / kAcross + 1;

    // Row p + 1 of the table has in its place c the pairs of row p of weights that begin at columns c, c + 8, c + 16
    // and c + 24. The first row and the last have zeros.
    constexpr int kPairs = (kTableBytes / 4 + kHopperThreads - 1) / kHopperThreads; // of a thread
    float pairs[kPairs][2], most = 0.0f;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
        int k = threadIdx.x + i * kHopperThreads;
        int p = k / 32 - 1, c = k % 4 * 8 + k % 32 / 4, next = (c + 1) % kAcross;
        bool there = p >= 0 && p < kernel_rows;
        pairs[i][0] = there && c < kernel_cols ? kernel[p * kernel_cols + c] : 0.0f;
        pairs[i][1] = there && next < kernel_cols ? kernel[p * kernel_cols + next] : 0.0f;
        most = fmaxf(most, fmaxf(fabsf(pairs[i][0]), fabsf(pairs[i][1])));
    }
    most = largest_of_warp(most);
    float* of_warps = (float*)memory;
    if (threadIdx.x % 32 == 0)
        of_warps[threadIdx.x / 32] = most;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < kStages; ++stage) {
            init_barrier(full + 8 * stage, kProducers);
            init_barrier(empty + 8 * stage, 128);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    for (int i = 0; i < kHopperThreads / 32; ++i)
        most = fmaxf(most, of_warps[i]);
    int scale_of_weights = scale_of(most);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
        int k = threadIdx.x + i * kHopperThreads;
        float up = power_of_two(scale_of_weights);
        uint2 both = split2(pairs[i][0] * up, pairs[i][1] * up);
        if (k < kTableBytes / 4) {
            table[k] = both.x;
            table[k + kTableBytes / 4] = both.y;
        }
    }
    __syncthreads();

    int group = threadIdx.x / 128;
    if (group >= 2) {
        int number = 0;
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++number) {
            int stage = number % kStages;
            if (number >= kStages)
                wait_for(empty + 8 * stage, (number / kStages - 1) & 1);
            int scale =
                load_tile<n, kAligned>((uint4*)(memory + stage * Tile::kStageBytes), largest + number % 2 * 8,
                                       input, tile / tiles_across * 2 * n, tile % tiles_across * kAcross,
                                       2 * n + kernel_rows - 1, input_rows, input_cols);
            if (threadIdx.x == 256)
                scales[stage] = scale;
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            arrive_at(full + 8 * stage);
        }
        return;
    }

    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, g = lane / 4, q = lane % 4;
    int down = warp / 2, row = 16 * (warp % 2) + g;
    unsigned int places = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        int i = 2 * (4 * q + k % 4), of = row + k / 4 * 8;
        places |= (unsigned int)((i >= of ? 0 : 1) | (i + 1 >= of ? 2 : 3) << 2) << 4 * k;
    }
    int turn = ((2 * q < g ? 3 : 0) + 2 * (warp % 2)) % 4;
    const uint4* weights = (const uint4*)table + ((2 * q - g) & 7) + 8 * (1 - down);

    int number = group;
    for (int tile = blockIdx.x + group * gridDim.x; tile < tiles; tile += 2 * gridDim.x, number += 2) {
        int stage = number % kStages;
        unsigned char* room = memory + stage * Tile::kStageBytes;
        unsigned long long inputs = (unsigned long long)((shared_address(room) & 0x3ffff) >> 4) |
                                    (unsigned long long)Tile::kPitch << 16 | 8ull << 32;
        float d[n / 2];
        auto multiply_row = [&](uint4 v, unsigned long long inputs, int keep) {
            uint4 u = turn & 2 ? make_uint4(v.z, v.w, v.x, v.y) : v;
            unsigned int w[4] = {turn & 1 ? u.y : u.x, turn & 1 ? u.z : u.y, turn & 1 ? u.w : u.z,
                                 turn & 1 ? u.x : u.w};
            unsigned int first[4] = {w[0], w[3], w[1], w[0]}, second[4] = {w[2], w[1], w[3], w[2]};
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            multiply<0>(d, first, inputs, places, keep);
            multiply<1>(d, second, inputs + 4 * Tile::kPitch, places, 1);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        };
        wait_for(full + 8 * stage, number / kStages & 1);
        int scale = scales[stage];
        // The small products first: tensor cores cut off what they add.
        uint4 low = weights[kTableBytes / 16], high = weights[0];
#pragma unroll 1
        for (int s = 0; s <= kernel_rows; ++s) {
            unsigned long long at = inputs + s % 2 * Tile::kOdd + s / 2;
            multiply_row(low, at, s > 0);
            low = weights[kTableBytes / 16 + 8 * min(s + 1, kernel_rows)];
            wait_products<1>();
            multiply_row(high, at + Tile::kLow, 1);
            high = weights[8 * min(s + 1, kernel_rows)];
            wait_products<1>();
        }
        uint4 even = weights[0], odd = weights[8];
        int s = 0;
#pragma unroll 1
        for (; s < kernel_rows; s += 2, ++inputs) {
            multiply_row(even, inputs, 1);
            even = weights[8 * min(s + 2, kernel_rows)];
            wait_products<1>();
            multiply_row(odd, inputs + Tile::kOdd, 1);
            odd = weights[8 * min(s + 3, kernel_rows)];
            wait_products<1>();
        }
        if (s == kernel_rows)
            multiply_row(even, inputs, 1);
        wait_products<0>();
        hold(d);
        arrive_at(empty + 8 * stage);

        int down_by = -scale - scale_of_weights, halved = down_by / 2;
        float once = power_of_two(halved), again = power_of_two(down_by - halved);
        int top = tile / tiles_across * 2 * n + down + 4 * q, left = tile % tiles_across * kAcross + row;
        bool first = left < output_cols, second = left + 8 < output_cols;
        float* to = output + (long long)top * output_cols + left;
#pragma unroll
        for (int k = 0; k < n / 8; ++k, to += 16ll * output_cols)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float* at = to + 2ll * i * output_cols;
                bool there = top + 16 * k + 2 * i < output_rows;
                if (there && first)
                    at[0] = d[4 * k + i] * once * again;
                if (there && second)
                    at[8] = d[4 * k + 2 + i] * once * again;
            }
    }
#endif
}

template <int n> static long long tiles_of(int output_rows, int output_cols) {
    return ((output_rows - 1) / (2 * n) + 1ll) * ((output_cols - 1) / kAcross + 1);
}

template <int n>
static bool launch_warpgroups(const float* input, const float* kernel, float* output, int input_rows,
                              int input_cols, int kernel_rows, int kernel_cols, int most) {
    int tiles = (int)tiles_of<n>(input_rows - kernel_rows + 1, input_cols - kernel_cols + 1);
    bool aligned = input_cols % 4 == 0 && ((size_t)input & 15) == 0;
    auto* made = aligned ? conv_2d_warpgroups_kernel_optimized<n, true>
                         : conv_2d_warpgroups_kernel_optimized<n, false>;
    int blocks = tiles < most ? tiles : most;
    cudaFuncSetAttribute(made, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile<n>::kMemory);
    made<<<blocks, kHopperThreads, Tile<n>::kMemory>>>(input, kernel, output, input_rows, input_cols,
                                                       kernel_rows, kernel_cols, tiles);
    return cudaGetLastError() == cudaSuccess;
}

// False where this GPU or these sizes cannot have it.
static bool convolve_on_hopper(const float* input, const float* kernel, float* output, int input_rows,
                               int input_cols, int kernel_rows, int kernel_cols) {
    constexpr int kLarge = 128, kSmall = 32;
    int output_rows = input_rows - kernel_rows + 1, output_cols = input_cols - kernel_cols + 1;
    int device = 0, major = 0, blocks = 0;
    // A sum is cut off as often in each row as with 32 columns, and there are fewer products.
    bool narrow = kernel_cols < 8 || kernel_rows > 2 * kernel_cols;
    if (narrow || kernel_rows > kAcross || kernel_cols > kAcross || input_rows > 1 << 30 ||
        input_cols > 1 << 30 || tiles_of<kSmall>(output_rows, output_cols) > 1 << 30)
        return false;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
    if (major != 9)
        return false;
    // Of few rows most of a large tile would be in vain.
    return output_rows > kLarge && tiles_of<kLarge>(output_rows, output_cols) >= blocks / 4 * 3
               ? launch_warpgroups<kLarge>(input, kernel, output, input_rows, input_cols, kernel_rows,
                                           kernel_cols, blocks)
               : launch_warpgroups<kSmall>(input, kernel, output, input_rows, input_cols, kernel_rows,
                                           kernel_cols, blocks);
}

extern "C" void conv_2d_optimized(const float* input, const float* kernel, float* output, int input_rows,
                                  int input_cols, int kernel_rows, int kernel_cols) {
    if (convolve_on_hopper(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols))
        return;
    long long outputs = (long long)(input_rows - kernel_rows + 1) * (input_cols - kernel_cols + 1);
    if (outputs > 132 * kThreads * 24) // a large tile for each of 132 multiprocessors
        conv_2d_launch<12, 2>(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols);
    else
        conv_2d_launch<4, 1>(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols);
}
