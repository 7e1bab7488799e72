// The process that a baseline or a candidate runs in: it makes the calls that the judge asks for, times them and says
// what the runtime says. It knows neither the seed nor what has to come of a call.
//
//     worker --channel NAME [--work candidate|baseline] [--exact] [--in-place] [--unconfined] [--inputs-only]
//            [--no-inputs] [--readable FOLDER]...
//
// Buffers lie in memory shared with the judge. On the CPU device, and with --exact, calls work on copies in allocations
// of the worker's own, so that the device or a memory checker sees the bounds of each; with --exact without guard zones.
// With --in-place they work on the shared memory there too.
// With --inputs-only nothing else is copied: what calls write is lost. With --no-inputs nothing is.
// A worker that is confined may read files of the folders of --readable too.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <exception>
#include <optional>
#include <string>
#include <vector>
#ifdef __linux__
#include <csignal>
#include <sys/prctl.h>
#endif
#include "mskb/arena.h"
#include "mskb/calls.h"
#include "mskb/channel.h"
#include "mskb/confine.h"
#include "mskb/ledger.h"
#include "mskb/mask.h"
#include "mskb/seal.h"
#include "mskb/used_process.h"
#include "mskb/timing.h"

#ifdef MSKB_CPU_DEVICE
// Of the checker of the CPU device, where that is linked: a call comes, and nothing has written these bytes of a buffer.
extern "C" void cudamaster_cpu_unwritten(const void* base, size_t bytes) __attribute__((weak));
#else
// Of the CUDA runtime; cuda_profiler_api.h, which declares them, is not part of every installation.
extern "C" cudaError_t cudaProfilerStart();
extern "C" cudaError_t cudaProfilerStop();
#endif

namespace mskb {
namespace {

#ifdef MSKB_CPU_DEVICE
constexpr bool kCopies = true;
constexpr int kMaskBlocks = 4, kMaskThreads = 1;     // a thread there is a loop
constexpr double kSpinSeconds = 0, kBetweenSpin = 0; // the processors belong to the kernels
#else
constexpr bool kCopies = false;
constexpr int kMaskBlocks = 1024, kMaskThreads = 256;
// Seconds in which a request is waited for without sleeping: that of a call, and the next of a series.
constexpr double kSpinSeconds = 2e-3, kBetweenSpin = 100e-6;

constexpr double kLeastBlock = 50e-6, kLongestBlock = 20e-3; // seconds

__global__ void empty_kernel() {}

// Keeps the stream busy, while the host puts a call's work behind it.
__global__ void block_kernel(long long cycles) {
    for (long long start = clock64(); clock64() - start < cycles;) {
    }
}
#endif

__global__ void mask_kernel(unsigned char* data, size_t bytes, MaskKey key, uint32_t buffer) {
    size_t first = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (size_t i = first; i < mask_blocks(bytes); i += static_cast<size_t>(gridDim.x) * blockDim.x)
        mask_block(data, bytes, key, buffer, i);
}

void launch_seal(const unsigned char* data, size_t bytes, uint64_t key, uint64_t more,
                 unsigned long long* sum) {
    size_t blocks = std::min<size_t>(kMaskBlocks, sealed_words(bytes) / kMaskThreads + 1);
    seal_kernel<<<static_cast<unsigned int>(blocks), kMaskThreads>>>(data, bytes, key, more, sum);
    MSKB_CUDA(cudaGetLastError());
}

struct WorkerOptions {
    std::string channel;
    std::vector<std::string> readable;
    bool candidate = true, exact = false, in_place = false, confined = true, inputs_only = false,
         no_inputs = false;
};

WorkerOptions parse_worker_options(int argc, char** argv) {
    WorkerOptions options;
    for (int i = 1; i < argc; ++i) {
        std::string key = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
        if (key == "--exact")
            options.exact = true;
        else if (key == "--in-place")
            options.in_place = true;
        else if (key == "--unconfined")
            options.confined = false;
        else if (key == "--inputs-only")
            options.inputs_only = true;
        else if (key == "--no-inputs")
            options.no_inputs = true;
        else if (key == "--channel")
            options.channel = value, ++i;
        else if (key == "--readable")
            options.readable.push_back(value), ++i;
        else if (key == "--work")
            options.candidate = value == "candidate", ++i;
        else
            harness_failure("a worker cannot read " + key + "; the judge starts it");
    }
    return options;
}

int connected(const std::string& name) {
    sockaddr_un address;
    socklen_t length = channel_address(name, address);
    int descriptor = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (descriptor < 0 || connect(descriptor, reinterpret_cast<sockaddr*>(&address), length) != 0)
        harness_failure("a worker finds no judge");
    return descriptor;
}

class Worker {
  public:
    explicit Worker(const WorkerOptions& options)
        : options_(options), copies_((kCopies && !options.in_place) || options.exact),
          guard_(options.exact ? 0 : kGuardBytes), channel_(connected(options.channel)) {
        make_used(); // in the context that the memory of the sealer made
    }

