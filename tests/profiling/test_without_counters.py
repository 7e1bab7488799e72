# ruff: noqa: D102
"""The findings without counters: each source alone and all together, and when the profiler falls back on them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from cudamaster.agents.prompts import render
from cudamaster.build.building import Build
from cudamaster.core.speed import compare
from cudamaster.core.values import CaseVerdict, Findings, Hardware, Profile, ProfileMode, Status, Timing, Verdict
from cudamaster.devices import ncu
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.ncu import NoProfile
from cudamaster.devices.protocol import MeasuringProtocol, Ran
from cudamaster.profiling import sass, without_counters
from cudamaster.profiling.launches import CallLaunches, Launch, NoLaunches, SmLimits
from cudamaster.profiling.ptxas import Usage
from cudamaster.profiling.sass import InstructionClass, InstructionMix, NoMix
from cudamaster.profiling.thresholds import load
from cudamaster.profiling.without_counters import Sources, findings
from cudamaster.workbench.profiler import Profiler

DATA = Path(__file__).parent / "data"
FORBIDDEN = NoProfile("the driver does not let this user read the GPU's counters; run as root")
TIMING = Timing((40.0,), (20.0, 22.0, 21.0), (38.0,), (16.0, 15.0, 17.0))
CASE = CaseVerdict("N=8", True, 1.0, Status.CORRECT, timing=TIMING, empty_us=4.0, floor_us=12.0)
VERDICT = Verdict("c0ffee", "cuda", False, Status.CORRECT, "correct", cases=(CASE,))
H200 = SmLimits((9, 0), 132, 32, 2048, 32, 65536, 233472, 1024)
SUM = "_Z20sum_kernel_optimizedPf"
LAUNCH = Launch(SUM, 1, (264, 1, 1), (256, 1, 1), 0, 40, 1024, 0, 6, H200)
USAGE = Usage(SUM, "sm_90", 40, 1024, 16, 12, 8)
MIX = InstructionMix(SUM, "sm_90", {InstructionClass.FP32: 7, InstructionClass.GLOBAL_LOAD: 2})
SOURCES = Sources(CallLaunches((LAUNCH,), 1), (MIX,), (USAGE,), (9, 0))


def found(case: CaseVerdict = CASE, **changed: object) -> Findings:
    return findings(VERDICT, case, FORBIDDEN, replace(SOURCES, **changed))  # type: ignore[arg-type]


def test_everything_that_needs_no_counters() -> None:
    """The note says first why there are none and how to get them, then what the figures are. No class is guessed."""
    told = found()
    assert (told.candidate, told.kernel, told.bottleneck) == ("c0ffee", "sum_kernel_optimized", None)
    assert (told.time_share, told.measured) == (None, {})
    assert told.note == (
        "the driver does not let this user read the GPU's counters; run as root. The figures here are calculated from "
        "the build and the launches, not measured by counters; times alone are measured, at N=8. The occupancy of "
        "sum_kernel_optimized is limited by registers. Instructions are those in the code, each counted once, in loops "
        "too; a class without any is left out."
    )
    assert told.metrics == {
        "time of a call (µs)": 21.0,
        "time on the device (µs)": 16.0,
        "floor of the time on the device (µs)": 8.0,  # 12 µs with an empty launch of 4
        "time on the device over its floor": 2.0,
        "launches per call": 1,
        "blocks per launch": 264,
        "threads per block": 256,
        "dynamic shared memory per block (bytes)": 0,
        "registers per thread": 40,
        "static shared memory per block (bytes)": 1024,
        "local memory per thread (bytes)": 0,
        "blocks that an SM holds": 6,
        "theoretical occupancy (%)": 75.0,
        "waves of blocks per launch": pytest.approx(264 / (6 * 132)),
        "stack per thread (bytes)": 16,
        "spill stores (bytes)": 12,
        "spill loads (bytes)": 8,
        "instructions in the code": 9,
        "instructions: global loads": 2,
        "instructions: fp32": 7,
    }


def test_what_is_not_known_is_absent_and_named() -> None:
    """The build's own figures are left; no floor, no device time and no launch becomes a zero."""
    timing = replace(TIMING, candidate_device_us=())
    told = found(
        replace(CASE, timing=timing),
        launches=NoLaunches("the call was stopped"),
        mixes=NoMix("cuobjdump is not installed"),
    )
    assert "No launches: the call was stopped." in told.note
    assert "No instruction mix: cuobjdump is not installed." in told.note
    assert told.kernel == "sum_kernel_optimized"
    assert list(told.metrics) == [
        "time of a call (µs)",
        "registers per thread",
        "static shared memory per block (bytes)",
        "stack per thread (bytes)",
        "spill stores (bytes)",
        "spill loads (bytes)",
    ]
    bare = found(launches=NoLaunches("x"), mixes=NoMix("y"), usages=())
    assert "No spills: the compile log does not tell them for this GPU." in bare.note
    assert bare.kernel is None
    assert list(found(replace(CASE, floor_us=None), usages=(), mixes=()).metrics)[:3] == [
        "time of a call (µs)",
        "time on the device (µs)",
        "launches per call",
    ]


