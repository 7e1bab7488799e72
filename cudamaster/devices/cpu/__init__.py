"""The CPU device: executes CUDA C++ functionally on the host, so that correctness is provable without a GPU.

`rewrite` turns launches into plain C++, the headers in `include/` stand where the CUDA toolkit's stand, and the
executor in `runtime/` runs blocks on OS threads and threads as plain calls. Times on it are no measurement of a GPU.
"""

from cudamaster.devices.cpu.device import CpuDevice

__all__ = ["CpuDevice"]
