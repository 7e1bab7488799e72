// What compiled device code asks of the executor: every entry point, and nothing else of the runtime.
#pragma once

#include "cudamaster_cpu/api.h"
#include "cudamaster_cpu/observed.h"

struct CudamasterCpuLaunch {
    const char* kernel;   // source text of the callee, for reports
    const void* function; // its address, null where a template's arguments are deduced
    dim3 grid;
    dim3 block;
    size_t shared_bytes;
    cudaStream_t stream;
    int cooperative;
    int early;                           // may begin before what is before it has ended
    dim3 cluster;                        // as the launch says; zero where it does not
    void (*invoke)(const void* closure); // runs the kernel's body for the current thread
    const void* closure;
    const void* const* pointers; // among the arguments
    size_t pointer_count;
    // For a graph: a copy of the closure that lives on, and its end.
    void* (*keep)(const void* closure);
    void (*drop)(void* kept);
    // Hands out each argument's bytes, and those of what the kernel is called by. False where they do not say what it is.
    bool (*arguments)(const void* closure, void (*take)(void* to, const void* value, size_t bytes), void* to);
};

// What the lanes of one warp collective brought, and what its last arriver made of it.
// A lane reads it after the call and then takes itself off `unread`.
struct CudamasterCpuExchange {
    unsigned long long values[32]; // lanes that took no part hold all ones
    unsigned long long result;
    unsigned int arrived;
    unsigned int unread;
};
typedef void (*CudamasterCpuCombine)(CudamasterCpuExchange*);

enum CudamasterCpuBarrier {
    CUDAMASTER_CPU_SYNC,
    CUDAMASTER_CPU_SYNC_COUNT,
    CUDAMASTER_CPU_SYNC_AND,
    CUDAMASTER_CPU_SYNC_OR,
    CUDAMASTER_CPU_SYNC_GRID,
    CUDAMASTER_CPU_ARRIVE, // without waiting
};

// How a thread arrives at an mbarrier: its arrivals are taken off later phases; they may not complete this one.
enum CudamasterCpuArrival {
    CUDAMASTER_CPU_DROPS = 1,
    CUDAMASTER_CPU_NO_COMPLETE = 2,
    CUDAMASTER_CPU_RELAXED = 4, // hands on nothing that the thread has not fenced
};

// How a thread waits at an mbarrier: try_wait or test_wait; what it sees is known to it behind a fence only.
enum CudamasterCpuWaiting {
    CUDAMASTER_CPU_TRIES = 1,
    CUDAMASTER_CPU_LEARNS_LATER = 2,
};

// What a fence between proxies is for: memory, or the mbarriers that the thread has initialised.
enum CudamasterCpuProxyFence {
    CUDAMASTER_CPU_OF_SHARED = 1,
    CUDAMASTER_CPU_OF_GLOBAL = 2,
    CUDAMASTER_CPU_OF_INITS = 4,
};

enum CudamasterCpuSpace {
    CUDAMASTER_CPU_GLOBAL,
    CUDAMASTER_CPU_SHARED,
    CUDAMASTER_CPU_LOCAL,
    CUDAMASTER_CPU_CONSTANT,
    CUDAMASTER_CPU_CLUSTER, // shared memory of another block of the cluster
};

enum CudamasterCpuKind {
    CUDAMASTER_CPU_F32,
    CUDAMASTER_CPU_S32,
    CUDAMASTER_CPU_F16,
    CUDAMASTER_CPU_BF16,
    CUDAMASTER_CPU_TF32,
    CUDAMASTER_CPU_E4M3,
    CUDAMASTER_CPU_E5M2,
    CUDAMASTER_CPU_S8,
    CUDAMASTER_CPU_U8,
};

// A product of matrices as tensor cores make it.
struct CudamasterCpuProduct {
    unsigned int rows, columns, inner;
    int d_kind, a_kind, b_kind;
};

// What a copy in bulk does to its target that is no plain write.
typedef void (*CudamasterCpuReduce)(char* target, const char* content, unsigned int bytes);

