"""CUDAMaster: makes the CUDA kernels of MSKernelBench fast, and proves that they are.

Importing the package does nothing: no files, no prints, no network, no litellm.
"""

__version__ = "0.1.0"
