// idea: A tile of outputs per thread from windows that slide through registers
// why: The baseline makes two loads for every multiply-add, so the load units are busy and the arithmetic
//      waits. Here a block brings its part of the input and of the kernel into shared memory, eight rows
//      and 32 columns of weights at a time, and a thread makes twelve neighbouring outputs in each of two
//      rows: for four weights it loads one vector of weights, which all threads share, and one vector of
//      inputs per row, slides a window of sixteen inputs per row in its registers and does 96
//      multiply-adds. Vectors that lie twelve floats apart hit no bank of shared memory twice. Results go
//      through shared memory too, so that neighbouring threads store neighbouring elements. Where tiles of
//      that size would leave multiprocessors idle, a thread makes four outputs of one row.
// flags: -O3
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

extern "C" void conv_2d_optimized(const float* input, const float* kernel, float* output, int input_rows,
                                  int input_cols, int kernel_rows, int kernel_cols) {
    long long outputs = (long long)(input_rows - kernel_rows + 1) * (input_cols - kernel_cols + 1);
    if (outputs > 132 * kThreads * 24) // a large tile for each of 132 multiprocessors
        conv_2d_launch<12, 2>(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols);
    else
        conv_2d_launch<4, 1>(input, kernel, output, input_rows, input_cols, kernel_rows, kernel_cols);
}
