"""A made-up report, to try pages and figures: every number is random, from a seed.

The kernels are real ones of the benchmark and of the playbook, so lengths and colours are realistic.
"""

from __future__ import annotations

import difflib
import math
import random
from collections.abc import Mapping, Sequence
from functools import cache

import yaml

from cudamaster.core import resources
from cudamaster.core.speed import Change, Comparison, Interval
from cudamaster.core.values import BENCHMARK_PRECISIONS, Bottleneck, Hardware, Precision, ProfileMode, Role, Status
from cudamaster.report.data import (
    Authority,
    AuthorityCase,
    CaseResult,
    ClassLimits,
    Configuration,
    Cost,
    HardwareView,
    Kernel,
    MetricChange,
    Missing,
    Problem,
    Report,
    RoundResult,
    RunProgress,
    TaskResult,
    Throughputs,
)

H200 = Hardware("NVIDIA H200", {"SMs": "132", "DRAM": "4.8 TB/s"}, emulated=False)
CPU = Hardware("CPU device, 2 cores", {"cores": "2"}, emulated=True)
FULL = Configuration("cudamaster", 8, 3, ProfileMode.FILTERED, "cudamaster, R = 8, D = 3")
LIMITS = ClassLimits(30.0, 30.0, 30.0, "paper")
KEPT = {
    Bottleneck.COMPUTE: ("Compute (SM) Throughput", "Issue Slots Busy", "Executed Ipc Active", "SM Busy"),
    Bottleneck.LATENCY: ("L2 Hit Rate", "L1/TEX Hit Rate", "Warp Cycles Per Executed Instruction", "Mem Busy"),
    Bottleneck.BANDWIDTH: ("DRAM Throughput", "Memory Throughput", "Max Bandwidth", "Mem Pipes Busy"),
}
IDEAS = (
    "Stage tiles in shared memory and keep the accumulators in registers",
    "Eight lanes per row instead of one",
    "Vectorised loads of four elements, no tail branch inside the loop",
    "One pass instead of three: running maximum and sum",
    "Ask for all entries of a row at once",
)


@cache
def benchmark() -> Mapping[str, str]:
    """The tasks' names, with their categories, in the order of their numbers."""
    cards = [yaml.safe_load(path.read_text()) for path in resources.bench().glob("tasks/*.yaml")]
    return {card["name"]: card["category"] for card in sorted(cards, key=lambda card: card["id"])}


def comparison(speedup: float, width: float = 0.02) -> Comparison:
    """A speedup with an interval that reaches `width` of it to both sides."""
    interval = Interval(speedup * (1 - width), speedup * (1 + width))
    surely = Change.FASTER if interval.low > 1 else Change.SLOWER if interval.high < 1 else Change.SAME
    return Comparison(speedup, interval, speedup, interval, surely)


def case(chance: random.Random, index: int, speedup: float) -> CaseResult:
    """A size a thousand times as heavy as the one before the last."""
    size, floor_us = 1024 * 4**index, 2.0 + 3 * 3.5**index
    candidate_us = floor_us * chance.uniform(1.1, 4)
    here = max(0.3, 1 + (speedup - 1) * chance.uniform(0.3, 1.4) * (index + 1) / 5)
    return CaseResult(
        label=f"N={size}",
        sizes={"N": float(size)},
        weight=float(size),
        status=Status.CORRECT,
        baseline_us=candidate_us * here,
        candidate_us=candidate_us,
        speedup=here,
        interval=Interval(here * 0.97, here * 1.03),
        floor_us=floor_us,
        empty_us=9.5,
    )


def view(chance: random.Random, kind: Bottleneck) -> HardwareView:
    """Throughputs that belong to a class, and some metrics."""
    high, low = chance.uniform(32, 95), chance.uniform(2, 29)
    compute = high if kind is Bottleneck.COMPUTE else low
    memory = high if kind is Bottleneck.BANDWIDTH else chance.uniform(2, 29)
    found = Throughputs(compute, min(memory, chance.uniform(0, 100)), memory)
    metrics = {name: chance.uniform(1, 90) for names in KEPT.values() for name in names}
    return HardwareView("one kernel", kind, "some_kernel_optimized", 0.97, found, LIMITS, metrics)


def changes(before: HardwareView, after: HardwareView) -> tuple[MetricChange, ...]:
    """Those of the class before."""
    assert before.bottleneck is not None
    pairs = [(name, before.metrics[name], after.metrics[name]) for name in KEPT[before.bottleneck]]
    return tuple(MetricChange(name, old, new, (new - old) / old) for name, old, new in pairs)


