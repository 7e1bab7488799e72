// The judge of a rendered harness: starts the workers, runs the cases of a task one after the other (case_run.h) and
// reports on each.
#pragma once
#include <csignal>
#include <cstring>
#include <string>
#include <vector>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include "mskb/case_run.h"
#include "mskb/given.h"
#include "mskb/only_gpu.h"
#include "mskb/timing.h"
#include "mskb/workers.h"

namespace mskb {

constexpr size_t kContextBytes = size_t{2} << 30; // of device memory, about what the workers' contexts take

inline void report_begin(const Report& report, const Options& options, const char* task,
                         const char* precision) {
    cudaDeviceProp properties;
    int device = 0, driver = 0, runtime = 0;
    MSKB_CUDA(cudaGetDevice(&device));
    MSKB_CUDA(cudaGetDeviceProperties(&properties, device));
    MSKB_CUDA(cudaDriverGetVersion(&driver));
    MSKB_CUDA(cudaRuntimeGetVersion(&runtime));
    report.write(Line("begin")
                     .add("task", task)
                     .add("precision", precision)
                     .add("seed", std::to_string(options.seed))
                     .add("device", properties.name)
                     .add("compute_capability",
                          std::to_string(properties.major) + "." + std::to_string(properties.minor))
                     .add("multiprocessors", properties.multiProcessorCount)
                     .add("l2_bytes", properties.l2CacheSize)
                     .add("memory_bytes", static_cast<size_t>(properties.totalGlobalMem))
                     .add("driver", driver)
                     .add("runtime", runtime));
}

// Exit codes: 0 all cases right, 1 some are not, 64 usage, 70 fault, 74 the harness failed, 75 timeout.
inline int run(int argc, char** argv) {
    Options options = parse_options(argc, argv);
    for (int i = 1; i < argc; ++i) // command lines can be read by others, and the seed is nobody else's
        if (std::strcmp(argv[i - 1], "--seed") == 0)
            std::memset(argv[i], '-', std::strlen(argv[i]));
#ifdef __linux__
    if (!options.report.empty())
        prctl(PR_SET_PDEATHSIG, SIGKILL); // a killed caller leaves no harness behind
    prctl(PR_SET_DUMPABLE, 0);            // no other process looks into this one
#endif
    Report report(options.report);
    if (!report.ok())
        return 74;
    std::vector<Row> rows;
    for (int time = 0; time < options.repeat; ++time)
        for (Row row : task().rows())
            if (options.cases == "all" || options.cases == (row.sweep ? "sweep" : "verify")) {
                row.label += time > 0 ? " again " + std::to_string(time) : ""; // which its inputs follow from
                rows.push_back(row);
            }
    for (const std::string& text : options.extra)
        rows.push_back(row_of(text));
    if (!options.gpu_node.empty())
        see_only(options.gpu_node);
    Workers workers(options);
    Helpers helpers(options.helper_cores, options.core, options.workers_core);
    run_on(options.core); // which nobody is to disturb: the judge waits without sleeping
    report_begin(report, options, task().name(), task().precision());
    size_t free_bytes = 0, total_bytes = 0, largest = 1;
    MSKB_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
    free_bytes -= std::max(free_bytes / 16, std::min(free_bytes / 2, kContextBytes));
    int timed_cases = 0;
    for (const Row& row : rows) {
        if (!CaseRun::left_out(options, row, free_bytes).empty())
            continue;
        timed_cases += row.sweep;
        largest = std::max(largest, Layout(task().buffers(row.sizes)).bytes);
    }
    size_t for_slots = std::max(largest, std::min({kMostSlots * largest, kSlotBytes, free_bytes / 8}));
    for_slots = (for_slots + kAlignment - 1) / kAlignment * kAlignment;
    SharedMemory memory = SharedMemory::create(for_slots + CacheFlush::bytes());
    workers.admit(report, memory, for_slots);
    GpuState gpu;
    std::vector<HostBuffer> host;
    if (options.ahead) // there is time for what takes long
        for (const Row& row : rows)
            if (CaseRun::left_out(options, row, free_bytes).empty())
                Oracle::make_room(host, task().buffers(row.sizes));
    Run shared{options, report, workers, gpu, memory, for_slots, host, helpers, free_bytes, timed_cases};
    bool ok = true;
    for (size_t i = 0; i < rows.size() && (ok || !options.first_failure); ++i)
        ok = CaseRun(shared, static_cast<int>(i), rows[i]).run(ok) && ok;
    workers.join(1); // where no case was run
    workers.leave();
    report.write(Line("end").add("ok", ok));
    return ok ? 0 : 1;
}

} // namespace mskb
