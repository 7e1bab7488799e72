// The judge of a rendered harness: starts the workers, runs the cases of a task one after the other (case_run.h) and
// reports on each.
#pragma once
#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <vector>
#ifdef __linux__
#include <sched.h>
#include <sys/prctl.h>
#endif
#include "mskb/case_run.h"
#include "mskb/given.h"

namespace mskb {

constexpr size_t kContextBytes = size_t{1} << 30; // of device memory, about what the workers' contexts take

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

// Starts the command as a worker; without one, this executable itself.
inline void start(std::optional<Contestant>& worker, const char* who, std::vector<std::string> command) {
    if (command.empty())
        command = {"/proc/self/exe", "--work", who};
    worker.emplace(who, std::move(command));
}

// Gives a worker its memory. One that does not come up has failed before its first case.
inline void admit(const Report& report, Contestant& worker, const SharedMemory& memory,
                  std::string& isolation) {
    Outcome outcome = worker.start(memory, isolation);
    if (outcome.ended == Ended::kDone)
        return;
    std::string why =
        outcome.ended == Ended::kTimeout ? "it did not start in time" : outcome.error + ", " + outcome.detail;
    if (std::string(worker.who()) == "baseline")
        harness_failure("the baseline's worker failed at its start: " + why);
    report.write(Line("fault")
                     .add("index", 0)
                     .add("who", worker.who())
                     .add("error", "failed at its start")
                     .add("detail", why)
                     .add("gone", outcome.gone));
    std::_Exit(kFaultExit);
}

// Puts this thread, and what it starts from now on, on one processor core.
inline void run_on([[maybe_unused]] int core) {
#ifdef __linux__
    if (core < 0)
        return;
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    if (sched_setaffinity(0, sizeof cores, &cores) != 0)
        harness_failure("there is no processor core " + std::to_string(core));
#endif
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
    for (const Row& row : task().rows())
        if (options.cases == "all" || options.cases == (row.sweep ? "sweep" : "verify"))
            rows.push_back(row);
    for (const std::string& text : options.extra)
        rows.push_back(row_of(text));
    // Workers come up while this process does. Only one of them runs at a time: on one core all of them find the same
    // caches, and none is luckier than another for as long as it lives. The judge, which waits without sleeping, is not
    // in their way.
    run_on(options.workers_core);
    std::optional<Contestant> baseline, candidate, rival;
    start(baseline, "baseline", options.baseline);
    if (!options.baseline_only)
        start(candidate, "candidate", options.candidate);
    if (!options.rival.empty())
        start(rival, "rival", options.rival);
    run_on(options.core);
    report_begin(report, options, task().name(), task().precision());
    size_t free_bytes = 0, total_bytes = 0, shared_bytes = 1;
    MSKB_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
    free_bytes -= std::max(free_bytes / 16, std::min(free_bytes / 2, kContextBytes));
    int timed_cases = 1;
    for (const Row& row : rows) {
        timed_cases += row.sweep;
        std::vector<BufferSpec> specs = task().buffers(row.sizes);
        if (CaseRun::footprint(specs) <= free_bytes)
            shared_bytes = std::max(shared_bytes, Layout(specs).bytes);
    }
    SharedMemory memory = SharedMemory::create(shared_bytes);
    std::string isolation;
    for (std::optional<Contestant>* worker : {&baseline, &rival, &candidate})
        if (worker->has_value())
            admit(report, **worker, memory, isolation);
    report.write(Line("isolation").add("text", isolation));
    Workers workers{&*baseline, candidate ? &*candidate : nullptr, rival ? &*rival : nullptr};
    GpuState gpu;
    std::vector<HostBuffer> host;
    bool ok = true;
    for (size_t i = 0; i < rows.size() && (ok || !options.first_failure); ++i)
        ok = CaseRun(options, report, workers, gpu, memory, host, free_bytes, timed_cases,
                     static_cast<int>(i), rows[i])
                 .run(ok) &&
             ok;
    for (std::optional<Contestant>* worker : {&baseline, &rival, &candidate})
        if (worker->has_value())
            (*worker)->leave(); // all at once: the end of a context takes a while
    report.write(Line("end").add("ok", ok));
    return ok ? 0 : 1;
}

} // namespace mskb
