// One case of a task: checks the candidate on it and, where it belongs to the sweep, times it.
//
// A Task (rendered from the card) gives names, cases, buffers, input generation, the reference, and the calls of
// baseline and candidate. Per case:
//   1. inputs for several sets from the seed; the baseline's outputs and the double-precision reference for each
//   2. the candidate on each set: CUDA errors, guard zones, unchanged inputs, outputs within bounds
//   3. for the sweep: baseline and candidate timed in turn, both of a turn on the same inputs, and every turn on inputs
//      of its own, as far as time and memory to make them last: a result remembered by address or by value is of no
//      use. Outputs of timed calls are checked too, at turns that are drawn at random.
// Lines of the report: case, skip, reference, check, fault, time; harness.h and timing.h add begin, end, timeout.
#pragma once
#include <cstring>
#include <string>
#include <vector>
#include "mskb/buffers.h"
#include "mskb/compare.h"
#include "mskb/inputs.h"
#include "mskb/options.h"
#include "mskb/report.h"
#include "mskb/timing.h"

#ifndef MSKB_CPU_DEVICE
// Of the CUDA runtime; cuda_profiler_api.h, which declares them, is not part of every installation.
extern "C" cudaError_t cudaProfilerStart();
extern "C" cudaError_t cudaProfilerStop();
#endif

