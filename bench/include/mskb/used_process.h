// What a program that has run for a while has, and a new process lacks: memory that the driver has handed over already.
//
// The driver takes device memory in chunks of 2 MB and divides them among allocations that are smaller. In a process
// that holds no other one, every cudaMalloc makes a chunk and every cudaFree gives it back: 65 µs on an H200 in place of
// 2. Stream-ordered and page-locked memory are alike (82 in place of 4 µs, 650 in place of 3). A worker would measure
// that cost in each call of a kernel that allocates, and no program has it. So it keeps a small allocation in some
// chunks of each kind. What is larger than a chunk is asked of the driver by every program, and costs here what it costs there
// (docs/promises.md has the figures).
#pragma once
#include <cstdint>
#include <set>
#include <vector>
#include <cuda_runtime.h>
#include "mskb/buffers.h"

namespace mskb {

constexpr size_t kChunkBytes = size_t{2} << 20, kPieceBytes = size_t{64} << 10;
constexpr size_t kUsedChunks = 8; // room for as many allocations of almost a chunk in one call

// Makes the process's context and has it hold what a used one holds, until it ends.
inline void make_used() {
    MSKB_CUDA(cudaFree(nullptr)); // makes the context
#ifndef MSKB_CPU_DEVICE
    std::vector<void*> pieces(kUsedChunks * kChunkBytes / kPieceBytes);
    for (void*& piece : pieces)
        MSKB_CUDA(cudaMalloc(&piece, kPieceBytes));
    std::set<uintptr_t> chunks; // one piece of each stays
    for (void* piece : pieces)
        if (!chunks.insert(reinterpret_cast<uintptr_t>(piece) / kChunkBytes).second)
            MSKB_CUDA(cudaFree(piece));
    void* kept = nullptr;
    MSKB_CUDA(cudaMallocHost(&kept, kPieceBytes));
    int device = 0, pools = 0;
    MSKB_CUDA(cudaGetDevice(&device));
    MSKB_CUDA(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device));
    if (pools != 0)
        MSKB_CUDA(cudaMallocAsync(&kept, kPieceBytes, nullptr));
    MSKB_CUDA(cudaDeviceSynchronize());
#endif
}

} // namespace mskb
