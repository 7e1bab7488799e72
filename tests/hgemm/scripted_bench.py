"""A bench without a GPU: times come from a known function, and members do what a script says of them.

The script is a JSON file, which takes the place of the program that measures. For the name of a kernel's file it has
the microseconds of a call (`us`; with `bands`, those with a band), and whether it is `wrong`, `inexact`, `refuses`,
`breaks` the context or `kills` the process. Libraries are there by their name, e.g. cublas_tn.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from cudamaster.families.config import Config
from cudamaster.hgemm import measuring
from cudamaster.hgemm.bench import BenchError, Deviation, Whole

US = 20.0  # of a kernel that the script does not name
LIBRARY_US = 30.0
ALGORITHMS = 7


class ScriptedBench:
    """Has the methods of hgemm.bench.Bench. `kernels` are the files and bands that were added."""

    def __init__(self, script: Path, torch: Path | None = None) -> None:
        self._script: dict[str, dict[str, Any]] = json.loads(script.read_text("utf-8"))
        self.has_torch = torch is not None
        self.kernels: list[tuple[str, int]] = []
        self.fills: list[float] = []
        self._us: list[float] = []
        self._told: list[dict[str, Any]] = []

    def versions(self) -> dict[str, str]:
        """As measure.cu gives them."""
        return {"gpu": "NVIDIA H200", "driver": "570.1", "runtime": "12090", "cublas": "12.9.1", "torch": ""}

    def shape(self, shape: tuple[int, int, int], *, fp32: bool, seed: int) -> None:
        """A new product; what was added before is gone."""
        self._us, self._told = [], []

    def fill(self, ones: float, seed: int) -> None:
        """Other inputs."""
        self.fills.append(ones)

    def add_kernel(self, name: str, path: Path, *, tn: bool, band: int) -> int:
        """A member, or what the script does in its place."""
        told = self._script.get(path.stem, {})
        if told.get("kills"):
            os.kill(os.getpid(), signal.SIGKILL)
        if told.get("breaks"):
            raise BenchError("an illegal memory access was encountered")
        if told.get("refuses"):
            raise BenchError(f"{name} refuses this product")
        self.kernels.append((path.stem, band))
        return self._added(told, told.get("bands", {}).get(str(band), told.get("us", US)))

    def add_library(self, library: str, *, tn: bool) -> tuple[int, int]:
        """A library."""
        told = self._script.get(f"{library}_{'tn' if tn else 'nn'}", {})
        if told.get("breaks"):
            raise BenchError(f"{library} failed")
        return self._added(told, told.get("us", LIBRARY_US)), ALGORITHMS if "lt" in library else 0

    def _added(self, told: dict[str, Any], us: float) -> int:
        self._us.append(us)
        self._told.append(told)
        return len(self._us) - 1

    def check(self, index: int, *, library: bool = False) -> Deviation:
        """Errors on general inputs."""
        told = self._told[index]
        return Deviation(1.0 if told.get("wrong") else 0.001, 1.0 if told.get("inexact") else 1e-6)

    def spread(self) -> float:
        """By how much the libraries differ."""
        return 0.002

    def check_whole(self, index: int) -> Whole:
        """Errors on zeros and ones."""
        told = self._told[index]
        return Whole(3 if told.get("wrong_whole") else 0, 2 if told.get("wrong_beyond") else 0, 10)

    def time(self, indexes: Sequence[int], iterations: int, mode: str = "offline") -> np.ndarray:
        """The script's times, within a hundredth."""
        noise = np.random.default_rng(len(indexes)).normal(0, 0.002, (iterations, len(indexes)))
        return np.array([self._us[index] for index in indexes]) * np.exp(noise)


def file_of(config: Config) -> Path:
    """A kernel's file, whose stem says which member it is."""
    values = [str(value) for name, value in vars(config).items() if name != "band"]
    return Path("_".join(values) + ".so")


def serve(pipe: Connection, script: Path, torch: Path | None) -> None:
    """The process that measures, with a scripted bench."""
    measuring.Bench = ScriptedBench  # type: ignore[misc, assignment]
    measuring.serve(pipe, script, torch)


def serve_nothing(pipe: Connection, script: Path, torch: Path | None) -> None:
    """A process that ends before it can measure anything."""
    pipe.close()
