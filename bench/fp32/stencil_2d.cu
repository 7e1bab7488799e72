// 2D stencil, fp32: one explicit step of the heat equation, the boundary is copied.
//
// Shapes  u_old, u_new: nx x ny
// Moves   8 bytes and 6 operations per point
// Naive   one thread per point: five scalar loads each, four of them of elements that other threads load too
#include <cuda_runtime.h>

__global__ void stencil_2d_kernel(float* u_new, const float* u_old, float r, int nx, int ny) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    // A grid has at most 65535 blocks along y; beyond that a block takes several strips of rows.
    for (long long i = blockIdx.y * (long long)blockDim.y + threadIdx.y; i < nx && j < ny;
         i += gridDim.y * (long long)blockDim.y) {
        long long p = i * ny + j;
        float u = u_old[p];
        if (i > 0 && i < nx - 1 && j > 0 && j < ny - 1)
            u += r * (u_old[p - ny] + u_old[p + ny] + u_old[p - 1] + u_old[p + 1] - 4.0f * u);
        u_new[p] = u;
    }
}

extern "C" void stencil_2d(float* u_new, const float* u_old, float r, int nx, int ny) {
    dim3 threads(32, 8);
    int strips = (nx - 1) / threads.y + 1;
    dim3 blocks((ny - 1) / threads.x + 1, strips < 65535 ? strips : 65535);
    stencil_2d_kernel<<<blocks, threads>>>(u_new, u_old, r, nx, ny);
}
