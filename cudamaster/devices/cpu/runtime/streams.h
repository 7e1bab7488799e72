// Streams and events. Work is done when it is submitted, but for what a stream captures for a graph.
#pragma once

#include "executor.h"

#include <chrono>
#include <functional>
#include <memory>

struct CudamasterCpuGraphNode {
    std::function<cudaError_t()> work;
    std::vector<CudamasterCpuGraphNode*> after;
};

struct CudamasterCpuGraph {
    std::vector<std::shared_ptr<CudamasterCpuGraphNode>> nodes;
    // Allocated by its nodes; it goes with the last that was made of the graph.
    std::shared_ptr<std::vector<void*>> memory{new std::vector<void*>, [](std::vector<void*>* all) {
                                                   for (void* one : *all)
                                                       cudaFree(one);
                                                   delete all;
                                               }};
};

namespace executor {

// What streams capture together; the first of them began it.
struct Capture {
    std::unique_ptr<CudamasterCpuGraph> graph;
    cudaStream_t origin;
    bool invalid = false;
    bool ended = false;
};

} // namespace executor

struct CudamasterCpuStream {
    unsigned flags;
    std::shared_ptr<executor::Capture> capture = nullptr;
    CudamasterCpuGraphNode* last = nullptr; // of what it has captured
    bool joined = true; // the capture's first stream waits for all that this one has captured
};

struct CudamasterCpuEvent {
    bool timed;
    bool recorded;
    std::chrono::steady_clock::time_point time;
    cudaStream_t captured_in =
        nullptr; // the stream that recorded it in a capture, which may be gone, and behind what
    std::shared_ptr<executor::Capture> capture = nullptr;
    CudamasterCpuGraphNode* behind = nullptr;
};

namespace executor {

// Takes the work for a graph where the stream captures, else does it.
cudaError_t submit(cudaStream_t stream, const std::function<cudaError_t()>& work);
bool is_capturing(cudaStream_t stream);
// Something that cannot be captured was asked of the stream, or of all of them: the error it gives, if any captures.
cudaError_t refuse_capture(cudaStream_t stream);
cudaError_t refuse_any_capture();
// Events in a capture.
bool capture_event(cudaEvent_t event, cudaStream_t stream);
bool capture_wait(cudaStream_t stream, cudaEvent_t event, cudaError_t* error);
cudaError_t refuse_captured(cudaEvent_t event);
void forget_stream(cudaStream_t stream);

// launch.cpp
cudaError_t run_launch(const CudamasterCpuLaunch& launch);

} // namespace executor
