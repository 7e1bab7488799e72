// CUDA graphs that a call builds and runs, launch attributes, dependent launches and what the runtime says of clusters.
#include <cuda_runtime.h>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

constexpr int kCount = 1000;

__global__ void add(int* data, int n, int by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        data[i] += by;
}
template <class Type> __global__ void twice(Type* data, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        data[i] *= 2;
}
// The second of two launches begins early, and waits for the first where it needs its results.
__global__ void first(int* data) {
    data[threadIdx.x] = threadIdx.x;
    cudaTriggerProgrammaticLaunchCompletion();
}
__global__ void second(int* data) {
    cudaGridDependencySynchronize();
    data[threadIdx.x] += 1;
}

struct Data {
    int *a, *b;
    cudaStream_t stream, other;
    cudaEvent_t fork, join;
    Data() {
        cudaMalloc(&a, kCount * sizeof(int));
        cudaMalloc(&b, kCount * sizeof(int));
        cudaMemset(a, 0, kCount * sizeof(int));
        cudaMemset(b, 0, kCount * sizeof(int));
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
        cudaEventCreateWithFlags(&join, cudaEventDisableTiming);
    }
    ~Data() {
        cudaFree(a);
        cudaFree(b);
        cudaStreamDestroy(stream);
        cudaStreamDestroy(other);
        cudaEventDestroy(fork);
        cudaEventDestroy(join);
    }
    bool is(const int* data, int value) const {
        std::vector<int> host(kCount);
        cudaMemcpy(host.data(), data, kCount * sizeof(int), cudaMemcpyDeviceToHost);
        for (int one : host)
            if (one != value)
                return false;
        return true;
    }
};

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                     \
            return 3;                                                                                        \
        }                                                                                                    \
    } while (0)

// Nothing happens while the streams capture; each launch of the graph does all of it, in its order.
int captured() {
    Data d;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(d.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    for (int by = 1; by < 3; ++by)
        add<<<8, 128, 0, d.stream>>>(d.a, kCount, by);
    cudaEventRecord(d.fork, d.stream);
    cudaStreamWaitEvent(d.other, d.fork, 0);
    twice<int><<<8, 128, 0, d.other>>>(d.a, kCount);
    int* scratch;
    CHECK(cudaMallocAsync(&scratch, kCount * sizeof(int), d.other) == cudaSuccess);
    cudaMemcpyAsync(scratch, d.a, kCount * sizeof(int), cudaMemcpyDeviceToDevice, d.other);
    cudaMemcpyAsync(d.b, scratch, kCount * sizeof(int), cudaMemcpyDeviceToDevice, d.other);
    CHECK(cudaFreeAsync(scratch, d.other) == cudaSuccess);
    cudaEventRecord(d.join, d.other);
    cudaStreamWaitEvent(d.stream, d.join, 0);
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(d.stream, &status) == cudaSuccess && status == cudaStreamCaptureStatusActive);
    CHECK(cudaStreamEndCapture(d.stream, &graph) == cudaSuccess);
    CHECK(d.is(d.a, 0));
    CHECK(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaGraphLaunch(exec, d.stream) == cudaSuccess);
    CHECK(cudaGraphLaunch(exec, d.stream) == cudaSuccess);
    CHECK(cudaStreamSynchronize(d.stream) == cudaSuccess);
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
    CHECK(d.is(d.a, 18) && d.is(d.b, 18));
    return 0;
}

