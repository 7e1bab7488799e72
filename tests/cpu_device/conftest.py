"""Builds and runs small CUDA programs on the CPU device."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cudamaster.devices.cpu import CpuDevice
from cudamaster.devices.protocol import Ran
from cudamaster.faults.cpu_checker import MARK

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import ptx_results

KERNELS = Path(__file__).parent / "kernels"


@dataclass(frozen=True)
class Program:
    """A linked program. Each of its checks is run by name, in a process of its own."""

    executable: Path
    folder: Path

    def run(self, *arguments: str, reversed_threads: bool = False, limit_s: float = 60) -> Ran:
        """The check's outcome; what it prints to stderr is in it."""
        command = [str(self.executable), *arguments]
        return CpuDevice().execute(command, limit_s, reversed_threads=reversed_threads)

    def found(self, *arguments: str, reversed_threads: bool = False) -> tuple[set[str], str]:
        """For a program under the checker: kinds of what that found, and all that it said."""
        said = self.run(*arguments, reversed_threads=reversed_threads, limit_s=120).stderr
        lines = [line for line in said.splitlines() if line.startswith(MARK)]
        return {json.loads(line[len(MARK) :])["kind"] for line in lines}, said


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Program]:
    """Builds a file of kernels/ once per session, plain or with the sanitizer."""
    made: dict[tuple[str, bool], Program] = {}

    def make(name: str, *, debug: bool = False) -> Program:
        if (name, debug) not in made:
            device, folder = CpuDevice(), tmp_path_factory.mktemp(name)
            source = (KERNELS / f"{name}.cu").read_text()
            compiled = device.compile(source, ["-O2"], name, folder, debug=debug)
            assert compiled.object is not None, compiled.log
            linked = device.link([compiled.object], folder / name, debug=debug)
            assert linked.object is not None, linked.log
            made[name, debug] = Program(linked.object, folder)
        return made[name, debug]

    return make


@pytest.fixture(scope="session")
def build_checked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Program]:
    """Builds a file of kernels/ once per session, under the checker."""
    made: dict[str, Program] = {}

    def make(name: str) -> Program:
        if name not in made:
            device, folder = CpuDevice(), tmp_path_factory.mktemp(name)
            source = (KERNELS / f"{name}.cu").read_text()
            compiled = device.compile_observed(source, ["-O2"], "candidate", folder, "check")
            assert compiled.object is not None, compiled.log
            linked = device.link_observed([compiled.object], folder / name, "check")
            assert linked.object is not None, linked.log
            made[name] = Program(linked.object, folder)
        return made[name]

    return make


@pytest.fixture(scope="session")
def ptx_words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the programs of benchmarks/ptx_results.py write on the CPU device: cases.out and others."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # one for all processes of this session
    folder /= "ptx"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            _run_ptx_programs(CpuDevice(), folder)
            (folder / "done").touch()
    return folder


def _run_ptx_programs(device: CpuDevice, folder: Path) -> None:
    ptx_results.write_data(folder)
    for name, program in ptx_results.PROGRAMS.items():
        compiled = device.compile(program(), ["-O1"], name, folder)
        assert compiled.object is not None, compiled.log
        linked = device.link([compiled.object], folder / name)
        assert linked.object is not None, linked.log
        command = [str(linked.object), str(folder / f"{name}.in"), str(folder / f"{name}.out")]
        ran = device.execute(command, 60)
        assert ran.exit_code == 0, ran.stderr
