"""Builds what every run of the tests needs for the first time, into the cache that they use: `make setup` runs it.

Test processes that begin with an empty cache wait for each other's builds. Where the user's cache has the same files,
as after `make demo`, they are taken from there.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cudamaster.build.building import Builder
from cudamaster.cli.output import report_error, show_builds
from cudamaster.core import resources
from cudamaster.core.errors import CudaMasterError
from cudamaster.core.values import Precision
from cudamaster.devices.cpu import selftest, toolchain
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.tasks import cards

TESTS_CACHE = Path(__file__).parent.parent / ".cache"  # as conftest.py has it


def main() -> int:
    """Take what the user's cache has, and build the rest side by side."""
    users = resources.cache_place()
    os.environ.setdefault(resources.CACHE, str(TESTS_CACHE))
    try:
        ours = resources.cache()
        if not selftest.passed():
            take(users, ours)
            print("Building what tests run kernels with, about a minute the first time ...", flush=True)
        show_builds()
        Builder(cards.load("dot_product"), Precision.FP32, CpuDevice()).build_shared()
    except CudaMasterError as error:
        report_error(error)
        return 1
    return 0


def take(users: Path, ours: Path) -> None:
    """Link or copy files that any task needs. The name of each says what it was made of, and each is never changed."""
    for file in kept(users):
        target = ours / file.relative_to(users)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(file, target)
            except OSError:  # another disk
                with suppress(OSError):  # then it is built
                    shutil.copy2(file, target)


def kept(users: Path) -> Iterator[Path]:
    """The executors, compiled headers, the judge and the workers."""
    runtime, harnesses = users / "cpu-runtime", users / "cpu" / toolchain.fingerprint() / "harnesses"
    yield from runtime.glob(f"{toolchain.fingerprint()}*.o")
    for compiled in runtime.glob("prelude-*.h.gch"):
        yield from (compiled.with_suffix(""), compiled)  # a compiled header is found by the text beside it
    for name in ("judge", "worker"):
        yield from harnesses.glob(f"{name}-*.o")


if __name__ == "__main__":
    sys.exit(main())
