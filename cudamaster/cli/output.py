"""What commands print: JSON for programs, tables for people, errors as one line with the fix."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudamaster.core.errors import CudaMasterError
from cudamaster.core.likelihood import in_percent
from cudamaster.view.invisible import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from cudamaster.core.speed import Comparison
    from cudamaster.core.values import GpuModel, Seconds, Verdict

# What a person calls the parts of `Seconds`.
_SECONDS = {
    "build": "building",
    "start": "starting processes",
    "check": "checking",
    "timing": "timing",
    "modelling": "modelling times",
    "waiting": "waiting for the device",
    "command": "loading this program",
    "rest": "all else",
}

# Until here Python has only computed.
_STARTED = time.monotonic() - time.process_time()
_LONG_S = 3.0  # a spinner counts seconds from here on

STATUS_STYLES = {
    "correct": "green",
    "wrong": "red",
    "fault": "red",
    "timeout": "red",
    "compile_error": "yellow",
    "rejected": "yellow",
    "unsupported": "cyan",
    "faster": "green",
    "slower": "red",
    "unsure": "yellow",
}


def console() -> Console:
    """The console for people, on stdout; plain text when that is no terminal, with room for tables.

    Markup is off, because models and compilers write square brackets. They may also write terminal control characters,
    so all text is escaped here and in `table`.
    """
    from rich.console import Console

    class Quiet(Console):
        """Raises BrokenPipeError if nobody reads any more; cudamaster.cli knows the exit code for that."""

        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*(visible(part) if isinstance(part, str) else part for part in objects), **options)

        def status(self, status: Any, **options: Any) -> Any:
            return super().status(Waiting(str(status)), **options)

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    if sys.stdout.isatty():
        return Quiet(highlight=False, markup=False)
    return Quiet(highlight=False, markup=False, soft_wrap=True, width=None if "COLUMNS" in os.environ else 120)


def print_to_copy(out: Console, *lines: str) -> None:
    """Lines with a command or a path. The terminal wraps them itself, so a copied line has no breaks in it."""
    for line in lines:
        out.print(line, soft_wrap=True)


class Waiting:
    """A spinner's text: how far a first build or the judge is, and for how long it has been running."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._began = time.monotonic()

    def __rich__(self) -> Text:
        from rich.text import Text

        from cudamaster.devices import cases, parts

        parts.shown()
        cases.shown()
        if (building := parts.progress()) is not None:
            return Text(visible(f"{self.text}; {building}"))
        judging, seconds = cases.progress(), time.monotonic() - self._began
        doing = [self.text, *([judging] if judging else [])]
        so_far = [f"{seconds:.0f} s so far"] if judging or seconds >= _LONG_S else []
        return Text(visible(", ".join(["; ".join(doing), *so_far])))


@contextlib.contextmanager
def working(what: str, *, hidden: bool = False) -> Iterator[None]:
    """Shows a spinner with `what` inside the block, unless it is hidden."""
    with contextlib.nullcontext() if hidden else console().status(what):
        yield


@contextlib.contextmanager
def progress_of_cases(what: str) -> Iterator[None]:
    """Inside the block, report the judge's progress: a line on stderr now and then, if no spinner shows it."""
    from cudamaster.devices import cases

    with cases.reporting(what, _to_stderr):
        yield


def show_builds() -> None:
    """From now on, report a first build's progress: a line on stderr now and then, if no spinner shows it."""
    from cudamaster.devices import parts

    parts.report = _to_stderr


