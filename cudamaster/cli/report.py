"""`cudamaster report`: results of runs, in the terminal, as a page, figures, CSV and JSON; and what B changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from cudamaster.cli import options
from cudamaster.cli.compare import EXIT_CODES
from cudamaster.cli.output import console, print_json, table
from cudamaster.view.invisible import visible

if TYPE_CHECKING:
    from rich.console import Console

    from cudamaster.report.comparing import Steps
    from cudamaster.report.data import Problem, Report
    from cudamaster.report.tables import Table

T = TypeVar("T")
_FEW = 20  # tasks that a terminal shows unless all are asked for
_FEW_NAMES = 10
_FEW_PROBLEMS = 10
_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("results", nargs=-1, required=True, metavar="RESULTS...", type=click.Path(path_type=Path))
@options.of_suite
@click.option("--html", type=_FILE, metavar="FILE", help="Write the report as one HTML page that needs no network.")
@click.option("--kernels", type=_FILE, metavar="FILE", help="Write one HTML page of the best kernels beside their "
              "baselines, with what bounds them and how they were found.")  # fmt: skip
@click.option("--csv", "csv_file", type=_FILE, metavar="FILE", help="Write one line for each task and precision.")
@click.option("--figures", type=_FOLDER, metavar="DIR", help="Draw the figures into DIR, as SVG and PDF.")
@click.option(
    "--compare",
    "against",
    is_flag=True,
    help="Compare two RESULTS, A and B: what got better, what got worse, what stayed the same.",
)
@click.option("--all", "every", is_flag=True, help="List every task in the terminal, not only the first and last.")
@options.as_json
def report(
    results: tuple[Path, ...],
    of: str | None,
    html: Path | None,
    kernels: Path | None,
    csv_file: Path | None,
    figures: Path | None,
    against: bool,
    every: bool,
    as_json: bool,
) -> None:
    """Summarise RESULTS: run folders, suites, folders of kept results, or folders of those.

    Damaged or partial results, and those of another version, are listed with the reason; the rest is reported.
    Emulated results of the CPU device are kept apart and have no speedup.

    A task is "at the floor" if, averaged over all sizes, baseline and kernel
    both take at most 1.2 times the floor: an empty launch plus the least time
    for the bytes and operations. No kernel could have a P above 1.2 there.

    \b
    Exit codes with --compare A B:
      0   same: no task changed by more than two runs of one kernel may differ
      10  faster: a task got faster, none slower, and B lost none
      11  slower: at least one task got slower
      12  unsure: neither, and at least one task is unclear or lost in B
    Without --compare 0, even if something could not be read, and 6 if nothing could.
    """
    from cudamaster.core.errors import RunFolderError, UsageError
    from cudamaster.report.loading import load

    if against:
        if html or kernels or csv_file or figures:
            raise UsageError("--compare writes no page, CSV or figures.", "Leave out one or the other.")
        _compare(results, of, as_json=as_json, every=every)
        return
    loaded = _of(load(results), of)
    if not loaded.results and not loaded.authorities:
        first = " ".join(problem.what for problem in loaded.problems[:_FEW_PROBLEMS])
        what = "wait for them or continue them with --resume" if loaded.missing else "name run folders or suites"
        raise RunFolderError(f"There is no result yet. {first}", f"To have some, {what}.")
    _write_files(loaded, html, kernels, csv_file, figures, quiet=as_json)
    if as_json:
        from cudamaster.report.export import as_json as exported

        print_json(exported(loaded))
    else:
        _print(console(), loaded, every=every)


def _of(loaded: Report, suite: str | None) -> Report:
    from cudamaster.report import one_suite

    return loaded if suite is None else one_suite.only(loaded, suite)


def _write_files(
    loaded: Report,
    html: Path | None,
    kernels: Path | None,
    csv_file: Path | None,
    figures: Path | None,
    *,
    quiet: bool,
) -> None:
    from cudamaster.core.writing import write_text

    def say(what: str) -> None:
        if not quiet:
            click.echo(what)

    best_kernels = None
    if kernels is not None:
        from cudamaster.report import kernels as kernel_page

        best_kernels = kernel_page.page(loaded)  # refuses results without a figure, before anything is written
    if csv_file is not None:
        from cudamaster.report.export import as_csv

        text = as_csv(loaded)
        _written(csv_file, lambda: write_text(csv_file, text), "--csv")
        say(f"Wrote {csv_file}.")
    if html is not None:
        from cudamaster.report import page

        _written(html, lambda: page.write(loaded, html), "--html")
        say(f"Wrote {html}; a browser opens it, without a network.")
    if kernels is not None and best_kernels is not None:
        _written(kernels, lambda: write_text(kernels, best_kernels, errors="backslashreplace"), "--kernels")
        say(f"Wrote {kernels}; a browser opens it, without a network.")
    if figures is not None:
        from cudamaster.report import figures as drawing

        made = _written(figures, lambda: drawing.draw(loaded, figures), "--figures")
        say(
            f"Drew the figures into {figures}."
            if made
            else "No figures: they show what a GPU measured, and no GPU measured these."
        )


def _written(place: Path, write: Callable[[], T], option: str) -> T:
    from cudamaster.core.errors import unwritable

    try:
        return write()
    except OSError as error:
        raise unwritable(place, error, f"Name another one with {option}.") from error


def _print(out: Console, loaded: Report, *, every: bool) -> None:
    from cudamaster.report import against_eager, tables
    from cudamaster.report.headline import headline

    for sentence in headline(loaded):
        out.print(visible(sentence))
    for shown in (*tables.overview(loaded), *against_eager.tables(loaded), *tables.classes(loaded)):
        _table(out, shown)
    for shown in tables.tasks(loaded):
        _tasks(out, shown, every=every)
    if (contest := tables.authorities(loaded)) is not None:
        _table(out, contest)
    if (apart := tables.disagreements(loaded)) is not None:
        _table(out, apart)
    _missing(out, loaded, every=every)
    _problems(out, loaded.problems, every=every)


def _table(out: Console, shown: Table) -> None:
    out.print(f"\n{visible(shown.title)}", style="bold")
    if shown.note:
        out.print(f"{visible(shown.note)}.", style="dim")
    rows = [[visible(cell) for cell in row] for row in shown.rows]
    made = table([visible(column) for column in shown.columns], rows, right=shown.right)
    made.columns[0].no_wrap = shown.columns[0] == "task"  # names are meant to be copied
    out.print(made)


def _tasks(out: Console, shown: Table, *, every: bool) -> None:
    """The first and the last of many."""
    from dataclasses import replace

    if every or len(shown.rows) <= _FEW:
        _table(out, shown)
        return
    half = _FEW // 2
    gap = (f"… {len(shown.rows) - _FEW} more: --all", *([""] * (len(shown.columns) - 1)))
    _table(out, replace(shown, rows=(*shown.rows[:half], gap, *shown.rows[-half:])))


def _missing(out: Console, loaded: Report, *, every: bool) -> None:
    from cudamaster.report.numbers import groups

    for group in groups(loaded, pooled=True):
        if group.missing:
            who = f"{group.model}; {group.configuration.described}; {group.hardware.name}"
            names = _names([one.name for one in group.missing], every=every)
            out.print(visible(f"\nMissing ({who}): {names}."))


def _names(names: Sequence[str], *, every: bool) -> str:
    """The first of many names."""
    if every or len(names) <= _FEW_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:_FEW_NAMES])} and {len(names) - _FEW_NAMES} more"


def _problems(out: Console, problems: tuple[Problem, ...], *, every: bool) -> None:
    for serious, heading in ((True, "Left out"), (False, "To know")):
        these = [problem for problem in problems if problem.serious is serious]
        if these:
            out.print(f"\n{heading}", style="bold yellow" if serious else "bold")
        shown = these if every else these[:_FEW_PROBLEMS]
        for problem in shown:
            out.print(visible(f"- {problem.what} {problem.fix}".rstrip()))
        if len(shown) < len(these):
            out.print(f"… {len(these) - len(shown)} more: --all")


def _compare(results: tuple[Path, ...], of: str | None, *, as_json: bool, every: bool) -> None:
    from cudamaster.core.errors import RunFolderError, UsageError
    from cudamaster.report.comparing import compare
    from cudamaster.report.loading import load

    if len(results) != 2:
        raise UsageError(f"--compare takes two RESULTS, not {len(results)}.", "Give it A and B.")
    first, second = (_of(load([path]), of) for path in results)
    for side, path in ((first, results[0]), (second, results[1])):
        if not side.results:
            why = " ".join(problem.what for problem in side.problems)
            raise RunFolderError(f"{path} holds no result that could be read. {why}", "Give two sides with results.")
    steps = compare(first, second)
    if as_json:
        print_json(steps)
    else:
        problems = tuple(dict.fromkeys((*first.problems, *second.problems)))
        _print_steps(console(), steps, problems, every=every)
    click.get_current_context().exit(EXIT_CODES[steps.change])


def _print_steps(out: Console, steps: Steps, problems: tuple[Problem, ...], *, every: bool) -> None:
    from cudamaster.core.speed import Change
    from cudamaster.report import tables
    from cudamaster.report.headline import figure

    counts = [f"{steps.count(change)} {change.value.upper()}" for change in Change]
    out.print(f"From A to B: {', '.join(counts)}; all together {steps.change.value.upper()}.")
    out.print(visible(f"A: {steps.first}"))
    out.print(visible(f"B: {steps.second}"))
    if steps.geometric_mean is not None:
        out.print(f"P of B over P of A: {figure(steps.geometric_mean)} in the geometric mean.")
    for note in steps.notes:
        out.print(visible(note))
    _tasks(out, tables.steps(steps), every=every)
    for side, names in (("A", steps.only_first), ("B", steps.only_second)):
        if names:
            out.print(visible(f"In {side} alone: {_names(names, every=every)}."))
    _problems(out, problems, every=every)
