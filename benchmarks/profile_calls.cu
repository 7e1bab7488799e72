// Calls of several kernels of one task for Nsight Compute, which starts this program with the profiling off:
//
//     profile_calls LABEL LOCK
//
// Kernels are linked by the names mskb_call_0, mskb_call_1 ... A call works on fresh inputs of the case LABEL and comes
// once before it is profiled. In front of each a marker is launched, whose grid has one block more than the kernel's
// number. Whatever uses the GPU waits for the lock: other processes may start meanwhile.
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
#define ALL(X)                                                                                               \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18)  \
        X(19) X(20) X(21) X(22) X(23)
ALL(KERNEL)

namespace {

using Call = void (*)(const mskb::Sizes&, const mskb::Arguments&);

__global__ void mskb_marker() {}

#define NAMED(n) mskb_call_##n,
const Call calls[] = {ALL(NAMED)};

void finished(int number, const char* what) {
    cudaError_t pending = cudaGetLastError(), done = cudaDeviceSynchronize();
    if (pending == cudaSuccess && done == cudaSuccess)
        return;
    std::fprintf(stderr, "kernel %d, %s: %s\n", number, what,
                 cudaGetErrorString(pending != cudaSuccess ? pending : done));
    std::_Exit(1);
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 3)
        return 64;
    mskb::make_used();
    int lock = open(argv[2], O_RDWR | O_CREAT, 0644);
    if (lock < 0 || flock(lock, LOCK_EX) != 0)
        return 64;
    for (const mskb::Row& row : mskb::task().rows()) {
        if (row.label != argv[1])
            continue;
        std::vector<mskb::BufferSpec> specs = mskb::task().buffers(row.sizes);
        mskb::Layout layout(specs);
        mskb::DeviceBuffer memory(layout.bytes);
        std::vector<mskb::WorkingBuffer> working;
        mskb::Arguments arguments;
        for (const mskb::Request::Span& span : layout.spans) {
            working.emplace_back(static_cast<unsigned char*>(memory.get()) + span.offset, span.bytes);
            arguments.buffers.push_back(working.back().get());
        }
        mskb::Inputs inputs(mskb::task(), row, specs, 1, mskb::label_stream(row.label), mskb::kTimedStream);
        for (int number = 0; number < static_cast<int>(sizeof calls / sizeof *calls); ++number) {
            if (calls[number] == nullptr)
                continue;
            inputs.place(working);
            calls[number](row.sizes, arguments);
            finished(number, "warm-up");
            inputs.place(working);
            finished(number, "inputs");
            MSKB_CUDA(cudaProfilerStart());
            mskb_marker<<<number + 1, 32>>>();
            calls[number](row.sizes, arguments);
            finished(number, "profiled");
            MSKB_CUDA(cudaProfilerStop());
        }
        return 0;
    }
    return 65;
}