// Nodes by hand: their order is that of their dependencies, not that of their making.
int by_hand() {
    Data d;
    cudaGraph_t graph, child;
    CHECK(cudaGraphCreate(&graph, 0) == cudaSuccess && cudaGraphCreate(&child, 0) == cudaSuccess);
    int n = kCount, by = 5;
    void* arguments[] = {&d.a, &n, &by};
    void* of_twice[] = {&d.a, &n};
    cudaKernelNodeParams adds = {}, doubles = {};
    adds.func = (void*)add;
    adds.gridDim = dim3(8);
    adds.blockDim = dim3(128);
    adds.kernelParams = arguments;
    doubles.func = reinterpret_cast<void*>(twice<int>);
    doubles.gridDim = dim3(8);
    doubles.blockDim = dim3(128);
    doubles.kernelParams = of_twice;
    cudaMemsetParams fill = {};
    fill.dst = d.a;
    fill.value = 7;
    fill.elementSize = 4;
    fill.width = kCount;
    fill.height = 1;
    cudaGraphNode_t filled, added, doubled, copied, empty, whole;
    CHECK(cudaGraphAddMemsetNode(&filled, graph, nullptr, 0, &fill) == cudaSuccess);
    CHECK(cudaGraphAddKernelNode(&added, graph, &filled, 1, &adds) == cudaSuccess);
    by = 100; // the node has its arguments
    CHECK(cudaGraphAddEmptyNode(&empty, graph, &added, 1) == cudaSuccess);
    CHECK(cudaGraphAddKernelNode(&doubled, child, nullptr, 0, &doubles) == cudaSuccess);
    CHECK(cudaGraphAddChildGraphNode(&whole, graph, &empty, 1, child) == cudaSuccess);
    CHECK(cudaGraphAddMemcpyNode1D(&copied, graph, &whole, 1, d.b, d.a, kCount * sizeof(int),
                                   cudaMemcpyDeviceToDevice) == cudaSuccess);
    size_t count = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &count) == cudaSuccess && count == 5);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0) == cudaSuccess);
    CHECK(cudaGraphUpload(exec, d.stream) == cudaSuccess);
    CHECK(cudaGraphLaunch(exec, d.stream) == cudaSuccess && cudaStreamSynchronize(d.stream) == cudaSuccess);
    CHECK(d.is(d.b, 24));
    CHECK(cudaGraphExecKernelNodeSetParams(exec, added, &adds) == cudaSuccess);
    CHECK(cudaGraphLaunch(exec, d.stream) == cudaSuccess && cudaStreamSynchronize(d.stream) == cudaSuccess);
    CHECK(d.is(d.b, 214));
    CHECK(cudaGraphExecDestroy(exec) == cudaSuccess && cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(child) == cudaSuccess);
    return 0;
}

