"""A file of a GPU for the model of a GPU, measured on that very GPU: `cudamaster limits --gpu-file`.

bench/harness/limits.cu and figures.cu measure what they can in less than a minute. What no program of ours can see
(how many schedulers an SM has, how large L1 is) is taken from the file that ships for the nearest GPU, and marked so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from cudamaster.core import sourced
from cudamaster.core.errors import unwritable
from cudamaster.core.sourced import Source
from cudamaster.core.writing import whole
from cudamaster.devices.protocol import Device
from cudamaster.modelling import gpu
from cudamaster.workbench import floors
from cudamaster.workbench.floors import GpuLimits

# Sources that hold for every GPU of an architecture.
_OF_ARCHITECTURE = ("architecture",)


def measure(device: Device) -> Mapping[str, float]:
    """What bench/harness/figures.cu measures, by the names of gpu.Figures. Raises DeviceError when that fails."""
    what = "the figures for a GPU's file"
    said = floors.run_harness(device, "figures", what)
    try:
        found = {str(name): float(value) for name, value in json.loads(said.splitlines()[-1]).items()}
        known = {field.name for field in fields(gpu.Figures)}
        if wrong := [name for name, value in found.items() if name not in known or not 0 < value < float("inf")]:
            raise ValueError(f"{wrong[0]} is {found[wrong[0]]}")
        return found
    except (IndexError, TypeError, AttributeError, ValueError) as error:
        raise floors.unusable(what, error, said) from error


def nearest(limits: GpuLimits) -> gpu.Gpu:
    """The GPU of that name if it ships, or else that of the nearest compute capability, then number of SMs."""
    major, minor = (int(part) for part in limits.compute_capability.split("."))

    def distance(one: gpu.Gpu) -> tuple[bool, int, int, float]:
        of = one.compute_capability
        return (
            one.name != limits.name, abs(of[0] - major), abs(of[1] - minor),
            abs(one.figures.sms - limits.multiprocessors),
        )  # fmt: skip

    return min((gpu.load(key) for key in gpu.known()), key=distance)


def figures(limits: GpuLimits, measured: Mapping[str, float]) -> dict[str, tuple[float, Source]]:
    """All figures with their sources, those of the nearest GPU where nothing was measured."""
    base = nearest(limits)
    clock = measured.get("clock_mhz", limits.sm_clock_after_mhz)
    per_clock = 1e-6 / (clock * limits.multiprocessors)
    own = {
        **measured,
        "clock_mhz": clock,
        "sms": limits.multiprocessors,
        "threads_per_sm": limits.threads_per_sm,
        "registers_per_sm": limits.registers_per_sm,
        "shared_bytes_per_sm": limits.shared_bytes_per_sm,
        "l2_bytes": limits.l2_bytes,
        "read_bytes_per_s": limits.read_bytes_per_s,
        "write_bytes_per_s": limits.write_bytes_per_s,
        "copy_bytes_per_s": limits.copy_bytes_per_s,
        "fp32_lanes": limits.fp32_per_s / 2 * per_clock,
        "special_lanes": limits.special_per_s * per_clock,
    }
    if limits.tensor_by == "wgmma":
        own["warpgroup_operations"] = limits.tensor_per_s * per_clock
    found: dict[str, tuple[float, Source]] = {}
    for field in fields(gpu.Figures):
        if field.name in own:
            found[field.name] = (own[field.name], "measured")
        elif (value := getattr(base.figures, field.name)) is not None and field.name != "warpgroup_operations":
            source = base.sources[field.name]
            found[field.name] = (value, source if source in _OF_ARCHITECTURE else "assumed")
    return found


def text(limits: GpuLimits, measured: Mapping[str, float]) -> str:
    """The file."""
    base = nearest(limits)
    about = (
        f"Measured by `cudamaster limits --gpu-file` on {limits.date}, driver {limits.driver}. What is not marked as "
        f"measured is that of an {base.name}. Nothing of the model was fitted to this GPU, and no kernel was timed on "
        "it: how far modelled times are off is not known."
    )
    lines = [
        "# What the model of the GPU knows of it; meanings in cudamaster/modelling/gpu.py. All was measured once:",
        "# there are no ranges.",
        f"name: {json.dumps(limits.name)}",
        f'compute_capability: "{limits.compute_capability}"',
        f"about: {json.dumps(about)}",
        "figures:",
    ]
    for name, (value, source) in figures(limits, measured).items():
        lines.append(sourced.line(name, float(f"{value:.6g}"), gpu.unit(name), source, None, ""))
    return "\n".join(lines) + "\n"


def save(path: Path, limits: GpuLimits, measured: Mapping[str, float]) -> gpu.Gpu:
    """Write the file, and read it as the model will. Raises UsageError where it cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as staged:
            staged.write_text(text(limits, measured), encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error, "Choose another file with --gpu-file.") from error
    return gpu.load(str(path))
