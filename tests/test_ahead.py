"""A judge that starts before its candidate is built waits for it, ends if there is none, and judges like any other."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plain_device import PlainCpuDevice
from small_cards import small_card

from cudamaster.core import resources
from cudamaster.core.errors import BaselineError
from cudamaster.core.values import Candidate, Precision, Status, Verdict
from cudamaster.devices import cuda
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.cuda import CudaDevice, LocalGpu
from cudamaster.devices.gate import Gate, NeverNeeded
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.process import Stop, run_limited
from cudamaster.devices.protocol import Ran
from cudamaster.judging import verdicts
from cudamaster.workbench.evaluation import Workbench

CARD = small_card("spmv_csr")
SEED = 11


class Watched(CpuDevice):
    """Remembers the runs that were started ahead: their gate, and what became of them."""

    has_debug_build = False

    def __init__(self) -> None:
        super().__init__()
        self.ahead: list[tuple[Gate, Ran]] = []

    def run(self, request: JudgeRequest, report: Path, limit_s: float, **options: Any) -> Ran:
        """A run of the CPU device."""
        ran = super().run(request, report, limit_s, **options)
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
    """The processes whose command line contains that word."""
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


@pytest.fixture
def free_device() -> Iterator[None]:
    """Other tests may check on the device meanwhile, but none measures on it, so judges can start early."""
    resources.cache().mkdir(parents=True, exist_ok=True)
    with (resources.cache() / "cpu.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("free_device")
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


@pytest.mark.slow
@pytest.mark.usefixtures("free_device")
def test_it_judges_as_one_that_was_started_late() -> None:
    device = Watched()
    bench = bench_on(device)
    early = bench.evaluate(candidate(bench), check_only=True)
    kernel = candidate(bench)
    build = bench._builder.build(kernel)
    trial = bench._trials.verifying([str(build.worker)], SEED)
    late = bench._trials.run(trial)
    assert len(device.ahead) == 1  # the second was not
    assert [replace(case, timing=None) for case in early.cases] == list(late.cases)


@pytest.mark.slow
@pytest.mark.usefixtures("free_device")
def test_a_candidate_finds_nothing_of_what_was_done_before_it_was_there() -> None:
    """Inputs and results of cases to come lay in the memory that it shares with the judge."""
    card = small_card("relu")
    bench = Workbench(card, Precision.FP32, PlainCpuDevice(), seed=SEED, modelled=False)
    code = (Path(__file__).parent / "late" / "relu_that_looks_on.cu").read_text().replace("WORDS", "8192")
    build = bench._builder.build(Candidate(card.name, Precision.FP32, code, bench.baseline.command))
    assert build.worker is not None, build.detail
    trial = bench._trials.verifying([str(build.worker), "--in-place"], SEED)
    with bench._trials.ahead() as start:
        start(trial)
        until(lambda: all_is_prepared(programs("--ahead") + programs("--channel")))
        told = bench._trials.run(trial)
    assert told.status is Status.CORRECT, told.detail


@pytest.mark.usefixtures("free_device")
def test_a_candidate_that_does_not_build_ends_it_at_once() -> None:
    device = Watched()
    bench = bench_on(device)
    broken = candidate(bench, lambda code: code.replace(";", "; int count = nothing_of_that_name;", 1))
    verdict = bench.evaluate(broken, check_only=True)
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


@pytest.mark.slow
@pytest.mark.usefixtures("free_device")
def test_a_wrong_baseline_is_no_candidates_fault(tmp_path: Path) -> None:
    """Before the candidate is there, the judge sees in a later case what it would otherwise see after calls of it."""

    class OpensLater(Gate):
        def wait(self) -> bool:
            time.sleep(2)
            self.open()
            return super().wait()

    bench = Workbench(small_card("dot_product"), Precision.FP32, CpuDevice(), seed=SEED, modelled=False)
    bench.build_shared()
    code = bench.baseline.code
    end = code.rindex("}")
    spoilt = f"{code[:end]}if (N == 257) cudaMemset(out, 1, sizeof(float));\n{code[end:]}"
    baseline, right = (
        bench._builder.build(replace(bench.baseline, code=text)).worker for text in (spoilt, code + "// as it was")
    )
    trial = bench._trials.verifying([str(right)], SEED)
    request = bench._trials.request(replace(trial, request=replace(trial.request, baseline=(str(baseline),))))
    report = tmp_path / "report"
    ran = CpuDevice().run(request, report, 60, gate=OpensLater())
    with pytest.raises(BaselineError, match="case N=257: wrong result"):
        verdicts.judge(verdicts.parse(report.read_text()), ran, trial.cases)


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


def test_a_gate_is_opened_or_closed_once() -> None:
    closed, opened = Gate(), Gate()
    threading.Timer(0.1, closed.close).start()
    with pytest.raises(NeverNeeded):
        closed.wait_open()
    closed.open()
    assert closed.closed
    opened.open(quiet=True)
    opened.close()
    opened.wait_open()
    assert (opened.opened, opened.quiet, opened.closed) == (True, True, False)


def test_a_program_that_does_not_go_on_is_killed(tmp_path: Path) -> None:
    started = time.monotonic()
    ran = run_limited(["sleep", "100"], 200.0, goes_on=lambda: False)
    assert ran.signal == signal.SIGKILL
    assert time.monotonic() - started < 50


def test_what_is_no_longer_wanted_is_stopped() -> None:
    """Whether it runs when that is known, or is started afterwards; what others run goes on."""
    ran: list[Ran] = []
    with Stop() as stop:
        waits = threading.Thread(target=lambda: ran.append(stop.call(lambda: run_limited(["sleep", "50"], 60))))
        waits.start()
        time.sleep(0.3)
        stop.stop()
        waits.join(10)
        assert not waits.is_alive()
        ran.append(stop.call(lambda: run_limited(["sleep", "50"], 60)))
        assert run_limited(["true"], 10).exit_code == 0
    assert [one.signal for one in ran] == [signal.SIGKILL] * 2


@pytest.mark.parametrize("told", [True, False])
def test_a_program_ends_at_its_limit_or_by_itself(told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the system does not tell when a process ends."""

    def refused(*_: object) -> int:
        raise OSError

    if not told:
        monkeypatch.setattr(os, "pidfd_open", refused)
    late, soon = run_limited(["sleep", "50"], 0.3), run_limited(["false"], 50)
    assert (late.expired, late.signal) == (True, None)
    assert late.seconds < 40
    assert (soon.expired, soon.exit_code) == (False, 1)


