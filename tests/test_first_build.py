"""The first build: only what is missing, side by side, once, and whoever waits is told how far it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cudamaster import resources
from cudamaster.cli.output import Waiting
from cudamaster.devices import parts
from cudamaster.devices.parts import Part

KERNEL = resources.package() / "playbook" / "dot_product" / "fp32" / "1_shuffle_reduction.cu"


def never() -> bool:
    """Of a part that is missing."""
    return False


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is told of builds, without waiting for seconds."""
    told: list[str] = []
    monkeypatch.setattr(parts, "FIRST_S", 0.0)
    monkeypatch.setattr(parts, "EVERY_S", 0.0)
    monkeypatch.setattr(parts, "tell", told.append)
    return told


def evaluated(cache: Path) -> subprocess.CompletedProcess[str]:
    """A kernel checked on the CPU device, with its output to a file."""
    words = ["evaluate", "dot_product", str(KERNEL), "--device", "cpu", "--check-only"]
    environment = {**os.environ, "CUDAMASTER_CACHE": str(cache)}
    return subprocess.run(
        [sys.executable, "-m", "cudamaster", *words], capture_output=True, text=True, env=environment, check=False
    )


def test_a_log_says_how_far_the_first_build_is_and_the_second_run_builds_nothing(tmp_path: Path) -> None:
    """It once was silent for most of a minute, and built two executors and five headers more than once."""
    first = evaluated(tmp_path)
    assert first.returncode == 0, first.stderr
    said = first.stderr.splitlines()
    assert re.match(r"first build, \d+ of 12 parts done, \d+ s so far: .+ \(kept in the cache: later runs need none\)",
                    said[0])  # fmt: skip
    assert re.fullmatch(r"first build, all 12 parts done in \d+ s", said[-1])
    assert "first build" not in first.stdout
    assert len(list(tmp_path.glob("cpu-runtime/*.o"))) == 4, "an executor for each build"
    # Of the harness's texts, and of a candidate: plain, checking memory, finding races, counting.
    assert len(list(tmp_path.glob("cpu-runtime/prelude-*"))) == 5
    again = evaluated(tmp_path)
    assert again.returncode == 0
    assert again.stderr == ""


def test_only_what_is_missing_is_built_side_by_side(lines: list[str]) -> None:
    """Two parts that wait for each other are both begun; one that is there is left alone."""
    both = threading.Barrier(2)

    def made(number: int) -> Callable[[], object]:
        return lambda: both.wait(timeout=30)

    there = Part("what is there", lambda: True, lambda: pytest.fail("it is there"))
    parts.build([Part("one", never, made(1)), there, Part("another", never, made(2))])
    assert parts.progress() is None
    assert lines[-1].startswith("first build, all 2 parts done in ")


def test_what_is_at_work_is_named(lines: list[str]) -> None:
    """With which of how many, and how long it took so far."""
    told = threading.Event()
    waiting = Waiting("building and running")

    def long() -> None:
        while not lines:
            told.wait(0.05)
        assert "building and running; first build, 0 of 1 parts done" in str(waiting.__rich__())

    parts.build([Part("the judge", never, long)])
    assert re.fullmatch(r"first build, 0 of 1 parts done, \d+ s so far: the judge \(kept in the cache: .*\)", lines[0])
    assert str(waiting.__rich__()) == "building and running"


def test_a_spinner_that_shows_it_needs_no_lines(lines: list[str]) -> None:
    """On a terminal nothing is said twice."""
    parts.shown()
    parts.build([Part("the judge", never, lambda: None)])
    assert lines == []


def test_a_part_that_cannot_be_made_ends_the_build(lines: list[str]) -> None:
    """Its error is whoever's who asked for it, and no build is left on the board."""

    def fails() -> None:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        parts.build([Part("the judge", never, fails), Part("the worker", never, lambda: None)])
    assert parts.progress() is None
