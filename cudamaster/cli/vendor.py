"""`cudamaster vendor`: vendors' libraries on the tasks, and our best kernels beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cudamaster.cli import options
from cudamaster.cli.output import console, print_json, say_speed, styled, table, working

if TYPE_CHECKING:
    from rich.text import Text

    from cudamaster.core.values import Candidate, Precision
    from cudamaster.vendor.comparison import Contest, ContestCase, VendorRecord

_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command()
@click.argument("tasks", nargs=-1)
@options.precisions
@click.option("--ours", type=click.Path(path_type=Path, exists=True), metavar="RESULTS",
              help="Runs, a suite or a saved report: also time the best kernel of each task, alone and against "
              "the library.")  # fmt: skip
@click.option("--sources", type=_FOLDER, metavar="FOLDER",
              help="Vendor files of your own, <task>[_bf16][.<library>].cu, instead of the "
              "built-in ones.")  # fmt: skip
@options.device
@click.option(
    "--calls", type=click.IntRange(2, options.MOST_CALLS), help="Timed calls per case; the device's protocol otherwise."
)
@click.option("--check-only", is_flag=True, help="Check the libraries at the verification sizes, and time nothing.")
@click.option("--save", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.json",
              help="Where to keep the measurement; written after each task. What it holds already of the same device, "
              "library and kernel is not measured again.")  # fmt: skip
@options.seed
@options.as_json
def vendor(
    tasks: tuple[str, ...],
    precision: str,
    ours: Path | None,
    sources: Path | None,
    device: str,
    calls: int | None,
    check_only: bool,
    save: Path | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Check and time vendors' libraries (cuBLAS, cuBLASLt, cuSPARSE, cuFFT, CUB) as if they were kernels of yours.

    Without TASKS, all that have one. Handles and work space are made outside the timed call; the head of each file in
    bench/vendor/ says what a call includes. The libraries need a GPU; what cannot run here is skipped with the reason.
    Exits with 1 if a library's call is not correct.
    """
    from cudamaster.core.errors import UsageError
    from cudamaster.core.values import BENCHMARK_PRECISIONS, Precision
    from cudamaster.core.writing import must_be_writable
    from cudamaster.devices.choose import choose
    from cudamaster.vendor import comparison, measuring

    if check_only and calls is not None:
        raise UsageError("With --check-only nothing is timed.", "Leave out --check-only or --calls.")
    if save is not None:
        must_be_writable(save, comparison.ANOTHER)
    chosen = choose(device)
    found = measuring.files(
        tasks, list(BENCHMARK_PRECISIONS) if precision == "both" else [Precision(precision)], sources
    )
    kernels = {} if ours is None else _ours(ours)
    if ours is not None and (bare := [f for f in found if (f.card.name, f.precision) not in kernels]):
        which = ", ".join(f"{file.card.name} {file.precision}" for file in bare)
        click.echo(f"{ours} has no kernel of ours for {which}.", err=True)
    work = measuring.Measurement(found, chosen, kernels, seed=seed, calls=calls, check_only=check_only)
    out = console()
    with working(f"Building {len(found)} vendor calls and their harnesses", hidden=as_json):
        work.build()
    records = work.run(
        save,
        lambda record: None if as_json else _show(record, emulated=chosen.emulated),
        lambda words: click.echo(words, err=True),
    )
    failed = [record for record in records if record.failed]
    skipped = [record for record in records if record.skipped is not None]
    if as_json:
        print_json(work.report)
    else:
        right = len(records) - len(failed) - len(skipped)
        out.print(f"{right} of {len(records)} vendor calls right, {len(failed)} not, {len(skipped)} skipped.")
        if save is not None:
            out.print(f"Wrote {save}.")
    click.get_current_context().exit(1 if failed else 0)


def _ours(path: Path) -> dict[tuple[str, Precision], Candidate]:
    """Our best kernels in results."""
    from cudamaster.core.errors import UsageError
    from cudamaster.report.best import best_kernels
    from cudamaster.report.loading import load

    report = load([path])
    if unread := sum(problem.serious for problem in report.problems):
        click.echo(f"{unread} results in {path} cannot be used; `cudamaster report {path}` says why.", err=True)
    if not (found := best_kernels(report)):
        raise UsageError(
            f"There is no kernel measured on a GPU in {path}.", "Give runs, a suite or a saved report with --ours."
        )
    return found


def _show(record: VendorRecord, *, emulated: bool) -> None:
    """One record for a person: P of the library and of our kernel, then the cases side by side."""
    out = console()
    name = f"{record.task} {record.precision}, {record.library} {record.version}".rstrip()
    if record.skipped is not None:
        out.print(f"{name}: skipped, {record.skipped}")
        return
    assert record.vendor is not None
    out.print(f"{name}: ", styled(record.vendor.status), f", {record.vendor.detail}", sep="")
    for label, detail in record.vendor.failing.items():
        out.print(f"  {label}: {detail}")
    if not record.vendor.failing and record.vendor.log:
        out.print(record.vendor.log)
    each = (("library", record.vendor), ("our kernel", record.ours), ("our kernel against the library", record.duel))
    for who, contest in each:
        if contest is None:
            continue
        if contest.speed is not None:
            incomplete = "" if contest.complete else ", incomplete: cases were skipped or have no time"
            out.print(f"  {who}: P = {say_speed(contest.speed, mark='emulated' if emulated else '')}{incomplete}")
        elif contest is not record.vendor:
            out.print(f"  {who}: {contest.status}, {contest.detail}")
        for note in contest.notes:
            out.print(f"  note: {note}")
    if record.vendor.cases:
        out.print(_cases(record))


def _cases(record: VendorRecord) -> object:
    """The timed cases: baseline, library, our kernel and the floor in microseconds, and the speedups."""
    columns = ["case", "µs: baseline", "library", "ours", "floor", "speedup: library", "ours", "ours / library"]
    ours, duel = _by_label(record.ours), _by_label(record.duel)
    rows: list[Sequence[str | Text]] = []
    assert record.vendor is not None
    for case in record.vendor.cases:
        beside, between = ours.get(case.label), duel.get(case.label)
        row: list[str | Text] = [case.label, _number(case.against_us, 1), _number(case.own_us, 1)]
        row += [_number(beside.own_us if beside else None, 1), _number(case.floor_us, 1)]
        row += [_speedup(case), _speedup(beside)]
        change = f" {between.speed.change}" if between and between.speed else ""
        rows.append([*row, f"{_speedup(between)}{change}"])
    return table(columns, rows, right=columns[1:])


def _by_label(contest: Contest | None) -> dict[str, ContestCase]:
    return {} if contest is None else {case.label: case for case in contest.cases}


def _speedup(case: ContestCase | None) -> str:
    return _number(case.speed.speedup if case and case.speed else None, 2)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
