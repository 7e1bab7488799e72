"""The CPU device: executes CUDA C++ functionally on the host, so that correctness is provable without a GPU.

`rewrite` turns launches into plain C++, the headers in `include/` stand where the CUDA toolkit's stand, and the
executor in `runtime/` runs blocks on OS threads and threads as plain calls. Times on it are no measurement of a GPU.

Threads of a block take turns: one runs until it ends or comes to a barrier, a collective, an atomic, a fence,
`__nanosleep` or an empty loop. One that waits in any other way for a plain store of a thread whose turn has not come
waits for ever; the executor notes on stderr who it is, and the time limit ends it. It is not interrupted by a signal:
at an arbitrary place it may hold a lock of the C library, and its registers would have to be saved behind the
compiler's and AddressSanitizer's back.

Host code that touches what cudaMalloc gave ends with a fault, as on a GPU without shared page tables. `__device__`
variables are host variables here, and no such access to them is seen. The checking build alone, which runs the
verification cases under AddressSanitizer, finds kernels that touch the host's stack or heap (where an argument points
there), misaligned vectors, and overruns to the byte.

A third build of a candidate has an observer in the executor that finds faults of threads: runtime/check.
"""

from cudamaster.devices.cpu.device import CpuDevice

__all__ = ["CpuDevice"]
