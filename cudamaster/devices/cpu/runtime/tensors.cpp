// Copies of boxes of tensors (cp.async.bulk.tensor): a box becomes the pieces of a copy in bulk, which is late as any.
//
// In shared memory the box's rows lie one behind the other. A swizzle moves 16 bytes at a time, by the bits of their shared
// address: as the descriptors of matrices have it (wgmma.cpp).
#include "observe.h"
#include "tensor.h"

#include <algorithm>
#include <cstring>

namespace executor {

namespace {

constexpr unsigned kMapAlignment = 64, kBoxAlignment = 128, kChunk = 16;

void check_executed(const TensorMap& map) {
    if (map.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE)
        fail_block("a tensor map with an interleaved layout, which is not executed here");
    if (map.type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ)
        fail_block("a tensor map of a type that changes values on their way, which is not executed here");
    if (map.swizzle > CU_TENSOR_MAP_SWIZZLE_128B)
        fail_block("a tensor map that swizzles more than 16 bytes at a time, which is not executed here");
}

// Bytes within which a swizzle moves; 0 without one.
unsigned span_of(const TensorMap& map) {
    return map.swizzle ? 16u << map.swizzle : 0;
}

TensorMap map_at(const CudamasterCpuBox& box, const void* site) {
    int space = cudamaster_cpu_space(box.map);
    if (space != CUDAMASTER_CPU_GLOBAL && space != CUDAMASTER_CPU_CONSTANT)
        fail_block("a tensor map in a thread's own or in shared memory: as a kernel's parameter it has to be "
                   "`const __grid_constant__ CUtensorMap`");
    if (reinterpret_cast<uintptr_t>(box.map) % kMapAlignment)
        fail_block("a tensor map at an address that is no multiple of 64");
    observe::map_is_read(*worker, box.map, sizeof(CUtensorMap), site);
    TensorMap map;
    std::memcpy(&map, box.map, sizeof map);
    if (map.mark != kMapMark)
        fail_block("a tensor map that cuTensorMapEncodeTiled has not made");
    if (map.rank != box.dimensions)
        fail_block("a tensor copy of another number of dimensions than its map has");
    check_executed(map);
    unsigned inner = map.box[0] * bytes_of_element(map.type);
    if (map.swizzle && inner != span_of(map))
        fail_block("a tensor map whose box is narrower than its swizzle, which is not executed here");
    return map;
}

// A box on its way to pieces.
class Box {
  public:
    Box(const CudamasterCpuBox& box, const TensorMap& map, char* shared, bool into_shared)
        : map_(map), shared_(shared), into_shared_(into_shared), element_(bytes_of_element(map.type)),
          window_(cudamaster_cpu_shared_address(shared)) {
        if (window_ % kBoxAlignment)
            fail_block("a tensor copy whose place in shared memory is no multiple of 128 bytes");
        std::copy(box.at, box.at + map.rank, at_);
        if (at_[0] * static_cast<long long>(element_) % kChunk)
            fail_block(
                "a tensor copy whose first coordinate is no multiple of 16 bytes: an H200 stops there, with "
                "\"an illegal instruction was encountered\"");
        if (!into_shared && *std::min_element(at_, at_ + map.rank) < 0)
            fail_block("a tensor copy to global memory at a negative coordinate: an H200 stops there, with "
                       "\"an illegal instruction was encountered\"");
    }

    Bulk bulk() {
        bulk_.fill = map_.fill ? 0xff : 0; // all ones are a NaN of any type
        unsigned index[kMostDimensions] = {};
        do
            row(index);
        while (next(index));
        return std::move(bulk_);
    }

  private:
    // The next row of the box; of a dimension with a step of its own it has fewer.
    bool next(unsigned* index) const {
        for (unsigned i = 1; i < map_.rank; ++i) {
            if (++index[i] < (map_.box[i] + map_.steps[i] - 1u) / map_.steps[i])
                return true;
            index[i] = 0;
        }
        return false;
    }

