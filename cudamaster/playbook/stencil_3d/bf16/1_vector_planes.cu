// idea: A thread takes a vector along z through several planes
// why: The baseline loads seven single elements for each point, so that its time goes into load
//      instructions and waiting rather than moving data. Here a thread owns 16 bytes of neighbours along z
//      in 4 planes: it requests all of its planes, the one before and the one after as vectors before it
//      computes anything, and each of them serves as previous, middle and next plane from registers. The
//      rows on both sides are vectors that other threads of the block load too, mostly from the first
//      cache, and only one element before and one after each vector are extra. Places outside the grid are
//      clamped to its edge, so that loads need no tests. Results are stored as vectors that leave the
//      caches first. Rows that are not aligned to 16 bytes take the same way with vectors of one element.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kPlanes = 4;    // planes of a thread
constexpr int kThreadsX = 8;  // along z
constexpr int kThreadsY = 32; // along y

// Vectors of neighbouring elements: eight bf16 in 16 bytes, or a single one where rows are not aligned.
template <int kWidth> struct Elements;
template <> struct Elements<8> {
    uint4 packed;
    __device__ float operator[](int k) const { // a bf16 is the upper half of a float
        unsigned int pair = k < 2 ? packed.x : k < 4 ? packed.y : k < 6 ? packed.z : packed.w;
        return __uint_as_float(k % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
    }
};
template <> struct Elements<1> {
    __nv_bfloat16 packed;
    __device__ float operator[](int) const { return __bfloat162float(packed); }
};

__device__ void stencil_3d_store(__nv_bfloat16* to, const float (&u)[8]) {
    union {
        uint4 packed;
        __nv_bfloat162 pairs[4];
    } rounded;
#pragma unroll
    for (int k = 0; k < 4; ++k)
        rounded.pairs[k] = __floats2bfloat162_rn(u[2 * k], u[2 * k + 1]);
    __stcs((uint4*)to, rounded.packed);
}
__device__ void stencil_3d_store(__nv_bfloat16* to, const float (&u)[1]) {
    *to = __float2bfloat16(u[0]);
}

template <int kWidth>
__global__ void __launch_bounds__(kThreadsX* kThreadsY)
    stencil_3d_bf16_kernel_optimized(__nv_bfloat16* u_new, const __nv_bfloat16* u_old, float r, int nx,
                                     int ny, int nz) {
    int k = (blockIdx.x * kThreadsX + threadIdx.x) * kWidth;
    if (k >= nz)
        return;
    long long plane = (long long)ny * nz;
    int before_k = max(k - 1, 0), after_k = min(k + kWidth, nz - 1);
    for (long long strip = blockIdx.z; strip * kPlanes < nx; strip += gridDim.z) {
        for (long long j = blockIdx.y * kThreadsY + threadIdx.y; j < ny; j += gridDim.y * kThreadsY) {
            long long first = strip * kPlanes;
            long long row = j * nz, row_before = max(j - 1, 0LL) * nz, row_after = min(j + 1, ny - 1LL) * nz;
            Elements<kWidth> planes[kPlanes + 2], below[kPlanes], above[kPlanes];
            float before[kPlanes], after[kPlanes];
#pragma unroll
            for (int p = 0; p < kPlanes + 2; ++p) {
                long long i = min(max(first + p - 1, 0LL), nx - 1LL);
                planes[p] = *(const Elements<kWidth>*)(u_old + i * plane + row + k);
            }
#pragma unroll
            for (int p = 0; p < kPlanes; ++p) {
                const __nv_bfloat16* here = u_old + min(first + p, nx - 1LL) * plane;
                below[p] = *(const Elements<kWidth>*)(here + row_before + k);
                above[p] = *(const Elements<kWidth>*)(here + row_after + k);
                before[p] = __bfloat162float(here[row + before_k]);
                after[p] = __bfloat162float(here[row + after_k]);
            }
#pragma unroll
            for (int p = 0; p < kPlanes; ++p) {
                long long i = first + p;
                if (i >= nx)
                    break;
                bool inner = i > 0 && i < nx - 1 && j > 0 && j < ny - 1;
                float u[kWidth];
#pragma unroll
                for (int c = 0; c < kWidth; ++c) {
                    u[c] = planes[p + 1][c];
                    float left = c > 0 ? planes[p + 1][c - 1] : before[p];
                    float right = c + 1 < kWidth ? planes[p + 1][c + 1] : after[p];
                    if (inner && k + c > 0 && k + c < nz - 1)
                        u[c] += r * (planes[p][c] + planes[p + 2][c] + below[p][c] + above[p][c] + left +
                                     right - 6.0f * u[c]);
                }
                stencil_3d_store(u_new + i * plane + row + k, u);
            }
        }
    }
}

template <int kWidth>
void stencil_3d_bf16_launch(__nv_bfloat16* u_new, const __nv_bfloat16* u_old, float r, int nx, int ny,
                            int nz) {
    int strips = (nx - 1) / kPlanes + 1, rows = (ny - 1) / kThreadsY + 1;
    dim3 blocks((nz - 1) / (kWidth * kThreadsX) + 1, rows < 65535 ? rows : 65535,
                strips < 65535 ? strips : 65535);
    dim3 threads(kThreadsX, kThreadsY);
    stencil_3d_bf16_kernel_optimized<kWidth><<<blocks, threads>>>(u_new, u_old, r, nx, ny, nz);
}

extern "C" void stencil_3d_bf16_optimized(__nv_bfloat16* u_new, const __nv_bfloat16* u_old, float r, int nx,
                                          int ny, int nz) {
    if (nz % 8 == 0 && (((size_t)u_new | (size_t)u_old) & 15) == 0)
        stencil_3d_bf16_launch<8>(u_new, u_old, r, nx, ny, nz);
    else
        stencil_3d_bf16_launch<1>(u_new, u_old, r, nx, ny, nz);
}
