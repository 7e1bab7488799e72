"""Builds and runs small CUDA programs on the CPU device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cudamaster.devices.cpu import CpuDevice
from cudamaster.devices.protocol import Ran

KERNELS = Path(__file__).parent / "kernels"


@dataclass(frozen=True)
class Program:
    """A linked program. Each of its checks is run by name, in a process of its own."""

    executable: Path
    folder: Path

    def run(self, *arguments: str, reversed_threads: bool = False, limit_s: float = 60) -> Ran:
        """The check's outcome; what it prints to stderr is in it."""
        command = [str(self.executable), *arguments]
        return CpuDevice().run(command, self.folder / "report", limit_s, reversed_threads=reversed_threads)


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
