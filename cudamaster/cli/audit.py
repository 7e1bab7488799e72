"""`cudamaster audit`: does a wrong kernel pass?"""

from __future__ import annotations

import fnmatch
import os
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from cudamaster.cli import options
from cudamaster.cli.output import console, print_json

if TYPE_CHECKING:
    from cudamaster.audit.corpus import Kind
    from cudamaster.cluster.auditing import ClusterAudit
    from cudamaster.cluster.fleet import Fleet

_ANOTHER = "Give another place with --save."


@click.command()
@click.argument("tasks", nargs=-1)
@options.of_suite
@options.precisions
@options.device
@options.ray
@click.option(
    "--kind",
    "patterns",
    multiple=True,
    metavar="GLOB",
    help="Kinds of kernels to try, by name; can be repeated.  [default: all]",
)
@click.option(
    "--sample",
    type=click.IntRange(1),
    metavar="N",
    help="Try each kind on N pairs of task and precision only, evenly spread and the same ones every time.",
)
@click.option("--list", "listed", is_flag=True, help="List the kinds and exit.")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, options.MOST_JOBS),
    help="Kernels to try at once; the number of CPU cores by default.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/audit.jsonl"),
    show_default=True,
    help="File of outcomes, one per line; kernels whose outcome it has are not tried again.",
)
@click.option("--save", type=click.Path(path_type=Path), help="Write the table to SAVE.md.")
@options.as_json
def audit(
    tasks: tuple[str, ...],
    of: str | None,
    precision: str,
    device: str,
    ray: str | None,
    patterns: tuple[str, ...],
    sample: int | None,
    listed: bool,
    jobs: int | None,
    out: Path,
    save: Path | None,
    as_json: bool,
) -> None:
    """Test the harness with dishonest and with unusual but honest kernels for TASKS, by default a whole suite.

    Shows which passed, which were refused, and by which check. Kinds that do not depend on the task are tried on five
    varied tasks. Tasks of a suite whose baseline is eager PyTorch are left out: they have no kernel to make dishonest.
    On the CPU device a whole audit takes hours, and --sample 5 takes 15 to 20 minutes on two cores. To
    continue a stopped audit, start it again. Exits with 1 if a dishonest kernel passed or gained anything, or if an
    honest one was refused.
    """
    from cudamaster.audit import corpus, running, table
    from cudamaster.core.errors import UsageError
    from cudamaster.core.writing import must_be_writable
    from cudamaster.devices.choose import choose

    kinds = _chosen(corpus.load(), patterns)
    if listed:
        _show(kinds, as_json=as_json)
        return
    wanted = options.cards_of(tasks, of)
    if eager := [card.name for card in wanted if card.is_eager]:
        why = "has a baseline in PyTorch, and an audit's kernels are made of a baseline in CUDA."
        wanted = [card for card in wanted if not card.is_eager]
        if tasks or not wanted:
            fix = "Leave it out, or give the task a kernel for its baseline."
            raise UsageError(f"{eager[0]} {why}", fix)
        for name in eager:
            click.echo(f"Left out: {name} {why}", err=True)
    pairs = [(card, each) for card in wanted for each in options.precisions_of(card, precision)]
    fleet = options.fleet_at(ray, device)
    spread = None if fleet is None else _spread(fleet)
    chosen = choose(device) if spread is None else spread.device
    if save is not None:
        must_be_writable(_table(save), _ANOTHER)
    log = running.Log(out)
    subjects = [running.Subject(card, each, chosen) for card, each in pairs]
    started = monotonic()
    with _progress(console(), hidden=as_json) as progress:
        whole = running.plan(kinds, subjects, everywhere=bool(tasks) or not all(card.of_benchmark for card in wanted))
        work = running.sample(whole, sample) if sample else whole
        bar = progress.add_task("candidates", total=len(work))

        def report(outcome: Any, new: bool) -> None:
            if new:
                log.add(outcome)
            progress.advance(bar)

        most = (os.cpu_count() or 1) if fleet is None else min(fleet.jobs, options.MOST_JOBS)
        more = () if fleet is None or spread is None else (spread.outcomes, fleet.close)
        outcomes = running.run(work, log.known, jobs or most, report, *more)
    wrong = table.unexpected(kinds, outcomes)
    hardware = choose(device).hardware() if spread is None else spread.device.hardware
    about = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "device": hardware.name,
        "tasks": f"{len(wanted)} in {' and '.join(dict.fromkeys(subject.precision for subject in subjects))}",
        **({"sample": _sampled(sample, len(work), len(whole), outcomes)} if sample else {}),
        "seconds": f"{monotonic() - started:.0f}",
    }
    if save is not None:
        _write(_table(save), table.to_markdown(kinds, outcomes, about))
    if as_json:
        print_json({"about": about, "outcomes": outcomes, "unexpected": wrong})
    else:
        _print(kinds, outcomes, wrong, out)
    click.get_current_context().exit(1 if wrong else 0)


