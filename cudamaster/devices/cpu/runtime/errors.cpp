// The last error, and the sticky one that a failed kernel leaves for every later call.
#include "executor.h"

namespace executor {

namespace {

thread_local cudaError_t last_error = cudaSuccess;
std::atomic<cudaError_t> sticky{cudaSuccess};

} // namespace

cudaError_t sticky_error() {
    return sticky.load();
}

void set_sticky_error(cudaError_t error) {
    cudaError_t none = cudaSuccess;
    sticky.compare_exchange_strong(none, error);
}

// Every API call ends here: what it returns, and what cudaGetLastError will say.
cudaError_t report(cudaError_t error) {
    if (cudaError_t lasting = sticky_error())
        error = lasting;
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

} // namespace executor

using namespace executor;

cudaError_t cudaGetLastError() {
    cudaError_t error = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError() {
    cudaError_t lasting = sticky_error();
    return lasting ? lasting : last_error;
}

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define X(name, value, text)                                                                                 \
    case name:                                                                                               \
        return #name;
#include "cudamaster_cpu/errors.def"
#undef X
    }
    return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
#define X(name, value, text)                                                                                 \
    case name:                                                                                               \
        return text;
#include "cudamaster_cpu/errors.def"
#undef X
    }
    return "unrecognized error code";
}
