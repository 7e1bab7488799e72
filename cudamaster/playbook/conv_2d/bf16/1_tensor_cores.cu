// idea: The convolution as a matrix product on tensor cores
// why: The baseline makes two loads and a multiply-add on ordinary cores for every term. Tensor cores do
//      4096 of them at once if the sums are matrix products: for one row p of weights the outputs in 16
//      rows and 128 columns gain W X where X[c][a] = input[a + p][c] and W[b][c] = kernel[p][c - b], zero
//      outside. X is the input itself, read from shared memory column by column; the tiles of 16 x 16 of W
//      are the same along a diagonal, so that up to three of them, loaded once per row of weights, serve
//      all eight tiles of the result, and every tile of X that a warp loads is multiplied by all of them.
//      Half or two thirds of the products are of real weights, the rest of the zeros around them, which is
//      little against what tensor cores gain. Sums are fp32 and are rounded once. Eight rows and 32 columns
//      of weights are taken at a time, larger kernels in such pieces.
// flags: -O3
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

extern "C" void conv_2d_bf16_optimized(const __nv_bfloat16* input, const __nv_bfloat16* kernel,
                                       __nv_bfloat16* output, int input_rows, int input_cols, int kernel_rows,
                                       int kernel_cols) {
    if (kernel_cols == 1)
        conv_2d_bf16_launch<1>(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols);
    else if (kernel_cols <= 17)
        conv_2d_bf16_launch<2>(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols);
    else
        conv_2d_bf16_launch<3>(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols);
}
