"""What commands print: JSON for programs, rich tables for people, errors as one line with the fix."""

from __future__ import annotations

import json
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

    from cudamaster.values import Verdict

STATUS_STYLES = {
    "correct": "green",
    "wrong": "red",
    "fault": "red",
    "timeout": "red",
    "compile_error": "yellow",
    "rejected": "yellow",
    "unsupported": "cyan",
}


def console() -> Console:
    """The console for people, on stdout; plain text when that is no terminal.

    Markup is off: what models and compilers write holds square brackets.
    """
    from rich.console import Console

    class Quiet(Console):
        """Leaves a reader that has gone to the command line, which knows the exit code."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Quiet(highlight=False, markup=False, soft_wrap=not sys.stdout.isatty())


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
        number = column in right
        made.add_column(column, justify="right" if number else "left", overflow="fold", no_wrap=number)
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


def cases_table(verdict: Verdict) -> Any:
    """Timed cases of a verdict: times in microseconds, speedup, worst error against its bound."""
    import statistics

    rows = []
    for case in verdict.cases:
        if not case.sweep:
            continue
        if case.skipped:
            rows.append([case.label, "-", "-", "-", "-", f"skipped: {case.skipped}"])
            continue
        worst = max((o.worst_error for o in case.outputs), default=0.0)
        bound = max((o.bound for o in case.outputs), default=0.0)
        error = f"{worst:.1e} of {bound:.1e}" if bound else "exact"
        if case.timing is None:
            rows.append([case.label, "-", "-", "-", "-", str(case.status)])
            continue
        baseline, candidate = (
            statistics.median(case.timing.baseline_us),
            statistics.median(case.timing.candidate_us),
        )
        quartiles = statistics.quantiles(times, n=4) if len(times := case.timing.candidate_us) > 1 else None
        rows.append(
            [
                case.label,
                f"{baseline:.1f}",
                f"{candidate:.1f}",
                f"{quartiles[2] - quartiles[0]:.1f}" if quartiles else "-",
                f"{case.timing.speedup:.2f}",
                error,
            ]
        )
    columns = ["case", "baseline µs", "candidate µs", "IQR µs", "speedup", "error of allowed"]
    return table(columns, rows, right=columns[1:5])
