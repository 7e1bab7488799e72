// Times and checks half-precision matrix products beside each other: our kernels and the libraries.
//
// A shared library that cudamaster/hgemm/bench.py loads. One shape at a time; every contestant reads the same A and B (B
// in the layout that it takes) and writes the same C. A function that fails returns a negative number, and hgemm_error()
// says why. See cudamaster/hgemm/bench.py for what the modes mean.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

[[noreturn]] void fail(const std::string& why) {
    throw std::runtime_error(why);
}

void must(cudaError_t status, const char* call) {
    if (status != cudaSuccess)
        fail(std::string(call) + ": " + cudaGetErrorString(status));
}

void must(cublasStatus_t status, const char* call) {
    if (status != CUBLAS_STATUS_SUCCESS)
        fail(std::string(call) + ": " + cublasGetStatusString(status));
}

#define MUST(call) must(call, #call)

// Device memory that grows and is kept.
class Memory {
  public:
    void hold(size_t bytes) {
        if (bytes <= bytes_)
            return;
        MUST(cudaFree(memory_));
        memory_ = nullptr, bytes_ = 0;
        MUST(cudaMalloc(&memory_, bytes));
        bytes_ = bytes;
    }
    template <class T> T* as() const { return static_cast<T*>(memory_); }

  private:
    void* memory_ = nullptr;
    size_t bytes_ = 0;
};

__device__ unsigned int bits_of(unsigned long long index, unsigned int seed) {
    unsigned long long x = index * 0x9e3779b97f4a7c15ull + seed * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return static_cast<unsigned int>((x ^ x >> 31) >> 32);
}

// Uniform from -1 to 1 where `ones` is negative, else ones with that probability and zeros.
__global__ void fill(__half* to, size_t count, unsigned int seed, float ones) {
    for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
         i += gridDim.x * static_cast<size_t>(blockDim.x)) {
        float unit = static_cast<float>(bits_of(i, seed) >> 8) * 0x1p-24f;
        to[i] = __float2half(ones < 0 ? 2 * unit - 1 : unit < ones ? 1.0f : 0.0f);
    }
}

// Columns of B one behind the other.
__global__ void transpose(const __half* B, __half* columns, int K, int N) {
    __shared__ __half tile[32][33];
    int blocks = (N - 1) / 32 + 1, k = blockIdx.x / blocks * 32, n = blockIdx.x % blocks * 32;
    for (int i = threadIdx.y; i < 32; i += 8)
        if (k + i < K && n + threadIdx.x < N)
            tile[i][threadIdx.x] = B[static_cast<size_t>(k + i) * N + n + threadIdx.x];
    __syncthreads();
    for (int i = threadIdx.y; i < 32; i += 8)
        if (n + i < N && k + threadIdx.x < K)
            columns[static_cast<size_t>(n + i) * K + k + threadIdx.x] = tile[threadIdx.x][i];
}

// Sums and sums of absolute terms of some elements in double, a warp for each.
__global__ void reference(const __half* A, const __half* columns, const unsigned long long* wanted, int count,
                          int N, int K, double* sums, double* scales) {
    int j = blockIdx.x * 8 + threadIdx.x / 32;
    if (j >= count)
        return;
    const __half* a = A + wanted[j] / N * K;
    const __half* b = columns + wanted[j] % N * K;
    double sum = 0, scale = 0;
    for (int k = threadIdx.x % 32; k < K; k += 32) {
        double term = static_cast<double>(__half2float(a[k])) * __half2float(b[k]);
        sum += term, scale += fabs(term);
    }
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
        scale += __shfl_xor_sync(0xffffffffu, scale, step);
    }
    if (threadIdx.x % 32 == 0)
        sums[j] = sum, scales[j] = scale;
}

__global__ void pick(const __half* C, const unsigned long long* wanted, int count, float* values) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j < count)
        values[j] = __half2float(C[wanted[j]]);
}

