"""`cudamaster metrics`: shows a set of Nsight Compute metrics, or chooses one from measured kernels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cudamaster.cli import options
from cudamaster.cli.output import console, ourselves, print_json

if TYPE_CHECKING:
    from cudamaster.profiling.selection import Recurrence, Selection, Task, TaskChoice

_SIZE_LIMIT = 64 * 2**20  # all metrics of a hundred kernels take some 10 MB


@click.group(cls=options.Group)
def metrics() -> None:
    """Sets of Nsight Compute metrics: show one, or choose one from measured kernels."""


@metrics.command()
@click.argument("name")
@options.as_json
def show(name: str, as_json: bool) -> None:
    """Show the metric set NAME: one that ships, such as cudaforge24, or the path of a file."""
    from cudamaster.profiling import metric_sets

    found = metric_sets.load(name)
    if as_json:
        print_json({"name": name, "metrics": found.metrics, "meanings": found.meanings})
        return
    out = console()
    for metric, stand_ins in found.metrics.items():
        out.print(metric, style="bold")
        if meaning := found.meanings.get(metric):
            out.print(f"    {meaning}")
        for stand_in in stand_ins:
            out.print(f"    or {stand_in}")
    out.print(
        f'{len(found.metrics)} metrics. Where a chip does not list one, the next after an "or" is taken, under its own '
        "name; a metric that has none is absent there, not zero."
    )


@metrics.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option(
    "--tasks-at-least",
    type=click.IntRange(min=1),
    help="Number of tasks in whose top a metric has to be.  [default: more than half]",
)
@click.option("--out", type=click.Path(path_type=Path), help="File to write the set to, for --metrics.")
@options.as_json
def select(files: tuple[Path, ...], tasks_at_least: int | None, out: Path | None, as_json: bool) -> None:
    """Choose the metrics that correlate with the run time in most tasks, as CudaForge does.

    Each FILE is a CSV of one task, named after it: a row per correct kernel, with the columns kernel, time_us and one
    per metric, by Nsight Compute's name. The command takes each task's five fastest and five slowest kernels, and the
    20 metrics that correlate most with the run time without repeating each other. It chooses those that are among these
    20 in enough tasks, always with the same sign.
    """
    from cudamaster.core.errors import UsageError
    from cudamaster.profiling import selection

    found = selection.select([_read(file) for file in files], tasks_at_least)
    if out is not None:
        if not found.chosen:
            raise UsageError(
                f"No metric correlates with the run time in {found.tasks_at_least} of {len(files)} tasks: no set.",
                "Ask for fewer tasks with --tasks-at-least, or leave out --out to see what each task has.",
            )
        _write(out, found, files)
    if as_json:
        print_json(found)
        return
    _print(found)
    if out is not None:
        click.echo(f"Wrote {out}. Next: {ourselves('metrics', 'show', str(out))}")


def _read(file: Path) -> Task:
    from cudamaster.core.errors import UsageError
    from cudamaster.profiling import selection

    fix = "Give the path of a CSV file."
    try:
        with file.open("rb") as opened:
            raw = opened.read(_SIZE_LIMIT + 1)  # not all of it: a device file has no end
    except OSError as error:
        raise UsageError(f"The table {file} cannot be read: {error.strerror}.", fix) from error
    if len(raw) > _SIZE_LIMIT:
        raise UsageError(f"The table {file} is larger than {_SIZE_LIMIT // 2**20} MiB.", fix)
    try:
        return selection.parse(file.stem, raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UsageError(f"The table {file} is not text.", fix) from error


def _write(out: Path, found: Selection, files: Sequence[Path]) -> None:
    from cudamaster.core.errors import UsageError, unwritable
    from cudamaster.core.writing import write_text
    from cudamaster.profiling import metric_sets

    if any(out.exists() and out.samefile(file) for file in files):
        raise UsageError(f"{out} holds measured kernels.", "Write the set to another file.")
    comment = [
        f"Chosen by `cudamaster metrics select` from {', '.join(choice.task for choice in found.tasks)}:",
        f"in the top {found.top} of at least {found.tasks_at_least} of {len(found.tasks)} tasks, with one sign.",
        "Pearson's r with the run time:",
        *(f"{each.metric}: {_by_task(each)}" for each in found.chosen),
    ]
    try:
        write_text(out, metric_sets.to_yaml([each.metric for each in found.chosen], comment))
    except OSError as error:
        raise unwritable(out, error, "Give another file with --out.") from error


def _print(found: Selection) -> None:
    from cudamaster.profiling.selection import FASTEST, MetricOutcome

    out = console()
    for choice in found.tasks:
        times = [sampled.time_us for sampled in choice.sample]
        fast, slow = times[:FASTEST], times[FASTEST:]
        out.print(
            f"{choice.task}: {len(times)} of {choice.kernels} kernels, {fast[0]:.4g} to {fast[-1]:.4g} µs and "
            f"{slow[0]:.4g} to {slow[-1]:.4g} µs; {len(choice.metrics)} metrics: {_fates(choice)}"
        )
    if found.chosen:
        names = [choice.task for choice in found.tasks]
        # No table of rich's, which breaks names that are to be copied.
        widths = [max(len(name), len("+0.000")) for name in names]
        cells = ["mean |r|", *(name.rjust(width) for name, width in zip(names, widths, strict=True))]
        out.print("  ".join(["", *cells, "metric"]), style="bold")
        for each in found.chosen:
            by_task = [_r(each.r.get(name)).rjust(width) for name, width in zip(names, widths, strict=True)]
            out.print("  ".join(["", f"{each.mean_abs_r:8.3f}", *by_task, each.metric]))
    of = f"in the top {found.top} of at least {found.tasks_at_least} of {len(found.tasks)} tasks"
    out.print(f"Chosen: {len(found.chosen) or 'none'}, {of} with one sign; r is Pearson's, with the run time.")
    for each in found.others:
        if each.outcome is MetricOutcome.SIGNS_DIFFER:
            out.print(f"Signs differ: {each.metric} ({_by_task(each)})")
    # Near copies: what one task keeps another may have dropped for its twin.
    for each in found.others:
        if each.outcome is MetricOutcome.TOO_FEW and len(each.r) + len(each.twins) >= found.tasks_at_least:
            twins = ", ".join(f"{twin} in {task}" for task, twin in each.twins.items())
            out.print(f"In too few: {each.metric} ({_by_task(each)}); dropped for {twins}")


def _fates(choice: TaskChoice) -> str:
    return ", ".join(f"{count} {fate}" for fate, count in sorted(choice.counts.items(), key=lambda item: -item[1]))


def _by_task(recurrence: Recurrence) -> str:
    return ", ".join(f"{task} {_r(r)}" for task, r in recurrence.r.items())


def _r(r: float | None) -> str:
    return "" if r is None else f"{r:+.3f}"
