"""Builds what every run of the tests needs for the first time, into the cache that they use: `make setup` runs it.

Test processes that begin with an empty cache wait for each other's builds. Where the user's cache has the same files,
as after `make demo`, they are taken from there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
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
from cudamaster.devices.cuda import CudaDevice, LocalGpu, find_nvcc
from cudamaster.tasks import cards

# What many tests have in common: dot_product, and the tasks on which the audit's corpus is tried.
HARNESSES = [
    ("dot_product", Precision.FP32),
    ("dot_product", Precision.BF16),
    ("spmv_csr", Precision.FP32),
    ("layer_norm", Precision.BF16),
    ("sorting", Precision.FP32),
    ("triangle_attention", Precision.FP32),
]
ABSENT = LocalGpu(0, "No GPU", "GPU-0", "9.0", "580", "143771", "1980", "3201", "700")  # of tests that only compile
# Each test process would compile the modules of the tests, and what these import, at the same time as the others.
MODULES = "import litellm, matplotlib.backends.backend_svg, pytest; pytest.main(['-qq', '--collect-only'])"
TESTS_CACHE = Path(__file__).parent.parent / ".cache"  # as conftest.py has it


def main() -> int:
    """Take what the user's cache has, and build the rest side by side."""
    users = resources.cache_place()
    os.environ.setdefault(resources.CACHE, str(TESTS_CACHE))
    try:
        ours = resources.cache()
        first = not selftest.passed()
        if first:
            take(users, ours)
            print("Building what tests run kernels with, a minute or two the first time ...", flush=True)
        show_builds()
        compiling = compile_modules() if first else None
        for task, precision in HARNESSES:
            Builder(cards.load(task), precision, CpuDevice()).build_shared()
        if find_nvcc() is not None:
            with suppress(CudaMasterError):  # the tests that need nvcc say what is wrong with it
                Builder(cards.load("relu"), Precision.FP32, CudaDevice(ABSENT)).build_shared()
        if compiling is not None:
            compiling.wait()
    except CudaMasterError as error:
        report_error(error)
        return 1
    return 0


def compile_modules() -> subprocess.Popen[bytes]:
    """Start Python on all modules, so that it keeps their bytecode; what is wrong with them is for the tests to say."""
    return subprocess.Popen(
        [sys.executable, "-c", MODULES],
        cwd=TESTS_CACHE.parent,
        env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


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
