"""Holds a judge that is started ahead of its candidate: it waits, ends where none comes, and judges as any other."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_cards import small_card

from cudamaster import resources
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.gate import Gate, NeverNeeded, lock
from cudamaster.devices.process import run_limited
from cudamaster.devices.protocol import Ran
from cudamaster.evaluation import Workbench
from cudamaster.values import Candidate, Precision, Status, Verdict

CARD = small_card("spmv_csr")
SEED = 11


class Watched(CpuDevice):
    """Remembers the runs that were started ahead: their gate, and what became of them."""

    has_debug_build = False

    def __init__(self) -> None:
        super().__init__()
        self.ahead: list[tuple[Gate, Ran]] = []

    def run(self, command: Sequence[str], report: Path, limit_s: float, **options: Any) -> Ran:
        """A run of the CPU device."""
        ran = super().run(command, report, limit_s, **options)
        if options.get("gate") is not None:
            self.ahead.append((options["gate"], ran))
        return ran


def candidate(bench: Workbench, change: Callable[[str], str] = lambda code: code) -> Candidate:
    code = change(bench.baseline.code)
    return Candidate(CARD.name, Precision.FP32, f"// {time.time_ns()}\n{code}", bench.baseline.command)


def bench_on(device: CpuDevice) -> Workbench:
    bench = Workbench(CARD, Precision.FP32, device, seed=SEED, modelled=False)
    bench.build_shared()
    return bench


def programs(mark: str) -> list[int]:
    """The processes whose command line has that word in it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and entry.name != str(os.getpid()):
            try:
                words = (entry / "cmdline").read_text()
            except OSError:
                continue
            if mark in words:
                found.append(int(entry.name))
    return found


def gone(mark: str) -> bool:
    for _ in range(200):
        if not programs(mark):
            return True
        time.sleep(0.05)
    return False


def test_the_judge_is_up_when_the_candidate_is() -> None:
    device = Watched()
    bench = bench_on(device)
    verdict = bench.evaluate(candidate(bench), check_only=True)
    ((gate, ran),) = device.ahead
    assert verdict.correct
    assert gate.opened
    assert ran.ahead > 0
    assert verdict.seconds.total >= verdict.seconds.build + ran.seconds
    assert "no network" in verdict.hardware["isolation"]


def test_it_judges_as_one_that_was_started_late() -> None:
    device = Watched()
    bench = bench_on(device)
    early = bench.evaluate(candidate(bench), check_only=True)
    kernel = candidate(bench)
    build = bench._builder.build(kernel)
    trial = bench._trials.verifying([str(build.worker)], SEED, [])
    late = bench._trials.run_trial(trial)
    assert len(device.ahead) == 1  # the second was not
    assert [replace(case, timing=None) for case in early.cases] == list(late.cases)


def test_a_candidate_that_does_not_build_ends_it_at_once() -> None:
    device = Watched()
    bench = bench_on(device)
    broken = candidate(bench, lambda code: code.replace(";", "; int count = nothing_of_that_name;", 1))
    verdict = bench.evaluate(broken)
    assert verdict.status is Status.COMPILE_ERROR
    ((gate, ran),) = device.ahead
    assert gate.closed
    assert ran.signal == signal.SIGKILL  # it was there, and waited
    assert gone(bench._builder.key(broken))


def test_a_candidate_that_the_guards_refuse_starts_none() -> None:
    device = Watched()
    bench = bench_on(device)
    verdict = bench.evaluate(candidate(bench, lambda code: "#include <cublas_v2.h>\n" + code))
    assert verdict.status is Status.REJECTED
    assert device.ahead == []


def test_a_device_that_others_hold_keeps_no_failed_build_waiting() -> None:
    bench = bench_on(Watched())
    ended: list[Verdict] = []
    with (resources.cache() / "cpu.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        broken = candidate(bench, lambda code: code.replace(";", "; int count = nothing_of_that_name;", 1))
        thread = threading.Thread(target=lambda: ended.append(bench.evaluate(broken)), daemon=True)
        thread.start()
        thread.join(120)
    assert [verdict.correct for verdict in ended] == [False]


def test_nobody_waits_for_a_lock_once_the_gate_is_closed(tmp_path: Path) -> None:
    gate = Gate()
    with (tmp_path / "lock").open("w") as mine, (tmp_path / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        threading.Timer(0.1, gate.close).start()
        with pytest.raises(NeverNeeded):
            lock(mine.fileno(), alone=False, gate=gate)
        gate.open()
        assert gate.closed  # which does not change


def test_a_program_that_does_not_go_on_is_killed(tmp_path: Path) -> None:
    started = time.monotonic()
    ran = run_limited(["sleep", "100"], 200.0, goes_on=lambda: False)
    assert ran.signal == signal.SIGKILL
    assert time.monotonic() - started < 50


def test_the_limit_counts_from_when_the_candidate_is_there() -> None:
    def later() -> bool:
        time.sleep(1.0)
        return True

    ran = run_limited(["sh", "-c", "read word && echo went on"], 0.9, goes_on=later)
    assert not ran.expired
    assert "went on" in ran.stderr
    assert ran.ahead >= 1.0
    assert ran.seconds < 1.0


def test_a_killed_command_leaves_nothing(tmp_path: Path) -> None:
    """Killed while the candidate is compiled, with a judge and the baseline's process waiting for it."""
    bench = bench_on(CpuDevice())
    kernel = candidate(bench)
    path = tmp_path / "kernel.cu"
    path.write_text(kernel.code)
    words = ["evaluate", CARD.name, str(path), "--device", "cpu", "--check-only", "--seed", str(SEED)]
    with subprocess.Popen(
        [sys.executable, "-m", "cudamaster", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as command:
        for _ in range(1200):
            waiting = [number for number in programs("--ahead") if parent(number) == command.pid]
            if waiting or command.poll() is not None:
                break
            time.sleep(0.02)
        assert waiting, "no judge was started ahead"
        (ahead,) = waiting
        workers = [number for number in programs("--channel") if parent(number) == ahead]
        command.kill()
        command.wait()
        for number in (ahead, *workers):
            for _ in range(200):
                if not alive(number):
                    break
                time.sleep(0.05)
            assert not alive(number)


def parent(number: int) -> int | None:
    try:
        return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def alive(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
