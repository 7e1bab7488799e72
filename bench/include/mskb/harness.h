// The driver of a rendered harness: checks every case of a task and times those of the sweep.
//
// A Task (rendered from the card) gives names, cases, buffers, input generation, the reference, and the calls
// of baseline and candidate. Per case:
//   1. inputs for several sets from the seed; the baseline's outputs and the double-precision reference for
//   each
//   2. the candidate on each set: CUDA errors, guard zones, unchanged inputs, outputs within bounds
//   3. for the sweep: baseline and candidate timed in turn on sets drawn at random; outputs of timed calls
//   are
//      checked too, at calls that are drawn at random
// Lines of the report: begin, case, skip, reference, check, fault, timeout, time, end.
#pragma once
#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <vector>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#ifndef MSKB_CPU_DEVICE
#include <cuda_profiler_api.h>
#endif
#include "mskb/buffers.h"
#include "mskb/compare.h"
#include "mskb/inputs.h"
#include "mskb/options.h"
#include "mskb/report.h"
#include "mskb/timing.h"

namespace mskb {

constexpr int kSets = 3;                // input sets of a case
constexpr int kCheckedCalls = 6;        // about so many timed calls of a candidate are checked
constexpr double kSlowest = 1000;       // a candidate is stopped at so many times the baseline's time
constexpr double kBaselineError = 1e-4; // a baseline further off than this, in units of scale, is wrong
constexpr int kFaultExit = 70;          // the device is unusable after a fault

inline uint64_t label_stream(const std::string& label) {
    uint64_t hash = 0xcbf29ce484222325ull;
    for (unsigned char c : label)
        hash = (hash ^ c) * 0x100000001b3ull;
    return hash;
}

inline void profiler_start() {
#ifndef MSKB_CPU_DEVICE
    MSKB_CUDA(cudaProfilerStart());
#endif
}

inline void profiler_stop() {
#ifndef MSKB_CPU_DEVICE
    MSKB_CUDA(cudaProfilerStop());
#endif
}

template <class Task> class CaseRun {
  public:
    CaseRun(const Options& options, const Report& report, Watchdog& watchdog, const CacheFlush& flush,
            int index, const typename Task::Row& row)
        : options_(options), report_(report), watchdog_(watchdog), flush_(flush), index_(index), row_(row),
          specs_(Task::buffers(row.values)), rng_(options.seed, label_stream(row.label), 1u << 20) {}

    // Whether everything that ran was right.
    bool run(bool timing_allowed) {
        report_.write(line("case").add("label", row_.label).add("sweep", row_.sweep));
        if (options_.work_limit > 0 && row_.weight > options_.work_limit)
            return skip("too long for this device");
        size_t free_bytes = 0, total_bytes = 0, needed = DeviceSets::footprint(specs_, kSets);
        MSKB_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
        if (needed > free_bytes - free_bytes / 16)
            return skip("needs " + std::to_string(needed >> 20) + " MiB of device memory, " +
                        std::to_string(free_bytes >> 20) + " MiB are free");
        DeviceSets device(specs_, kSets);
        if (options_.profile > 0)
            return profile(device);
        bool ok = reference(device);
        if (!options_.baseline_only) {
            for (int set = 0; set < kSets; ++set)
                ok = candidate_call(device, set, "check", true).ok && ok;
            if (ok && timing_allowed && row_.sweep && options_.calls > 0)
                ok = time(device);
        }
        return ok;
    }

  private:
    struct Call {
        double seconds;
        bool ok;
    };

    Line line(const char* event) const { return std::move(Line(event).add("index", index_)); }

    bool skip(const std::string& reason) {
        report_.write(line("skip").add("reason", reason));
        return true;
    }

    // Inputs, baseline outputs and expected values of every set; false when the baseline itself is wrong.
    bool reference(DeviceSets& device) {
        worst_.assign(specs_.size(), 0.0);
        baseline_seconds_ = 0;
        bool right = true;
        for (int set = 0; set < kSets; ++set) {
            Rng rng(options_.seed, label_stream(row_.label), set);
            inputs_.emplace_back(specs_);
            Task::generate(row_.values, rng, inputs_.back());
            device.upload(set, inputs_.back());
            device.prepare(set);
            double seconds = timed_call([&] { Task::baseline(row_.values, device); });
            stop_on_fault("baseline");
            baseline_seconds_ = set == 0 ? seconds : std::min(seconds, baseline_seconds_);
            expected_.emplace_back();
            baseline_out_.emplace_back(specs_.size());
            for (const BufferSpec& spec : specs_)
                expected_.back().emplace_back(spec.is_written() ? spec.length : 0, options_.oracle_elements,
                                              rng_);
            Task::reference(row_.values, inputs_.back(), expected_.back());
            for (size_t i = 0; i < specs_.size(); ++i) {
                if (!specs_[i].is_written())
                    continue;
                if (!expected_[set][i].complete())
                    harness_failure(std::string("the reference left elements of ") + specs_[i].name +
                                    " undefined");
                device.download(i, baseline_out_[set][i]);
                double worst = worst_error(baseline_out_[set][i].data(), specs_[i], expected_[set][i]);
                worst_[i] = std::max(worst_[i], worst);
                right = right && worst <= (specs_[i].exact ? 0.0 : kBaselineError);
            }
            right = right && intact(device, set).empty();
        }
        double worst = 0;
        for (double w : worst_)
            worst = std::max(worst, w);
        report_.write(line("reference")
                          .add("baseline_ok", right)
                          .add("baseline_worst_error", worst)
                          .add("baseline_us", baseline_seconds_ * 1e6));
        return right;
    }

    // One call of the candidate on a set; checks it when asked, and reports when that is what it was called
    // for or when it is wrong.
    Call candidate_call(DeviceSets& device, int set, const char* stage, bool check) {
        device.prepare(set);
        if (row_.sweep && std::strcmp(stage, "timed") == 0)
            flush_();
        watchdog_.arm(std::max(options_.call_limit_s, kSlowest * baseline_seconds_));
        double seconds = timed_call([&] { Task::candidate(row_.values, device); });
        watchdog_.disarm();
        stop_on_fault("candidate");
        if (!check)
            return {seconds, true};

        std::string damage = intact(device, set), outputs;
        bool ok = damage.empty();
        std::vector<unsigned char> got;
        for (size_t i = 0; i < specs_.size(); ++i) {
            if (!specs_[i].is_written())
                continue;
            device.download(i, got);
            Comparison comparison =
                compare(got.data(), baseline_out_[set][i].data(), specs_[i], expected_[set][i], worst_[i]);
            ok = ok && comparison.mismatches == 0;
            outputs += (outputs.empty() ? "" : ",") + json(specs_[i].name, comparison, worst_[i]);
        }
        if (!ok || std::strcmp(stage, "check") == 0)
            report_.write(line("check")
                              .add("stage", stage)
                              .add("set", set)
                              .add("ok", ok)
                              .add("damage", damage)
                              .raw("outputs", "[" + outputs + "]"));
        return {seconds, ok};
    }

    bool time(DeviceSets& device) {
        std::vector<double> baseline_us, candidate_us, empty_us;
        bool ok = true;
        for (int call = -options_.warmups; call < options_.calls && ok; ++call) {
            bool last = call == options_.calls - 1;
            bool check = call >= 0 && (last || rng_.unit() * options_.calls < kCheckedCalls);
            int baseline_set = draw_set(), candidate_set = draw_set();
            double baseline = 0, candidate = 0;
            bool candidate_first = rng_.bits() % 2;
            for (int turn = 0; turn < 2; ++turn) {
                if ((turn == 0) == candidate_first) {
                    Call timed = candidate_call(device, candidate_set, "timed", check);
                    candidate = timed.seconds;
                    ok = ok && timed.ok;
                } else {
                    device.prepare(baseline_set);
                    flush_();
                    baseline = timed_call([&] { Task::baseline(row_.values, device); });
                    stop_on_fault("baseline");
                }
            }
            if (call >= 0) {
                baseline_us.push_back(baseline * 1e6);
                candidate_us.push_back(candidate * 1e6);
                empty_us.push_back(timed_call(Task::empty) * 1e6);
            }
        }
        report_.write(line("time")
                          .add("baseline_us", baseline_us)
                          .add("candidate_us", candidate_us)
                          .add("empty_us", empty_us));
        return ok;
    }

    // Calls of the candidate between the profiler's start and stop, after a warm-up, inputs in place and caches cold.
    bool profile(DeviceSets& device) {
        Rng rng(options_.seed, label_stream(row_.label), 0);
        HostBuffers inputs(specs_);
        Task::generate(row_.values, rng, inputs);
        device.upload(0, inputs);
        for (int call = -1; call < options_.profile; ++call) {
            device.prepare(0);
            flush_();
            MSKB_CUDA(cudaDeviceSynchronize());
            if (call >= 0)
                profiler_start();
            Task::candidate(row_.values, device);
            stop_on_fault("candidate");
            if (call >= 0)
                profiler_stop();
        }
        return true;
    }

    int draw_set() { return static_cast<int>(rng_.below(kSets)); }

    // Empty when guard zones and inputs are as they were, else what was damaged.
    std::string intact(const DeviceSets& device, int set) const {
        std::vector<unsigned char> now;
        for (size_t i = 0; i < specs_.size(); ++i) {
            if (std::string overrun = device.working(i).overrun(); !overrun.empty())
                return std::string(specs_[i].name) + " was " + overrun;
            if (specs_[i].use != Use::kInput)
                continue;
            device.download(i, now);
            if (!now.empty() && std::memcmp(now.data(), inputs_[set].bytes(i), now.size()) != 0)
                return std::string("the input ") + specs_[i].name + " was changed";
        }
        return "";
    }

    void stop_on_fault(const char* who) const {
        cudaError_t pending = cudaGetLastError();
        cudaError_t finished = cudaDeviceSynchronize();
        cudaError_t status = pending != cudaSuccess ? pending : finished;
        if (status == cudaSuccess)
            return;
        report_.write(line("fault")
                          .add("who", who)
                          .add("error", cudaGetErrorName(status))
                          .add("detail", cudaGetErrorString(status)));
        std::_Exit(kFaultExit);
    }

    const Options& options_;
    const Report& report_;
    Watchdog& watchdog_;
    const CacheFlush& flush_;
    int index_;
    const typename Task::Row& row_;
    std::vector<BufferSpec> specs_;
    Rng rng_; // order of calls, sets and checks
    std::vector<HostBuffers> inputs_;
    std::vector<std::vector<Expected>> expected_;                       // [set][buffer]
    std::vector<std::vector<std::vector<unsigned char>>> baseline_out_; // [set][buffer]
    std::vector<double> worst_;                                         // of the baseline, per buffer
    double baseline_seconds_ = 0;
};

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
template <class Task> int run(int argc, char** argv) {
    Options options = parse_options(argc, argv);
#ifdef __linux__
    if (!options.report.empty())
        prctl(PR_SET_PDEATHSIG, SIGKILL); // a killed caller leaves no harness behind
#endif
    Report report(options.report);
    if (!report.ok())
        return 74;
    std::vector<typename Task::Row> rows;
    for (const typename Task::Row& row : Task::rows())
        if (options.cases == "all" || options.cases == (row.sweep ? "sweep" : "verify"))
            rows.push_back(row);
    for (const std::string& text : options.extra)
        rows.push_back(Task::row(text));
    report_begin(report, options, Task::kName, Task::kPrecision);
    CacheFlush flush;
    bool ok = true;
    {
        Watchdog watchdog(report);
        for (size_t i = 0; i < rows.size(); ++i)
            ok = CaseRun<Task>(options, report, watchdog, flush, static_cast<int>(i), rows[i]).run(ok) && ok;
    }
    report.write(Line("end").add("ok", ok));
    return ok ? 0 : 1;
}

} // namespace mskb