def result(
    task: str = "spmv_csr",
    precision: Precision = Precision.FP32,
    *,
    seed: int = 0,
    hardware: Hardware = H200,
    model: str = "openai/o4-mini",
    configuration: Configuration = FULL,
    outcome: Status = Status.CORRECT,
    repetition: int = 1,
) -> TaskResult:
    """One run, whose numbers depend on all arguments."""
    chance = random.Random(f"{task}{precision}{seed}{model}{configuration.described}{repetition}")
    correct = outcome is Status.CORRECT
    speedup = math.exp(max(-0.3, chance.gauss(0.7, 0.8))) if correct else None
    twin = "_bf16" if precision is Precision.BF16 else ""
    baseline = (resources.bench() / precision.value / f"{task}{twin}.cu").read_text()
    kernel = written(task, precision)
    cases = tuple(case(chance, i, speedup) for i in range(8)) if speedup is not None else ()
    before = after = None
    if not hardware.emulated:
        before = view(chance, chance.choice([*Bottleneck, Bottleneck.LATENCY]))
        after = view(chance, chance.choice([*Bottleneck])) if correct else None
    idea = chance.choice(IDEAS)
    return TaskResult(
        origin=f"runs/{task}_{precision.value}_{repetition}",
        source="suite",
        task=task,
        title=task.replace("_", " ").capitalize(),
        category=benchmark()[task],
        precision=precision,
        hardware=hardware,
        versions={"cudamaster": "0.1.0", "nvcc": "13.0"},
        started="2026-11-21T10:00:00",
        models=dict.fromkeys((Role.PLANNER, Role.CODER, Role.COMPILER, Role.DEBUG), model),
        configuration=configuration,
        progress=RunProgress.FINISHED,
        correct=correct,
        improved=bool(speedup and speedup > 1),
        status=outcome,
        score=speedup,
        speed=comparison(speedup) if speedup is not None else None,
        complete=True,
        cases=cases,
        cost=Cost(24, chance.randrange(40000, 90000), chance.randrange(9000, 40000), 1000, chance.uniform(0.05, 0.4),
                  chance.uniform(4, 30), chance.uniform(20, 200)),
        repetition=repetition,
        rounds=(
            RoundResult(1, chance.choice(IDEAS), Status.WRONG, None, False, 1.0),
            RoundResult(2, idea, outcome, speedup, bool(speedup and speedup > 1), max(1.0, speedup or 1.0)),
        ),
        idea=idea if correct else None,
        round=2 if correct else None,
        author=model if correct else None,
        baseline=Kernel("b" * 16, baseline, "nvcc -std=c++17 -arch=sm_90 -O3 -c candidate.cu -o candidate.o"),
        best=Kernel("c" * 16, kernel, "nvcc -std=c++17 -arch=sm_90 -O3 --use_fast_math -c candidate.cu -o candidate.o")
        if correct
        else None,
        diff=difference(baseline, kernel) if correct else "",
        flags_added=("--use_fast_math",) if correct else (),
        before=before,
        after=after,
        changes=changes(before, after) if before and after else (),
        notes=("The power limit held the clock down for 3 of 50 calls.",) if chance.random() < 0.1 else (),
        sanitizers={"memcheck": "clean", "racecheck": "clean"},
    )  # fmt: skip


@cache
def written(task: str, precision: Precision) -> str:
    """A kernel of the playbook, of any idea."""
    kernels = sorted((resources.package() / "playbook" / task / precision.value).glob("*.cu"))
    return kernels[-1].read_text() if kernels else "// no kernel\n"


@cache
def difference(before: str, after: str) -> str:
    return "\n".join(list(difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm=""))[2:])


def authority(task: str, library: str, status: Status | None = Status.CORRECT) -> Authority:
    """A library that is about as fast as ours; without times unless it is correct."""
    chance = random.Random(task)
    cases = []
    for index in range(6 if status is Status.CORRECT else 0):
        floor_us = 3.0 * 3**index
        baseline_us, library_us, ours_us = (floor_us * chance.uniform(*part) for part in ((5, 20), (1.1, 3), (1.2, 4)))
        ratio = baseline_us / library_us
        cases.append(
            AuthorityCase(f"N={4**index}", 4.0**index, baseline_us, library_us, floor_us, ratio,
                          Interval(ratio * 0.97, ratio * 1.03), ours_us, baseline_us / ours_us)
        )  # fmt: skip
    score = max((one.speedup or 0.0 for one in cases), default=None)
    note = "" if cases else "the library is not installed"
    speed = None if score is None else comparison(score)
    return Authority(task, Precision.FP32, library, H200.name, status, note, score, speed, tuple(cases))


def report(
    results: Sequence[TaskResult],
    *,
    missing: Sequence[Missing] = (),
    problems: Sequence[Problem] = (),
    authorities: Sequence[Authority] = (),
) -> Report:
    """Around given results."""
    return Report(
        "2026-11-22T08:00:00", {"cudamaster": "0.1.0"}, ("runs/suite_1",), tuple(results), tuple(missing),
        tuple(problems), tuple(authorities), benchmark(),
    )  # fmt: skip


def hundred(model: str = "openai/o4-mini", configuration: Configuration = FULL, *, seed: int = 0) -> list[TaskResult]:
    """All tasks in both precisions; one in twenty without a correct kernel."""
    chance = random.Random(f"{model}{configuration.described}{seed}")
    ends = [Status.CORRECT] * 19 + [Status.WRONG]
    return [
        result(task, precision, seed=seed, model=model, configuration=configuration, outcome=chance.choice(ends))
        for precision in BENCHMARK_PRECISIONS
        for task in benchmark()
    ]
