// Which blocks of which launch are recorded, and what is written of a call.
//
// Budgets count events and not seconds: the same call is sampled in the same way on every machine. A block at the start,
// one in the middle and one at the end of the grid say what a block costs. Blocks that are not recorded run too, where all of
// them together are cheap enough, so that later launches find what they left; else they are left out, and the launch says so.
//
// Nobody needs what they leave if no later launch of the call is steered by what it loads (steering.py), the host reads
// nothing, and the launch's blocks ask for nothing that others write. Which launch is the last that somebody needs is
// guessed: by the call before, and for a first call, if the table says so, none is. A guess that was wrong is written down
// and ends the process. The call is then the first of another one, where less is guessed if it was a first one already
// (tracing.py).
//
// Launches that do the same are counted once (alike.h), and of work that one block takes from a counter it does a part
// (units.cpp).
#include "observe.h"
#include "trace/alike.h"
#include "trace/trace.h"

#include <link.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <utility>

// The linker's own: what lies between them are managed variables, if there are any.
extern "C" {
extern const char __start_cudamaster_managed[] __attribute__((weak));
extern const char __stop_cudamaster_managed[] __attribute__((weak));
}

namespace executor {
namespace trace {

namespace {

constexpr Count kRecordedOfCall = 120'000'000;   // events of threads that are recorded in one call ...
constexpr Count kRecordedOfLaunch = 40'000'000;  // ... and in one launch
constexpr Count kExecutedOfCall = 1'500'000'000; // that take place in one call, recorded or not
constexpr Count kExecutedForNobody = 2'000'000;  // of blocks that are not recorded and that nobody needs
constexpr Count kExecutedToCompare =
    8'000'000; // of clusters drawn beside the sample, where most blocks are left out
constexpr unsigned kLeastDrawn = 2, kMostDrawn = 32; // how many that are
constexpr unsigned kDrawnTogether = 8; // of a cooperative launch, whose blocks' cost is not known before
constexpr unsigned kGroups = 8, kGroupBlocks = 8;
constexpr Count kExecutedWaiting =
    6'000'000'000; // the same where no block may be left out, since others wait for it
// A block of so many is long: once the call's budget is spent, a launch that does in its first cluster what one before did
// is not looked at any closer.
constexpr Count kLongBlock = 1'000'000;
// Of tensor cores' products, that take as long here as one event.
constexpr unsigned kMultiplicationsOfEvent = 4;
constexpr unsigned kBytesOfAccess = 4; // of what a copy in bulk moves
constexpr unsigned kTogether = 16;     // blocks of a cooperative launch that are recorded
constexpr Count kPatienceOfTrials = 20'000;
constexpr Count kPatience = 200'000; // yields of blocks while others are left out: they wait for one of those

// An SM of the GPU that is modelled, and how many it has.
struct Multiprocessor {
    size_t count = 132, l1_bytes = 256 << 10, shared_bytes = 228 << 10, reserved_bytes = 1 << 10, warps = 64,
           blocks = 32, clock_mhz = 1965;
};

// What was written of a launch that left out blocks, and itself without the lines that it touched, which are many.
struct Written {
    std::string line;
    std::unique_ptr<Launch> launch;
};

// Events of a block, and what its products of tensor cores take beside them.
struct Cost {
    Count events = 1, products = 0;
    Count all() const { return events + products; }
};

// What was written of one of the launches that are alike, with roles for buffers, and what blocks beside its sample did, or
// all blocks if they are in it.
struct Like {
    std::string line;
    Work blocks;
};

// Launches that are alike: what a block costs, and by the size of the sample what was written. In one call they all have the
// counts of the first, whose sample hangs on nothing that calls before have done.
struct Alike {
    Cost cost;
    std::map<unsigned long long, Like> written;
    Count call = 0;
    const Like* of_call = nullptr;
    unsigned agreed = 0; // launches whose drawn blocks did the same, since one's did not
};
constexpr unsigned kLeastAgreed = 2; // behind so many one block is drawn of each
constexpr size_t kMostAlike = 1000;  // that are kept

struct Recording {
    bool on = false;
    int output = -1;
    Program program;
    Multiprocessor multiprocessor;
    Rules rules;
    Allocations allocations;
    unsigned numbers = 1; // 0 are the program's own variables
    std::vector<Range> own;
    Count recorded = 0, executed = 0; // events of the call so far
    std::unique_ptr<Launch> launch;
    std::atomic<Count> waited{0};
    std::map<std::string, unsigned> seen; // launches of each shape
    // Of units of work that were left out, as launches left them, of calls before, too: a kernel's last block may be the one
    // that resets its counter, and it was left out.
    std::map<const void*, unsigned> left_counters;
    unsigned long long seed = 0;       // of which clusters are drawn: kernels do not know it
    unsigned long long given_seed = 0; // the same at first
    // Launches with long blocks that left out others, by what was written of their first cluster alone.
    std::map<std::string, Written> written;
    // What would be written of the first cluster of the launch at hand, empty if its blocks are short.
    std::string first;
    // By what they were given and what their first cluster does.
    std::map<std::string, Alike> alike;
    std::string compared; // of the launch at hand, empty if it is not compared
    Cost cost;
    Given given;
    bool as_before = false;
    const Like* like = nullptr;  // what is written of it again if blocks beside its first cluster do the same
    bool unlike = false;         // they did not
    Count host_instructions = 0; // since the last event
    Count launches = 0, calls = 0;
    unsigned made = 0;          // launches of the call at hand so far
    unsigned needed = 0;        // the last of them whose results somebody needs
    unsigned needed_then = ~0u; // the same of the call before
    bool lacking = false;       // nobody has what blocks of some launch would have left
    bool empty = false;         // nor what inputs would have held
    Count one_unit_of = 0;      // units of work is taken, at least; 0: all are
    bool shared = false;        // the host may read what launches left, and nobody sees it
};

__thread bool left_out; // the block of this OS thread was ended at its limit

Recording& state() {
    static auto* only = new Recording;
    return *only;
}

void write_all(const std::string& text) {
    const char* at = text.data();
    for (size_t left = text.size(); left > 0;) {
        ssize_t written = write(state().output, at, left);
        if (written <= 0)
            std::abort();
        at += written;
        left -= static_cast<size_t>(written);
    }
}

// What the host does between two calls of the runtime; less than that is part of their own time.
void write_host() {
    Recording& recording = state();
    Count instructions = std::exchange(recording.host_instructions, 0);
    if (instructions < recording.rules.host_instructions)
        return;
    char line[64];
    std::snprintf(line, sizeof line, "{\"event\":\"host\",\"instructions\":%llu}\n", instructions);
    write_all(line);
}

template <class... Values> void write_line(const char* format, Values... values) {
    write_host();
    char line[256];
    std::snprintf(line, sizeof line, format, values...);
    write_all(line);
}

// What launches left is needed.
void needs_results() {
    Recording& recording = state();
    recording.needed = recording.made;
    if (!recording.on || !recording.lacking)
        return;
    write_line("{\"event\":\"again\"}\n");
    _exit(EXIT_FAILURE);
}

// So is what inputs hold.
void needs_values() {
    Recording& recording = state();
    recording.lacking |= recording.empty;
    needs_results();
}

int look_at_program(dl_phdr_info* info, size_t, void*) {
    program_base = reinterpret_cast<const char*>(info->dlpi_addr);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& part = info->dlpi_phdr[i];
        if (part.p_type == PT_LOAD && part.p_flags & PF_W)
            state().own.push_back({info->dlpi_addr + part.p_vaddr,
                                   info->dlpi_addr + part.p_vaddr + part.p_memsz, 0, part.p_memsz});
    }
    return 1; // the first entry is the program itself
}

int find_shared(dl_phdr_info* info, size_t, void* found) {
    auto& shared = *static_cast<SharedMemory*>(found);
    for (int i = 0; i < info->dlpi_phnum; ++i)
        if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data) {
            shared.begin[0] = reinterpret_cast<uintptr_t>(info->dlpi_tls_data);
            shared.end[0] = shared.begin[0] + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

// A line each of what an SM of the GPU has, with the seed of what is drawn, and of the figures that counting goes by; then
// the table of instructions: a line "place instructions number" each, "w place" for blocks that loops which wait are not
// made of, "q place" for atomics whose answer nobody takes, lines "< number origin" for loads whose address comes from
// other loads, "@ number first" for basic blocks of a loop that is made one block, "! number" for loads whose values are
// split, "~ number" for loops whose passes wait for each other, "+ number" for additions whose lanes at one address are
// one, "r place registers" for kernels, "u place" for functions that no value in memory steers, with a 1 behind it if they
// call the kernel that the launch names, "n" if a first call is guessed to need nothing of what its launches leave, "i" if
// inputs hold nothing, "s many" if of so many units of work one may be taken, and the empty line that ends it.
void read_program(int input) {
    Program& program = state().program;
    lseek(input, 0, SEEK_SET);
    int copy = dup(input);
    if (FILE* file = copy < 0 ? nullptr : fdopen(copy, "r")) {
        char line[128];
        unsigned place = 0, weight = 0, order = 0;
        Multiprocessor sm;
        unsigned long long seed = 0;
        if (std::fgets(line, sizeof line, file) &&
            std::sscanf(line, "%zu %zu %zu %zu %zu %zu %zu %llu", &sm.count, &sm.l1_bytes, &sm.shared_bytes,
                        &sm.reserved_bytes, &sm.warps, &sm.blocks, &sm.clock_mhz, &seed) >= 7) {
            state().multiprocessor = sm;
            state().seed = state().given_seed = seed;
        }
        Rules rules;
        if (std::fgets(line, sizeof line, file) &&
            std::sscanf(line, "%llu %llu %llu %llu %llu %llu %llu %llu %llu", &rules.unrolled_passes,
                        &rules.other_registers, &rules.least_room, &rules.requests_on_their_way,
                        &rules.longest_sleep_ns, &rules.host_instructions, &rules.question_cycles,
                        &rules.access_cycles, &rules.waited_part) == 9)
            state().rules = rules;
        while (std::fgets(line, sizeof line, file)) {
            unsigned origin = 0;
            if (std::sscanf(line, "< %u %u", &order, &origin) == 2 && order < kPlaces && origin < kPlaces) {
                program.origins.resize(std::max<size_t>(program.origins.size(), order + 1));
                program.origins[order].push_back(origin);
                continue;
            }
            if (std::sscanf(line, "@ %u %u", &order, &origin) == 2 && order < kPlaces) {
                program.loops.resize(std::max<size_t>(program.loops.size(), order + 1));
                program.loops[order] = origin;
                continue;
            }
            unsigned named = 0;
            if (std::sscanf(line, "u %x %u", &place, &named) == 2) {
                program.unsteered[place] = named != 0;
                continue;
            }
            if (std::sscanf(line, "q %x", &place) == 1) {
                program.weights[place % kPlaces] = kUnanswered;
                continue;
            }
            if (std::sscanf(line, "w %x", &place) == 1) {
                program.weights[place % kPlaces] |= kWork;
                continue;
            }
            if (line[0] == 'n') {
                state().needed_then = 0;
                continue;
            }
            if (std::sscanf(line, "s %llu", &state().one_unit_of) == 1)
                continue;
            if (line[0] == 'i') {
                state().empty = true;
                continue;
            }
            unsigned registers = 0;
            if (std::sscanf(line, "r %x %u", &place, &registers) == 2) {
                program.registers[place] = registers;
                continue;
            }
            char sign[2] = {};
            if (std::sscanf(line, "%1[!~+] %u", sign, &order) == 2 && order < kPlaces) {
                std::vector<bool>& those = *sign == '!'   ? program.split
                                           : *sign == '~' ? program.alone
                                                          : program.ones;
                those.resize(std::max<size_t>(those.size(), order + 1));
                those[order] = true;
                continue;
            }
            if (std::sscanf(line, "%x %u %u", &place, &weight, &order) != 3)
                break;
            program.weights[place % kPlaces] = static_cast<unsigned short>(std::min(weight, kWork - 1));
            program.orders[place % kPlaces] = order;
        }
        std::fclose(file);
    }
    lseek(input, 0, SEEK_END);
}

void prepare() {
    Recording& recording = state();
    const char* descriptor = std::getenv("CUDAMASTER_CPU_TRACE");
    if (!descriptor || recording.output >= 0)
        return;
    recording.output = std::atoi(descriptor);
    place_orders = recording.program.orders;
    recording.shared |= __start_cudamaster_managed != __stop_cudamaster_managed;
    dl_iterate_phdr(&look_at_program, nullptr);
    read_program(recording.output);
}

// Whether what a launch does hangs on nothing in memory.
bool is_unsteered(const Job& job) {
    const auto& unsteered = state().program.unsteered;
    auto found = [&](const void* function) {
        return unsteered.find(static_cast<unsigned>(static_cast<const char*>(function) - program_base));
    };
    auto called = found(reinterpret_cast<const void*>(job.launch->invoke));
    if (called == unsteered.end() || !called->second)
        return called != unsteered.end();
    auto kernel = job.launch->function ? found(job.launch->function) : unsteered.end();
    return kernel != unsteered.end() && !kernel->second;
}

size_t share_of_l1(const Job& job) {
    const Multiprocessor& sm = state().multiprocessor;
    size_t shared = job.launch->shared_bytes + sm.reserved_bytes, warps = (job.threads + kWarp - 1) / kWarp;
    size_t resident = std::min({sm.blocks, sm.warps / warps, sm.shared_bytes / std::max<size_t>(shared, 1)});
    resident = std::min<size_t>(std::max<size_t>(resident, 1), (job.blocks + sm.count - 1) / sm.count);
    return (sm.l1_bytes - std::min({resident * shared, sm.shared_bytes, sm.l1_bytes})) / resident;
}

// The place of a block in the order of clusters, which is the grid's where a cluster is one block.
unsigned long long in_clusters(const Job& job, unsigned long long block) {
    if (job.cluster_size == 1)
        return block;
    const dim3 &grid = job.launch->grid, &shape = job.shape;
    unsigned long long x = block % grid.x, y = block / grid.x % grid.y, z = block / grid.x / grid.y;
    unsigned long long wide = grid.x / shape.x, high = grid.y / shape.y;
    unsigned long long cluster = x / shape.x + wide * (y / shape.y + high * (z / shape.z));
    return cluster * job.cluster_size + x % shape.x + shape.x * (y % shape.y + shape.y * (z % shape.z));
}

// About so many blocks in groups of neighbours, spread over the grid: the first and the last are among them.
Plan plan_of(const Job& job, Count wanted) {
    Plan plan;
    const unsigned long long blocks = job.blocks, cluster = job.cluster_size;
    plan.blocks = blocks;
    plan.cluster_blocks = cluster;
    plan.group_blocks = std::min(blocks, (kGroupBlocks + cluster - 1) / cluster * cluster);
    unsigned long long whole = blocks / plan.group_blocks;
    std::vector<unsigned long long> groups;
    for (unsigned i = 0; i < std::min<unsigned long long>(kGroups, whole); ++i)
        groups.push_back((whole <= kGroups ? i : (whole - 1) * i / (kGroups - 1)) * plan.group_blocks);
    if (whole < kGroups && blocks % plan.group_blocks)
        groups.push_back(whole * plan.group_blocks); // one that is cut short
    if (wanted >= std::min<Count>(blocks, kGroups * kGroupBlocks)) {
        plan.groups = groups;
        return plan;
    }
    while (plan.group_blocks > cluster && wanted / plan.group_blocks < 4)
        plan.group_blocks = std::max(plan.group_blocks / 2 / cluster, 1ull) * cluster;
    size_t most = std::max<size_t>(wanted / plan.group_blocks, 3);
    std::vector<size_t> chosen = {0, groups.size() / 2, groups.size() - 1}; // those of the trials
    for (size_t i = 1; i < groups.size() && chosen.size() < most; ++i)
        chosen.push_back(i);
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (size_t i : chosen)
        plan.groups.push_back(groups[i]);
    return plan;
}

// At most so many clusters that are not in the sample, at random places. They say whether those in the sample are like
// others: a kernel may know which these are.
std::vector<unsigned long long> draw(const Plan& plan, unsigned most) {
    const unsigned long long size = plan.cluster_blocks, clusters = plan.blocks / size;
    std::set<unsigned long long> found;
    // A grid that is not much more than its sample may have fewer.
    for (unsigned tried = 0; tried < 8 * most && found.size() < most; ++tried)
        if (unsigned long long block = drawn_below(clusters, state().seed) * size; !plan.has(block))
            found.insert(block);
    return {found.begin(), found.end()};
}

// Where the line of a launch says what blocks beside the sample do.
std::pair<size_t, size_t> of_blocks_beside(const std::string& line) {
    return {line.find(",\"accesses\":"), line.find(",\"executed\":")};
}

// That of a block of the running thread's cluster, null where it is not recorded: all of a cluster are, or none.
Tracer* tracer_of(const Worker& block) {
    return recorder ? static_cast<Tracer*>(block.observer) : nullptr;
}

} // namespace

const unsigned short* place_weights = state().program.weights;

Count drawn_below(Count most, Count& seed) {
    Count mixed = seed += 0x9e3779b97f4a7c15; // splitmix64
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
    return (mixed ^ mixed >> 31) % most;
}

void leaves_units_out() {
    state().lacking = true;
    write_line("{\"event\":\"short\"}\n");
}

void needs_units() {
    needs_results();
}

bool was_left_so(const void* counter, unsigned value) {
    const auto& left = state().left_counters;
    auto found = left.find(counter);
    return found != left.end() && found->second == value;
}

const Rules& rules() {
    return state().rules;
}

unsigned clock_mhz() {
    return static_cast<unsigned>(state().multiprocessor.clock_mhz);
}

// Apart from the call-out, which saves no registers for it.
__attribute__((noinline)) void host_executes(const void* site) {
    Recording& recording = state();
    if (recording.on)
        recording.host_instructions += instructions_at(site) & ~kWork;
}

void host_reads(const void* address) {
    Recording& recording = state();
    if (!recording.on || (recording.needed == recording.made && !recording.empty))
        return;
    auto behind = recording.allocations.upper_bound(address);
    if (behind == recording.allocations.begin())
        return;
    const auto& [base, allocation] = *std::prev(behind);
    if (static_cast<const char*>(address) < static_cast<const char*>(base) + allocation.second)
        needs_values();
}

void leave_out() {
    Launch& launch = *state().launch;
    launch.left_out = true;
    if (recorder)
        launch.alone = true;
    left_out = true;
    abandon_block(*worker);
}

void host_moves(size_t bytes) {
    Recording& recording = state();
    if (recording.on)
        recording.host_instructions += bytes / 16;
}

} // namespace trace

namespace observe {

using namespace trace;

void launch_begins(const Job& job) {
    Recording& recording = state();
    recording.launch.reset();
    ++recording.launches;
    if (!recording.on)
        return;
    const bool unsteered = is_unsteered(job);
    if (!unsteered || recording.shared)
        needs_values();
    recording.first.clear();
    recording.compared.clear();
    recording.as_before = recording.unlike = false;
    recording.like = nullptr;
    ++recording.made;
    auto launch = std::make_unique<Launch>();
    launch->threads = job.threads;
    launch->unsteered = unsteered;
    launch->l1_bytes = share_of_l1(job);
    launch->ranges = recording.own;
    launch->bytes.resize(recording.numbers + 1);
    for (Range& range : launch->ranges) {
        range.first_line = (range.begin - reinterpret_cast<uintptr_t>(program_base)) >> 7;
        launch->bytes[0] += range.bytes;
    }
    std::map<unsigned, std::pair<unsigned long long, size_t>> allocations; // by number, which is their order
    for (const auto& [base, allocation] : recording.allocations)
        allocations[allocation.first] = {reinterpret_cast<uintptr_t>(base), allocation.second};
    unsigned long long range = 0;
    for (const auto& [number, allocation] : allocations) {
        auto [begin, bytes] = allocation;
        unsigned buffer = std::min(number, kMostBuffers);
        launch->ranges.push_back({begin, begin + bytes, buffer, bytes,
                                  std::min<unsigned long long>(++range, kMostBuffers) << kLineBits});
        launch->bytes.at(buffer) = bytes;
    }
    std::sort(launch->ranges.begin(), launch->ranges.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    launch->plan = plan_of(job, kGroups * kGroupBlocks);
    recording.waited = 0;
    recording.launch = std::move(launch);
    write_host();
}

// Blocks of a cooperative launch wait for each other: there is one pass. Nothing says first what a block costs, so each
// has its share of what may be executed. What goes beyond it is ended, and no barrier waits for it any more.
Count steps_of(const Job& job, const Launch& launch, unsigned long long block) {
    if (!job.launch->cooperative || launch.plan.tries(block) || launch.draws(block))
        return 0;
    if (launch.few && !launch.plan.has(block))
        return 1;
    return launch.plan.has(block) ? kRecordedOfLaunch
                                  : kExecutedOfCall / std::max<Count>(job.blocks, kTogether);
}

// Launches of one shape.
std::string shape_of(const Job& job) {
    const CudamasterCpuLaunch& shape = *job.launch;
    char text[160];
    std::snprintf(text, sizeof text, "%p %u %u %u %u", reinterpret_cast<const void*>(shape.invoke),
                  shape.grid.x, shape.grid.y, shape.block.x, shape.block.y);
    return text;
}

// The sample of a launch with so many of its shape before it: what was launched often is looked at less closely.
Plan sample_of(const Job& job, const Cost& cost, unsigned before) {
    const Recording& recording = state();
    Count left = kRecordedOfCall - std::min(recording.recorded, kRecordedOfCall);
    Count wanted = std::min(left / 4, kRecordedOfLaunch) / cost.events;
    wanted = std::min<Count>(wanted, before < 8 ? kGroups * kGroupBlocks : before < 64 ? 16 : 4);
    return plan_of(job, std::max<Count>(wanted, 3));
}

// Whether anybody needs what the launch leaves.
bool is_needed(const Launch& launch) {
    return launch.waiting || launch.talks || state().made <= state().needed_then;
}

// Only the first cluster of the launch is recorded; any other may be drawn to be run beside it.
void keep_to_first(const Job& job, Launch& launch) {
    launch.plan.groups = {0};
    launch.plan.group_blocks = job.cluster_size;
    launch.plan.only_those = true;
    launch.stage = Stage::kAll;
}

// At most so many of the clusters that these blocks are in, at least one.
std::vector<unsigned long long> draw_of(const Job& job, const Work& blocks, unsigned most) {
    std::set<unsigned long long> found;
    for (unsigned i = 0; i < most; ++i) {
        const auto block =
            std::next(blocks.begin(), static_cast<long>(drawn_below(blocks.size(), state().seed)))->first;
        found.insert(block - block % job.cluster_size);
    }
    return {found.begin(), found.end()};
}

// What was written of a launch that this one seems to be like: by what it is given, and by its first cluster. Null if there
// is none with a sample as large as this one's would be, or if its blocks would all be run.
const Like* one_like(const Job& job, const Launch& launch) {
    Recording& recording = state();
    const Count of_first = launch.events + launch.multiplications / kMultiplicationsOfEvent;
    if (!launch.unsteered || is_needed(launch) || job.blocks == job.cluster_size ||
        of_first * (job.blocks / job.cluster_size) <= kExecutedForNobody)
        return nullptr;
    const Count instructions = recording.host_instructions;
    recording.given = given_of(job, recording.allocations);
    recording.host_instructions = instructions; // code of the program has handed out the arguments
    const std::string line =
        recording.given.text.empty() ? "" : renamed(launch.line(job), recording.given.to_roles());
    if (line.empty())
        return nullptr;
    recording.compared = recording.given.text + line;
    auto found = recording.alike.find(recording.compared);
    if (found == recording.alike.end())
        return nullptr;
    Alike& alike = found->second;
    const Count all = alike.cost.all() * job.blocks,
                may = kExecutedOfCall - std::min(recording.executed, kExecutedOfCall);
    if (all <= std::min(may, kExecutedForNobody))
        return nullptr;
    if (alike.call == recording.calls)
        return alike.of_call;
    auto same = alike.written.find(sample_of(job, alike.cost, recording.seen[shape_of(job)]).size());
    return same == alike.written.end() ? nullptr : &same->second;
}

// What was written of that one holds for this launch. What is left of budgets is what it would be if this one had been
// counted.
void take_counts_of(const Job& job, const Like& one) {
    Recording& recording = state();
    Alike& alike = recording.alike[recording.compared];
    alike.call = recording.calls;
    alike.of_call = &one;
    recording.lacking |=
        alike.cost.all() * job.blocks <= kExecutedOfCall - std::min(recording.executed, kExecutedOfCall);
    unsigned& before = recording.seen[shape_of(job)];
    recording.recorded += (sample_of(job, alike.cost, before).size() - job.cluster_size) * alike.cost.events;
    ++before;
}

// Whether blocks did what they did of a launch before.
bool did_the_same(const Work& blocks, const Work& before) {
    return !blocks.empty() && std::includes(before.begin(), before.end(), blocks.begin(), blocks.end());
}

// It only seemed to be like another one: it goes on as if none of its blocks but the first cluster's had been run.
void go_on_unlike(const Job& job, Launch& launch) {
    Recording& recording = state();
    recording.like = nullptr;
    recording.unlike = true;
    recording.waited = 0;
    launch.forget_drawn();
    launch.plan = plan_of(job, kGroups * kGroupBlocks);
}

// The first block has left out units of work. The last one looks for their end, and others say whether any are left.
bool wants_pass_for_units(const Job& job, Launch& launch) {
    if (launch.stage == Stage::kAll)
        return false;
    launch.stage = Stage::kOtherTrials;
    if (looks_again(launch.units))
        return true;
    keep_to_first(job, launch);
    launch.drawn = draw(launch.plan, kMostDrawn);
    return !launch.drawn.empty();
}

// By what the blocks so far have cost: the sample, whether others are run, and if not, which ones to compare with it.
void plan_others(const Job& job, Launch& launch) {
    Recording& recording = state();
    launch.stage = Stage::kAll;
    const Count traced = std::max<Count>(launch.traced, 1);
    const Cost cost = {std::max<Count>((launch.events + launch.dropped) / traced, 1),
                       launch.multiplications / traced / kMultiplicationsOfEvent};
    const unsigned before = recording.seen[shape_of(job)]++;
    launch.plan = sample_of(job, cost, before);
    const Count most = launch.waiting ? kExecutedWaiting : kExecutedOfCall;
    const Count all = cost.all() * job.blocks, may = most - std::min(recording.executed, most);
    launch.plan.only_those = all > (is_needed(launch) ? may : std::min(may, kExecutedForNobody));
    recording.lacking |= launch.plan.only_those && all <= may;
    recording.executed += launch.plan.only_those ? 0 : all;
    recording.cost = cost;
    if (!launch.plan.only_those)
        return;
    const Count few = kExecutedToCompare / (cost.all() * job.cluster_size);
    const Count drawn = before < 8 ? std::clamp<Count>(few, kLeastDrawn, kMostDrawn) : kLeastDrawn;
    launch.drawn = draw(launch.plan, static_cast<unsigned>(drawn));
}

// All blocks of a cooperative launch start. Where nobody needs what they leave and nothing in memory steers them, few go on.
void plan_together(const Job& job, Launch& launch) {
    launch.plan = plan_of(job, kTogether);
    launch.stage = Stage::kAll;
    launch.few = launch.unsteered && !is_needed(launch);
    if (!launch.few)
        return;
    state().lacking = true;
    launch.drawn = draw(launch.plan, kDrawnTogether);
}

bool wants_pass(const Job& job, unsigned pass) {
    Recording& recording = state();
    Launch* launch = recording.launch.get();
    if (!launch)
        return pass == 0;
    if (job.launch->cooperative) {
        if (pass == 0)
            plan_together(job, *launch);
        return pass == 0;
    }
    if (launch->units.apart && pass > 0)
        return wants_pass_for_units(job, *launch);
    if (pass == 1 && (recording.like = one_like(job, *launch))) {
        const bool agreed = recording.alike[recording.compared].agreed >= kLeastAgreed;
        keep_to_first(job, *launch);
        launch->drawn = draw_of(job, recording.like->blocks, agreed ? 1 : kLeastDrawn);
        return true;
    }
    if (pass == 2 && recording.like) {
        if (did_the_same(launch->drawn_work, recording.like->blocks)) {
            ++recording.alike[recording.compared].agreed;
            take_counts_of(job, *recording.like);
            return false;
        }
        recording.alike[recording.compared].agreed = 0;
        go_on_unlike(job, *launch);
    }
    pass -= recording.unlike; // the one that found that out
    if (pass == 1 && launch->events > launch->traced * kLongBlock) {
        recording.first = launch->line(job);
        recording.as_before =
            recording.recorded >= kRecordedOfCall && recording.written.count(recording.first);
        if (recording.as_before) {
            keep_to_first(job, *launch);
            launch->drawn = draw(launch->plan, 1);
            return !launch->drawn.empty();
        }
    }
    if (pass < 2) {
        launch->stage = pass == 0 ? Stage::kFirstBlock : Stage::kOtherTrials;
        if (pass == 1)
            launch->common = launch->all;
        return true;
    }
    if (pass > 2 || recording.as_before || launch->tried.size() == job.blocks)
        return false;
    plan_others(job, *launch);
    return true;
}

// What was written of a launch that left out blocks may hold for later ones: for those that are alike, and in this call for
// those with long blocks that begin as it does.
void keep(std::string line, std::unique_ptr<Launch> launch) {
    Recording& recording = state();
    Work& blocks = launch->traced == launch->plan.blocks ? launch->own_work : launch->drawn_work;
    if (!recording.compared.empty() && !blocks.empty())
        if (std::string roles = renamed(line, recording.given.to_roles()); !roles.empty()) {
            if (recording.alike.size() >= kMostAlike)
                recording.alike.clear();
            Alike& alike = recording.alike[recording.compared];
            alike.cost = recording.cost;
            alike.call = recording.calls;
            Like& like = alike.written[launch->plan.size()];
            like = {std::move(roles), std::move(blocks)};
            alike.of_call = &like;
        }
    if (recording.first.empty())
        return;
    launch->groups.clear();
    launch->all = launch->common = {};
    recording.written[recording.first] = {std::move(line), std::move(launch)};
}

void launch_ends(const Job& job) {
    Recording& recording = state();
    std::unique_ptr<Launch> launch = std::move(recording.launch);
    if (!launch || job.again.load()) // in clusters of another shape
        return;
    recording.recorded += launch->events;
    recording.lacking |= launch->hollow;
    if (launch->units.apart)
        recording.left_counters[launch->units.counter] = launch->units.left;
    if (launch->talks && !launch->units.apart) // but for its own counter
        needs_results();
    if (launch->overwritten)
        needs_values();
    if (job.failed.load() || !launch->traced)
        write_line("{\"event\":\"failed\"}\n");
    else if (recording.like) {
        write_all(renamed(recording.like->line, recording.given.from_roles(recording.allocations)));
    } else if (recording.as_before) {
        const auto& [line, before] = recording.written[recording.first];
        before->drawn_accesses = launch->drawn_accesses;
        before->drawn_instructions = launch->drawn_instructions;
        const std::string anew = before->line(job);
        const auto [begin, end] = of_blocks_beside(line);
        const auto [from, to] = of_blocks_beside(anew);
        write_all(line.substr(0, begin) + anew.substr(from, to - from) + line.substr(end));
    } else {
        std::string line = launch->line(job);
        write_all(line);
        if (launch->plan.only_those && !launch->waiting && !launch->talks)
            keep(std::move(line), std::move(launch));
    }
}

// Of many a launch, the block that finds that it is the last one does more than others. Which one that is must not hang on
// this host's threads, so the last one is in the sample. Where blocks are skipped, none finds that.
bool keeps_last_back(const Job&) {
    const Launch* launch = state().launch.get();
    return launch && launch->stage == Stage::kAll && !launch->plan.only_those;
}

bool wants_block(const Job& job, unsigned long long number) {
    Launch* launch = state().launch.get();
    if (!launch)
        return true;
    unsigned long long block = in_clusters(job, number);
    if (launch->stage == Stage::kFirstBlock)
        return block < job.cluster_size;
    if (launch->units.apart && launch->stage == Stage::kOtherTrials)
        return block == job.blocks - 1;
    if (launch->stage == Stage::kOtherTrials)
        return block >= job.cluster_size && launch->plan.tries(block);
    if (std::find(launch->tried.begin(), launch->tried.end(), block) != launch->tried.end())
        return false;
    return !launch->plan.only_those || launch->plan.has(block) || launch->draws(block);
}

void block_begins(Worker& self, unsigned long long number) {
    Recording& recording = state();
    Launch* launch = recording.launch.get();
    unsigned long long block = in_clusters(*self.job, number);
    time_begins(recording.launches);
    recorder = nullptr;
    units = nullptr;
    accesses = multiplications = instructions = instructions_at_question = 0;
    work_since_question = 0;
    left_out = false;
    steps_left = launch ? steps_of(*self.job, *launch, block) : 0;
    if (launch && launch->units.apart && launch->stage == Stage::kOtherTrials)
        return looks_for_units(launch->units);
    if (!launch || !launch->plan.has(block))
        return;
    if (launch->stage == Stage::kFirstBlock && recording.one_unit_of > 1 && self.job->blocks > 1 &&
        self.job->cluster_size == 1) {
        units = &launch->units;
        units->each = recording.one_unit_of;
        units->seed = recording.given_seed + recording.made; // the same whatever launches before drew
    }
    if (!self.observer)
        self.observer = new Tracer;
    auto* tracer = static_cast<Tracer*>(self.observer);
    SharedMemory shared;
    dl_iterate_phdr(&find_shared, &shared);
    shared.begin[1] = reinterpret_cast<uintptr_t>(cudamaster_cpu_dynamic_shared);
    shared.end[1] = shared.begin[1] + (self.job->launch->shared_bytes + 127) / 128 * 128;
    const void* variables[] = {&threadIdx, &blockIdx, &blockDim, &gridDim, &cudamaster_cpu_dynamic_shared};
    for (int i = 0; i < 5; ++i)
        shared.built_in[i] = reinterpret_cast<uintptr_t>(variables[i]);
    tracer->begin_block(self, *launch, recording.program, shared);
    recorder = tracer;
}

void block_ends(Worker& self) {
    Tracer* tracer = recorder;
    Launch* launch = state().launch.get();
    if (launch && launch->units.apart && launch->stage != Stage::kAll)
        units_end(launch->units);
    if (launch && launch->units.apart) {
        std::lock_guard<std::mutex> lock(launch->mutex);
        launch->units.left = *launch->units.counter;
    }
    unsigned long long block = blockIdx.x + 1ull * gridDim.x * (blockIdx.y + 1ull * gridDim.y * blockIdx.z);
    const bool begun = !self.block_failed || (left_out && (tracer || !launch->few));
    if (launch && begun && (tracer || launch->stage == Stage::kAll))
        launch->note(in_clusters(*self.job, block), accesses, instructions, multiplications,
                     tracer && !left_out);
    if (!tracer)
        return;
    tracer->end_block();
    recorder = nullptr;
    if (tracer->talks())
        launch->talks = true;
    if (!self.block_failed)
        state().launch->add(in_clusters(*self.job, block), tracer->counts(), tracer->lines());
}

// A trial that waits for a block before it is run again with the others, in their order.
bool gave_up(Worker&) {
    const Launch* launch = state().launch.get();
    return launch && (launch->stage == Stage::kOtherTrials || left_out);
}

void thread_begins(Worker& self) {
    if (recorder)
        recorder->thread_begins(self.linear);
}
void thread_ends(Worker& self) {
    if (recorder)
        recorder->thread_ends(self.linear);
}
void barrier_arrives(Worker& self, int kind) {
    if (recorder) {
        recorder->lane(self.linear).grid_barriers += kind == CUDAMASTER_CPU_SYNC_GRID;
        recorder->barrier_arrives(self.linear, kind);
    }
}
void barrier_completes(Worker& self, int) {
    time_is_shared(self.job->threads);
    if (recorder)
        recorder->barrier_completes();
}
void warp_arrives(Worker&, unsigned) {}
void warp_completes(Worker&, unsigned warp, unsigned arrived) {
    if (recorder)
        recorder->warp_completes(warp, arrived);
}

void numbered_completes(Worker&, const unsigned*, const unsigned*) {}
void waited(Worker& self, const void* place) {
    if (recorder)
        recorder->waited(self.linear, place);
}

// Two requests, as if the thread had made them; when they are done nobody is asked.
void copy_starts(Worker&, Copy& copy) {
    copies_asynchronously(copy.target, copy.source, copy.bytes, copy.from_source, copy.site);
    if (recorder)
        recorder->copy_starts(copy.thread);
}
void copy_lands(Worker& self, const Copy& copy) {
    if (Tracer* tracer = tracer_of(self))
        tracer->copy_lands(copy.thread, copy.barrier != nullptr);
}
void copies_will_arrive(Worker&, const void* place) {
    if (recorder)
        recorder->bulk_comes(place, 0);
}

// Only such operations write it, so who waits there is steered by nothing else in memory.
void mbarrier_is_met(Worker& owner, const void* place, unsigned long long word) {
    Tracer* tracer = tracer_of(owner);
    if (tracer && !tracer->left_so(place, word))
        state().launch->overwritten = true;
}
void mbarrier_is_left(Worker& owner, const void* place, unsigned long long word) {
    if (Tracer* tracer = tracer_of(owner))
        tracer->leaves(place, word);
}
void mbarrier_begins(Worker&, const void*, const void*) {}
void mbarrier_ends(Worker&, const void*, const void*) {}
void mbarrier_is_used(Worker&, const void*, bool, const void*) {}
void mbarrier_expects(Worker&, const void*, const void*) {}
void proxy_fence(Worker&, int) {}
void bulk_written(Worker&, const Bulk&) {}
void mbarrier_arrives(Worker&, const void*, unsigned) {}
void mbarrier_completes(Worker&, const void*) {}
void mbarrier_passes(Worker&, const void*, unsigned) {}
void mbarrier_arrives_relaxed(Worker&, const void*, unsigned) {}
void mbarrier_passes_relaxed(Worker&, const void*, unsigned) {}
void cluster_arrives(Worker&, unsigned) {}
void cluster_arrives_relaxed(Worker&, unsigned) {}
void cluster_completes(Cluster&) {}
void cluster_passes(Worker&, unsigned thread) {
    if (recorder)
        recorder->passes_cluster(thread);
}

// A word that is stored to another block is a request of its warp to shared memory. What a copy does in global memory
// counts for the block of its thread, once for all targets; what comes into shared memory for the block whose that is.
void bulk_starts(Worker&, Bulk& bulk) {
    if (bulk.generic) {
        stores_asynchronously(bulk.pieces.front().target, bulk.bytes, bulk.reduce != nullptr, bulk.site);
        if (Tracer* target = tracer_of(owner_of(bulk.barrier)))
            target->store_comes(bulk.barrier);
        return;
    }
    if (!bulk.again) {
        accesses += bulk.bytes / kBytesOfAccess;
        if (recorder)
            recorder->bulk_starts(bulk);
    }
    Tracer* target = bulk.barrier ? tracer_of(owner_of(bulk.barrier)) : nullptr;
    if (target)
        target->bulk_comes(bulk.barrier, bulk.bytes);
}
void bulk_lands(Worker&, const Bulk& bulk) {
    Tracer* target = bulk.barrier ? tracer_of(owner_of(bulk.barrier)) : nullptr;
    for (size_t i = 0; target && i < bulk.pieces.size(); ++i)
        target->overwrites(reinterpret_cast<uintptr_t>(bulk.pieces[i].target), bulk.pieces[i].bytes);
}
// By a map in memory of the device a copy goes where a launch before may have said. Others were given to the launch.
void map_is_read(Worker&, const void* map, unsigned, const void*) {
    Recording& recording = state();
    auto lies_in = [&](uintptr_t begin, size_t bytes) {
        return reinterpret_cast<uintptr_t>(map) - begin < bytes;
    };
    bool of_device = false;
    for (const Range& range : recording.own)
        of_device |= lies_in(range.begin, range.bytes);
    auto behind = recording.allocations.upper_bound(map);
    if (behind != recording.allocations.begin()) {
        const auto& [base, allocation] = *std::prev(behind);
        of_device |= lies_in(reinterpret_cast<uintptr_t>(base), allocation.second);
    }
    if (of_device && recording.launch)
        recording.launch->overwritten = true;
}

// All threads of a warp say the same.
void product_starts(Worker& self, const CudamasterCpuWgmma& product) {
    if (self.linear % kWarp)
        return;
    accesses += product.columns;
    if (recorder)
        recorder->product_starts(product);
}
void multiplies(unsigned long long times) {
    multiplications += times;
}
void products_end(Worker&, unsigned, unsigned) {}
bool wants_pieces() {
    return false;
}
// Of a launch that nothing steers none matters, if no later one is steered by what it leaves.
bool wants_products() {
    Recording& recording = state();
    Launch* launch = recording.launch.get();
    if (!launch || !launch->unsteered || recording.made <= recording.needed_then)
        return true;
    launch->hollow = true;
    return false;
}
// No value of a counted call is checked. Those by which a kernel decides what it does are right to f32.
bool wants_all_bits() {
    return false;
}
void piece_starts(Worker&, const char*, unsigned, const void*) {}
void piece_lands(Worker&, const char*, unsigned) {}

void uncounted(const char* what) {
    static thread_local char text[128];
    std::snprintf(text, sizeof text, "%s is not counted", what);
    fail_block(text);
}

void yields(Worker& self) {
    Recording& recording = state();
    Launch* launch = recording.launch.get();
    if (!launch || !self.running)
        return;
    if (launch->stage == Stage::kOtherTrials && ++recording.waited > kPatienceOfTrials) {
        launch->waiting = true;
        abandon_block(self);
    }
    if (launch->stage == Stage::kAll && (launch->plan.only_those || launch->left_out) &&
        ++recording.waited > kPatience)
        fail_block("a block waits for one that is left out of the sample");
}

bool poisons() {
    return false; // of outputs of gigabytes few blocks are run
}
void allocated(const void* base, size_t bytes) {
    Recording& recording = state();
    recording.allocations[base] = {recording.numbers++, bytes};
    if (recording.on)
        write_line("{\"event\":\"alloc\",\"bytes\":%zu}\n", bytes);
}
void freed(const void* base) {
    Recording& recording = state();
    recording.allocations.erase(base);
    if (recording.on)
        write_line("{\"event\":\"free\"}\n");
}
void copied(const void*, size_t, size_t whole, bool host) {
    if (host)
        needs_values();
    if (state().on && whole)
        write_line("{\"event\":\"copy\",\"bytes\":%zu,\"host\":%s}\n", whole, host ? "true" : "false");
}
void filled(const void*, size_t, size_t whole) {
    if (state().on && whole)
        write_line("{\"event\":\"memset\",\"bytes\":%zu}\n", whole);
}
// A host that waits may read what launches left, by a function that nobody sees.
void found_done() {
    needs_values();
}
void shared_with_host() {
    state().shared = true;
}
void synchronised() {
    needs_values();
    if (state().on)
        write_line("{\"event\":\"synchronise\"}\n");
}

void recording(bool on) {
    prepare();
    Recording& recording = state();
    if (recording.output < 0)
        return;
    recording.on = on;
    if (!on)
        recording.needed_then = recording.needed;
    recording.lacking = false;
    if (on) {
        ++recording.calls;
        recording.made = recording.needed = 0;
        recording.recorded = recording.executed = recording.host_instructions = 0;
        recording.seen.clear();
        recording.written.clear();
    }
    write_line("{\"event\":\"%s\"}\n", on ? "call" : "end");
}

} // namespace observe
} // namespace executor
