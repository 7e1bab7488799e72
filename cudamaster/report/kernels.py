"""One page for readers of kernels: the best of each task beside its baseline, what binds it, and how it got there.

All of it is read from results: codes, P and its interval, times, what Nsight Compute said, the rounds. The one thing
from elsewhere is why a step of the playbook should help, which stands in the step's own file.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from cudamaster.core import resources
from cudamaster.core.errors import CudaMasterError, UsageError
from cudamaster.core.speed import CONFIDENCE
from cudamaster.core.values import BENCHMARK_PRECISIONS, Precision
from cudamaster.models.playbook import NAME as PLAYBOOK
from cudamaster.report import at_floor, highlighting
from cudamaster.report.data import CaseResult, HardwareView, Report, RoundResult, TaskResult
from cudamaster.report.headline import figure, headline
from cudamaster.report.speed_figures import heaviest
from cudamaster.runs import playbooks
from cudamaster.view import pages

NOT_PROFILED = "not profiled"
_EXPONENT = re.compile(r"\b\d(?:\.\d+)?e[+-]?\d+\b")


@dataclass(frozen=True)
class _Bound:
    """What bounds a kernel, or that it was not profiled; the throughputs that decided it, and their source."""

    kernel: str
    by: str
    source: str
    shares: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class _Step:
    """A round, with the reason that the playbook's file gives for its idea; empty for other authors."""

    round: RoundResult
    outcome: str
    why: str


@dataclass(frozen=True)
class _Entry:
    """A task in one precision; `result` is None where it has none, and `why` says so."""

    name: str
    task: str
    precision: Precision
    result: TaskResult | None
    why: str
    binds: _Bound
    bounds: tuple[_Bound, ...] = ()
    steps: tuple[_Step, ...] = ()
    case: CaseResult | None = None
    baseline: Markup | None = None
    best: Markup | None = None


def page(report: Report) -> str:
    """The text of the page. Raises UsageError where no kernel was measured on a GPU."""
    best = _best(report)
    if not best:
        raise UsageError(
            "No kernel of these results was measured on a GPU.", "Name results of one, or take --html in its place."
        )
    folder = resources.package() / "view/pages"
    script = (folder / "report.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        pages.environment()
        .get_template("kernels.html.j2")
        .render(
            devices=sorted({result.hardware.name for result in best.values()}),
            dates=sorted({result.started[:10] for result in best.values() if result.started}),
            sentences=headline(report),
            entries=_entries(report, best),
            css=Markup((folder / "report.css").read_text("utf-8")),
            own_css=Markup((folder / "kernels.css").read_text("utf-8")),
            script=Markup(script),
            script_hash=f"sha256-{digest}",
            figure=figure,
            at_floor=at_floor.at_floor,
            at_floor_means=at_floor.MEANING,
            confidence=CONFIDENCE,
            inf=math.inf,
        )
    )


def _best(report: Report) -> dict[tuple[str, Precision], TaskResult]:
    """Of each task and precision the result with the highest P, of those that a GPU measured; else one without a P."""
    found: dict[tuple[str, Precision], TaskResult] = {}
    for result in report.measured:
        key = (result.task, result.precision)
        if key not in found or (result.score or 0.0) > (found[key].score or 0.0):
            found[key] = result
    return found


def _entries(report: Report, best: dict[tuple[str, Precision], TaskResult]) -> list[_Entry]:
    """All tasks of the benchmark in all precisions that there are results of, by name."""
    lost = {(one.task, one.precision): one.why for one in report.missing}
    precisions = sorted({key[1] for key in (*best, *lost)}, key=list(Precision).index)
    tasks = sorted({*report.benchmark, *(task for task, _ in best)})
    whys = _Whys()
    return [
        _entry(best[task, precision], whys)
        if (task, precision) in best
        else _missing(task, precision, lost.get((task, precision), "There is no result of it."))
        for task in tasks
        for precision in precisions
        if (task, precision) in best or precision in BENCHMARK_PRECISIONS or (task, precision) in lost
    ]


def _missing(task: str, precision: Precision, why: str) -> _Entry:
    return _Entry(f"{task}_{precision.value}", task, precision, None, why, _Bound("", NOT_PROFILED, ""))


def _entry(result: TaskResult, whys: _Whys) -> _Entry:
    bounds = [_bound("the baseline", result.before)]
    if result.best is not None:
        bounds.append(_bound("the best kernel", result.after))
    return _Entry(
        result.name,
        result.task,
        result.precision,
        result,
        "",
        bounds[0 if result.kept_baseline else -1],
        tuple(bounds),
        tuple(_step(one, whys.of(result, one)) for one in result.rounds if begun(one)),
        heaviest(result),
        highlighting.code(result.baseline.code) if result.baseline is not None else None,
        highlighting.code(result.best.code) if result.best is not None else None,
    )


def _bound(kernel: str, view: HardwareView | None) -> _Bound:
    """The class with the throughputs that decided it: those that reach their limit count as high."""
    if view is None or view.bottleneck is None:
        return _Bound(kernel, NOT_PROFILED, plain(view.note) if view is not None else "")
    shares: Sequence[tuple[str, float]] = ()
    if (reached := view.throughputs) is not None:
        shares = (("compute", reached.compute), ("memory", reached.memory), ("DRAM", reached.dram))
    share = f"{view.kernel}, {view.time_share:.0%} of the time; " if view.time_share is not None and view.kernel else ""
    limits = view.limits
    by = ""
    if limits is not None:
        each = {"compute": limits.compute, "memory": limits.memory, "DRAM": limits.dram}
        above = " and ".join(f"{name} {limit:g} %" for name, limit in each.items())
        if len(set(each.values())) == 1:
            above = f"{limits.compute:g} %"
        by = f" A share counts as high above {above} (thresholds: {limits.source})."
    return _Bound(kernel, view.bottleneck.value, share + plain(view.note) + by, tuple(shares))


def begun(done: RoundResult) -> bool:
    """Whether a round has an idea or a kernel: where a model has no further idea, the search ends in one without."""
    return done.idea is not None or done.status is not None


def _step(done: RoundResult, why: str) -> _Step:
    status = "not judged" if done.status is None else done.status.value.replace("_", " ")
    taken = "the new best" if done.accepted else "not kept"
    return _Step(done, f"P = {figure(done.score)}, {taken}" if done.score is not None else f"{status}, {taken}", why)


class _Whys:
    """The reasons of the playbook's steps, read once for each task."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Precision], dict[str, str]] = {}

    def of(self, result: TaskResult, done: RoundResult) -> str:
        """Why a round's idea should help; empty if the idea is not from the playbook, or no longer in it."""
        key = (result.task, result.precision)
        if PLAYBOOK not in result.models.values():
            return ""
        if key not in self._known:
            try:
                steps = playbooks.playbook().steps(result.task, result.precision.value)
            except CudaMasterError:  # a task that it has nothing for
                steps = ()
            self._known[key] = {step.idea: step.why for step in steps}
        return self._known[key].get(done.idea or "", "")


def plain(text: str) -> str:
    """Numbers as people write them: of "1.525e+04" "15,250"."""
    return _EXPONENT.sub(lambda found: f"{float(found[0]):,.6g}" if abs(float(found[0])) < 1e6 else found[0], text)
