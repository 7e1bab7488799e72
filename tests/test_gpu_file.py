"""The file of a GPU that `cudamaster limits --gpu-file` writes: what was measured, and what is another GPU's."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from test_floors import LIMITS

from cudamaster.cli import main
from cudamaster.core import resources
from cudamaster.core.errors import DeviceError, UsageError
from cudamaster.devices.cuda import find_nvcc
from cudamaster.devices.protocol import Ran
from cudamaster.modelling import gpu
from cudamaster.workbench import floors, gpu_file

# What figures.cu said on an H200 (2026-11-28), as far as this goes.
SAID = {
    "blocks_per_sm": 32, "reserved_shared_bytes": 1024, "integer_lanes": 64.1, "memory_latency_cycles": 693.5,
    "empty_call_us": 9.85, "clock_mhz": 2000.0,
}  # fmt: skip


def test_measured_figures_are_marked_and_others_are_of_the_nearest_gpu(tmp_path: Path) -> None:
    made = gpu_file.save(tmp_path / "folder" / "mine.yaml", LIMITS, SAID)
    assert made == gpu.load(str(tmp_path / "folder" / "mine.yaml"))
    assert (made.name, made.compute_capability, made.own) == ("No GPU", (9, 0), True)
    assert "how far modelled times are off is not known" in made.about
    figures, sources = made.figures, made.sources
    assert (figures.sms, figures.clock_mhz, figures.l2_bytes) == (100, 2000, 50_000_000)
    assert figures.fp32_lanes == pytest.approx(50e12 / 2 / (100 * 2000e6))
    assert figures.warpgroup_operations == pytest.approx(900e12 / (100 * 2000e6))
    assert {sources[name] for name in (*SAID, "sms", "fp32_lanes", "warpgroup_operations")} == {"measured"}
    assert (figures.schedulers, sources["schedulers"]) == (4, "architecture")
    assert (figures.host_instructions_per_us, sources["host_instructions_per_us"]) == (3000, "assumed")
    # Fitted to another GPU is assumed for this one.
    assert sources["l2_bytes_per_s"] == "assumed"


@pytest.mark.parametrize(("capability", "multiprocessors", "key"), [
    ("9.0", 132, "h"), ("8.0", 108, "a100"), ("8.6", 84, "l4"), ("8.9", 128, "rtx4090"), ("12.0", 170, "h"),
])  # fmt: skip
def test_the_nearest_gpu_is_of_the_nearest_architecture(capability: str, multiprocessors: int, key: str) -> None:
    from dataclasses import replace

    found = gpu_file.nearest(replace(LIMITS, compute_capability=capability, multiprocessors=multiprocessors))
    assert found.key.startswith(key)
    assert gpu_file.nearest(replace(LIMITS, name="NVIDIA H200")).key == "h200"


def test_a_gpu_without_wgmma_has_no_rate_of_it() -> None:
    from dataclasses import replace

    ada = replace(LIMITS, compute_capability="8.9", tensor_by="mma.sync")
    assert "warpgroup_operations" not in gpu_file.figures(ada, SAID)


@pytest.mark.parametrize("said", ["", "nonsense", json.dumps({"hearsay": 1.0}), json.dumps({"clock_mhz": -1})])
def test_figures_of_no_sense_are_an_error(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setattr(floors, "run_harness", lambda *asked: said)
    device: Any = None
    with pytest.raises(DeviceError, match="gave unusable figures"):
        gpu_file.measure(device)


def test_a_name_that_the_model_would_not_read_is_refused() -> None:
    ran = CliRunner().invoke(main, ["limits", "--gpu-file", "mine.txt"])
    assert isinstance(ran.exception, UsageError) or "has to be a .yaml" in ran.output + str(ran.exception)


def test_the_program_is_run_as_that_of_the_limits() -> None:
    """Its last line counts; a failure is told."""

    class Limited:
        """A device that compiles anything, and says what it is told to say."""

        gpu = None
        ran = Ran(0, None, False, f"a warning\n{json.dumps(SAID)}\n", 1.0)

        def limits_flags(self) -> tuple[str, ...]:
            return ()

        def compile(self, source: str, flags: object, name: str, folder: Path) -> Any:
            assert "memory_latency_cycles" in source
            from cudamaster.devices.protocol import Compiled

            return Compiled(folder / name, "", "", 1.0)

        def link(self, objects: object, target: Path) -> Any:
            from cudamaster.devices.protocol import Compiled

            return Compiled(target, "", "", 1.0)

        def execute(self, command: object, limit_s: float) -> Ran:
            return self.ran

    device: Any = Limited()
    assert gpu_file.measure(device) == SAID
    device.ran = Ran(1, None, False, "out of memory", 1.0)
    with pytest.raises(DeviceError, match="the figures for a GPU's file failed: out of memory"):
        gpu_file.measure(device)


@pytest.mark.slow
@pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc")
def test_the_program_builds(tmp_path: Path) -> None:
    """For the GPUs whose files ship, by one call that compiles what the host runs once, without a warning."""
    nvcc = find_nvcc()
    assert nvcc is not None
    bench = resources.bench()
    targets = [f"-gencode=arch=compute_{number},code=sm_{number}" for number in ("80", "89", "90a")]
    command = [nvcc, "-O2", "-std=c++17", *targets, f"-I{bench}", f"-I{bench / 'include'}",
               bench / "harness" / "figures.cu", "-o", tmp_path / "figures"]  # fmt: skip
    built = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
