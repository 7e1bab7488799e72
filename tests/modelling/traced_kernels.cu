// Kernels whose counts can be worked out by hand: calls of test_tracing.py, in the order of its CALLS.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>
#include <mma.h>
#include <cstring>

extern "C" void cudamaster_cpu_record(int on);

__global__ void copy_kernel(const float* in, float* out, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i * stride < n)
        out[i] = in[i * stride];
}

__global__ void broadcast_kernel(const float* in, float* out) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = in[0];
}

// Each lane goes through a line of its own, a sector after the other, each behind the one before; all hold zeroes.
__global__ void sectors_kernel(const int* in, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, at = 32 * i;
    at += in[at] + 8;
    at += in[at] + 8;
    at += in[at] + 8;
    out[i] = in[at];
}

__global__ void vector_kernel(const float4* in, float4* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 v = in[i];
    v.x += 1.0f;
    out[i] = v;
}

__global__ void library_kernel(const float* in, float* out, int each) {
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * each;
    memcpy(out + first, in + first, each * sizeof(float));
    memset(out + first, 0, each * sizeof(float));
}

// Sizes that the compiler knows: no call is left of these.
__global__ void known_sizes_kernel(const float* in, float* out) {
    int first = threadIdx.x * 32;
    memcpy(out + first, in + first, 24);
    __builtin_memcpy(out + first + 8, in + first + 8, 64);
    memset(out + first, 0, 48);
}

// Until a time has come: without anything else, with sleeps, and with a look at memory.
__global__ void spinning_kernel(float* out, long long cycles, int kind) {
    long long begun = clock64();
    if (kind == 0)
        while (clock64() - begun < cycles) {
        }
    if (kind == 1)
        while (clock64() - begun < cycles)
            __nanosleep(100);
    if (kind == 2)
        while (clock64() - begun < cycles)
            if (*(volatile float*)out == 77.0f)
                break;
    if (kind == 3) {
        clock_t now = clock();
        while (clock() - now < cycles) {
        }
    }
    out[threadIdx.x] = 1.0f;
}

template <int Stride> __global__ void shared_kernel(float* out) {
    __shared__ float tile[32 * Stride];
    int i = threadIdx.x;
    tile[i * Stride] = i;
    __syncthreads();
    out[i] = tile[(31 - i) * Stride];
}

__global__ void transposed_kernel(float* out, int pitch) {
    extern __shared__ float tile[];
    int x = threadIdx.x % 32, y = threadIdx.x / 32;
    for (int row = y; row < 32; row += blockDim.x / 32)
        tile[row * pitch + x] = row;
    __syncthreads();
    for (int row = y; row < 32; row += blockDim.x / 32)
        out[row * 32 + x] = tile[x * pitch + row];
}

__global__ void count_kernel(int* counters, int apart) {
    atomicAdd(&counters[(blockIdx.x * blockDim.x + threadIdx.x) * apart], 1);
}

__global__ void half_kernel(float* out) {
    int i = threadIdx.x;
    if (i % 32 < 16)
        out[i] = out[i] * 3.0f + 1.0f;
}

__global__ void paths_kernel(const float* in, float* out) {
    float x = in[threadIdx.x];
    out[threadIdx.x] = threadIdx.x % 2 ? x : 3.0f * (__expf(x) - 1.0f);
}

__global__ void rows_kernel(const float* in, float* out) {
    float sum = 0;
    for (int k = 0; k <= threadIdx.x; ++k)
        sum += in[k];
    out[threadIdx.x] = sum;
}

__global__ void barrier_kernel(float* out, int rounds) {
    __shared__ float sums[64];
    sums[threadIdx.x] = threadIdx.x;
    for (int i = 0; i < rounds; ++i) {
        __syncthreads();
        sums[threadIdx.x] += 1.0f;
    }
    out[threadIdx.x] = sums[threadIdx.x];
}