// The largest distance from sums in fp32, as bits of a float, which sort as the numbers do; and the smallest and the
// largest of what the libraries made of an element.
__global__ void distances(const __half* C, const float* sums, size_t count, unsigned int* largest,
                          __half* low, __half* high, bool library) {
    unsigned int most = 0;
    for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
         i += gridDim.x * static_cast<size_t>(blockDim.x)) {
        float value = __half2float(C[i]), off = fabsf(value - sums[i]);
        most = max(most, __float_as_uint(isnan(off) ? INFINITY : off));
        if (library) {
            low[i] = __float2half(fminf(__half2float(low[i]), value));
            high[i] = __float2half(fmaxf(__half2float(high[i]), value));
        }
    }
    atomicMax(largest, most);
}

__global__ void nothing_yet(__half* low, __half* high, size_t count) {
    for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
         i += gridDim.x * static_cast<size_t>(blockDim.x)) {
        low[i] = __float2half(INFINITY);
        high[i] = __float2half(-INFINITY);
    }
}

__global__ void widest(const __half* low, const __half* high, size_t count, unsigned int* largest) {
    unsigned int most = 0;
    for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
         i += gridDim.x * static_cast<size_t>(blockDim.x))
        if (__half2float(high[i]) >= __half2float(low[i]))
            most = max(most, __float_as_uint(__half2float(high[i]) - __half2float(low[i])));
    atomicMax(largest, most);
}

// Elements that differ from whole numbers: of those below 2048, and of the others, which are to be rounded once.
__global__ void differences(const __half* C, const float* exact, size_t count, unsigned long long* found) {
    for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
         i += gridDim.x * static_cast<size_t>(blockDim.x)) {
        bool large = exact[i] >= 2048.0f;
        if (__half2float(C[i]) != (large ? __half2float(__float2half(exact[i])) : exact[i]))
            atomicAdd(&found[large], 1ull);
        if (large)
            atomicAdd(&found[2], 1ull);
    }
}

using Call = std::function<bool()>; // false where it refuses

struct Contestant {
    std::string name;
    Call call;
    std::shared_ptr<void> keeps;      // what the call needs
    int algorithms = 0;               // that were measured to choose one
    std::function<void(int)> overlap; // lets a launch begin before the one before it has ended, or not
    int per_block = 1;                // calls between two events
    bool leads = true;                // after one that is not timed
};

struct State {
    int M = 0, N = 0, K = 0;
    bool fp32 = true;
    Memory A, B, columns, C, exact, low, high, workspace, some, found;
    std::vector<Contestant> contestants;
    cublasHandle_t cublas = nullptr;
    cublasLtHandle_t lt = nullptr;
    std::mt19937_64 random{1};
    std::vector<unsigned long long> wanted;
};
State state;
std::string error;
constexpr size_t kWorkspaceBytes = size_t{32} << 20; // as cuBLAS takes by default on sm_90
constexpr int kWanted = 1 << 15; // elements that are compared with the reference in double
constexpr unsigned long long kSlowestLaunch = 15000; // nanoseconds that the host takes for a call, at most
constexpr double kLeading = 1000; // microseconds: shorter calls follow one that is not timed
constexpr double kBlock = 100;    // microseconds between two events, at least, where calls are short
constexpr int kMostCalls = 20;
constexpr int kChecked = 5; // calls back to back before results are looked at: launches may overlap

template <class Work> int guarded(Work work) {
    try {
        return work();
    } catch (const std::exception& caught) {
        error = caught.what();
        return -1;
    }
}

size_t count(int rows, int cols) {
    return static_cast<size_t>(rows) * cols;
}

const __half* factor(bool tn) {
    return tn ? state.columns.as<__half>() : state.B.as<__half>();
}

struct Events {
    Events() { MUST(cudaEventCreate(&begin)), MUST(cudaEventCreate(&end)); }
    ~Events() { cudaEventDestroy(begin), cudaEventDestroy(end); }
    Events(const Events&) = delete;
    Events& operator=(const Events&) = delete;
    double microseconds() const {
        float milliseconds = 0;
        MUST(cudaEventElapsedTime(&milliseconds, begin, end));
        return milliseconds * 1e3;
    }
    cudaEvent_t begin = nullptr, end = nullptr;
};

