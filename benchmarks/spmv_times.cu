// Whole calls of one spmv kernel with a cold L2 cache, at sizes of one's own, skewed ones too; and whether it is right.
//
//     nvcc -O3 --use_fast_math -std=c++17 -arch=native -DFORMAT=1 -DBF16=0 -DFUNCTION=spmv_coo_optimized
//         -DKERNEL='"../cudamaster/playbook/spmv_coo/fp32/1_clear_while_loading.cu"' benchmarks/spmv_times.cu -o times
//     ./times 32768,2048,671088,0,0 32768,2048,671088,1,0
//
// FORMAT is 1 for COO, 2 for CSC. A size is rows, columns, entries, how many rows hold half of the entries, and how many
// columns do, 0 for none; -1 for the one says that all entries lie in one row, for the other in one column. COO takes
// 2048 columns. CALLS in the environment says how many calls are timed, 200 by default. Printed are microseconds: an
// empty launch, a cooperative one, the median and the least of the calls, how far both are above those of the empty
// launch, and the worst error of a row as a part of the sum of its absolute terms. All kinds of calls take turns. With
// EMPTY in the environment, more kinds of empty launches are timed. A first look at many variants; what counts is
// `cudamaster evaluate`.
#include KERNEL
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <cuda_bf16.h>
#include <functional>
#include <random>
#include <vector>