    void row(const unsigned* index) {
        long long offset = 0, count = map_.box[0], size = map_.last[0] + 1ll;
        bool inside = true;
        for (unsigned i = 1; i < map_.rank; ++i) {
            long long at = at_[i] + static_cast<long long>(index[i]) * map_.steps[i];
            inside = inside && at >= 0 && at <= map_.last[i];
            if (inside)
                offset += at * static_cast<long long>(map_.strides[i - 1]);
        }
        // Of its elements those of the tensor; the step of the first dimension means nothing.
        long long first = std::clamp(-static_cast<long long>(at_[0]), 0ll, count);
        long long last = inside ? std::clamp(size - at_[0], first, count) : first;
        const char* start = map_.base + (inside ? offset + static_cast<long long>(at_[0]) * element_ : 0);
        unsigned bytes = static_cast<unsigned>(count) * element_, step = map_.swizzle ? kChunk : bytes;
        unsigned begin = static_cast<unsigned>(first) * element_,
                 end = static_cast<unsigned>(last) * element_;
        // An H200 writes whole chunks: where a row of the tensor ends within one, what lies behind it is overwritten.
        if (!into_shared_)
            end = std::min((end + kChunk - 1) / kChunk * kChunk, bytes);
        for (unsigned from = 0; from < bytes; from += step)
            chunk(from, from + step, begin, end, start);
        done_ += bytes;
        bulk_.bytes += bytes;
    }

    // Bytes of a row that lie side by side, of which [first, last) are the tensor's.
    void chunk(unsigned from, unsigned to, unsigned first, unsigned last, const char* start) {
        first = std::clamp(first, from, to);
        last = std::clamp(last, first, to);
        char* place = shared_ + (swizzled(window_ + done_ + from) - window_);
        piece(place, nullptr, first - from);
        piece(place + (first - from), start + first, last - first);
        piece(place + (last - from), nullptr, to - last);
    }

    void piece(char* place, const char* global, unsigned bytes) {
        if (!bytes)
            return;
        if (into_shared_)
            bulk_.pieces.push_back({place, global, bytes});
        else if (global)
            bulk_.pieces.push_back({const_cast<char*>(global), place, bytes});
    }

    unsigned swizzled(unsigned address) const {
        unsigned mask = map_.swizzle ? span_of(map_) / kChunk - 1 : 0;
        return address ^ ((address >> 7 & mask) * kChunk);
    }

    const TensorMap& map_;
    char* shared_;
    bool into_shared_;
    unsigned element_, window_, done_ = 0;
    int at_[kMostDimensions] = {};
    Bulk bulk_;
};

void load(void* target, const CudamasterCpuBox& box, void* place, bool again, const void* site) {
    TensorMap map = map_at(box, site);
    Bulk bulk = Box(box, map, static_cast<char*>(target), true).bulk();
    bulk.barrier = place;
    bulk.issuer = worker;
    bulk.thread = worker->linear;
    bulk.site = site;
    bulk.again = again;
    start_bulk(std::move(bulk));
}

} // namespace
} // namespace executor

using namespace executor;

void cudamaster_cpu_tensor_load(void* target, CudamasterCpuBox box, void* place) {
    load(target, box, place, false, __builtin_return_address(0));
}

void cudamaster_cpu_tensor_multicast(void* target, CudamasterCpuBox box, void* place, unsigned blocks) {
    const void* site = __builtin_return_address(0);
    to_each_block(blocks, target, place,
                  [&](void* to, void* arrived, bool again) { load(to, box, arrived, again, site); });
}

void cudamaster_cpu_tensor_store(CudamasterCpuBox box, const void* source,
                                 CudamasterCpuReductions reductions) {
    const void* site = __builtin_return_address(0);
    TensorMap map = map_at(box, site);
    Bulk bulk = Box(box, map, static_cast<char*>(const_cast<void*>(source)), false).bulk();
    if (reductions) {
        bulk.reduce = reductions(map.type);
        if (!bulk.reduce)
            fail_block("cp.reduce.async.bulk.tensor of an operation that the map's type has not");
    }
    bulk.issuer = worker;
    bulk.thread = worker->linear;
    bulk.site = site;
    start_bulk(std::move(bulk));
}
