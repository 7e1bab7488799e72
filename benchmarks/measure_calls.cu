// Calls of several kernels of one task, timed in turn or for Nsight Compute: part of benchmarks/gpu_model.py collect.
//
//     measure_calls times SKIPPED LABEL...       prints JSON lines
//     measure_calls profile SKIPPED LABEL LOCK   under Nsight Compute, which starts with the profiling off
//
// Kernels are linked by the names mskb_call_0, mskb_call_1 ..., the baseline as number 0; SKIPPED are those that are left
// out, as "-,3,7". Whoever times waits for a line on standard input, so that many processes can start before one of them
// measures; whoever is profiled waits for a lock.
//
// A call finds an idle device, cold caches of the device and a host whose last launch was another kernel's, as one of the
// judge's workers does. Whole calls are by the host's clock; times on the device are between events behind a kernel that
// keeps the device busy until all of the call's work is there. In front of the launches of a profiled call comes a
// marker, whose grid has one block more than the kernel's number.
#include <sys/file.h>
#define main judge_main
#include "harness/judge.cu"
#undef main
#include "mskb/arena.h"
#include "mskb/ledger.h"
#include "mskb/timing.h"
#include "mskb/used_process.h"

extern "C" cudaError_t cudaProfilerStart();
extern "C" cudaError_t cudaProfilerStop();

#define KERNEL(n)                                                                                            \
    extern "C" void mskb_call_##n(const mskb::Sizes&, const mskb::Arguments&) __attribute__((weak));
// clang-format off
#define ALL(X) \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) \
    X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
// clang-format on
ALL(KERNEL)

namespace {

constexpr int kTurns = 5, kSeries = 3, kFewest = 3;
constexpr double kEnoughSeconds = 0.15; // of a kernel's calls at a case
constexpr double kSlow = 2e-3;          // seconds of a call that is timed but a few times

using Call = void (*)(const mskb::Sizes&, const mskb::Arguments&);

#define NAMED(n) mskb_call_##n,
const Call calls[] = {ALL(NAMED)};
constexpr int kMost = sizeof calls / sizeof *calls;

__global__ void mskb_marker() {}
__global__ void empty_kernel() {}
__global__ void block_kernel(long long cycles) {
    for (long long start = clock64(); clock64() - start < cycles;) {
    }
}

[[noreturn]] void gave_up(int number, const std::string& why) {
    std::printf("{\"failed\": %d, \"why\": \"%s\"}\n", number, why.c_str());
    std::fflush(stdout);
    std::_Exit(1);
}

void finish(int number) {
    cudaError_t pending = cudaGetLastError(), done = cudaDeviceSynchronize();
    if (pending != cudaSuccess || done != cudaSuccess)
        gave_up(number, cudaGetErrorString(pending != cudaSuccess ? pending : done));
}

double middle(std::vector<double> all) {
    if (all.empty())
        return 0;
    std::sort(all.begin(), all.end());
    size_t half = all.size() / 2;
    return all.size() % 2 ? all[half] : (all[half - 1] + all[half]) / 2;
}

// The kernels, and the buffers and inputs of one case.
class Bench {
  public:
    Bench(const mskb::Row& row, const std::vector<int>& numbers)
        : row_(row), numbers_(numbers), specs_(mskb::task().buffers(row.sizes)), layout_(specs_),
          memory_(layout_.bytes), scratch_(mskb::CacheFlush::bytes()),
          flush_(static_cast<unsigned char*>(scratch_.get())),
          inputs_(mskb::task(), row, specs_, 1, mskb::label_stream(row.label), mskb::kTimedStream) {
        MSKB_CUDA(cudaMemset(scratch_.get(), 0, scratch_.bytes()));
        for (const mskb::Request::Span& span : layout_.spans) {
            working_.emplace_back(static_cast<unsigned char*>(memory_.get()) + span.offset, span.bytes);
            arguments_.buffers.push_back(working_.back().get());
        }
    }

    // How far each kernel's outputs are from the baseline's, and from their root mean square.
    void check() {
        std::vector<mskb::DeviceBuffer> kept;
        for (int number : numbers_) {
            prepare(true);
            call(number);
            finish(number);
            std::string far, size;
            size_t place = 0;
            for (size_t i = 0; i < specs_.size(); ++i) {
                if (std::string over = working_[i].overrun(); !over.empty())
                    gave_up(number, std::string(specs_[i].name) + " was " + over);
                if (specs_[i].use == mskb::Use::kInput && inputs_.changed(i, working_[i].get()))
                    gave_up(number, std::string(specs_[i].name) + " was changed");
                if (!specs_[i].is_written())
                    continue;
                if (number == 0) {
                    kept.emplace_back(specs_[i].bytes());
                    MSKB_CUDA(cudaMemcpy(kept.back().get(), working_[i].get(), specs_[i].bytes(),
                                         cudaMemcpyDeviceToDevice));
                }
                const void* other = kept.at(place++).get();
                far += written(mskb::largest_difference(working_[i].get(), other, specs_[i]));
                size += written(mskb::root_mean_square(other, specs_[i]));
            }
            std::printf("{\"checked\": %d, \"case\": \"%s\", \"apart\": [%s], \"size\": [%s]}\n", number,
                        row_.label.c_str(), far.substr(0, far.size() - 1).c_str(),
                        size.substr(0, size.size() - 1).c_str());
            std::fflush(stdout); // or nobody knows who hangs
        }
    }

