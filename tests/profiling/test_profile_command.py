# ruff: noqa: D102
"""What `cudamaster profile` and `calibrate` show and refuse; the profiles are recorded ones."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

from cudamaster.cli import main
from cudamaster.cli.calibrate import wanted
from cudamaster.cli.profile import kernels_table, launches_table, metrics_table, named_table, show
from cudamaster.core import resources
from cudamaster.core.errors import UsageError
from cudamaster.core.values import (
    Candidate,
    CaseVerdict,
    Findings,
    KernelProfile,
    Precision,
    Profile,
    Status,
    Timing,
    Verdict,
)
from cudamaster.devices import ncu
from cudamaster.devices.cuda import CudaDevice, LocalGpu
from cudamaster.devices.ncu import NoProfile
from cudamaster.library.profiles import chosen_cases, profiled
from cudamaster.profiling import calibration, configuration, metric_sets
from cudamaster.profiling.calibration import Point, Table
from cudamaster.profiling.ptxas import Usage
from cudamaster.profiling.thresholds import load
from cudamaster.tasks import cards
from cudamaster.workbench.profiler import Profiler

DATA = Path(__file__).parent / "data"
PAPER = load()


def recorded(name: str) -> tuple[KernelProfile, ...]:
    text = (DATA / f"{name}.txt").read_text()
    wanted = (*PAPER.full, *configuration.METRICS)
    found = ncu.parse(text, candidate="c0ffee", case="N=65536", metrics=wanted)
    assert isinstance(found, Profile)
    return found.kernels


def shown(made: Any) -> list[list[str]]:
    """The lines of a table as words."""
    text = io.StringIO()
    Console(file=text, width=200).print(made)
    return [line.split() for line in text.getvalue().splitlines() if line.strip()]


def test_kernels_are_shown_by_time() -> None:
    """The dominating kernel first, its share and class; at the end all of them, weighted by time."""
    lines = shown(kernels_table(recorded("several_kernels"), PAPER))
    assert lines[2][:3] == ["merge_runs", "32.77", "83%"]
    assert lines[3][:3] == ["sort_tiles", "6.528", "17%"]
    assert lines[-1][:6] == ["all,", "by", "time", "39.3", "100%", "3"]
    compute = [float(line[-3]) for line in lines[2:5]]
    assert compute[2] == pytest.approx((32.768 * compute[0] + 6.528 * compute[1]) / 39.296, rel=1e-2)


def test_a_throughput_that_is_missing_is_a_dash() -> None:
    """Of one kernel, and then of all of them together: nothing is taken for zero."""
    whole, lacking = KernelProfile("a", 1, 5.0, dict.fromkeys(PAPER.filtered, 12.0)), KernelProfile("b", 1, 5.0, {})
    lines = shown(kernels_table([whole, lacking], PAPER))
    assert lines[3][-3:] == ["-", "-", "-"]
    assert "not known" in " ".join(lines[3])
    assert lines[4][-3:] == ["-", "-", "-"]


def test_launches_say_what_limits_them() -> None:
    """The longest launch's own numbers, never a mean of two; what was not recorded is a dash."""
    kernels = recorded("several_kernels")
    made = [configuration.configuration(kernel.metrics) for kernel in kernels]
    assert made[0].registers == 52
    assert made[0].limited_by == ()
    limits = {
        "launch__occupancy_limit_blocks": 32.0,
        "launch__occupancy_limit_registers": 4.0,
        "launch__occupancy_limit_shared_mem": 4.0,
        "launch__occupancy_limit_warps": 8.0,
        "launch__grid_size": 1234.0,
    }
    launch = configuration.configuration(limits)
    assert launch.limited_by == ("registers", "shared memory")
    assert (launch.blocks, launch.threads, launch.occupancy) == (1234, None, None)
    lines = shown(launches_table(kernels[:1], [launch]))
    assert lines[2] == [
        "merge_runs",
        "1,234",
        "x",
        "-",
        "-",
        "-",
        "-",
        "-",
        "-",
        "of",
        "-",
        "registers,",
        "shared",
        "memory",
    ]


