// From the events of single threads to what their warp executes.
#include "trace/trace.h"

#include <sys/mman.h>
#include <cstdlib>
#include <utility>

namespace executor {
namespace trace {

namespace {

constexpr unsigned kDone = ~0u;
// Of a key, the place in the program's order; what is above says how deep the call is.
constexpr unsigned kNumber = (1u << 24) - 1;
// Lanes are apart by more than a page, or all would compete for the same lines of the host's cache.
constexpr size_t kLaneStride = kEventsOfLane + 20;
constexpr size_t kAhead = 24; // steps of a lane that the host's cache is asked for beforehand

} // namespace

Room::Room() {
    void* pages = mmap(nullptr, kWarp * kLaneStride * sizeof(Event), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED)
        std::abort();
    memory = static_cast<Event*>(pages);
}

Event* Room::of_lane(unsigned lane) const {
    return memory + lane * kLaneStride;
}

// Lanes that take part in a step, by their numbers, and where each goes.
struct Tracer::Step {
    Act kind;
    unsigned bytes, count;
    unsigned number; // its place in the program's order
    unsigned lanes;  // a bit for each
    unsigned char lane[kWarp];
    unsigned long long address[kWarp];
    // Whether each lane goes on where the one before it ends, with whole words or parts of one: most requests do.
    bool in_line() const {
        unsigned long long apart = 0;
        for (unsigned i = 0; i < count; ++i)
            apart |= address[i] ^ (address[0] + i * bytes);
        return !apart && bytes && (bytes % 4 == 0 || bytes < 4);
    }
};

void Tracer::make_room(Lane& lane, unsigned thread) {
    WarpTrace& warp = warps_[thread / kWarp];
    if (!warp.room) {
        if (free_rooms_.empty()) {
            rooms_.push_back(std::make_unique<Room>());
            free_rooms_.push_back(rooms_.back().get());
        }
        warp.room = free_rooms_.back();
        free_rooms_.pop_back();
    }
    lane.begin = lane.next = warp.room->of_lane(thread % kWarp);
    lane.end = lane.begin + kEventsOfLane;
}

void Tracer::merge(unsigned number) {
    WarpTrace& warp = warps_[number];
    if (!warp.room)
        return;
    Lane* lanes = &lanes_[number * kWarp];
    const Event* at[kWarp];
    const Event* end[kWarp];
    alignas(64) unsigned next[kWarp];
    for (unsigned i = 0; i < kWarp; ++i) {
        bool there = number * kWarp + i < threads_;
        at[i] = there ? lanes[i].begin : nullptr;
        end[i] = there ? lanes[i].next : nullptr;
        next[i] = at[i] != end[i] ? at[i]->key : kDone;
        if (!there)
            continue;
        warp.events += lanes[i].steps();
        warp.dropped += lanes[i].dropped;
        counts_.events += lanes[i].steps();
        counts_.dropped += lanes[i].dropped;
        lanes[i].begin = lanes[i].next = lanes[i].end = nullptr;
        lanes[i].last_pass = lanes[i].pass_before = nullptr;
        lanes[i].dropped = 0;
    }
    unsigned last_place = kDone;
    begins_anew();
    passes_.clear();
    std::fill(std::begin(reached_), std::end(reached_), 0);
    depth_ = loop_ = 0;
    pass_stored_ = false;
    for (;;) {
        unsigned lowest = kDone;
        for (unsigned i = 0; i < kWarp; ++i)
            lowest = std::min(lowest, next[i]);
        if (lowest == kDone)
            break;
        Step step;
        step.count = step.lanes = 0;
        for (unsigned i = 0; i < kWarp; ++i)
            step.lanes |= next[i] == lowest ? 1u << i : 0;
        const Event* first = nullptr;
        for (unsigned left = step.lanes; left; left &= left - 1) {
            auto i = static_cast<unsigned>(__builtin_ctz(left));
            const Event* event = at[i]++;
            __builtin_prefetch(event + kAhead);
            first = event;
            step.lane[step.count] = static_cast<unsigned char>(i);
            step.address[step.count++] = event->address;
            next[i] = at[i] != end[i] ? at[i]->key : kDone;
        }
        if (first->kind == Act::kBlock) {
            auto place = static_cast<unsigned>(first->address);
            counts_.execute(place, step.count);
            warp.instructions += program_->weight_of(place);
            pass(warp, step, lowest, place == last_place);
            last_place = place;
            continue;
        }
        step.kind = first->kind;
        step.bytes = first->bytes;
        step.number = lowest & kNumber;
        take(warp, step);
    }
    ends_loop(warp);
    free_rooms_.push_back(warp.room);
    warp.room = nullptr;
}

// Nothing that was asked for is on its way any more.
void Tracer::begins_anew() {
    asked_ = asked_remote_ = stored_ = stored_shared_ = loaded_shared_ = split_ = false;
    ++group_;
}

// The warp comes to a basic block, to the same once more if it is a loop by itself, or to the next one of a loop that is
// made one. In such a loop, what passes store in shared memory comes behind what they load, unless they load from there,
// too: compilers know that from global memory.
void Tracer::pass(WarpTrace& warp, const Step& step, unsigned key, bool same) {
    unsigned depth = 255 - (key >> 24), number = key & kNumber;
    if (depth > depth_)
        std::fill(reached_ + depth_ + 1, reached_ + depth + 1, 0);
    depth_ = depth;
    bool back = number <= reached_[depth];
    reached_[depth] = number;
    stored_ |= stored_shared_ && loaded_shared_;
    unsigned loop = program_->loop_of(number);
    bool goes_on = loop && loop == loop_ && depth == loop_depth_;
    pass_stored_ |= stored_;
    if (goes_on && number > in_loop_) {
        in_loop_ = number;
        if (stored_ || split_)
            begins_anew();
        passes_.back().lanes |= step.lanes;
        return;
    }
    same = (same || goes_on) && !pass_stored_ && !program_->is_alone(number);
    loop_ = loop, loop_depth_ = depth, in_loop_ = number;
    if (!same)
        ends_loop(warp);
    if (same || stored_ || stored_shared_ || split_ || back)
        begins_anew();
    pass_stored_ = false;
    passes_.push_back({warp.waits, warp.remote_waits, warp.requests.size(), step.lanes, 0});
}

// The warp leaves a block that may have been a loop by itself. Compilers for GPUs make four passes into one: what these
// ask for is on its way together. Those beyond a multiple of four come one at a time, in front of the others or, as here,
// behind them. Lanes with different numbers of passes take their turns, so a warp has most of both.
void Tracer::ends_loop(WarpTrace& warp) {
    size_t number = passes_.size(), alone = 0, fours = 0;
    if (number > 1) {
        const size_t unrolled = rules().unrolled_passes;
        for (unsigned i = 0; i < kWarp; ++i) {
            size_t own = 0;
            for (const Pass& pass : passes_)
                own += pass.lanes >> i & 1;
            alone = std::max(alone, own % unrolled);
            fours = std::max(fours, own / unrolled);
        }
        Count waits = 0, remote_waits = 0;
        // Registers may have no room for what four passes ask for.
        Count of_pass = (warp.waits - passes_[0].waits) / number;
        unsigned words = 0;
        for (const Pass& pass : passes_)
            words = std::max(words, pass.words);
        size_t times = std::max<size_t>(
            (unrolled * words / std::max<Count>(of_pass, 1) + room_ / 2) / std::max(room_, 1u), 1);
        if (room_)
            fours *= std::min(times, unrolled);
        size_t left = number - alone,
               chosen = 0; // before the last few, so many at even distances stand for all
        fours = std::min(fours, left);
        passes_.push_back({warp.waits, warp.remote_waits, warp.requests.size(), 0, 0});
        for (size_t k = 0; k < number; ++k) {
            bool rest = k >= left, counts = rest || (fours && k * fours / left == chosen);
            chosen += !rest && counts;
            if (counts) {
                waits += passes_[k + 1].waits - passes_[k].waits;
                remote_waits += passes_[k + 1].remote_waits - passes_[k].remote_waits;
            } else {
                for (size_t i = passes_[k].requests; i < passes_[k + 1].requests; ++i)
                    warp.requests[i].waits = 0;
            }
        }
        warp.waits = passes_[0].waits + waits;
        warp.remote_waits = passes_[0].remote_waits + remote_waits;
    }
    passes_.clear();
}

// Whether the address of a load is made from what was asked for and is on its way.
bool Tracer::waits_for(unsigned number) {
    for (unsigned origin : program_->origins_of(number))
        if (origin < asked_in_.size() && asked_in_[origin] == group_)
            return true;
    return false;
}

void Tracer::take(WarpTrace& warp, const Step& step) {
    unsigned long long address = step.address[0];
    bool own = shared_.has(address), remote = false;
    for (unsigned i = 0; cluster_ && i < step.count && !remote; ++i)
        remote = is_remote(step.address[i]);
    if (own || remote) {
        if (remote || !shared_.is_built_in(address))
            take_shared(warp, step, remote);
        return;
    }
    if (const Range* range = range_of(address))
        take_global(warp, step, *range);
}

// Whether it is shared memory of another block of the cluster.
bool Tracer::is_remote(unsigned long long address) const {
    if (shared_.has(address))
        return false;
    for (unsigned rank = 0; cluster_ && rank < cluster_->size; ++rank) {
        const auto* other = static_cast<const Tracer*>(cluster_->members[rank]->observer);
        if (other && other->shared_.has(address) && !other->shared_.is_built_in(address))
            return true;
    }
    return false;
}

// Neither global nor shared memory, nor a thread's own: parameters and constants.
const Range* Tracer::range_of(unsigned long long address) {
    if (last_range_ && address >= last_range_->begin && address < last_range_->end)
        return last_range_;
    const auto& ranges = launch_->ranges;
    auto after =
        std::upper_bound(ranges.begin(), ranges.end(), address,
                         [](unsigned long long wanted, const Range& range) { return wanted < range.begin; });
    if (after == ranges.begin() || address >= after[-1].end)
        return nullptr;
    return last_range_ = &after[-1];
}

// Wavefronts of one request: 32 banks of 4 bytes, and each bank serves one word at a time. Lanes that want the same word
// share it, unless each has it to itself; 8 bytes go in two halves of the warp, 16 in four.
Count Tracer::wavefronts_of(const Step& step, bool shares, bool in_line) {
    const unsigned words = std::max(step.bytes / 4, 1u), lanes_at_once = words == 1 ? kWarp : kWarp / words;
    Count wavefronts = 0;
    if (in_line && shares) { // each part has its words in banks of their own
        if (words == 1)
            return 1;
        for (unsigned left = step.lanes; left; left >>= lanes_at_once)
            wavefronts += (left & ((1u << lanes_at_once) - 1)) != 0;
        return wavefronts;
    }
    unsigned long long seen[kWarp][kWarp];
    for (unsigned i = 0; i < step.count;) {
        unsigned end = (step.lane[i] / lanes_at_once + 1) * lanes_at_once, deepest = 1; // of the part
        unsigned char count[kWarp] = {};
        for (; i < step.count && step.lane[i] < end; ++i)
            for (unsigned k = 0; k < words; ++k) {
                unsigned long long word = step.address[i] / 4 + k;
                unsigned bank = word % kWarp, known = 0;
                if (shares)
                    while (known < count[bank] && seen[bank][known] != word)
                        ++known;
                else
                    known = count[bank];
                if (known == count[bank] && known < kWarp) {
                    seen[bank][known] = word;
                    deepest = std::max<unsigned>(deepest, ++count[bank]);
                }
            }
        wavefronts += deepest;
    }
    return wavefronts;
}

// Cycles in which L1 looks up the lines of a request: four at once, from four banks of tags. Neighbouring lines lie in
// different ones; which of them a line is in also depends on its other bits (measured on an H200 within a tenth:
// 12 cycles for 32 lines far apart, 8 for neighbours). `first` is the buffer's first line: counts are the same in each run.
static Count lookups_of(const unsigned long long* lines, unsigned count, unsigned long long first) {
    unsigned of_bank[4] = {};
    for (unsigned i = 0; i < count; ++i) {
        unsigned long long bits = lines[i] - first;
        for (unsigned half = 32; half > 1; half /= 2)
            bits ^= bits >> half;
        ++of_bank[bits & 3];
    }
    return *std::max_element(of_bank, of_bank + 4);
}

// Cycles in which what a request stores leaves the SM: one for each sector, and one for a line of which some sectors are
// written in part. An addition to one word of a line takes one (measured on an H200).
Count Tracer::sends_of(const Step& step, const unsigned long long* lines, const unsigned* sectors,
                       unsigned count, bool in_line) {
    Count sends = 0;
    if (in_line && step.kind == Act::kStore) { // in part are but the first sector and the last
        const unsigned long long begin = step.address[0], end = step.address[step.count - 1] + step.bytes;
        for (unsigned i = 0; i < count; ++i)
            sends += static_cast<Count>(__builtin_popcount(sectors[i])) +
                     ((begin % 32 && begin >> 7 == lines[i]) || (end % 32 && end >> 7 == lines[i]));
        return sends;
    }
    unsigned written[2 * kWarp][4] = {}, lanes[2 * kWarp] = {}, at = 0;
    for (unsigned k = 0; k < step.count; ++k) {
        unsigned long long begin = step.address[k], end = begin + std::max(step.bytes, 1u);
        for (unsigned long long sector = begin >> 5; sector <= (end - 1) >> 5; ++sector) {
            while (lines[at] != sector >> 2)
                at = at + 1 < count ? at + 1 : 0;
            lanes[at] += sector == begin >> 5;
            written[at][sector & 3] +=
                static_cast<unsigned>(std::min(end, (sector + 1) << 5) - std::max(begin, sector << 5));
        }
    }
    for (unsigned i = 0; i < count; ++i) {
        bool in_part = step.kind == Act::kAtomic;
        for (unsigned k = 0; k < 4; ++k)
            in_part |= written[i][k] && written[i][k] < 32;
        sends += step.kind == Act::kAtomic && lanes[i] == 1
                     ? 1
                     : static_cast<Count>(__builtin_popcount(sectors[i])) + in_part;
    }
    return sends;
}

void Tracer::take_shared(WarpTrace& warp, const Step& step, bool remote) {
    unsigned kind = step.kind == Act::kAtomic ? 2 : step.kind == Act::kStore ? 1 : 0;
    ++counts_.shared.requests[kind];
    counts_.shared.wavefronts[kind] +=
        wavefronts_of(step, step.kind != Act::kAtomic || program_->is_one(step.number), step.in_line());
    loaded_shared_ |= step.kind == Act::kLoad;
    stored_shared_ |= step.kind == Act::kStore;
    stored_ |= step.kind == Act::kAtomic || (remote && step.kind == Act::kStore);
    if (!remote)
        return;
    ++counts_.shared.remote[kind];
    counts_.shared.remote_bytes += Count{step.bytes} * step.count;
    if (step.kind == Act::kLoad)
        warp.remote_waits += waits_anew(step, asked_remote_);
}

// A load: whether the warp waits for it apart from those that are on their way. `asked` says whether some of its kind
// are, and now they are.
bool Tracer::waits_anew(const Step& step, bool& asked) {
    if (waits_for(step.number)) {
        asked_ = asked_remote_ = false;
        ++group_;
    }
    if (step.number >= asked_in_.size())
        asked_in_.resize(step.number + 1);
    asked_in_[step.number] = group_;
    return !std::exchange(asked, true);
}

void Tracer::take_global(WarpTrace& warp, const Step& step, const Range& range) {
    unsigned long long lines[2 * kWarp], highest = 0;
    unsigned sectors[2 * kWarp], count = 0, last = 0;
    const bool in_line = step.in_line();
    if (in_line) {
        unsigned long long begin = step.address[0] >> 5,
                           end = (step.address[step.count - 1] + step.bytes - 1) >> 5;
        for (unsigned long long line = begin >> 2; line <= end >> 2; ++line) {
            lines[count] = line;
            sectors[count++] = (line == begin >> 2 ? 0xfu << (begin & 3) & 0xf : 0xfu) &
                               (line == end >> 2 ? 0xfu >> (3 - (end & 3)) : 0xfu);
        }
    }
    for (unsigned i = in_line ? step.count : 0; i < step.count; ++i) {
        unsigned long long begin = step.address[i] >> 5,
                           end = (step.address[i] + std::max(step.bytes, 1u) - 1) >> 5;
        for (unsigned long long sector = begin; sector <= end; ++sector) {
            unsigned long long line = sector >> 2;
            if (!count || lines[last] != line) {
                // Most go from lower addresses to higher ones.
                for (last = line > highest ? count : 0; last < count && lines[last] != line;)
                    ++last;
                if (last == count) {
                    highest = std::max(highest, line);
                    lines[count] = line;
                    sectors[count++] = 0;
                }
            }
            sectors[last] |= 1u << (sector & 3);
        }
    }
    bool copied = step.kind == Act::kCopy, waits = false;
    Ask ask = step.kind == Act::kAtomic ? Ask::kAtomic : step.kind == Act::kStore ? Ask::kStore : Ask::kLoad;
    stored_ |= step.kind == Act::kStore || step.kind == Act::kAtomic;
    if (step.kind == Act::kLoad) {
        waits = waits_anew(step, asked_);
        split_ |= program_->is_split(step.number);
        if (!passes_.empty())
            passes_.back().words += std::max(step.bytes / 4, 1u);
    } else if (copied && waits_for(step.number))
        begins_anew();
    Count touched = 0;
    for (unsigned i = 0; i < count; ++i) {
        touched += static_cast<Count>(__builtin_popcount(sectors[i]));
        LineRequest request = {};
        request.line = range.number_of(lines[i]);
        request.sectors = sectors[i];
        request.first = i == 0;
        request.ask = static_cast<unsigned>(ask);
        request.waits = i == 0 && waits;
        request.copied = copied;
        request.buffer = range.buffer;
        warp.requests.push_back(request);
    }
    TrafficCounts& traffic = counts_.traffic[range.buffer];
    traffic.lines += count;
    // L1 keeps its data in the same banks as shared memory, and its lines' tags in four others.
    traffic.wavefronts += wavefronts_of(step, true, in_line);
    traffic.lookups += lookups_of(lines, count, range.begin >> 7);
    switch (ask) {
    case Ask::kLoad:
        ++traffic.load_requests;
        traffic.load_sectors += touched;
        warp.waits += waits;
        break;
    case Ask::kStore:
        ++traffic.store_requests;
        traffic.store_sectors += touched;
        traffic.store_lines += count;
        traffic.sends += sends_of(step, lines, sectors, count, in_line);
        break;
    case Ask::kAtomic: {
        ++traffic.atomic_requests;
        traffic.atomic_sectors += touched;
        traffic.sends += sends_of(step, lines, sectors, count, in_line);
        unsigned long long seen[kWarp];
        unsigned distinct = 0;
        for (unsigned i = 0; i < step.count; ++i) {
            ++counts_.atomics[step.address[i]];
            unsigned known = 0;
            while (known < distinct && seen[known] != step.address[i])
                ++known;
            if (known == distinct)
                seen[distinct++] = step.address[i];
        }
        ++counts_.atomic_requests;
        counts_.atomic_lanes += step.count;
        counts_.atomic_addresses += distinct;
    }
    }
}

// The warps of a block run side by side on a GPU: their requests take turns at the cache.
void Tracer::drain() {
    struct Place {
        const LineRequest* at;
        const LineRequest* end;
        WarpTrace* warp;
        bool cold, far; // the wait at hand is counted already
    };
    std::vector<Place> places;
    for (unsigned warp = 0; warp * kWarp < threads_; ++warp)
        if (auto& requests = warps_[warp].requests; !requests.empty())
            places.push_back(
                {requests.data(), requests.data() + requests.size(), &warps_[warp], false, false});
    // What another warp has just asked for is still on its way.
    auto on_its_way = static_cast<unsigned>(rules().requests_on_their_way * places.size());
    while (!places.empty()) {
        size_t kept = 0;
        for (Place place : places) {
            do {
                LineRequest request = *place.at++;
                unsigned sectors = request.sectors;
                bool comes = false;
                switch (static_cast<Ask>(request.ask)) {
                case Ask::kLoad:
                    place.cold &= !request.waits;
                    place.far &= !request.waits;
                    if (unsigned missed = l1_.load(request.line, sectors, on_its_way, comes)) {
                        counts_.traffic[request.buffer].missed_sectors +=
                            static_cast<Count>(__builtin_popcount(missed));
                        ++counts_.traffic[request.buffer].missed_lines;
                        // L2 has the other half of a pair of which the block has asked for one.
                        if (missed & ~pairs_of(lines_.read(request.line)))
                            l1_.comes_from_afar();
                        unsigned fresh = lines_.add(request.line, missed, 0, request.buffer);
                        counts_.traffic[request.buffer].common_sectors += static_cast<Count>(
                            __builtin_popcount(fresh & launch_->common.read(request.line)));
                    }
                    comes &= !request.copied;
                    place.warp->cold_waits += comes && !place.cold;
                    place.cold |= comes;
                    if (comes && l1_.is_from_afar(on_its_way)) {
                        place.warp->far_waits += !place.far;
                        place.far = true;
                    }
                    break;
                case Ask::kStore:
                    lines_.add(request.line, 0, sectors, request.buffer);
                    break;
                case Ask::kAtomic:
                    lines_.add(request.line, sectors, sectors, request.buffer);
                    break;
                }
            } while (place.at != place.end && !place.at->first);
            if (place.at != place.end)
                places[kept++] = place;
        }
        places.resize(kept);
    }
    for (unsigned warp = 0; warp * kWarp < threads_; ++warp)
        warps_[warp].requests.clear();
}

// Behind a barrier of the block all its warps go on together: the one that had most to do held the others up.
void Tracer::ends_stretch() {
    Way most;
    for (unsigned number = 0; number * kWarp < threads_; ++number) {
        WarpTrace& warp = warps_[number];
        Way now;
        now.instructions = warp.instructions;
        now.waits = warp.waits + warp.copies_waited;
        now.cold_waits = warp.cold_waits + warp.copies_waited;
        now.far_waits = warp.far_waits + warp.copies_waited;
        now.remote_waits = warp.remote_waits;
        const Way& before = warp.at_barrier;
        most.instructions = std::max(most.instructions, now.instructions - before.instructions);
        most.waits = std::max(most.waits, now.waits - before.waits);
        most.cold_waits = std::max(most.cold_waits, now.cold_waits - before.cold_waits);
        most.far_waits = std::max(most.far_waits, now.far_waits - before.far_waits);
        most.remote_waits = std::max(most.remote_waits, now.remote_waits - before.remote_waits);
        warp.at_barrier = now;
    }
    counts_.way.instructions += most.instructions;
    counts_.way.waits += most.waits;
    counts_.way.cold_waits += most.cold_waits;
    counts_.way.far_waits += most.far_waits;
    counts_.way.remote_waits += most.remote_waits;
}

void Tracer::begin_block(const Worker& block, const Launch& launch, const Program& program,
                         const SharedMemory& shared) {
    launch_ = &launch;
    program_ = &program;
    shared_ = shared;
    talks_ = false;
    first_sum_ = ~0ull;
    last_sum_ = 0;
    sums_.clear();
    cluster_ = in_cluster(block) ? block.cluster : nullptr;
    barriers_of_copies_.clear();
    words_.clear();
    barriers_of_stores_.clear();
    waited_for_.clear();
    threads_ = block.job->threads;
    const auto* function = static_cast<const char*>(block.job->launch->function);
    unsigned registers = function ? program.registers_of(static_cast<unsigned>(function - program_base)) : 0;
    auto others = static_cast<unsigned>(rules().other_registers),
         least = static_cast<unsigned>(rules().least_room);
    room_ = registers ? std::max(registers, others + least) - others : 0;
    counts_.buffers = launch.bytes.empty()
                          ? 0
                          : static_cast<unsigned>(std::min<size_t>(launch.bytes.size() - 1, kMostBuffers));
    counts_.clear();
    l1_.reset(launch_->l1_bytes);
    lines_.clear();
    last_range_ = nullptr;
    for (unsigned warp = 0; warp * kWarp < threads_; ++warp) {
        WarpTrace& trace = warps_[warp];
        trace.pending = trace.live = std::min(kWarp, threads_ - warp * kWarp);
        trace.events = trace.dropped = 0;
        trace.barriers = trace.instructions = trace.waits = trace.cold_waits = trace.far_waits =
            trace.copies_waited = trace.remote_waits = 0;
        trace.at_barrier = {};
        trace.requests.clear();
        trace.copies_waited_for.clear();
        trace.stores_waited_for.clear();
        if (trace.room)
            free_rooms_.push_back(trace.room);
        trace.room = nullptr;
    }
    for (unsigned i = 0; i < threads_; ++i)
        lanes_[i] = {};
}

void Tracer::arrive(unsigned warp) {
    if (--warps_[warp].pending == 0)
        merge(warp);
}

void Tracer::thread_begins(unsigned thread) {
    lanes_[thread].depth = 0;
}

void Tracer::thread_ends(unsigned thread) {
    WarpTrace& warp = warps_[thread / kWarp];
    // The others have come to a barrier that waits for no thread of the warp any more.
    if (--warp.live && warp.pending == 1)
        ++warp.barriers;
    arrive(thread / kWarp);
}

void Tracer::barrier_arrives(unsigned thread, int) {
    WarpTrace& warp = warps_[thread / kWarp];
    if (warp.pending == 1)
        ++warp.barriers;
    arrive(thread / kWarp);
}

void Tracer::barrier_completes() {
    for (unsigned warp = 0; warp * kWarp < threads_; ++warp)
        warps_[warp].pending = warps_[warp].live;
    drain();
    ends_stretch();
}

// Where the whole warp meets, what it did so far need not be kept.
void Tracer::warp_completes(unsigned number, unsigned arrived) {
    WarpTrace& warp = warps_[number];
    if (static_cast<unsigned>(__builtin_popcount(arrived)) != warp.live || !warp.room ||
        warp.pending != warp.live)
        return;
    const Lane& lane = lanes_[number * kWarp + static_cast<unsigned>(__builtin_ctz(arrived))];
    if (lane.steps() > kEventsOfLane / 8)
        merge(number);
}

// Each sector of global memory once, however many pieces lie in it. It goes past L1.
void Tracer::bulk_starts(const Bulk& bulk) {
    unsigned long long line = 0;
    unsigned sectors = 0, buffer = 0;
    Ask ask = Ask::kLoad;
    auto take = [&] {
        counts_.traffic[buffer].bulk[static_cast<unsigned>(ask)] +=
            static_cast<Count>(__builtin_popcount(sectors));
        if (sectors)
            lines_.add(line, ask == Ask::kStore ? 0 : sectors, ask == Ask::kLoad ? 0 : sectors, buffer);
        sectors = 0;
    };
    for (const BulkPiece& piece : bulk.pieces) {
        auto address = reinterpret_cast<uintptr_t>(piece.source);
        const Range* range = bulk.taken ? nullptr : range_of(address);
        if (range)
            ask = Ask::kLoad;
        else if (!bulk.taken && piece.source)
            counts_.shared.bulk_bytes += piece.bytes;
        if (!range && (range = range_of(address = reinterpret_cast<uintptr_t>(piece.target))))
            ask = bulk.reduce ? Ask::kAtomic : Ask::kStore;
        if (!range)
            continue;
        for (unsigned long long sector = address >> 5; sector <= (address + piece.bytes - 1) >> 5; ++sector) {
            if (sectors && (line != range->number_of(sector >> 2) || buffer != range->buffer))
                take();
            line = range->number_of(sector >> 2);
            buffer = range->buffer;
            sectors |= 1u << (sector & 3);
        }
    }
    take();
}

void Tracer::bulk_comes(const void* barrier, unsigned bytes) {
    barriers_of_copies_.insert(barrier);
    counts_.shared.bulk_bytes += bytes;
}

// Each of the four warps makes a quarter: 16 rows, with 32 bytes of k. The second factor is read once for all of them. Of a
// sparse product those that are made count, half of its shape, and all of the second factor.
void Tracer::product_starts(const CudamasterCpuWgmma& product) {
    constexpr unsigned kRows = 16, kBytes = 32;
    unsigned type = 0, bytes = 2;
    switch (product.a_kind) {
    case CUDAMASTER_CPU_F16:
    case CUDAMASTER_CPU_BF16:
        break;
    case CUDAMASTER_CPU_TF32:
        type = 1, bytes = 4;
        break;
    case CUDAMASTER_CPU_E4M3:
    case CUDAMASTER_CPU_E5M2:
        type = 2, bytes = 1;
        break;
    default:
        type = 3, bytes = 1;
    }
    counts_.products.operations[type] += 2ull * kRows * product.columns * (kBytes / bytes);
    counts_.shared.factor_bytes += (product.a_in_registers ? 0 : kRows * kBytes) +
                                   product.columns * (product.sparse ? 2 * kBytes : kBytes) / 4;
}

// Lanes of a warp that wait for the same find that out at different places of a loop, so they are not brought together:
// the lane that waits most often stands for its warp.
void Tracer::waited(unsigned thread, const void* place) {
    ++lanes_[thread].waits;
    lanes_[thread].asked = lanes_[thread].worked = true;
    bool copies = barriers_of_copies_.count(place), stores = !copies && barriers_of_stores_.count(place);
    if (!copies && !stores)
        return;
    WarpTrace& warp = warps_[thread / kWarp];
    Count& of_warp = (copies ? warp.copies_waited_for : warp.stores_waited_for)[place];
    Count of_lane = ++waited_for_[{thread, place}];
    // What other blocks store comes from what they had before, so that one wait follows another.
    warp.remote_waits += stores && of_lane > of_warp;
    of_warp = std::max(of_warp, of_lane);
}

// Of a ring, what is waited for was begun some waits ago: then it comes while the thread waits for those before. So a
// latency is counted for as many stages as are on their way.
void Tracer::copy_starts(unsigned thread) {
    Lane& lane = lanes_[thread];
    if (lane.copying.empty() || lane.copying.back().waited != lane.copies_waited)
        lane.copying.push_back({lane.copies_waited, 0});
    ++lane.copying.back().count;
}

void Tracer::copy_lands(unsigned thread, bool for_arrival) {
    Lane& lane = lanes_[thread];
    if (lane.copying.empty())
        return;
    Copying& oldest = lane.copying.front();
    if (!for_arrival) {
        lane.copies_waited = std::max(lane.copies_waited, oldest.waited + 1);
        Count& of_warp = warps_[thread / kWarp].copies_waited;
        of_warp = std::max<Count>(of_warp, lane.copies_waited);
    }
    if (!--oldest.count)
        lane.copying.erase(lane.copying.begin());
}

// Whether these steps of a thread only load, in a few instructions without arithmetic of floating-point numbers or matrices.
bool Tracer::only_asks(const Event* step, const Event* end) const {
    Count all = 0;
    for (; step != end; ++step) {
        if (step->kind == Act::kLoad)
            continue;
        unsigned weight = step->kind == Act::kBlock ? program_->weights[step->address] : kWork;
        if (weight & kWork)
            return false;
        all += weight;
    }
    return all < kOfQuestion;
}

// Who asks, sleeps and asks again waits for another thread: how often that goes on says something of this host. The first
// time counts, and of passes that only ask and are all alike one. A thread may also work and sleep once in each pass.
void Tracer::sleeps(unsigned thread, unsigned nanoseconds, const void* site) {
    Lane& lane = lanes_[thread];
    if (!lane.asked || lane.slept_at != site) {
        lane.slept_ns += std::min<Count>(nanoseconds, rules().longest_sleep_ns);
        lane.pass_before = nullptr;
    } else if (lane.pass_before && std::equal(lane.pass_before, lane.last_pass, lane.last_pass, lane.next) &&
               only_asks(lane.last_pass, lane.next)) {
        lane.next = lane.last_pass;
    } else {
        lane.pass_before = lane.last_pass;
    }
    lane.last_pass = lane.next;
    lane.asked = false;
    lane.slept_at = site;
}

void Tracer::end_block() {
    for (unsigned warp = 0; warp * kWarp < threads_; ++warp)
        merge(warp);
    drain();
    ends_stretch();
    Count instructions = 0, most_copies = 0;
    for (unsigned warp = 0; warp * kWarp < threads_; ++warp) {
        const WarpTrace& trace = warps_[warp];
        // Copies to one mbarrier come one after another, those to different ones are on their way together.
        Count copies = 0, waits = 0, of_cluster = 0, fences = 0, tickets = 0, slept = 0, clusters = 0,
              grids = 0;
        for (const auto& [barrier, times] : trace.copies_waited_for)
            copies = std::max(copies, times);
        for (unsigned i = warp * kWarp; i < std::min(threads_, (warp + 1) * kWarp); ++i) {
            waits = std::max<Count>(waits, lanes_[i].waits);
            of_cluster = std::max<Count>(of_cluster, lanes_[i].cluster_fences);
            fences = std::max<Count>(fences, lanes_[i].fences);
            tickets = std::max<Count>(tickets, lanes_[i].tickets);
            grids = std::max<Count>(grids, lanes_[i].grid_barriers);
            clusters = std::max<Count>(clusters, lanes_[i].cluster_barriers);
            slept = std::max<Count>(slept, lanes_[i].slept_ns + lanes_[i].waited_cycles * 1000 / clock_mhz());
        }
        const double times = times_recorded(trace.events, trace.dropped);
        most_copies = std::max(most_copies, copies);
        counts_.cluster_fences.note(of_cluster);
        counts_.fences.note(fences);
        counts_.tickets.note(tickets);
        counts_.grid_barriers.note(grids);
        counts_.cluster_barriers.note(clusters);
        counts_.slept_ns.note(slept);
        counts_.barriers.note(trace.barriers + waits);
        counts_.waits.note(trace.waits + trace.copies_waited + copies, times);
        counts_.cold_waits.note(trace.cold_waits + trace.copies_waited + copies, times);
        counts_.far_waits.note(trace.far_waits + trace.copies_waited + copies, times);
        counts_.remote_waits.note(trace.remote_waits, times);
        counts_.instructions.note(trace.instructions, times);
        instructions += trace.instructions;
    }
    counts_.all_instructions = instructions;
    counts_.way.waits += most_copies;
    counts_.way.cold_waits += most_copies;
    counts_.way.far_waits += most_copies;
}

} // namespace trace
} // namespace executor
