// The driver of a rendered harness: runs the cases of a task one after the other (case_run.h) and reports on each.
#pragma once
#include <csignal>
#include <string>
#include <vector>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include "mskb/case_run.h"
#include "mskb/given.h"

namespace mskb {

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
#ifdef __linux__
    if (!options.report.empty())
        prctl(PR_SET_PDEATHSIG, SIGKILL); // a killed caller leaves no harness behind
#endif
    Report report(options.report);
    if (!report.ok())
        return 74;
    std::vector<Row> rows;
    for (const Row& row : task().rows())
        if (options.cases == "all" || options.cases == (row.sweep ? "sweep" : "verify"))
            rows.push_back(row);
    for (const std::string& text : options.extra)
        rows.push_back(row_of(text));
    report_begin(report, options, task().name(), task().precision());
    CacheFlush flush;
    bool ok = true;
    {
        Watchdog watchdog(report);
        std::vector<HostBuffer> host;
        for (size_t i = 0; i < rows.size() && (ok || !options.first_failure); ++i)
            ok = CaseRun(options, report, watchdog, flush, host, static_cast<int>(i), rows[i]).run(ok) && ok;
    }
    report.write(Line("end").add("ok", ok));
    return ok ? 0 : 1;
}

} // namespace mskb
