// Sums over the recorded blocks of a launch, and what is written of them.
#include "trace/counts.h"

#include <cstdio>
#include <functional>
#include <numeric>

namespace executor {
namespace trace {

namespace {

// JSON by hand: numbers and names of kernels are all there is.
class Text {
  public:
    template <class... Values> void put(const char* format, Values... values) {
        char part[512];
        std::snprintf(part, sizeof part, format, values...);
        text_ += part;
    }
    void name(const char* text) {
        text_ += '"';
        for (; *text; ++text) {
            if (*text == '"' || *text == '\\')
                text_ += '\\';
            text_ += static_cast<unsigned char>(*text) < ' ' ? ' ' : *text;
        }
        text_ += '"';
    }
    void spread(const char* name, const Spread& spread) {
        put(",\"%s\":[%llu,%llu,%llu]", name, spread.sum, spread.count, spread.largest);
    }
    std::string take() { return std::move(text_); }

  private:
    std::string text_;
};

// What a few blocks do that were drawn at random, together. One in eight may do far more, as rows of a matrix do: then
// they count as if all did no more than the others. Nothing makes rows of what nothing in memory steers.
Count together(std::vector<Count> each, bool unsteered) {
    if (each.empty() || unsteered)
        return std::accumulate(each.begin(), each.end(), Count(0));
    size_t most = std::max(each.size() / 8, std::min<size_t>(each.size() - 1, 1));
    std::sort(each.begin(), each.end(), std::greater<Count>());
    return each[most] * each.size();
}

} // namespace

void Launch::add(unsigned long long block, const BlockCounts& counts, const LineSet& lines) {
    std::lock_guard<std::mutex> lock(mutex);
    ++traced;
    if (stage != Stage::kAll)
        tried.push_back(block);
    for (unsigned place : counts.places) {
        executed[place].warps += counts.executed[place].warps;
        executed[place].lanes += counts.executed[place].lanes;
    }
    for (const Range& range : ranges)
        if (const TrafficCounts& more = counts.traffic[range.buffer]; more.any())
            traffic[range.buffer].add(more);
    for (int i = 0; i < 3; ++i) {
        shared.requests[i] += counts.shared.requests[i];
        shared.wavefronts[i] += counts.shared.wavefronts[i];
        shared.remote[i] += counts.shared.remote[i];
    }
    shared.remote_bytes += counts.shared.remote_bytes;
    shared.bulk_bytes += counts.shared.bulk_bytes;
    shared.factor_bytes += counts.shared.factor_bytes;
    for (unsigned i = 0; i < kFactorTypes; ++i)
        products.operations[i] += counts.products.operations[i];
    atomic_lanes += counts.atomic_lanes;
    atomic_addresses += counts.atomic_addresses;
    atomic_requests += counts.atomic_requests;
    events += counts.events;
    dropped += counts.dropped;
    unsigned long long group = *std::prev(std::upper_bound(plan.groups.begin(), plan.groups.end(), block));
    for (const auto& [address, count] : counts.atomics) {
        Hits& hits = atomics[address];
        hits.of_many |= hits.count && hits.first_group != group;
        hits.first_group = group;
        hits.count += count;
    }
    barriers.add(counts.barriers);
    waits.add(counts.waits);
    cold_waits.add(counts.cold_waits);
    far_waits.add(counts.far_waits);
    remote_waits.add(counts.remote_waits);
    instructions.add(counts.instructions);
    cluster_fences.add(counts.cluster_fences);
    cluster_barriers.add(counts.cluster_barriers);
    grid_barriers.add(counts.grid_barriers);
    fences.add(counts.fences);
    tickets.add(counts.tickets);
    slept_ns.add(counts.slept_ns);
    block_instructions.note(counts.all_instructions);
    ways.note(counts.way, times_recorded(counts.events, counts.dropped));
    lines.each([this](const LineSet::Entry& entry) {
        Sum& sum = of_block[entry.buffer];
        sum = sectors_of(sum, entry);
    });
    groups[group].add(lines);
    all.add(lines);
}

std::string Launch::line(const Job& job) const {
    const CudamasterCpuLaunch& launch = *job.launch;
    Text text;
    text.put("{\"event\":\"launch\",\"kernel\":");
    text.name(launch.kernel);
    text.put(",\"function\":%lld",
             launch.function
                 ? static_cast<long long>(static_cast<const char*>(launch.function) - program_base)
                 : -1);
    text.put(",\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u]", launch.grid.x, launch.grid.y, launch.grid.z,
             launch.block.x, launch.block.y, launch.block.z);
    text.put(",\"cluster\":[%u,%u,%u]", job.shape.x, job.shape.y, job.shape.z);
    text.put(",\"dynamic_shared_bytes\":%zu,\"cooperative\":%s,\"early\":%s", launch.shared_bytes,
             launch.cooperative ? "true" : "false", launch.early ? "true" : "false");
    text.put(
        ",\"blocks\":%llu,\"traced\":%llu,\"left_out\":%s,\"unsteered\":%s,\"events\":%llu,\"dropped\":%llu",
        plan.blocks, traced, plan.only_those || left_out ? "true" : "false", unsteered ? "true" : "false",
        events, dropped);
    if (units.apart) {
        const SoFar& earlier = units.earlier;
        text.put(",\"units\":[%llu,%llu,%llu,%llu,%llu]", units.taken_before, units.taken, units.least,
                 units.most, units.events_before);
        text.put(",\"of_unit\":[%llu,%.0f,%.0f,%llu,%llu]", units.known, units.squares, units.step_square,
                 units.of_last, units.each);
        text.put(",\"earlier\":[%llu,%llu,%llu,{", earlier.units, earlier.far_waits, earlier.way_far_waits);
        const char* comma = "";
        for (const auto& [buffer, sum] : earlier.lines) {
            text.put("%s\"%u\":[%llu,%llu]", comma, buffer, sum.read, sum.written);
            comma = ",";
        }
        text.put("}]");
    }
    text.put(",\"accesses\":[%llu,%llu,%llu]", own_accesses.load(),
             other_accesses.load() + together(drawn_accesses, unsteered),
             other_blocks.load() + static_cast<Count>(drawn_accesses.size()));
    text.put(",\"threads_instructions\":[%llu,%llu]", own_instructions.load(),
             other_instructions.load() + together(drawn_instructions, unsteered));
    text.put(",\"executed\":[");
    const char* comma = "";
    for (const auto& [place, executions] : executed) {
        text.put("%s[%u,%llu,%llu]", comma, place, executions.warps, executions.lanes);
        comma = ",";
    }
    text.put("],\"traffic\":[");
    comma = "";
    // Footprints: of one block, of a whole group, of all that are recorded.
    std::map<unsigned, Sum> of_group, of_all;
    Count whole_groups = 0;
    const unsigned long long together = alone ? 1 : plan.group_blocks;
    for (const auto& [first, lines] : groups) {
        if (first + together > plan.blocks)
            continue;
        ++whole_groups;
        lines.each([&](const LineSet::Entry& entry) {
            Sum& sum = of_group[entry.buffer];
            sum = sectors_of(sum, entry);
        });
    }
    all.each([&](const LineSet::Entry& entry) {
        Sum& sum = of_all[entry.buffer];
        sum = sectors_of(sum, entry);
    });
    auto mean = [](const std::map<unsigned, Sum>& sums, unsigned buffer, Count count) {
        auto found = sums.find(buffer);
        Sum sum = found == sums.end() ? Sum{} : found->second;
        return std::pair{static_cast<double>(sum.read) / static_cast<double>(count),
                         static_cast<double>(sum.written) / static_cast<double>(count)};
    };
    for (const auto& [buffer, counts] : traffic) {
        text.put(
            "%s{\"buffer\":%u,\"bytes\":%zu,\"load\":[%llu,%llu,%llu,%llu],\"store\":[%llu,%llu],\"atomic\":["
            "%llu,%llu],\"lines\":%llu,\"missed_lines\":%llu,\"store_lines\":%llu,\"wavefronts\":%llu,"
            "\"lookups\":%llu,\"sends\":%llu,\"bulk\":[%llu,%llu,%llu]",
            comma, buffer, bytes[buffer], counts.load_requests, counts.load_sectors, counts.missed_sectors,
            counts.common_sectors, counts.store_requests, counts.store_sectors, counts.atomic_requests,
            counts.atomic_sectors, counts.lines, counts.missed_lines, counts.store_lines, counts.wavefronts,
            counts.lookups, counts.sends, counts.bulk[0], counts.bulk[1], counts.bulk[2]);
        comma = ",";
        auto one = mean(of_block, buffer, traced);
        text.put(",\"footprints\":[[1,%.4f,%.4f]", one.first, one.second);
        if (together > 1 && whole_groups) {
            auto group = mean(of_group, buffer, whole_groups);
            text.put(",[%llu,%.4f,%.4f]", together, group.first, group.second);
        }
        if (traced > together) {
            auto whole = mean(of_all, buffer, 1);
            text.put(",[%llu,%.0f,%.0f]", traced, whole.first, whole.second);
        }
        text.put("]}");
    }
    text.put("],\"shared\":[[%llu,%llu],[%llu,%llu],[%llu,%llu]]", shared.requests[0], shared.wavefronts[0],
             shared.requests[1], shared.wavefronts[1], shared.requests[2], shared.wavefronts[2]);
    text.put(",\"remote\":[%llu,%llu,%llu,%llu]", shared.remote[0], shared.remote[1], shared.remote[2],
             shared.remote_bytes);
    text.put(",\"bulk_bytes\":%llu,\"factor_bytes\":%llu,\"products\":[%llu,%llu,%llu,%llu]",
             shared.bulk_bytes, shared.factor_bytes, products.operations[0], products.operations[1],
             products.operations[2], products.operations[3]);
    Count hottest = 0, hottest_of_many = 0;
    for (const auto& [address, hits] : atomics) {
        Count& highest = hits.of_many ? hottest_of_many : hottest;
        highest = std::max(highest, hits.count);
    }
    text.put(",\"atomics\":[%llu,%llu,%llu,%llu,%llu]", atomic_requests, atomic_lanes, atomic_addresses,
             hottest, hottest_of_many);
    text.spread("barriers", barriers);
    text.spread("waits", waits);
    text.spread("cold_waits", cold_waits);
    text.spread("far_waits", far_waits);
    text.spread("remote_waits", remote_waits);
    text.spread("warp_instructions", instructions);
    text.spread("block_instructions", block_instructions);
    text.spread("cluster_fences", cluster_fences);
    text.spread("cluster_barriers", cluster_barriers);
    text.spread("grid_barriers", grid_barriers);
    text.spread("fences", fences);
    text.spread("tickets", tickets);
    text.spread("slept_ns", slept_ns);
    text.spread("way_instructions", ways.instructions);
    text.spread("way_waits", ways.waits);
    text.spread("way_cold_waits", ways.cold_waits);
    text.spread("way_far_waits", ways.far_waits);
    text.spread("way_remote_waits", ways.remote_waits);
    text.put("}\n");
    return text.take();
}

} // namespace trace
} // namespace executor
