// Cooperative groups: the block, the grid, tiles of a warp and the lanes that happen to run together.
#pragma once

#include "cuda_runtime.h"

namespace cooperative_groups {

namespace details {

// A value of any size travels eight bytes at a time.
template <class Type>
CUDAMASTER_CPU_ONE Type move(unsigned int mask, const char* operation, const Type& value,
                             unsigned int source) {
    static_assert(std::is_trivially_copyable<Type>::value, "a warp moves plain values only");
    Type result;
    for (size_t at = 0; at < sizeof(Type); at += 8) {
        unsigned long long bits = 0;
        size_t bytes = sizeof(Type) - at < 8 ? sizeof(Type) - at : 8;
        __builtin_memcpy(&bits, reinterpret_cast<const char*>(&value) + at, bytes);
        bits = cudamaster_cpu::shuffle(mask, operation, bits, source);
        __builtin_memcpy(reinterpret_cast<char*>(&result) + at, &bits, bytes);
    }
    return result;
}

CUDAMASTER_CPU_PART inline unsigned int lane() {
    return cudamaster_cpu_lane();
}
inline unsigned int lanes_below(unsigned int mask) {
    return mask & ((1u << lane()) - 1);
}

// The number of the lane that has rank `rank` among those of `mask`.
CUDAMASTER_CPU_ONE inline unsigned int lane_of(unsigned int mask, unsigned int rank) {
    while (rank--)
        mask &= mask - 1;
    return mask ? static_cast<unsigned int>(__builtin_ctz(mask)) : lane();
}

CUDAMASTER_CPU_ONE inline unsigned int ranks_of(unsigned int lanes, unsigned int mask) {
    unsigned int ranks = 0, rank = 0;
    for (unsigned int i = 0; i < 32; ++i)
        if (mask >> i & 1)
            ranks |= (lanes >> i & 1) << rank++;
    return ranks;
}

inline unsigned int linear_thread() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

// What all groups within a warp have in common: the lanes of `mask`, ranked in their order.
class LaneGroup {
  public:
    explicit LaneGroup(unsigned int mask) : mask_(mask) {}
    void sync() const { __syncwarp(mask_); }
    unsigned long long num_threads() const {
        return static_cast<unsigned long long>(__builtin_popcount(mask_));
    }
    unsigned long long size() const { return num_threads(); }
    unsigned long long thread_rank() const {
        return static_cast<unsigned long long>(__builtin_popcount(lanes_below(mask_)));
    }
    template <class Type> Type shfl(Type value, int rank) const {
        return move(mask_, "shfl", value, lane_of(mask_, static_cast<unsigned int>(rank) % count()));
    }
    template <class Type> Type shfl_down(Type value, unsigned int delta) const {
        unsigned int rank = own_rank();
        return move(mask_, "shfl_down", value,
                    rank + delta < count() ? lane_of(mask_, rank + delta) : lane());
    }
    template <class Type> Type shfl_up(Type value, unsigned int delta) const {
        unsigned int rank = own_rank();
        return move(mask_, "shfl_up", value, rank >= delta ? lane_of(mask_, rank - delta) : lane());
    }
    int any(int predicate) const { return __any_sync(mask_, predicate); }
    int all(int predicate) const { return __all_sync(mask_, predicate); }
    unsigned int ballot(int predicate) const { return ranks_of(__ballot_sync(mask_, predicate), mask_); }
    template <class Type> unsigned int match_any(Type value) const {
        return ranks_of(__match_any_sync(mask_, value), mask_);
    }
    template <class Type> unsigned int match_all(Type value, int& predicate) const {
        return ranks_of(__match_all_sync(mask_, value, &predicate), mask_);
    }
    unsigned int lane_mask() const { return mask_; }

  protected:
    unsigned int own_rank() const { return static_cast<unsigned int>(thread_rank()); }
    unsigned int count() const { return static_cast<unsigned int>(__builtin_popcount(mask_)); }
    unsigned int mask_;
};

} // namespace details

class thread_block {
  public:
    static void sync() { __syncthreads(); }
    static unsigned int thread_rank() { return details::linear_thread(); }
    static unsigned int num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
    static unsigned int size() { return num_threads(); }
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
    struct arrival_token {};
};

class grid_group {
  public:
    void sync() const {
        if (!cudamaster_cpu_cooperative())
            __trap();
        cudamaster_cpu_barrier(CUDAMASTER_CPU_SYNC_GRID, 0);
    }
    bool is_valid() const { return cudamaster_cpu_cooperative() != 0; }
    unsigned long long num_blocks() const { return 1ull * gridDim.x * gridDim.y * gridDim.z; }
    unsigned long long block_rank() const {
        return blockIdx.x + static_cast<unsigned long long>(gridDim.x) *
                                (blockIdx.y + static_cast<unsigned long long>(gridDim.y) * blockIdx.z);
    }
    unsigned long long num_threads() const { return num_blocks() * thread_block::num_threads(); }
    unsigned long long size() const { return num_threads(); }
    unsigned long long thread_rank() const {
        return block_rank() * thread_block::num_threads() + thread_block::thread_rank();
    }
    dim3 group_dim() const { return gridDim; }
    dim3 dim_blocks() const { return gridDim; }
    dim3 block_index() const { return blockIdx; }
};

class cluster_group {
  public:
    struct arrival_token {};
    static void sync() {
        cudamaster_cpu_cluster_arrive(1);
        cudamaster_cpu_cluster_wait();
    }
    static arrival_token barrier_arrive() {
        cudamaster_cpu_cluster_arrive(1);
        return {};
    }
    static void barrier_wait() { cudamaster_cpu_cluster_wait(); }
    static void barrier_wait(arrival_token&&) { cudamaster_cpu_cluster_wait(); }
    static unsigned int query_shared_rank(const void* place) { return cudamaster_cpu_rank_of(place); }
    template <class Type> static Type* map_shared_rank(Type* place, int rank) {
        return static_cast<Type*>(cudamaster_cpu_in_block(place, static_cast<unsigned int>(rank)));
    }
    static dim3 dim_blocks() { return cudamaster_cpu_cluster_shape(); }
    static unsigned int num_blocks() {
        dim3 shape = dim_blocks();
        return shape.x * shape.y * shape.z;
    }
    static dim3 block_index() {
        dim3 shape = dim_blocks();
        return {blockIdx.x % shape.x, blockIdx.y % shape.y, blockIdx.z % shape.z};
    }
    static unsigned int block_rank() { return cudamaster_cpu_cluster_rank(); }
    static dim3 dim_threads() {
        dim3 shape = dim_blocks();
        return {blockDim.x * shape.x, blockDim.y * shape.y, blockDim.z * shape.z};
    }
    static dim3 thread_index() {
        dim3 block = block_index();
        return {block.x * blockDim.x + threadIdx.x, block.y * blockDim.y + threadIdx.y,
                block.z * blockDim.z + threadIdx.z};
    }
    static unsigned int thread_rank() {
        return block_rank() * thread_block::num_threads() + thread_block::thread_rank();
    }
    static unsigned int num_threads() { return num_blocks() * thread_block::num_threads(); }
    static unsigned int size() { return num_threads(); }
};

class coalesced_group : public details::LaneGroup {
  public:
    explicit coalesced_group(unsigned int mask) : LaneGroup(mask) {}
    unsigned long long meta_group_rank() const { return meta_rank_; }
    unsigned long long meta_group_size() const { return meta_size_; }
    coalesced_group(unsigned int mask, unsigned int meta_rank, unsigned int meta_size)
        : LaneGroup(mask), meta_rank_(meta_rank), meta_size_(meta_size) {}