def test_spills_are_shown_beside_the_launch() -> None:
    """Bytes stored and loaded, added up, from ptxas's report on that kernel; no spill is a zero, no log a dash."""
    kernels = recorded("several_kernels")
    usages = {"merge_runs_kernel_optimized": Usage("m", "sm_90", 52, 0, 16, 1200, 34)}
    made = [configuration.configuration(kernel.metrics, usages.get(kernel.kernel)) for kernel in kernels]
    assert [(each.spill_store_bytes, each.spill_load_bytes) for each in made] == [(1200, 34), (None, None)]
    table = launches_table(kernels, made)
    assert shown(table)[0][5:7] == ["spills", "B"]
    assert [line[5] for line in shown(table)[2:]] == ["1,234", "-"]
    none = configuration.configuration(kernels[0].metrics, Usage("m", "sm_90", 52, 0, 0, 0, 0))
    assert shown(launches_table(kernels[:1], [none]))[2][5] == "0"


def test_metrics_are_those_of_the_class() -> None:
    """With their meaning; `--full` has all of table 6."""
    kernels = recorded("all_sections")
    lines = [" ".join(line) for line in shown(metrics_table(kernels[:1], PAPER, full=False))]
    assert kernels[0].kernel == "merge_runs_kernel_optimized"
    names = PAPER.kept[next(kind for kind in PAPER.kept if kind.value == "compute bound")]
    assert [any(name in line for line in lines) for name in names] == [True] * len(names)
    assert any("how near the busiest unit of the SMs is to its peak" in line for line in lines)
    assert len(shown(metrics_table(kernels[:1], PAPER, full=True))) == 2 + 25


def test_a_named_set_is_shown_under_the_names_that_were_measured() -> None:
    """In the set's order; a stand-in under its own name, what is absent as a dash."""
    named = metric_sets.load("cudaforge24")
    barrier = "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"
    kernel = KernelProfile("a_kernel_optimized", 1, 5.0, {"dram__bytes_read.sum": 4096.0, barrier: 2.5})
    lines = {line[1]: line[2] for line in shown(named_table([kernel], named))[2:]}
    assert len(lines) == 24
    assert lines["dram__bytes_read.sum"] == "4,096"
    assert lines[barrier] == "2.5"
    assert lines["dram__bytes_write.sum"] == "-"


class Bench:
    """A workbench whose GPU does not allow counters to be read."""

    def __init__(self, *, emulated: bool = False, timed: bool = True) -> None:
        self.device, self.profiler = SimpleNamespace(emulated=emulated), self
        self.evaluated: list[Candidate] = []
        self.timing = Timing((40.0,), (20.0,)) if timed else None

    def profile(self, *_: object) -> NoProfile:
        return NoProfile("the driver does not let this user; run as root")

    def evaluate(self, candidate: Candidate) -> Verdict:
        self.evaluated.append(candidate)
        cases = [CaseVerdict(f"N={n}", True, 1.0, Status.CORRECT, timing=self.timing) for n in (8, 16)]
        status, detail = (Status.CORRECT, "correct") if self.timing else (Status.WRONG, "y is off at N=65536")
        return Verdict(candidate.id, "cuda", False, status, detail, cases=tuple(cases))

    def without_counters(self, one: Candidate, _: Verdict, case: CaseVerdict, missing: NoProfile) -> Findings:
        return Findings(
            one.id, f"{missing.reason}. Calculated, at {case.label}.", metrics={"time of a call (µs)": 20.0}
        )


def without_counters(bench: Bench) -> str:
    """What a person reads of two kernels at two cases."""
    text, verdicts, said = io.StringIO(), dict[str, Verdict](), set[str]()
    console = Console(file=text, width=200)
    for case in ("N=8", "N=16"):
        for who in ("baseline", "candidate"):
            subject = Candidate("relu", Precision.FP32, who, "nvcc")
            one = profiled(bench, who, subject, case, "filtered", None, PAPER, verdicts)  # type: ignore[arg-type]
            show(console, one, PAPER, "filtered", None, said)
    return text.getvalue()


def test_without_counters_a_kernel_is_timed_once_and_the_reason_told_once() -> None:
    """One evaluation times all cases, and the fix is not read again and again."""
    bench = Bench()
    text = without_counters(bench)
    assert [one.code for one in bench.evaluated] == ["baseline", "candidate"]
    assert text.count("run as root") == 1
    assert text.count("no counters") == 4
    assert text.count("Calculated, at N=16.") == 2
    assert text.count("time of a call") == 4


def test_without_counters_a_kernel_that_was_not_timed_says_why() -> None:
    """Wrong at a size that the check before a profile does not reach."""
    assert without_counters(Bench(timed=False)).count("It was not timed: wrong: y is off at N=65536.") == 4


