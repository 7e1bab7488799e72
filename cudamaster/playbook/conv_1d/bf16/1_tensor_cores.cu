// idea: The convolution as a matrix product on tensor cores
// why: The baseline makes two loads and a multiply-add on ordinary cores for every term. Tensor cores do
//      4096 of them at once if the sums are a matrix product: with outputs numbered 64 a + b, output[64 a +
//      b] is the sum over c of W[b][c] * X[c][a] where X[c][a] = input[64 a + c] and W[b][c] = kernel[c -
//      b], zero outside. X is the input itself, read from shared memory with a column of 64; W is made once
//      per block. Its tiles of 16 x 16 are the same along a diagonal, so a warp, which makes 64 rows, loads
//      one new tile of each matrix per step and uses the tile of W for four steps. Sums are fp32 and are
//      rounded once; they go through shared memory to be stored in vectors of 16 bytes. Longer kernels are
//      taken in pieces of 256 weights.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <mma.h>

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kRows = 64;               // rows of the product: the outputs of one column
constexpr int kColumns = 16 * kWarps;   // columns of the product in a block
constexpr int kSpan = kRows * kColumns; // outputs of a block
constexpr int kRowTiles = kRows / 16;
constexpr int kTaps = 256;                       // weights of a piece
constexpr int kMaxTiles = (kTaps + 14) / 16 + 1; // tiles of W that differ
constexpr int kMaxSteps = kMaxTiles + kRowTiles - 1;
constexpr int kPitch = kRows + 16; // columns of X are kept apart by this, to spread them over the banks
constexpr int kInputs = (kSpan + 16 * kMaxSteps) / kRows * kPitch + kPitch;
constexpr int kSumsPitch = kRows + 4;
constexpr int kInputBytes = 2 * (kInputs + 256 * kMaxTiles);
constexpr int kSumBytes = 4 * kSumsPitch * kColumns;

using FragmentW =
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __nv_bfloat16, nvcuda::wmma::row_major>;
using FragmentX =
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __nv_bfloat16, nvcuda::wmma::col_major>;
using FragmentSums = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;

// Inputs from `first` on, zeros beyond the end, in columns of kRows that lie kPitch apart.
__device__ void conv_1d_load(__nv_bfloat16* inputs, const __nv_bfloat16* input, long long first, int count,
                             int input_size) {
    if (((size_t)(input + first) & 15) == 0 && first + count <= input_size) {
        for (int k = 8 * threadIdx.x; k < count; k += 8 * kThreads)
            *(uint4*)&inputs[k / kRows * kPitch + k % kRows] = *(const uint4*)&input[first + k];
        return;
    }
    for (int k = threadIdx.x; k < count; k += kThreads)
        inputs[k / kRows * kPitch + k % kRows] =
            first + k < input_size ? input[first + k] : __float2bfloat16(0.0f);
}

__global__ void __launch_bounds__(kThreads)
    conv_1d_bf16_kernel_optimized(const __nv_bfloat16* input, const __nv_bfloat16* kernel,
                                  __nv_bfloat16* output, int input_size, int kernel_size) {
    __shared__ __align__(32) unsigned char memory[kInputBytes > kSumBytes ? kInputBytes : kSumBytes];
    __nv_bfloat16* inputs = (__nv_bfloat16*)memory;
    __nv_bfloat16* weights = inputs + kInputs; // tile d of W: its element [b][c] is kernel[16 d + c - b]
    float* sums = (float*)memory;              // in the end, when the rest is used up
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    long long first = (long long)blockIdx.x * kSpan;

    FragmentSums products[kRowTiles];
#pragma unroll
    for (int row = 0; row < kRowTiles; ++row)
        nvcuda::wmma::fill_fragment(products[row], 0.0f);
    for (int piece = 0; piece < kernel_size; piece += kTaps) {
        int taps = min(kernel_size - piece, kTaps);
        int tiles = (taps + 14) / 16 + 1;
        int steps = tiles + kRowTiles - 1;
        __syncthreads(); // the piece before is used up
        for (int k = threadIdx.x; k < 256 * tiles; k += kThreads) {
            int tap = k / 256 * 16 + k % 16 - k / 16 % 16;
            weights[k] = tap >= 0 && tap < taps ? kernel[piece + tap] : __float2bfloat16(0.0f);
        }
        conv_1d_load(inputs, input, first + piece, kSpan + 16 * steps, input_size);
        __syncthreads();

        FragmentW tile[kRowTiles]; // the last four tiles of W, number d in place d % 4
        const __nv_bfloat16* columns = inputs + 16 * warp * kPitch;
        for (int four = 0; four < steps; four += kRowTiles) {
#pragma unroll
            for (int k = 0; k < kRowTiles; ++k) {
                int step = four + k;
                if (step >= steps)
                    break;
                if (step < tiles)
                    nvcuda::wmma::load_matrix_sync(tile[k], weights + 256 * step, 16);
                FragmentX x;
                nvcuda::wmma::load_matrix_sync(x, columns + step / kRowTiles * kPitch + 16 * k, kPitch);
#pragma unroll
                for (int row = 0; row < kRowTiles; ++row)
                    if (step >= row && step - row < tiles)
                        nvcuda::wmma::mma_sync(products[row], tile[(k - row + kRowTiles) % kRowTiles], x,
                                               products[row]);
            }
        }
    }

    __syncthreads();
    sums += 16 * warp * kSumsPitch; // of this warp
#pragma unroll
    for (int row = 0; row < kRowTiles; ++row)
        nvcuda::wmma::store_matrix_sync(sums + 16 * row, products[row], kSumsPitch,
                                        nvcuda::wmma::mem_col_major);
    __syncwarp();
    int output_size = input_size - kernel_size + 1;
    first += 16 * warp * kRows;
    for (int k = 8 * lane; k < 16 * kRows && first + k < output_size; k += 8 * 32) {
        const float* from = sums + k / kRows * kSumsPitch + k % kRows;
        __nv_bfloat16* to = output + first + k;
        union {
            uint4 vector;
            __nv_bfloat16 elements[8];
        } rounded;
#pragma unroll
        for (int i = 0; i < 8; ++i)
            rounded.elements[i] = __float2bfloat16(from[i]);
        if (first + k + 8 <= output_size && ((size_t)to & 15) == 0)
            *(uint4*)to = rounded.vector;
        else
            for (int i = 0; i < 8 && first + k + i < output_size; ++i)
                to[i] = rounded.elements[i];
    }
}

extern "C" void conv_1d_bf16_optimized(const __nv_bfloat16* input, const __nv_bfloat16* kernel,
                                       __nv_bfloat16* output, int input_size, int kernel_size) {
    int blocks = (input_size - kernel_size) / kSpan + 1;
    conv_1d_bf16_kernel_optimized<<<blocks, kThreads>>>(input, kernel, output, input_size, kernel_size);
}
