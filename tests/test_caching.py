"""core/caching.py keeps its limit: the oldest goes first, and what any process uses stays."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from first_build import take
from small_cards import small_card

from cudamaster.core import caching, resources
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Precision
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.workbench.evaluation import Workbench

MB = 10**6
DAY_S = 86400.0
FINGERPRINT = "f00d" * 4


def candidate(cache: Path, name: str, age_s: float, size: int = MB) -> Path:
    """A candidate's folder of that size and age."""
    folder = cache / "cuda" / FINGERPRINT / "candidates" / name
    with caching.using(folder):
        (folder / "checked").mkdir(exist_ok=True)
        (folder / "checked" / "run").write_bytes(b"x" * size)
    then = time.time() - age_s
    os.utime(folder / "in-use", (then, then))
    return folder


def harness(cache: Path, name: str, age_s: float, size: int = MB) -> Path:
    """A harness file of that size and age."""
    file = cache / "cuda" / FINGERPRINT / "harnesses" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * size)
    then = time.time() - age_s
    os.utime(file, (then, then))
    return file


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    """No more is removed than has to be; a tenth is left free."""
    folders = {age: candidate(tmp_path, f"c{age}", age * DAY_S) for age in (3, 1, 4, 2)}
    file = harness(tmp_path, "judge.o", 2.5 * DAY_S)
    freed = caching.trim(tmp_path, 3 * MB)
    assert freed >= 3 * MB
    assert {age for age, folder in folders.items() if folder.exists()} == {1, 2}
    assert not file.exists()
    assert not list(tmp_path.rglob(".gone*"))


def test_executors_and_compiled_headers_go_too(tmp_path: Path) -> None:
    """Each version of the program and of the compiler has its own, and a gigabyte of them once stayed forever."""
    folder = tmp_path / "cpu-runtime"
    folder.mkdir()
    of_age = {}
    for name in ("{}.o", "prelude-{}.h.gch"):
        for age in (DAY_S / 2, 2 * DAY_S):
            of_age[name, age] = file = folder / name.format(f"{round(age):016d}")
            file.write_bytes(b"x" * MB)
            os.utime(file, (time.time() - age, time.time() - age))
    assert caching.kept(of_age["{}.o", 2 * DAY_S]), "a use makes it fresh"
    assert not caching.kept(folder / "none.o")
    assert caching.trim(tmp_path, 0) >= MB
    assert [key for key, file in of_age.items() if not file.exists()] == [("prelude-{}.h.gch", 2 * DAY_S)]


def test_nothing_goes_that_we_did_not_make(tmp_path: Path) -> None:
    """A user's home may be named as the cache."""
    ours = candidate(tmp_path, "old", 9 * DAY_S)
    theirs = [
        tmp_path / place
        for place in (
            "projects/vote/candidates/alice/speech.txt",
            "projects/vote/harnesses/horse.txt",
            f"cuda/{FINGERPRINT}/candidates/bob/speech.txt",
            "cpu-runtime/main.o",
        )
    ]
    for file in theirs:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * MB)
        for path in (file, file.parent):
            os.utime(path, (0, 0))
    caching.trim(tmp_path, 0)
    assert not ours.exists()
    assert all(file.exists() for file in theirs)


def test_below_the_limit_nothing_goes(tmp_path: Path) -> None:
    kept = candidate(tmp_path, "c", 9 * DAY_S)
    assert caching.trim(tmp_path, 2 * MB) == 0
    assert kept.exists()


