// idea: Sparse products of warpgroups
// why: The step before multiplies by tiles of weights that are zeros for a third to a half, and a warp loads a tile
//      of inputs for three products. Here 64 rows of a product are 32 neighbouring outputs in each of two rows, its
//      columns are n such pairs of rows one below the other, and for each row of weights the sums go over 64
//      neighbouring inputs, of which an output needs 32. Inputs that are 32 apart are never needed by the same
//      output, and one of them always is: half of the weights' matrix is zero, one of each two, and Hopper's tensor
//      cores leave that out (wgmma.sp), so that no product is made in vain. The matrix without its zeros is a row of
//      weights, turned by one for each output. So a lane's part of it is four pairs of weights from a table of 128
//      bytes a row, and where they belong is the same for all rows: one word a lane. Inputs lie in shared memory in
//      columns of 16 bytes, in which every row may be the first of a factor; those 32 columns apart lie side by side.
//      One warpgroup loads tiles, two multiply: 416 x 32 outputs at a time, or 128 x 32 where these are few. Weights
//      are loaded a step before they are needed, since loads from shared memory are slow when tensor cores read from
//      it all the time. Up to 16 x 16 weights and 17 million products take one small launch before the driver is
//      asked for anything: a thread has two or four outputs of a column, with sums in fp32, and all that a block
//      needs is under way at once. Other GPUs and kernels of more than 32 rows or columns take the step before. On an
//      H200 with cold caches 4096 x 4096 with 32 x 32 weights took 73 µs between events, before weights were loaded
//      early (which gained 4 of 79 with tiles of 256 rows), where the step before has 266 of device time; with 16 x
//      16 52 where it has 108, and 1024 x 1024 with 32 x 32 12 where it has 43. As it stands an H100 takes 72 µs on
//      the device for the largest, 81 for the whole call. On an H200, by `cudamaster evaluate`, 256 x 256 with 8 x 8
//      take 12.3 µs for the whole call, where sparse products take 15.2, the baseline 15.2 to 15.4 and an empty
//      launch 10.4; 128 x 16000 with 32 x 32 take 27.7, where tiles of 416 rows took 38.7. What binds it now: shared
//      memory, from which a sparse product reads 128 bytes a clock, all that there is: its pipe is busy for 83 of 100
//      clocks, and products without loads and stores take 53 µs of the 73. Slower: the second half of each product by
//      dense ones (fewer bytes, but smaller), results straight from registers, swizzled rows, weights as a factor in
//      shared memory.
// flags: -O3 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=compute_80
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <mma.h>

constexpr int kWarps = 4; // each makes 16 rows of the block's outputs
constexpr int kThreads = 32 * kWarps;
constexpr int kRows = 16 * kWarps;
constexpr int kCols = 128;
constexpr int kColTiles = kCols / 16;
constexpr int kTapRows = 8; // weights of a piece
constexpr int kTapCols = 32;
constexpr int kMaxTiles = 3; // tiles of W that differ: (kTapCols + 14) / 16 + 1
constexpr int kPitch = 176;  // of a row of inputs; an odd multiple of 32 bytes, to spread rows over the banks
constexpr int kInputs = (kRows + kTapRows - 1) * kPitch;
constexpr int kSumsPitch = kCols + 4;
constexpr int kInputBytes = 2 * (kInputs + kTapRows * kMaxTiles * 256);
constexpr int kSumBytes = 4 * kRows * kSumsPitch;
constexpr int kMaxBlocksY = 65535;

using FragmentW =
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __nv_bfloat16, nvcuda::wmma::row_major>;
using FragmentX =
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __nv_bfloat16, nvcuda::wmma::col_major>;
using FragmentSums = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;

