"""Fences between what threads write and copies in bulk that use it: named where they are missing, and nowhere else."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

# Each with where a fence of the right kind serves: of the thread that wrote, or of the one that copies.
STYLES = {
    "zeroed": {"behind-the-write", "before-the-copy"},
    "ring": {"behind-the-write", "before-the-copy"},
    "numbered": {"behind-the-write", "before-the-copy"},
    "staging": {"behind-the-write", "before-the-copy"},
    "united": {"behind-the-write", "before-the-copy"},
    "remote": {"behind-the-write", "before-the-copy"},
    "sent": {"before-the-copy"},
    "picked_up": {"behind-the-write", "before-the-copy"},
    "own": {"before-the-copy"},
    "in_cxx": {"behind-the-write", "before-the-copy"},
    "handed_on": {"behind-the-write", "before-the-copy"},
    "elected": {"behind-the-write", "before-the-copy"},
    "met": {"behind-the-write", "before-the-copy"},
    "by_others": set(),
    "across": {"behind-the-write", "before-the-copy"},
    "box": {"behind-the-write", "before-the-copy"},
    "over_grid": {"behind-the-write", "before-the-copy"},
    "last_block": {"behind-the-write", "before-the-copy"},
    "sums": {"behind-the-write", "before-the-copy"},
}
UNFENCED = ["ring_of_readers", "there_and_back", "of_earlier_launch", "sums_of_both", "together", "of_two_proxies"]
CASES = [(style, where) for style in STYLES for where in ("nowhere", "of-other-memory", *sorted(STYLES[style]))]


@pytest.mark.slow(but=[f"ascending-{style}-{where}" for style, where in CASES])
@pytest.mark.parametrize(("style", "where"), CASES)
@pytest.mark.parametrize("reversed_threads", [False, True], ids=["ascending", "descending"])
def test_a_fence_that_is_missing_is_named(build_checked, style, where, reversed_threads):
    """With the write and the copy; one of the other kind of memory is none."""
    kinds, said = build_checked("ptx_fences").found(style, where, reversed_threads=reversed_threads)
    assert kinds == (set() if where in STYLES[style] else {"unfenced"}), said


@pytest.mark.parametrize("name", UNFENCED)
@pytest.mark.parametrize("reversed_threads", [False, True], ids=["ascending", "descending"])
def test_what_needs_no_fence_passes(build_checked, name, reversed_threads):
    """Buffers that threads only read, what was waited for, what an earlier launch wrote, and atomics."""
    assert build_checked("ptx_fences").found(name, reversed_threads=reversed_threads) == (set(), "")


def test_a_fence_between_proxies_is_none_between_threads(build_checked):
    """A flag behind it alone hands on nothing."""
    kinds, said = build_checked("ptx_fences").found("last_without_fence", "behind-the-write")
    assert kinds == {"race"}, said


@pytest.mark.parametrize("which", ["none", "arrivals", "waits", "both"])
@pytest.mark.parametrize("fences", [False, True], ids=["unfenced", "fenced"])
def test_relaxed_arrivals_and_waits_need_fences(build_checked, which, fences):
    """One behind the write and one before the read; without them nobody knows of what the others did."""
    kinds, said = build_checked("ptx_fences").found("relaxed", which, *(["fenced"] if fences else []))
    assert kinds == (set() if fences or which == "none" else {"race"}), said


@pytest.mark.parametrize("fences", [False, True], ids=["unfenced", "fenced"])
def test_relaxed_arrivals_of_a_cluster_need_fences(build_checked, fences):
    """They tell that their block has begun, and no more."""
    kinds, said = build_checked("ptx_fences").found("relaxed_cluster", *(["fenced"] if fences else []))
    assert kinds == (set() if fences else {"race"}), said


@pytest.mark.slow
@pytest.mark.parametrize("name", [*STYLES, *UNFENCED, "last_without_fence", "relaxed", "relaxed_cluster"])
def test_the_numbers_are_right_all_the_same(build, name):
    """So a check of outputs alone would pass them."""
    ran = build("ptx_fences").run(name)
    assert (ran.exit_code, ran.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_the_program_is_ptx(tmp_path):
    """nvcc and ptxas take it."""
    source = Path(__file__).parent / "kernels" / "ptx_fences.cu"
    target = "-gencode=arch=compute_90a,code=sm_90a"
    command = ["nvcc", "-std=c++17", target, "-cubin", "-o", str(tmp_path / "x"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