    // Calls in turn, in another order each time, and a few of a kernel one after another. The first of these does not
    // count, as the judge's: it finds the instructions of another kernel in the caches of host and device.
    void time() {
        std::vector<double> whole[kMost], device[kMost], empty;
        prepare(true);
        mskb::Rng rng(1, mskb::label_stream(row_.label), 7);
        std::vector<int> order = numbers_;
        for (int turn = 0; turn < kTurns; ++turn) {
            for (size_t k = order.size(); k > 1; --k)
                std::swap(order[k - 1], order[rng.below(k)]);
            for (int number : order) {
                std::vector<double>& of_whole = whole[number];
                const double host = middle(of_whole);
                if (of_whole.size() >= kFewest &&
                    host * static_cast<double>(of_whole.size()) > kEnoughSeconds)
                    continue;
                if (host < kSlow)
                    timed(number);
                for (int k = 0; k < (host < kSlow ? kSeries : 1); ++k)
                    of_whole.push_back(timed(number));
                if (host < kSlow || device[number].empty())
                    device[number].push_back(on_device(number, of_whole.back()));
            }
            for (int k = 0; k < 2; ++k) {
                prepare();
                empty_kernel<<<1, 1>>>();
                empty.push_back(mskb::timed_call([] { empty_kernel<<<1, 1>>>(); }));
            }
        }
        for (int number : numbers_)
            std::printf("{\"timed\": %d, \"case\": \"%s\", \"whole_us\": %.3f, \"device_us\": %.3f, "
                        "\"empty_us\": %.3f, \"calls\": %d}\n",
                        number, row_.label.c_str(), middle(whole[number]) * 1e6, middle(device[number]) * 1e6,
                        middle(empty) * 1e6, static_cast<int>(whole[number].size()));
    }

    void profile() {
        for (int number : numbers_) {
            prepare(true);
            call(number);
            finish(number);
            prepare(true);
            MSKB_CUDA(cudaProfilerStart());
            mskb_marker<<<number + 1, 32>>>();
            call(number);
            finish(number);
            MSKB_CUDA(cudaProfilerStop());
        }
    }

  private:
    static std::string written(double value) {
        char text[40];
        std::snprintf(text, sizeof text, "%.6g,", std::isfinite(value) ? value : 1e300);
        return text;
    }

    // Inputs are put there `anew`, or where calls change them.
    void prepare(bool anew = false) {
        for (const mskb::BufferSpec& spec : specs_)
            anew = anew || spec.use == mskb::Use::kInOut;
        if (anew)
            inputs_.place(working_);
        flush_();
        MSKB_CUDA(cudaDeviceSynchronize());
    }

    void call(int number) const { calls[number](row_.sizes, arguments_); }

    double timed(int number) {
        prepare();
        empty_kernel<<<1, 1>>>();
        double seconds = mskb::timed_call([&] { call(number); });
        finish(number);
        return seconds;
    }

    double on_device(int number, double host) {
        int device = 0, khz = 0;
        MSKB_CUDA(cudaGetDevice(&device));
        MSKB_CUDA(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, device));
        double blocked = std::clamp(2 * host, 50e-6, 20e-3);
        prepare();
        cudaEvent_t begin, end;
        MSKB_CUDA(cudaEventCreate(&begin));
        MSKB_CUDA(cudaEventCreate(&end));
        block_kernel<<<1, 1>>>(static_cast<long long>(blocked * khz * 1e3));
        MSKB_CUDA(cudaEventRecord(begin));
        call(number);
        MSKB_CUDA(cudaEventRecord(end));
        finish(number);
        float milliseconds = 0;
        MSKB_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
        cudaEventDestroy(begin);
        cudaEventDestroy(end);
        return milliseconds * 1e-3;
    }

    const mskb::Row& row_;
    const std::vector<int>& numbers_;
    std::vector<mskb::BufferSpec> specs_;
    mskb::Layout layout_;
    mskb::DeviceBuffer memory_, scratch_;
    mskb::CacheFlush flush_;
    mskb::Inputs inputs_;
    std::vector<mskb::WorkingBuffer> working_;
    mskb::Arguments arguments_;
};

} // namespace

int main(int argc, char** argv) {
    if (argc < 4)
        return 64;
    const bool times = std::string(argv[1]) == "times";
    std::vector<int> numbers;
    for (int number = 0; number < kMost; ++number)
        if (calls[number] != nullptr &&
            ("," + std::string(argv[2]) + ",").find("," + std::to_string(number) + ",") == std::string::npos)
            numbers.push_back(number);
    mskb::make_used();
    std::vector<std::string> labels(argv + 3, argv + (times ? argc : 4));
    if (times) {
        std::printf("{\"ready\": 1}\n");
        std::fflush(stdout);
        if (std::getchar() == EOF)
            return 1;
    } else {
        int lock = argc > 4 ? open(argv[4], O_RDWR | O_CREAT, 0644) : -1;
        if (lock < 0 || flock(lock, LOCK_EX) != 0)
            return 64;
    }
    std::vector<mskb::Row> rows = mskb::task().rows();
    for (const std::string& label : labels) // what is wrong is found before anything is timed
        for (const mskb::Row& row : rows)
            if (row.label == label && times)
                Bench(row, numbers).check();
    for (const std::string& label : labels)
        for (const mskb::Row& row : rows)
            if (row.label == label) {
                Bench bench(row, numbers);
                times ? bench.time() : bench.profile();
                std::fflush(stdout);
            }
    if (times)
        std::printf("{\"over\": 1}\n");
    std::fflush(stdout);
    std::_Exit(0);
}
