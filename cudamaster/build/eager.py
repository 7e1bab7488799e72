"""The worker of a baseline in eager PyTorch: a Python process that loads our worker as a library.

The Python is the one that runs us, or what $CUDAMASTER_PYTHON names: any that has PyTorch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from cudamaster.core import keys, resources
from cudamaster.core.errors import DeviceError
from cudamaster.core.expressions import Number
from cudamaster.core.values import Precision
from cudamaster.devices.process import run_limited
from cudamaster.tasks.cards import TaskCard

PYTHON = "CUDAMASTER_PYTHON"
# What cuDNN computes in TF32 in place of FP32, by PyTorch's default. Products of matrices are not among it.
TF32 = frozenset({"convolution", "lstm", "gru", "rnn_tanh", "rnn_relu"})
_LIMIT_S = 120.0  # importing PyTorch from a cold disk
_PROBE = "import json, sys, torch; print(json.dumps([torch.__version__, torch.version.cuda, sys.path[1:]]))"


def python() -> str:
    """The Python that has PyTorch."""
    return os.environ.get(PYTHON) or sys.executable


def with_path() -> dict[str, str]:
    """The environment of tools, with what a user adds to Python's path."""
    found = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return {**keys.for_tools(), **found}


@cache
def torch_of(chosen: str) -> tuple[str, str | None, tuple[str, ...]]:
    """The version of a Python's PyTorch, the CUDA that it is for, and the path that it is found by.

    Raises DeviceError where that Python does not run, or has none.
    """
    fix = f"Run `pip install 'cudamaster[torch]'`, or set {PYTHON} to a Python that has PyTorch."
    try:
        done = subprocess.run(
            [chosen, "-c", _PROBE], capture_output=True, text=True, timeout=_LIMIT_S, env=with_path(), check=False
        )
        version, cuda, path = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError) as error:
        raise DeviceError(f"The Python {chosen} does not run: {error}.", fix) from error
    except (ValueError, IndexError) as error:
        said = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise DeviceError(f"The Python {chosen} cannot use PyTorch: {said}.", fix) from error
    return version, cuda, tuple(path)


def command(card: TaskCard, precision: Precision, device: str, library: Path) -> tuple[str, ...]:
    """The command of the worker that calls a card's module; `library` is the worker. Raises DeviceError."""
    version, cuda, path = torch_of(python())
    if device == "cuda" and cuda is None:
        raise DeviceError(
            f"The PyTorch {version} of {python()} cannot use a GPU.",
            f"Install one that can, set {PYTHON} to a Python that has it, or use --device cpu.",
        )
    told = json.dumps(wiring(card, precision, device, path))
    return python(), str(resources.bench() / "pytorch" / "worker.py"), str(library), told


def operators(
    card: TaskCard, precision: Precision, cases: Sequence[Mapping[str, Number]]
) -> list[list[dict[str, Any]] | str]:
    """What PyTorch does in a call at each of the cases, its operators (bench/pytorch/counting.py), or why that is not
    known. Raises DeviceError where there is no PyTorch."""
    path = torch_of(python())[2]
    told = json.dumps(wiring(card, precision, "meta", path))
    with tempfile.TemporaryDirectory(prefix="cudamaster-") as folder:
        result = Path(folder) / "counts.json"
        script = str(resources.bench() / "pytorch" / "count.py")
        ran = run_limited([python(), script, str(result), told, json.dumps([dict(case) for case in cases])], _LIMIT_S)
        if not result.is_file():
            said = (ran.stderr.strip().splitlines() or ["it says nothing"])[-1]
            return [f"counting ended with: {said}"] * len(cases)
        found: list[list[dict[str, Any]] | str] = json.loads(result.read_text(encoding="utf-8"))
        return found


def wiring(card: TaskCard, precision: Precision, device: str, path: Sequence[str]) -> Mapping[str, Any]:
    """What the worker has to know of a task (bench/pytorch/worker.py)."""
    timed = max((case for case in card.cases if case.sweep), key=lambda case: case.weight)
    return {
        "path": list(path),
        "module": str(card.baseline_path(precision).absolute()),
        "device": device,
        "sizes": list(card.sizes),
        "buffers": [
            {
                "name": p.name,
                "type": p.element_type(precision),
                "shape": list(p.shape if p.shape is not None else [str(p.length)]),
                "output": p.role == "output",
            }
            for p in card.parameters
            if p.length is not None
        ],
        "scalars": [p.name for p in card.parameters if p.is_number],
        "given": dict(timed.values),
    }
