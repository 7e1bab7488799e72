"""`cudamaster baselines` and `cudamaster harness`: the benchmark without the agents."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import click

from cudamaster.cli import options
from cudamaster.cli.output import console, print_json, styled
from cudamaster.library.kernel_file import read_kernel

if TYPE_CHECKING:
    from cudamaster.tasks.cards import TaskCard
    from cudamaster.workbench.baselines import BaselineRecord
    from cudamaster.workbench.evaluation import Workbench
    from cudamaster.workbench.floors import GpuLimits

_ANOTHER = "Give another place with --save."
_ENDINGS = (".json", ".md")


@click.command()
@click.argument("tasks", nargs=-1)
@options.of_suite
@options.precisions
@options.device
@click.option("--calls", type=click.IntRange(0, options.MOST_CALLS), default=0, show_default=True,
              help="Timed calls per case; 0 only checks. Needs a GPU.")  # fmt: skip
@click.option("--save", type=click.Path(path_type=Path), help="Write times and table to SAVE.json and SAVE.md.")
@options.seed
@options.as_json
def baselines(
    tasks: tuple[str, ...],
    of: str | None,
    precision: str,
    device: str,
    calls: int,
    save: Path | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Check baselines against their double-precision references; with --calls, time them.

    Without TASKS, those of the suite, which is MSKernelBench if none is named. On a GPU every case is run, on the CPU
    device the verification cases, under a memory checker. A task of a --suite that cannot be used counts as one that
    failed. Exits with 1 when one fails.
    """
    from cudamaster.core.errors import CardError, UsageError
    from cudamaster.core.writing import must_be_writable
    from cudamaster.devices.choose import choose
    from cudamaster.tasks import cards
    from cudamaster.workbench import floors
    from cudamaster.workbench.baselines import check, failed
    from cudamaster.workbench.evaluation import Workbench

    named: list[TaskCard] = []
    unusable: list[CardError] = []
    for source in options.sources_of(tasks, of):  # all of them before the first one runs
        try:
            named.append(cards.load(source))
        except CardError as error:
            if of is None:
                raise
            unusable.append(error)
    chosen = choose(device)
    if calls and chosen.emulated:
        raise UsageError("Baselines cannot be timed on the CPU device.", "Leave out --calls, or use a GPU.")
    if save is not None and not calls:
        raise UsageError("--save writes times, but nothing is timed.", "Add --calls 20, say.")
    if save is not None and len(suites := sorted({card.suite for card in named})) > 1:
        raise UsageError(f"These are tasks of {' and '.join(suites)}.", "Save each suite's table by itself.")
    if save is not None:
        for ending in _ENDINGS:
            must_be_writable(save.with_name(f"{save.name}{ending}"), _ANOTHER)
    out = console()
    benches = [
        Workbench(card, each, chosen, seed=seed) for card in named for each in options.precisions_of(card, precision)
    ]
    started = monotonic()
    # On a GPU all are built before the first runs: compilers running meanwhile would disturb the times.
    building = _build(benches, wait=not chosen.emulated, quiet=as_json)
    built_s = monotonic() - started
    limits = floors.limits(chosen, say=lambda words: click.echo(words, err=True)) if calls else None
    about = {
        "device": chosen.hardware().name,
        **chosen.hardware().figures,
        "date": datetime.now(UTC).date().isoformat(),
    }
    if limits is not None:
        about["timed calls per case"] = str(calls)
        about["measured read bandwidth"] = f"{limits.read_bytes_per_s / 1e12:.2f} TB/s"
        about["measured write bandwidth"] = f"{limits.write_bytes_per_s / 1e12:.2f} TB/s"
        about["limits measured"] = limits.date
    if unusable:
        about["cards that cannot be used"] = str(len(unusable))
    for reason in unusable if not as_json else ():
        out.print(styled("failed"), f"  {reason}", sep="")
    records: list[BaselineRecord] = []
    for bench, ready in zip(benches, building, strict=True):
        try:
            ready.result()
            records.append(check(bench, calls, limits))
        except CardError as error:  # a file of the task is missing
            if of is None:
                raise
            records.append(failed(bench, error))
        about["seconds"] = f"{monotonic() - started:.0f} in all, {built_s:.0f} of them building"
        if save is not None:  # after every one: a run that is stopped keeps what it has
            _save(save, about, limits, records, {card.name: card for card in named})
        if not as_json:
            out.print(styled("correct" if records[-1].right else "wrong"), f"  {_line(records[-1])}", sep="")
    right = sum(record.right for record in records)
    if as_json:
        said = {"unusable": [str(error) for error in unusable]} if unusable else {}
        print_json({"device": chosen.name, "about": about, "limits": limits, "baselines": records, **said})
    else:
        cards_too = f"; cards that cannot be used: {len(unusable)}" if unusable else ""
        out.print(
            f"{right} of {len(records)} baselines right on the {chosen.name} device; "
            f"seconds: {about.get('seconds', '0')}{cards_too}"
        )
    click.get_current_context().exit(1 if unusable or right < len(records) else 0)


