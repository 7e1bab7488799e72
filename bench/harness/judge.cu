// The judge: main, and what it does on the device (mskb/device_work.h). It knows the task by mskb/task.h, so it is
// compiled once and linked to the rendered harness of each task.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include "mskb/calls.h"
#include "mskb/device_work.h"
#include "mskb/generators.h"
#include "mskb/harness.h"
#include "mskb/mask.h"
#include "mskb/seal.h"
#include "mskb/sparse.h"

namespace mskb {
namespace {

#ifdef MSKB_CPU_DEVICE
constexpr int kThreads = 1, kMostBlocks = 4; // a thread there is a loop
#else
constexpr int kThreads = 256, kMostBlocks = 132 * 16;
#endif

unsigned int blocks_for(size_t n) {
    return static_cast<unsigned int>(std::clamp<size_t>((n + kThreads - 1) / kThreads, 1, kMostBlocks));
}

__device__ size_t thread_index() {
    return static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ size_t thread_count() {
    return static_cast<size_t>(gridDim.x) * blockDim.x;
}

template <class T> __global__ void fill_kernel(T* data, size_t n, Fill rule) {
    for (size_t i = thread_index(); i < n; i += thread_count())
        data[i] = from_double<T>(value_at(rule, i, n));
}

template <class T> __device__ bool same_bits(T a, T b) {
    const unsigned char* left = reinterpret_cast<const unsigned char*>(&a);
    const unsigned char* right = reinterpret_cast<const unsigned char*>(&b);
    bool same = true;
    for (size_t k = 0; k < sizeof(T); ++k)
        same = same && left[k] == right[k];
    return same;
}

template <class T> __global__ void differs_from_rule_kernel(const T* data, size_t n, Fill rule, int* found) {
    for (size_t i = thread_index(); i < n; i += thread_count())
        if (!same_bits(data[i], from_double<T>(value_at(rule, i, n))))
            *found = 1;
}

// The last byte is held apart where their number is odd.
__global__ void differs_kernel(const unsigned char* data, const unsigned char* other, size_t bytes,
                               int* found) {
    const unsigned short* left = reinterpret_cast<const unsigned short*>(data);
    const unsigned short* right = reinterpret_cast<const unsigned short*>(other);
    for (size_t i = thread_index(); i < bytes / 2; i += thread_count())
        if (left[i] != right[i])
            *found = 1;
    if (bytes % 2 == 1 && thread_index() == 0 && data[bytes - 1] != other[bytes - 1])
        *found = 1;
}

__global__ void mask_kernel(unsigned char* data, size_t bytes, MaskKey key, uint32_t buffer) {
    for (size_t i = thread_index(); i < mask_blocks(bytes); i += thread_count())
        mask_block(data, bytes, key, buffer, i);
}

__global__ void gather_kernel(const void* data, Kind kind, const size_t* wanted, size_t n, double* out) {
    for (size_t j = thread_index(); j < n; j += thread_count())
        out[j] = element(data, kind, wanted[j]);
}

__device__ bool is_apart(double have, double want, Kind kind, const Tolerance& tolerance) {
    return !(have == want) && !(fabs(have - want) <= tolerance.at(want, kind));
}

__global__ void compare_kernel(const void* got, const void* other, Kind kind, size_t n, Tolerance tolerance,
                               Difference* result) {
    for (size_t i = thread_index(); i < n; i += thread_count()) {
        if (!is_apart(element(got, kind, i), element(other, kind, i), kind, tolerance))
            continue;
        unsigned long long place = atomicAdd(&result->count, 1ull);
        if (place < Difference::kKept)
            result->kept[place] = i;
    }
}

// Doubles that are not negative are ordered as their bits are.
__global__ void difference_kernel(const void* got, const void* other, Kind kind, size_t n,
                                  unsigned long long* largest) {
    double seen = 0;
    for (size_t i = thread_index(); i < n; i += thread_count()) {
        double have = element(got, kind, i), want = element(other, kind, i);
        bool same = have == want || (have != have && want != want);
        double apart = same ? 0.0 : fabs(have - want);
        seen = apart >= 0 ? fmax(seen, apart) : HUGE_VAL;
    }
    unsigned long long bits;
    memcpy(&bits, &seen, sizeof bits);
    atomicMax(largest, bits);
}

// Of elements times `factor`, a power of two.
__global__ void squares_kernel(const void* data, Kind kind, size_t n, double factor, double* sum,
                               unsigned long long* count) {
    double squares = 0;
    unsigned long long finite = 0;
    for (size_t i = thread_index(); i < n; i += thread_count()) {
        double value = element(data, kind, i) * factor;
        if (value - value == 0) { // neither NaN nor infinite
            squares += value * value;
            ++finite;
        }
    }
    atomicAdd(sum, squares);
    atomicAdd(count, finite);
}

__global__ void flaws_kernel(const void* got, const void* other, Kind kind, size_t begin, size_t n,
                             Tolerance tolerance, Flaw* found) {
    for (size_t i = thread_index(); i < n; i += thread_count()) {
        double have = element(got, kind, begin + i);
        found[i] = is_apart(have, element(other, kind, begin + i), kind, tolerance) ? flaw_of(have, kind)
                                                                                    : Flaw::kNone;
    }
}

template <class T> void fill_as(void* data, T*, size_t n, const Fill& rule) {
    fill_kernel<T><<<blocks_for(n), kThreads>>>(static_cast<T*>(data), n, rule);
}

template <class T> void look_for_changes(const void* data, T*, size_t n, const Fill& rule, int* found) {
    differs_from_rule_kernel<T><<<blocks_for(n), kThreads>>>(static_cast<const T*>(data), n, rule, found);
}

bool is_set(const ReusedBuffer& flag) {
    int value = 0;
    MSKB_CUDA(cudaMemcpy(&value, flag.get(), sizeof value, cudaMemcpyDeviceToHost));
    return value != 0;
}

} // namespace

void fill(void* data, const BufferSpec& spec, const Fill& rule) {
    size_t n = static_cast<size_t>(spec.length);
    with_type(spec.kind, [&](auto* type) { fill_as(data, type, n, rule); });
    MSKB_CUDA(cudaGetLastError());
}

void mask(void* data, size_t bytes, const MaskKey& key, uint32_t buffer) {
    mask_kernel<<<blocks_for(mask_blocks(bytes)), kThreads>>>(static_cast<unsigned char*>(data), bytes, key,
                                                              buffer);
    MSKB_CUDA(cudaGetLastError());
}

void seal(const unsigned char* data, size_t bytes, uint64_t key, uint64_t more, unsigned long long* sum) {
    seal_kernel<<<blocks_for(sealed_words(bytes)), kThreads>>>(data, bytes, key, more, sum);
    MSKB_CUDA(cudaGetLastError());
}

bool differs(const void* data, const BufferSpec& spec, const Fill& rule) {
    size_t n = static_cast<size_t>(spec.length);
    ReusedBuffer found(sizeof(int));
    int* flag = static_cast<int*>(found.get());
    MSKB_CUDA(cudaMemset(flag, 0, sizeof(int)));
    with_type(spec.kind, [&](auto* type) { look_for_changes(data, type, n, rule, flag); });
    MSKB_CUDA(cudaGetLastError());
    return is_set(found);
}

bool differs(const void* data, const void* other, size_t bytes) {
    ReusedBuffer found(sizeof(int));
    int* flag = static_cast<int*>(found.get());
    MSKB_CUDA(cudaMemset(flag, 0, sizeof(int)));
    const unsigned char* left = static_cast<const unsigned char*>(data);
    const unsigned char* right = static_cast<const unsigned char*>(other);
    differs_kernel<<<blocks_for(bytes / 2), kThreads>>>(left, right, bytes, flag);
    MSKB_CUDA(cudaGetLastError());
    return is_set(found);
}

std::vector<double> gather(const void* data, const BufferSpec& spec, const std::vector<size_t>& wanted) {
    std::vector<double> out(wanted.size());
    if (wanted.empty())
        return out;
    ReusedBuffer places(wanted.size() * sizeof(size_t)), numbers(wanted.size() * sizeof(double));
    MSKB_CUDA(cudaMemcpy(places.get(), wanted.data(), places.bytes(), cudaMemcpyHostToDevice));
    const size_t* indices = static_cast<const size_t*>(places.get());
    double* gathered = static_cast<double*>(numbers.get());
    gather_kernel<<<blocks_for(wanted.size()), kThreads>>>(data, spec.kind, indices, wanted.size(), gathered);
    MSKB_CUDA(cudaGetLastError());
    MSKB_CUDA(cudaMemcpy(out.data(), gathered, numbers.bytes(), cudaMemcpyDeviceToHost));
    return out;
}

Difference compare_on_device(const void* got, const void* other, const BufferSpec& spec,
                             const Tolerance& tolerance) {
    size_t n = static_cast<size_t>(spec.length);
    Difference found{};
    ReusedBuffer result(sizeof found);
    MSKB_CUDA(cudaMemcpy(result.get(), &found, sizeof found, cudaMemcpyHostToDevice));
    Difference* on_device = static_cast<Difference*>(result.get());
    compare_kernel<<<blocks_for(n), kThreads>>>(got, other, spec.kind, n, tolerance, on_device);
    MSKB_CUDA(cudaGetLastError());
    MSKB_CUDA(cudaMemcpy(&found, on_device, sizeof found, cudaMemcpyDeviceToHost));
    return found;
}

Differences::Differences(size_t most) : found_(most * sizeof(Difference)) {
    MSKB_CUDA(cudaMemset(found_.get(), 0, found_.bytes()));
}

void Differences::add(size_t which, const void* got, const void* other, const BufferSpec& spec,
                      const Tolerance& tolerance) {
    size_t n = static_cast<size_t>(spec.length);
    compare_kernel<<<blocks_for(n), kThreads>>>(got, other, spec.kind, n, tolerance,
                                                static_cast<Difference*>(found_.get()) + which);
    MSKB_CUDA(cudaGetLastError());
}

std::vector<bool> Differences::any() const {
    std::vector<Difference> found(found_.bytes() / sizeof(Difference));
    MSKB_CUDA(cudaMemcpy(found.data(), found_.get(), found_.bytes(), cudaMemcpyDeviceToHost));
    std::vector<bool> differs;
    for (const Difference& each : found)
        differs.push_back(each.count > 0);
    return differs;
}

double largest_difference(const void* got, const void* other, const BufferSpec& spec) {
    size_t n = static_cast<size_t>(spec.length);
    double found = 0;
    ReusedBuffer result(sizeof found);
    MSKB_CUDA(cudaMemset(result.get(), 0, sizeof found));
    auto on_device = static_cast<unsigned long long*>(result.get());
    difference_kernel<<<blocks_for(n), kThreads>>>(got, other, spec.kind, n, on_device);
    MSKB_CUDA(cudaGetLastError());
    MSKB_CUDA(cudaMemcpy(&found, on_device, sizeof found, cudaMemcpyDeviceToHost));
    return found;
}

double root_mean_square(const void* data, const BufferSpec& spec) {
    struct {
        double sum;
        unsigned long long count;
    } found{};
    ReusedBuffer result(sizeof found);
    auto sum = static_cast<double*>(result.get());
    size_t n = static_cast<size_t>(spec.length);
    double factor = 1;
    for (double each : {1.0, 0x1p-540, 0x1p400}) { // squares may be too large for a double, or too small
        factor = each;
        MSKB_CUDA(cudaMemset(result.get(), 0, sizeof found));
        squares_kernel<<<blocks_for(n), kThreads>>>(data, spec.kind, n, factor, sum,
                                                    reinterpret_cast<unsigned long long*>(sum + 1));
        MSKB_CUDA(cudaGetLastError());
        MSKB_CUDA(cudaMemcpy(&found, result.get(), sizeof found, cudaMemcpyDeviceToHost));
        if (spec.kind != Kind::kDouble || (found.sum > 0x1p-900 && std::isfinite(found.sum)))
            break;
    }
    return found.count > 0 ? std::sqrt(found.sum / static_cast<double>(found.count)) / factor : 0;
}

std::vector<Flaw> flaws(const void* got, const void* other, const BufferSpec& spec,
                        const Tolerance& tolerance, size_t begin, size_t count) {
    std::vector<Flaw> found(count);
    ReusedBuffer result(count);
    Flaw* on_device = static_cast<Flaw*>(result.get());
    flaws_kernel<<<blocks_for(count), kThreads>>>(got, other, spec.kind, begin, count, tolerance, on_device);
    MSKB_CUDA(cudaGetLastError());
    MSKB_CUDA(cudaMemcpy(found.data(), on_device, count, cudaMemcpyDeviceToHost));
    return found;
}

double take(Given& given, const char* name, const double* fallback) {
    return given.take(name, fallback);
}

void uniform(Inputs& inputs, int buffer, double low, double high, double outliers) {
    inputs.rule(buffer, Generator::kUniform, low, high, outliers);
}

void spiked(Inputs& inputs, int buffer, double low, double high) {
    inputs.rule(buffer, Generator::kSpiked, low, high);
}

void heavy_tailed(Inputs& inputs, int buffer, double low, double high) {
    inputs.rule(buffer, Generator::kHeavyTailed, low, high);
}

void uniform_or_ones(Inputs& inputs, int buffer, double percent) {
    if (percent == 0)
        return uniform(inputs, buffer, -1, 1);
    inputs.rule(buffer, Generator::kOnes, percent);
}

void integers(Inputs& inputs, int buffer, double low, double high) {
    inputs.rule(buffer, Generator::kIntegers, low, high);
}

void distribution(Inputs& inputs, int buffer) {
    inputs.rule(buffer, Generator::kDistribution);
}

void spectral(Inputs& inputs, int buffer, double n, double outliers) {
    double bound = std::sqrt(3.0 / n);
    uniform(inputs, buffer, -bound, bound, outliers);
}

void sequence(Inputs& inputs, int buffer, double order) {
    inputs.rule(buffer, Generator::kSequence, order);
}

void attention_mask(Inputs& inputs, int buffer, double seq_length, double percent) {
    inputs.rule(buffer, Generator::kAttentionMask, seq_length, percent);
}

} // namespace mskb

int main(int argc, char** argv) {
    // A harness that a person built in one file is its own worker too.
    for (int i = 1; i < argc && mskb::work != nullptr; ++i)
        if (std::strcmp(argv[i], "--channel") == 0)
            return mskb::work(argc, argv);
    return mskb::run(argc, argv);
}
