"""`cudamaster train sft`, `selftaught`, `contrastive` and `report`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudamaster.cli import options
from cudamaster.cli.output import console, ourselves, print_json, print_to_copy

if TYPE_CHECKING:
    from cudamaster.training.settings import Stage

_NEXT = {"sft": "selftaught", "selftaught": "contrastive"}
_FOLDER = click.Path(path_type=Path, file_okay=False)


def _stage(command: Callable[..., None]) -> Callable[..., Any]:
    """The arguments that all stages have."""
    decorators = (
        click.argument("config", type=click.Path(path_type=Path, exists=True, dir_okay=False)),
        click.option("--set", "changes", multiple=True, metavar="KEY=VALUE",
                     help="Change a key of CONFIG, e.g. budget.steps=20; repeatable."),
        click.option("--out", type=_FOLDER, metavar="FOLDER",
                     help="The folder of the run.  [default: `out` in CONFIG, or runs/train/STAGE_CONFIG]"),
        options.as_json,
    )  # fmt: skip
    return options.added(decorators, command)


@click.command()
@_stage
def sft(config: Path, changes: tuple[str, ...], out: Path | None, as_json: bool) -> None:
    """Fine-tune a model on the pairs of an export, as CONFIG (YAML) says; or begin with a new small model.

    The same command goes on after it was stopped.
    """
    from cudamaster.training.configuration import load
    from cudamaster.training.settings import Sft

    _run(load(Sft, config, changes), config, out, as_json=as_json)


@click.command()
@_stage
def selftaught(config: Path, changes: tuple[str, ...], out: Path | None, as_json: bool) -> None:
    """Round by round, have the model write kernels and train it on those that are right, as CONFIG (YAML) says.

    The same command goes on after it was stopped, within a round too.
    """
    from cudamaster.training.configuration import load
    from cudamaster.training.settings import Selftaught

    _run(load(Selftaught, config, changes), config, out, as_json=as_json)


@click.command()
@_stage
def contrastive(config: Path, changes: tuple[str, ...], out: Path | None, as_json: bool) -> None:
    """Train the model by the speed of what it writes (GRPO), with scored kernels in its prompts, as CONFIG (YAML) says.

    The same command goes on after it was stopped.
    """
    from cudamaster.training.configuration import load
    from cudamaster.training.settings import Contrastive

    _run(load(Contrastive, config, changes), config, out, as_json=as_json)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write one HTML page there too, which needs no network.")  # fmt: skip
def report(folder: Path, html: Path | None) -> None:
    """Write report.md into the FOLDER of a training run: its curve, its evaluations, and what its guards found."""
    from cudamaster.training import curves

    print_to_copy(console(), f"Wrote {curves.write(folder)}")
    if html is not None:
        curves.write_html(folder, html)
        print_to_copy(console(), f"Wrote {html}; a browser opens it, without a network.")


def _run(settings: Stage, config: Path, out: Path | None, *, as_json: bool) -> None:
    from cudamaster.cli.train_progress import Progress
    from cudamaster.training import libraries, stages
    from cudamaster.training.settings import Judge

    libraries.must_be_there()
    place = out or stages.place_of(settings, config)
    judge: Judge | None = getattr(settings, "judge", None)
    fleet = None if judge is None else options.fleet_at(judge.ray, judge.device)
    with Progress(console(), hidden=as_json) as progress:
        progress.said(f"{settings.stage} in {place}")
        ended = stages.run(settings, place, progress, fleet)
    if as_json:
        print_json(_as_json(ended.folder, ended.why))
        return
    progress.table(ended.folder)
    console().print(f"Ended: {ended.why}.")
    following = _NEXT.get(settings.stage)
    lines = [f"Curve: {ourselves('train', 'report', str(ended.folder))}"]
    if following is not None:
        model = f"model: {{name: {ended.folder.absolute()}}}"  # CONFIG may lie elsewhere, and paths are relative to it
        lines.append(f"Next:  {ourselves('train', following)} CONFIG, with `{model}` in it")
    print_to_copy(console(), *lines)


def _as_json(folder: Path, why: str) -> dict[str, Any]:
    from cudamaster.training import state

    steps, evaluations = state.rows(folder / state.STEPS), state.rows(folder / state.EVALUATIONS)
    return {
        "folder": str(folder),
        "model": str(folder / "model"),
        "ended": why,
        "steps": len(steps),
        "last": steps[-1] if steps else None,
        "evaluations": evaluations,
    }
