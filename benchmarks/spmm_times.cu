// Whole calls of one spmm kernel with a cold L2 cache, at sizes of one's own, skewed ones too; and whether it is right.
//
//     nvcc -O3 --use_fast_math -std=c++17 -arch=native -DFORMAT=0 -DBF16=0 -DFUNCTION=spmm_csr_optimized
//         -DKERNEL='"../cudamaster/playbook/spmm_csr/fp32/2_slabs_in_shared_memory.cu"' benchmarks/spmm_times.cu -o times
//     ./times 262144,2048,5368709,4096,0 65536,2048,1342177,4096,3
//
// FORMAT is 0 for CSR, 1 for COO, 2 for CSC, 3 for ELL. A size is rows, columns, entries, K, and how many rows hold half of
// the entries, or 0. CALLS in the environment says how many calls are timed, 9 by default. Printed are the median and the
// least time in microseconds, and the worst error of a sample of rows as a part of the sum of the absolute terms. A first
// look at many variants; what counts is `cudamaster evaluate`.
#include KERNEL
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <random>
#include <vector>

namespace {

#if BF16
using Number = __nv_bfloat16;
#else
using Number = float;
#endif

void check(cudaError_t status) {
    if (status != cudaSuccess) {
        std::printf("%s\n", cudaGetErrorString(status));
        std::exit(1);
    }
}

// Numbers from -1 to 1 that depend on their place alone.
__global__ void fill(Number* numbers, size_t many) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < many;
         i += gridDim.x * (size_t)blockDim.x) {
        unsigned long long bits = (i + 1) * 0x9E3779B97F4A7C15ull;
        bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9ull;
        bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBull;
        numbers[i] = (Number)((float)((bits ^ (bits >> 31)) >> 40) * (2.0f / 16777216.0f) - 1.0f);
    }
}

// The worst error in every `stride`-th row, as the bits of a float that is not negative.
__global__ void compare(int rows, int K, const int* offsets, const int* columns, const Number* values,
                        const Number* X, const Number* Y, int* worst, int stride) {
    size_t row = blockIdx.x * (size_t)stride;
    if (row >= rows)
        return;
    float mine = 0.0f;
    for (int k = threadIdx.x; k < K; k += blockDim.x) {
        double sum = 0.0, scale = 0.0, got = (float)Y[row * K + k];
        for (int p = offsets[row]; p < offsets[row + 1]; ++p) {
            double term = (double)(float)values[p] * (double)(float)X[columns[p] * (size_t)K + k];
            sum += term;
            scale += fabs(term);
        }
        double error = scale > 0.0 ? fabs(sum - got) / scale : got == 0.0 ? 0.0 : 1e30;
        mine = fmaxf(mine, error < 1e30 ? (float)error : 1e30f); // NaN is as wrong as can be
    }
    atomicMax(worst, __float_as_int(mine));
}

template <class T> T* on_device(const std::vector<T>& host) {
    T* device;
    check(cudaMalloc(&device, std::max<size_t>(host.size(), 1) * sizeof(T)));
    check(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return device;
}

} // namespace

