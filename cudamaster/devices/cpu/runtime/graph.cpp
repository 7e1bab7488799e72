// CUDA graphs: what streams capture or calls put together, and its launch. Nodes run one after the other, each behind those
// that it depends on.
#include "streams.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

// Work in an order that its dependencies allow, and by node, so that a kernel's parameters can be set.
struct CudamasterCpuGraphExec {
    std::vector<CudamasterCpuGraphNode*> order;
    std::map<CudamasterCpuGraphNode*, std::function<cudaError_t()>> work;
    std::vector<std::shared_ptr<CudamasterCpuGraphNode>> nodes;
    std::shared_ptr<std::vector<void*>> memory;
};

namespace executor {

namespace {

// Host threads may capture at the same time; each call of the runtime looks at them, or changes them, alone.
class Captures {
  public:
    Captures() : lock_(mutex()) {}

  private:
    static std::recursive_mutex& mutex() {
        static auto* one = new std::recursive_mutex;
        return *one;
    }
    std::lock_guard<std::recursive_mutex> lock_;
};
std::set<cudaStream_t>& capturing() {
    static auto* all = new std::set<cudaStream_t>;
    return *all;
}

bool real(cudaStream_t stream) {
    return stream && stream != cudaStreamLegacy && stream != cudaStreamPerThread;
}

CudamasterCpuGraphNode* add(CudamasterCpuGraph& graph, std::function<cudaError_t()> work,
                            std::vector<CudamasterCpuGraphNode*> after) {
    graph.nodes.push_back(
        std::make_shared<CudamasterCpuGraphNode>(CudamasterCpuGraphNode{std::move(work), std::move(after)}));
    return graph.nodes.back().get();
}

cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
                     std::function<cudaError_t()> work) {
    if (!graph || (count && !after))
        return report(cudaErrorInvalidValue);
    *node = add(*graph, std::move(work), std::vector<CudamasterCpuGraphNode*>(after, after + count));
    return report(cudaSuccess);
}

// A launch whose arguments live on.
struct KeptLaunch {
    CudamasterCpuLaunch launch;
    std::vector<const void*> pointers;
    explicit KeptLaunch(const CudamasterCpuLaunch& given)
        : launch(given), pointers(given.pointers, given.pointers + given.pointer_count) {
        launch.closure = given.keep(given.closure);
        launch.pointers = pointers.data();
    }
    ~KeptLaunch() { launch.drop(const_cast<void*>(launch.closure)); }
    KeptLaunch(const KeptLaunch&) = delete;
    KeptLaunch& operator=(const KeptLaunch&) = delete;
};

std::function<cudaError_t()> kept(const CudamasterCpuLaunch& launch) {
    auto copy = std::make_shared<KeptLaunch>(launch);
    return [copy] { return run_launch(copy->launch); };
}

thread_local std::function<cudaError_t()>* node_to_make = nullptr;

// A kernel's node: its launch is made now, with the arguments as they are now.
cudaError_t kernel_work(const cudaKernelNodeParams& node, std::function<cudaError_t()>& work) {
    if (!node.func.submit || !node.kernelParams)
        return cudaErrorInvalidDeviceFunction;
    node_to_make = &work;
    cudaError_t error = node.func.submit(
        node.func.function, {node.gridDim, node.blockDim, node.sharedMemBytes, nullptr}, node.kernelParams);
    node_to_make = nullptr;
    return error;
}

// Blocks the legacy stream: work there would wait for the capture.
bool blocks_legacy() {
    return std::any_of(capturing().begin(), capturing().end(),
                       [](cudaStream_t stream) { return !(stream->flags & cudaStreamNonBlocking); });
}

void end_capture(std::shared_ptr<Capture> capture) {
    capture->ended = true;
    for (auto it = capturing().begin(); it != capturing().end();) {
        if ((*it)->capture != capture) {
            ++it;
            continue;
        }
        (*it)->capture = nullptr;
        (*it)->last = nullptr;
        it = capturing().erase(it);
    }
}

cudaError_t fill_rows(const cudaMemsetParams& node) {
    size_t rows = node.height ? node.height : 1;
    for (size_t row = 0; row < rows; ++row) {
        char* to = static_cast<char*>(node.dst) + row * node.pitch;
        if (node.elementSize == 1) {
            if (cudaError_t error = cudaMemset(to, static_cast<int>(node.value), node.width))
                return error;
            continue;
        }
        std::vector<char> content(node.width * node.elementSize);
        for (size_t i = 0; i < node.width; ++i)
            std::copy_n(reinterpret_cast<const char*>(&node.value), node.elementSize,
                        content.data() + i * node.elementSize);
        if (cudaError_t error = cudaMemcpy(to, content.data(), content.size(), cudaMemcpyHostToDevice))
            return error;
    }
    return cudaSuccess;
}

// Each node behind those that it depends on; false where they go round in a circle.
bool in_order(const CudamasterCpuGraph& graph, std::vector<CudamasterCpuGraphNode*>& order) {
    std::set<const CudamasterCpuGraphNode*> done;
    while (order.size() < graph.nodes.size()) {
        size_t before = order.size();
        for (const auto& node : graph.nodes) {
            bool ready = std::all_of(node->after.begin(), node->after.end(),
                                     [&](const CudamasterCpuGraphNode* one) { return done.count(one); });
            if (ready && done.insert(node.get()).second)
                order.push_back(node.get());
        }
        if (order.size() == before)
            return false;
    }
    return true;
}

cudaError_t run(const CudamasterCpuGraphExec& exec) {
    for (CudamasterCpuGraphNode* node : exec.order)
        if (cudaError_t error = exec.work.at(node)())
            return error;
    return cudaSuccess;
}

} // namespace

