"""The floor under a call's time (design §6): what memory, arithmetic units and an empty launch allow at best.

Bandwidths are measured on the GPU by bench/harness/limits.cu. Rates of arithmetic follow from the architecture:
operations per multiprocessor and clock at the highest clock, which no kernel exceeds.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cudamaster import resources
from cudamaster.cards import Case, TaskCard
from cudamaster.devices.protocol import Device
from cudamaster.errors import DeviceError
from cudamaster.values import Precision

_LIMIT_S = 120.0
# Floating-point operations per multiprocessor and clock (CUDA C++ programming guide, table of arithmetic throughput;
# tensor cores: NVIDIA's architecture papers, dense, bf16 with fp32 sums). What is newer counts as the fastest known.
_FP32 = {"8.0": 128}
_FP32_OTHERS = 256
_TENSOR = {"8.0": 2048, "8.6": 1024, "8.7": 2048, "8.9": 1024, "9.0": 4096}
_TENSOR_OTHERS = 8192


@dataclass(frozen=True)
class Limits:
    """What a GPU can do at best. Bandwidths in bytes per second, rates in operations per second."""

    read_bytes_per_s: float
    write_bytes_per_s: float
    multiprocessors: int
    clock_mhz: int
    l2_bytes: int
    compute_capability: str

    def operations_per_s(self, precision: Precision, *, products: bool) -> float:
        """Rate of the unit that does a task's operations; bf16 outside of products comes in pairs."""
        if precision is Precision.BF16:
            pairs = 2 * _FP32.get(self.compute_capability, _FP32_OTHERS)
            per_clock = _TENSOR.get(self.compute_capability, _TENSOR_OTHERS) if products else pairs
        else:
            per_clock = _FP32.get(self.compute_capability, _FP32_OTHERS)
        return per_clock * self.multiprocessors * self.clock_mhz * 1e6


def measure(device: Device) -> Limits:
    """Build and run bench/harness/limits.cu. Raises DeviceError when that fails."""
    source = (resources.bench() / "harness" / "limits.cu").read_text()
    with tempfile.TemporaryDirectory(prefix="cudamaster-") as name:
        folder = Path(name)
        built = device.compile(source, ("-O2", "-std=c++17"), "limits", folder)
        if built.object is not None:
            built = device.link([built.object], folder / "limits")
        if built.object is None:
            raise DeviceError("The bandwidth test does not build.", f"Run `cudamaster doctor`. {built.log[-500:]}")
        ran = device.run([str(built.object)], Path(os.devnull), _LIMIT_S)
    try:
        return Limits(**json.loads(ran.stderr.strip().splitlines()[-1]))
    except (IndexError, TypeError, json.JSONDecodeError) as error:
        raise DeviceError(f"The bandwidth test failed: {ran.stderr[-500:]}.", "Run `cudamaster doctor`.") from error


def floor_us(card: TaskCard, case: Case, precision: Precision, limits: Limits, empty_us: float) -> float:
    """Least time of one call in microseconds: the slowest of reading, writing and arithmetic, and an empty launch."""
    least = card.floor_of(case, precision)
    seconds = max(
        least["bytes_read"] / limits.read_bytes_per_s,
        max(0, least["bytes_written"] - limits.l2_bytes) / limits.write_bytes_per_s,
        least["operations"] / limits.operations_per_s(precision, products=card.floor.products),
    )
    return seconds * 1e6 + empty_us