def test_only_the_machine_code_that_the_gpu_runs_is_told() -> None:
    usages, mixes = (replace(USAGE, architecture="sm_80", registers=1), USAGE), (replace(MIX, architecture="sm_80"),)
    told = found(launches=NoLaunches("x"), usages=usages, mixes=mixes)
    assert told.metrics["registers per thread"] == 40
    assert "No instruction mix: there is no machine code for this GPU." in told.note
    assert "registers per thread" not in found(launches=NoLaunches("x"), compute_capability=None).metrics


def test_the_runtime_has_the_last_word() -> None:
    """On what both it and the build say, and where its occupancy is not the calculated one."""
    told = found(launches=CallLaunches((replace(LAUNCH, active_blocks=4, registers=38),), 1))
    assert told.metrics["registers per thread"] == 38
    assert told.metrics["theoretical occupancy (%)"] == 50
    assert "The runtime says that an SM holds 4 of its blocks, not 6." in told.note


def test_several_kernels() -> None:
    """Those with the most threads first, four at most, each figure with its kernel; shapes of one are put together."""
    small = [replace(LAUNCH, symbol=f"_Z{17 + len(n)}{n}_kernel_optimizedPf", grid=(2, 1, 1)) for n in "abcd"]
    template = replace(LAUNCH, symbol="_Z20sum_kernel_optimizedILi4EEvPf", grid=(9, 1, 1))
    shapes = [*small, replace(LAUNCH, grid=(3, 1, 1), count=5), LAUNCH, template]
    told = found(launches=CallLaunches(tuple(shapes), 99))
    assert told.kernel is None
    kernels = [name.removesuffix(": launches per call") for name in told.metrics if name.endswith("launches per call")]
    assert kernels == [SUM, template.symbol, "a_kernel_optimized", "b_kernel_optimized"]
    assert told.metrics[f"{SUM}: launches per call"] == 6
    assert told.metrics[f"{SUM}: blocks per launch"] == 264
    assert told.metrics[f"{SUM}: instructions: fp32"] == 7
    assert f"{SUM} is launched in 2 shapes, the largest is shown." in told.note
    assert "2 more kernels are left out." in told.note
    assert "Of 99 launches only 11 are told." in told.note


def test_the_planner_gets_it_marked_as_such() -> None:
    cases = (replace(CASE, speed=compare(TIMING.baseline_us * 8, TIMING.candidate_us[:1] * 8)),)

    def rendered(told: Findings) -> str:
        verdict, brief = replace(VERDICT, score=2.0, cases=cases), SimpleNamespace(description="Sum.")
        return render("planner.user.md.j2", brief=brief, code="", command="nvcc", verdict=verdict, findings=told,
                      history=(), place=None, kind=None)  # fmt: skip

    text = rendered(found())
    assert "There is no hardware profile: the driver does not let this user" in text
    assert "not measured by counters" in text
    assert "\n- theoretical occupancy (%): 75\n" in text
    none = rendered(Findings("c0ffee", "there is no GPU"))
    assert "There is no hardware profile: there is no GPU\n\n## Plans so far" in none