def test_on_the_cpu_device_nothing_is_timed_for_a_profile_that_is_not_wanted() -> None:
    """Its times are the model's, and would not be shown."""
    bench = Bench(emulated=True)
    assert without_counters(bench).count("no counters") == 4
    assert bench.evaluated == []


def test_cases() -> None:
    """The heaviest by weight, all, or one by its number."""
    card = cards.load("spmv_csr")
    timed = [case for case in card.cases if case.sweep]
    assert [case.label for case in chosen_cases(card, "heaviest")] == ["rows=32768"]
    assert chosen_cases(card, "all") == timed
    assert chosen_cases(card, "2") == timed[1:2]
    for wrong in ("0", "7", "-1", "light"):
        with pytest.raises(UsageError) as raised:
            chosen_cases(card, wrong)
        assert "1: rows=1024" in raised.value.fix


@pytest.mark.slow(but=["True"])
@pytest.mark.parametrize("as_json", [False, True])
def test_calibrating_from_kept_data(tmp_path: Path, as_json: bool) -> None:
    """Without a GPU: thresholds, plot and what changes, for a person and for a program."""
    data = Table(tmp_path / "kept.csv")
    for i in range(20):
        throughputs = (5.0 + i % 3, 60.0 + i % 5, 32.0 if i else 90.0)
        low_or_high = throughputs if i % 2 else (45.0, 8.0, 31.0)
        data.add(Point(f"task{i}", "fp32", "c0ffee", "N=8", "a_kernel_optimized", 5.0, 1.0, *low_or_high))
    out = tmp_path / "out"
    arguments = ["calibrate", "--from", str(data.path), "--gpu", "Some GPU", "--out", str(out)]
    done = CliRunner().invoke(main, [*arguments, *(["--json"] if as_json else [])])
    assert done.exit_code == 0, done.output
    assert (out / "throughputs.svg").read_text().startswith("<?xml")
    kept = yaml.safe_load((out / "thresholds.yaml").read_text())
    assert (kept["gpu"], kept["kernels"]) == ("Some GPU", 20)
    assert kept["thresholds"]["compute"] == 26.0
    if as_json:
        said = json.loads(done.stdout)
        assert said["thresholds"] == kept["thresholds"]
        assert said["files"][1:] == [str(out / "thresholds.yaml"), str(out / "throughputs.svg")]
    else:
        assert "26.0 %" in done.output
        assert "kernels change class" in done.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("beside", "gpu", "expected"),
    [
        ("whole", "Some GPU", ("2025-01-31", "580", "13.0")),
        ("whole", "Other GPU", ("not known",) * 3),
        (None, "Some GPU", ("not known",) * 3),
        ("", "Some GPU", ("not known",) * 3),
        ("a: [", "Some GPU", ("not known",) * 3),
    ],
)
def test_kept_data_keep_their_date(
    beside: str | None, gpu: str, expected: tuple[str, str, str], tmp_path: Path
) -> None:
    """They were measured when they were, on what they were, wherever thresholds are made of them again."""
    data = Table(tmp_path / "kept" / "throughputs.csv")
    for i in range(20):
        data.add(Point(f"task{i}", "fp32", "c0ffee", "N=8", "a_kernel_optimized", 5.0, 1.0, 1.0 + i, 2.0 + i, 3.0 + i))
    earlier, out = data.path.with_name("thresholds.yaml"), tmp_path / "out"
    if beside == "whole":
        about = {"date": "2025-01-31", "driver": "580", "toolkit": "13.0", "kernels": 20}
        calibration.write(earlier, "Some GPU", PAPER.thresholds, about, data.path)
    elif beside is not None:
        earlier.write_text(beside)
    for place in (out, data.path.parent):
        arguments = ["calibrate", "--from", str(data.path), "--gpu", gpu, "--out", str(place)]
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, done.output
        kept = yaml.safe_load((place / "thresholds.yaml").read_text())
        assert (kept["date"], kept["driver"], kept["toolkit"]) == expected