def _build(benches: Sequence[Workbench], *, wait: bool, quiet: bool) -> list[Future[None]]:
    """Start building all harnesses, a few at a time; with `wait`, until the last one is there."""
    from rich.progress import track

    pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="build")
    futures = [pool.submit(bench.build_baseline) for bench in benches]
    pool.shutdown(wait=False)
    if wait:
        done = as_completed(futures)
        for _ in done if quiet else track(done, "Building", total=len(futures), console=console(), transient=True):
            pass
    return futures


def _line(record: BaselineRecord) -> str:
    """One baseline for a person."""
    words = [f"{record.task} {record.precision}: {record.cases} cases, {record.seconds:.1f} s"]
    if record.over_floor is not None:
        words.append(f"{record.over_floor:.1f} times the floor")
    words += [f"{label} skipped: {reason}" for label, reason in record.skipped.items()]
    return "; ".join([*words, *([record.detail] if record.detail else [])])


def _save(
    stem: Path,
    about: Mapping[str, str],
    limits: GpuLimits | None,
    records: Sequence[BaselineRecord],
    cards: Mapping[str, TaskCard],
) -> None:
    from cudamaster.core.errors import unwritable
    from cudamaster.core.records import to_json
    from cudamaster.core.writing import write_text
    from cudamaster.workbench.baselines import to_markdown

    result = to_json({"about": about, "limits": limits, "baselines": records})
    texts = (json.dumps(result, indent=1) + "\n", to_markdown(records, cards, about))
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for ending, text in zip(_ENDINGS, texts, strict=True):
            write_text(stem.with_name(f"{stem.name}{ending}"), text)
    except OSError as error:
        raise unwritable(stem, error, _ANOTHER) from error


@click.command()
@click.argument("task")
@options.precision
@options.of_hgemm
@click.option("--region", type=click.Path(path_type=Path), help="File with a kernel to put into the region.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write; stdout by default.")
def harness(task: str, precision: str, region: Path | None, output: Path | None) -> None:
    """Print the test harness of TASK: one .cu with a marked region for your kernel; its first comment says how to build
    it."""
    from cudamaster.core import resources
    from cudamaster.core.errors import UsageError, unwritable
    from cudamaster.core.writing import write_text
    from cudamaster.judging import reference_process
    from cudamaster.tasks import cards
    from cudamaster.tasks.harness import render

    if output is not None and region is not None and output.exists() and output.samefile(region):
        raise UsageError(f"{output} holds your kernel.", "Write the harness to another file.")
    here = Path("bench")  # short inside the checkout, and still right anywhere else
    bench = here if here.is_dir() and here.samefile(resources.bench()) else resources.bench()
    card = cards.load(task)
    if card.is_eager:
        raise UsageError(
            f"The baseline of {card.name} is a module that PyTorch runs, which no file in CUDA can hold.",
            f"Use `cudamaster tasks {card.name} --skeleton` and `cudamaster evaluate {card.name} FILE`.",
        )
    one = options.precision_of(card, precision)
    candidate = read_kernel(region, card, one) if region else None
    text = render(card, one, candidate, bench=bench, file=output, reference=reference_process.command(card))
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        write_text(output, text)
    except OSError as error:
        raise unwritable(output, error, "Give another file with -o.") from error
    click.echo(f"Wrote {output}; its first lines have the command that builds it.")
