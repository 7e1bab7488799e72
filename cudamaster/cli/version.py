"""`cudamaster --version`: which CUDAMaster this is, and the tools that it builds with."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import click

import cudamaster


def show(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    """Print version and commit, Python, compilers and system, a line each, and end."""
    if not wanted or context.resilient_parsing:
        return
    lines = told()
    width = max(map(len, lines))
    for name, what in lines.items():
        click.echo(f"{name:{width}}  {what}")
    context.exit()


def told() -> dict[str, str]:
    """What there is to say, by its name; for a tool that is missing, that it is."""
    from cudamaster.core.errors import DeviceError
    from cudamaster.core.version import commit
    from cudamaster.devices.cpu import toolchain
    from cudamaster.devices.nvcc import find_nvcc

    nvcc = find_nvcc()
    try:
        compiler = f"{toolchain.version()} ({toolchain.compiler()})"
    except DeviceError:
        compiler = "none found"
    return {
        "cudamaster": f"{cudamaster.__version__}, commit {commit() or 'unknown'}",
        "Python": f"{platform.python_version()} ({Path(cudamaster.__file__).parent})",
        "nvcc": f"{_build_of(nvcc)} ({nvcc})" if nvcc else "none found",
        "C++": compiler,
        "platform": platform.platform(),
    }


def _build_of(nvcc: Path) -> str:
    """The whole version of an nvcc, e.g. "13.0.88"."""
    from cudamaster.core import keys

    try:
        done = subprocess.run(
            [nvcc, "--version"], capture_output=True, text=True, timeout=30, check=False, env=keys.for_tools()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run: {error}"
    found = [word for word in done.stdout.replace(",", " ").split() if word.startswith("V")]
    return found[-1].removeprefix("V") if found else "of an unknown version"
