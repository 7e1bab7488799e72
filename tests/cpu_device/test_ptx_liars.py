"""Kernels for Hopper that would be wrong on a GPU and whose numbers are right here, and styles that only look wrong."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

WRONG = [
    ("another-waits", "ends before its copy in bulk has read shared memory"),
    ("one-warp", "before all four warps of a warpgroup have made a wgmma"),
    ("three-warps", "before all four warps of a warpgroup have made a wgmma"),
    ("shifted", "before all four warps of a warpgroup have made a wgmma"),
    ("one-warp-more", "before all four warps of a warpgroup have made a wgmma"),
    ("other-factors", "warps of a warpgroup give different operands to one wgmma"),
    ("too-many-registers", "has taken more registers by setmaxnreg.inc than it has"),
]
RIGHT = [
    "out",
    "in",
    "one-waits",
    "expected-later",
    "all-arrive",
    "passed-on",
    "used-again",
    "product",
    "nowhere",
    "registers",
]
DEADLOCKS = [
    ("never", "waits at the mbarrier at byte 8 of full for its phase"),
    ("never-in-dynamic-memory", "waits at the mbarrier at byte 40 of dynamic shared memory for its phase"),
]


@pytest.mark.parametrize(("name", "words"), WRONG)
@pytest.mark.parametrize("reversed_threads", [False, True], ids=["ascending", "descending"])
def test_what_a_gpu_would_not_do_ends_the_block(build, name, words, reversed_threads):
    """It says why, whichever threads run first."""
    ran = build("ptx_liars").run(name, limit_s=20, reversed_threads=reversed_threads)
    assert ran.exit_code == 9
    assert words in ran.stderr


@pytest.mark.parametrize("name", ["fenced-before", "fenced-by-another"])
def test_a_fence_in_the_wrong_place_is_none(build_checked, name):
    """One before the write, or of a thread that does not know of it."""
    kinds, said = build_checked("ptx_liars").found(name)
    assert kinds == {"unfenced"}, said


def test_a_store_is_not_there_when_its_source_was_read(build_checked):
    """Who reads its target behind wait_group.read has not waited for it."""
    kinds, said = build_checked("ptx_liars").found("read-too-early")
    assert kinds == {"early"}, said


def test_a_relaxed_arrival_hands_on_nothing(build_checked):
    """Who waits for it knows nothing of what was written before."""
    kinds, said = build_checked("ptx_liars").found("passed-on-relaxed")
    assert kinds == {"race"}, said


@pytest.mark.slow(but=[f"{name}-{words}-plain" for name, words in DEADLOCKS])
@pytest.mark.parametrize("debug", [False, True], ids=["plain", "sanitizer"])
@pytest.mark.parametrize(("name", "words"), DEADLOCKS)
def test_a_deadlock_names_the_variable(build, name, words, debug):
    """Of the barrier that is waited for, as the program's symbols have it."""
    ran = build("ptx_liars", debug=debug).run(name)
    assert ran.exit_code != 0
    assert words in ran.stderr


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("reversed_threads", [False, True], ids=["ascending", "descending"])
def test_unusual_styles_pass(build, build_checked, name, reversed_threads):
    """One thread waits for all, bytes are announced behind their copy, a barrier's memory is used again."""
    ran = build("ptx_liars").run(name, reversed_threads=reversed_threads)
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert build_checked("ptx_liars").found(name, reversed_threads=reversed_threads) == (set(), "")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_the_program_is_ptx(tmp_path):
    """nvcc and ptxas take it."""
    source = Path(__file__).parent / "kernels" / "ptx_liars.cu"
    target = "-gencode=arch=compute_90a,code=sm_90a"
    command = ["nvcc", "-std=c++17", target, "-cubin", "-o", str(tmp_path / "x"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