// The types of a tensor's elements, as CUtensorMapDataType numbers those that have reductions.
enum CudamasterCpuElement {
    CUDAMASTER_CPU_OF_U32 = 2,
    CUDAMASTER_CPU_OF_S32,
    CUDAMASTER_CPU_OF_U64,
    CUDAMASTER_CPU_OF_S64,
    CUDAMASTER_CPU_OF_F16,
    CUDAMASTER_CPU_OF_F32,
    CUDAMASTER_CPU_OF_F64,
    CUDAMASTER_CPU_OF_BF16,
};
// Of what is known only when it runs, the type of a tensor's elements; null where there is none.
typedef CudamasterCpuReduce (*CudamasterCpuReductions)(int type);

// A box of the tensor that a map in memory describes: its first element's coordinates.
struct CudamasterCpuBox {
    const void* map;
    int at[5];
    unsigned int dimensions;
};

// One lane's part of a warpgroup's product, 32 bytes of k long.
struct CudamasterCpuWgmma {
    int d_kind, a_kind, b_kind;
    int scale_d, a_negated, b_negated, a_transposed, b_transposed, saturates, a_in_registers;
    unsigned int columns, count; // and how many registers `d` has
    unsigned long long a_descriptor, b_descriptor;
    unsigned int a[4];
    unsigned int sparse, places,
        selector; // of a: where the two of each four are, in the pair of lanes that is selected
    const void* site;
    void* const* d; // where they are
};

