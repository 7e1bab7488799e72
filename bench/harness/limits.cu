// What the memory of this GPU can do: read and write bandwidth, measured, and the figures that bound arithmetic. One
// JSON object on stdout.
//
// Both are the best of several kernel shapes and repetitions over a buffer far larger than the L2 cache: a floor
// under times has to be a true one.
#include <cstdio>
#include <cstdlib>
#include <algorithm>
#include <cuda_runtime.h>

namespace {

void checked(cudaError_t status, const char* what) {
    if (status == cudaSuccess)
        return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    std::exit(1);
}
#define CHECKED(call) checked((call), #call)

template <int kLoads> __global__ void read_kernel(const uint4* data, size_t vectors, unsigned int* result) {
    unsigned int mixed = 0;
    size_t threads = static_cast<size_t>(gridDim.x) * blockDim.x;
    size_t thread = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (size_t first = thread; first < vectors; first += kLoads * threads) {
        uint4 loaded[kLoads];
#pragma unroll
        for (int k = 0; k < kLoads; ++k)
            loaded[k] = first + k * threads < vectors ? data[first + k * threads] : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int k = 0; k < kLoads; ++k)
            mixed |= loaded[k].x | loaded[k].y | loaded[k].z | loaded[k].w;
    }
    if (mixed == 0xdeadbeefu) // never: the buffer is zero, and the compiler does not know
        *result = mixed;
}

__global__ void write_kernel(uint4* data, size_t vectors, unsigned int value) {
    size_t threads = static_cast<size_t>(gridDim.x) * blockDim.x;
    for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < vectors; i += threads)
        data[i] = make_uint4(value, value, value, value);
}

// Best bytes per second of several repetitions.
template <class Launch> double bandwidth(size_t bytes, const Launch& launch) {
    cudaEvent_t begin, end;
    CHECKED(cudaEventCreate(&begin));
    CHECKED(cudaEventCreate(&end));
    double best = 0;
    for (int repetition = 0; repetition < 6; ++repetition) {
        CHECKED(cudaEventRecord(begin));
        launch();
        CHECKED(cudaEventRecord(end));
        CHECKED(cudaEventSynchronize(end));
        CHECKED(cudaGetLastError());
        float milliseconds = 0;
        CHECKED(cudaEventElapsedTime(&milliseconds, begin, end));
        best = std::max(best, bytes / (milliseconds * 1e-3));
    }
    CHECKED(cudaEventDestroy(begin));
    CHECKED(cudaEventDestroy(end));
    return best;
}

} // namespace

int main() {
    int device = 0, processors = 0, clock_khz = 0, l2_bytes = 0, major = 0, minor = 0;
    CHECKED(cudaGetDevice(&device));
    CHECKED(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    CHECKED(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, device));
    CHECKED(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device));
    CHECKED(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    CHECKED(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    size_t free_bytes = 0, total_bytes = 0;
    CHECKED(cudaMemGetInfo(&free_bytes, &total_bytes));
    size_t vectors = std::min<size_t>(size_t{4} << 30, free_bytes / 2) / sizeof(uint4);
    size_t bytes = vectors * sizeof(uint4);
    uint4* data = nullptr;
    unsigned int* result = nullptr;
    CHECKED(cudaMalloc(&data, bytes));
    CHECKED(cudaMalloc(&result, sizeof *result));
    CHECKED(cudaMemset(data, 0, bytes));
    double read = 0, write = bandwidth(bytes, [&] { CHECKED(cudaMemsetAsync(data, 0, bytes)); });
    for (int blocks : {8, 16, 64})
        for (int threads : {256, 512}) {
            int grid = processors * blocks;
            read = std::max(
                read, bandwidth(bytes, [&] { read_kernel<4><<<grid, threads>>>(data, vectors, result); }));
            read = std::max(
                read, bandwidth(bytes, [&] { read_kernel<8><<<grid, threads>>>(data, vectors, result); }));
            write =
                std::max(write, bandwidth(bytes, [&] { write_kernel<<<grid, threads>>>(data, vectors, 0); }));
        }
    std::printf("{\"read_bytes_per_s\": %.4g, \"write_bytes_per_s\": %.4g, \"multiprocessors\": %d, "
                "\"clock_mhz\": %d, \"l2_bytes\": %d, \"compute_capability\": \"%d.%d\"}\n",
                read, write, processors, clock_khz / 1000, l2_bytes, major, minor);
    return 0;
}