class Machine:
    """A device without counters, whose workers print what a launch looks like."""

    fingerprint = "f"
    protocol = MeasuringProtocol(1, 0, 1, None, 1.0)
    default_command = "nvcc -c candidate.cu -o candidate.o"

    def __init__(self, emulated: bool) -> None:
        self.name, self.emulated = ("cpu", True) if emulated else ("cuda", False)
        self.asked: list[list[str]] = []

    def hardware(self) -> Hardware:
        return Hardware("a GPU", {"compute capability": "9.0"}, self.emulated)

    def profile(self, *_: object) -> NoProfile:
        return FORBIDDEN

    def run(self, request: JudgeRequest, report: Path, limit_s: float) -> Ran:
        assert not request.measures
        self.asked.append(request.command)
        line = '{"event":"launch","count":2,"all_launches":2,"grid":[4,1,1],"block":[32,1,1],"dynamic_shared_bytes":0'
        return Ran(0, None, False, f'launch {line},"symbol":"{SUM}"}}\n', 0.1)


@pytest.mark.parametrize("emulated", [False, True])
def test_the_profiler_falls_back_on_a_gpu_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, emulated: bool
) -> None:
    """At the heaviest timed case, with the log of the verdict's build; the CPU device says why there is no profile."""
    device = Machine(emulated)
    worker = tmp_path / "run"
    builder = SimpleNamespace(
        stands_for_eager=lambda _: False,
        built=lambda _: Build(None, "built", "", worker),
        judge=lambda: Path("judge"),
        baseline_command=lambda: ("base",),
        using=lambda _: nullcontext(),
    )
    where = Profiler(builder, device)  # type: ignore[arg-type]
    seen: list[Path] = []
    monkeypatch.setattr(sass, "disassembled", lambda path: seen.append(path) or (MIX,))
    heavier = replace(CASE, label="N=16", weight=2.0)
    log = (
        f"ptxas info    : Compiling entry function '{SUM}' for 'sm_90'\nptxas info    : Used 33 registers\n"
        "ptxas info    : Compiling entry function 'other' for 'sm_80'\nptxas info    : Used 1 registers\n"
    )
    verdict = replace(VERDICT, cases=(heavier, CASE), build={"compile log": log})
    told = where.findings(SimpleNamespace(id="c0ffee"), verdict, load())  # type: ignore[arg-type]
    if emulated:
        assert told == Findings("c0ffee", f"{FORBIDDEN.reason}.")
        assert (device.asked, seen) == ([], [])
        return
    [command] = device.asked
    assert command == ["judge", "--baseline", "base", "--candidate", str(worker), "--cases", "none", "--case", "N=16",
                       "--launches"]  # fmt: skip
    assert seen == [worker]
    assert told.candidate == "c0ffee"
    assert told.metrics["launches per call"] == 2
    assert told.metrics["registers per thread"] == 33
    assert told.metrics["instructions: fp32"] == 7
    assert "at N=16" in told.note
    assert "The occupancy of sum_kernel_optimized is not known." in told.note


@pytest.mark.parametrize("capability", ["9.0", None])
def test_usages_are_of_the_gpus_code_by_plain_name(capability: str | None) -> None:
    """For what is shown beside a profile: of a template's kernels the one that spills most, none of other GPUs."""

    def entry(symbol: str, architecture: str, spilled: int) -> str:
        return (
            f"ptxas info    : Compiling entry function '{symbol}' for '{architecture}'\n"
            f"ptxas info    : Function properties for {symbol}\n"
            f"    0 bytes stack frame, {spilled} bytes spill stores, 8 bytes spill loads\n"
        )

    eight, four = "_Z20sum_kernel_optimizedILi8EEvPf", "_Z20sum_kernel_optimizedILi4EEvPf"
    log = entry(eight, "sm_90", 64) + entry(four, "sm_90", 16) + entry(eight, "sm_80", 512)
    device = Machine(emulated=False)
    figures = {} if capability is None else {"compute capability": capability}
    device.hardware = lambda: Hardware("a GPU", figures, emulated=False)  # type: ignore[method-assign]
    builder = SimpleNamespace(
        stands_for_eager=lambda _: False,
        built=lambda _: Build(None, "built", "", Path("run"), record={"compile log": log}),
    )
    found = Profiler(builder, device).usages(SimpleNamespace(id="c0ffee"))  # type: ignore[arg-type]
    told = {name: (usage.spill_store_bytes, usage.spill_load_bytes) for name, usage in found.items()}
    assert told == ({} if capability is None else {"sum_kernel_optimized": (64, 8)})


