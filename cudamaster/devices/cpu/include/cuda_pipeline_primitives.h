// Asynchronous copies of single threads, as cp.async makes them (ptx/copies.h): late, at the wait that guarantees them.
#pragma once

#include "cudamaster_cpu/ptx/copies.h"

CUDAMASTER_CPU_PART inline void __pipeline_memcpy_async(void* target, const void* source, size_t bytes,
                                                        size_t zeros = 0) {
    if (zeros > bytes)
        cudamaster_cpu_fail("__pipeline_memcpy_async that fills more with zeros than it copies");
    cudamaster_cpu_copy_async(target, source, static_cast<unsigned>(bytes),
                              static_cast<unsigned>(bytes - zeros));
}
inline void __pipeline_commit() {
    cudamaster_cpu_copy_commit();
}
inline void __pipeline_wait_prior(size_t groups) {
    cudamaster_cpu_copy_wait(static_cast<unsigned>(groups));
}
