// Findings as lines of JSON on stderr.
#include "check.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <tuple>
#include <unistd.h>

namespace executor {
namespace check {

namespace {

// False where it was told before.
bool is_new(const char* what, uint32_t one, uint32_t other) {
    static auto* told = new std::set<std::tuple<const char*, uint32_t, uint32_t>>;
    return told->insert({what, std::min(one, other), std::max(one, other)}).second;
}

std::string quoted(const char* text) {
    std::string result = "\"";
    for (; *text; ++text) {
        if (*text == '"' || *text == '\\')
            result += '\\';
        result += static_cast<unsigned char>(*text) < ' ' ? ' ' : *text;
    }
    return result + '"';
}

std::string three(unsigned long long number, unsigned x, unsigned y) {
    char text[64];
    std::snprintf(text, sizeof text, "[%llu, %llu, %llu]", number % x, number / x % y, number / x / y);
    return text;
}

std::string dimensions() {
    const dim3& block = state().launch->block;
    char text[64];
    std::snprintf(text, sizeof text, "[%u, %u, %u]", block.x, block.y, block.z);
    return text;
}

// Of an mbarrier: those that announce bytes need not know what was there.
const char* use_of_mbarrier(unsigned kind) {
    if (!(kind & kAtomic))
        return "init or inval";
    return !(kind & kWrite) ? "wait" : kind & kLate ? "copy" : kind & kReads ? "arrival" : "expect_tx";
}

std::string party(const Access& access) {
    const CudamasterCpuLaunch& launch = *state().launch;
    const char* what = access.kind & kBarrier  ? use_of_mbarrier(access.kind)
                       : access.kind & kAtomic ? "atomic"
                       : access.kind & kWrite  ? "write"
                                               : "read";
    char text[160];
    std::snprintf(text, sizeof text, "{\"access\": \"%s%s\", \"bytes\": %u, \"place\": %u, \"block\": ",
                  access.kind & kVolatile ? "volatile " : "", what, access.bytes, access.place);
    return text + three(state().clock.block_of(access.segment), launch.grid.x, launch.grid.y) +
           ", \"thread\": " + three(access.thread, launch.block.x, launch.block.y) +
           (access.kind & kLate ? ", \"late\": true}" : "}");
}

std::string memory(const Range* range, uintptr_t address) {
    if (!range)
        return "null";
    const CudamasterCpuLaunch& launch = *state().launch;
    const char* space = range->space == Space::kGlobal          ? "global"
                        : range->space == Space::kVariable      ? "variable"
                        : range->space == Space::kDynamicShared ? "dynamic shared"
                                                                : "static shared";
    // Variables are told apart by their address in the program; a static shared one by that of its key.
    uintptr_t name = range->space == Space::kVariable       ? address
                     : range->space == Space::kStaticShared ? reinterpret_cast<uintptr_t>(range->key)
                                                            : 0;
    int pointer = -1; // of the arguments, the one that leads here
    for (size_t i = 0; range->space == Space::kGlobal && i < launch.pointer_count && pointer < 0; ++i)
        if (range->holds(reinterpret_cast<uintptr_t>(launch.pointers[i])))
            pointer = static_cast<int>(i);
    char text[240];
    std::snprintf(text, sizeof text,
                  "{\"space\": \"%s\", \"bytes\": %zu, \"offset\": %lld, \"pointer\": %d, \"symbol\": %llu}",
                  space, range->bytes, static_cast<long long>(address - range->base), pointer,
                  name ? static_cast<unsigned long long>(name - state().image) : 0ull);
    return text;
}

void tell(const char* kind, const Range* range, uintptr_t address, const Access* before, const Access& now,
          const std::string& more = "") {
    // Of two warps it is told once more than of two lanes: what is missing is another barrier.
    bool lanes = before && before->segment == now.segment && before->thread / kWarp == now.thread / kWarp;
    if (!is_new(lanes ? "lanes" : kind, before ? before->place : 0, now.place))
        return;
    std::string line = std::string(kFindingMark) + "{\"kind\": \"" + kind +
                       "\", \"kernel\": " + quoted(state().launch->kernel) +
                       ", \"block_dim\": " + dimensions() + ", \"memory\": " + memory(range, address) +
                       ", \"here\": " + party(now) + (before ? ", \"other\": " + party(*before) : "") + more +
                       "}\n";
    ssize_t written = write(STDERR_FILENO, line.data(), line.size());
    (void)written;
    if (++state().findings >= kMostFindings)
        end_after_findings();
}

} // namespace

void report_race(const Range& range, uintptr_t address, const Access& before, const Access& now) {
    tell("race", &range, address, &before, now);
}

void report_early(const Range& range, uintptr_t address, const Access& copy, const Access& now) {
    tell("early", &range, address, &copy, now);
}

void report_unfenced(const Range& range, uintptr_t address, const Access& before, const Access& now) {
    tell("unfenced", &range, address, &before, now);
}

void report_ended(const Range& range, uintptr_t address, const Access& now) {
    tell("ended", &range, address, nullptr, now);
}

void report_unstarted(const Range& range, uintptr_t address, const Access& now) {
    tell("unstarted", &range, address, nullptr, now);
}

void report_unwritten(const Range& range, uintptr_t address, const Access& now) {
    tell("unwritten", &range, address, nullptr, now);
}

void report_outside(const Range* near, uintptr_t address, const Access& now) {
    tell("outside", near, address, nullptr, now);
}

void report_misaligned(uintptr_t address, const char* type, unsigned long alignment, const Access& now) {
    tell("misaligned", state().ranges.find(address), address, nullptr, now,
         ", \"type\": " + quoted(type) + ", \"alignment\": " + std::to_string(alignment));
}

void end_after_findings() {
    if (!state().findings)
        return;
    char line[400];
    int length = std::snprintf(line, sizeof line, "cuda device fault: kernel %.200s: %u fault%s found\n",
                               state().launch->kernel, state().findings, state().findings == 1 ? "" : "s");
    ssize_t written = write(STDERR_FILENO, line, static_cast<size_t>(length));
    (void)written;
    _exit(kFaultExitCode);
}

} // namespace check
} // namespace executor