// `rows` rows of `cols` inputs, a multiple of 16, from (top, left) on; zeros beyond the edges.
__device__ void conv_2d_load(__nv_bfloat16* inputs, const __nv_bfloat16* input, long long top, long long left,
                             int rows, int cols, int input_rows, int input_cols) {
    if (input_cols % 8 == 0 && ((size_t)(input + left) & 15) == 0) {
        int vectors = cols / 8;
        for (int k = threadIdx.x; k < rows * vectors; k += kThreads) {
            long long row = top + k / vectors, col = left + k % vectors * 8;
            uint4 vector = make_uint4(0, 0, 0, 0);
            if (row < input_rows && col < input_cols)
                vector = *(const uint4*)&input[row * input_cols + col];
            *(uint4*)&inputs[k / vectors * kPitch + k % vectors * 8] = vector;
        }
        return;
    }
    for (int i = threadIdx.x / 32; i < rows; i += kWarps) {
        long long row = top + i;
        for (int j = threadIdx.x % 32; j < cols; j += 32)
            inputs[i * kPitch + j] = row < input_rows && left + j < input_cols
                                         ? input[row * input_cols + left + j]
                                         : __float2bfloat16(0.0f);
    }
}

// kTiles: tiles of W that differ, for as many columns of weights as a piece has.
template <int kTiles>
__global__ void __launch_bounds__(kThreads)
    conv_2d_bf16_kernel_optimized(const __nv_bfloat16* input, const __nv_bfloat16* kernel,
                                  __nv_bfloat16* output, int input_rows, int input_cols, int kernel_rows,
                                  int kernel_cols) {
    __shared__ __align__(32) unsigned char memory[kInputBytes > kSumBytes ? kInputBytes : kSumBytes];
    __nv_bfloat16* inputs = (__nv_bfloat16*)memory;
    __nv_bfloat16* weights =
        inputs + kInputs; // tile d of row p: its element [b][c] is kernel[p][16 d + c - b]
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float* sums =
        (float*)memory + 16 * warp * kSumsPitch; // of this warp, in the end, when the rest is used up
    int output_rows = input_rows - kernel_rows + 1, output_cols = input_cols - kernel_cols + 1;
    long long left = (long long)blockIdx.x * kCols;

    for (long long top = (long long)blockIdx.y * kRows; top < output_rows;
         top += (long long)gridDim.y * kRows) {
        FragmentSums products[kColTiles];
#pragma unroll
        for (int tile = 0; tile < kColTiles; ++tile)
            nvcuda::wmma::fill_fragment(products[tile], 0.0f);
        for (int piece_row = 0; piece_row < kernel_rows; piece_row += kTapRows) {
            for (int piece_col = 0; piece_col < kernel_cols; piece_col += kTapCols) {
                int rows = min(kernel_rows - piece_row, kTapRows),
                    cols = min(kernel_cols - piece_col, kTapCols);
                __syncthreads(); // what was there is used up
                for (int k = threadIdx.x; k < rows * kTiles * 256; k += kThreads) {
                    int p = k / (kTiles * 256), q = k / 256 % kTiles * 16 + k % 16 - k / 16 % 16;
                    weights[k] = q >= 0 && q < cols
                                     ? kernel[(long long)(piece_row + p) * kernel_cols + piece_col + q]
                                     : __float2bfloat16(0.0f);
                }
                conv_2d_load(inputs, input, top + piece_row, left + piece_col, kRows + rows - 1,
                             kCols + 16 * (kTiles - 1), input_rows, input_cols);
                __syncthreads();

                for (int p = 0; p < rows; ++p) {
                    const __nv_bfloat16* columns = inputs + (16 * warp + p) * kPitch;
                    FragmentW w[kTiles];
#pragma unroll
                    for (int d = 0; d < kTiles; ++d)
                        nvcuda::wmma::load_matrix_sync(w[d], weights + (p * kTiles + d) * 256, 16);
#pragma unroll
                    for (int step = 0; step < kColTiles + kTiles - 1; ++step) {
                        FragmentX x;
                        nvcuda::wmma::load_matrix_sync(x, columns + 16 * step, kPitch);
#pragma unroll
                        for (int d = 0; d < kTiles; ++d)
                            if (step - d >= 0 && step - d < kColTiles)
                                nvcuda::wmma::mma_sync(products[step - d], w[d], x, products[step - d]);
                    }
                }
            }
        }

        __syncthreads();
#pragma unroll
        for (int tile = 0; tile < kColTiles; ++tile)
            nvcuda::wmma::store_matrix_sync(sums + 16 * tile, products[tile], kSumsPitch,
                                            nvcuda::wmma::mem_col_major);
        __syncwarp();
        long long first = top + 16 * warp;
        for (int i = 0; i < 16 && first + i < output_rows; ++i)
            for (int j = lane; j < kCols && left + j < output_cols; j += 32)
                output[(first + i) * output_cols + left + j] = __float2bfloat16(sums[i * kSumsPitch + j]);
    }
}