// Keeps the GPU busy.
__global__ void spin(unsigned long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - begin < nanoseconds);
}

// Microseconds a call, of `calls` back to back. `lead`: after one that is not timed. `ahead`: the GPU is kept busy while
// the host launches them, so that it never waits for the host.
double block_of(const Call& call, int calls, const Events& events, bool lead, bool ahead = false) {
    if (ahead)
        spin<<<1, 1>>>(30000 + calls * kSlowestLaunch);
    if (lead && !call())
        return -1;
    MUST(cudaEventRecord(events.begin));
    for (int i = 0; i < calls; ++i)
        if (!call())
            return -1;
    MUST(cudaEventRecord(events.end));
    MUST(cudaEventSynchronize(events.end));
    return events.microseconds() / calls;
}

// ---- cuBLASLt ----

struct Product {
    cublasLtMatmulDesc_t what = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm;
    bool tn;

    // Layouts are by columns, so a row-major matrix is its transpose there: C^T (N x M) = B^T (N x K) A^T (K x M).
    explicit Product(bool tn) : tn(tn) {
        MUST(cublasLtMatmulDescCreate(&what, state.fp32 ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_16F,
                                      state.fp32 ? CUDA_R_32F : CUDA_R_16F));
        cublasOperation_t turned = CUBLAS_OP_T;
        if (tn)
            MUST(cublasLtMatmulDescSetAttribute(what, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned));
        MUST(cublasLtMatrixLayoutCreate(&b, CUDA_R_16F, tn ? state.K : state.N, tn ? state.N : state.K,
                                        tn ? state.K : state.N));
        MUST(cublasLtMatrixLayoutCreate(&a, CUDA_R_16F, state.K, state.M, state.K));
        MUST(cublasLtMatrixLayoutCreate(&c, CUDA_R_16F, state.N, state.M, state.N));
    }
    ~Product() {
        cublasLtMatmulDescDestroy(what);
        for (cublasLtMatrixLayout_t each : {a, b, c})
            cublasLtMatrixLayoutDestroy(each);
    }
    Product(const Product&) = delete;
    Product& operator=(const Product&) = delete;

    std::vector<cublasLtMatmulAlgo_t> listed(int most) const {
        cublasLtMatmulPreference_t wanted;
        MUST(cublasLtMatmulPreferenceCreate(&wanted));
        MUST(cublasLtMatmulPreferenceSetAttribute(wanted, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &kWorkspaceBytes, sizeof kWorkspaceBytes));
        std::vector<cublasLtMatmulHeuristicResult_t> results(most);
        int found = 0;
        cublasStatus_t status =
            cublasLtMatmulAlgoGetHeuristic(state.lt, what, b, a, c, c, wanted, most, results.data(), &found);
        cublasLtMatmulPreferenceDestroy(wanted);
        MUST(status);
        std::vector<cublasLtMatmulAlgo_t> algorithms;
        for (int i = 0; i < found; ++i)
            if (results[i].state == CUBLAS_STATUS_SUCCESS)
                algorithms.push_back(results[i].algo);
        if (algorithms.empty())
            fail("cublasLtMatmulAlgoGetHeuristic knows no algorithm");
        return algorithms;
    }

    bool operator()(const cublasLtMatmulAlgo_t& by) const {
        const float one = 1, zero = 0;
        const __half half_one = __float2half(1.0f), half_zero = __float2half(0.0f);
        const void* alpha = state.fp32 ? static_cast<const void*>(&one) : &half_one;
        const void* beta = state.fp32 ? static_cast<const void*>(&zero) : &half_zero;
        __half* C = state.C.as<__half>();
        return cublasLtMatmul(state.lt, what, alpha, factor(tn), b, state.A.as<__half>(), a, beta, C, c, C, c,
                              &by, state.workspace.as<void>(), kWorkspaceBytes,
                              nullptr) == CUBLAS_STATUS_SUCCESS;
    }
};

