"""The first build: only what is missing, side by side, once, with its progress shown."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import built_already
import pytest

from cudamaster.build.building import Builder
from cudamaster.cli.output import Waiting
from cudamaster.core import resources
from cudamaster.core.values import Precision
from cudamaster.devices import parts
from cudamaster.devices.cpu import toolchain
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.parts import Part
from cudamaster.tasks import cards

KERNEL = resources.package() / "playbook" / "relu" / "fp32" / "1_wide_loads.cu"


def never() -> bool:
    """Of a part that is missing."""
    return False


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines about builds, without a wait of seconds."""
    told: list[str] = []
    monkeypatch.setattr(parts, "FIRST_S", 0.0)
    monkeypatch.setattr(parts, "EVERY_S", 0.0)
    monkeypatch.setattr(parts, "report", told.append)
    monkeypatch.setattr(parts._board, "shown", 0.0)  # a spinner of the test before this one
    return told


def hurried(folder: Path) -> str:
    """A compiler that works little, but long enough for others to wait for it."""
    path = folder / "hurried"
    if path.exists():  # a process that was killed may still be executing it
        return str(path)
    taken = built_already.taken(seconds=2)
    path.write_text(f'#!/bin/sh\n{taken}exec {shlex.quote(toolchain.compiler())} "$@" -O0\n')
    path.chmod(0o755)
    return str(path)


