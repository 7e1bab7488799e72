"""Builds and runs small CUDA programs on the CPU device."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import ptx_results
import pytest
from made_once import made_once

from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.protocol import Ran
from cudamaster.faults.cpu_checker import MARK

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

    @cache
    def make(name: str, *, debug: bool = False) -> Program:
        def build(folder: Path) -> None:
            device, source = CpuDevice(), (KERNELS / f"{name}.cu").read_text()
            compiled = device.compile(source, ["-O2"], name, folder, debug=debug)
            assert compiled.object is not None, compiled.log
            linked = device.link([compiled.object], folder / name, debug=debug)
            assert linked.object is not None, linked.log

        folder = made_once(tmp_path_factory, f"{name}{'-debug' if debug else ''}", build)
        return Program(folder / name, folder)

    return make


@pytest.fixture(scope="session")
def build_checked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Program]:
    """Builds a file of kernels/ once per session, under the checker."""

    @cache
    def make(name: str) -> Program:
        def build(folder: Path) -> None:
            device, source = CpuDevice(), (KERNELS / f"{name}.cu").read_text()
            compiled = device.compile_observed(source, ["-O2"], "candidate", folder, "check")
            assert compiled.object is not None, compiled.log
            linked = device.link_observed([compiled.object], folder / name, "check")
            assert linked.object is not None, linked.log

        folder = made_once(tmp_path_factory, f"{name}-checked", build)
        return Program(folder / name, folder)

    return make


@pytest.fixture(scope="session")
def ptx_words(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives the folder in which a program of benchmarks/ptx_results.py is: `cases` has written cases.out there."""

    @cache
    def make(name: str) -> Path:
        return made_once(tmp_path_factory, f"ptx-words-{name}", partial(_run_ptx_program, name))

    return make


def _run_ptx_program(name: str, folder: Path) -> None:
    device = CpuDevice()
    ptx_results.write_data(folder)
    compiled = device.compile(ptx_results.PROGRAMS[name](), ["-O1"], name, folder)
    assert compiled.object is not None, compiled.log
    linked = device.link([compiled.object], folder / name)
    assert linked.object is not None, linked.log
    command = [str(linked.object), str(folder / f"{name}.in"), str(folder / f"{name}.out")]
    ran = device.execute(command, 60)
    assert ran.exit_code == 0, ran.stderr