// The indexes of the `keep` fastest on the device by the median of `rounds` blocks each, in an order drawn anew for each
// round. Those that refuse are out, and so are those that take more than `hopeless` times the best of the first round,
// twice.
std::vector<size_t> fastest(const std::vector<Call>& calls, int rounds, size_t keep, double hopeless) {
    Events events;
    std::vector<std::vector<double>> times(calls.size());
    std::vector<size_t> order(calls.size());
    for (size_t i = 0; i < order.size(); ++i)
        order[i] = i;
    double best = INFINITY;
    for (int round = 0; round < rounds; ++round) {
        std::shuffle(order.begin(), order.end(), state.random);
        for (size_t i : order) {
            double first = times[i].empty() ? 0 : times[i].front();
            if (first < 0 || (round > 0 && first > hopeless * best))
                continue;
            if (round == 0) { // the first call of all loads the kernel
                double once = block_of(calls[i], 1, events, true, true);
                if (once < 0) {
                    cudaGetLastError();
                    times[i].push_back(-1);
                    continue;
                }
                once = std::min(once, block_of(calls[i], 1, events, true, true));
                best = std::min(best, once);
                times[i].push_back(once);
                if (once > hopeless * best)
                    continue;
                first = once;
            }
            int many = std::clamp(static_cast<int>(kBlock / first), 1, kMostCalls);
            double time = block_of(calls[i], many, events, first < kLeading, true);
            round == 0 ? void(times[i][0] = time) : times[i].push_back(time);
            best = std::min(best, time);
        }
    }
    std::vector<std::pair<double, size_t>> ranked;
    for (size_t i = 0; i < calls.size(); ++i)
        if (!times[i].empty() && times[i][0] >= 0) {
            std::sort(times[i].begin(), times[i].end());
            ranked.emplace_back(times[i][times[i].size() / 2], i);
        }
    std::sort(ranked.begin(), ranked.end());
    std::vector<size_t> kept;
    for (size_t i = 0; i < std::min(keep, ranked.size()); ++i)
        kept.push_back(ranked[i].second);
    if (kept.empty())
        fail("none of them can be called");
    return kept;
}

Contestant cublaslt(bool tn, int most) {
    auto product = std::make_shared<Product>(tn);
    auto algorithms = product->listed(std::max(most, 1));
    Contestant made;
    made.keeps = product;
    product->algorithm = algorithms.front();
    if (most > 1) {
        auto calls = [&](const std::vector<size_t>& which) {
            std::vector<Call> made;
            for (size_t i : which)
                made.push_back([&product, &algorithms, i] { return (*product)(algorithms[i]); });
            return made;
        };
        std::vector<size_t> all(algorithms.size());
        for (size_t i = 0; i < all.size(); ++i)
            all[i] = i;
        std::vector<size_t> best = fastest(calls(all), 3, 8, 1.5);
        std::vector<size_t> last = fastest(calls(best), 15, 1, 1.5);
        product->algorithm = algorithms[best[last.front()]];
        made.algorithms = static_cast<int>(algorithms.size());
    }
    made.call = [product] { return (*product)(product->algorithm); };
    return made;
}

// ---- the others ----

bool cublas(bool tn, void* to, cudaDataType type) {
    const float one = 1, zero = 0;
    const __half half_one = __float2half(1.0f), half_zero = __float2half(0.0f);
    bool fp32 = state.fp32 || type == CUDA_R_32F;
    const void* alpha = fp32 ? static_cast<const void*>(&one) : &half_one;
    const void* beta = fp32 ? static_cast<const void*>(&zero) : &half_zero;
    return cublasGemmEx(state.cublas, tn ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, state.N, state.M, state.K,
                        alpha, factor(tn), CUDA_R_16F, tn ? state.K : state.N, state.A.as<void>(), CUDA_R_16F,
                        state.K, beta, to, type, state.N, fp32 ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_16F,
                        CUBLAS_GEMM_DEFAULT_TENSOR_OP) == CUBLAS_STATUS_SUCCESS;
}