__global__ void left_kernel(float* out) {
    if (threadIdx.x % 32 == 31)
        return;
    for (int i = 0; i < 10; ++i)
        __syncthreads();
    out[threadIdx.x] = 1.0f;
}

__global__ void shuffle_kernel(float* out) {
    float sum = threadIdx.x;
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    out[threadIdx.x] = sum;
}

__global__ void product_kernel(const float* a, const float* b, float* c, int n) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; ++k)
        sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}

__global__ void tensor_kernel(const __nv_bfloat16* in, float* out, int products) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, __nv_bfloat16, row_major> a;
    fragment<matrix_b, 16, 16, 16, __nv_bfloat16, row_major> b;
    fragment<accumulator, 16, 16, 16, float> sums;
    load_matrix_sync(a, in, 16);
    load_matrix_sync(b, in + 256, 16);
    fill_fragment(sums, 0.0f);
    for (int i = 0; i < products; ++i)
        mma_sync(sums, a, b, sums);
    store_matrix_sync(out, sums, 16, mem_row_major);
}

__global__ void narrow_kernel(const __nv_bfloat16* in, __nv_bfloat16* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = __float2bfloat16(__bfloat162float(in[i]) * 3.0f + 1.0f);
}

__global__ void special_kernel(const float* in, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = __expf(in[i]);
}

__device__ float scratch[1024];
__global__ void scratch_kernel() {
    scratch[threadIdx.x] = 1.0f;
}

__global__ void grid_kernel(float* out) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f;
    cooperative_groups::this_grid().sync();
    out[blockIdx.x * blockDim.x + threadIdx.x] += 1.0f;
}

// Three fences of the GPU behind stores of the first warp; the second has nothing of its own to wait for, and a fence of
// the block is none of all memory.
__global__ void fenced_kernel(volatile float* out) {
    for (int i = 0; i < 3; ++i) {
        if (threadIdx.x < 32)
            out[threadIdx.x + 32 * i] = 1.0f;
        __threadfence();
        __threadfence();
        __threadfence_block();
    }
}

// Fences behind stores, additions and loads, and once behind questions: nobody waits for those again and again. A ticket
// comes behind three of them, a flag behind one.
__global__ void tickets_kernel(const float* in, float* out, int* tickets) {
    volatile int* flag = tickets + 64;
    out[threadIdx.x] = 1.0f;
    __threadfence();
    if (threadIdx.x % 32 == 0)
        atomicAdd(tickets, 1);
    atomicAdd(out + 32, in[threadIdx.x]);
    __threadfence();
    atomicAdd(tickets, 1);
    __threadfence();
    float loaded = in[threadIdx.x + 64];
    __threadfence();
    atomicAdd(tickets, loaded > 0 ? 2 : 1);
    for (int i = 0; i < 10; ++i) {
        if (*flag == 77)
            break;
        __threadfence();
    }
    out[threadIdx.x + 64] = 2.0f;
    __threadfence();
    *flag = 1;
}

// Additions with a fence behind each, which go on, and questions by atomics that change nothing.
__global__ void adding_kernel(float* out, int* flag, int times) {
    for (int i = 0; i < times; ++i) {
        atomicAdd(out + threadIdx.x, 1.0f);
        __threadfence();
    }
    for (int i = 0; i < times; ++i) {
        if (atomicAdd(flag, 0) || atomicCAS(flag, 1, 2) == 1 || atomicMax(flag, 0))
            break;
        __threadfence();
    }
}

// All lanes add to one counter: one, two, or one, whose answer they take.
template <int Kind> __global__ void counter_kernel(int* out) {
    __shared__ int counter;
    if (threadIdx.x == 0)
        counter = 0;
    __syncthreads();
    if (Kind == 0)
        atomicAdd(&counter, 1);
    if (Kind == 1)
        atomicAdd(&counter, 2);
    int answer = Kind == 2 ? atomicAdd(&counter, 1) : 0;
    __syncthreads();
    out[threadIdx.x] = counter + answer;
}

