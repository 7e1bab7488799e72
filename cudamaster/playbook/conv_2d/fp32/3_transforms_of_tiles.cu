// idea: Fourier transforms of tiles in shared memory
// why: The step before makes three products where one is needed, of sums that have a thousand terms with 32 x 32
//      weights. The transform of a tile of 128 x 128 inputs, multiplied by that of the weights, gives 97 rows of 96
//      outputs for about 40 operations an input. Rows y and 64 + y are real and imaginary part of one number: as a
//      polynomial in its rows, modulo u^128 + 1, a real tile is known by what it is modulo u^64 - i. So there are 64
//      x 128 numbers and nothing has to be taken apart; what wraps around falls on outputs that are left out. Two
//      groups of eight warps have a tile each in shared memory, 74 KB, and are at different places: while one waits
//      for a barrier or for memory, the other calculates. A thread has 32 numbers in registers: every second row of a
//      column; then two rows and every eighth column of them; then eight neighbours of a row, four times. So there
//      are three passes, and three back. Each leaves its numbers where it found them. All but the first and the last
//      stay among eight rows that belong to a warp, so a tile needs two barriers. A root of unity is held as cosine
//      and tangent: a butterfly takes six operations then, with any root, so the turn that u^64 = i asks for is free
//      on the way forth. The first group makes the weights' transform, as its first tile, while the second begins
//      with its own; so they are half a tile apart. On the way back columns that give no output are left out. With
//      inputs beyond 1e26 sums may overflow, and weights below 1e-36 lose bits. Errors go by the largest inputs of a
//      tile, not by those of an output. If up to four inputs of a tile are 256 times the others, errors are at most a
//      tenth of what the task allows with 32 x 32 weights, two fifths with 16 x 16, and too large with 8 x 8 (on the
//      CPU device). So fewer than 256 weights take the step before, and so do few tiles, which would leave
//      multiprocessors without work, and GPUs without 213 KB of shared memory for a block. Up to 16 x 16 weights and
//      42 million products take one small launch before the driver is asked for anything: a thread has two or four
//      outputs of a column, and all that a block needs is under way at once. Of outputs of up to 128 rows the step
//      before takes small tiles now. On an H200 with cold caches 4096 x 4096 with 32 x 32 weights takes 81 µs between
//      events, 84.5 for the whole call, where the step before has 200 and 203; with 16 x 16 79 and 81 where it has
//      130 and 133. 1024 x 1024 with 32 x 32 takes 22.8 for the whole call where it has 31.8, with 16 x 16 23.3 where
//      it has 26.0. By `cudamaster evaluate` 256 x 256 with 8 x 8 take 12.7 for the whole call, where the step before
//      has 16.5, the baseline 15.3 and an empty launch 10.4, with 16 x 16 14.6, where it has 18.1. A first form,
//      which made one complex transform of two tiles in 128 KB, had 100 µs: all warps loaded, calculated and stored
//      at the same times. What binds it now: of 100 clocks 65 issue an instruction, and 60 use shared memory (a
//      variant, by ncu); warps wait for each other, or for instructions, as a tile's 3000 are more than the nearest
//      cache holds. Without loads from memory a variant took 1 to 3 µs less, without stores 4 to 8.
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

// ---- Few results ----

// Results times weights: up to so many a small launch is faster, whatever the others save.
constexpr long long kFewResults = 40 << 20;
constexpr int kFewSide = 16; // rows and columns of weights at most
constexpr int kFewDown = 8;  // threads of a block, one below the other
constexpr int kFewRows = 1 << 19;