namespace mskb {

constexpr int kSets = 3;              // input sets of a case
constexpr double kFreshSeconds = 10;  // inputs of their own for as many turns as can be made in that time ...
constexpr double kFreshMemory = 0.25; // ... and in that part of the free device memory
constexpr int kCheckedCalls = 6;      // about so many timed calls of a candidate are checked
constexpr double kSlowest = 1000;     // a candidate is stopped at so many times the baseline's time
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
            for (int set = 0; set < kSets; ++set) {
                candidate_call(device, set);
                ok = check(observe(device, sets_[set]), sets_[set], "check") && ok;
            }
            if (ok && timing_allowed && row_.sweep && options_.calls > 0)
                ok = time(device);
        }
        return ok;
    }

  private:
    // Inputs of one set on the host, and what has to come of them.
    struct Set {
        HostBuffers inputs;
        std::vector<Expected> expected;                       // per buffer
        std::vector<std::vector<unsigned char>> baseline_out; // per buffer
    };

    // What a call of the candidate left: damage in words, and its outputs.
    struct Observation {
        std::string damage;
        std::vector<std::vector<unsigned char>> outputs; // per buffer
    };

    Line line(const char* event) const { return std::move(Line(event).add("index", index_)); }

    bool skip(const std::string& reason) {
        report_.write(line("skip").add("reason", reason));
        return true;
    }

    // Inputs of a stream of the seed: the same ones however often they are made.
    void generate(uint64_t stream, HostBuffers& inputs) const {
        Rng rng(options_.seed, label_stream(row_.label), stream);
        Task::generate(row_.values, rng, inputs);
    }

    Set empty_set() const {
        return {HostBuffers(specs_), {}, std::vector<std::vector<unsigned char>>(specs_.size())};
    }

    // After the baseline has run on a set: keeps its outputs and asks the reference. False when the baseline itself
    // is wrong.
    bool expect(const DeviceSets& device, Set& set) {
        set.expected.clear();
        for (const BufferSpec& spec : specs_)
            set.expected.emplace_back(spec.is_written() ? spec.length : 0, options_.oracle_elements, rng_);
        Task::reference(row_.values, set.inputs, set.expected);
        bool right = true;
        for (size_t i = 0; i < specs_.size(); ++i) {
            if (!specs_[i].is_written())
                continue;
            if (!set.expected[i].complete())
                harness_failure(std::string("the reference left elements of ") + specs_[i].name +
                                " undefined");
            device.download(i, set.baseline_out[i]);
            double worst = worst_error(set.baseline_out[i].data(), specs_[i], set.expected[i]);
            worst_[i] = std::max(worst_[i], worst);
            right = right && worst <= (specs_[i].exact ? 0.0 : kBaselineError);
        }
        return right;
    }

    // Inputs, baseline outputs and expected values of every set; false when the baseline itself is wrong.
    bool reference(DeviceSets& device) {
        worst_.assign(specs_.size(), 0.0);
        bool right = true;
        for (int set = 0; set < kSets; ++set) {
            sets_.push_back(empty_set());
            Clock::time_point start = Clock::now();
            generate(set, sets_[set].inputs);
            device.upload(set, sets_[set].inputs);
            fill_seconds_ = seconds_since(start);
            double seconds = baseline_call(device, set);
            baseline_seconds_ = set == 0 ? seconds : std::min(seconds, baseline_seconds_);
            right = expect(device, sets_[set]) && intact(device, sets_[set]).empty() && right;
        }
        report_reference(right);
        return right;
    }

    void report_reference(bool right) const {
        double worst = 0;
        for (double w : worst_)
            worst = std::max(worst, w);
        report_.write(line("reference")
                          .add("baseline_ok", right)
                          .add("baseline_worst_error", worst)
                          .add("baseline_us", baseline_seconds_ * 1e6));
    }

    double baseline_call(DeviceSets& device, int set) {
        device.prepare(set);
        flush_();
        double seconds = timed_call([&] { Task::baseline(row_.values, device); });
        stop_on_fault("baseline");
        return seconds;
    }

    double candidate_call(DeviceSets& device, int set) {
        device.prepare(set);
        flush_();
        watchdog_.arm(std::max(options_.call_limit_s, kSlowest * baseline_seconds_));
        double seconds = timed_call([&] { Task::candidate(row_.values, device); });
        watchdog_.disarm();
        stop_on_fault("candidate");
        return seconds;
    }

    Observation observe(const DeviceSets& device, const Set& set) const {
        Observation seen{intact(device, set), std::vector<std::vector<unsigned char>>(specs_.size())};
        for (size_t i = 0; i < specs_.size(); ++i)
            if (specs_[i].is_written())
                device.download(i, seen.outputs[i]);
        return seen;
    }

    // Whether a call was right. Checks are reported, those of timed calls only when they fail.
    bool check(const Observation& seen, const Set& set, const char* stage) const {
        bool ok = seen.damage.empty();
        std::string outputs;
        for (size_t i = 0; i < specs_.size(); ++i) {
            if (!specs_[i].is_written())
                continue;
            Comparison comparison = compare(seen.outputs[i].data(), set.baseline_out[i].data(), specs_[i],
                                            set.expected[i], worst_[i]);
            ok = ok && comparison.mismatches == 0;
            outputs += (outputs.empty() ? "" : ",") + json(specs_[i].name, comparison, worst_[i]);
        }
        if (!ok || std::strcmp(stage, "check") == 0)
            report_.write(line("check")
                              .add("stage", stage)
                              .add("ok", ok)
                              .add("damage", seen.damage)
                              .raw("outputs", "[" + outputs + "]"));
        return ok;
    }

    // How many of the turns get inputs of their own; where not all can, turns share them.
    int fresh_sets(int turns) const {
        size_t free_bytes = 0, total_bytes = 0;
        MSKB_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
        double by_memory = kFreshMemory * static_cast<double>(free_bytes) /
                           static_cast<double>(std::max<size_t>(DeviceSets::set_bytes(specs_), 1));
        double by_time = kFreshSeconds / std::max(fill_seconds_, 1e-6);
        return static_cast<int>(std::clamp(std::min(by_memory, by_time), 1.0, static_cast<double>(turns)));
    }

    bool time(DeviceSets& device) {
        // All inputs are made before the first turn, so that the host does as little as possible between timed calls.
        Set turn_set = empty_set();
        int turns = options_.warmups + options_.calls, fresh = fresh_sets(turns);
        for (int k = 0; k < fresh; ++k) {
            generate(kSets + k, turn_set.inputs);
            device.upload(device.add_set(), turn_set.inputs);
        }
        std::vector<double> baseline_us, candidate_us, empty_us;
        bool ok = true;
        for (int turn = 0; turn < turns && ok; ++turn) {
            bool counts = turn >= options_.warmups;
            bool checked = counts && (turn == turns - 1 || rng_.unit() * options_.calls < kCheckedCalls);
            int set = kSets + turn % fresh;
            if (checked)
                generate(set, turn_set.inputs);
            double baseline = 0, candidate = 0;
            Observation seen;
            bool candidate_first = rng_.bits() % 2;
            for (int half = 0; half < 2; ++half) {
                if ((half == 0) == candidate_first) {
                    candidate = candidate_call(device, set);
                    if (checked)
                        seen = observe(device, turn_set);
                } else {
                    baseline = baseline_call(device, set);
                    if (checked && !expect(device, turn_set)) {
                        report_reference(false);
                        ok = false;
                    }
                }
            }
            if (checked && ok)
                ok = check(seen, turn_set, "timed");
            if (counts) {
                baseline_us.push_back(baseline * 1e6);
                candidate_us.push_back(candidate * 1e6);
                empty_us.push_back(timed_call(Task::empty) * 1e6);
            }
        }
        report_.write(line("time")
                          .add("fresh_inputs", fresh)
                          .add("baseline_us", baseline_us)
                          .add("candidate_us", candidate_us)
                          .add("empty_us", empty_us));
        return ok;
    }

    // Calls of the candidate between the profiler's start and stop, after a warm-up, inputs in place and caches cold.
    bool profile(DeviceSets& device) {
        HostBuffers inputs(specs_);
        generate(0, inputs);
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

    // Empty when guard zones and inputs are as they were, else what was damaged.
    std::string intact(const DeviceSets& device, const Set& set) const {
        std::vector<unsigned char> now;
        for (size_t i = 0; i < specs_.size(); ++i) {
            if (std::string overrun = device.working(i).overrun(); !overrun.empty())
                return std::string(specs_[i].name) + " was " + overrun;
            if (specs_[i].use != Use::kInput)
                continue;
            device.download(i, now);
            if (!now.empty() && std::memcmp(now.data(), set.inputs.bytes(i), now.size()) != 0)
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
    std::vector<Set> sets_;
    std::vector<double> worst_; // error of the baseline so far, per buffer
    double fill_seconds_ = 0;   // making and uploading one set of inputs
    double baseline_seconds_ = 0;
};

} // namespace mskb