// The first blocks take `steps` more than the others.
__global__ void long_grid_kernel(float* out, int first, int steps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.x < first) {
        float sum = 0.0f;
#pragma unroll 1
        for (int k = 0; k < steps; ++k)
            sum = sum * 0.5f + 1.0f;
        out[i] = sum;
    }
    cooperative_groups::this_grid().sync();
    out[i] += 1.0f;
}

__global__ void first_waited_for_kernel(volatile int* flags, int* work, int steps) {
    if (threadIdx.x == 0) {
        while (blockIdx.x > 0 && flags[blockIdx.x - 1] == 0)
            __nanosleep(100);
        for (int i = 0; blockIdx.x == 0 && i < steps; ++i)
            work[i % 16] += i;
        __threadfence();
        flags[blockIdx.x] = 1;
    }
}

__global__ void waiting_kernel(volatile int* flags, int* work, int steps) {
    if (threadIdx.x == 0) {
        while (blockIdx.x > 0 && flags[blockIdx.x - 1] == 0)
            __nanosleep(100);
        for (int i = 0; i < steps; ++i)
            work[i % 16] += i;
        __threadfence();
        flags[blockIdx.x] = 1;
    }
}

// The same with arithmetic alone, or with questions between.
template <bool kAsks> __global__ void second_group_sums_kernel(const float* in, float* out) {
    __shared__ volatile float nothing[1];
    nothing[0] = 0;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = in[i];
    if (blockIdx.x / 8 == 1)
        for (int k = 0; k < 10000; ++k)
            sum = sum * 0.5f + (kAsks ? nothing[0] : 1.0f);
    out[i] = sum;
}
__global__ void second_group_kernel(const float* in, float* out, int n) {
    if (blockIdx.x / 8 != 1)
        return;
    for (int i = (blockIdx.x - 8) * blockDim.x + threadIdx.x; i < n; i += 8 * blockDim.x)
        out[i] = in[i];
}

__global__ void heap_kernel(float* out) {
    float* own = new float[64];
    for (int i = 0; i < 64; ++i)
        own[i] = out[i];
    out[threadIdx.x] = own[static_cast<int>(out[0]) & 63];
    delete[] own;
}

// More steps of a thread than are recorded, and one barrier.
__global__ void long_kernel(const float* in, float* out) {
    float sum = 0.0f;
    for (int i = 0; i < 200000; ++i)
        sum += in[i % 1024];
    __syncthreads();
    out[threadIdx.x] = sum;
}

__global__ void prefix_kernel(const float* in, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k <= i; ++k)
        sum += in[k];
    out[i] = sum;
}

// What it is given it reads where it is called: no compiler makes a call-out for that.
__attribute__((noinline)) __device__ float4 turned(float4 value) {
    return make_float4(value.w, value.z, value.y, value.x);
}
__global__ void by_value_kernel(const float4* in, float4* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = turned(in[i]);
}

// The warps of a block take turns, with a barrier behind each: a load that waits for another one's value.
__global__ void turns_kernel(const int* in, float* out) {
    int sum = 0;
    for (int turn = 0; turn < 4; ++turn) {
        if (threadIdx.x / 32 == turn)
            sum = in[in[turn * 32 + threadIdx.x % 32] & 1023];
        __syncthreads();
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = (float)sum;
}

// One thread of each second warp sleeps, for longer than a GPU lets it.
__global__ void sleeping_kernel(float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i % 64 == 40)
        for (int k = 0; k < 3; ++k)
            __nanosleep(500);
    if (i == 8)
        __nanosleep(2000000000);
    out[i] = 1.0f;
}