def test_where_no_launch_is_known_the_build_s_kernels_are_told() -> None:
    """Whatever their names are; a worker's machine code holds the harness's kernels too, which are not among them."""
    own = ["_Z1kPf", "_ZN4mine11mask_kernelEv", "_Z12empty_kernelv"]
    ours = ["_ZN4mskb12read_scratchEP5uint4m", "_ZN4mskb41_GLOBAL__N__04d360c5_9_worker_cu_d10bb6dd12empty_kernelEv"]
    mixes = tuple(replace(MIX, symbol=symbol) for symbol in own + ours)
    told = found(launches=NoLaunches("the call failed"), usages=(), mixes=mixes)
    named = {name.partition(": ")[0] for name in told.metrics if ": instructions in the code" in name}
    assert named == {"k", "mask_kernel", "empty_kernel"}


def test_nothing_is_asked_where_no_profile_is_wanted() -> None:
    """The paper's third configuration: the Planner reads why there is no profile, and nothing is run."""
    device = Machine(emulated=False)
    where = Profiler(SimpleNamespace(stands_for_eager=lambda _: False), device)  # type: ignore[arg-type]
    told = where.findings(SimpleNamespace(id="c0ffee"), VERDICT, load(), ProfileMode.NONE)  # type: ignore[arg-type]
    assert told == Findings("c0ffee", "none was asked for.")
    assert device.asked == []


def test_a_case_without_its_profile_is_named() -> None:
    """The full mode profiles every timed case; only the heaviest one's profile decides the class."""

    class Partly(Machine):
        def profile(self, *asked: object) -> Profile | NoProfile:  # type: ignore[override]
            if "N=16" not in asked:
                return NoProfile("it was stopped after 120 s")
            text, metrics = (DATA / "one_kernel.txt").read_text(), load().full
            return ncu.parse(text, candidate="c0ffee", case="N=16", metrics=metrics)

    builder = SimpleNamespace(
        stands_for_eager=lambda _: False,
        built=lambda _: Build(None, "built", "", Path("run")),
        judge=lambda: Path("judge"),
        baseline_command=lambda: ("base",),
        using=lambda _: nullcontext(),
    )
    verdict = replace(VERDICT, cases=(replace(CASE, label="N=16", weight=2.0), CASE))
    where = Profiler(builder, Partly(emulated=False))  # type: ignore[arg-type]
    told = where.findings(SimpleNamespace(id="c0ffee"), verdict, load(), ProfileMode.FULL)  # type: ignore[arg-type]
    assert {report.case for report in told.reports} == {"N=16"}
    assert told.note.endswith("No profile of case N=8: it was stopped after 120 s.")


@pytest.mark.parametrize("capability", ["9.0", None, "new"])
def test_looking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capability: str | None) -> None:
    """Recorded texts of all three sources come together; a GPU that does not say what it is leaves out the build."""
    text = (DATA / "sass.txt").read_text()
    monkeypatch.setattr(sass, "disassembled", lambda _: sass.parse(text))
    sources = without_counters.look(
        lambda *_: Ran(1, None, False, "", 0.1),
        JudgeRequest(judge=("judge",)),
        tmp_path / "run",
        case="N=8",
        compile_log=(DATA / "ptxas.txt").read_text(),
        compute_capability=capability,
    )
    told = findings(VERDICT, CASE, FORBIDDEN, sources)
    assert "No launches: the call whose launches were to be listed failed." in told.note
    spilled = {name: value for name, value in told.metrics.items() if name.endswith("spill stores (bytes)")}
    if capability == "9.0":
        assert spilled["spill_kernel_optimized: spill stores (bytes)"] == 512
        assert len(spilled) == 3
    else:
        assert spilled == {}