def evaluating(cache: Path) -> subprocess.Popen[str]:
    """A kernel checked on the CPU device, with its output to pipes."""
    words = ["evaluate", "relu", str(KERNEL), "--device", "cpu", "--check-only"]
    environment = {**os.environ, "CUDAMASTER_CACHE": str(cache), "CXX": hurried(cache.parent)}
    return subprocess.Popen(
        [sys.executable, "-m", "cudamaster", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


@pytest.mark.slow
def test_a_log_says_how_far_the_first_build_is_and_nothing_is_built_twice(tmp_path: Path) -> None:
    """It once was silent for most of a minute, and built executors and headers more than once, two runs all of them.

    The cache has a space and more in its name, as folders of people's have.
    """
    cache = tmp_path / "my cache's ü"
    killed = evaluating(cache)
    while not list(cache.glob("cpu-runtime/*-making-*")):
        assert killed.poll() is None, killed.communicate()
        time.sleep(0.05)
    killed.kill()
    killed.communicate()
    first = evaluating(cache)
    time.sleep(1.0)
    second = evaluating(cache)
    (told, said), (_, waited) = first.communicate(), second.communicate()
    assert (first.returncode, second.returncode) == (0, 0), said + waited
    lines = [line for line in said.splitlines() if line.startswith("first build")]
    assert re.match(r"first build, \d+ of 12 parts done, \d+ s so far: .+ \(kept in the cache: later runs need none\)",
                    lines[0])  # fmt: skip
    assert re.fullmatch(r"first build, all 12 parts done in \d+ s", lines[-1])
    assert "first build" not in told
    assert re.match(r"waiting for another run, which builds kernel [0-9a-f]{16}, \d+ s so far\n", waited)
    assert len(list(cache.glob("cpu-runtime/*.o"))) == 4, "an executor for each build"
    # Of the harness's texts, and of a candidate: plain, checking memory, finding races, counting.
    assert len(list(cache.glob("cpu-runtime/prelude-*.gch"))) == 5
    assert not list(cache.rglob("*-making-*")), "what the one that was killed had begun"
    again = evaluating(cache)
    said = again.communicate()[1]  # on a slow machine, how far the checks are
    assert (again.returncode, "build" in said) == (0, False), said


def test_a_compiled_header_outlives_the_checkout_that_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it does not fit, the text beside it is read: that once named a folder that was gone."""
    monkeypatch.setenv("CUDAMASTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", "g++")
    toolchain.fingerprint()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(toolchain, "INCLUDE", shutil.copytree(toolchain.INCLUDE, tmp_path / "checkout"))
        made = CpuDevice().compile("int one;\n", (), "one", tmp_path)
    (compiled,) = tmp_path.rglob("*.gch")
    shutil.rmtree(tmp_path / "checkout")
    again = CpuDevice().compile("int one;\n", (), "one", tmp_path)
    compiled.write_bytes(b"of another compiler")
    without = CpuDevice().compile("int one;\n", (), "one", tmp_path)
    assert [one.log for one in (made, again, without)] == [""] * 3


def test_who_waits_for_another_run_says_so(tmp_path: Path, lines: list[str]) -> None:
    """Of a part that is built elsewhere, and of what is no part."""
    lock = tmp_path / "lock"
    for wanted in (True, False):
        del lines[:]
        made = threading.Event()

        def wait_for_it(made: threading.Event = made) -> None:
            with parts.alone(lock, "kernel 12ab"):
                made.set()

        with lock.open("w") as elsewhere:
            fcntl.flock(elsewhere, fcntl.LOCK_EX)
            part = Part("the judge", never, wait_for_it)
            waits = threading.Thread(target=lambda: parts.build([part]) if wanted else wait_for_it())  # noqa: B023
            waits.start()
            while not any("waiting" in line for line in lines):
                assert not made.wait(0.01)
        waits.join(30)
        assert made.is_set()
        told = next(line for line in lines if "waiting" in line)
        if wanted:
            waits_for = "waiting for another run, which builds the judge"
            assert told.startswith(f"first build, 0 of 1 parts done, 0 s so far: {waits_for}")
            assert lines[-1] == "first build, all 1 parts done in 0 s"
        else:
            assert told == "waiting for another run, which builds kernel 12ab, 0 s so far"
            assert lines[-1] == "the other run is done after 0 s"


def test_threads_of_one_run_wait_for_each_other_without_a_word(tmp_path: Path, lines: list[str]) -> None:
    """It is this run that builds."""
    with parts.alone(tmp_path / "lock", "kernel 12ab"):
        waits = threading.Thread(target=lambda: parts.alone(tmp_path / "lock", "kernel 12ab").__enter__())
        waits.start()
        waits.join(0.5)
        assert waits.is_alive()
    waits.join(30)
    assert lines == []


def test_parts_that_two_tasks_need_are_counted_once(lines: list[str]) -> None:
    """A suite's tasks build at the same time."""
    both = threading.Barrier(2)

    def met() -> None:
        both.wait(30)

    of_tasks = [threading.Thread(target=parts.build, args=([Part("the judge", never, met)],)) for _ in range(2)]
    for one in of_tasks:
        one.start()
    for one in of_tasks:
        one.join(30)
    assert lines[-1] == "first build, all 1 parts done in 0 s"


def test_only_what_is_missing_is_built_side_by_side(lines: list[str]) -> None:
    """Two parts that wait for each other are both begun; one that exists is not built again."""
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
    """Its error reaches the caller that asked for it, and no build is left on the board."""

    def fails() -> None:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        parts.build([Part("the judge", never, fails), Part("the worker", never, lambda: None)])
    assert parts.progress() is None


def test_nothing_more_is_begun_once_a_part_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error is shown before the rest is built."""
    monkeypatch.setattr(parts, "_MOST_AT_ONCE", 1)
    begun: list[int] = []

    def fails(number: int) -> None:
        begun.append(number)
        time.sleep(0.2)
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        parts.build([Part(str(number), never, partial(fails, number)) for number in range(9)])
    assert len(begun) < 4


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 3, 1000])
def test_what_is_there_by_half_is_built_again(left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut can leave that. A linker took an empty file for one without symbols, and a good kernel was blamed."""
    monkeypatch.setattr(resources, "cache", lambda: tmp_path)
    builder = Builder(cards.load("dot_product"), Precision.FP32, CpuDevice())
    part = builder._part(builder._call_text(debug=False))
    part.make()
    assert part.there()
    [built] = tmp_path.glob("cpu/*/harnesses/*.o")
    before = built.stat().st_size
    os.truncate(built, left)
    assert not part.there()
    part.make()
    assert part.there()
    assert built.stat().st_size == before