bool is_capturing(cudaStream_t stream) {
    Captures alone;
    return real(stream) && stream->capture;
}

// Takes the work, or refuses it; false where it is to be done now.
static bool capture(cudaStream_t stream, const std::function<cudaError_t()>& work, cudaError_t* error) {
    Captures alone;
    if (is_capturing(stream)) {
        *error = stream->capture->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
        if (*error)
            return true;
        auto after = stream->last ? std::vector<CudamasterCpuGraphNode*>{stream->last}
                                  : std::vector<CudamasterCpuGraphNode*>{};
        stream->last = add(*stream->capture->graph, work, after);
        stream->joined = stream == stream->capture->origin;
        return true;
    }
    *error = cudaErrorStreamCaptureImplicit;
    return !real(stream) && stream != cudaStreamPerThread && blocks_legacy();
}

cudaError_t submit(cudaStream_t stream, const std::function<cudaError_t()>& work) {
    cudaError_t error = cudaSuccess;
    return capture(stream, work, &error) ? report(error) : work();
}

cudaError_t refuse_capture(cudaStream_t stream) {
    Captures alone;
    if (!is_capturing(stream))
        return cudaSuccess;
    stream->capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t refuse_any_capture() {
    Captures alone;
    for (cudaStream_t stream : capturing())
        return refuse_capture(stream);
    return cudaSuccess;
}

bool capture_event(cudaEvent_t event, cudaStream_t stream) {
    Captures alone;
    event->capture = is_capturing(stream) ? stream->capture : nullptr;
    if (!event->capture)
        return false;
    event->captured_in = stream;
    event->behind = stream->last;
    return true;
}

// The stream becomes part of the capture, and waits there.
bool capture_wait(cudaStream_t stream, cudaEvent_t event, cudaError_t* error) {
    Captures alone;
    if (!event->capture || !real(stream))
        return false;
    *error = event->capture->ended ? cudaErrorInvalidValue : cudaSuccess; // as of an H200
    if (*error)
        return true;
    if (stream->capture && stream->capture != event->capture) {
        stream->capture->invalid = event->capture->invalid = true;
        *error = cudaErrorStreamCaptureMerge;
        return true;
    }
    bool joins = !stream->capture;
    stream->capture = event->capture;
    capturing().insert(stream);
    std::vector<CudamasterCpuGraphNode*> after;
    for (CudamasterCpuGraphNode* node : {joins ? nullptr : stream->last, event->behind})
        if (node)
            after.push_back(node);
    stream->last = add(*stream->capture->graph, [] { return cudaSuccess; }, after);
    cudaStream_t from = event->captured_in;
    if (capturing().count(from) && from->last == event->behind)
        from->joined = true; // what it does later has to be waited for again
    stream->joined = stream == stream->capture->origin;
    return true;
}

cudaError_t refuse_captured(cudaEvent_t event) {
    Captures alone;
    if (!event->capture)
        return cudaSuccess;
    if (event->capture->ended)
        return cudaErrorInvalidValue; // as of an H200
    event->capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
}

// Without its first stream nobody can end a capture.
void forget_stream(cudaStream_t stream) {
    Captures alone;
    if (stream->capture && stream->capture->origin == stream)
        end_capture(stream->capture);
    capturing().erase(stream);
}

} // namespace executor