def _to_stderr(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it; the work continues
        click.echo(visible(line), err=True)


def print_json(value: object) -> None:
    """One JSON object on stdout."""
    from cudamaster.core.records import to_json

    click.echo(json.dumps(to_json(value), indent=1))


def ourselves(*arguments: str) -> str:
    """A command of CUDAMaster that works when pasted, even if `cudamaster` is not on the PATH."""
    if shutil.which("cudamaster"):
        program = ["cudamaster"]
    elif Path(sys.argv[0]).name == "__main__.py":
        program = [sys.executable, "-m", "cudamaster"]
    else:
        program = [sys.argv[0]]
    return shlex.join([*program, *arguments])


def report_error(error: CudaMasterError, *, as_json: bool = False) -> None:
    """Print the error on one line of stderr: what and why, then what to do; with `as_json` on stdout too."""
    reason, fix = " ".join(error.reason.split()), " ".join(error.fix.split())
    if as_json:
        print_error(reason, fix, error.exit_code)
    click.echo(visible(f"error: {reason} {fix}"), err=True)


def print_error(reason: str, fix: str, exit_code: int) -> None:
    """An error as the one JSON object that a program waits for."""
    print_json({"error": {"reason": reason, "fix": fix, "exit_code": exit_code}})


def table(columns: Sequence[str], rows: Sequence[Sequence[str | Text]], right: Sequence[str] = ()) -> Table:
    """A plain rich table; the columns in `right` are aligned to the right."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(visible(cell) if isinstance(cell, str) else cell for cell in row))
    return made


def styled(status: str) -> Text:
    """A status in its colour."""
    from rich.text import Text

    return Text(str(status), style=STATUS_STYLES.get(status, ""))


def speed(score: float | None, *, mark: str) -> str:
    """A speedup for a table. `mark` is "modelled" or "emulated" if no GPU measured it."""
    return "-" if score is None else f"{score:.2f}{f' ({mark})' if mark else ''}"


def reach_of(comparison: Comparison | None, *, mark: str) -> str:
    """The interval of a modelled speedup behind it, e.g. " [0.98 to 1.68]"; empty for others, and if it has none."""
    if comparison is None or mark != "modelled" or comparison.interval.low == comparison.interval.high:
        return ""
    return f" [{_interval(comparison)}]"


def say_speed(comparison: Comparison, *, mark: str) -> str:
    """A speedup with its meaning, e.g. "1.21, faster (typical turn 1.19 to 1.22)"."""
    of = "by the model's known error" if mark == "modelled" else "typical turn"
    reach = f"{of} {_interval(comparison)}"
    if mark == "modelled" and comparison.interval.high == float("inf"):
        reach = "the model's error is not known"
    elif mark == "modelled" and comparison.chance is not None:
        reach = f"90 % interval {_interval(comparison)}; faster with a chance of {in_percent(comparison.chance)}"
    return f"{speed(comparison.speedup, mark=mark)}, {comparison.change.value} ({reach})"


def taken_in_a_word(*, accepted: bool, unsure: bool) -> str | Text:
    """Whether a round's kernel became the best so far; UNSURE where a model cannot tell the two apart."""
    from rich.text import Text

    if unsure:
        return Text("UNSURE", style="yellow")
    return "yes" if accepted else "no"


def score_column(mark: str) -> str:
    """Name of the column of P."""
    return f"P ({mark})" if mark else "P"


def about_times(model: GpuModel | None) -> str:
    """What the times of the CPU device mean."""
    if model is None:
        return "CPU device: results are checked, times are emulated and say nothing about a GPU."
    return f"CPU device: results are checked, P (modelled) is an estimate: {model.described}. No GPU measured it."


def only_a_gpu() -> str:
    """What to do about a correct kernel without P, if the reason is a case without a modelled time."""
    return "CPU device: results are checked; only a GPU can time this kernel. docs/gpu_model.md says why."


def _interval(comparison: Comparison) -> str:
    low, high = comparison.interval.low, comparison.interval.high
    return "not known" if high == float("inf") else f"{low:.2f} to {high:.2f}"


def why_incomplete(modelled: GpuModel | None) -> str:
    """What is wrong with the cases that a score lacks; `modelled` is the model that gave its times."""
    return "were skipped or have no time" if modelled is None else "have no modelled time"


def cases_table(verdict: Verdict, against: str = "baseline") -> Table:
    """Timed cases of a verdict, and others that failed or were skipped: times, the speedup and how sure it is.

    Times are in microseconds: medians, or the model's. Measured times also have the time on the device and the multiple
    of the floor. The last column is the worst error, as a fraction of what is allowed.
    """
    shown = [case for case in verdict.cases if case.sweep or case.skipped or case.status != "correct"]
    modelled = verdict.mark == "modelled"
    on_device = any(case.timing and case.timing.candidate_device_us for case in shown) or modelled
    floors = any(case.floor_us for case in shown)
    of = f"{verdict.mark} µs:\n" if verdict.mark else "µs: "
    columns = ["case", f"{of}{against} → candidate", "speedup", "change"]
    columns += ["on the device"] if on_device else []
    columns += ["bound by"] if modelled else []
    columns += ["of the floor"] if floors else []
    rows: list[list[str | Text]] = []
    for case in shown:
        times, comparison = case.times_us, case.speed
        label = case.label.replace(",", ", ")  # a narrow table breaks it there, not inside a name
        exact = "exact" if case.outputs else "-"  # a case that ended in a fault compared nothing
        error = exact if case.of_bound is None else f"{case.of_bound:.1%}"
        if times is None or comparison is None:
            left_out = f"skipped: {case.skipped}" if case.skipped else str(case.status or "not checked")
            why = f"no model: {case.not_modelled}" if case.not_modelled else left_out
            rows.append([label, why, *["-"] * (len(columns) - 2), error if case.status else "-"])
            continue
        row: list[str | Text] = [label, _pair(*times)]
        # On a line of its own: modelled times have more columns.
        low, high = comparison.interval.low, comparison.interval.high
        reach = f"\n{low:.2f}–{high:.2f}" if comparison.chance is not None else f" ({_interval(comparison)})"
        reach = "" if modelled and comparison.chance is None else reach
        refused = case.status if case.status not in (None, "correct") else None
        row += [f"{comparison.speedup:.2f}{reach}", styled(refused or comparison.change)]
        if case.modelled is not None:
            row += [_pair(case.modelled.baseline_device_us, case.modelled.candidate_device_us), case.modelled.bound]
        elif case.timing is not None and on_device:
            row.append(_both(case.timing.baseline_device_us, case.timing.candidate_device_us))
        if floors:
            row.append("-" if case.over_floor is None else f"{case.over_floor:.1f} x")
        rows.append([*row, f"not run: {case.skipped}" if case.skipped else error])
    columns.append("error/\nallowed" if modelled else "error/allowed")
    made = table(columns, rows, right=[column for column in columns[1:] if column not in ("change", "bound by")])
    made.columns[-1].max_width = 9 if modelled else None  # "not run: ..." takes no room from the sizes
    return made


def _both(baseline: Sequence[float], candidate: Sequence[float]) -> str:
    import statistics

    return _pair(statistics.median(baseline), statistics.median(candidate)) if baseline and candidate else "-"


def _pair(baseline_us: float, candidate_us: float) -> str:
    return f"{baseline_us:.1f} → {candidate_us:.1f}"


def say_seconds(seconds: Seconds) -> str:
    """What the time of a verdict went into: four parts always, others if they took a tenth of a second."""
    always = ("build", "start", "check", "timing")
    others = (part.name for part in fields(seconds) if part.name not in always)
    named = [*always, *(name for name in others if getattr(seconds, name) >= 0.05)]
    shares = ", ".join(f"{_SECONDS[name]} {getattr(seconds, name):.1f} s" for name in named)
    return f"Took {seconds.total:.1f} s: {shares}"


def seconds_since_start() -> float:
    """Seconds by the clock since this process was started, with the loading of Python and its modules."""
    return time.monotonic() - _STARTED
