// What a candidate takes from the runtime and has to give back before its call ends: memory, streams, events, graphs.
//
// A candidate's object is linked to the mskb_cuda... functions below in place of the runtime's own, by renaming its
// undefined symbols. Included by the driver alone. Memory that a kernel takes from the device's heap is not seen.
// Launches take the same way, so that they can be told (launches.h).
#pragma once
#include <cuda_runtime.h>
#include <algorithm>
#include <map>
#include <string>
#include "mskb/launches.h"

namespace mskb {

class Ledger {
  public:
    cudaError_t enter(cudaError_t status, const void* handle, const char* what) {
        if (status == cudaSuccess && handle != nullptr)
            open_[handle] = what;
        return status;
    }
    void leave(const void* handle) { open_.erase(handle); }

    // Memory that is asked for; the largest piece so far is in `largest`.
    void ask(size_t bytes) { largest_ = std::max(largest_, bytes); }
    size_t largest() const { return largest_; }

    // Whether memory may be freed: the candidate's own, or none at all.
    bool owns(const void* memory) {
        bool own = memory == nullptr || open_.count(memory) > 0;
        if (!own)
            breach_ = "it freed memory that it did not allocate";
        return own;
    }

    // Empty when nothing is left of the calls so far, else what is wrong in words.
    std::string unsettled() const {
        if (!breach_.empty() || open_.empty())
            return breach_;
        return "it left " + std::string(open_.begin()->second) + " behind" +
               (open_.size() > 1 ? " and " + std::to_string(open_.size() - 1) + " more" : "");
    }

  private:
    std::map<const void*, const char*> open_;
    std::string breach_;
    size_t largest_ = 0;
};

inline Ledger& ledger() {
    static Ledger ledger;
    return ledger;
}

} // namespace mskb

extern "C" {

cudaError_t mskb_cudaMalloc(void** pointer, size_t bytes) {
    mskb::ledger().ask(bytes);
    cudaError_t status = cudaMalloc(pointer, bytes);
    return mskb::ledger().enter(status, *pointer, "device memory");
}
cudaError_t mskb_cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
    mskb::ledger().ask(bytes);
    cudaError_t status = cudaMallocAsync(pointer, bytes, stream);
    return mskb::ledger().enter(status, *pointer, "stream-ordered memory");
}
cudaError_t mskb_cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
    mskb::ledger().ask(width * height);
    cudaError_t status = cudaMallocPitch(pointer, pitch, width, height);
    return mskb::ledger().enter(status, *pointer, "device memory");
}
cudaError_t mskb_cudaMallocManaged(void** pointer, size_t bytes, unsigned int flags) {
    mskb::ledger().ask(bytes);
    cudaError_t status = cudaMallocManaged(pointer, bytes, flags);
    return mskb::ledger().enter(status, *pointer, "managed memory");
}
cudaError_t mskb_cudaHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
    mskb::ledger().ask(bytes);
    cudaError_t status = cudaHostAlloc(pointer, bytes, flags);
    return mskb::ledger().enter(status, *pointer, "page-locked memory");
}
cudaError_t mskb_cudaFree(void* pointer) {
    if (!mskb::ledger().owns(pointer))
        return cudaErrorInvalidValue;
    mskb::ledger().leave(pointer);
    return cudaFree(pointer);
}
cudaError_t mskb_cudaFreeAsync(void* pointer, cudaStream_t stream) {
    if (!mskb::ledger().owns(pointer))
        return cudaErrorInvalidValue;
    mskb::ledger().leave(pointer);
    return cudaFreeAsync(pointer, stream);
}
cudaError_t mskb_cudaFreeHost(void* pointer) {
    if (!mskb::ledger().owns(pointer))
        return cudaErrorInvalidValue;
    mskb::ledger().leave(pointer);
    return cudaFreeHost(pointer);
}

cudaError_t mskb_cudaStreamCreate(cudaStream_t* stream) {
    cudaError_t status = cudaStreamCreate(stream);
    return mskb::ledger().enter(status, *stream, "a stream");
}
cudaError_t mskb_cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
    cudaError_t status = cudaStreamCreateWithFlags(stream, flags);
    return mskb::ledger().enter(status, *stream, "a stream");
}
cudaError_t mskb_cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
    cudaError_t status = cudaStreamCreateWithPriority(stream, flags, priority);
    return mskb::ledger().enter(status, *stream, "a stream");
}
cudaError_t mskb_cudaStreamDestroy(cudaStream_t stream) {
    mskb::ledger().leave(stream);
    return cudaStreamDestroy(stream);
}
cudaError_t mskb_cudaEventCreate(cudaEvent_t* event) {
    cudaError_t status = cudaEventCreate(event);
    return mskb::ledger().enter(status, *event, "an event");
}
cudaError_t mskb_cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
    cudaError_t status = cudaEventCreateWithFlags(event, flags);
    return mskb::ledger().enter(status, *event, "an event");
}
cudaError_t mskb_cudaEventDestroy(cudaEvent_t event) {
    mskb::ledger().leave(event);
    return cudaEventDestroy(event);
}

