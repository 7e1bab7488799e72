"""Vendors' libraries: which one a file of bench/vendor/ calls, and where its headers and its shared library lie.

Looked for beside nvcc, in /usr/local/cuda and in the nvidia packages of this Python, in that order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cudamaster.devices import toolkit

_TOOLKIT = Path("/usr/local/cuda")


@dataclass(frozen=True)
class Library:
    """A library: its header, the header with its version, its shared object (None for headers alone) and a package."""

    name: str
    header: str
    version_header: str
    shared: str | None
    package: str


LIBRARIES = (
    Library("cuBLAS", "cublas_v2.h", "cublas_api.h", "libcublas.so", "nvidia-cublas"),
    Library("cuBLASLt", "cublasLt.h", "cublas_api.h", "libcublasLt.so", "nvidia-cublas"),
    Library("cuSPARSE", "cusparse.h", "cusparse.h", "libcusparse.so", "nvidia-cusparse"),
    Library("cuFFT", "cufft.h", "cufft.h", "libcufft.so", "nvidia-cufft"),
    Library("CUB", "cub/version.cuh", "cub/version.cuh", None, "nvidia-cuda-cccl"),
)


@dataclass(frozen=True)
class Found:
    """A library of this machine: its version, the folder of its headers, and the shared object to link with."""

    version: str
    include: Path
    shared: Path | None


def called_by(text: str) -> tuple[Library, ...]:
    """The libraries whose headers a file includes."""
    included = re.findall(r"^#include <([^>]+)>", text, re.MULTILINE)
    return tuple(
        library
        for library in LIBRARIES
        if any(name == library.header or ("/" in name and name.split("/")[0] == _folder(library)) for name in included)
    )


def _folder(library: Library) -> str | None:
    return library.header.split("/")[0] if "/" in library.header else None


def find(library: Library, include_folders: Sequence[Path]) -> Found | str:
    """Where a library is, or why it cannot be used. `include_folders` are the compiler's own, looked at first."""
    why = f"{library.header} is not there"
    for include in _places(include_folders):
        if not (include / library.header).is_file():
            continue
        shared = None if library.shared is None else _shared(library.shared, include)
        if library.shared is None or shared is not None:
            return Found(_version(include / library.version_header), include, shared)
        why = f"{library.header} is in {include}, but no {library.shared} beside it"
    return (
        f"{library.name} is not installed: {why}; it comes with the CUDA toolkit, or as the package {library.package}"
    )


def _places(include_folders: Sequence[Path]) -> list[Path]:
    folders = [*include_folders, _TOOLKIT / "include", *(home / "include" for home in toolkit.packaged())]
    return list(dict.fromkeys(place for folder in folders for place in (folder, folder / "cccl") if place.is_dir()))


def _shared(name: str, include: Path) -> Path | None:
    """The shared object with that name, or with that name and a version, of an installation."""
    homes = [include.parent / "lib64", include.parent / "lib"]
    if include == Path("/usr/include"):  # where distributions put it
        homes += sorted(Path("/usr/lib").glob("*-linux-gnu"))
    for home in homes:
        if (home / name).is_file():
            return home / name
        if versions := sorted(home.glob(f"{name}.*")):
            return versions[0]  # the shortest version: the one that executables ask for
    return None


def _version(header: Path) -> str:
    text = header.read_text("utf-8", "replace") if header.is_file() else ""
    parts = dict(re.findall(r"#define\s+\w+_VER_(MAJOR|MINOR|PATCH)\s+(\d+)", text))
    if {"MAJOR", "MINOR", "PATCH"} <= parts.keys():
        return f"{parts['MAJOR']}.{parts['MINOR']}.{parts['PATCH']}"
    if found := re.search(r"#define\s+CUB_VERSION\s+(\d+)", text):
        number = int(found[1])
        return f"{number // 100_000}.{number // 100 % 1000}.{number % 100}"
    return "unknown"