using namespace executor;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    Captures alone;
    if (!real(stream))
        return report(cudaErrorStreamCaptureUnsupported);
    if (stream->capture)
        return report(cudaErrorInvalidValue);
    stream->capture = std::make_shared<Capture>(Capture{std::make_unique<CudamasterCpuGraph>(), stream});
    stream->joined = true;
    capturing().insert(stream);
    return report(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    Captures alone;
    *graph = nullptr;
    if (!is_capturing(stream))
        return report(cudaErrorInvalidValue);
    std::shared_ptr<Capture> capture = stream->capture;
    cudaError_t error = capture->origin != stream ? cudaErrorStreamCaptureUnmatched
                        : capture->invalid        ? cudaErrorStreamCaptureInvalidated
                                                  : cudaSuccess;
    for (cudaStream_t one : capturing())
        if (!error && one->capture == capture && !one->joined)
            error = cudaErrorStreamCaptureUnjoined;
    end_capture(capture);
    if (!error)
        *graph = capture->graph.release();
    return report(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    Captures alone;
    *status = !is_capturing(stream)      ? cudaStreamCaptureStatusNone
              : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
    return report(cudaSuccess);
}

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
    *graph = new CudamasterCpuGraph;
    return report(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    if (!graph)
        return report(cudaErrorInvalidValue);
    delete graph;
    return report(cudaSuccess);
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                   size_t count, const cudaKernelNodeParams* parameters) {
    std::function<cudaError_t()> work;
    if (cudaError_t error = kernel_work(*parameters, work))
        return report(error);
    return add_node(node, graph, after, count, std::move(work));
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                     size_t count, void* target, const void* source, size_t bytes,
                                     cudaMemcpyKind kind) {
    return add_node(node, graph, after, count, [=] { return cudaMemcpy(target, source, bytes, kind); });
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                   size_t count, const cudaMemsetParams* parameters) {
    cudaMemsetParams kept = *parameters;
    if (kept.elementSize != 1 && kept.elementSize != 2 && kept.elementSize != 4)
        return report(cudaErrorInvalidValue);
    return add_node(node, graph, after, count, [kept] { return fill_rows(kept); });
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                  size_t count) {
    return add_node(node, graph, after, count, [] { return cudaSuccess; });
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                       size_t count, cudaGraph_t child) {
    cudaGraphExec_t made;
    if (cudaError_t error = cudaGraphInstantiate(&made, child, 0))
        return error;
    std::shared_ptr<CudamasterCpuGraphExec> exec(made);
    return add_node(node, graph, after, count, [exec] { return run(*exec); });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    if (nodes)
        for (size_t i = 0; i < *count; ++i)
            nodes[i] = i < graph->nodes.size() ? graph->nodes[i].get() : nullptr;
    if (!nodes || *count > graph->nodes.size())
        *count = graph->nodes.size();
    return report(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
    *exec = nullptr;
    if (!graph)
        return report(cudaErrorInvalidValue);
    auto made = std::make_unique<CudamasterCpuGraphExec>();
    if (!in_order(*graph, made->order))
        return report(cudaErrorInvalidValue);
    made->nodes = graph->nodes;
    made->memory = graph->memory;
    for (CudamasterCpuGraphNode* node : made->order)
        made->work[node] = node->work;
    *exec = made.release();
    return report(cudaSuccess);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                          unsigned long long flags) {
    return cudaGraphInstantiate(exec, graph, flags);
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* parameters) {
    if (!exec || !exec->work.count(node))
        return report(cudaErrorInvalidValue);
    return report(kernel_work(*parameters, exec->work[node]));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    if (!exec)
        return report(cudaErrorInvalidValue);
    if (!is_capturing(stream))
        return submit(stream, [exec] { return report(run(*exec)); });
    auto kept = std::make_shared<CudamasterCpuGraphExec>(*exec);
    return submit(stream, [kept] { return run(*kept); });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t) {
    return report(exec ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    if (!exec)
        return report(cudaErrorInvalidValue);
    delete exec;
    return report(cudaSuccess);
}

// Done now, captured, or kept for a node.
cudaError_t cudamaster_cpu_launch(const CudamasterCpuLaunch* launch) {
    if (node_to_make) {
        *node_to_make = kept(*launch);
        return cudaSuccess;
    }
    if (is_capturing(launch->stream))
        return submit(launch->stream, kept(*launch));
    return submit(launch->stream, [launch] { return run_launch(*launch); });
}
