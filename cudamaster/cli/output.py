"""What commands print: JSON for programs, rich tables for people, errors as one line with the fix."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudamaster.errors import CudaMasterError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from cudamaster.speed import Comparison
    from cudamaster.values import Verdict

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

    Markup is off: what models and compilers write holds square brackets.
    """
    from rich.console import Console

    class Quiet(Console):
        """Leaves a reader that has gone to the command line, which knows the exit code."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    if sys.stdout.isatty():
        return Quiet(highlight=False, markup=False)
    return Quiet(highlight=False, markup=False, soft_wrap=True, width=None if "COLUMNS" in os.environ else 120)


def print_json(value: object) -> None:
    """One JSON object on stdout."""
    from cudamaster.records import to_json

    click.echo(json.dumps(to_json(value), indent=1))


def ourselves(*arguments: str) -> str:
    """A command line of ours that works when it is pasted, also where `cudamaster` is not on the path."""
    if shutil.which("cudamaster"):
        program = ["cudamaster"]
    elif Path(sys.argv[0]).name == "__main__.py":
        program = [sys.executable, "-m", "cudamaster"]
    else:
        program = [sys.argv[0]]
    return shlex.join([*program, *arguments])


def report_error(error: CudaMasterError, *, as_json: bool = False) -> None:
    """The error on one line of stderr: what and why, then what to do; with `as_json` on stdout too."""
    reason, fix = " ".join(error.reason.split()), " ".join(error.fix.split())
    if as_json:
        print_error(reason, fix, error.exit_code)
    click.echo(f"error: {reason} {fix}", err=True)


def print_error(reason: str, fix: str, exit_code: int) -> None:
    """An error as the one JSON object that a program waits for."""
    print_json({"error": {"reason": reason, "fix": fix, "exit_code": exit_code}})


def table(columns: Sequence[str], rows: Sequence[Sequence[str | Text]], right: Sequence[str] = ()) -> Any:
    """A plain rich table; the columns in `right` are aligned to the right."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def styled(status: str) -> Text:
    """A status in its colour."""
    from rich.text import Text

    return Text(str(status), style=STATUS_STYLES.get(status, ""))


def speed(score: float | None, *, emulated: bool) -> str:
    """A speedup for a table; an emulated one is marked, since it says nothing about a GPU."""
    return "-" if score is None else f"{score:.2f}{' (emulated)' if emulated else ''}"


def say_speed(comparison: Comparison, *, emulated: bool) -> str:
    """A speedup with what it amounts to, e.g. "1.21, faster (typical turn 1.19 to 1.22)"."""
    marked = speed(comparison.speedup, emulated=emulated)
    return f"{marked}, {comparison.change.value} (typical turn {_interval(comparison)})"


def _interval(comparison: Comparison) -> str:
    low, high = comparison.interval.low, comparison.interval.high
    return "not known" if high == float("inf") else f"{low:.2f} to {high:.2f}"


def cases_table(verdict: Verdict, against: str = "baseline") -> Any:
    """Timed cases of a verdict: median times in microseconds, the speedup and how sure it is.

    Where they were measured: times on the device, and the time as a multiple of the floor. Last the worst error, as a
    part of what is allowed.
    """
    sweep = [case for case in verdict.cases if case.sweep]
    on_device = any(case.timing and case.timing.candidate_device_us for case in sweep)
    floors = any(case.floor_us for case in sweep)
    columns = ["case", f"µs: {against} → candidate", "speedup", "change"]
    columns += ["on the device"] if on_device else []
    columns += ["of the floor"] if floors else []
    rows: list[list[str | Text]] = []
    for case in sweep:
        timing, comparison = case.timing, case.speed
        if timing is None or comparison is None:
            why = f"skipped: {case.skipped}" if case.skipped else str(case.status)
            rows.append([case.label, why, *["-"] * (len(columns) - 1)])
            continue
        row: list[str | Text] = [case.label, _both(timing.baseline_us, timing.candidate_us)]
        row += [f"{comparison.speedup:.2f} ({_interval(comparison)})", styled(comparison.change.value)]
        if on_device:
            row.append(_both(timing.baseline_device_us, timing.candidate_device_us))
        if floors:
            over = case.floor_us and _median(timing.candidate_us) / case.floor_us
            row.append(f"{over:.1f} x" if over else "-")
        parts = [o.worst_error / o.bound for o in case.outputs if o.bound]
        rows.append([*row, f"{max(parts):.1%}" if parts else "exact"])
    columns.append("error/allowed")
    return table(columns, rows, right=[column for column in columns[1:] if column != "change"])


def _both(baseline: Sequence[float], candidate: Sequence[float]) -> str:
    return f"{_median(baseline):.1f} → {_median(candidate):.1f}" if baseline and candidate else "-"


def _median(samples: Sequence[float]) -> float:
    import statistics

    return statistics.median(samples)
