"""`cudamaster import`: tasks of problems from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cudamaster.cli import options
from cudamaster.cli.output import console, ourselves, print_json, table, working
from cudamaster.core.errors import CudaMasterError

if TYPE_CHECKING:
    from rich.text import Text

    from cudamaster.kernelbench.writing import Imported


@click.group(name="import", cls=options.Group)
def import_() -> None:
    """Make tasks of problems from elsewhere."""


@import_.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--into", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER",
              help="The folder of tasks.  [default: as for `new`; with --suite, in the data folder]")  # fmt: skip
@click.option("--name", metavar="NAME", help="The task's name, of a single file; that of the file otherwise.")
@click.option("--suite", metavar="NAME", help="The suite's name; that of the folder otherwise.")
@click.option("--python", metavar="PROGRAM", help="A Python that has PyTorch, instead of the one that runs this.")
@click.option("--replace", is_flag=True, help="Write anew a task that the folder has already.")
@options.as_json
def kernelbench(
    files: tuple[Path, ...],
    into: Path | None,
    name: str | None,
    suite: str | None,
    python: str | None,
    replace: bool,
    as_json: bool,
) -> None:
    """Make a task of each problem in KernelBench's form: a module with Model, get_inputs and get_init_inputs.

    Each is run in a process of its own with your rights. Eager PyTorch is the baseline, the module in double precision
    the truth. Known faults of such problems are named. A file that makes no task is left out with the reason, and the
    command exits with the code of the first.
    """
    from cudamaster.core.errors import UsageError
    from cudamaster.kernelbench import problem, suite_folder, writing
    from cudamaster.tasks import folders

    if name is not None and len(files) > 1:
        raise UsageError("--name is for a single file.", "Leave out --name, or give one file.")
    folder = suite_folder.opened(into, suite)
    done: list[Imported] = []
    failed: list[tuple[Path, CudaMasterError]] = []
    for file in files:
        try:
            task = name or writing.task_name(file)
            folders.must_be_new(folder, task, replace=replace)
            with working(f"{file.name}: reading it with PyTorch", hidden=as_json):
                read = problem.read(file, python)
            done.append(writing.write(read, folder, task, folders.id_for(folder, task)))
        except CudaMasterError as error:
            failed.append((file, error))
    if as_json:
        print_json(
            {
                "folder": str(folder),
                "tasks": [_told(one) for one in done],
                "left_out": [
                    {"file": str(file), "reason": why.reason, "fix": why.fix, "exit_code": why.exit_code}
                    for file, why in failed
                ],
            }
        )
    else:
        _show(folder, done)
        if done and python is not None:
            click.echo(f"Set CUDAMASTER_PYTHON={python} for the commands that run them.")
        for _, why in failed:
            click.echo(f"error: {why}", err=True)
    click.get_current_context().exit(failed[0][1].exit_code if failed else 0)


def _told(one: Imported) -> dict[str, object]:
    precision = one.card.precisions[0]
    return {
        "task": one.card.name,
        "file": str(one.file),
        "card": str(one.path),
        "precision": precision.value,
        "declaration": one.card.declaration(precision),
        "sizes": {name: value for name, value in one.card.sizes.items() if name not in one.card.fixed},
        "faults": [{"kind": fault.kind, "words": fault.words} for fault in one.faults],
    }


def _show(folder: Path, done: list[Imported]) -> None:
    out = console()
    if not done:
        return
    rows: list[list[str | Text]] = []
    for one in done:
        vary = [name for name in one.card.sizes if name not in one.card.fixed]
        faults = "; ".join(fault.words for fault in one.faults)
        rows.append([one.card.name, one.card.precisions[0].value, ", ".join(vary) or "none", faults or "none found"])
    out.print(table(["task", "precision", "sizes that vary", "known faults"], rows))
    out.print(f"Written to {folder}.")
    card = str(done[0].path)
    click.echo(f"Next: {ourselves('tasks', card, '--skeleton')} > my.cu, then {ourselves('evaluate', card, 'my.cu')}")