// A thread has kRows outputs one below the other, so each input that it loads from shared memory is used as often. All
// that a block needs is under way at once.
template <int kRows>
__global__ void __launch_bounds__(32 * kFewDown)
    conv_2d_few_kernel_optimized(const float* input, const float* kernel, float* output, int input_rows,
                                 int input_cols, int kernel_rows, int kernel_cols) {
    constexpr int kTileRows = kFewDown * kRows + kFewSide - 1;
    constexpr int kLoads = (kTileRows + kFewDown - 1) / kFewDown; // of a thread, twice
    __shared__ float tile[kLoads * kFewDown][32 + kFewSide + 1];
    __shared__ __align__(16) float taps[kFewSide][kFewSide];
    int x = threadIdx.x, y = threadIdx.y, groups = (kernel_cols + 3) / 4;
    int left = blockIdx.x * 32 + x, top = blockIdx.y * (kFewDown * kRows);
    int rows = min(kFewDown * kRows + kernel_rows - 1, input_rows - top);
    int p = (y * 32 + x) / kFewSide, q = (y * 32 + x) % kFewSide;
    float tap = p < kernel_rows && q < kernel_cols ? (float)kernel[p * kernel_cols + q] : 0.0f;
    float here[kLoads], beyond[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
        int down = y + i * kFewDown;
        const float* from = input + (long long)(top + down) * input_cols + left;
        here[i] = down < rows && left < input_cols ? (float)from[0] : 0.0f;
        beyond[i] = down < rows && x < kFewSide && left + 32 < input_cols ? (float)from[32] : 0.0f;
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
            output[(long long)row * (input_cols - kernel_cols + 1) + left] = sums[r];
    }
}

template <int kRows>
static void launch_few(const float* input, const float* kernel, float* output, int input_rows, int input_cols,
                       int kernel_rows, int kernel_cols) {
    dim3 blocks((input_cols - kernel_cols) / 32 + 1, (input_rows - kernel_rows) / (kFewDown * kRows) + 1);
    conv_2d_few_kernel_optimized<kRows><<<blocks, dim3(32, kFewDown)>>>(input, kernel, output, input_rows,
                                                                        input_cols, kernel_rows, kernel_cols);
}

