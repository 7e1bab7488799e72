// What cusparseSpMM rounds on the way, algorithm by algorithm: bf16 in with results in bf16 or fp32, fp32 compute, and
// fp32 throughout for comparison. Dense matrices are row-major.
//
//     nvcc -O2 -std=c++17 -arch=native benchmarks/cusparse_bf16.cu -lcusparse -o cusparse_bf16
//     ./cusparse_bf16            # with 128 and 4096 columns; other numbers of columns as arguments
//
// With the package nvidia-cusparse, HOME being its folder nvidia/cu13:
//
//     nvcc ... -IHOME/include -LHOME/lib -l:libcusparse.so.12 -Xlinker -rpath -Xlinker HOME/lib
//
// An algorithm and its types have a process of their own, so that one that fails takes nothing else with it. Columns:
//
// product   rows of one entry: which part of the results is the product rounded once to the nearest
// kept      rows of v * x and minus that product rounded to bf16: which part of the results is the remainder, where there is
//           one. Where the product or the first sum is rounded to bf16, it is 0
// n=3 ...   rows of n entries, 1 first, 2^-10 second, -1 last, 0 between: which part of the results is 2^-10. A sum that is
//           rounded to bf16 once 1 and 2^-10 are in it, and before -1 is, loses it
// lost at   rows of 512 entries, 1, 2^-10 and -1 at q, q + 1, q + 2, 0 elsewhere: the q at which all results lost 2^-10, and
//           in brackets at how many q only some did. A running sum that is rounded after every g entries loses it at g - 2,
//           2 g - 2 and so on, and sums of g entries that are rounded each lose it at g - 1, 2 g - 1 and so on too
// equal     a random matrix, 20 calls: how many are bit for bit what the first one was
// nearest   of it: which part of the results is the exact sum rounded once to the nearest
// outside   of it: which part is off by more than 4 ulps of fp32 of the sum of absolute terms and two ulps of the result;
//           of rows of 10 to 30 entries, and of rows of 1000
// worst     of it: how far one is off beyond those two ulps, as a part of the sum of absolute terms
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <cusparse.h>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void check(cudaError_t status, const char* call) {
    if (status != cudaSuccess)
        throw std::runtime_error(std::string(call, std::strcspn(call, "(")) + ": " +
                                 cudaGetErrorName(status));
}
void check(cusparseStatus_t status, const char* call) {
    if (status != CUSPARSE_STATUS_SUCCESS)
        throw std::runtime_error(std::string(call, std::strcspn(call, "(")) + ": " +
                                 cusparseGetErrorName(status));
}
#define CHECK(call) check(call, #call)

enum class Form { kCsr, kCoo, kCsc, kTransposedCsr, kBlockedEll };

struct Way {
    const char* name;
    Form form;
    cusparseSpMMAlg_t algorithm;
};

const std::vector<Way> kWays{
    {"CSR ALG1", Form::kCsr, CUSPARSE_SPMM_CSR_ALG1},
    {"CSR ALG2", Form::kCsr, CUSPARSE_SPMM_CSR_ALG2},
    {"CSR ALG3", Form::kCsr, CUSPARSE_SPMM_CSR_ALG3},
    {"COO ALG1", Form::kCoo, CUSPARSE_SPMM_COO_ALG1},
    {"COO ALG2", Form::kCoo, CUSPARSE_SPMM_COO_ALG2},
    {"COO ALG3", Form::kCoo, CUSPARSE_SPMM_COO_ALG3},
    {"COO ALG4", Form::kCoo, CUSPARSE_SPMM_COO_ALG4},
    {"CSC, CSR_ALG1", Form::kCsc, CUSPARSE_SPMM_CSR_ALG1},
    {"CSC, CSR_ALG2", Form::kCsc, CUSPARSE_SPMM_CSR_ALG2},
    {"CSC, CSR_ALG3", Form::kCsc, CUSPARSE_SPMM_CSR_ALG3},
    {"CSR transposed, ALG1", Form::kTransposedCsr, CUSPARSE_SPMM_CSR_ALG1},
    {"CSR transposed, ALG2", Form::kTransposedCsr, CUSPARSE_SPMM_CSR_ALG2},
    {"CSR transposed, ALG3", Form::kTransposedCsr, CUSPARSE_SPMM_CSR_ALG3},
    {"blocked ELL of 1 x 1", Form::kBlockedEll, CUSPARSE_SPMM_BLOCKED_ELL_ALG1},
};

struct Types {
    const char* name;
    bool narrow_in, narrow_out;
};