template <class Function> Function found_in(void* library, const char* name) {
    void* symbol = dlsym(library, name);
    if (symbol == nullptr)
        fail(dlerror());
    return reinterpret_cast<Function>(symbol);
}

Contestant kernel(const char* path, bool tn, int band) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
        fail(dlerror());
    auto run = found_in<int (*)(const __half*, const __half*, __half*, int, int, int, int)>(
        library, "hgemm_with_band");
    Contestant made;
    if (void* overlap = dlsym(library, "hgemm_overlap"))
        made.overlap = reinterpret_cast<void (*)(int)>(overlap);
    made.call = [run, tn, band] {
        return run(state.A.as<__half>(), factor(tn), state.C.as<__half>(), state.M, state.N, state.K, band) ==
               0;
    };
    return made;
}

Contestant torch(const char* path, bool tn) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
        fail(dlerror());
    auto make =
        found_in<void* (*)(const void*, const void*, void*, int, int, int, int)>(library, "hgemm_torch_make");
    auto run = found_in<int (*)(void*, int)>(library, "hgemm_torch_run");
    auto drop = found_in<void (*)(void*)>(library, "hgemm_torch_drop");
    Contestant made;
    void* product = make(state.A.as<void>(), factor(tn), state.C.as<void>(), state.M, state.N, state.K, tn);
    made.keeps = std::shared_ptr<void>(product, drop);
    made.call = [run, product] { return run(product, !state.fp32) == 0; };
    return made;
}

int add(Contestant made, const char* name) {
    made.name = name;
    if (!made.call())
        fail(made.name + " refuses this product");
    MUST(cudaDeviceSynchronize());
    Events events;
    double once = INFINITY;
    for (int i = 0; i < 3; ++i)
        once = std::min(once, block_of(made.call, 3, events, true));
    made.per_block = std::clamp(static_cast<int>(kBlock / once), 1, kMostCalls);
    made.leads = once < kLeading;
    state.contestants.push_back(std::move(made));
    return static_cast<int>(state.contestants.size()) - 1;
}

void fill_inputs(float ones, unsigned int seed) {
    int M = state.M, N = state.N, K = state.K;
    fill<<<1024, 256>>>(state.A.as<__half>(), count(M, K), seed * 2, ones);
    fill<<<1024, 256>>>(state.B.as<__half>(), count(K, N), seed * 2 + 1, ones);
    unsigned int blocks = ((K - 1) / 32 + 1) * ((N - 1) / 32 + 1);
    transpose<<<blocks, dim3(32, 8)>>>(state.B.as<__half>(), state.columns.as<__half>(), K, N);
    MUST(cudaDeviceSynchronize());
}

} // namespace