// False where there is too much to do.
static bool convolve_few(const float* input, const float* kernel, float* output, int input_rows,
                         int input_cols, int kernel_rows, int kernel_cols) {
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

// ---- Fourier transforms of tiles ----

constexpr int kSide = 128; // rows and columns of a tile; row 64 + y is the imaginary part of row y
constexpr int kComplexRows = kSide / 2;
constexpr int kGroup = 256; // threads that transform a tile: each has 32 of its numbers at a time
constexpr int kFftThreads = 2 * kGroup;
constexpr int kEarly = 8;           // inputs that a thread loads while the tile before is stored
constexpr int kFewestTiles = 80;    // fewer leave too many multiprocessors without work
constexpr int kFewestWeights = 256; // fewer have smaller sums, for the same errors

// Sixteen numbers of a row are followed by a gap of two, and 148 are a row, so that threads which have every eighth
// column and those which have eight neighbours meet in no bank.
constexpr int kRowPitch = 148;
constexpr int kTile = kComplexRows * kRowPitch;
constexpr int kSpectrum = kComplexRows * kSide;
constexpr int kFftMemory = (2 * kTile + kSpectrum + 16 * 4 + 8 * 8) * 8;

// A root of unity, exp(i angle), as its cosine and its tangent: with them a butterfly takes six operations. A quarter
// of a turn is off by 2^-26. Angles count parts of 1/128 of a turn.
struct Root {
    float cosine, tangent;
};

static __device__ Root root_of(float angle) {
    float sine, cosine;
    sincospif(angle / 64.0f, &sine, &cosine);
    if (fabsf(cosine) < 0x1p-26f)
        return {0x1p-26f, copysignf(0x1p26f, sine)};
    return {cosine, sine / cosine};
}

// The same for an angle that is known to the compiler, from -16 to 16.
static __device__ Root known_root(int angle) {
    const float cosines[] = {1.0f,         0.998795456f, 0.995184727f, 0.989176510f, 0.980785280f,
                             0.970031253f, 0.956940336f, 0.941544065f, 0.923879533f, 0.903989293f,
                             0.881921264f, 0.857728610f, 0.831469612f, 0.803207531f, 0.773010453f,
                             0.740951125f, 0.707106781f};
    const float tangents[] = {0.0f,         0.049126850f, 0.098491403f, 0.148335988f, 0.198912367f,
                              0.250486960f, 0.303346684f, 0.357805721f, 0.414213562f, 0.472964776f,
                              0.534511136f, 0.599376934f, 0.668178638f, 0.741650546f, 0.820678791f,
                              0.906347169f, 1.0f};
    int turned = angle < 0 ? -angle : angle;
    return {cosines[turned], angle < 0 ? -tangents[turned] : tangents[turned]};
}

// a + r b and a - r b, where r is the root times i to the power of `quarters`.
static __device__ void butterfly(float2& a, float2& b, Root root, int quarters) {
    float2 v = b;
    if (quarters & 2)
        v = make_float2(-v.x, -v.y);
    if (quarters & 1)
        v = make_float2(-v.y, v.x);
    float x = fmaf(-root.tangent, v.y, v.x), y = fmaf(root.tangent, v.x, v.y);
    b = make_float2(fmaf(-root.cosine, x, a.x), fmaf(-root.cosine, y, a.y));
    a = make_float2(fmaf(root.cosine, x, a.x), fmaf(root.cosine, y, a.y));
}

static __device__ void butterfly(float2& a, float2& b, int angle) {
    int quarters = (angle + 16) >> 5 & 3, rest = (angle + 16 & 31) - 16;
    if (rest != 0) {
        butterfly(a, b, known_root(rest), quarters);
        return;
    }
    float2 v = b;
    if (quarters & 2)
        v = make_float2(-v.x, -v.y);
    if (quarters & 1)
        v = make_float2(-v.y, v.x);
    b = make_float2(a.x - v.x, a.y - v.y);
    a = make_float2(a.x + v.x, a.y + v.y);
}

static __device__ float2 times(float2 a, float2 b) {
    return make_float2(fmaf(a.x, b.x, -a.y * b.y), fmaf(a.x, b.y, a.y * b.x));
}

// Each step of a transform halves blocks of numbers: from a polynomial modulo w^2h - s^2 to the remainders modulo
// w^h - s and w^h + s. This is the angle of s^2 for a block, apart from the whole polynomial's own angle, which is
// halved in each step: the block's bits in reverse order.
static __device__ constexpr int angle_of(int block) {
    return (block & 1) * 64 + (block >> 1 & 1) * 32 + (block >> 2 & 1) * 16 + (block >> 3 & 1) * 8 +
           (block >> 4 & 1) * 4;
}

// From a polynomial modulo w^n - exp(i angle) to its remainders modulo w - r, for all r that are n-th roots.
template <int n> static __device__ void transform(float2 (&x)[n], int angle) {
#pragma unroll
    for (int h = n / 2, step = 1; h; h /= 2, ++step)
#pragma unroll
        for (int k = 0; k < n / 2; ++k) {
            int block = k / h, at = 2 * block * h + k % h;
            butterfly(x[at], x[at + h], (angle >> step) + angle_of(2 * block));
        }
}

// From remainders back to coefficients, as if the angle had been zero: the k-th is still to be turned by -k/n of it.
template <int n> static __device__ void back(float2 (&x)[n]) {
#pragma unroll
    for (int h = 1; h < n; h *= 2)
#pragma unroll
        for (int k = 0; k < n / 2; ++k) {
            int at = 2 * (k / h) * h + k % h;
            butterfly(x[at], x[at + h], -(k % h * (64 / h)));
        }
}

// a turned by -k, for k from 0 to 31.
static __device__ float2 turned_back(float2 a, int k) {
    if (k == 0)
        return a;
    Root root = known_root(k <= 16 ? -k : 32 - k);
    if (k > 16)
        a = make_float2(a.y, -a.x);
    return make_float2(root.cosine * fmaf(-root.tangent, a.y, a.x),
                       root.cosine * fmaf(root.tangent, a.x, a.y));
}

static __device__ int place(int row, int col) {
    return row * kRowPitch + col + col / 16 * 2;
}

// The first pass: a thread has every second row of a column. It is also the last on the way back.
struct First {
    int row, col;
    float2* numbers;

    __device__ First(float2* tile, int group) {
        int warp = threadIdx.x / 32 % 8;
        row = warp % 2;
        // So that warps which have nothing to do on the way back are not all in the same part of a multiprocessor.
        col = (group ? 3 - warp / 2 : warp / 2) * 32 + threadIdx.x % 32;
        numbers = tile + place(row, col);
    }

    __device__ void put(const float2 (&x)[32]) const {
#pragma unroll
        for (int k = 0; k < 32; ++k)
            numbers[2 * k * kRowPitch] = x[k];
    }

    __device__ void take(float2 (&x)[32]) const {
#pragma unroll
        for (int k = 0; k < 32; ++k)
            x[k] = numbers[2 * k * kRowPitch];
    }

    // Whether all columns of this thread's warp are from `cols` on.
    __device__ bool beyond(int cols) const { return col / 32 * 32 >= cols; }
};

// The second pass: two rows, and every eighth column of them.
struct Second {
    float2* numbers;
    Root root_of_rows;
    const float4* roots;

    __device__ Second(float2* tile, const float4* all_roots) {
        int two = threadIdx.x / 8 % 32, col = threadIdx.x % 8;
        numbers = tile + place(2 * two, col);
        root_of_rows = root_of(0.5f * (1 + angle_of(two)));
        roots = all_roots + col;
    }

    __device__ void forth() const {
        float2 x[2][16];
#pragma unroll
        for (int m = 0; m < 16; ++m) {
#pragma unroll
            for (int r = 0; r < 2; ++r)
                x[r][m] = numbers[r * kRowPitch + 8 * m + m / 2 * 2];
            butterfly(x[0][m], x[1][m], root_of_rows, 0);
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            transform(x[r], 0);
#pragma unroll
            for (int m = 0; m < 16; ++m)
                numbers[r * kRowPitch + 8 * m + m / 2 * 2] = x[r][m];
        }
    }

    // Columns from `cols` on are not needed any more.
    __device__ void back(int cols) const {
        float2 x[2][16];
        Root known[8]; // those of a step after those of the steps before
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            float4 two = roots[8 * k];
            known[2 * k] = {two.x, two.y};
            known[2 * k + 1] = {two.z, two.w};
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
#pragma unroll
            for (int m = 0; m < 16; ++m)
                x[r][m] = numbers[r * kRowPitch + 8 * m + m / 2 * 2];
#pragma unroll
            for (int h = 1; h < 16; h *= 2) {
                int half = h == 1 ? 1 : h / 2, before = h == 1 ? 0 : half;
#pragma unroll
                for (int k = 0; k < 8; ++k) {
                    int at = 2 * (k / h) * h + k % h, n = k % h;
                    butterfly(x[r][at], x[r][at + h], known[before + n % half], n / half ? 3 : 0);
                }
            }
        }
#pragma unroll
        for (int part = 0; part < 16; part += 12) {
            if (part && 8 * part >= cols)
                break;
#pragma unroll
            for (int m = part; m < (part ? 16 : 12); ++m) {
                float2 sum = make_float2(x[0][m].x + x[1][m].x, x[0][m].y + x[1][m].y);
                float2 rest = make_float2(x[0][m].x - x[1][m].x, x[0][m].y - x[1][m].y);
                rest = make_float2(fmaf(root_of_rows.tangent, rest.y, rest.x),
                                   fmaf(-root_of_rows.tangent, rest.x, rest.y));
                numbers[8 * m + m / 2 * 2] = sum;
                numbers[kRowPitch + 8 * m + m / 2 * 2] =
                    make_float2(root_of_rows.cosine * rest.x, root_of_rows.cosine * rest.y);
            }
        }
    }
};