namespace {

#if BF16
using Number = __nv_bfloat16;
#else
using Number = float;
#endif

constexpr int kEmptyShared = 66560; // of an empty launch with shared memory

void check(cudaError_t status) {
    if (status != cudaSuccess) {
        std::printf("%s\n", cudaGetErrorString(status));
        std::exit(1);
    }
}

__global__ void empty_kernel() {}

__global__ void shared_kernel() {
    extern __shared__ float memory[];
    if (gridDim.y == 2)
        memory[threadIdx.x] = 1.0f;
}

__global__ void barrier_kernel() {
    cooperative_groups::this_grid().sync();
}

template <class T> T* on_device(const std::vector<T>& host) {
    T* device;
    check(cudaMalloc(&device, std::max<size_t>(host.size(), 1) * sizeof(T)));
    check(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return device;
}

double median(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

double least(const std::vector<double>& times) {
    return *std::min_element(times.begin(), times.end());
}

// One of the heavy ones for half of the numbers, where there are any; -1 makes all the same.
int draw(std::mt19937_64& rng, long long many, long long heavy) {
    if (heavy < 0)
        return (int)(many / 2);
    if (heavy > 0 && rng() % 2)
        return (int)(rng() % heavy * (many / heavy) + many / heavy / 2);
    return (int)(rng() % many);
}

} // namespace

int main(int argc, char** argv) {
    constexpr size_t kFlushed = 256 << 20;
    char* flushed;
    check(cudaMalloc(&flushed, kFlushed));
    int processors = 0;
    check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    int calls = std::getenv("CALLS") != nullptr ? std::atoi(std::getenv("CALLS")) : 200;
    for (int argument = 1; argument < argc; ++argument) {
        long long rows, columns, nnz, heavy_rows, heavy_columns;
        if (std::sscanf(argv[argument], "%lld,%lld,%lld,%lld,%lld", &rows, &columns, &nnz, &heavy_rows,
                        &heavy_columns) != 5) {
            std::printf("%s: rows,columns,entries,heavy rows,heavy columns are wanted\n", argv[argument]);
            return 2;
        }
        std::mt19937_64 rng(7);
        std::vector<int> row_of(nnz), column_of(nnz);
        std::vector<Number> values(nnz), x(columns);
        for (long long p = 0; p < nnz; ++p) {
            row_of[p] = draw(rng, rows, heavy_rows);
            column_of[p] = draw(rng, columns, heavy_columns);
            values[p] = (Number)((float)((int)(rng() % 2001) - 1000) / 1000.0f);
        }
        for (Number& number : x)
            number = (Number)((float)((int)(rng() % 2001) - 1000) / 1000.0f);
        std::vector<double> sums(rows, 0.0), scales(rows, 0.0);
        for (long long p = 0; p < nnz; ++p) {
            double term = (double)(float)values[p] * (double)(float)x[column_of[p]];
            sums[row_of[p]] += term;
            scales[row_of[p]] += std::fabs(term);
        }
        Number *device_x = on_device(x), *device_y = on_device(std::vector<Number>(rows));
#if FORMAT == 1
        int *device_rows = on_device(row_of), *device_columns = on_device(column_of);
        Number* device_values = on_device(values);
        auto call = [&] {
            FUNCTION((int)rows, (int)nnz, device_values, device_rows, device_columns, device_x, device_y);
        };
#else
        std::vector<int> starts(columns + 1, 0), csc_rows(nnz);
        std::vector<Number> csc_values(nnz);
        for (int column : column_of)
            ++starts[column + 1];
        for (long long column = 0; column < columns; ++column)
            starts[column + 1] += starts[column];
        std::vector<int> next(starts.begin(), starts.end() - 1);
        for (long long p = 0; p < nnz; ++p) {
            int place = next[column_of[p]]++;
            csc_rows[place] = row_of[p];
            csc_values[place] = values[p];
        }
        int *device_rows = on_device(csc_rows), *device_columns = on_device(starts);
        Number* device_values = on_device(csc_values);
        auto call = [&] {
            FUNCTION((int)rows, (int)columns, device_values, device_rows, device_columns, device_x, device_y);
        };
#endif
        struct Kind {
            const char* name;
            std::function<void()> call;
            std::vector<double> times;
        };
        std::vector<Kind> kinds = {
            {"the call", call, {}},
            {"empty", [] { empty_kernel<<<1, 1>>>(); }, {}},
            {"cooperative, a block of 1024 threads on each processor",
             [&] { check(cudaLaunchCooperativeKernel(empty_kernel, dim3(processors), dim3(1024), nullptr)); },
             {}},
        };
        if (std::getenv("EMPTY") != nullptr) {
            kinds.push_back({"a block of 1024 threads on each processor",
                             [&] { empty_kernel<<<processors, 1024>>>(); },
                             {}});
            kinds.push_back({"the same with shared memory, which an attribute asks for",
                             [&] {
                                 check(cudaFuncSetAttribute(shared_kernel,
                                                            cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                            kEmptyShared));
                                 shared_kernel<<<processors, 1024, kEmptyShared>>>();
                             },
                             {}});
            kinds.push_back({"the same with 40 KB, no attribute",
                             [&] { shared_kernel<<<processors, 1024, 40 << 10>>>(); },
                             {}});
            kinds.push_back({"cooperative with a barrier",
                             [&] {
                                 check(cudaLaunchCooperativeKernel(barrier_kernel, dim3(processors),
                                                                   dim3(1024), nullptr));
                             },
                             {}});
        }
        double worst = 0.0;
        std::vector<Number> y(rows);
        for (int i = -5; i < calls; ++i)
            for (size_t k = 0; k < kinds.size(); ++k) {
                if (k == 0)
                    check(cudaMemset(device_y, 0xff, rows * sizeof(Number)));
                check(cudaMemset(flushed, i, kFlushed));
                check(cudaDeviceSynchronize());
                auto began = std::chrono::steady_clock::now();
                kinds[k].call();
                check(cudaDeviceSynchronize());
                std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
                check(cudaGetLastError());
                if (i >= 0)
                    kinds[k].times.push_back(took.count());
                if (k != 0 || (i % 40 != 0 && i != -5))
                    continue;
                check(cudaMemcpy(y.data(), device_y, rows * sizeof(Number), cudaMemcpyDeviceToHost));
                for (long long row = 0; row < rows; ++row) {
                    double off = std::fabs((double)(float)y[row] - sums[row]);
                    double error = scales[row] > 0.0 ? off / scales[row] : off == 0.0 ? 0.0 : 1e30;
                    worst = error < 1e30 ? std::max(worst, error) : 1e30; // NaN is as wrong as can be
                }
            }
        const std::vector<double>&times = kinds[0].times, &empty = kinds[1].times;
        std::printf(
            "%-30s empty %5.1f, cooperative %5.1f; median %7.1f, least %7.1f; over the empty launch %6.1f, "
            "%6.1f; worst error %.1e\n",
            argv[argument], median(empty), median(kinds[2].times), median(times), least(times),
            median(times) - median(empty), least(times) - least(empty), worst);
        for (size_t k = 3; k < kinds.size(); ++k)
            std::printf("    %s: %.1f, least %.1f\n", kinds[k].name, median(kinds[k].times),
                        least(kinds[k].times));
        check(cudaFree(device_x));
        check(cudaFree(device_y));
        check(cudaFree(device_rows));
        check(cudaFree(device_columns));
        check(cudaFree(device_values));
    }
}
