// Which way of cuSPARSE a file of bench/vendor/ takes, and what came of the others (docs/vendor.md), on a random matrix.
//
//     nvcc -O2 -std=c++17 -arch=native -Ibench -Ibench/include -DTASK=spmm_csr_bf16 benchmarks/cusparse_ways.cu -lcusparse -o ways
//     ./ways 65536 2048 4096 1342177     # rows, columns, K (1 for SpMV), entries
//     ./ways 48 2048 3 9296 2            # half of the entries in two rows (of CSC: columns), and row 0 is empty
//
// With -DVENDOR_ALL_WAYS it also tries what is left out because of a fault. `compute-sanitizer ./ways ...` tells which
// kernel faults, and where. How to find the package nvidia-cusparse: cusparse_bf16.cu.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <string_view>
#include <type_traits>
#include <vector>

#define TEXT(words) #words
#define NAME(task) TEXT(task)
// clang-format off
#define FILE_OF(task) TEXT(vendor/task.cu)
// clang-format on
#define JOINED(task, more) task##more
#define OF(task, more) JOINED(task, more)
#include FILE_OF(TASK)

namespace {

constexpr std::string_view kTask = NAME(TASK);
constexpr bool has(std::string_view part) {
    return kTask.find(part) != std::string_view::npos;
}
using T = std::conditional_t<has("bf16"), __nv_bfloat16, float>;

uint32_t random_bits() {
    static uint32_t bits = 1;
    return bits ^= bits << 13, bits ^= bits >> 17, bits ^= bits << 5;
}

template <class E> const E* on_device(const std::vector<E>& all) {
    vendor::Memory memory; // until the end
    memory.hold(all.size() * sizeof(E));
    VENDOR_CHECK(cudaMemcpy(memory.get(), all.data(), all.size() * sizeof(E), cudaMemcpyHostToDevice));
    return memory.as<E>();
}

const T* numbers(size_t count) {
    std::vector<T> all(count);
    for (T& one : all)
        one = static_cast<T>(static_cast<float>(random_bits() >> 8) / (1 << 23) - 1.0f);
    return on_device(all);
}

// The forms' parameters differ; what is not called with these is not of this task.
template <class Function, class... Arguments> void apply(Function function, Arguments... arguments) {
    if constexpr (std::is_invocable_v<Function, Arguments...>)
        function(arguments...);
}

int run(int rows, int cols, int K, int nnz, int heavy) {
    constexpr bool by_column = has("csc");
    int segments = by_column ? cols : rows, others = by_column ? rows : cols;
    std::vector<int> offsets(segments + 1, 0), of, indices;
    for (int p = 0; p < nnz; ++p) {
        uint32_t any = random_bits();
        if (heavy > 0)
            any = p % 2 == 0 ? 1 + any % heavy : 1 + any % (segments - 1);
        of.push_back(static_cast<int>(any % segments));
        indices.push_back(static_cast<int>(random_bits() % others));
        ++offsets[of.back() + 1];
    }
    int slots = *std::max_element(offsets.begin(), offsets.end());
    std::vector<int> ell(has("ell") ? static_cast<size_t>(rows) * slots : 0, -1);
    for (int s = 0; s < segments; ++s) {
        for (int p = 0; has("ell") && p < offsets[s + 1]; ++p)
            ell[static_cast<size_t>(s) * slots + p] = indices[offsets[s] + p];
        offsets[s + 1] += offsets[s];
    }
    const T *values = numbers(has("ell") ? ell.size() : nnz), *X = numbers(static_cast<size_t>(cols) * K);
    const int *starts = on_device(offsets), *segment = on_device(of), *index = on_device(indices);
    const int* ids = on_device(ell);
    vendor::Memory result;
    result.hold(sizeof(T) * rows * static_cast<size_t>(K));
    T* Y = result.as<T>();
    auto prepare = OF(TASK, _prepare);
    auto bind = OF(TASK, _bind);
    long long first = has("csc") || has("ell") ? cols : rows, second = has("csc") || has("ell") ? rows : cols;
    long long last = has("ell") ? slots : nnz;
    if (has("spmm"))
        apply(prepare, first, second, static_cast<long long>(K), last);
    else
        apply(prepare, first, second, last);
    if (has("coo"))
        has("spmm") ? apply(bind, rows, nnz, K, values, segment, index, X, Y)
                    : apply(bind, rows, nnz, values, segment, index, X, Y);
    else if (has("csc"))
        has("spmm") ? apply(bind, rows, cols, K, values, index, starts, X, Y)
                    : apply(bind, rows, cols, values, index, starts, X, Y);
    else if (has("csr"))
        has("spmm") ? apply(bind, rows, K, values, index, starts, X, Y)
                    : apply(bind, rows, values, index, starts, X, Y);
    else
        has("spmm") ? apply(bind, rows, slots, K, values, ids, X, Y)
                    : apply(bind, rows, slots, values, ids, X, Y);
    return product.told().empty();
}

void tell() {
    for (const std::string& line : product.told())
        std::printf("%s | %s\n", kTask.data(), line.c_str());
}

} // namespace

int main(int argc, char** argv) {
    int numbers[5] = {};
    for (int i = 1; i < argc && i < 6; ++i)
        numbers[i - 1] = std::atoi(argv[i]);
    auto [rows, cols, K, nnz, heavy] = numbers;
    if (argc < 5 || argc > 6 || std::min({rows, cols, K, nnz}) < 1 || heavy < 0 ||
        (heavy > 0 && heavy >= std::min(rows, cols))) {
        std::fprintf(stderr,
                     "rows, columns, K and entries are wanted, 1 or more of each; the number of heavy rows "
                     "behind them may be left out, and is less than rows and columns\n");
        return 2;
    }
    try {
        int status = run(rows, cols, K, nnz, heavy);
        tell();
        return status;
    } catch (const std::exception& error) {
        tell();
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