// The third pass: eight neighbours of a row, in four parts, in which a warp has the same eight rows as in the second.
struct Third {
    float2* numbers;
    Root roots[4];

    __device__ Third(float2* tile, const float4* all_roots) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 8, block = lane % 16;
        numbers = tile + place(8 * warp + lane / 16, 8 * block);
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            float4 two = all_roots[16 * k + block];
            roots[2 * k] = {two.x, two.y};
            roots[2 * k + 1] = {two.z, two.w};
        }
    }

    // Loads, and takes to the end of the transform.
    __device__ void forth(float2 (&x)[8], int part) const {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            float4 two = ((const float4*)(numbers + 2 * part * kRowPitch))[k];
            x[2 * k] = make_float2(two.x, two.y);
            x[2 * k + 1] = make_float2(two.z, two.w);
        }
#pragma unroll
        for (int k = 0; k < 4; ++k)
            butterfly(x[k], x[k + 4], roots[0], 0);
#pragma unroll
        for (int k = 0; k < 4; ++k)
            butterfly(x[k / 2 * 4 + k % 2], x[k / 2 * 4 + k % 2 + 2], roots[1], k / 2);
#pragma unroll
        for (int k = 0; k < 4; ++k)
            butterfly(x[2 * k], x[2 * k + 1], roots[2 + k / 2], k % 2);
    }

    __device__ void put(const float2 (&x)[8], int part) const {
#pragma unroll
        for (int k = 0; k < 4; ++k)
            ((float4*)(numbers + 2 * part * kRowPitch))[k] =
                make_float4(x[2 * k].x, x[2 * k].y, x[2 * k + 1].x, x[2 * k + 1].y);
    }
};