int main(int argc, char** argv) {
    constexpr size_t kFlushed = 256 << 20;
    char* flushed;
    check(cudaMalloc(&flushed, kFlushed));
    int calls = std::getenv("CALLS") != nullptr ? std::atoi(std::getenv("CALLS")) : 9;
    for (int argument = 1; argument < argc; ++argument) {
        long long rows, cols, nnz, K, heavy;
        if (std::sscanf(argv[argument], "%lld,%lld,%lld,%lld,%lld", &rows, &cols, &nnz, &K, &heavy) != 5) {
            std::printf("%s: rows,columns,entries,K,heavy rows are wanted\n", argv[argument]);
            return 2;
        }
        std::mt19937_64 rng(7);
        std::vector<int> lengths(rows, 0);
        for (long long i = 0; i < nnz; ++i)
            ++lengths[heavy > 0 && i < nnz / 2 ? rng() % heavy * (rows / heavy) : rng() % rows];
        std::vector<int> offsets(rows + 1, 0), columns(nnz), row_of(nnz);
        std::vector<Number> values(nnz);
        for (long long row = 0; row < rows; ++row) {
            offsets[row + 1] = offsets[row] + lengths[row];
            std::fill(row_of.begin() + offsets[row], row_of.begin() + offsets[row + 1], (int)row);
        }
        for (long long p = 0; p < nnz; ++p) {
            columns[p] = (int)(rng() % cols);
            values[p] = (Number)((float)((int)(rng() % 2001) - 1000) / 1000.0f);
        }
        int *csr_offsets = on_device(offsets), *csr_columns = on_device(columns);
        Number* csr_values = on_device(values);
        Number *X, *Y;
        check(cudaMalloc(&X, cols * K * sizeof(Number)));
        check(cudaMalloc(&Y, rows * K * sizeof(Number)));
        fill<<<2048, 256>>>(X, cols * K);
        check(cudaMemset(Y, 0xff, rows * K * sizeof(Number)));

#if FORMAT == 0
        auto call = [&] { FUNCTION((int)rows, (int)K, csr_values, csr_columns, csr_offsets, X, Y); };
#elif FORMAT == 1
        std::vector<size_t> order(nnz);
        for (long long i = 0; i < nnz; ++i)
            order[i] = i;
        std::shuffle(order.begin(), order.end(), rng);
        std::vector<int> coo_rows(nnz), coo_columns(nnz);
        std::vector<Number> coo_values(nnz);
        for (long long i = 0; i < nnz; ++i) {
            coo_rows[i] = row_of[order[i]];
            coo_columns[i] = columns[order[i]];
            coo_values[i] = values[order[i]];
        }
        int *device_rows = on_device(coo_rows), *device_columns = on_device(coo_columns);
        Number* device_values = on_device(coo_values);
        auto call = [&] {
            FUNCTION((int)rows, (int)nnz, (int)K, device_values, device_rows, device_columns, X, Y);
        };
#elif FORMAT == 2
        std::vector<int> starts(cols + 1, 0), csc_rows(nnz);
        std::vector<Number> csc_values(nnz);
        for (int column : columns)
            ++starts[column + 1];
        for (long long column = 0; column < cols; ++column)
            starts[column + 1] += starts[column];
        std::vector<int> next(starts.begin(), starts.end() - 1);
        for (long long p = 0; p < nnz; ++p) {
            int place = next[columns[p]]++;
            csc_rows[place] = row_of[p];
            csc_values[place] = values[p];
        }
        int *device_rows = on_device(csc_rows), *device_starts = on_device(starts);
        Number* device_values = on_device(csc_values);
        auto call = [&] {
            FUNCTION((int)rows, (int)cols, (int)K, device_values, device_rows, device_starts, X, Y);
        };
#else
        size_t width = *std::max_element(lengths.begin(), lengths.end());
        std::vector<int> ids(rows * width, -1);
        std::vector<Number> ell_values(rows * width, (Number)-1.0f);
        for (long long p = 0; p < nnz; ++p) {
            size_t slot = row_of[p] * width + p - offsets[row_of[p]];
            ids[slot] = columns[p];
            ell_values[slot] = values[p];
        }
        int* device_ids = on_device(ids);
        Number* device_values = on_device(ell_values);
        auto call = [&] { FUNCTION((int)rows, (int)width, (int)K, device_values, device_ids, X, Y); };
#endif
        std::vector<double> times;
        for (int i = -2; i < calls; ++i) {
            check(cudaMemset(flushed, i, kFlushed));
            check(cudaDeviceSynchronize());
            auto began = std::chrono::steady_clock::now();
            call();
            check(cudaDeviceSynchronize());
            std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
            check(cudaGetLastError());
            if (i >= 0)
                times.push_back(took.count());
        }
        std::sort(times.begin(), times.end());
        int *worst = on_device(std::vector<int>{0}), bits = 0;
        int stride = (int)std::max<long long>(1, rows / 2048);
        compare<<<(int)((rows - 1) / stride + 1), 256>>>((int)rows, (int)K, csr_offsets, csr_columns,
                                                         csr_values, X, Y, worst, stride);
        check(cudaMemcpy(&bits, worst, sizeof(bits), cudaMemcpyDeviceToHost));
        float error;
        std::memcpy(&error, &bits, sizeof(error));
        std::printf("%-36s median %9.1f us, least %9.1f us, worst error %.1e\n", argv[argument],
                    times[times.size() / 2], times[0], error);
        check(cudaFree(X));
        check(cudaFree(Y));
    }
}