    int serve() {
        Request request;
        int passed = -1;
        while (channel_.receive(request, prepared_ ? kSpinSeconds : kBetweenSpin, &passed)) {
            prepared_ = request.ask == Ask::kPrepare || request.ask == Ask::kRepeat;
            Reply reply{};
            try {
                answer(request, passed, reply);
            } catch (const std::exception& error) {
                if (prepare_candidate == nullptr)
                    throw; // a candidate's, which ends its process
                reply.error = cudaErrorUnknown;
                put(reply.name, "the library failed");
                put(reply.detail, error.what());
            }
            reply.number = request.number;
            passed = -1;
            if (!channel_.send(reply))
                break;
        }
        return 0;
    }

  private:
    void answer(const Request& request, int passed, Reply& reply) {
        switch (request.ask) {
        case Ask::kMemory:
            shared_ = SharedMemory::map(passed, request.memory_bytes);
            flush_.emplace(shared_.base() + request.scratch);
            put(reply.detail,
                options_.confined ? confine(options_.readable).c_str() : "not confined, as was asked for");
            return;
        case Ask::kCase:
            take_case(request);
            return;
        case Ask::kPrepare:
            if (request.sealed)
                reply.seal = seal(request.seal);
            forget_scratch();
            move_to(request.slot);
            if (request.masked)
                unmask(request.mask);
            copy(true);
            forget_outputs();
            if (options_.candidate && bind_candidate != nullptr)
                bind_candidate(sizes_, arguments_);
            (*flush_)();
            break;
        case Ask::kCall:
            warm_interpreter();
            empty_launch(); // the host's way to the device is warm, whatever the worker did before
            reply.seconds = timed_call([this] { call(); });
            break;
        case Ask::kRepeat:
            reply.seconds = timed_call([this, &request] {
                for (int k = 0; k < request.repeats; ++k)
                    call();
            });
            break;
        case Ask::kEmpty:
            empty_launch();
            reply.seconds = timed_call([] { empty_launch(); });
            return;
        case Ask::kDeviceTime:
            reply.seconds = device_time();
            break;
        case Ask::kProfile:
            profiled_call();
            break;
        case Ask::kLaunches:
            recorded_call();
            break;
        }
        if (request.ask != Ask::kPrepare && options_.candidate && finish_candidate != nullptr)
            finish_candidate(); // no clock runs any more
        cudaError_t pending = cudaGetLastError(), finished = cudaDeviceSynchronize();
        cudaError_t status = pending != cudaSuccess ? pending : finished;
        reply.error = status;
        if (status != cudaSuccess) {
            put(reply.name, cudaGetErrorName(status));
            put(reply.detail, cudaGetErrorString(status));
            return;
        }
        if (request.ask != Ask::kPrepare) {
            copy(false);
            put(reply.detail, ledger().unsettled().c_str());
            reply.asked = ledger().largest();
        }
        if (request.ask == Ask::kLaunches)
            print_launches();
    }

    void take_case(const Request& request) {
        forget_scratch();
        arguments_.buffers.clear();
        sizes_.assign(request.size, request.size + request.sizes);
        spans_.assign(request.buffer, request.buffer + request.buffers);
        own_.clear();
        for (const Request::Span& span : spans_)
            if (copies_)
                own_.emplace_back(span.bytes + 2 * guard_);
        if (options_.candidate && prepare_candidate != nullptr) {
            prepare_candidate(sizes_);
            MSKB_CUDA(cudaDeviceSynchronize());
        }
    }

    void move_to(size_t slot) {
        slot_ = slot;
        arguments_.buffers.clear();
        for (size_t i = 0; i < spans_.size(); ++i)
            arguments_.buffers.push_back(copies_ ? static_cast<unsigned char*>(own_[i].get()) + guard_
                                                 : shared_.base() + slot + spans_[i].offset);
    }

    // Of what the call before left in scratch memory, nothing is there for those after it, wherever they work.
    void forget_scratch() const {
        for (size_t i = 0; i < arguments_.buffers.size(); ++i)
            if (!spans_[i].read && !spans_[i].written)
                MSKB_CUDA(cudaMemsetAsync(arguments_.buffers[i], spans_[i].poison, spans_[i].bytes));
    }

    // What the call before left, where it left it.
    uint64_t seal(const SealKey& key) {
        sealer_.begin(key);
        for (size_t i = 0; i < spans_.size(); ++i)
            if (spans_[i].written)
                sealer_.add(arguments_.buffers[i], spans_[i].bytes);
        return sealer_.seal();
    }