template <int kTiles>
void conv_2d_bf16_launch(const __nv_bfloat16* input, const __nv_bfloat16* kernel, __nv_bfloat16* output,
                         int input_rows, int input_cols, int kernel_rows, int kernel_cols) {
    int blocks_y = (input_rows - kernel_rows) / kRows + 1;
    dim3 blocks((input_cols - kernel_cols) / kCols + 1, blocks_y < kMaxBlocksY ? blocks_y : kMaxBlocksY);
    conv_2d_bf16_kernel_optimized<kTiles>
        <<<blocks, kThreads>>>(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols);
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
constexpr int kProducers = 128;
[[maybe_unused]] constexpr int kAtOnce = 7; // pieces of a row that a thread has under way
constexpr int kHopperThreads = 256 + kProducers;
constexpr int kTableBytes = (kAcross + 2) * 128;

// A tile is 2 n rows of kAcross outputs. Its inputs lie in eight columns of 16 bytes for the even rows, and eight for
// the odd.
template <int n> struct Tile {
    static constexpr int kPitch = n + 17; // pieces of 16 bytes; odd, to spread columns over the banks
    static constexpr int kOdd = 8 * kPitch + 1;
    static constexpr int kStageBytes = 16 * (2 * kOdd);
    static constexpr int kRoom = (227 * 1024 - kTableBytes) / (kStageBytes + 16);
    static constexpr int kStages = kRoom < 6 ? kRoom : 6;
    static constexpr int kMemory = kStages * (kStageBytes + 16) + kTableBytes;
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

static __device__ unsigned int pack2(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const unsigned int*)&pair;
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
static __device__ void multiply(float (&d)[104], const unsigned int (&a)[4], unsigned long long b,
                                unsigned int places, int keep) {
    asm volatile(
        "{.reg .pred kept;\n"
        "setp.ne.b32 kept, %110, 0;\n"
        "wgmma.mma_async.sp.sync.aligned.m64n208k32.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
        "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
        "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, "
        "%100, %101, %102, %103}, "
        "{%104, %105, %106, %107}, %108, %109, %111, kept, 1, 1, 0;}"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),
          "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),
          "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),
          "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
          "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),
          "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),
          "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
          "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
          "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]),
          "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]),
          "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]),
          "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]),
          "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]),
          "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(places), "r"(keep), "n"(half));
}

template <int half>
static __device__ void multiply(float (&d)[32], const unsigned int (&a)[4], unsigned long long b,
                                unsigned int places, int keep) {
    asm volatile("{.reg .pred kept;\n"
                 "setp.ne.b32 kept, %38, 0;\n"
                 "wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
                 "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, %37, %39, kept, 1, 1, 0;}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
                   "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
                   "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
                   "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
                   "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(places), "r"(keep), "n"(half));
}

// Eight neighbours of a row of which `left` are left, and zeros beyond.
template <bool kAligned> static __device__ uint4 load8(const __nv_bfloat16* from, int left) {
    if constexpr (kAligned) {
        return left > 0 ? *(const uint4*)from : make_uint4(0, 0, 0, 0);
    } else {
        unsigned int words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            unsigned int low = 2 * i < left ? __bfloat16_as_ushort(from[2 * i]) : 0;
            unsigned int high = 2 * i + 1 < left ? __bfloat16_as_ushort(from[2 * i + 1]) : 0;
            words[i] = high << 16 | low;
        }
        return make_uint4(words[0], words[1], words[2], words[3]);
    }
}

// Inputs of a tile, by pairs of columns that are kAcross apart.
template <int n, bool kAligned>
static __device__ void load_tile(uint4* stage, const __nv_bfloat16* input, int top, int left, int rows,
                                 int input_rows, int input_cols) {
    constexpr int kPitch = Tile<n>::kPitch;
    for (int first = threadIdx.x - 256; first < 4 * rows; first += kAtOnce * kProducers) {
        uint4 a[kAtOnce], b[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            int piece = first + i * kProducers, row = piece / 4, col = left + piece % 4 * 8;
            int there = row < rows && top + row < input_rows ? input_cols - col : 0;
            const __nv_bfloat16* from = input + (long long)(top + row) * input_cols + col;
            a[i] = load8<kAligned>(from, there);
            b[i] = load8<kAligned>(from + kAcross, there - kAcross);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            int piece = first + i * kProducers, row = piece / 4;
            if (row >= rows)
                break;
            uint4* to = stage + row % 2 * Tile<n>::kOdd + piece % 4 * 2 * kPitch + row / 2;
            to[0] = make_uint4(__byte_perm(a[i].x, b[i].x, 0x5410), __byte_perm(a[i].x, b[i].x, 0x7632),
                               __byte_perm(a[i].y, b[i].y, 0x5410), __byte_perm(a[i].y, b[i].y, 0x7632));
            to[kPitch] = make_uint4(__byte_perm(a[i].z, b[i].z, 0x5410), __byte_perm(a[i].z, b[i].z, 0x7632),
                                    __byte_perm(a[i].w, b[i].w, 0x5410), __byte_perm(a[i].w, b[i].w, 0x7632));
        }
    }
}
#endif

template <int n, bool kAligned>
__global__ void __launch_bounds__(THREADS, 1)
    conv_2d_bf16_warpgroups_kernel_optimized(const __nv_bfloat16* input, const __nv_bfloat16* kernel,
                                             __nv_bfloat16* output, int input_rows, int input_cols,
                                             int kernel_rows, int kernel_cols, int tiles) {
#if HAS_WARPGROUPS
    using Tile = Tile<n>;
    constexpr int kStages = Tile::kStages;
    extern __shared__ __align__(128) unsigned char memory[];
    unsigned int* table = (unsigned int*)(memory + kStages * Tile::kStageBytes);
    unsigned int full = shared_address(table) + kTableBytes, empty = full + 8 * kStages;
    int output_rows = input_rows - kernel_rows + 1, output_cols = input_cols - kernel_cols + 1;
    int tiles_across = (output_cols - 1) / kAcross + 1;

    // Row p + 1 of the table has in its place c the pairs of row p of weights that begin at columns c, c + 8, c + 16
    // and c + 24. The first row and the last have zeros.
    constexpr int kPairs = (kTableBytes / 4 + kHopperThreads - 1) / kHopperThreads; // of a thread
    unsigned int pairs[kPairs];
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
        int k = threadIdx.x + i * kHopperThreads;
        int p = k / 32 - 1, c = k % 4 * 8 + k % 32 / 4, next = (c + 1) % kAcross;
        bool there = p >= 0 && p < kernel_rows;
        unsigned int low = there && c < kernel_cols ? __bfloat16_as_ushort(kernel[p * kernel_cols + c]) : 0;
        unsigned int high =
            there && next < kernel_cols ? __bfloat16_as_ushort(kernel[p * kernel_cols + next]) : 0;
        pairs[i] = high << 16 | low;
    }
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
        if (threadIdx.x + i * kHopperThreads < kTableBytes / 4)
            table[threadIdx.x + i * kHopperThreads] = pairs[i];
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < kStages; ++stage) {
            init_barrier(full + 8 * stage, kProducers);
            init_barrier(empty + 8 * stage, 128);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    int group = threadIdx.x / 128;
    if (group == 2) {
        int number = 0;
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++number) {
            int stage = number % kStages;
            if (number >= kStages)
                wait_for(empty + 8 * stage, (number / kStages - 1) & 1);
            load_tile<n, kAligned>((uint4*)(memory + stage * Tile::kStageBytes), input,
                                   tile / tiles_across * 2 * n, tile % tiles_across * kAcross,
                                   2 * n + kernel_rows - 1, input_rows, input_cols);
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
        uint4 even = weights[0], odd = weights[8]; // of this step and the next
        int s = 0;
#pragma unroll 1
        for (; s < kernel_rows; s += 2, ++inputs) {
            multiply_row(even, inputs, s > 0);
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

        // Results are rounded and leave through the room of the tile's inputs: even rows, then odd, 80 bytes apart.
        asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
#pragma unroll
        for (int k = 0; k < n / 8; k += 2) {
            unsigned int two[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                two[i] = pack2(d[4 * k + 2 * i], d[4 * k + 2 * i + 1]);
            int r = down * n + 8 * (k + lane / 16) + lane % 8;
            unsigned int to = shared_address(room) + r * 80 + warp % 2 * 32 + lane / 8 % 2 * 16;
            asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                         "r"(two[0]), "r"(two[1]), "r"(two[2]), "r"(two[3])
                         : "memory");
        }
        asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
        int top = tile / tiles_across * 2 * n + down, col = tile % tiles_across * kAcross + lane;
        if (col < output_cols) {
            int rows = min(n, (output_rows - top + 1) / 2); // top, top + 2 and so on
            const __nv_bfloat16* from = (const __nv_bfloat16*)room + down * n * 40 + lane;
            __nv_bfloat16* to = output + (long long)top * output_cols + col;
#pragma unroll 8
            for (int r = warp % 2; r < rows; r += 2)
                to[2ll * r * output_cols] = from[40 * r];
        }
        arrive_at(empty + 8 * stage);
    }
#endif
}

template <int n> static long long tiles_of(int output_rows, int output_cols) {
    return ((output_rows - 1) / (2 * n) + 1ll) * ((output_cols - 1) / kAcross + 1);
}

template <int n>
static bool launch_warpgroups(const __nv_bfloat16* input, const __nv_bfloat16* kernel, __nv_bfloat16* output,
                              int input_rows, int input_cols, int kernel_rows, int kernel_cols, int most) {
    int tiles = (int)tiles_of<n>(input_rows - kernel_rows + 1, input_cols - kernel_cols + 1);
    bool aligned = input_cols % 8 == 0 && ((size_t)input & 15) == 0;
    auto* made = aligned ? conv_2d_bf16_warpgroups_kernel_optimized<n, true>
                         : conv_2d_bf16_warpgroups_kernel_optimized<n, false>;
    int blocks = tiles < most ? tiles : most;
    cudaFuncSetAttribute(made, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile<n>::kMemory);
    made<<<blocks, kHopperThreads, Tile<n>::kMemory>>>(input, kernel, output, input_rows, input_cols,
                                                       kernel_rows, kernel_cols, tiles);
    return cudaGetLastError() == cudaSuccess;
}

// False where this GPU or these sizes cannot have it.
static bool convolve_on_hopper(const __nv_bfloat16* input, const __nv_bfloat16* kernel, __nv_bfloat16* output,
                               int input_rows, int input_cols, int kernel_rows, int kernel_cols) {
    constexpr int kLarge = 208, kSmall = 64;
    int output_rows = input_rows - kernel_rows + 1, output_cols = input_cols - kernel_cols + 1;
    int device = 0, major = 0, blocks = 0;
    if (kernel_rows > kAcross || kernel_cols > kAcross || input_rows > 1 << 30 || input_cols > 1 << 30 ||
        tiles_of<kSmall>(output_rows, output_cols) > 1 << 30)
        return false;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
    if (major != 9)
        return false;
    // Of few rows most of a large tile would be in vain.
    return output_rows > kLarge && tiles_of<kLarge>(output_rows, output_cols) >= 2 * blocks
               ? launch_warpgroups<kLarge>(input, kernel, output, input_rows, input_cols, kernel_rows,
                                           kernel_cols, blocks)
               : launch_warpgroups<kSmall>(input, kernel, output, input_rows, input_cols, kernel_rows,
                                           kernel_cols, blocks);
}

// ---- Few results ----

// Results times weights: up to so many a small launch is faster, whatever the others save.
constexpr long long kFewResults = 1 << 24;
constexpr int kFewSide = 16; // rows and columns of weights at most
constexpr int kFewDown = 8;  // threads of a block, one below the other
constexpr int kFewRows = 1 << 19;

// A thread has kRows outputs one below the other, so each input that it loads from shared memory is used as often. All
// that a block needs is under way at once.
template <int kRows>
__global__ void __launch_bounds__(32 * kFewDown)
    conv_2d_bf16_few_kernel_optimized(const __nv_bfloat16* input, const __nv_bfloat16* kernel,
                                      __nv_bfloat16* output, int input_rows, int input_cols, int kernel_rows,
                                      int kernel_cols) {
    constexpr int kTileRows = kFewDown * kRows + kFewSide - 1;
    constexpr int kLoads = (kTileRows + kFewDown - 1) / kFewDown; // of a thread, twice
    __shared__ float tile[kLoads * kFewDown][32 + kFewSide + 1];
    __shared__ __align__(16) float taps[kFewSide][kFewSide];
    int x = threadIdx.x, y = threadIdx.y, groups = (kernel_cols + 3) / 4;
    int left = blockIdx.x * 32 + x, top = blockIdx.y * (kFewDown * kRows);
    int rows = min(kFewDown * kRows + kernel_rows - 1, input_rows - top);
    int p = (y * 32 + x) / kFewSide, q = (y * 32 + x) % kFewSide;
    float tap = p < kernel_rows && q < kernel_cols ? __bfloat162float(kernel[p * kernel_cols + q]) : 0.0f;
    float here[kLoads], beyond[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        int down = y + i * kFewDown;
        const __nv_bfloat16* from = input + (long long)(top + down) * input_cols + left;
        here[i] = down < rows && left < input_cols ? __bfloat162float(from[0]) : 0.0f;
        beyond[i] = down < rows && x < kFewSide && left + 32 < input_cols ? __bfloat162float(from[32]) : 0.0f;
    }
    taps[p][q] = tap;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        tile[y + i * kFewDown][x] = here[i];
        if (x < kFewSide)
            tile[y + i * kFewDown][32 + x] = beyond[i];
    }
    __syncthreads();

    float sums[kRows] = {};
    for (int group = 0; group < groups; ++group) { // of four columns of weights
        float4 tap[kRows] = {};
#pragma unroll 8
        for (int down = 0; down < kernel_rows + kRows - 1; ++down) {
#pragma unroll
            for (int r = kRows - 1; r > 0; --r)
                tap[r] = tap[r - 1];
            tap[0] = down < kernel_rows ? *(const float4*)&taps[down][4 * group]
                                        : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            const float* from = &tile[y * kRows + down][x + 4 * group];
            float a = from[0], b = from[1], c = from[2], d = from[3];
#pragma unroll
            for (int r = 0; r < kRows; ++r)
                sums[r] += tap[r].x * a + tap[r].y * b + tap[r].z * c + tap[r].w * d;
        }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        int row = top + y * kRows + r;
        if (row <= input_rows - kernel_rows && left <= input_cols - kernel_cols)
            output[(long long)row * (input_cols - kernel_cols + 1) + left] = __float2bfloat16_rn(sums[r]);
    }
}

template <int kRows>
static void launch_few(const __nv_bfloat16* input, const __nv_bfloat16* kernel, __nv_bfloat16* output,
                       int input_rows, int input_cols, int kernel_rows, int kernel_cols) {
    dim3 blocks((input_cols - kernel_cols) / 32 + 1, (input_rows - kernel_rows) / (kFewDown * kRows) + 1);
    conv_2d_bf16_few_kernel_optimized<kRows><<<blocks, dim3(32, kFewDown)>>>(
        input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols);
}

// False where there is too much to do.
static bool convolve_few(const __nv_bfloat16* input, const __nv_bfloat16* kernel, __nv_bfloat16* output,
                         int input_rows, int input_cols, int kernel_rows, int kernel_cols) {
    int output_rows = input_rows - kernel_rows + 1, output_cols = input_cols - kernel_cols + 1;
    long long outputs = (long long)output_rows * output_cols;
    if (kernel_rows > kFewSide || kernel_cols > kFewSide || output_rows > kFewRows ||
        outputs > kFewResults / (kernel_rows * kernel_cols))
        return false;
    if (outputs > 3 << 16)
        launch_few<4>(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols);
    else
        launch_few<2>(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols);
    return true;
}

extern "C" void conv_2d_bf16_optimized(const __nv_bfloat16* input, const __nv_bfloat16* kernel,
                                       __nv_bfloat16* output, int input_rows, int input_cols, int kernel_rows,
                                       int kernel_cols) {
    if (convolve_few(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols))
        return;
    if (convolve_on_hopper(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols))
        return;
    if (kernel_cols == 1)
        conv_2d_bf16_launch<1>(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols);
    else if (kernel_cols <= 17)
        conv_2d_bf16_launch<2>(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols);
    else
        conv_2d_bf16_launch<3>(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols);
}