#ifndef MSKB_CPU_DEVICE // which has none of these
cudaError_t mskb_cudaMallocHost(void** pointer, size_t bytes) {
    mskb::ledger().ask(bytes);
    cudaError_t status = cudaMallocHost(pointer, bytes);
    return mskb::ledger().enter(status, *pointer, "page-locked memory");
}
cudaError_t mskb_cudaMalloc3D(cudaPitchedPtr* pitched, cudaExtent extent) {
    mskb::ledger().ask(extent.width * extent.height * extent.depth);
    cudaError_t status = cudaMalloc3D(pitched, extent);
    return mskb::ledger().enter(status, pitched->ptr, "device memory");
}
cudaError_t mskb_cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool,
                                         cudaStream_t stream) {
    mskb::ledger().ask(bytes);
    cudaError_t status = cudaMallocFromPoolAsync(pointer, bytes, pool, stream);
    return mskb::ledger().enter(status, *pointer, "stream-ordered memory");
}
cudaError_t mskb_cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
    mskb::ledger().ask(size_t{2} << 20); // it holds no memory yet
    cudaError_t status = cudaMemPoolCreate(pool, properties);
    return mskb::ledger().enter(status, *pool, "a memory pool");
}
cudaError_t mskb_cudaMemPoolDestroy(cudaMemPool_t pool) {
    mskb::ledger().leave(pool);
    return cudaMemPoolDestroy(pool);
}
#endif

cudaError_t mskb_cudaGraphCreate(cudaGraph_t* graph, unsigned int flags) {
    cudaError_t status = cudaGraphCreate(graph, flags);
    return mskb::ledger().enter(status, *graph, "a graph");
}
cudaError_t mskb_cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    cudaError_t status = cudaStreamEndCapture(stream, graph);
    return mskb::ledger().enter(status, *graph, "a graph");
}
cudaError_t mskb_cudaGraphDestroy(cudaGraph_t graph) {
    mskb::ledger().leave(graph);
    return cudaGraphDestroy(graph);
}
cudaError_t mskb_cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
    cudaError_t status = cudaGraphInstantiate(exec, graph, flags);
    return mskb::ledger().enter(status, *exec, "an instantiated graph");
}
cudaError_t mskb_cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                               unsigned long long flags) {
    cudaError_t status = cudaGraphInstantiateWithFlags(exec, graph, flags);
    return mskb::ledger().enter(status, *exec, "an instantiated graph");
}
#ifndef MSKB_CPU_DEVICE // which has no such form
cudaError_t mskb_cudaGraphInstantiateWithParams(cudaGraphExec_t* exec, cudaGraph_t graph,
                                                cudaGraphInstantiateParams* parameters) {
    cudaError_t status = cudaGraphInstantiateWithParams(exec, graph, parameters);
    return mskb::ledger().enter(status, *exec, "an instantiated graph");
}
#endif
cudaError_t mskb_cudaGraphExecDestroy(cudaGraphExec_t exec) {
    mskb::ledger().leave(exec);
    return cudaGraphExecDestroy(exec);
}

#ifndef MSKB_CPU_DEVICE // which launches in its own way
cudaError_t mskb_cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                                  cudaStream_t stream) {
    mskb::launches.note(kernel, grid, block, shared);
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
cudaError_t mskb_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
    if (config != nullptr)
        mskb::launches.note(kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes);
    return cudaLaunchKernelExC(config, kernel, arguments);
}
cudaError_t mskb_cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                             size_t shared, cudaStream_t stream) {
    mskb::launches.note(kernel, grid, block, shared);
    return cudaLaunchCooperativeKernel(kernel, grid, block, arguments, shared, stream);
}
#if CUDART_VERSION >= 13000 // from which on it is what nvcc makes of kernel<<<...>>>()
cudaError_t mskb___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                    size_t shared, cudaStream_t stream) {
    mskb::launches.note(kernel, grid, block, shared);
    return __cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
#endif
#endif
}