def test_calibrating_nothing_is_refused(tmp_path: Path) -> None:
    """Data without the GPU's name, and too little of them."""
    data = tmp_path / "kept.csv"
    data.write_text("task,precision,candidate,case,kernel,time_us,share,compute,dram,memory\n")
    runner = CliRunner()
    nameless = runner.invoke(main, ["calibrate", "--from", str(data)])
    assert nameless.exit_code == 2
    assert "--gpu" in nameless.output
    empty = runner.invoke(main, ["calibrate", "--from", str(data), "--gpu", "Some GPU", "--out", str(tmp_path / "o")])
    assert empty.exit_code == 2
    assert "0 kernels have a compute throughput" in empty.output


@pytest.mark.nvcc
@pytest.mark.parametrize("of_machine", [True, False])
def test_forbidden_counters_end_a_calibration(
    of_machine: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said once, with the fix, and not for each of a hundred baselines; one that fails by itself leaves the others."""
    asked: list[Candidate] = []

    def no_profile(_: Profiler, candidate: Candidate, *__: object) -> NoProfile:
        asked.append(candidate)
        return NoProfile("the driver does not let this user; run as root", of_machine)

    gpu = LocalGpu(0, "No GPU", "GPU-0", "9.0", "580", "143771", "1980", "3201", "700")
    monkeypatch.setattr("cudamaster.devices.choose.choose", lambda _: CudaDevice(gpu))
    monkeypatch.setattr(Profiler, "build", lambda *_: None)
    monkeypatch.setattr(Profiler, "profile", no_profile)
    done = CliRunner().invoke(main, ["calibrate", "relu-fp32", "elu-fp32", "--out", str(tmp_path)])
    assert done.exit_code == (4 if of_machine else 2)
    assert len(asked) == (1 if of_machine else 2)
    assert done.output.count("run as root") == len(asked)
    assert ("Nothing can be profiled here" in done.output) == of_machine


@pytest.mark.nvcc
def test_data_are_of_the_gpu_and_the_day_that_they_were_measured_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing new is measured the date stays; another GPU's data, of the same candidates, are not taken."""
    h200 = LocalGpu(0, "NVIDIA H200", "GPU-0", "9.0", "999", "143771", "1980", "3201", "700")
    kept = resources.profiles() / "nvidia_h200"
    for file in ("throughputs.csv", "thresholds.yaml"):
        text = (kept / file).read_text()
        (tmp_path / file).write_text(text.replace("2026-11-22", "2025-01-31"))
    arguments = ["calibrate", "relu-fp32", "--out", str(tmp_path)]
    monkeypatch.setattr(Profiler, "profile", lambda *_: pytest.fail("profiled"))
    monkeypatch.setattr("cudamaster.devices.choose.choose", lambda _: CudaDevice(h200))
    again = CliRunner().invoke(main, arguments)
    assert again.exit_code == 0, again.output
    made = yaml.safe_load((tmp_path / "thresholds.yaml").read_text())
    assert (made["date"], made["driver"]) == ("2025-01-31", "580.159.04")
    monkeypatch.setattr("cudamaster.devices.choose.choose", lambda _: CudaDevice(replace(h200, name="NVIDIA H100")))
    other = CliRunner().invoke(main, arguments)
    assert other.exit_code == 2
    assert "holds data of an NVIDIA H200" in other.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["calibrate", "--from", "DATA", "--gpu", ""], "--from needs the name of the GPU"),
        (["calibrate", "fft-bf16", "--from", "DATA", "--gpu", "X"], "--from measures nothing"),
        (["calibrate", "--gpu", "X"], "Leave out --gpu"),
        (["profile", "relu", "--none", "--metrics", "cudaforge24"], "Leave out --none or --metrics"),
    ],
)
def test_what_would_be_ignored_is_refused(arguments: list[str], said: str, tmp_path: Path) -> None:
    """Before anything is measured or written."""
    data = str(resources.profiles() / "nvidia_h200" / "throughputs.csv")
    given = [data if word == "DATA" else word for word in arguments]
    out = ["--out", str(tmp_path / "out")] if given[0] == "calibrate" else []
    done = CliRunner().invoke(main, [*given, *out])
    assert done.exit_code == 2
    assert said in done.output
    assert not (tmp_path / "out").exists()


def test_baselines_to_calibrate() -> None:
    """All hundred without arguments; a name that is none is named."""
    assert len(wanted([])) == 100
    assert wanted(["fft-bf16", "relu-fp32"]) == [("fft", "bf16"), ("relu", "fp32")]
    with pytest.raises(UsageError, match="fft-fp64"):
        wanted(["fft-bf16", "fft-fp64"])
