"""Which device: the one asked for, or a GPU if there is one, else the CPU."""

from __future__ import annotations

from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.cuda import CudaDevice, find_gpu, find_nvcc
from cudamaster.devices.protocol import Device


def choose(name: str = "auto") -> Device:
    """The device `name`: auto, cuda or cpu. Raises DeviceError when it is not there."""
    if name == "cuda" or (name == "auto" and why_not_cuda() is None):
        return CudaDevice()
    return CpuDevice()


def why_not_cuda() -> str | None:
    """Why kernels cannot be measured on this machine; None when they can."""
    if find_gpu() is None:
        return "there is no GPU (nvidia-smi is missing or lists none)"
    if find_nvcc() is None:
        return "there is a GPU but no nvcc"
    return None
