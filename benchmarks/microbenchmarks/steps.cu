// Cycles of each step of warps that walk through memory, and a gather with 1 to 16 warps an SM, with cold caches.
//
//     nvcc -O3 --use_fast_math -std=c++17 -arch=native benchmarks/microbenchmarks/steps.cu -o steps
//     ./steps
//
// Caches are cold by reading other memory (flush 0), by writing to other memory (1), or what is asked for is in L2 (2).
// results/gpu_model/microbenchmarks.md has what an H200 said.
#include <cstdio>
#include <vector>
#include <algorithm>
#include <cuda_bf16.h>
#include "median.h"
static char *mem, *fl;
static unsigned* out;
static size_t kMem = 1ull << 30, kFl = 256u << 20;
__global__ void sweep(const unsigned* p, size_t n, unsigned* o) {
    unsigned s = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        s += p[i];
    if (s == 77)
        o[0] = s;
}
static void flush(int kind) {
    if (kind == 0)
        sweep<<<528, 512>>>((unsigned*)fl, kFl / 4, out);
    else if (kind == 1)
        cudaMemsetAsync(fl, 1, kFl);
}
// each lane walks from lane * apart by `step` bytes; cycles of each step of each warp
__global__ void walk(const char* p, unsigned apart, unsigned step, int n, unsigned* o) {
    unsigned lane = threadIdx.x & 31, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const char* q = p + (size_t)warp * 32 * apart + lane * apart;
    unsigned s = 0;
    for (int k = 0; k < n; ++k) {
        unsigned t0 = clock();
        unsigned v;
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(q) : "memory");
        q += step + v;
        asm volatile("" ::"l"(q) : "memory");
        s += v;
        unsigned t1 = clock() + (s & 1) * 0;
        if (s + v != 12345)
            t1 = clock();
        if (lane == 0)
            o[warp * 32 + k] = t1 - t0;
    }
}
__global__ void lone(const char* p, size_t stride, int n, unsigned* o) {
    const char* q = p;
    for (int k = 0; k < n; ++k) {
        unsigned t0 = clock();
        unsigned v;
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(q) : "memory");
        q += stride + v;
        if (v == 12345)
            q += 1;
        unsigned t1 = clock();
        if (v != 77)
            t1 = clock();
        o[k] = t1 - t0;
    }
}
template <int kKind>
__global__ void spmv(int rows, const __nv_bfloat16* values, const int* col_indices, const int* row_offsets,
                     const __nv_bfloat16* x, __nv_bfloat16* y) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    float sum = 0.0f;
    if (kKind == 0)
        for (int p = row_offsets[row]; p < row_offsets[row + 1]; ++p)
            sum += __bfloat162float(values[p]) * __bfloat162float(x[col_indices[p]]);
    if (kKind == 2)
        for (int p = row_offsets[row]; p < row_offsets[row + 1]; ++p)
            sum += (float)col_indices[p];
    if (kKind == 6)
        sum = row_offsets[row + 1] - row_offsets[row];
    y[row] = __float2bfloat16(sum);
}
int main() {
    OK(cudaMalloc(&mem, kMem));
    OK(cudaMalloc(&fl, kFl));
    OK(cudaMalloc(&out, 8 << 20));
    OK(cudaMemset(mem, 0, kMem));
    OK(cudaEventCreate(&e0));
    OK(cudaEventCreate(&e1));
    std::vector<unsigned> h(1 << 20);
    for (int fk : {0, 1, 2})
        for (size_t stride : {(size_t)32, (size_t)64, (size_t)128, (size_t)4096}) {
            flush(fk);
            OK(cudaDeviceSynchronize());
            lone<<<1, 1>>>(mem + (64 << 20) * (fk < 2 ? 1 + fk : 1), stride, 16, out);
            OK(cudaMemcpy(h.data(), out, 64, cudaMemcpyDeviceToHost));
            printf("lone flush=%d stride=%zu:", fk, stride);
            for (int k = 0; k < 16; ++k)
                printf(" %u", h[k]);
            printf("\n");
            fflush(stdout);
        }
    for (int fk : {0, 1, 2})
        for (int blocks : {1, 132})
            for (int threads : {32, 256})
                for (unsigned apart : {80u, 64u, 128u, 320u}) {
                    int n = 12;
                    flush(fk);
                    OK(cudaDeviceSynchronize());
                    walk<<<blocks, threads>>>(mem, apart, 16, n, out);
                    int W = blocks * threads / 32;
                    OK(cudaMemcpy(h.data(), out, W * 128, cudaMemcpyDeviceToHost));
                    printf("walk flush=%d blocks=%d threads=%d apart=%u first warp:", fk, blocks, threads,
                           apart);
                    for (int k = 0; k < n; ++k)
                        printf(" %u", h[k]);
                    printf(" | mean:");
                    for (int k = 0; k < n; ++k) {
                        double s = 0;
                        for (int w = 0; w < W; ++w)
                            s += h[w * 32 + k];
                        printf(" %.0f", s / W);
                    }
                    printf("\n");
                    fflush(stdout);
                }
    for (int threads : {32, 64, 128, 256, 512})
        for (int even : {1, 0}) {
            int rows = 132 * threads, cols = 2048;
            size_t nnz = (size_t)rows * 20;
            unsigned seed = 1;
            auto g = [&] { return seed = seed * 1664525u + 1013904223u, seed >> 8; };
            std::vector<int> len(rows, 0), off(rows + 1, 0), col(nnz);
            if (even)
                for (auto& l : len)
                    l = 20;
            else
                for (size_t i = 0; i < nnz; ++i)
                    ++len[g() % rows];
            for (int i = 0; i < rows; ++i)
                off[i + 1] = off[i] + len[i];
            for (auto& c : col)
                c = g() % cols;
            char* at = mem;
            auto put = [&](const void* p, size_t b) {
                char* r = at;
                if (p)
                    OK(cudaMemcpy(r, p, b, cudaMemcpyHostToDevice));
                at += (b + 511) / 512 * 512;
                return r;
            };
            auto dv = (__nv_bfloat16*)put(nullptr, nnz * 2);
            auto dc = (int*)put(col.data(), nnz * 4);
            auto dof = (int*)put(off.data(), rows * 4 + 4);
            auto dx = (__nv_bfloat16*)put(nullptr, cols * 2);
            auto dy = (__nv_bfloat16*)put(nullptr, rows * 2);
            for (int fk : {0, 1, 2}) {
                printf("spmv blocks=132 threads=%d even=%d flush=%d", threads, even, fk);
                for (int k : {6, 2, 0}) {
                    auto before = [&] {
                        if (fk < 2)
                            flush(fk);
                        else {
                            sweep<<<528, 512>>>((unsigned*)mem, (at - mem) / 4, out);
                            sweep<<<132, 512>>>((unsigned*)mem, 1 << 20, out);
                        }
                    };
                    printf(" kind%d %.2f", k,
                           median_us(
                               [&] {
                                   if (k == 0)
                                       spmv<0><<<132, threads>>>(rows, dv, dc, dof, dx, dy);
                                   else if (k == 2)
                                       spmv<2><<<132, threads>>>(rows, dv, dc, dof, dx, dy);
                                   else
                                       spmv<6><<<132, threads>>>(rows, dv, dc, dof, dx, dy);
                               },
                               11, before));
                }
                printf("\n");
                fflush(stdout);
            }
        }
    printf("end\n");
}
