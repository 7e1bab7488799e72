// idea: Large matrices pass through shared memory as a stream of bulk copies
// why: With loads and stores every byte goes through registers, and what is in flight is as much as the threads
//      of a multiprocessor can ask for. The copy engine of Hopper takes 16 KB by one instruction of one thread:
//      here that thread keeps a ring of stages, has one filled from A, sends it to B when its barrier says that it is
//      there, and has it filled again when it has been read. No data meet a thread. Small matrices, and GPUs before
//      Hopper, keep the step before.
// flags: -O3
#include <cuda_bf16.h>
#include <cuda_runtime.h>

constexpr int kThreads = 256;
constexpr int kWidth = 8;                  // elements in 16 bytes
constexpr size_t kLarge = (size_t)1 << 22; // elements from which on a thread takes four vectors

template <int kVectors>
__global__ void matrix_copy_bf16_kernel_optimized(const __nv_bfloat16* A, __nv_bfloat16* B, size_t elements) {
    bool aligned = (((size_t)A | (size_t)B) & 15) == 0;
    size_t vectors = aligned ? elements / kWidth : 0;
    size_t first = blockIdx.x * (size_t)(kThreads * kVectors) + threadIdx.x;
    uint4 loaded[kVectors];
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
        size_t i = first + k * kThreads;
        if (i < vectors)
            loaded[k] = ((const uint4*)A)[i];
    }
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
        size_t i = first + k * kThreads;
        if (i < vectors)
            ((uint4*)B)[i] = loaded[k];
    }
    // What the vectors leave: at most seven elements, or all of them where they are not aligned.
    size_t thread = blockIdx.x * (size_t)kThreads + threadIdx.x;
    size_t threads = gridDim.x * (size_t)kThreads;
    for (size_t i = vectors * kWidth + thread; i < elements; i += threads)
        B[i] = A[i];
}

// ---- Hopper ----

constexpr int kStageBytes = 16384, kStages = 6, kBlocksEach = 2; // blocks of a multiprocessor

#if __CUDA_ARCH__ >= 900
static __device__ unsigned shared_address(const void* place) {
    return (unsigned)__cvta_generic_to_shared(place);
}

static __device__ void fill(unsigned to, const unsigned char* from, unsigned bytes, unsigned barrier) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

static __device__ void send(unsigned char* to, unsigned from, unsigned bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until all but the last kLeft stages that were sent have been read.
template <int kLeft> static __device__ void wait_sent() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kLeft) : "memory");
}

static __device__ void wait_for(unsigned barrier, unsigned parity) {
    asm volatile("{.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}
#endif

// Both matrices begin at multiples of 16 bytes. Each block is one warp.
__global__ void matrix_copy_bf16_stream_kernel_optimized(const unsigned char* A, unsigned char* B,
                                                         size_t bytes) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) unsigned char stages[];
    __shared__ __align__(8) unsigned long long filled[kStages];
    // What is no multiple of 16 bytes: fifteen of them at most.
    if (blockIdx.x == 0 && threadIdx.x < bytes % 16)
        B[bytes / 16 * 16 + threadIdx.x] = A[bytes / 16 * 16 + threadIdx.x];
    if (threadIdx.x != 0)
        return;
    for (int stage = 0; stage < kStages; ++stage)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&filled[stage]))
                     : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");

    bytes = bytes / 16 * 16;
    size_t jump = (size_t)gridDim.x * kStageBytes, first = (size_t)blockIdx.x * kStageBytes;
    auto length = [&](size_t at) { return (unsigned)(bytes - at < kStageBytes ? bytes - at : kStageBytes); };
    auto refill = [&](int stage, size_t at) {
        if (at < bytes)
            fill(shared_address(stages) + stage * kStageBytes, A + at, length(at),
                 shared_address(&filled[stage]));
    };
    for (int stage = 0; stage < kStages; ++stage)
        refill(stage, first + stage * jump);
    int stage = 0;
    unsigned parity = 0;
    for (size_t at = first; at < bytes; at += jump) {
        wait_for(shared_address(&filled[stage]), parity);
        send(B + at, shared_address(stages) + stage * kStageBytes, length(at));
        // The stage sent before this one has been read meanwhile.
        wait_sent<1>();
        if (at != first)
            refill(stage == 0 ? kStages - 1 : stage - 1, at + (kStages - 1) * jump);
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    }
    wait_sent<0>();
#endif
}

// False where there is no copy engine, or nothing to gain by it.
static bool stream(const __nv_bfloat16* A, __nv_bfloat16* B, size_t elements) {
    if (elements < kLarge || (((size_t)A | (size_t)B) & 15) != 0)
        return false;
    int device = 0, major = 0, processors = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (major < 9)
        return false;
    constexpr int kMemory = kStages * kStageBytes;
    cudaFuncSetAttribute(matrix_copy_bf16_stream_kernel_optimized,
                         cudaFuncAttributeMaxDynamicSharedMemorySize, kMemory);
    matrix_copy_bf16_stream_kernel_optimized<<<processors * kBlocksEach, 32, kMemory>>>(
        (const unsigned char*)A, (unsigned char*)B, elements * sizeof(__nv_bfloat16));
    return true;
}

extern "C" void matrix_copy_bf16_optimized(const __nv_bfloat16* A, __nv_bfloat16* B, int M, int N) {
    size_t elements = (size_t)M * N;
    if (stream(A, B, elements))
        return;
    int vectors_per_thread = elements >= kLarge ? 4 : 1;
    size_t blocks = (elements - 1) / ((size_t)kThreads * kWidth * vectors_per_thread) + 1;
    if (vectors_per_thread == 4)
        matrix_copy_bf16_kernel_optimized<4><<<blocks, kThreads>>>(A, B, elements);
    else
        matrix_copy_bf16_kernel_optimized<1><<<blocks, kThreads>>>(A, B, elements);
}
