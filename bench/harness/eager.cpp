// The worker as a library: a Python process loads it (pytorch/worker.py), gives it functions of its own and is the worker
// of a baseline in PyTorch from then on. The interpreter's process loads us, and not we it, as many Pythons come without
// a library.
#include <cstddef>
#include <cuda_runtime.h>
#include <stdexcept>
#include <string>
#include <vector>
#include "mskb/buffers.h"
#include "mskb/calls.h"

#define MSKB_OPEN extern "C" __attribute__((visibility("default")))

// Functions of the Python process. Each returns nullptr, or what went wrong.
struct MskbPython {
    const char* (*prepare)(const double* sizes, size_t count);
    const char* (*bind)(void* const* buffers, size_t count);
    const char* (*call)();
    const char* (*finish)();
};

namespace {

MskbPython python;

void check(const char* wrong) {
    if (wrong != nullptr)
        throw std::runtime_error(wrong);
}

} // namespace

// On the CPU device, whose memory is closed to the host's code.
MSKB_OPEN void mskb_copy(void* to, const void* from, size_t bytes) {
    MSKB_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDefault));
}

MSKB_OPEN int mskb_work(int argc, char** argv, const MskbPython* functions) {
    python = *functions;
    return mskb::work(argc, argv);
}

void mskb::prepare_candidate(const mskb::Sizes& sizes) {
    check(python.prepare(sizes.data(), sizes.size()));
}

void mskb::bind_candidate(const mskb::Sizes&, const mskb::Arguments& device) {
    check(python.bind(device.buffers.data(), device.buffers.size()));
}

void mskb::call_candidate(const mskb::Sizes&, const mskb::Arguments&) {
    check(python.call());
}

void mskb::finish_candidate() {
    check(python.finish());
}
