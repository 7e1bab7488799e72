// 3D stencil, bf16 storage, fp32 arithmetic: one explicit step of the heat equation, the boundary is copied.
//
// Shapes  u_old, u_new: nx x ny x nz, z fastest
// Moves   4 bytes and 8 operations per point
// Naive   one thread per point: seven scalar loads each, six of them of elements that other threads load too
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void stencil_3d_bf16_kernel(__nv_bfloat16* u_new, const __nv_bfloat16* u_old, float r, int nx,
                                       int ny, int nz) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= nz)
        return;
    long long plane = (long long)ny * nz;
    // A grid has at most 65535 blocks along y and z; beyond that a block takes several strips.
    for (long long i = blockIdx.z; i < nx; i += gridDim.z) {
        for (long long j = blockIdx.y * (long long)blockDim.y + threadIdx.y; j < ny;
             j += gridDim.y * (long long)blockDim.y) {
            long long p = i * plane + j * nz + k;
            float u = __bfloat162float(u_old[p]);
            if (i > 0 && i < nx - 1 && j > 0 && j < ny - 1 && k > 0 && k < nz - 1)
                u += r * (__bfloat162float(u_old[p - plane]) + __bfloat162float(u_old[p + plane]) +
                          __bfloat162float(u_old[p - nz]) + __bfloat162float(u_old[p + nz]) +
                          __bfloat162float(u_old[p - 1]) + __bfloat162float(u_old[p + 1]) - 6.0f * u);
            u_new[p] = __float2bfloat16(u);
        }
    }
}

extern "C" void stencil_3d_bf16(__nv_bfloat16* u_new, const __nv_bfloat16* u_old, float r, int nx, int ny,
                                int nz) {
    dim3 threads(32, 8);
    int strips = (ny - 1) / threads.y + 1;
    dim3 blocks((nz - 1) / threads.x + 1, strips < 65535 ? strips : 65535, nx < 65535 ? nx : 65535);
    stencil_3d_bf16_kernel<<<blocks, threads>>>(u_new, u_old, r, nx, ny, nz);
}