// Takes the weights' transform to its end, and keeps it: conjugate, for a correlation, and divided by what two
// transforms multiply by. Each thread keeps what it will need.
static __device__ void keep_spectrum(float4* spectrum, float2* tile, const float4* roots) {
    Third third(tile, roots);
    for (int part = 0; part < 4; ++part) {
        constexpr float kScale = 1.0f / kSpectrum;
        float2 x[8];
        third.forth(x, part);
#pragma unroll
        for (int k = 0; k < 4; ++k)
            spectrum[(4 * part + k) * kGroup + threadIdx.x % kGroup] = make_float4(
                kScale * x[2 * k].x, -kScale * x[2 * k].y, kScale * x[2 * k + 1].x, -kScale * x[2 * k + 1].y);
    }
}

// Takes the transform of a tile to its end, multiplies by the weights' and begins the way back.
static __device__ void multiply_spectra(const float4* spectrum, float2* tile, const float4* roots) {
    Third third(tile, roots);
#pragma unroll
    for (int part = 0; part < 4; ++part) {
        float2 x[8];
        third.forth(x, part);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            float4 two = spectrum[(4 * part + k) * kGroup + threadIdx.x % kGroup];
            x[2 * k] = times(x[2 * k], make_float2(two.x, two.y));
            x[2 * k + 1] = times(x[2 * k + 1], make_float2(two.z, two.w));
        }
        back(x);
        third.put(x, part);
    }
}

struct Sizes {
    int input_rows, input_cols, output_rows, output_cols, kernel_rows, kernel_cols;
    int valid_rows, valid_cols; // outputs of a tile
    int tiles, tiles_across;
};

// An address from which the compiler goes on for each row, and does not begin anew.
template <class T> static __device__ T* held(T* address) {
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+l"(address));
    __builtin_assume(__isGlobal(address));
#endif
    return address;
}

// The first row and column of a tile; beyond all rows if there is no such tile.
struct Corner {
    int top, left;

    __device__ Corner(const Sizes& sizes, int tile) {
        int down = tile / sizes.tiles_across;
        top = tile < sizes.tiles ? down * sizes.valid_rows : sizes.input_rows;
        left = (tile - down * sizes.tiles_across) * sizes.valid_cols;
    }
};

// What a thread loads of a tile: where its column begins, and how many rows follow.
struct Column {
    const char* from;
    int rows;

    __device__ Column(const float* input, const Sizes& sizes, Corner corner, const First& first) {
        int row = corner.top + first.row, col = corner.left + first.col;
        rows = col < sizes.input_cols ? sizes.input_rows - row : 0;
        from = held((const char*)(input + (long long)row * sizes.input_cols + col));
    }
};

// How far the k-th number of a thread's column is from its first: one instruction to an address.
static __device__ long long rows_on(int cols, int k) {
    return (long long)cols * (2 * k * (int)sizeof(float));
}

static __device__ float load(const char* from) {
    return __ldg((const float*)from);
}

static __device__ void prefetch(const float* at) {
#if defined(__CUDA_ARCH__)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#endif
}

// Has a tile brought from memory to L2.
static __device__ void prefetch_tile(const float* input, const Sizes& sizes, Corner corner) {
    int row = corner.top + threadIdx.x / 2 % kSide, col = corner.left + threadIdx.x % 2 * (kSide / 2);
    if (row < sizes.input_rows && col < sizes.input_cols) {
        const float* from = input + (long long)row * sizes.input_cols + col;
        int last = min(kSide / 2, sizes.input_cols - col) - 1;
        prefetch(from);
        prefetch(from + last / 2);
        prefetch(from + last);
    }
}