  private:
    unsigned int meta_rank_ = 0, meta_size_ = 1;
};

template <unsigned int Size, class Parent = void> class thread_block_tile {
    static_assert(Size && (Size & (Size - 1)) == 0, "the size of a tile is a power of two");
    static_assert(Size <= 32, "unsupported on the CPU device: tiles of more than 32 threads");

  public:
    thread_block_tile() : first_(details::lane() / Size * Size) {}
    void sync() const { __syncwarp(mask()); }
    static constexpr unsigned int num_threads() { return Size; }
    static constexpr unsigned int size() { return Size; }
    unsigned int thread_rank() const { return details::lane() % Size; }
    unsigned int meta_group_rank() const { return details::linear_thread() / Size; }
    unsigned int meta_group_size() const { return (thread_block::num_threads() + Size - 1) / Size; }
    template <class Type> Type shfl(Type value, int rank) const {
        return details::move(mask(), "shfl", value, first_ + static_cast<unsigned int>(rank) % Size);
    }
    template <class Type> Type shfl_down(Type value, unsigned int delta) const {
        return details::move(mask(), "shfl_down", value, cudamaster_cpu::source_down(delta, Size));
    }
    template <class Type> Type shfl_up(Type value, unsigned int delta) const {
        return details::move(mask(), "shfl_up", value, cudamaster_cpu::source_up(delta, Size));
    }
    template <class Type> Type shfl_xor(Type value, unsigned int bits) const {
        return details::move(mask(), "shfl_xor", value,
                             cudamaster_cpu::source_xor(static_cast<int>(bits), Size));
    }
    int any(int predicate) const { return __any_sync(mask(), predicate); }
    int all(int predicate) const { return __all_sync(mask(), predicate); }
    unsigned int ballot(int predicate) const { return __ballot_sync(mask(), predicate) >> first_; }
    template <class Type> unsigned int match_any(Type value) const {
        return __match_any_sync(mask(), value) >> first_;
    }
    template <class Type> unsigned int match_all(Type value, int& predicate) const {
        return __match_all_sync(mask(), value, &predicate) >> first_;
    }
    unsigned int lane_mask() const { return mask(); }

  private:
    unsigned int mask() const { return (Size == 32 ? 0xffffffffu : (1u << Size % 32) - 1) << first_; }
    unsigned int first_;
};

using thread_group = details::LaneGroup;

inline thread_block this_thread_block() {
    return {};
}
inline grid_group this_grid() {
    return {};
}
inline cluster_group this_cluster() {
    return {};
}
inline coalesced_group coalesced_threads() {
    return coalesced_group(__activemask());
}

template <unsigned int Size, class Parent> thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
    return {};
}
template <class Parent> coalesced_group tiled_partition(const Parent&, unsigned int size) {
    unsigned int first = details::lane() / size * size;
    return coalesced_group((size >= 32 ? 0xffffffffu : (1u << size) - 1) << first,
                           details::linear_thread() / size, (thread_block::num_threads() + size - 1) / size);
}
template <class Group> coalesced_group binary_partition(const Group& group, bool predicate) {
    unsigned int yes = __ballot_sync(group.lane_mask(), predicate);
    return coalesced_group(predicate ? yes : group.lane_mask() & ~yes, predicate, 2);
}
template <class Group, class Label> coalesced_group labeled_partition(const Group& group, Label label) {
    return coalesced_group(__match_any_sync(group.lane_mask(), label));
}

template <class Group> void sync(const Group& group) {
    group.sync();
}
template <class Group> auto thread_rank(const Group& group) -> decltype(group.thread_rank()) {
    return group.thread_rank();
}
template <class Group> auto group_size(const Group& group) -> decltype(group.size()) {
    return group.size();
}

} // namespace cooperative_groups
