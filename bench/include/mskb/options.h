// Command line of a rendered harness.
#pragma once
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace mskb {

constexpr int kSets = 3; // input sets of a case, unless fewer are asked for

struct Options {
    std::string report;               // file for the JSON lines; empty: stdout
    std::string output;               // file for what the workers print; empty: where the judge's goes
    std::string batch;                // file with the options of several runs, see read_options
    uint64_t seed = 0;                // of inputs and of the order of calls; fresh when not given
    int warmups = 3, calls = 50;      // per case, of baseline and candidate each; calls = 0: check only
    std::string cases = "all";        // built-in cases to run: all, sweep, verify, none
    std::vector<std::string> extra;   // further verification cases, as "name=value,name=value"
    int repeat = 1;                   // the built-in cases so many times over, each time on other inputs
    double work_limit = 0;            // timed cases of a larger weight are left out; 0: none is
    double extra_seconds = 1.0;       // for turns beyond --calls where times are noisy, over all cases
    double call_limit_s = 2;          // a call is stopped after this or 1000 times the baseline's time
    size_t oracle_elements = 1 << 18; // at most so many elements of an output are asked of the reference ...
    double oracle_operations = 2e7;   // ... for about so many operations
    std::string dump;                 // folder for the inputs and expected outputs of every case
    bool baseline_only = false;
#ifdef MSKB_CPU_DEVICE
    bool lead = false; // of the timed calls of a series, one more comes first
#else
    bool lead = true;
#endif
    bool paper = false;         // time as the paper does: one behind the other, in hot caches
    bool first_failure = false; // stop at the first case that is not right
    // Commands of the workers, a word each; by default this executable itself, and no rival.
    std::vector<std::string> baseline, candidate, rival;
    std::vector<std::string> reference; // command of a reference in Python, a word each
    double reference_limit_s = 120;     // that it may take for inputs of a case
    int pairs = 2;                      // of worker processes that take turns under the clock
    int core = -1, workers_core = -1;   // of the judge, and of all workers; -1: any
    std::vector<int> helper_cores;      // of what the judge has done beside itself; empty: all others
    bool ahead = false;                 // the candidate is there once a line comes on standard input
    int sets = kSets;                   // of inputs, for each case
    int profile = 0;       // calls of the candidate for a profiler, in place of checks and timing
    bool launches = false; // likewise one call, whose launches its worker prints
    bool told = false;     // with that: what is launched is not executed, so most inputs are not made
    std::string gpu_node;  // device node of the one GPU that judge and workers find; empty: all are left
};

inline void usage(const char* program) {
    std::fprintf(
        stderr,
        "usage: %s [--cases all|sweep|verify|none] [--case NAME=VALUE,...]... [--calls N] [--warmups N]\n"
        "          [--seed N] [--report FILE] [--work-limit T] [--call-limit SECONDS] [--oracle-elements N]\n"
        "          [--oracle-operations N] [--dump FOLDER] [--baseline-only] [--first-failure]\n"
        "          [--profile CALLS] [--baseline WORD]... [--candidate WORD]... [--rival WORD]...\n"
        "          [--reference WORD]... [--reference-limit SECONDS]\n"
        "          [--cores JUDGE,WORKERS] [--pairs N] [--extra-seconds S] [--repeat N] [--launches]\n"
        "          [--told] [--sets N]\n"
        "          [--gpu-node FILE] [--paper] [--lead] [--helper-core N]... [--ahead] [--output FILE] "
        "[--batch "
        "FILE]\n"
        "Checks and times the candidate of this file against its baseline; prints one JSON object per "
        "line.\n",
        program);
}

// Whether the text is a number as a whole, and not negative; then it is in `to`.
inline bool reads(const char* text, double& to) {
    char* end = nullptr;
    to = std::strtod(text, &end);
    return end != text && *end == '\0' && to >= 0 && to <= 1e300;
}

inline bool reads(const char* text, uint64_t& to) {
    char* end = nullptr;
    errno = 0;
    to = std::strtoull(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && std::strchr(text, '-') == nullptr;
}

inline bool reads(const char* text, int& to) {
    uint64_t number = 0;
    bool known = reads(text, number) && number <= INT_MAX;
    to = static_cast<int>(number);
    return known;
}

// Reads options into `o`. Exits with 64 and the usage when they make no sense.
inline void read_options(Options& o, const char* program, const std::vector<std::string>& words) {
    for (size_t i = 0; i < words.size(); ++i) {
        const std::string& key = words[i];
        bool* flag = key == "--baseline-only"   ? &o.baseline_only
                     : key == "--first-failure" ? &o.first_failure
                     : key == "--launches"      ? &o.launches
                     : key == "--told"          ? &o.told
                     : key == "--ahead"         ? &o.ahead
                     : key == "--paper"         ? &o.paper
                     : key == "--lead"          ? &o.lead
                                                : nullptr;
        if (flag != nullptr) {
            *flag = true;
            continue;
        }
        const char* value = i + 1 < words.size() ? words[++i].c_str() : nullptr;
        bool known = value != nullptr;
        if (!known || key.rfind("--", 0) != 0)
            known = false;
        else if (key == "--report")
            o.report = value;
        else if (key == "--output")
            o.output = value;
        else if (key == "--batch")
            o.batch = value;
        else if (key == "--seed")
            known = reads(value, o.seed);
        else if (key == "--warmups")
            known = reads(value, o.warmups);
        else if (key == "--calls")
            known = reads(value, o.calls);
        else if (key == "--cases")
            o.cases = value,
            known = o.cases == "all" || o.cases == "sweep" || o.cases == "verify" || o.cases == "none";
        else if (key == "--case")
            o.extra.push_back(value);
        else if (key == "--baseline")
            o.baseline.push_back(value);
        else if (key == "--candidate")
            o.candidate.push_back(value);
        else if (key == "--rival")
            o.rival.push_back(value);
        else if (key == "--reference")
            o.reference.push_back(value);
        else if (key == "--reference-limit")
            known = reads(value, o.reference_limit_s);
        else if (key == "--cores")
            known = std::sscanf(value, "%d,%d", &o.core, &o.workers_core) == 2;
        else if (key == "--helper-core")
            o.helper_cores.emplace_back(), known = reads(value, o.helper_cores.back());
        else if (key == "--work-limit")
            known = reads(value, o.work_limit);
        else if (key == "--pairs")
            known = reads(value, o.pairs) && o.pairs > 0;
        else if (key == "--repeat")
            known = reads(value, o.repeat);
        else if (key == "--extra-seconds")
            known = reads(value, o.extra_seconds);
        else if (key == "--call-limit")
            known = reads(value, o.call_limit_s);
        else if (key == "--sets")
            known = reads(value, o.sets) && o.sets >= 1 && o.sets <= kSets;
        else if (key == "--profile")
            known = reads(value, o.profile);
        else if (key == "--oracle-elements")
            known = reads(value, o.oracle_elements);
        else if (key == "--oracle-operations")
            known = reads(value, o.oracle_operations);
        else if (key == "--gpu-node")
            o.gpu_node = value;
        else if (key == "--dump")
            o.dump = value;
        else
            known = false;
        if (!known) {
            std::fprintf(stderr, "%s: cannot read %s\n", program, key.c_str());
            usage(program);
            std::exit(64);
        }
    }
}

// The options of each run: those of the command line; or, with --batch, these and what its file adds to them, a word each
// line and an empty line behind each run. Seeds are nobody else's: the command line is overwritten where it holds one, and
// the file is removed.
inline std::vector<Options> parse_options(int argc, char** argv) {
    Options common;
    std::random_device entropy;
    common.seed = (static_cast<uint64_t>(entropy()) << 32) | entropy();
    read_options(common, argv[0], {argv + 1, argv + argc});
    for (int i = 1; i < argc; ++i)
        if (std::strcmp(argv[i - 1], "--seed") == 0)
            std::memset(argv[i], '-', std::strlen(argv[i]));
    if (common.batch.empty())
        return {common};
    std::vector<Options> runs;
    std::vector<std::string> words;
    std::ifstream file(common.batch);
    for (std::string word; std::getline(file, word);) {
        if (!word.empty()) {
            words.push_back(word);
            continue;
        }
        runs.push_back(common);
        read_options(runs.back(), argv[0], words);
        words.clear();
    }
    std::remove(common.batch.c_str());
    bool alike = true; // baselines are kept, and made for being timed or not
    for (const Options& run : runs)
        alike = alike && (run.calls == 0) == (runs.front().calls == 0);
    if (runs.empty() || !words.empty() || !alike) {
        std::fprintf(stderr, "%s: %s does not hold the options of whole runs that are all timed, or none\n",
                     argv[0], common.batch.c_str());
        std::exit(64);
    }
    return runs;
}

} // namespace mskb