// The first numbers of a thread's column of a tile, or zeros where it has no such rows.
static __device__ void load_early(float (&early)[kEarly], const float* input, const Sizes& sizes,
                                  Corner corner, const First& first) {
    Column column(input, sizes, corner, first);
#pragma unroll
    for (int k = 0; k < kEarly; ++k)
        early[k] = 2 * k < column.rows ? load(column.from + rows_on(sizes.input_cols, k)) : 0.0f;
}

static __device__ void barrier_of_group(int group) {
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(kGroup) : "memory");
}

__global__ void __launch_bounds__(kFftThreads, 1)
    conv_2d_transforms_kernel_optimized(const float* input, const float* kernel, float* output, Sizes sizes) {
    extern __shared__ __align__(16) float2 tiles[];
    float4* spectrum = (float4*)(tiles + 2 * kTile);
    float4 *roots_of_third = spectrum + kSpectrum / 2, *roots_of_second = roots_of_third + 2 * 16;
    int group = threadIdx.x / kGroup;
    float2* tile = tiles + group * kTile;
    int step = 2 * gridDim.x, index = blockIdx.x + (1 - group) * gridDim.x;
    Corner corner(sizes, index);
    prefetch_tile(input, sizes, corner);
    if (threadIdx.x < 64) {
        int block = threadIdx.x / 4, which = threadIdx.x % 4;
        float angle = (float)angle_of(block);
        Root* pair = (Root*)&roots_of_third[which / 2 * 16 + block];
        pair[which % 2] = root_of(which == 0   ? angle / 2
                                  : which == 1 ? angle / 4
                                  : which == 2 ? angle / 8
                                               : angle / 8 + 16);
    } else if (threadIdx.x < 128) {
        int col = threadIdx.x / 8 % 8, which = threadIdx.x % 8;
        int h = which == 0 ? 1 : which == 1 ? 2 : which < 4 ? 4 : 8, n = which == 0 ? 0 : which - h / 2;
        Root* pair = (Root*)&roots_of_second[which / 2 * 8 + col];
        pair[which % 2] = root_of(-64.0f * (float)(col + 8 * n) / (float)(8 * h));
    }
    First first(tile, group);
    Second second(tile, roots_of_second);
    float early[kEarly];
    load_early(early, input, sizes, corner, first);
    __syncthreads();
    bool are_weights = group == 0, are_kept = group == 0; // they come first, as a tile
    while (are_weights || index < sizes.tiles) {
        Column column(input, sizes, corner, first);
        const char* from = column.from;
        int cols = sizes.input_cols, rows = column.rows;
        if (are_weights) {
            cols = sizes.kernel_cols;
            from = (const char*)(kernel + first.row * cols + first.col);
            rows = first.col < cols ? sizes.kernel_rows - first.row : 0;
        }
        float2 x[32];
        if (rows > 2 * 63 && !are_weights) {
#pragma unroll
            for (int k = 0; k < 32; ++k)
                x[k] = make_float2(k < kEarly ? early[k] : load(from + rows_on(cols, k)),
                                   load(from + rows_on(cols, k + 32)));
        } else {
#pragma unroll
            for (int k = 0; k < 32; ++k) {
                bool is_loaded = k < kEarly && !are_weights;
                x[k] = make_float2(is_loaded      ? early[k < kEarly ? k : 0]
                                   : 2 * k < rows ? load(from + rows_on(cols, k))
                                                  : 0.0f,
                                   2 * k + 64 < rows ? load(from + rows_on(cols, k + 32)) : 0.0f);
            }
        }
        if (!are_weights || !first.beyond(cols)) // otherwise all zeros
            transform(x, 32);
        first.put(x);
        barrier_of_group(group);
        second.forth();
        __syncwarp();
        if (are_weights) {
            are_weights = false;
            keep_spectrum(spectrum, tile, roots_of_third);
            asm volatile("bar.arrive 3, %0;" ::"n"(kFftThreads) : "memory");
            barrier_of_group(group);
            continue;
        }
        if (!are_kept) { // as yet
            are_kept = true;
            asm volatile("bar.sync 3, %0;" ::"n"(kFftThreads) : "memory");
        }
        index += step;
        Corner next(sizes, index);
        prefetch_tile(input, sizes, next);
        multiply_spectra(spectrum, tile, roots_of_third);
        __syncwarp();
        second.back(sizes.valid_cols);
        barrier_of_group(group);
        load_early(early, input, sizes, next, first);
        int top = corner.top, col = corner.left + first.col;
        corner = next;
        if (first.beyond(sizes.valid_cols))
            continue;
        first.take(x);
        back(x);
        cols = sizes.output_cols;
        bool is_out = first.col < sizes.valid_cols && col < cols;
        rows = is_out ? min(sizes.valid_rows, sizes.output_rows - top) - first.row : 0;
        char* to = held((char*)(output + (long long)(top + first.row) * cols + col));
        // Few tiles have more than 98 rows of outputs.
        constexpr int kFirst = 17;
#pragma unroll
        for (int k = 0; k < 32; ++k) {
            float2 turned = turned_back(x[k], k);
            if (2 * k < rows)
                *(float*)(to + rows_on(cols, k)) = turned.x;
            if (k < kFirst && 2 * k + 64 < rows)
                *(float*)(to + rows_on(cols, k + 32)) = turned.y;
        }
        if (2 * kFirst + 64 < rows) {
            to = held(to + rows_on(cols, 32));
#if defined(__CUDA_ARCH__)
            asm volatile("" : "+r"(cols));
#endif
#pragma unroll
            for (int k = kFirst; k < 32; ++k)
                if (2 * k + 64 < rows)
                    *(float*)(to + rows_on(cols, k)) = turned_back(x[k], k).y;
        }
    }
    if (!are_kept)
        asm volatile("bar.sync 3, %0;" ::"n"(kFftThreads) : "memory");
}

