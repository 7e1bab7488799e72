"""What the machines of a cluster must have in common: this program, and for builds that travel the tools."""

from __future__ import annotations

import functools
import hashlib
import platform
from pathlib import Path

from cudamaster.core import resources
from cudamaster.devices.cpu import toolchain
from cudamaster.devices.nvcc import find_nvcc, release

_OURS = (".py", ".j2", ".cu", ".h", ".cpp", ".yaml", ".json")


@functools.cache
def program_hash() -> str:
    """Hash over the package and the shipped folders that verdicts depend on: bench/, templates/, profiles/."""
    digest = hashlib.sha256()
    for folder in (resources.package(), resources.bench(), resources.templates(), resources.profiles()):
        for path in sorted(_files(folder)):
            digest.update(f"{path.relative_to(folder.parent)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _files(folder: Path) -> list[Path]:
    shipped = folder / "_data"  # of the package: its own folders, which are counted by themselves
    return [path for path in folder.rglob("*") if path.suffix in _OURS and shipped not in path.parents]


@functools.cache
def tools() -> str:
    """What an executable depends on beside its source: nvcc, the host's compiler, the C library, the processor."""
    nvcc = find_nvcc()
    parts = ("no nvcc" if nvcc is None else f"nvcc {release(nvcc)}", toolchain.version(), " ".join(platform.libc_ver()))
    return ", ".join((*parts, platform.machine()))