    // And poisons all else once more: calls were made since the judge did, and could have cleared them for this one.
    void unmask(const MaskKey& key) const {
        for (size_t i = 0; i < spans_.size(); ++i) {
            unsigned char* data = shared_.base() + slot_ + spans_[i].offset;
            if (!spans_[i].read)
                MSKB_CUDA(cudaMemsetAsync(data, spans_[i].poison, spans_[i].bytes));
            else if (spans_[i].bytes > 0)
                mask_kernel<<<kMaskBlocks, kMaskThreads>>>(data, spans_[i].bytes, key,
                                                           static_cast<uint32_t>(i));
        }
        MSKB_CUDA(cudaGetLastError());
    }

    // Between the shared buffers and the worker's own, where it has some.
    void copy(bool in) const {
        for (size_t i = 0; i < own_.size() && !options_.no_inputs; ++i) {
            if (options_.inputs_only && !(in && spans_[i].read))
                continue;
            void *shared = shared_.base() + slot_ + spans_[i].offset - guard_, *own = own_[i].get();
            size_t bytes = spans_[i].bytes + 2 * guard_;
            MSKB_CUDA(cudaMemcpy(in ? own : shared, in ? shared : own, bytes, cudaMemcpyDeviceToDevice));
        }
    }

    // An interpreter's way to its launches takes several times as long with cold CPU caches, and a program that calls a
    // module in a loop has warm ones. So one call goes before the timed one; its results are not in the outputs yet.
    void warm_interpreter() {
        if (kCopies || !options_.candidate || finish_candidate == nullptr)
            return;
        call();
        (*flush_)();
        MSKB_CUDA(cudaDeviceSynchronize());
    }

    void call() const { (options_.candidate ? call_candidate : call_baseline)(sizes_, arguments_); }

#ifdef MSKB_CPU_DEVICE
    // What was copied there is poison.
    void forget_outputs() const {
        for (size_t i = 0; i < spans_.size(); ++i)
            if (cudamaster_cpu_unwritten != nullptr)
                cudamaster_cpu_unwritten(arguments_.buffers[i], spans_[i].read ? 0 : spans_[i].bytes);
    }
    static void empty_launch() {}
    double device_time() const { return 0; }
    void profiled_call() const { call(); }
    void recorded_call() const {
        cudamaster_cpu_record(1); // for an observer in the executor, where one is linked
        call();
        cudamaster_cpu_record(0);
    }
    static void print_launches() {}
#else
    void forget_outputs() const {}
    static void empty_launch() { empty_kernel<<<1, 1>>>(); }

    // Seconds between events around a call whose work waits on the device until all of it is there: launches and what
    // the host does between them cost nothing then. A call that waits for the device itself is blocked no longer than
    // kLongestBlock. Work that the legacy stream does not wait for is not seen.
    double device_time() const {
        double host = timed_call([this] { call(); });
        int device = 0, khz = 0;
        MSKB_CUDA(cudaGetDevice(&device));
        MSKB_CUDA(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, device));
        double blocked = std::clamp(2 * host, kLeastBlock, kLongestBlock);
        (*flush_)();
        cudaEvent_t begin, end;
        MSKB_CUDA(cudaEventCreate(&begin));
        MSKB_CUDA(cudaEventCreate(&end));
        block_kernel<<<1, 1>>>(static_cast<long long>(blocked * khz * 1e3));
        MSKB_CUDA(cudaEventRecord(begin));
        call();
        float milliseconds = 0;
        if (cudaEventRecord(end) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess)
            cudaEventElapsedTime(&milliseconds, begin, end);
        cudaEventDestroy(begin);
        cudaEventDestroy(end);
        return milliseconds * 1e-3;
    }

    void profiled_call() const {
        MSKB_CUDA(cudaProfilerStart());
        call();
        cudaDeviceSynchronize();
        MSKB_CUDA(cudaProfilerStop());
    }

    void recorded_call() const {
        launches.start();
        call();
        launches.stop();
    }

    // Once the call's errors are told: what the runtime says to the questions here is none of the candidate's.
    static void print_launches() {
        launches.print();
        cudaGetLastError();
    }
#endif

    WorkerOptions options_;
    bool copies_;
    size_t guard_; // bytes around copies
    Channel channel_;
    std::optional<CacheFlush> flush_;
    SharedMemory shared_;
    size_t slot_ = 0; // where in it the buffers of the next call begin
    Sizes sizes_;
    std::vector<Request::Span> spans_;
    std::vector<DeviceBuffer> own_;
    Sealer sealer_{launch_seal};
    Arguments arguments_;
    bool prepared_ = false;
};

} // namespace

int work(int argc, char** argv) {
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL); // no worker outlives its judge
#endif
    int status = Worker(parse_worker_options(argc, argv)).serve();
    std::_Exit(status); // whatever the candidate left behind does not run
}

} // namespace mskb

#ifdef MSKB_SEPARATE_CANDIDATE
int main(int argc, char** argv) {
    return mskb::work(argc, argv);
}
#endif
