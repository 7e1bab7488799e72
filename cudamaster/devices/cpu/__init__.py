"""The CPU device: executes CUDA C++ functionally on the host, so that correctness is provable without a GPU.

`rewrite` turns launches into plain C++, the headers in `include/` take the place of the CUDA toolkit's, and the
executor in `runtime/` runs blocks on OS threads and threads as plain calls. Its times are not those of a GPU.

Threads of a block take turns: one runs until it ends or comes to a barrier, a collective, an atomic, a fence,
`__nanosleep` or an empty loop. A thread that waits in any other way for a plain store of a thread whose turn has not
come never ends; the executor names it on stderr, and the time limit ends the run. No signal interrupts it: at an
arbitrary place it may hold a lock of the C library, and its registers would have to be saved without the compiler and
AddressSanitizer knowing.

Host code that touches memory from cudaMalloc ends with a fault, as on a GPU without shared page tables. `__device__`
variables are host variables here, so such an access to them is not seen. Only the checking build, which runs the
verification cases under AddressSanitizer, finds kernels that touch the host's stack or heap (if an argument points
there), misaligned vectors, and overruns to the byte.

A third build of a candidate has an observer in the executor that finds races and memory faults: runtime/check.
"""