extern "C" {
cudaError_t cudamaster_cpu_launch(const CudamasterCpuLaunch* launch);
// For cudaOccupancyMaxActiveClusters and cudaOccupancyMaxPotentialClusterSize.
cudaError_t cudamaster_cpu_active_clusters(int* clusters, const void* function,
                                           const struct cudaLaunchConfig_t* config);
cudaError_t cudamaster_cpu_cluster_size(int* blocks, const void* function,
                                        const struct cudaLaunchConfig_t* config);
int cudamaster_cpu_barrier(int kind, int predicate);
// One of the 16 barriers of a block, for so many threads; 0 are all.
int cudamaster_cpu_numbered_barrier(unsigned int number, unsigned int threads, int kind, int predicate);
// A kernel with __cluster_dims__ says so before anything else.
void cudamaster_cpu_cluster_dims(unsigned int x, unsigned int y, unsigned int z);
// The running block's cluster: its shape, in blocks, and the block's place in it.
dim3 cudamaster_cpu_cluster_shape(void);
int cudamaster_cpu_in_clusters(void); // whether the launch has any, if of one block
unsigned int cudamaster_cpu_cluster_rank(void);
// The same place in the shared memory of the cluster's block of that rank, of a place in any of its blocks'; and whose.
void* cudamaster_cpu_in_block(const void* place, unsigned int rank);
unsigned int cudamaster_cpu_rank_of(const void* place);
// The barrier of a cluster: a thread comes, and later waits for the others.
void cudamaster_cpu_cluster_arrive(int tells);
void cudamaster_cpu_cluster_wait(void);
// `operation` names the collective: lanes of one mask that call different ones are an error.
CudamasterCpuExchange* cudamaster_cpu_warp(unsigned int mask, const char* operation, unsigned long long value,
                                           CudamasterCpuCombine combine);
unsigned int cudamaster_cpu_activemask(void);
// Lets other threads of the block run: for loops that wait on memory.
void cudamaster_cpu_yield(void);
void* cudamaster_cpu_exact_shared(const void* key, size_t bytes, size_t alignment);
int cudamaster_cpu_printf(const char* format, ...);
unsigned int cudamaster_cpu_lane(void);
int cudamaster_cpu_cooperative(void);
size_t cudamaster_cpu_dynamic_shared_bytes(void);
// Shared memory has a window of 32-bit addresses: there and back. An address outside of it ends the block.
unsigned int cudamaster_cpu_shared_address(const void* place);
void* cudamaster_cpu_shared_place(unsigned long long address);
// An address in the shared memory of any block of the cluster, as mapa gives it.
void* cudamaster_cpu_cluster_place(unsigned long long address);
int cudamaster_cpu_space(const void* place);
// A copy of the running thread that is in flight until it waits: `from_source` bytes, and zeros up to `bytes`.
void cudamaster_cpu_copy_async(void* target, const void* source, unsigned int bytes,
                               unsigned int from_source);
void cudamaster_cpu_copy_commit(void);
// Waits until no more than so many of the newest groups are in flight.
void cudamaster_cpu_copy_wait(unsigned int groups_left);
void cudamaster_cpu_copy_wait_all(void);
// Barriers in shared memory: 64 bits each, as runtime/mbarrier.cpp has them.
void cudamaster_cpu_mbarrier_init(void* place, unsigned int count);
void cudamaster_cpu_mbarrier_inval(void* place);
void cudamaster_cpu_mbarrier_bytes(void* place, long long by);
unsigned long long cudamaster_cpu_mbarrier_arrive(void* place, unsigned int count, unsigned int bytes,
                                                  int how);
int cudamaster_cpu_mbarrier_wait(void* place, unsigned int parity, int how);
void cudamaster_cpu_copy_arrive(void* place, int counted);
// What the thread knows of is fenced for asynchronous copies and products.
void cudamaster_cpu_proxy_fence(int of);
// How many registers each thread of the running warp has from here on (setmaxnreg).
void cudamaster_cpu_registers(unsigned int each);
// Copies in bulk.
void cudamaster_cpu_bulk_load(void* target, const void* source, unsigned int bytes, void* place);
void cudamaster_cpu_bulk_store(void* target, const void* source, unsigned int bytes);
// To the same places of the cluster's `blocks` (bits): read once, written in each of them.
void cudamaster_cpu_bulk_multicast(void* target, const void* source, unsigned int bytes, void* place,
                                   unsigned int blocks);
// The same with an operation on each element in place of a write; in a group, or for an mbarrier.
void cudamaster_cpu_bulk_reduce(void* target, const void* source, unsigned int bytes, void* place,
                                CudamasterCpuReduce reduce);
// The same of boxes of tensors, as runtime/tensors.cpp has them; with no reductions it is a plain copy.
void cudamaster_cpu_tensor_load(void* target, CudamasterCpuBox box, void* place);
void cudamaster_cpu_tensor_multicast(void* target, CudamasterCpuBox box, void* place, unsigned int blocks);
void cudamaster_cpu_tensor_store(CudamasterCpuBox box, const void* source,
                                 CudamasterCpuReductions reductions);
// A few bytes of registers that come to shared memory of the cluster, for an mbarrier beside them.
void cudamaster_cpu_store_async(void* target, const void* content, unsigned int bytes, void* place,
                                CudamasterCpuReduce reduce);
void cudamaster_cpu_bulk_commit(void);
void cudamaster_cpu_bulk_wait(unsigned int groups_left, int read_only);
// Whether anybody wants to know what a product of so many multiplications gives. Asked once before each.
int cudamaster_cpu_wants_product(unsigned long long multiplications);
// Adds to `sums`, row by row, the product of `a` and `b`, and rounds as tensor cores do.
void cudamaster_cpu_product(const CudamasterCpuProduct* product, double* sums, const double* a,
                            const double* b);
void cudamaster_cpu_wgmma(const CudamasterCpuWgmma* product);
void cudamaster_cpu_wgmma_fence(void);
void cudamaster_cpu_wgmma_commit(void);
void cudamaster_cpu_wgmma_wait(unsigned int groups_left);
// Ends the running thread.
[[noreturn]] void cudamaster_cpu_exit(void);
// Ends the block: the kernel has done what a GPU does not allow.
void cudamaster_cpu_fail(const char* what);
}

extern __thread unsigned char* cudamaster_cpu_dynamic_shared;
// The line of the PTX instruction that the running thread is in, for its fault to name; 0 outside of any.
extern __thread int cudamaster_cpu_ptx_line;