// Who works between two questions, or changes something, does not only wait.
__global__ void working_kernel(volatile int* flag, float* out, int* sum, int times, int steps) {
    float value = out[threadIdx.x];
    for (int i = 0; i < times && *flag == 0; ++i) {
#pragma unroll 1
        for (int k = 0; k < steps; ++k)
            value = value * 0.5f + 1.0f;
        __nanosleep(0);
    }
    for (int i = 0; i < times && *flag == 0; ++i) {
        atomicAdd(sum, 1);
        __nanosleep(0);
    }
    out[threadIdx.x] = value;
}

// Behind a question each place where a thread sleeps counts once.
__global__ void asking_kernel(volatile int* flag, float* out, int times) {
    if (*flag == 0)
        __nanosleep(300);
    if (*flag == 0)
        __nanosleep(500);
    for (int i = 0; i < times && *flag == 0; ++i)
        __nanosleep(200);
    out[threadIdx.x] = 1.0f;
}

// It asks and sleeps in each pass, but works, too: alone, in floating-point numbers or many integers, it waits for nobody.
template <class Number> __global__ void hiding_kernel(volatile int* flag, Number* out, int passes) {
    Number sum = out[threadIdx.x];
    for (int i = 0; i < passes && *flag == 0; ++i) {
#pragma unroll
        for (int k = 0; k < 64; ++k)
            sum = sum * Number(3) + Number(k);
        __nanosleep(0);
    }
    out[threadIdx.x] = sum;
}

// Blocks take units of work from a common counter: each unit loads and stores `each` floats.
__global__ void taking_kernel(int* counter, const float* in, float* out, int units, int each) {
    __shared__ int unit;
    while (true) {
        __syncthreads();
        if (threadIdx.x == 0)
            unit = atomicAdd(counter, 1);
        __syncthreads();
        if (unit >= units)
            break;
        for (int i = threadIdx.x; i < each; i += blockDim.x)
            out[(size_t)unit * each + i] = in[i];
    }
}

// Sums and masks of 64-bit integers that need each other; or products.
__global__ void long_integers_kernel(const long long* in, long long* out, int rounds) {
    long long a = in[threadIdx.x], b = in[threadIdx.x + 32];
    for (int i = 0; i < rounds; ++i) {
        a += b;
        b ^= a;
    }
    out[threadIdx.x] = a + b;
}
__global__ void long_products_kernel(const long long* in, long long* out, int rounds) {
    long long a = in[threadIdx.x], b = in[threadIdx.x + 32];
    for (int i = 0; i < rounds; ++i)
        a *= b;
    out[threadIdx.x] = a;
}

// What each thread copies for itself some steps ahead.
template <int Stages> __global__ void ring_kernel(const float4* in, float* out, int steps) {
    __shared__ float4 ring[Stages][64];
    float sum = 0.0f;
    auto copy = [&](int step) {
        if (step < steps)
            __pipeline_memcpy_async(&ring[step % Stages][threadIdx.x], &in[step * 64 + threadIdx.x], 16);
        __pipeline_commit();
    };
    for (int step = 0; step < Stages; ++step)
        copy(step);
    for (int step = 0; step < steps; ++step) {
        __pipeline_wait_prior(Stages - 1);
        sum += ring[step % Stages][threadIdx.x].x;
        copy(step + Stages);
    }
    out[threadIdx.x] = sum;
}

// What is loaded behind a branch goes to shared memory, a float a pass.
__global__ void filled_kernel(const float* in, float* out, int count, int n) {
    __shared__ float kept[1024];
    for (int i = threadIdx.x; i < count; i += 32)
        kept[i] = i < n ? in[i] : 0.0f;
    __syncthreads();
    out[threadIdx.x] = kept[5 * threadIdx.x % count];
}

// Each pass goes on from what the one before has loaded.
__global__ void search_kernel(const float* in, int* out, int n) {
    int low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (in[middle] < threadIdx.x + 1.0f)
            low = middle + 1;
        else
            high = middle;
    }
    out[threadIdx.x] = low;
}

