// Keywords of CUDA C++ as the host compiler takes them.
#pragma once

#define __CUDACC__ 1
#define __NVCC__ 1
#define __CUDA_ARCH__ 900
#define __CUDA_ARCH_FEAT_SM90_ALL 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __CUDACC_VER_BUILD__ 0
#define CUDART_VERSION 13000
#define CUDA_VERSION 13000
#define __CUDA_API_VERSION 13000

#define __host__
#define __device__
#if defined(CUDAMASTER_CPU_OBSERVED)
// All of it in one piece, as nvcc makes it. An access anywhere then knows the line of the kernel that it was inlined into,
// and a structure that is passed by value to a function is read where the compiler calls out for it.
#define __global__ __attribute__((flatten))
// The program's own variables begin a line of memory, initialised or not, whatever they are linked to.
__attribute__((used, aligned(128))) static char cudamaster_cpu_first_variable, cudamaster_cpu_first_value = 1;
#else
#define __global__
#endif
#define __constant__
#if defined(CUDAMASTER_CPU_OBSERVED)
// So that an observer finds out that there are such variables.
#define __managed__ __attribute__((section("cudamaster_managed")))
#else
#define __managed__
#endif
#define __grid_constant__
// One OS thread runs one block, so a block's memory is a thread's memory.
#define __shared__ static thread_local
#define __forceinline__ inline __attribute__((always_inline))
// Nothing, as libstdc++ 13 and later write __attribute__((__noinline__)). It is a hint, and changes no result.
#define __noinline__
#define __inline_hint__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __cluster_dims__(...) // rewritten: the kernel's first statement says it
#define __maxnreg__(count)
#define __nv_pure__ __attribute__((pure))
#define CUDARTAPI
#define CUDART_CB
#define CUDA_CB

#define __builtin_assume(condition)                                                                          \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            __builtin_unreachable();                                                                         \
    } while (0)
#define __nv_is_extended_device_lambda_closure_type(type) false
