"""A problem as it was read: what its module is called on and gives, which sizes may vary, and what is wrong with it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cudamaster.build import eager
from cudamaster.core import resources
from cudamaster.core.errors import CardError, UsageError, one_line
from cudamaster.devices.process import run_limited

_LIMIT_S = 900.0  # a module of a billion parameters is made, and called a few times on the CPU
_FIX = "Docs: docs/kernelbench.md says what a problem may have."


@dataclass(frozen=True)
class Fault:
    """A known fault of such problems: its kind, and a sentence without a full stop."""

    kind: str
    words: str


@dataclass(frozen=True)
class Problem:
    """A problem that was read. `told` is what bench/pytorch/read.py printed of it."""

    file: Path
    source: str
    told: Mapping[str, Any]

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Its known faults."""
        return tuple(Fault(each["kind"], each["words"]) for each in self.told["faults"])


def read(file: Path, python: str | None = None) -> Problem:
    """Read a problem in a process of its own, by `python` or the Python that eager.python() names.

    Raises UsageError where there is no such file, DeviceError for a Python without PyTorch, CardError for a problem
    that makes no task.
    """
    if file.is_dir():
        raise UsageError(f"{file} is a folder.", f"Name the problems in it: {file}/*.py")
    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {one_line(error)}.", "Give the path of a Python file.") from error
    chosen = python or eager.python()
    eager.torch_of(chosen)
    with tempfile.TemporaryDirectory(prefix="cudamaster-") as folder:
        result = Path(folder) / "told.json"
        command = [chosen, str(resources.bench() / "pytorch" / "read.py"), str(file.absolute()), str(result)]
        ran = run_limited(command, _LIMIT_S, environment=eager.with_path())
        if ran.expired:
            raise CardError(f"{file} was not read within {_LIMIT_S:.0f} s.", "Give it smaller sizes.")
        if not result.is_file():
            said = (ran.stderr.strip().splitlines() or ["it says nothing"])[-1]
            raise CardError(f"{file} makes no task: reading it ended with {said}.", _FIX)
        told = json.loads(result.read_text(encoding="utf-8"))
    if "error" in told:
        raise CardError(f"{file} makes no task: {' '.join(str(told['error']).split())}.", _FIX)
    return Problem(file, source, told)
