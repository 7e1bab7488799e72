"""Which device: the one asked for, or a GPU if there is one, else the CPU."""

from __future__ import annotations

from cudamaster.core import resources
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.cuda import CudaDevice, find_gpu, find_gpus, find_nvcc
from cudamaster.devices.protocol import Device


def choose(name: str = "auto", unit: str | None = None) -> Device:
    """The device `name`: auto, cuda or cpu. Raises DeviceError when it is not there, or has no cache to build in.

    Of several GPUs the one whose UUID is `unit`, else the first.
    """
    resources.cache()
    if _is_cuda(name):
        return CudaDevice(next((gpu for gpu in find_gpus() if gpu.uuid == unit), None))
    return CpuDevice()


def units(name: str = "auto") -> tuple[str, ...]:
    """All that `choose` can be asked for by `unit`: the UUIDs of the GPUs, or the one CPU device."""
    return tuple(gpu.uuid for gpu in find_gpus()) if _is_cuda(name) else (CpuDevice.unit,)


def _is_cuda(name: str) -> bool:
    return name == "cuda" or (name == "auto" and why_not_cuda() is None)


def why_not_cuda() -> str | None:
    """Why kernels cannot be measured on this machine; None when they can."""
    if find_gpu() is None:
        return "there is no GPU (nvidia-smi is missing or lists none)"
    if find_nvcc() is None:
        return "there is a GPU but no nvcc"
    return None