// Goes on as long as what it loads says so.
__global__ void scan_kernel(const float* in, int* out) {
    int i = 0;
    while (in[threadIdx.x + 32 * i] < 1.0f)
        ++i;
    out[threadIdx.x] = i;
}

// How many passes there are, nvcc can tell if numbers do not wrap around.
template <class Number> __global__ void steps_kernel(const float* in, float* out, Number n, Number step) {
    float sum = 0;
    for (Number i = threadIdx.x; i < n; i += step)
        sum += in[i];
    out[threadIdx.x] = sum;
}

__global__ void left_alone_kernel(const float* in, float* out, int n) {
    float sum = 0;
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += 32)
        sum += in[i];
    out[threadIdx.x] = sum;
}

// 16 bytes at once, or piece by piece: two of them, which need each other not.
template <class Piece> struct alignas(16) Pieces {
    Piece at[16 / sizeof(Piece)];
};
template <class Piece> __device__ Pieces<Piece> pieces(const Piece* from, int n, bool aligned) {
    constexpr int kPieces = 16 / sizeof(Piece);
    if (aligned && n >= kPieces)
        return *(const Pieces<Piece>*)from;
    Pieces<Piece> found;
#pragma unroll
    for (int k = 0; k < kPieces; ++k)
        found.at[k] = k < n ? from[k] : Piece(0);
    return found;
}
template <class Piece>
__global__ void pieces_kernel(const Piece* in, Pieces<Piece>* out, int n, bool aligned) {
    constexpr int kPieces = 16 / sizeof(Piece);
    int i = threadIdx.x;
    Pieces<Piece> first = pieces(in + i * kPieces, n, aligned);
    Pieces<Piece> second = pieces(in + (i + 32) * kPieces, n, aligned);
    out[i] = first;
    out[i + 32] = second;
}

// A load behind a branch is asked for before that is decided, but not over a store.
template <bool Stores> __global__ void behind_store_kernel(const float* in, float* out, int n) {
    float sum = in[threadIdx.x];
    if (Stores)
        out[threadIdx.x] = 1.0f;
    if (n > 3)
        sum += in[threadIdx.x + 32];
    out[threadIdx.x + 32] = sum;
}

template <class Call> void recorded(const Call& call) {
    cudamaster_cpu_record(1);
    call();
    cudamaster_cpu_record(0);
}

