// Which kernels a call launches, and what a launch asks of a multiprocessor: for what is told of a candidate where the
// GPU's counters cannot be read.
//
// Noted on the way from the candidate to the runtime (ledger.h), while recording. What takes another way is not seen:
// kernels that kernels launch, and kernel nodes that are put into a graph by hand. A captured launch counts once.
#pragma once
#include <cstddef>
#include <cstdio>
#include <cuda_runtime.h>
#include <utility>
#include <vector>
#include "mskb/report.h"

#ifndef MSKB_CPU_DEVICE // which launches without the runtime

namespace mskb {

constexpr size_t kMostLaunches = 64; // kinds that are told apart; what is printed is kept to so many bytes

// Launches of one kernel that do not differ.
struct Launch {
    const void*
        kernel; // the function or, as nvcc launches from 13.0 on, its handle: the runtime takes either
    dim3 grid, block;
    size_t dynamic_bytes; // of shared memory
    size_t count;
};

class Launches {
  public:
    void start() {
        recording_ = true;
        all_ = 0;
        seen_.clear();
    }
    void stop() { recording_ = false; }

    // In the way of every launch, timed ones too: one branch while nothing is recorded.
    void note(const void* kernel, const dim3& grid, const dim3& block, size_t dynamic_bytes) {
        if (recording_)
            add({kernel, grid, block, dynamic_bytes, 1});
    }

    // One line for each kind of launch, `launch {json}`, to stderr. It may leave errors behind in the runtime.
    void print() const {
        for (const Launch& launch : seen_)
            std::fprintf(stderr, "launch %s\n", described(launch).json().c_str());
    }

  private:
    // Out of line, for the sake of the branch.
    [[gnu::noinline]] void add(const Launch& launch) {
        ++all_;
        for (Launch& other : seen_)
            if (same(launch, other)) {
                ++other.count;
                return;
            }
        if (seen_.size() < kMostLaunches)
            seen_.push_back(launch);
    }

    static bool same(const Launch& a, const Launch& b) {
        return a.kernel == b.kernel && same(a.grid, b.grid) && same(a.block, b.block) &&
               a.dynamic_bytes == b.dynamic_bytes;
    }
    static bool same(dim3 a, dim3 b) { return a.x == b.x && a.y == b.y && a.z == b.z; }

    // What the runtime does not say is left out.
    Line described(const Launch& launch) const {
        Line line("launch");
        line.add("count", launch.count).add("all_launches", all_);
        line.add("grid", numbers(launch.grid)).add("block", numbers(launch.block));
        line.add("dynamic_shared_bytes", launch.dynamic_bytes);
#if CUDART_VERSION >= 12030
        const char* symbol = nullptr;
        if (cudaFuncGetName(&symbol, launch.kernel) == cudaSuccess && symbol != nullptr)
            line.add("symbol", symbol);
#endif
        cudaFuncAttributes attributes{};
        if (cudaFuncGetAttributes(&attributes, launch.kernel) == cudaSuccess)
            line.add("registers", attributes.numRegs)
                .add("static_shared_bytes", attributes.sharedSizeBytes)
                .add("local_bytes", attributes.localSizeBytes);
        int blocks = 0, threads = static_cast<int>(launch.block.x * launch.block.y * launch.block.z);
        if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, launch.kernel, threads,
                                                          launch.dynamic_bytes) == cudaSuccess)
            line.add("active_blocks", blocks);
        add_limits(line);
        return line;
    }

    static std::vector<double> numbers(dim3 d) { return {double(d.x), double(d.y), double(d.z)}; }

    static void add_limits(Line& line) {
        int device = 0;
        if (cudaGetDevice(&device) != cudaSuccess)
            return;
        const std::pair<const char*, cudaDeviceAttr> limits[] = {
            {"major", cudaDevAttrComputeCapabilityMajor},
            {"minor", cudaDevAttrComputeCapabilityMinor},
            {"sms", cudaDevAttrMultiProcessorCount},
            {"warp_size", cudaDevAttrWarpSize},
            {"threads_per_sm", cudaDevAttrMaxThreadsPerMultiProcessor},
            {"blocks_per_sm", cudaDevAttrMaxBlocksPerMultiprocessor},
            {"registers_per_sm", cudaDevAttrMaxRegistersPerMultiprocessor},
            {"shared_bytes_per_sm", cudaDevAttrMaxSharedMemoryPerMultiprocessor},
            {"reserved_shared_bytes", cudaDevAttrReservedSharedMemoryPerBlock},
        };
        for (auto [name, attribute] : limits)
            if (int value = 0; cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess)
                line.add(name, value);
    }

    bool recording_ = false;
    size_t all_ = 0;
    std::vector<Launch> seen_;
};

// No static of a function, whose guard would be a second branch.
inline Launches launches;

} // namespace mskb

#endif
