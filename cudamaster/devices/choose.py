"""Which device: the one asked for, or a GPU if there is one, else the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudamaster.core import resources
from cudamaster.devices.cuda import CudaDevice, find_gpu, find_gpus
from cudamaster.devices.nvcc import find_nvcc
from cudamaster.devices.protocol import Device

if TYPE_CHECKING:
    from cudamaster.devices.cpu.device import CpuDevice


@dataclass(frozen=True)
class _Kind:
    """How to find devices of one name: why there is none here (None if there is one), their units, a unit's device."""

    why_not: Callable[[], str | None]
    units: Callable[[], tuple[str, ...]]
    make: Callable[[str | None], Device]


def why_not_cuda() -> str | None:
    """Why kernels cannot be measured on this machine; None when they can."""
    if find_gpu() is None:
        return "there is no GPU (nvidia-smi is missing or lists none)"
    if find_nvcc() is None:
        return "there is a GPU but no nvcc"
    return None


def _cpu() -> type[CpuDevice]:
    """The CPU device, whose modules a GPU's evaluations need not wait for."""
    from cudamaster.devices.cpu.device import CpuDevice

    return CpuDevice


# By the names in devices.NAMES. `auto` takes the first that is there; the last one always is.
_KINDS: Mapping[str, _Kind] = {
    "cuda": _Kind(
        why_not=lambda: why_not_cuda(),
        units=lambda: tuple(gpu.uuid for gpu in find_gpus()),
        make=lambda unit: CudaDevice(next((gpu for gpu in find_gpus() if gpu.uuid == unit), None)),
    ),
    "cpu": _Kind(why_not=lambda: None, units=lambda: (_cpu().unit,), make=lambda unit: _cpu()()),
}


def choose(name: str = "auto", unit: str | None = None) -> Device:
    """The device `name`: auto, cuda or cpu. Raises DeviceError when it is not there, or has no cache to build in.

    Of several GPUs it is the one whose UUID is `unit`, by default the first.
    """
    resources.cache()
    return _kind(name).make(unit)


def units(name: str = "auto") -> tuple[str, ...]:
    """The units that `choose` takes: the UUIDs of the GPUs, or the one CPU device."""
    return _kind(name).units()


def _kind(name: str) -> _Kind:
    if name != "auto":
        return _KINDS[name]
    return next(kind for kind in _KINDS.values() if kind.why_not() is None)