def test_the_limit_counts_from_when_the_candidate_is_there() -> None:
    def later() -> bool:
        time.sleep(1.0)
        return True

    ran = run_limited(["sh", "-c", "read word && echo went on"], 0.9, goes_on=later)
    assert not ran.expired
    assert "went on" in ran.stderr
    assert ran.ahead >= 1.0
    assert ran.seconds < 1.0


@pytest.mark.usefixtures("free_device")
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


def all_is_prepared(numbers: list[int]) -> bool:
    """Whether those of these processes that come of this one have begun, and done nothing for a second."""
    ours = [number for number in numbers if os.getpid() in (parent(number), parent(parent(number) or 0))]
    before = [ticks(number) for number in ours]
    time.sleep(1.0)
    return len(ours) > 1 and before == [ticks(number) for number in ours]


def ticks(number: int) -> tuple[str, str] | None:
    """The processor time that a process has taken: its own, and the system's for it."""
    try:
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[11], fields[12]


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


@pytest.mark.nvcc
def test_a_free_gpu_is_taken_ahead_and_the_machine_with_the_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "_LOCKS", tmp_path)
    device, other = gpu_device(0), gpu_device(1)
    gate, seen = Gate(), tmp_path / "seen"
    with on_its_own(lambda: device.run(judge(seen), tmp_path / "report", 60.0, gate=gate)):
        until(lambda: (tmp_path / "seen-started").exists())
        with other.held(waits=False):  # it shares the machine
            pass
        with pytest.raises(BlockingIOError), device.held(waits=False):
            pass
        gate.open(quiet=True)
        until(lambda: (tmp_path / "seen-went").exists())
        with pytest.raises(BlockingIOError), other.held(waits=False):
            pass
        (tmp_path / "seen-end").touch()


@pytest.mark.nvcc
def test_a_gpu_that_others_hold_is_taken_with_the_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_LOCKS", tmp_path)
    device, gate = gpu_device(0), Gate()
    (tmp_path / "seen-end").touch()
    waiting = on_its_own(lambda: device.run(judge(tmp_path / "seen"), tmp_path / "report", 60.0, gate=gate))
    with device.held(), waiting:
        time.sleep(0.3)
        assert not (tmp_path / "seen-started").exists()
        gate.close()
    gate = Gate()
    with on_its_own(lambda: device.run(judge(tmp_path / "seen"), tmp_path / "report", 60.0, gate=gate)):
        gate.open()
    assert (tmp_path / "seen-went").exists()


def gpu_device(index: int) -> CudaDevice:
    if cuda.find_nvcc() is None:
        pytest.skip("there is no nvcc")
    return CudaDevice(LocalGpu(index, "No GPU", f"GPU-{index}", "9.0", "580", "143771", "1980", "3201", "700"))


def judge(seen: Path) -> JudgeRequest:
    """A program that leaves files when it starts and when it continues, and runs until it finds the file `end`."""
    waits = 'case "$*" in *--ahead*) read word;; esac'
    script = f"touch {seen}-started; {waits}; touch {seen}-went; until [ -e {seen}-end ]; do sleep 0.05; done"
    return JudgeRequest(judge=("sh", "-c", script, "sh"))


@contextmanager
def on_its_own(call: Callable[[], Ran]) -> Iterator[None]:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    yield
    thread.join(60)
    assert not thread.is_alive()


def until(true: Callable[[], bool]) -> None:
    for _ in range(1200):
        if true():
            return
        time.sleep(0.05)
    pytest.fail("it did not come to that")