int main(int argc, char**) {
    const int n = 1 << 22;
    float *in, *out;
    int* counters;
    if (cudaMalloc(&in, n * 4) || cudaMalloc(&out, n * 4) || cudaMalloc(&counters, n * 4))
        return 1;
    cudaMemset(in, 0, n * 4);
    cudaMemset(counters, 0, n * 4);
    if (argc > 1) { // the call of a test of its own, which ends the process
        recorded([&] { heap_kernel<<<1, 32>>>(out); });
        return 0;
    }
    recorded([&] { copy_kernel<<<8, 128>>>(in, out, 1024, 1); });
    recorded([&] { copy_kernel<<<8, 128>>>(in, out, 2048, 2); });
    recorded([&] { copy_kernel<<<8, 128>>>(in, out, 32768, 32); });
    recorded([&] { copy_kernel<<<8, 128>>>(in + 1, out, 1024, 1); });
    recorded([&] { copy_kernel<<<8, 128>>>(in, out, 900, 1); });
    recorded([&] { broadcast_kernel<<<8, 128>>>(in, out); });
    recorded([&] { vector_kernel<<<8, 128>>>((float4*)in, (float4*)out); });
    recorded([&] { shared_kernel<1><<<1, 32>>>(out); });
    recorded([&] { shared_kernel<2><<<1, 32>>>(out); });
    recorded([&] { shared_kernel<32><<<1, 32>>>(out); });
    recorded([&] { transposed_kernel<<<1, 256, 32 * 32 * 4>>>(out, 32); });
    recorded([&] { transposed_kernel<<<1, 256, 32 * 33 * 4>>>(out, 33); });
    recorded([&] { count_kernel<<<64, 128>>>(counters, 0); });
    recorded([&] { count_kernel<<<64, 128>>>(counters, 1); });
    recorded([&] { half_kernel<<<1, 64>>>(out); });
    recorded([&] { paths_kernel<<<1, 64>>>(in, out); });
    recorded([&] { rows_kernel<<<1, 32>>>(in, out); });
    recorded([&] { barrier_kernel<<<4, 64>>>(out, 10); });
    recorded([&] { left_kernel<<<4, 64>>>(out); });
    recorded([&] { shuffle_kernel<<<1, 64>>>(out); });
    recorded([&] { product_kernel<<<dim3(8, 8), dim3(16, 16)>>>(in, in + 16384, out, 128); });
    recorded([&] { tensor_kernel<<<1, 32>>>((__nv_bfloat16*)in, out, 1); });
    recorded([&] { tensor_kernel<<<1, 32>>>((__nv_bfloat16*)in, out, 101); });
    recorded([&] { narrow_kernel<<<4, 128>>>((__nv_bfloat16*)in, (__nv_bfloat16*)out); });
    recorded([&] { special_kernel<<<4, 128>>>(in, out); });
    recorded([&] { scratch_kernel<<<1, 1024>>>(); });
    recorded([&] { library_kernel<<<1, 32>>>(in, out, 64); });
    recorded([&] { copy_kernel<<<n / 256, 256>>>(in, out, n, 1); });
    recorded([&] { prefix_kernel<<<1024, 128>>>(in, out); });
    recorded([&] { long_kernel<<<1, 64>>>(in, out); });
    recorded([&] {
        void* arguments[] = {&out};
        cudaLaunchCooperativeKernel(grid_kernel, dim3(6), dim3(64), arguments);
    });
    recorded([&] {
        float* more = nullptr;
        cudaMalloc(&more, 4096);
        cudaMemset(more, 0, 4096);
        for (int i = 0; i < 5; ++i)
            copy_kernel<<<8, 128>>>(more, out, 1024, 1);
        copy_kernel<<<4, 128>>>(more, out, 512, 1);
        cudaMemcpy(out, more, 2048, cudaMemcpyDeviceToDevice);
        cudaDeviceSynchronize();
        cudaFree(more);
    });
    recorded([&] {
        static float sums[2048];
        cudaMemcpy(sums, in, sizeof sums, cudaMemcpyDeviceToHost);
        for (int pass = 0; pass < 10; ++pass)
            for (int i = 1; i < 2048; ++i)
                sums[i] += sums[i - 1];
        cudaMemcpy(out, sums, sizeof sums, cudaMemcpyDefault);
        cudaMemcpy(out, in, sizeof sums, cudaMemcpyDefault);
    });
    recorded([&] {
        cudaMemset2D(out, 4096, 0, 1024, 64);
        cudaMemcpy2D(out, 4096, in, 2048, 1024, 64, cudaMemcpyDeviceToDevice);
    });
    recorded([&] { second_group_kernel<<<256, 256>>>(in, out, 1 << 16); });
    recorded([&] { second_group_sums_kernel<false><<<256, 64>>>(in, out); });
    recorded([&] { second_group_sums_kernel<true><<<256, 64>>>(in, out); });
    cudaMemset(counters, 0, n * 4);
    recorded([&] { waiting_kernel<<<300, 32>>>(counters, (int*)out, 10); });
    recorded([&] {
        int first = 8, steps = 40000;
        void* arguments[] = {&out, &first, &steps};
        cudaLaunchCooperativeKernel((void*)long_grid_kernel, dim3(264), dim3(1024), arguments);
    });
    cudaMemset(counters, 0, n * 4);
    recorded([&] { first_waited_for_kernel<<<1 << 14, 32>>>(counters, (int*)out, 100000); });
    recorded([&] {
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = 4, config.blockDim = 64;
        config.attrs = &attribute, config.numAttrs = 1;
        cudaLaunchKernelEx(&config, fenced_kernel, (volatile float*)out);
    });
    recorded([&] { by_value_kernel<<<8, 128>>>((float4*)in, (float4*)out); });
    recorded([&] { sleeping_kernel<<<2, 128>>>(out); });
    recorded([&] { turns_kernel<<<2, 128>>>((int*)in, out); });
    cudaMemset(counters, 0, 4);
    recorded([&] { asking_kernel<<<1, 32>>>(counters, out, 50); });
    recorded([&] { working_kernel<<<1, 32>>>(counters, out, counters + 1, 200, 100); });
    recorded([&] { hiding_kernel<<<1, 32>>>(counters, out, 100); });
    recorded([&] { hiding_kernel<<<1, 32>>>(counters, (int*)out, 100); });
    recorded([&] { behind_store_kernel<false><<<1, 32>>>(in, out, 4); });
    recorded([&] { behind_store_kernel<true><<<1, 32>>>(in, out, 4); });
    recorded([&] { tickets_kernel<<<1, 32>>>(in, out, counters); });
    cudaMemset(counters, 0, 4);
    recorded([&] { adding_kernel<<<1, 32>>>(out, counters, 200); });
    recorded([&] { counter_kernel<0><<<1, 32>>>(counters); });
    recorded([&] { counter_kernel<1><<<1, 32>>>(counters); });
    recorded([&] { counter_kernel<2><<<1, 32>>>(counters); });
    recorded([&] { known_sizes_kernel<<<1, 32>>>(in, out); });
    cudaMemset(in, 0, 4096);
    cudaMemset(out, 0, 4096);
    cudaMemset(out + 4, 1, 4);
    for (int kind = 0; kind < 4; ++kind)
        recorded([&] { spinning_kernel<<<2, 64>>>(out, 1000000, kind); });
    cudaMemset(counters, 0, n * 4);
    recorded([&] { long_integers_kernel<<<1, 32>>>((long long*)in, (long long*)out, 1000); });
    recorded([&] { long_products_kernel<<<1, 32>>>((long long*)in, (long long*)out, 1000); });
    recorded([&] { ring_kernel<1><<<4, 64>>>((float4*)in, out, 12); });
    recorded([&] { ring_kernel<3><<<4, 64>>>((float4*)in, out, 12); });
    recorded([&] { filled_kernel<<<1, 32>>>(in, out, 512, 1000); });
    recorded([&] { search_kernel<<<1, 32>>>(in, (int*)out, 1023); });
    float ones[32];
    for (float& one : ones)
        one = 1.0f;
    cudaMemcpy(in + 12 * 32, ones, sizeof ones, cudaMemcpyHostToDevice);
    recorded([&] { scan_kernel<<<1, 32>>>(in, (int*)out); });
    recorded([&] { steps_kernel<int><<<1, 32>>>(in, out, 12 * 32, 32); });
    recorded([&] { steps_kernel<unsigned><<<1, 32>>>(in, out, 12 * 32, 32); });
    recorded([&] { left_alone_kernel<<<1, 32>>>(in, out, 12 * 32); });
    cudaMemset(in, 0, n * 4);
    recorded([&] { pieces_kernel<<<1, 32>>>((short*)in, (Pieces<short>*)out, 100, true); });
    recorded([&] { pieces_kernel<<<1, 32>>>((int*)in, (Pieces<int>*)out, 100, true); });
    cudaMemset(counters, 0, n * 4);
    recorded([&] { sectors_kernel<<<4, 64>>>(counters, out); });
    recorded([&] { taking_kernel<<<264, 64>>>(counters, in, out, 528, 1024); });
    cudaMemset(counters, 0, n * 4);
    recorded([&] { waiting_kernel<<<1 << 20, 32>>>(counters, (int*)out, 200000); });
    return 0;
}
