"""Programs of calls that are recorded, built with the observer that counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_once import made_once

from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.nvcc import resource_usage


def traced_program(temporary: pytest.TempPathFactory, name: str) -> Path:
    """The executable of a CUDA file in this folder, built once a session."""

    def build(folder: Path) -> None:
        device = CpuDevice()
        source = Path(__file__).with_name(name).read_text()
        compiled = device.compile_observed(source, ["-O3"], "candidate", folder, "trace")
        assert compiled.object is not None, compiled.log
        linked = device.link_observed([compiled.object], folder / "run", "trace")
        assert linked.object is not None, linked.log
        used = resource_usage(source, ["-O3"], "candidate", folder)
        (folder / "candidate.ptxas").write_text(used, encoding="utf-8")

    return made_once(temporary, name, build) / "run"