// False where these sizes are better done otherwise.
static bool convolve_by_transforms(const float* input, const float* kernel, float* output, int input_rows,
                                   int input_cols, int kernel_rows, int kernel_cols) {
    if (kernel_rows > kSide / 2 || kernel_cols > kSide / 2 || kernel_rows * kernel_cols < kFewestWeights)
        return false;
    Sizes sizes = {input_rows,  input_cols, input_rows - kernel_rows + 1, input_cols - kernel_cols + 1,
                   kernel_rows, kernel_cols};
    sizes.valid_rows = kSide + 1 - kernel_rows;
    sizes.valid_cols = kSide + 1 - kernel_cols;
    if (sizes.valid_cols % 32 < 4) // not worth a warp
        sizes.valid_cols -= sizes.valid_cols % 32;
    sizes.tiles_across = (sizes.output_cols - 1) / sizes.valid_cols + 1;
    long long tiles = ((sizes.output_rows - 1) / sizes.valid_rows + 1ll) * sizes.tiles_across;
    if (tiles < kFewestTiles || tiles > 1 << 29 || input_rows > 1 << 30 || input_cols > 1 << 30)
        return false;
    int device = 0, most = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&most, cudaDevAttrMultiProcessorCount, device);
    sizes.tiles = (int)tiles;
    int blocks = sizes.tiles < most ? sizes.tiles : most;
    cudaFuncSetAttribute(conv_2d_transforms_kernel_optimized, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         kFftMemory);
    conv_2d_transforms_kernel_optimized<<<blocks, kFftThreads, kFftMemory>>>(input, kernel, output, sizes);
    return cudaGetLastError() == cudaSuccess;
}

// ---- Sparse products on Hopper ----

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
    if (convolve_few(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols))
        return;
    if (convolve_by_transforms(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols))
        return;
    if (convolve_on_hopper(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols))
        return;
    long long outputs = (long long)(input_rows - kernel_rows + 1) * (input_cols - kernel_cols + 1);
    if (outputs > 132 * kThreads * 24) // a large tile for each of 132 multiprocessors
        conv_2d_launch<12, 2>(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols);
    else
        conv_2d_launch<4, 1>(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols);
}