def test_what_is_fresh_stays_though_the_limit_is_exceeded(tmp_path: Path) -> None:
    """Candidates of the last minutes, harness files of the last day, and locks that two builders have to share."""
    kept = [candidate(tmp_path, "new", 60.0), harness(tmp_path, "judge.o", DAY_S / 2)]
    lock = harness(tmp_path, "judge.lock", 9 * DAY_S, 0)
    old = candidate(tmp_path, "old", 3600.0)
    caching.trim(tmp_path, MB // 2)
    assert all(path.exists() for path in (*kept, lock))
    assert not old.exists()


def test_what_another_process_uses_stays_until_that_is_gone(tmp_path: Path) -> None:
    """However old it is, and however its user ends."""
    folder = candidate(tmp_path, "used", 0.0)
    script = f"""
import time
from pathlib import Path
from cudamaster.core import caching
with caching.using(Path({str(folder)!r})):
    print("here", flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        later = time.time() + DAY_S
        assert caching.trim(tmp_path, 0, now=later) == 0
        assert folder.exists()
        process.kill()
    assert caching.trim(tmp_path, 0, now=later) >= MB
    assert not folder.exists()


def test_a_folder_that_is_removed_while_somebody_wants_it_is_made_anew(tmp_path: Path) -> None:
    """Trimming and using race: inside `using`, a process always finds what it wrote."""
    folder = tmp_path / "cuda" / FINGERPRINT / "candidates" / "contested"
    stop = threading.Event()
    removed = 0

    def remove() -> None:
        nonlocal removed
        while not stop.is_set():
            removed += caching.trim(tmp_path, 0, now=time.time() + DAY_S) > 0

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        number, deadline = 0, time.monotonic() + 30
        while number < 300 or (not removed and time.monotonic() < deadline):  # on a busy machine it comes late
            with caching.using(folder):
                (folder / "run").write_text(str(number))
                assert (folder / "run").read_text() == str(number)
            number += 1
    finally:
        stop.set()
        remover.join()
    assert removed > 0, "nothing was removed meanwhile, so the test says nothing"


def test_one_of_several_processes_trims_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(caching.LIMIT, "1MB")
    old = candidate(tmp_path, "old", DAY_S, 2 * MB)
    caching.trim_now_and_then(tmp_path)
    assert not old.exists()
    again = candidate(tmp_path, "old", DAY_S, 2 * MB)
    caching.trim_now_and_then(tmp_path)
    assert again.exists(), "it was looked at a moment ago"
    long_ago = time.time() - 3600
    os.utime(tmp_path / "trimmed", (long_ago, long_ago))
    caching.trim_now_and_then(tmp_path)
    assert not again.exists()


@pytest.mark.parametrize(
    ("said", "limit"),
    [("", 10 * 10**9), ("500MB", 500 * MB), ("1.5 gb", 1500 * MB), ("2TB", 2 * 10**12), ("none", None)],
)
def test_the_limit_is_said_with_its_unit(said: str, limit: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(caching.LIMIT, said)
    assert caching.limit_bytes() == limit


@pytest.mark.parametrize("said", ["10", "-1GB", "lots", "10GiB"])
def test_a_limit_that_is_no_size_is_refused(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(caching.LIMIT, said)
    with pytest.raises(UsageError, match="which is not a size"):
        caching.limit_bytes()


@pytest.mark.slow
def test_a_build_is_in_use_while_it_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that may hold nothing, trimmed before each run of the judge, breaks no judgement."""
    device = CpuDevice()
    bench = Workbench(small_card("dot_product"), Precision.FP32, device, calls=1, modelled=False)
    key = bench.key(bench.baseline)
    assert key
    take(resources.cache(), tmp_path)  # what any task needs, which takes a minute to build
    monkeypatch.setenv("CUDAMASTER_CACHE", str(tmp_path))
    run, seen = device.run, []

    def trimmed_first(*arguments: object, **options: object) -> object:
        caching.trim(tmp_path, 0, now=time.time() + 3600)
        seen.append([folder for folder in tmp_path.glob("cpu/*/candidates/*") if (folder / "run").is_file()])
        return run(*arguments, **options)  # type: ignore[arg-type]

    device.run = trimmed_first  # type: ignore[method-assign, assignment]
    assert bench.evaluate(bench.baseline).correct
    assert seen
    assert all(len(folders) <= 1 for folders in seen)  # a judge that is started ahead comes before its candidate
    assert len(seen[-1]) == 1
    caching.trim(tmp_path, 0, now=time.time() + 3600)
    assert not list(tmp_path.glob("cpu/*/candidates/*"))
