"""Finds nvcc, and asks its assembler about kernels. No GPU is needed."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cudamaster.core import keys
from cudamaster.devices import toolkit
from cudamaster.devices.process import run_limited

COMPILE_LIMIT_S = 300.0


@functools.cache
def find_nvcc() -> Path | None:
    """nvcc of $CUDACXX, the PATH, a toolkit or the nvidia-cuda-nvcc package; None when there is none."""
    return toolkit.find("nvcc", "CUDACXX")


@functools.cache
def release(nvcc: Path) -> str:
    """Release of an nvcc, e.g. "13.0", or "unknown"."""
    done = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False, env=keys.for_tools())
    found = re.search(r"release ([\d.]+)", done.stdout)
    return found[1] if found else "unknown"


def library_folders(nvcc: Path) -> tuple[Path, ...]:
    """The folders of the libraries of an nvcc's toolkit; nvcc itself looks in lib64 alone, and its package has lib."""
    return tuple(folder for folder in nvcc.resolve().parent.parent.glob("lib*") if folder.is_dir())


def shared_runtime(nvcc: Path, folder: Path) -> list[str]:
    """The options with which an nvcc links the shared runtime of its own toolkit.

    A package has the runtime under the name that programs ask for, and lacks the one that linkers do: where that is so,
    a link by that name is put in `folder`.
    """
    homes = library_folders(nvcc)
    named = [library for home in homes for library in sorted(home.glob("libcudart.so*"))]
    options = [f"-L{home}" for home in homes]
    if named and not any(library.name == "libcudart.so" for library in named):
        folder.mkdir(parents=True, exist_ok=True)
        made = folder / f"libcudart.{os.getpid()}"
        made.unlink(missing_ok=True)
        made.symlink_to(named[0])
        made.replace(folder / "libcudart.so")
        options.append(f"-L{folder}")
    return options


def resource_usage(source: str, flags: Sequence[str], name: str, folder: Path, *, architecture: str = "sm_90") -> str:
    """ptxas's report on the kernels of a text. It is empty without nvcc and on an error."""
    nvcc = find_nvcc()
    if nvcc is None:
        return ""
    if any("sm_90a" in flag for flag in flags):
        architecture = "sm_90a"
    kept = [flag for flag in flags if not flag.startswith(("-arch=", "-gencode="))]
    with tempfile.TemporaryDirectory(dir=folder) as building:
        (Path(building) / f"{name}.cu").write_text(source, encoding="utf-8")
        command = [
            str(nvcc),
            *kept,
            f"-arch={architecture}",
            "-Xptxas=-v",
            "-cubin",
            f"{name}.cu",
            "-o",
            f"{name}.cubin",
        ]
        ran = run_limited(command, COMPILE_LIMIT_S, folder=Path(building))
    return ran.stderr if ran.exit_code == 0 else ""
