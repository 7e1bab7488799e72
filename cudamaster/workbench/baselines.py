"""Checks baselines against their references, times them, and makes the table of their times over the floor."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from cudamaster.core.errors import BaselineError, CudaMasterError
from cudamaster.core.values import Precision, Status
from cudamaster.tasks.cards import TaskCard
from cudamaster.workbench.evaluation import Workbench
from cudamaster.workbench.floors import GpuLimits, floor, least_empty_us

SLOW = 50  # times the floor, above which the table gives a reason


@dataclass(frozen=True)
class BaselineCase:
    """Times of one case in microseconds; `floor_us` is the least that the device allows."""

    label: str
    weight: float
    mean_us: float
    median_us: float
    deviation_us: float
    empty_us: float
    floor_us: float

    @property
    def over_floor(self) -> float:
        """Mean time over the floor."""
        return self.mean_us / self.floor_us


@dataclass(frozen=True)
class BaselineRecord:
    """The result for one baseline. `seconds` is the wall time of its checks and timing, without building."""

    task: str
    precision: Precision
    right: bool
    cases: int
    skipped: Mapping[str, str]
    detail: str
    seconds: float
    worst_error: float | None = None
    timed: tuple[BaselineCase, ...] = ()

    @property
    def over_floor(self) -> float | None:
        """Time over the floor, weighted as the score is; None where nothing was timed."""
        weight = sum(case.weight for case in self.timed)
        return sum(case.weight * case.over_floor for case in self.timed) / weight if weight else None


def check(bench: Workbench, calls: int, limits: GpuLimits | None) -> BaselineRecord:
    """Check a baseline against its reference, and time `calls` calls per case if `limits` are known."""
    card, started = bench.card, monotonic()
    try:
        judged = bench.check_baseline(calls=calls)
    except BaselineError as error:
        return failed(bench, error, monotonic() - started)
    skipped = {case.label: case.skipped for case in judged.cases if case.skipped is not None}
    timed, empty_us = [], least_empty_us(judged.cases)
    for case in (c for c in card.cases if c.sweep):
        if (times := judged.baseline_us.get(case.label)) and limits is not None and empty_us is not None:
            timed.append(
                BaselineCase(
                    label=case.label,
                    weight=case.weight,
                    mean_us=statistics.fmean(times),
                    median_us=statistics.median(times),
                    deviation_us=statistics.pstdev(times),
                    empty_us=empty_us,
                    floor_us=floor(card, case, bench.precision, limits).call_us(empty_us),
                )
            )
    return BaselineRecord(
        task=card.name,
        precision=bench.precision,
        right=judged.status is Status.CORRECT,
        cases=len(judged.cases) - len(skipped),
        skipped=skipped,
        detail=judged.detail if judged.status is not Status.CORRECT else "",
        seconds=monotonic() - started,
        worst_error=judged.worst_baseline_error,
        timed=tuple(timed),
    )


def failed(bench: Workbench, error: CudaMasterError, seconds: float = 0.0) -> BaselineRecord:
    """The result for a baseline that could not be checked."""
    return BaselineRecord(bench.card.name, bench.precision, False, 0, {}, str(error), seconds)


def naive(card: TaskCard, precision: Precision) -> str:
    """The paragraph "Naive" of the baseline's header, which says where its time goes."""
    head = card.baseline(precision).split("\n#include", 1)[0]
    found = re.search(r"^//\s+Naive\s+(.*?)(?=^//\s+[A-Z][a-z]+\s{2,}|\Z)", head, re.MULTILINE | re.DOTALL)
    return " ".join(re.sub(r"^//", " ", found[1], flags=re.MULTILINE).split()) if found else ""


def to_markdown(records: Sequence[BaselineRecord], cards: Mapping[str, TaskCard], about: Mapping[str, str]) -> str:
    """The table of times, with the reason for each baseline that takes more than SLOW times the floor."""
    lines = ["# Times of the baselines", ""]
    lines += [f"- {key}: {value}" for key, value in about.items()]
    lines += [
        "",
        "Times are means of whole calls at the heaviest case, in microseconds. The floor is the least that memory, "
        "arithmetic units and an empty launch allow. The last column weighs all timed cases as the score does.",
        "",
        "| task | precision | cases | heaviest case | time, µs | floor, µs | time / floor | over all |",
        "|---|---|--:|---|--:|--:|--:|--:|",
    ]
    for record in records:
        if not record.timed or record.over_floor is None:
            lines.append(f"| {record.task} | {record.precision} | {record.cases} | {record.detail} | | | | |")
            continue
        heaviest = max(record.timed, key=lambda case: case.weight)
        lines.append(
            f"| {record.task} | {record.precision} | {record.cases} | {heaviest.label} | {heaviest.mean_us:.1f} "
            f"| {heaviest.floor_us:.1f} | {heaviest.over_floor:.1f} | {record.over_floor:.1f} |"
        )
    slow = [record for record in records if any(case.over_floor > SLOW for case in record.timed)]
    if slow:
        lines += ["", f"## More than {SLOW} times the floor, and why", ""]
    for record in slow:
        worst = max(record.timed, key=lambda case: case.over_floor)
        lines.append(
            f"- {record.task} {record.precision}, {worst.over_floor:.0f} times at {worst.label}: "
            f"{naive(cards[record.task], record.precision)}"
        )
    return "\n".join(lines) + "\n"