extern "C" {

const char* hgemm_error() {
    return error.c_str();
}

// GPU, driver, CUDA runtime and cuBLAS versions, one a line.
int hgemm_versions(char* text, int size) {
    return guarded([&] {
        cudaDeviceProp properties;
        int driver = 0, runtime = 0;
        MUST(cudaGetDeviceProperties(&properties, 0));
        MUST(cudaDriverGetVersion(&driver));
        MUST(cudaRuntimeGetVersion(&runtime));
        std::snprintf(text, size, "%s\n%d\n%d\n%zu\n%d", properties.name, driver, runtime,
                      cublasLtGetVersion(), properties.multiProcessorCount);
        return 0;
    });
}

// A new product, with inputs from -1 to 1. The contestants of the last one are gone.
int hgemm_shape(int M, int N, int K, int fp32, unsigned int seed) {
    return guarded([&] {
        if (state.cublas == nullptr) {
            state.workspace.hold(kWorkspaceBytes);
            MUST(cublasCreate(&state.cublas));
            MUST(cublasSetWorkspace(state.cublas, state.workspace.as<void>(), kWorkspaceBytes));
            MUST(cublasLtCreate(&state.lt));
        }
        state.contestants.clear();
        state.M = M, state.N = N, state.K = K, state.fp32 = fp32;
        state.random.seed(seed);
        state.A.hold(count(M, K) * 2), state.B.hold(count(K, N) * 2), state.columns.hold(count(K, N) * 2);
        state.C.hold(count(M, N) * 2);
        fill_inputs(-1, seed);
        state.exact.hold(count(M, N) * 4), state.low.hold(count(M, N) * 2), state.high.hold(count(M, N) * 2);
        state.found.hold(3 * 8);
        nothing_yet<<<1024, 256>>>(state.low.as<__half>(), state.high.as<__half>(), count(M, N));
        state.wanted.clear();
        size_t all = count(M, N);
        for (int i = 0; i < kWanted; ++i)
            state.wanted.push_back(all <= kWanted ? i % all : state.random() % all);
        return 0;
    });
}

// Zeros and ones in place of the inputs, ones with this probability; from -1 to 1 where it is negative.
int hgemm_fill(double ones, unsigned int seed) {
    return guarded([&] {
        fill_inputs(static_cast<float>(ones), seed);
        return 0;
    });
}

int hgemm_add_kernel(const char* name, const char* path, int tn, int band) {
    return guarded([&] { return add(kernel(path, tn, band), name); });
}

int hgemm_add_cublas(const char* name, int tn) {
    return guarded([&] {
        Contestant made;
        made.call = [tn] { return cublas(tn, state.C.as<void>(), CUDA_R_16F); };
        return add(std::move(made), name);
    });
}

// `most` algorithms of the heuristic's list are measured; with 1 its first is taken.
int hgemm_add_cublaslt(const char* name, int tn, int most, int* algorithms) {
    return guarded([&] {
        int index = add(cublaslt(tn, most), name);
        *algorithms = state.contestants[index].algorithms;
        return index;
    });
}

int hgemm_add_torch(const char* name, const char* path, int tn) {
    return guarded([&] { return add(torch(path, tn), name); });
}

// Errors of a contestant's results: the largest distance of all elements from cuBLAS' sums in fp32 (`furthest`), and of
// some from sums in double, on the scale of the sum of absolute terms (`scaled`). A library's results are kept to be
// compared with the others'.
int hgemm_check(int index, int library, double* furthest, double* scaled) {
    return guarded([&] {
        __half* C = state.C.as<__half>();
        MUST(cudaMemset(C, 0xff, count(state.M, state.N) * 2)); // NaN where nothing is written
        for (int i = 0; i < kChecked; ++i)
            if (!state.contestants.at(index).call())
                fail("refused");
        MUST(cudaDeviceSynchronize());
        size_t all = count(state.M, state.N);
        auto* largest = state.found.as<unsigned int>();
        MUST(cudaMemset(largest, 0, 4));
        if (!cublas(false, state.exact.as<void>(), CUDA_R_32F))
            fail("cuBLAS refuses fp32 results");
        distances<<<1024, 256>>>(C, state.exact.as<float>(), all, largest, state.low.as<__half>(),
                                 state.high.as<__half>(), library != 0);
        float most = 0;
        MUST(cudaMemcpy(&most, largest, 4, cudaMemcpyDeviceToHost));
        *furthest = most;
        state.some.hold(kWanted * (8 + 8 + 8 + 4));
        auto* wanted = state.some.as<unsigned long long>();
        auto* sums = reinterpret_cast<double*>(wanted + kWanted);
        double* scales = sums + kWanted;
        auto* picked = reinterpret_cast<float*>(scales + kWanted);
        MUST(cudaMemcpy(wanted, state.wanted.data(), kWanted * 8, cudaMemcpyHostToDevice));
        reference<<<kWanted / 8, 256>>>(state.A.as<__half>(), state.columns.as<__half>(), wanted, kWanted,
                                        state.N, state.K, sums, scales);
        pick<<<kWanted / 256, 256>>>(C, wanted, kWanted, picked);
        std::vector<double> right(kWanted), scale(kWanted);
        std::vector<float> values(kWanted);
        MUST(cudaMemcpy(right.data(), sums, kWanted * 8, cudaMemcpyDeviceToHost));
        MUST(cudaMemcpy(scale.data(), scales, kWanted * 8, cudaMemcpyDeviceToHost));
        MUST(cudaMemcpy(values.data(), picked, kWanted * 4, cudaMemcpyDeviceToHost));
        *scaled = 0;
        for (int i = 0; i < kWanted; ++i) {
            double off = std::abs(values[i] - right[i]);
            off = std::isnan(off) ? INFINITY : off;
            *scaled = std::max(*scaled, scale[i] > 0 ? off / scale[i] : off);
        }
        return kWanted;
    });
}

// The largest difference of an element among the libraries that were checked.
int hgemm_spread(double* spread) {
    return guarded([&] {
        auto* largest = state.found.as<unsigned int>();
        MUST(cudaMemset(largest, 0, 4));
        widest<<<1024, 256>>>(state.low.as<__half>(), state.high.as<__half>(), count(state.M, state.N),
                              largest);
        float most = 0;
        MUST(cudaMemcpy(&most, largest, 4, cudaMemcpyDeviceToHost));
        *spread = most;
        return 0;
    });
}

// On zeros and ones: results below 2048 that are not the sum, those of 2048 and more that are not the sum rounded once,
// and how many there are of these. The sums are whole numbers below 2^24, which cuBLAS adds up exactly in fp32.
int hgemm_check_whole(int index, long long* below, long long* above, long long* large) {
    return guarded([&] {
        size_t all = count(state.M, state.N);
        if (!cublas(false, state.exact.as<void>(), CUDA_R_32F))
            fail("cuBLAS refuses fp32 results");
        MUST(cudaMemset(state.C.as<void>(), 0xff, all * 2));
        MUST(cudaMemset(state.found.as<void>(), 0, 3 * 8));
        for (int i = 0; i < kChecked; ++i)
            if (!state.contestants.at(index).call())
                fail("refused");
        differences<<<1024, 256>>>(state.C.as<__half>(), state.exact.as<float>(), all,
                                   state.found.as<unsigned long long>());
        unsigned long long found[3];
        MUST(cudaMemcpy(found, state.found.as<void>(), sizeof found, cudaMemcpyDeviceToHost));
        *below = found[0], *above = found[1], *large = found[2];
        return 0;
    });
}

// Microseconds a call, times[iteration][contestant], in an order drawn anew for each iteration.
// Mode 0, offline: calls back to back, short ones several between two events, after one that is not timed.
// Mode 1, device: the same while the host is ahead, so that its part of a call is hidden, and without overlap of a
// launch with the one before it.
// Mode 2, server: one call at a time, after the host and the GPU were idle for a time with the mean `idle` microseconds.
int hgemm_time(const int* indexes, int number, int iterations, int mode, double idle, float* times) {
    return guarded([&] {
        Events events;
        std::vector<int> order(number);
        for (int i = 0; i < number; ++i)
            order[i] = i;
        std::exponential_distribution<double> interval(1);
        // The same number for all, so that events cost each the same: as many as the shortest calls need.
        int calls = 1;
        bool leads = false;
        for (int i = 0; i < number; ++i) {
            const Contestant& one = state.contestants.at(indexes[i]);
            calls = std::max(calls, one.per_block);
            leads = leads || one.leads;
            if (one.overlap)
                one.overlap(mode != 1);
        }
        for (int iteration = 0; iteration < iterations; ++iteration) {
            std::shuffle(order.begin(), order.end(), state.random);
            for (int i : order) {
                const Contestant& one = state.contestants.at(indexes[i]);
                double time;
                if (mode < 2) {
                    time = block_of(one.call, calls, events, leads, mode == 1);
                } else {
                    double wait = std::min(interval(state.random), 5.0) * idle;
                    std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(wait));
                    time = block_of(one.call, 1, events, false);
                }
                if (time < 0)
                    fail(one.name + " refuses this product");
                times[iteration * number + i] = static_cast<float>(time);
            }
        }
        return 0;
    });
}
}
