// What the device says of itself, and its streams and events. Work is done when it is submitted, so a stream
// is empty whenever anyone looks.
#include "limits.h"
#include "observe.h"
#include "streams.h"

#include <chrono>
#include <cstring>
#include <thread>

using namespace executor;

namespace {

cudaError_t wait_for_all() {
    observe::synchronised();
    if (!canaries_intact())
        set_sticky_error(cudaErrorIllegalAddress);
    return report(cudaSuccess);
}

} // namespace

cudaError_t cudaDeviceSynchronize() {
    if (cudaError_t error = refuse_any_capture())
        return report(error);
    return wait_for_all();
}
cudaError_t cudaDeviceReset() {
    return report(cudaSuccess);
}
cudaError_t cudaSetDeviceFlags(unsigned) {
    return report(cudaSuccess);
}
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) {
    return report(cudaSuccess);
}
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) {
    return report(cudaSuccess);
}
cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) {
    return report(cudaSuccess);
}
cudaError_t cudaCtxResetPersistingL2Cache() {
    return report(cudaSuccess);
}
cudaError_t cudaSetDevice(int device) {
    return report(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
    *value = limit == cudaLimitStackSize ? kStackBytes : 0;
    return report(cudaSuccess);
}

cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return report(cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return report(cudaSuccess);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return report(cudaSuccess);
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = 13000;
    return report(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int* version) {
    return cudaRuntimeGetVersion(version);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (device != 0)
        return report(cudaErrorInvalidDevice);
    *properties = {};
    std::strcpy(properties->name, "CPU (emulated CUDA device)");
    size_t free_bytes = 0;
    cudaMemGetInfo(&free_bytes, &properties->totalGlobalMem);
    properties->sharedMemPerBlock = kStaticShared;
    properties->regsPerBlock = properties->regsPerMultiprocessor = kRegisters;
    properties->warpSize = kWarp;
    properties->memPitch = 2147483647;
    properties->maxThreadsPerBlock = kMaxThreads;
    properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = kMaxBlockXY;
    properties->maxThreadsDim[2] = kMaxBlockZ;
    properties->maxGridSize[0] = kMaxGridX;
    properties->maxGridSize[1] = properties->maxGridSize[2] = kMaxGridYZ;
    properties->totalConstMem = 65536;
    properties->major = 9;
    properties->multiProcessorCount = multiprocessors();
    properties->canMapHostMemory = properties->concurrentKernels = properties->unifiedAddressing = 1;
    properties->asyncEngineCount = 3;
    properties->memoryBusWidth = 6144;
    properties->l2CacheSize = kL2Bytes;
    properties->persistingL2CacheMaxSize = kPersistingL2Bytes;
    properties->maxThreadsPerMultiProcessor = kThreadsPerMultiprocessor;
    properties->streamPrioritiesSupported = properties->globalL1CacheSupported =
        properties->localL1CacheSupported = 1;
    properties->sharedMemPerMultiprocessor = kSharedPerMultiprocessor;
    properties->managedMemory = properties->concurrentManagedAccess = properties->cooperativeLaunch = 1;
    properties->sharedMemPerBlockOptin = kOptInShared;
    properties->maxBlocksPerMultiProcessor = kMaxBlocksPerMultiprocessor;
    properties->accessPolicyMaxWindowSize = 134213632;
    properties->reservedSharedMemPerBlock = kReservedShared;
    properties->memoryPoolsSupported = properties->clusterLaunch = 1;
    return report(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    if (device != 0)
        return report(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = kMaxThreads;
        break;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
        *value = kMaxBlockXY;
        break;
    case cudaDevAttrMaxBlockDimZ:
        *value = kMaxBlockZ;
        break;
    case cudaDevAttrMaxGridDimX:
        *value = kMaxGridX;
        break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
        *value = kMaxGridYZ;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = kStaticShared;
        break;
    case cudaDevAttrTotalConstantMemory:
        *value = 65536;
        break;
    case cudaDevAttrWarpSize:
        *value = kWarp;
        break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
        *value = kRegisters;
        break;
    case cudaDevAttrClockRate:
        *value = 1980000;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = multiprocessors();
        break;
    case cudaDevAttrMemoryClockRate:
        *value = 3201000;
        break;
    case cudaDevAttrGlobalMemoryBusWidth:
        *value = 6144;
        break;
    case cudaDevAttrL2CacheSize:
        *value = kL2Bytes;
        break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = kThreadsPerMultiprocessor;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = kSharedPerMultiprocessor;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = kOptInShared;
        break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
        *value = kMaxBlocksPerMultiprocessor;
        break;
    case cudaDevAttrMaxPersistingL2CacheSize:
        *value = kPersistingL2Bytes;
        break;
    case cudaDevAttrMaxAccessPolicyWindowSize:
        *value = 134213632;
        break;
    case cudaDevAttrReservedSharedMemoryPerBlock:
        *value = kReservedShared;
        break;
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrClusterLaunch:
        *value = 1;
        break;
    default:
        return report(cudaErrorInvalidValue);
    }
    return report(cudaSuccess);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    *stream = new CudamasterCpuStream{flags};
    return report(cudaSuccess);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
    return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if (stream)
        forget_stream(stream);
    delete stream;
    return report(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (cudaError_t error = refuse_capture(stream))
        return report(error);
    return wait_for_all();
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    observe::found_done();
    return report(refuse_capture(stream));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    cudaError_t error = cudaSuccess;
    if (capture_wait(stream, event, &error))
        return report(error);
    return report(cudaSuccess);
}
cudaError_t cudaStreamSetAttribute(cudaStream_t, cudaStreamAttrID, const cudaStreamAttrValue*) {
    return report(cudaSuccess);
}
cudaError_t cudaStreamGetAttribute(cudaStream_t, cudaStreamAttrID, cudaStreamAttrValue* value) {
    std::memset(value, 0, sizeof *value);
    return report(cudaSuccess);
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned) {
    observe::found_done();
    callback(stream, cudaSuccess, data);
    return report(cudaSuccess);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    // A CUDA host function runs on a thread of the driver's, and may not call the API.
    return submit(stream, [=] {
        observe::found_done();
        std::thread(function, data).join();
        return report(cudaSuccess);
    });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    *event = new CudamasterCpuEvent{!(flags & cudaEventDisableTiming), false, {}};
    return report(cudaSuccess);
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return report(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (capture_event(event, stream))
        return report(cudaSuccess);
    event->time = std::chrono::steady_clock::now();
    event->recorded = true;
    return report(cudaSuccess);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
    return cudaEventRecord(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (cudaError_t error = refuse_captured(event))
        return report(error);
    return wait_for_all();
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    observe::found_done();
    return report(refuse_captured(event));
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
    if (!start->timed || !stop->timed || !start->recorded || !stop->recorded)
        return report(cudaErrorInvalidResourceHandle);
    *milliseconds = std::chrono::duration<float, std::milli>(stop->time - start->time).count();
    return report(cudaSuccess);
}
