// Loops of one load, by their counter, for benchmarks/gpu_model_loops.py: which of them nvcc unrolls. Nothing to run.
#define LOOP(name, Number, before, step)                                                                     \
    __global__ void name(const float* in, float* out, Number n, Number given) {                              \
        float sum = 0;                                                                                       \
        before;                                                                                              \
        for (Number i = threadIdx.x; i < n; i += step)                                                       \
            sum += in[i];                                                                                    \
        out[threadIdx.x] = sum;                                                                              \
    }

LOOP(int_constant, int, , 256)
LOOP(long_constant, long long, , 256)
LOOP(int_signed, int, , given)
LOOP(int_cast, int, , (int)blockDim.x)
LOOP(int_grid, int, int step = blockDim.x * gridDim.x, step)
LOOP(long_signed, long long, , given)
LOOP(long_grid, long long, long long step = (long long)blockDim.x * gridDim.x, step)
LOOP(long_block, long long, long long step = blockDim.x, step)
LOOP(unsigned_constant, unsigned, , 256)
LOOP(size_constant, size_t, , 256)
LOOP(int_unsigned, int, , blockDim.x)
LOOP(unsigned_given, unsigned, , given)
LOOP(size_given, size_t, , given)
LOOP(size_grid, size_t, size_t step = (size_t)blockDim.x * gridDim.x, step)

__global__ void rows_of_a_loop(const int* ends, const float* in, float* out, int rows) {
    for (int row = threadIdx.x; row < rows; row += blockDim.x) {
        float sum = 0;
        int end = ends[row + 1];
        for (int i = ends[row]; i < end; ++i)
            sum += in[i];
        out[row] = sum;
    }
}
__global__ void doubled(const float* in, float* out, int n) {
    float sum = 0;
    for (int i = 1; i < n; i *= 2)
        sum += in[i * 1024 + threadIdx.x];
    out[threadIdx.x] = sum;
}
__global__ void halved(const float* in, float* out, int n) {
    float sum = 0;
    for (int i = n; i > 0; i /= 2)
        sum += in[i * 1024 + threadIdx.x];
    out[threadIdx.x] = sum;
}
__global__ void left_alone(const float* in, float* out, int n) {
    float sum = 0;
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += 256)
        sum += in[i];
    out[threadIdx.x] = sum;
}
