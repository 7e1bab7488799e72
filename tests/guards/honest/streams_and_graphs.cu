// Stream-ordered allocation, several joined streams, a graph rebuilt in the call, cooperative launch.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

__global__ void grid_kernel_optimized(const float* x, float* y, float* tmp, int n) {
    cg::grid_group grid = cg::this_grid();
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    float v = 0.f;
    for (unsigned long long i = grid.thread_rank(); i < (unsigned long long)n; i += grid.size())
        v += x[i];
    v = cg::reduce(warp, v, cg::plus<float>());
    if (warp.thread_rank() == 0)
        atomicAdd(tmp, v);
    grid.sync();
    if (grid.thread_rank() == 0)
        y[0] = *tmp;
}
__global__ void copy_kernel_optimized(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[i];
}
extern "C" {
void task_optimized(const float* x, float* y, int n) {
    cudaStream_t streams[2];
    cudaEvent_t done;
    for (auto& stream : streams)
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    float* tmp;
    cudaMallocAsync(&tmp, sizeof(float), streams[0]);
    cudaMemsetAsync(tmp, 0, sizeof(float), streams[0]);
    int device = 0, count = 0, per_sm = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, grid_kernel_optimized, 256, 0);
    cudaFuncSetAttribute(grid_kernel_optimized, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024);
    void* arguments[] = {(void*)&x, &y, &tmp, &n};
    cudaLaunchCooperativeKernel((void*)grid_kernel_optimized, dim3(count * per_sm), dim3(256), arguments, 0,
                                streams[0]);
    cudaFreeAsync(tmp, streams[0]);
    cudaEventRecord(done, streams[0]);
    cudaStreamWaitEvent(streams[1], done, 0);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStreamBeginCapture(streams[1], cudaStreamCaptureModeGlobal);
    copy_kernel_optimized<<<1, 32, 0, streams[1]>>>(y, y, 1);
    cudaStreamEndCapture(streams[1], &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphLaunch(exec, streams[1]);
    cudaStreamSynchronize(streams[1]);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaEventDestroy(done);
    for (auto stream : streams)
        cudaStreamDestroy(stream);
}
}