def _spread(fleet: Fleet) -> ClusterAudit:
    """The audit on a cluster, which says what goes wrong there."""
    from cudamaster.cluster.auditing import ClusterAudit

    spread = ClusterAudit(fleet, lambda line: click.echo(f"Note: {line}", err=True))
    for other in spread.left_out:
        click.echo(f"Note: {other} is left out: an audit is of one model of GPU.", err=True)
    return spread


def _sampled(each: int, planned: int, whole: int, outcomes: Any) -> str:
    """What of a whole audit was tried. What is no cheat is in every sample."""
    from cudamaster.audit.outcomes import Result

    no_cheat = sum(one.result is Result.NO_CHEAT for one in outcomes)
    pairs = "1 pair" if each == 1 else f"{each} pairs"
    tried = f"{planned - no_cheat} of {whole - no_cheat} candidates"
    return f"each kind on {pairs} of task and precision, or on all where it has fewer: {tried} tried"


def _chosen(kinds: tuple[Kind, ...], patterns: tuple[str, ...]) -> list[Kind]:
    from cudamaster.core.errors import UsageError, nearest

    for pattern in patterns:
        if not any(fnmatch.fnmatch(kind.name, pattern) for kind in kinds):
            fix = nearest(pattern, [kind.name for kind in kinds], "`cudamaster audit --list` shows them.")
            raise UsageError(f"No kind is named {pattern!r}.", fix)
    return [kind for kind in kinds if not patterns or any(fnmatch.fnmatch(kind.name, one) for one in patterns)]


def _show(kinds: list[Kind], *, as_json: bool) -> None:
    from cudamaster.cli.output import table

    if as_json:
        print_json(
            [{"name": kind.name, "title": kind.title, "expect": kind.expect, "group": kind.group} for kind in kinds]
        )
    else:
        console().print(table(["name", "what it does", "has to be"], [[k.name, k.title, k.expect] for k in kinds]))


def _progress(out: Any, *, hidden: bool) -> Any:
    from rich import progress

    shown = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    return progress.Progress(*shown, console=out, disable=hidden, transient=True)


def _print(kinds: list[Kind], outcomes: Any, wrong: Any, out: Path) -> None:
    from cudamaster.audit import table
    from cudamaster.cli.output import table as printed

    show = console()
    show.print(printed(table.COLUMNS, table.rows(kinds, outcomes), right=table.COLUMNS[1:5]))
    show.print(table.sentence(kinds, outcomes))
    for one in wrong:
        show.print(f"should not be: {one.kind}, {one.task} {one.precision}: {table.describe(one)}")
    show.print(f"Outcomes: {out}")


def _table(save: Path) -> Path:
    return save.with_name(f"{save.name}.md")


def _write(path: Path, text: str) -> None:
    from cudamaster.core.errors import unwritable
    from cudamaster.core.writing import write_text

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except OSError as error:
        raise unwritable(path, error, _ANOTHER) from error