const std::vector<Types> kTypes{
    {"bf16 to bf16", true, true}, {"bf16 to fp32", true, false}, {"fp32 to fp32", false, false}};

// To bf16 and back, to the nearest, ties to even.
float narrowed(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// From double, rounded once: through a float that is rounded to odd, so that the second rounding is no other.
float nearest(double value, bool narrow) {
    float rounded = static_cast<float>(value);
    if (!narrow)
        return rounded;
    if (rounded != value) {
        float below = std::fabs(rounded) > std::fabs(value) ? std::nextafter(rounded, 0.0f) : rounded;
        uint32_t bits;
        std::memcpy(&bits, &below, sizeof bits);
        bits |= 1;
        std::memcpy(&rounded, &bits, sizeof rounded);
    }
    return narrowed(rounded);
}

// How far apart numbers of the result's type are at a value.
double ulp(double value, bool narrow) {
    int exponent = value == 0 ? -126 : std::max(std::ilogb(value), -126);
    return std::ldexp(1.0, exponent - (narrow ? 7 : 23));
}

// A random number of -1 to 1.
float drawn() {
    static uint32_t bits = 1;
    bits ^= bits << 13, bits ^= bits >> 17, bits ^= bits << 5;
    return static_cast<float>(bits >> 8) / (1 << 23) - 1.0f;
}

// A sparse matrix, its entries by row and by column, and a dense one of K columns.
struct Case {
    int rows, cols, K;
    std::vector<int> row, col;
    std::vector<float> value, dense;

    Case(int rows, int cols, int K)
        : rows(rows), cols(cols), K(K), dense(static_cast<size_t>(cols) * K, 1.0f) {}
    void add(int r, int c, float v) { row.push_back(r), col.push_back(c), value.push_back(v); }
    float& at(int r, int k) { return dense[static_cast<size_t>(r) * K + k]; }
    int nnz() const { return static_cast<int>(row.size()); }
};

// Memory of the device with what a vector has.
class Array {
  public:
    explicit Array(size_t bytes) { CHECK(cudaMalloc(&data_, std::max<size_t>(bytes, 1))); }
    explicit Array(const std::vector<int>& all) : Array(all.size() * sizeof(int)) {
        CHECK(cudaMemcpy(data_, all.data(), all.size() * sizeof(int), cudaMemcpyHostToDevice));
    }
    Array(const std::vector<float>& all, bool narrow) : Array(all.size() * (narrow ? 2 : 4)) {
        std::vector<uint16_t> halves;
        for (float one : all) {
            uint32_t bits;
            std::memcpy(&bits, &one, sizeof bits);
            halves.push_back(static_cast<uint16_t>(bits >> 16)); // they are bf16 already
        }
        const void* from = narrow ? static_cast<const void*>(halves.data()) : all.data();
        CHECK(cudaMemcpy(data_, from, all.size() * (narrow ? 2 : 4), cudaMemcpyHostToDevice));
    }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;
    ~Array() { cudaFree(data_); }

    void* get() const { return data_; }
    std::vector<float> read(size_t count, bool narrow) const {
        std::vector<float> all(count);
        if (!narrow) {
            CHECK(cudaMemcpy(all.data(), data_, count * 4, cudaMemcpyDeviceToHost));
            return all;
        }
        std::vector<uint16_t> halves(count);
        CHECK(cudaMemcpy(halves.data(), data_, count * 2, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < count; ++i) {
            uint32_t bits = static_cast<uint32_t>(halves[i]) << 16;
            std::memcpy(&all[i], &bits, sizeof bits);
        }
        return all;
    }

  private:
    void* data_ = nullptr;
};

// Where each segment starts, of indices in ascending order.
std::vector<int> offsets_of(const std::vector<int>& indices, int segments) {
    std::vector<int> offsets(segments + 1, 0);
    for (int index : indices)
        ++offsets[index + 1];
    for (int i = 0; i < segments; ++i)
        offsets[i + 1] += offsets[i];
    return offsets;
}

// Entries in the order of a form; of blocked ELL with padding.
Case in_order_of(const Case& given, Form form) {
    Case made(given.rows, given.cols, given.K);
    std::vector<int> order(given.nnz());
    for (int p = 0; p < given.nnz(); ++p)
        order[p] = p;
    bool by_column = form == Form::kCsc || form == Form::kTransposedCsr;
    const std::vector<int>& first = by_column ? given.col : given.row;
    std::stable_sort(order.begin(), order.end(), [&](int p, int q) { return first[p] < first[q]; });
    if (form != Form::kBlockedEll) {
        for (int p : order)
            made.add(given.row[p], given.col[p], given.value[p]);
        return made;
    }
    std::vector<int> offsets = offsets_of(given.row, given.rows);
    int slots = 0;
    for (int r = 0; r < given.rows; ++r)
        slots = std::max(slots, offsets[r + 1] - offsets[r]);
    for (int r = 0; r < given.rows; ++r)
        for (int s = 0; s < slots; ++s) {
            int p = offsets[r] + s < offsets[r + 1] ? order[offsets[r] + s] : -1;
            made.add(r, p < 0 ? -1 : given.col[p], p < 0 ? 0.0f : given.value[p]);
        }
    return made;
}

// The results of some calls. Throws what cuSPARSE or CUDA says.
std::vector<std::vector<float>> results(const Way& way, const Types& types, const Case& given,
                                        int calls = 1) {
    static cusparseHandle_t handle = nullptr;
    if (handle == nullptr)
        CHECK(cusparseCreate(&handle));
    constexpr cusparseIndexType_t kIndex = CUSPARSE_INDEX_32I;
    constexpr cusparseIndexBase_t kBase = CUSPARSE_INDEX_BASE_ZERO;
    cudaDataType in = types.narrow_in ? CUDA_R_16BF : CUDA_R_32F;
    cudaDataType out = types.narrow_out ? CUDA_R_16BF : CUDA_R_32F;
    Case made = in_order_of(given, way.form);
    Array row(made.row), col(made.col), value(made.value, types.narrow_in), X(given.dense, types.narrow_in);
    size_t count = static_cast<size_t>(given.rows) * given.K;
    Array Y(count * 4);
    cusparseSpMatDescr_t A;
    cusparseDnMatDescr_t B, C;
    cusparseOperation_t plain = CUSPARSE_OPERATION_NON_TRANSPOSE, operation = plain;
    std::vector<int> starts = way.form == Form::kCsr ? offsets_of(made.row, given.rows)
                              : way.form == Form::kCsc || way.form == Form::kTransposedCsr
                                  ? offsets_of(made.col, given.cols)
                                  : std::vector<int>(1);
    Array offsets(starts);
    switch (way.form) {
    case Form::kCsr:
        CHECK(cusparseCreateCsr(&A, given.rows, given.cols, given.nnz(), offsets.get(), col.get(),
                                value.get(), kIndex, kIndex, kBase, in));
        break;
    case Form::kCoo:
        CHECK(cusparseCreateCoo(&A, given.rows, given.cols, given.nnz(), row.get(), col.get(), value.get(),
                                kIndex, kBase, in));
        break;
    case Form::kCsc:
        CHECK(cusparseCreateCsc(&A, given.rows, given.cols, given.nnz(), offsets.get(), row.get(),
                                value.get(), kIndex, kIndex, kBase, in));
        break;
    case Form::kTransposedCsr:
        operation = CUSPARSE_OPERATION_TRANSPOSE;
        CHECK(cusparseCreateCsr(&A, given.cols, given.rows, given.nnz(), offsets.get(), row.get(),
                                value.get(), kIndex, kIndex, kBase, in));
        break;
    case Form::kBlockedEll:
        CHECK(cusparseCreateBlockedEll(&A, given.rows, given.cols, 1, made.nnz() / given.rows, col.get(),
                                       value.get(), kIndex, kBase, in));
        break;
    }
    CHECK(cusparseCreateDnMat(&B, given.cols, given.K, given.K, X.get(), in, CUSPARSE_ORDER_ROW));
    CHECK(cusparseCreateDnMat(&C, given.rows, given.K, given.K, Y.get(), out, CUSPARSE_ORDER_ROW));
    const float one = 1.0f, zero = 0.0f;
    size_t bytes = 0;
    CHECK(cusparseSpMM_bufferSize(handle, operation, plain, &one, A, B, &zero, C, CUDA_R_32F, way.algorithm,
                                  &bytes));
    Array buffer(bytes);
    cusparseStatus_t looked = cusparseSpMM_preprocess(handle, operation, plain, &one, A, B, &zero, C,
                                                      CUDA_R_32F, way.algorithm, buffer.get());
    if (looked != CUSPARSE_STATUS_NOT_SUPPORTED) // it is optional
        check(looked, "cusparseSpMM_preprocess(");
    std::vector<std::vector<float>> all;
    for (int call = 0; call < calls; ++call) {
        CHECK(cudaMemset(Y.get(), 0xff, count * 4)); // no number
        CHECK(cusparseSpMM(handle, operation, plain, &one, A, B, &zero, C, CUDA_R_32F, way.algorithm,
                           buffer.get()));
        CHECK(cudaDeviceSynchronize());
        all.push_back(Y.read(count, types.narrow_out));
    }
    CHECK(cusparseDestroySpMat(A));
    CHECK(cusparseDestroyDnMat(B));
    CHECK(cusparseDestroyDnMat(C));
    return all;
}

std::string part(size_t count, size_t of) {
    char text[32];
    std::snprintf(text, sizeof text, count == 0 || count == of ? "%.0f %%" : "%.3f %%",
                  100.0 * static_cast<double>(count) / static_cast<double>(of));
    return text;
}

float input(const Types& types) {
    return types.narrow_in ? narrowed(drawn()) : drawn();
}

// Rows of one entry, and of a product and what it is rounded to.
std::string products(const Way& way, const Types& types, int K, bool remainder) {
    constexpr int kRows = 256;
    Case given(kRows, 2 * kRows, K);
    std::vector<double> exact;
    for (int r = 0; r < kRows; ++r) {
        float v = input(types);
        given.add(r, r, v);
        if (remainder)
            given.add(r, kRows + r, -1.0f);
        for (int k = 0; k < K; ++k) {
            float x = given.at(r, k) = input(types);
            double product = static_cast<double>(v) * x;
            given.at(kRows + r, k) = narrowed(static_cast<float>(product));
            exact.push_back(remainder ? product - given.at(kRows + r, k) : product);
        }
    }
    std::vector<float> got = results(way, types, given).front();
    size_t right = 0, count = 0;
    for (size_t i = 0; i < got.size(); ++i) {
        count += exact[i] != 0;
        right += exact[i] != 0 && got[i] == nearest(exact[i], types.narrow_out);
    }
    return part(right, count);
}

constexpr float kSmall = 0x1p-10f;

// Rows of n entries that sum to kSmall.
std::string rows_of(const Way& way, const Types& types, int K, int n) {
    constexpr int kRows = 256;
    Case given(kRows, n, K);
    for (int r = 0; r < kRows; ++r)
        for (int p = 0; p < n; ++p)
            given.add(r, p, p == 0 ? 1.0f : p == 1 ? kSmall : p == n - 1 ? -1.0f : 0.0f);
    std::vector<float> got = results(way, types, given).front();
    return part(std::count(got.begin(), got.end(), kSmall), got.size());
}

// Long rows that sum to kSmall, of entries at q, q + 1 and q + 2.
std::string lost_at(const Way& way, const Types& types, int K) {
    constexpr int kLength = 512, kShown = 12;
    Case given(kLength - 2, kLength, K);
    for (int q = 0; q + 2 < kLength; ++q)
        for (int p = 0; p < kLength; ++p)
            given.add(q, p, p == q ? 1.0f : p == q + 1 ? kSmall : p == q + 2 ? -1.0f : 0.0f);
    std::vector<float> got = results(way, types, given).front();
    std::string all;
    int lost = 0, partly = 0;
    for (int q = 0; q + 2 < kLength; ++q) {
        auto begin = got.begin() + static_cast<size_t>(q) * K;
        auto kept = std::count(begin, begin + K, kSmall);
        if (kept == 0 && ++lost <= kShown)
            all += (lost > 1 ? "," : "") + std::to_string(q);
        partly += kept > 0 && kept < K;
    }
    if (lost == 0 && partly == 0)
        return "none";
    return (lost == 0 ? "none" : all) + (lost > kShown ? ",... " + std::to_string(lost) + " in all" : "") +
           " [" + std::to_string(partly) + "]";
}

// A random matrix of about 20 entries in a row, and of 1000 in some.
std::string random_matrix(const Way& way, const Types& types, int K) {
    constexpr int kRows = 512, kColumns = 2048, kCalls = 20, kEvery = 64;
    constexpr double kFp32Ulps = 4 * 0x1p-23;
    Case given(kRows, kColumns, K);
    for (float& one : given.dense)
        one = input(types);
    for (int r = 0; r < kRows; ++r) {
        int length = r % kEvery == 0 ? 1000 : 10 + static_cast<int>(20 * std::fabs(drawn()));
        std::map<int, float> entries; // every column once
        while (static_cast<int>(entries.size()) < length) {
            int col = static_cast<int>((drawn() + 1) / 2 * kColumns) % kColumns;
            entries[col] = input(types);
        }
        for (auto [col, value] : entries)
            given.add(r, col, value);
    }
    size_t count = static_cast<size_t>(kRows) * K;
    std::vector<double> exact(count, 0), scale(count, 0);
    for (int p = 0; p < given.nnz(); ++p)
        for (int k = 0; k < K; ++k) {
            double term = static_cast<double>(given.value[p]) * given.at(given.col[p], k);
            exact[static_cast<size_t>(given.row[p]) * K + k] += term;
            scale[static_cast<size_t>(given.row[p]) * K + k] += std::fabs(term);
        }
    std::vector<std::vector<float>> all = results(way, types, given, kCalls);
    size_t right = 0, outside[2] = {0, 0}, longer = count / kEvery; // of short rows and long ones
    double worst = 0;
    for (size_t i = 0; i < count; ++i) {
        right += all[0][i] == nearest(exact[i], types.narrow_out);
        double beyond = std::fabs(all[0][i] - exact[i]) - 2 * ulp(exact[i], types.narrow_out);
        outside[i / K % kEvery == 0] += !(beyond <= kFp32Ulps * scale[i]);
        if (!(beyond / scale[i] <= worst))
            worst = beyond / scale[i];
    }
    auto equal = std::count_if(all.begin() + 1, all.end(), [&](const std::vector<float>& other) {
        return std::memcmp(other.data(), all[0].data(), count * sizeof(float)) == 0;
    });
    char text[128];
    std::snprintf(text, sizeof text, "%2d of %d | %s | %s, %s | %.1e", static_cast<int>(equal), kCalls - 1,
                  part(right, count).c_str(), part(outside[0], count - longer).c_str(),
                  part(outside[1], longer).c_str(), worst);
    return text;
}

constexpr int kLengths[] = {3, 4, 8, 16, 32, 64, 128, 256, 1024};

// A row of the table.
std::string one_row(const Way& way, const Types& types, int K) {
    std::string line;
    try {
        line =
            products(way, types, K, false) + " | " + (types.narrow_in ? products(way, types, K, true) : "-");
        for (int n : kLengths)
            line += " | " + rows_of(way, types, K, n);
        line += " | " + lost_at(way, types, K) + " | " + random_matrix(way, types, K);
    } catch (const std::exception& error) {
        line += (line.empty() ? "" : " | ") + std::string(error.what());
    }
    return "| " + std::string(way.name) + " | " + types.name + " | " + std::to_string(K) + " | " + line +
           " |";
}

void head() {
    cudaDeviceProp device;
    int version[3];
    CHECK(cudaGetDeviceProperties(&device, 0));
    CHECK(cusparseGetProperty(MAJOR_VERSION, &version[0]));
    CHECK(cusparseGetProperty(MINOR_VERSION, &version[1]));
    CHECK(cusparseGetProperty(PATCH_LEVEL, &version[2]));
    std::printf("cuSPARSE %d.%d.%d on %s\n\n", version[0], version[1], version[2], device.name);
    std::printf("| algorithm | types | K | product | kept");
    for (int n : kLengths)
        std::printf(" | n=%d", n);
    std::printf(" | lost at | equal | nearest | outside | worst |\n|");
    for (size_t i = 0; i < 10 + std::size(kLengths); ++i)
        std::printf("---|");
    std::printf("\n");
}

} // namespace

int main(int argc, char** argv) {
    bool one = argc > 3 && std::string(argv[1]) == "--one"; // way, types and numbers of columns
    std::vector<int> widths;
    for (int i = one ? 4 : 1; i < argc; ++i)
        widths.push_back(std::atoi(argv[i]));
    if (widths.empty())
        widths = {128, 4096};
    if (one) {
        for (int K : widths) {
            std::printf("%s\n",
                        one_row(kWays.at(std::atoi(argv[2])), kTypes.at(std::atoi(argv[3])), K).c_str());
            std::fflush(stdout);
        }
        std::_Exit(0); // whatever a fault has left of the library
    }
    try {
        head();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    std::string rest;
    for (int K : widths)
        rest += " " + std::to_string(K);
    for (size_t types = 0; types < kTypes.size(); ++types)
        for (size_t way = 0; way < kWays.size(); ++way) {
            std::fflush(stdout); // before the process writes
            std::string command =
                std::string(argv[0]) + " --one " + std::to_string(way) + " " + std::to_string(types);
            if (int status = std::system((command + rest).c_str()))
                std::printf("| %s | %s | - | its process ended with %d |\n", kWays[way].name,
                            kTypes[types].name, status);
        }
    return 0;
}