// What cannot be captured ends the capture with its error.
int refused() {
    Data d;
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(d.stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    CHECK(cudaStreamSynchronize(d.stream) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(d.stream, &graph) == cudaErrorStreamCaptureInvalidated && graph == nullptr);
    CHECK(cudaStreamBeginCapture(d.stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    cudaEventRecord(d.fork, d.stream);
    cudaStreamWaitEvent(d.other, d.fork, 0);
    add<<<8, 128, 0, d.other>>>(d.a, kCount, 1);
    CHECK(cudaStreamEndCapture(d.stream, &graph) == cudaErrorStreamCaptureUnjoined && graph == nullptr);
    CHECK(cudaStreamWaitEvent(d.other, d.fork, 0) == cudaErrorInvalidValue);
    CHECK(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeGlobal) != cudaSuccess);
    CHECK(cudaStreamEndCapture(d.stream, &graph) != cudaSuccess);
    cudaStream_t blocking;
    cudaStreamCreate(&blocking);
    CHECK(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed) == cudaSuccess);
    CHECK(cudaMemsetAsync(d.a, 1, 4, nullptr) == cudaErrorStreamCaptureImplicit);
    cudaStreamEndCapture(blocking, &graph);
    if (graph)
        cudaGraphDestroy(graph);
    cudaStreamDestroy(blocking);
    while (cudaGetLastError() != cudaSuccess) {
    }
    CHECK(d.is(d.a, 0));
    return 0;
}

// Streams that are destroyed behind a capture, in it, and as the ones that began it.
int gone() {
    Data d;
    cudaGraph_t graph;
    for (int when = 0; when < 3; ++when) {
        cudaStream_t origin, other;
        cudaStreamCreateWithFlags(&origin, cudaStreamNonBlocking);
        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
        CHECK(cudaStreamBeginCapture(origin, cudaStreamCaptureModeRelaxed) == cudaSuccess);
        cudaEventRecord(d.fork, origin);
        cudaStreamWaitEvent(other, d.fork, 0);
        add<<<8, 128, 0, other>>>(d.a, kCount, 1);
        cudaEventRecord(d.join, other);
        if (when == 2) {
            cudaStreamDestroy(origin);
            cudaStreamCaptureStatus status;
            CHECK(cudaStreamIsCapturing(other, &status) == cudaSuccess);
            CHECK(status == cudaStreamCaptureStatusNone);
            CHECK(cudaStreamDestroy(other) == cudaSuccess);
            continue;
        }
        if (when == 1)
            CHECK(cudaStreamDestroy(other) == cudaSuccess);
        CHECK(cudaStreamWaitEvent(origin, d.join, 0) == cudaSuccess);
        CHECK(cudaStreamEndCapture(origin, &graph) == cudaSuccess);
        CHECK(cudaGraphDestroy(graph) == cudaSuccess);
        if (when == 0)
            CHECK(cudaStreamDestroy(other) == cudaSuccess);
        CHECK(cudaEventSynchronize(d.join) == cudaErrorInvalidValue && cudaGetLastError() != cudaSuccess);
        CHECK(cudaEventQuery(d.join) == cudaErrorInvalidValue && cudaGetLastError() != cudaSuccess);
        CHECK(cudaStreamDestroy(origin) == cudaSuccess);
    }
    return 0;
}

int dependent() {
    Data d;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(kCount);
    config.stream = d.stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    first<<<1, kCount, 0, d.stream>>>(d.a);
    CHECK(cudaLaunchKernelEx(&config, second, d.a) == cudaSuccess);
    void* arguments[] = {&d.a};
    CHECK(cudaLaunchKernelExC(&config, (const void*)second, arguments) == cudaSuccess);
    std::vector<int> host(kCount);
    cudaStreamSynchronize(d.stream);
    cudaMemcpy(host.data(), d.a, kCount * sizeof(int), cudaMemcpyDeviceToHost);
    for (int i = 0; i < kCount; ++i)
        CHECK(host[i] == i + 2);
    return 0;
}

__global__ void __cluster_dims__(4, 2, 1) shaped(int*) {}

int occupancy() {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = 4;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(128);
    config.blockDim = dim3(256);
    config.dynamicSmemBytes = 200 << 10;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int clusters = 0, size = 0;
    CHECK(cudaFuncSetAttribute(add, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 << 10) == cudaSuccess);
    CHECK(cudaFuncSetAttribute(add, cudaFuncAttributeMaxDynamicSharedMemorySize, (227 << 10) + 1) !=
          cudaSuccess);
    CHECK(cudaOccupancyMaxActiveClusters(&clusters, add, &config) == cudaSuccess && clusters > 0 &&
          clusters <= 33);
    CHECK(cudaOccupancyMaxPotentialClusterSize(&size, add, &config) == cudaSuccess && size == 8);
    CHECK(cudaFuncSetAttribute(add, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess);
    CHECK(cudaOccupancyMaxPotentialClusterSize(&size, add, &config) == cudaSuccess && size == 16);
    size_t bytes = 0;
    CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, add, 2, 256) == cudaSuccess &&
          bytes >= 100 << 10);
    int supported = 0;
    CHECK(cudaDeviceGetAttribute(&supported, cudaDevAttrClusterLaunch, 0) == cudaSuccess && supported == 1);
    return 0;
}

// Several threads of the host capture at the same time, and the graphs are run one after the other.
static int at_once() {
    constexpr int kThreads = 8, kGraphs = 400;
    Data data;
    std::vector<cudaGraphExec_t> all(kThreads * kGraphs);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; i < kGraphs; ++i) {
                cudaStream_t stream;
                cudaGraph_t graph = nullptr;
                cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
                cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
                add<<<4, 256, 0, stream>>>(data.a, kCount, 1);
                cudaStreamEndCapture(stream, &graph);
                cudaGraphInstantiate(&all[t * kGraphs + i], graph, 0);
                cudaGraphDestroy(graph);
                cudaStreamDestroy(stream);
            }
        });
    for (std::thread& one : threads)
        one.join();
    for (cudaGraphExec_t one : all) {
        if (cudaGraphLaunch(one, data.stream) != cudaSuccess)
            return 2;
        cudaGraphExecDestroy(one);
    }
    cudaStreamSynchronize(data.stream);
    return data.is(data.a, kThreads * kGraphs) ? 0 : 3;
}

int main(int argc, char** argv) {
    const char* name = argc > 1 ? argv[1] : "";
    auto is = [name](const char* other) { return std::strcmp(name, other) == 0; };
    if (is("captured"))
        return captured();
    if (is("by-hand"))
        return by_hand();
    if (is("refused"))
        return refused();
    if (is("gone"))
        return gone();
    if (is("dependent"))
        return dependent();
    if (is("occupancy"))
        return occupancy();
    if (is("at-once"))
        return at_once();
    std::fprintf(stderr, "no such check: %s\n", name);
    return 1;
}
