// The judge of a rendered harness: starts the workers, runs the cases of a task one after the other (case_run.h) and
// reports on each. With --batch it does so for one candidate after the other, in a report each: what a context takes, a
// fifth of a second on an H200 while no other process of the machine makes one, is then spent on each candidate alone.
#pragma once
#include <csignal>
#include <deque>
#include <optional>
#include <string>
#include <vector>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include "mskb/case_run.h"
#include "mskb/given.h"
#include "mskb/only_gpu.h"
#include "mskb/timing.h"
#include "mskb/workers.h"

namespace mskb {

constexpr size_t kPreparedBytes = size_t{512} << 20; // that cases may hold before their turn, ...
constexpr size_t kPreparedPart = 16;              // ... and that part of what a case may take on the device
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

// Bytes of the device that cases may take.
inline size_t free_memory() {
    size_t free_bytes = 0, total_bytes = 0;
    MSKB_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
    return free_bytes - std::max(free_bytes / 16, std::min(free_bytes / 2, kContextBytes));
}

// The cases of a run.
inline std::vector<Row> rows_of(const Options& options) {
    std::vector<Row> rows;
    for (int time = 0; time < options.repeat; ++time)
        for (Row row : task().rows())
            if (options.cases == "all" || options.cases == (row.sweep ? "sweep" : "verify")) {
                row.label += time > 0 ? " again " + std::to_string(time) : ""; // which its inputs follow from
                rows.push_back(row);
            }
    for (const std::string& text : options.extra)
        rows.push_back(row_of(text));
    return rows;
}

// Runs the cases; whether all are right. While the candidate is still being built, what needs none is done for as many of
// them as there is time for. Throws RunOver.
inline bool run_cases(Run& run, const std::vector<Row>& rows) {
    for (const Row& row : rows) {
        if (!CaseRun::left_out(run.options, row, run.most_bytes).empty())
            continue;
        run.timed_cases += row.sweep;
        run.weights += row.sweep ? row.weight : 0;
        if (run.options.ahead) // there is time for what takes long
            run.host.make_room(task().buffers(row.sizes));
    }
    std::deque<CaseRun> prepared;
    size_t bytes = 0, most = std::min(kPreparedBytes, run.most_bytes / kPreparedPart), used = 0;
    while (prepared.size() < rows.size() && bytes < most && run.workers.awaited()) {
        int index = static_cast<int>(prepared.size());
        prepared.emplace_back(run, index, rows[index]);
        prepared.back().prepare();
        bytes += prepared.back().prepared_bytes();
        used = std::max(used, Layout(task().buffers(rows[index].sizes)).bytes);
    }
    run.memory.clear(std::min(used, run.memory.bytes())); // of inputs and results of cases to come
    bool ok = true;
    for (size_t i = 0; i < rows.size() && (ok || !run.options.first_failure); ++i) {
        if (prepared.empty())
            prepared.emplace_back(run, static_cast<int>(i), rows[i]);
        ok = prepared.front().run(ok) && ok;
        prepared.pop_front();
    }
    run.workers.join(1); // where no case was run
    return ok;
}

// Exit codes: 0 all cases right, 1 some are not, 64 usage, 70 fault, 74 the harness failed, 75 timeout; of the last run.
inline int run(int argc, char** argv) {
    Queues::usual();
#ifdef __GLIBC__
    // What a check needs on the host is kept for the next: pages of the system cost more than what is done in them.
    mallopt(M_MMAP_THRESHOLD, 1 << 28);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 1 << 26);
#endif
    const std::vector<Options> runs = parse_options(argc, argv);
    const Options& first = runs.front();
    std::vector<std::vector<Row>> rows;
    for (const Options& options : runs)
        rows.push_back(rows_of(options));
#ifdef __linux__
    if (!first.report.empty())
        prctl(PR_SET_PDEATHSIG, SIGKILL); // a killed caller leaves no harness behind
    prctl(PR_SET_DUMPABLE, 0);            // no other process looks into this one
#endif
    std::optional<Report> report(std::in_place, first.report);
    if (!report->ok())
        return 74;
    if (!first.gpu_node.empty())
        see_only(first.gpu_node);
    Workers workers;
    workers.start(first);
    Helpers helpers(first.helper_cores, first.core, first.workers_core);
    bool asks = false; // what outputs have to be
    for (const Options& options : runs)
        asks = asks || (options.profile == 0 && !options.launches);
    PythonReference python(asks ? first.reference : std::vector<std::string>(), first.reference_limit_s,
                           helpers);
    run_on(first.core); // which nobody is to disturb: the judge waits without sleeping
    {
        Queues one(1); // the judge works on one stream
        MSKB_CUDA(cudaFree(nullptr));
    }
    const size_t free_bytes = free_memory();
    size_t largest = 1; // of the buffers of a case
    for (size_t k = 0; k < runs.size(); ++k)
        for (const Row& row : rows[k])
            if (CaseRun::left_out(runs[k], row, free_bytes).empty())
                largest = std::max(largest, Layout(task().buffers(row.sizes)).bytes);
    size_t for_slots = std::max(kSlotBytes, kFewestSlots * largest);
    for_slots = std::max(largest, std::min({kMostSlots * largest, for_slots, free_bytes / 8}));
    for_slots = (for_slots + kAlignment - 1) / kAlignment * kAlignment;
    GpuState gpu;
    HostInputs host;
    std::optional<SharedMemory> memory;
    int code = 0;
    for (size_t k = 0; k < runs.size(); ++k) {
        const Options& options = runs[k];
        bool last = k + 1 == runs.size();
        if (k > 0) {
            report.emplace(options.report);
            if (!report->ok())
                return 74;
            helpers.settle(); // where workers come up
            workers.start(options);
            run_on(first.core);
            if (memory)
                memory->clear(memory->bytes()); // of what the candidate before, which is gone, left there
        }
        python.begin_run();
        report_begin(*report, options, task().name(), task().precision());
        if (!memory)
            memory.emplace(SharedMemory::create(for_slots + CacheFlush::bytes()));
        try {
            workers.admit(*report, *memory, for_slots);
            int retakes = kMostRetakes;
            Run shared{options, *report, workers,    gpu, *memory, for_slots, host,
                       helpers, python,  free_bytes, 0,   0,       retakes};
            bool ok = run_cases(shared, rows[k]);
            if (last)
                workers.leave();
            report->write(Line("end").add("ok", ok));
            code = ok ? 0 : kWrongExit;
        } catch (const TruthFailed& failed) {
            report->write(Line("no_truth")
                              .add("index", failed.index)
                              .add("who", failed.who)
                              .add("what", failed.what)
                              .add("replied", failed.replied));
            harness_failure("the " + std::string(failed.who) + " of " + task().name() +
                            " failed: " + failed.what);
        } catch (const RunOver& over) {
            code = over.code;
            if (last || over.who == "baseline")
                std::_Exit(code); // whatever was left behind does not run
        }
    }
    return code;
}

} // namespace mskb
