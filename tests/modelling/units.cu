// Calls of test_units.py: launches whose blocks take units of work from a common counter, far more than one block should be
// counted for. The command line says which.
#include <cuda_runtime.h>
#include <string>

extern "C" void cudamaster_cpu_record(int on);

constexpr int kThreads = 128, kBlocks = 32;

// A unit: passes over a table that all share, a line of `in` for each warp, and one of `out`. Between two passes over the
// table a thread may also gather from `in`.
struct Work {
    int passes, gathers;
};
__device__ void does(const Work& work, int unit, const float* table, const float* in, float* out) {
    float sum = in[(size_t)unit * kThreads + threadIdx.x];
    for (int k = 0; k < work.passes; ++k)
        sum = sum * 0.5f + table[(k * kThreads + threadIdx.x) % 4096];
    for (int k = 0; k < work.gathers; ++k)
        sum += in[(threadIdx.x * 8 + k * 1024) % 65536];
    out[(size_t)unit * kThreads + threadIdx.x] = sum;
}

// Units of which one in `often` is heavy, or all from `from` on. A block takes `most` units.
__global__ void taking_kernel(int* counter, const float* table, const float* in, float* out, int units,
                              int often, int from, Work light, Work heavy, int most) {
    __shared__ int next;
    for (int taken = 0; taken < most; ++taken) {
        __syncthreads();
        if (threadIdx.x == 0)
            next = atomicAdd(counter, 1);
        __syncthreads();
        int unit = next;
        if (unit >= units)
            break;
        bool is_heavy = unit % often == 0 || unit >= from;
        does(is_heavy ? heavy : light, unit, table, in, out);
    }
}

__device__ int taken, ended, looks;

// Each block has its own units; the counter says how many are done.
__global__ void own_kernel(int* counter, const float* table, const float* in, float* out, int units) {
    __shared__ int done;
    for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
        __syncthreads();
        if (threadIdx.x == 0)
            done = atomicAdd(counter, 1);
        __syncthreads();
        does(Work{400, done < 0}, unit, table, in, out);
    }
}

// A counter that goes down; another that nobody asks, before it.
__global__ void down_kernel(int* counter, const float* table, const float* in, float* out) {
    __shared__ int next;
    while (true) {
        __syncthreads();
        if (threadIdx.x == 0) {
            atomicAdd(&looks, 1);
            next = atomicSub(counter, 1) - 1;
        }
        __syncthreads();
        int unit = next;
        if (unit < 0)
            break;
        does(Work{400, 0}, unit, table, in, out);
    }
}

// The last block does something more, and resets its counters for the next call.
__global__ void reset_kernel(const float* table, const float* in, float* out, int units, Work of_last) {
    __shared__ int next;
    while (true) {
        __syncthreads();
        if (threadIdx.x == 0)
            next = atomicAdd(&taken, 1);
        __syncthreads();
        int unit = next;
        if (unit >= units)
            break;
        does(Work{400, 0}, unit, table, in, out);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        next = atomicAdd(&ended, 1);
        if (next == static_cast<int>(gridDim.x) - 1)
            taken = ended = 0;
    }
    __syncthreads();
    if (next == static_cast<int>(gridDim.x) - 1)
        does(of_last, 0, table, in, out);
}

// Who takes more than there are resets the counter, if all others have done so.
__global__ void wrapping_kernel(const float* table, const float* in, float* out, int units) {
    __shared__ int next;
    while (true) {
        __syncthreads();
        if (threadIdx.x == 0) {
            next = atomicAdd(&taken, 1);
            if (next == units + static_cast<int>(gridDim.x) - 1)
                taken = 0;
        }
        __syncthreads();
        int unit = next;
        if (unit >= units)
            break;
        does(Work{400, 0}, unit, table, in, out);
    }
}

__global__ void reading_kernel(const int* counter, float* out) {
    out[*counter % 1024 + threadIdx.x] = 1;
}

int main(int, char** words) {
    const std::string how = words[1];
    const int never = 1 << 30;
    const int units = how.rfind("few long", 0) == 0 ? 60 : 1000;
    int* counter;
    float *table, *in, *out;
    if (cudaMalloc(&counter, 4) || cudaMalloc(&table, 4 * 4096) || cudaMalloc(&in, 4 * units * kThreads) ||
        cudaMalloc(&out, 4 * units * kThreads))
        return 1;
    cudaMemset(counter, 0, 4);
    cudaMemset(table, 0, 4 * 4096);
    cudaMemset(in, 0, 4 * units * kThreads);
    Work light = {400, 0}, heavy = light;
    int often = never, from = never, most = never;
    if (how == "long units")
        often = 1, heavy = {40000, 0};
    else if (how == "one in three is heavy")
        often = 3, heavy = {1600, 0};
    else if (how == "heavy behind the first")
        from = 60, heavy = {400, 100};
    else if (how == "few for each")
        most = 30;
    else if (how == "few long ones")
        often = 1, heavy = {15000, 0};
    else if (how == "few long ones, the last longer")
        from = 30, light = {15000, 0}, heavy = {30000, 0};
    else if (how == "few long ones, the last shorter")
        from = 40, light = {40000, 0}, heavy = {4000, 0}; // and the first
    for (int call = 0; how == "wrapping" && call < 2; ++call) {
        cudamaster_cpu_record(1);
        wrapping_kernel<<<132, kThreads>>>(table, in, out, units);
        cudamaster_cpu_record(0);
    }
    if (how == "wrapping")
        return 0;
    if (how == "down")
        cudaMemcpy(counter, &units, 4, cudaMemcpyHostToDevice);
    cudamaster_cpu_record(1);
    if (how == "down")
        down_kernel<<<kBlocks, kThreads>>>(counter, table, in, out);
    else if (how == "the last does more")
        reset_kernel<<<kBlocks, kThreads>>>(table, in, out, units, {4000, 0});
    else if (how == "their own")
        own_kernel<<<4, kThreads>>>(counter, table, in, out, units);
    else
        taking_kernel<<<kBlocks, kThreads>>>(counter, table, in, out, units, often, from, light, heavy, most);
    if (how == "read behind")
        reading_kernel<<<1, 32>>>(counter, out);
    cudamaster_cpu_record(0);
}
