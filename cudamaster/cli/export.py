"""`cudamaster export`: training sets from judged kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cudamaster.cli import options
from cudamaster.cli.output import console, ourselves, print_json, print_to_copy, table
from cudamaster.core.values import Precision

if TYPE_CHECKING:
    from cudamaster.core.values import Hardware
    from cudamaster.training.exporting import Exported
    from cudamaster.training.kernels import JudgedKernel

_PLAYBOOK = "playbook"
_FEW = 10
_MOST = 1000


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FOLDER",
              help="Folder of the sets: empty, or an earlier export, which is replaced.")  # fmt: skip
@click.option("--tasks", "tasks", multiple=True, metavar="GLOB",
              help="Take the kernels of these tasks alone; can be repeated.  [default: all]")  # fmt: skip
@click.option("--precision", type=options.PRECISIONS, default=options.BOTH, show_default="all", help="Element type.")
@click.option("--form", type=click.Choice(["full", "compact"]), default="full", show_default=True,
              help="Prompts as agents read them, as chat messages; or short plain text for small models.")  # fmt: skip
@click.option("--modelled", is_flag=True,
              help="Let in times of the CPU device, which a model of a GPU gave. Measured and modelled ones are never "
                   "compared.")  # fmt: skip
@click.option("--at-least", type=options.Number(0), default=1.0, show_default=True, metavar="P",
              help="Least speedup of a kernel in the set for supervised fine-tuning.")  # fmt: skip
@click.option("--best", type=click.IntRange(1), metavar="N",
              help="Take only the N best kernels of a task, precision and GPU there.  [default: all]")  # fmt: skip
@click.option("--pairs", type=click.IntRange(1, _MOST), default=4, show_default=True,
              help="Preference pairs in which a kernel is the rejected one, for each of the two reasons.")  # fmt: skip
@click.option("--prompts", type=click.IntRange(1, _MOST), default=8, show_default=True,
              help="Contrastive prompts of a task, precision and GPU.")  # fmt: skip
@click.option("--exemplars", type=click.IntRange(1, 20), default=2, show_default=True,
              help="Kernels that a contrastive prompt shows, of distinct buckets of score.")  # fmt: skip
@click.option("--hold-out", multiple=True, metavar="GLOB",
              help="Tasks to hold out, by name; can be repeated.")  # fmt: skip
@click.option("--hold-out-category", multiple=True, metavar="GLOB",
              help="Tasks to hold out, by category; can be repeated.")  # fmt: skip
@click.option("--near-copies", type=click.Choice(["leave-out", "refuse"]), default="leave-out", show_default=True,
              help="What to do about kernels that are near copies of held-out ones.")  # fmt: skip
@click.option("--similarity", type=options.Number(0.1, 1), show_default="0.7",
              help="From which part of common code on two kernels are near copies.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the draws of exemplars.")
@options.device
@options.as_json
def export(
    sources: tuple[str, ...],
    out: Path,
    tasks: tuple[str, ...],
    precision: str,
    form: str,
    modelled: bool,
    at_least: float,
    best: int | None,
    pairs: int,
    prompts: int,
    exemplars: int,
    hold_out: tuple[str, ...],
    hold_out_category: tuple[str, ...],
    near_copies: str,
    similarity: float | None,
    seed: int,
    device: str,
    as_json: bool,
) -> None:
    """Turn judged kernels into training sets that Hugging Face `datasets` reads, each row with its provenance.

    SOURCES are run folders, suites, saved reports, earlier exports, and folders of those. The word `playbook` judges
    the playbook's kernels now, for all fifty tasks or those of --tasks, on --device. Its verdicts are kept as they
    come, and the same command goes on after a kill. To judge it on several GPUs, run `cudamaster suite` and export
    that.

    Nothing that was refused, left out cases or has no measured time is an example to follow. What is in no set is
    counted, with the reason. Exits with 6 if there is no kernel at all.
    """
    from cudamaster.training import exporting
    from cudamaster.training.collecting import gather
    from cudamaster.training.exporting import HoldOut
    from cudamaster.training.formats import must_be_ours
    from cudamaster.training.prompts import Form
    from cudamaster.training.sets import Wanted
    from cudamaster.training.shingles import NEAR_COPY

    wanted = Wanted(Form(form), modelled, at_least, best or 0, pairs, prompts, exemplars, seed)
    apart = HoldOut(hold_out, hold_out_category, similarity or NEAR_COPY, near_copies == "refuse")
    precisions = tuple(Precision) if precision == options.BOTH else (Precision(precision),)
    must_be_ours(out)
    more: list[JudgedKernel] = []
    devices: dict[str, Hardware] = {}
    unread: list[str] = []
    if _PLAYBOOK in sources:
        more, devices, unread = _judged_now(tasks, precisions, device, out, quiet=as_json)
    paths = [Path(source) for source in sources if source != _PLAYBOOK]
    collected = gather(paths, tasks=tasks, precisions=precisions, more=more, devices=devices, unread=unread)
    done = exporting.export(collected, out, wanted, apart)
    if as_json:
        print_json(done)
    else:
        _print(done)


def _judged_now(
    tasks: tuple[str, ...], precisions: tuple[Precision, ...], device: str, out: Path, *, quiet: bool
) -> tuple[list[JudgedKernel], dict[str, Hardware], list[str]]:
    """The playbook's kernels, their device, and what could not be judged."""
    from cudamaster.library.subjects import choose_device
    from cudamaster.training import judged_playbook
    from cudamaster.training.kernels import gpu_of

    pairs = judged_playbook.chosen(tasks, precisions)
    with _progress(hidden=quiet) as told:
        judged = judged_playbook.judge(pairs, choose_device(device), out, told=told)
    hardware = judged.hardware
    return judged.kernels, {} if hardware is None else {gpu_of(hardware): hardware}, judged.unread


@contextmanager
def _progress(*, hidden: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Shows which kernel is judged: a line that changes on a terminal, otherwise one for each on stderr."""
    out = console()
    if hidden or not out.is_terminal:

        def say(what: str, done: int, of: int) -> None:
            click.echo(f"Judging {done + 1} of {of}: {what}", err=True)

        yield say
        return
    with out.status("Judging") as status:
        yield lambda what, done, of: status.update(f"Judging {done + 1} of {of}: {what}")


def _print(done: Exported) -> None:
    out = console()
    columns = ["set", "rows", *(["held out"] if done.held_out_tasks else [])]
    rows = []
    for name, count in (*done.rows.items(), ("kernels", done.kernels)):
        apart = done.held_out_kernels if name == "kernels" else done.held_out_rows[name]
        rows.append([name, str(count), *([str(apart)] if done.held_out_tasks else [])])
    out.print(table(columns, rows, right=columns[1:]))
    held_out = f"; held out: {', '.join(done.held_out_tasks)}" if done.held_out_tasks else ""
    of = "1 task" if len(done.tasks) == 1 else f"{len(done.tasks)} tasks"
    out.print(f"Of {of}{held_out}.")
    if done.left_out:
        out.print(
            table(
                ["left out, because", "kernels"], [[why, str(n)] for why, n in done.left_out.items()], right=["kernels"]
            )
        )
    for heading, lines in (("Not read", done.unread), ("To know", done.notes)):
        if lines:
            out.print(f"\n{heading}", style="bold")
        for line in lines[:_FEW]:
            out.print(f"- {line}")
        if len(lines) > _FEW:
            out.print(f"… {len(lines) - _FEW} more: {done.folder}/README.md")
    print_to_copy(out, f"Written to {done.folder}.", f"Next: {ourselves('train', 'sft', 'CONFIG')}")
