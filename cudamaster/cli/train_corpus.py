"""`cudamaster train corpus`: CUDA sources to instruction, context and code, for continued pretraining."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudamaster.cli import options
from cudamaster.cli.output import console, print_json, print_to_copy, table
from cudamaster.core.values import Role
from cudamaster.models.protocol import REPLY_SECONDS

if TYPE_CHECKING:
    from rich.console import Console

    from cudamaster.training.corpus.gathering import Gathered
    from cudamaster.training.corpus.making import Asked

_FOLDER = click.Path(path_type=Path, file_okay=False)
_EVERY_S = 10.0  # a line on stderr, where there is no terminal
_TO_SEE = "--no-instructions shows, without a model and without any cost, which pieces there are."
_LIMIT = options.Number(0, min_open=True)


@click.command()
@click.argument("folder", type=_FOLDER)
@click.option("--out", type=_FOLDER, required=True, metavar="DIR",
              help="Where the corpus is written. The same command with the same DIR goes on where it "
              "was stopped.")  # fmt: skip
@click.option("--model", help="LiteLLM model that writes the instructions, e.g. openai/o4-mini.  [default: "
              "$CUDAMASTER_DESCRIBER_MODEL or $CUDAMASTER_MODEL]")  # fmt: skip
@click.option("--base-url", help="Address of an OpenAI-compatible server of your own.")
@click.option("--temperature", type=options.Number(0, 2), help="Of a model that takes one.")
@click.option("--reasoning-effort", help="Of a model that takes one: low, medium, high, or what else its provider "
              "knows.")  # fmt: skip
@click.option("--no-instructions", is_flag=True,
              help="Ask no model: all pieces, with an empty instruction. Shows what a model would be asked "
              "about.")  # fmt: skip
@click.option("--licences", multiple=True, metavar="NAMES",
              help="Licences that are taken, as SPDX has them, with commas or repeated; `any` takes all, also unknown "
              "ones.  [default: MIT, BSD-2-Clause, BSD-3-Clause, Apache-2.0, ISC, Unlicense, CC0-1.0]")  # fmt: skip
@click.option("--docs", type=_FOLDER, metavar="FOLDER",
              help="Documentation (.md, .rst, .txt, .html) in which the context of an instruction is looked "
              "up.")  # fmt: skip
@click.option("--passages", type=click.IntRange(0, 50), default=3, show_default=True,
              help="Passages of the documentation in a context.")  # fmt: skip
@click.option("--related", type=click.IntRange(0, 10), default=1, show_default=True,
              help="Pieces of other files of the corpus in a context.")  # fmt: skip
@click.option("--piece-length", type=click.IntRange(200), default=12_000, show_default=True, metavar="N",
              help="Most characters of a piece; what is longer and cannot be cut is left out.")  # fmt: skip
@click.option("--tasks-held-out/--no-tasks-held-out", default=True, show_default=True,
              help="Leave out near copies of the kernels of MSKernelBench and its playbook.")  # fmt: skip
@click.option("-j", "--jobs", type=click.IntRange(1, options.MOST_JOBS), default=1, show_default=True,
              help="Calls to the model side by side.")  # fmt: skip
@click.option("--max-dollars", type=_LIMIT, metavar="X",
              help="Stop asking when the model has cost this much, counting what is in DIR already.")  # fmt: skip
@click.option("--max-tokens", type=_LIMIT, metavar="N", help="The same in tokens, prompts and replies.")
@click.option("--max-calls", type=click.IntRange(1), metavar="N", help="The same in calls.")
@click.option("--model-timeout", type=_LIMIT, default=REPLY_SECONDS, show_default=True, metavar="SECONDS",
              help="Time limit on the model's whole reply.")  # fmt: skip
@options.as_json
def corpus(
    folder: Path,
    out: Path,
    model: str | None,
    base_url: str | None,
    temperature: float | None,
    reasoning_effort: str | None,
    no_instructions: bool,
    licences: tuple[str, ...],
    docs: Path | None,
    passages: int,
    related: int,
    piece_length: int,
    tasks_held_out: bool,
    jobs: int,
    max_dollars: float | None,
    max_tokens: float | None,
    max_calls: int | None,
    model_timeout: float,
    as_json: bool,
) -> None:
    """Make a corpus for continued pretraining of the CUDA sources in FOLDER.

    Files are cut into kernels with what they need of their file. A model writes the instruction for each piece and says
    whether it is worth learning from, in one call. Passages of a documentation and related code are looked up as
    context. A row has the three and their licence; see docs/corpus.md.
    """
    from cudamaster.training.corpus.licences import PERMISSIVE
    from cudamaster.training.corpus.making import Wanted, make

    asked = None
    if not no_instructions:
        limits = {"dollars": max_dollars, "tokens": max_tokens}
        asked = _asked(model, base_url, temperature, reasoning_effort, limits, max_calls, model_timeout, jobs)
    names = tuple(name.strip() for each in licences for name in each.split(",") if name.strip())
    wanted = Wanted(folder, out, names or PERMISSIVE, piece_length, tasks_held_out, docs, passages, related)
    with _Progress(console(), hidden=as_json, asks=asked is not None) as progress:
        numbers = make(wanted, asked, progress)
    if as_json:
        print_json(numbers)
    else:
        _show(console(), numbers)


def _asked(
    model: str | None,
    base_url: str | None,
    temperature: float | None,
    reasoning_effort: str | None,
    limits: Mapping[str, float | None],
    max_calls: int | None,
    model_timeout: float,
    jobs: int,
) -> Asked:
    """Who describes the pieces. Raises UsageError if nobody is named, and ModelError for a missing key."""
    from cudamaster.core.errors import UsageError
    from cudamaster.models import choose
    from cudamaster.models.playbook import NAME
    from cudamaster.models.protocol import Sampling
    from cudamaster.runs.budget import Limits
    from cudamaster.training.corpus.making import Asked

    of_file = {choose.MODEL: model if not options.was_given("model") else None,
               choose.BASE_URL: base_url if not options.was_given("base_url") else None}  # fmt: skip
    choice = choose.choose(
        os.environ,
        model if options.was_given("model") else None,
        base_url=base_url if options.was_given("base_url") else None,
        sampling=Sampling(temperature, reasoning_effort),
        roles=(Role.DESCRIBER,),
        configured={name: value for name, value in of_file.items() if value},
    )
    if choice.names[Role.DESCRIBER] == NAME:
        why = "No model is named, and only a model can write the instruction for a piece of code."
        raise UsageError(why, f"Name one, e.g. --model openai/o4-mini. {_TO_SEE}")
    choose.must_be_usable(choice)
    built = choose.build(choice, model_timeout if model_timeout != float("inf") else None)
    if limits["dollars"] not in (None, float("inf")) and (names := choose.unpriced(built)):
        why = f"--max-dollars cannot be kept: the price of {' and '.join(names)} is unknown."
        raise UsageError(why, "Give --max-tokens or --max-calls instead.")
    for note in choose.left_out(choice.sampling, built):
        click.echo(f"Note: {note}", err=True)
    identity = f"{choice.names[Role.DESCRIBER]}|{choice.base_url}|{temperature}|{reasoning_effort}"
    return Asked(built[Role.DESCRIBER], identity, Limits(limits["dollars"], limits["tokens"]), max_calls, jobs)


class _Progress:
    """How far it is: a spinner on a terminal, otherwise a line on stderr every ten seconds."""

    def __init__(self, out: Console, *, hidden: bool, asks: bool) -> None:
        self._out = out
        self._hidden = hidden
        self._asks = asks
        self._status = out.status("Looking for files") if out.is_terminal and not hidden else None
        self._said = time.monotonic()

    def __enter__(self) -> _Progress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def reading(self, done: int, number: int) -> None:
        """So many files are cut."""
        self._at("Cutting files", done, number)

    def gathered(self, gathered: Gathered) -> None:
        """What there is, before the model is asked."""
        from cudamaster.runs.prompting import tokens

        pieces = gathered.entries
        about = sum(tokens(entry.piece.code) for entry in pieces)
        calls = ", a call each" if self._asks else ""
        self.said(f"{len(pieces):,} pieces of {gathered.files:,} files, about {about:,} tokens of code{calls}")

    def describing(self, done: int, number: int) -> None:
        """So many pieces are described."""
        self._at("Describing pieces", done, number)

    def said(self, note: str) -> None:
        """A note for people."""
        if not self._hidden:
            click.echo(note, err=True)

    def _at(self, what: str, done: int, number: int) -> None:
        line = f"{what}: {done:,} of {number:,}"
        if self._status is not None:
            self._status.update(line)
        elif time.monotonic() - self._said >= _EVERY_S:
            self._said = time.monotonic()
            click.echo(line, err=True)


def _show(out: Console, numbers: Mapping[str, Any]) -> None:
    rows = [["files", f"{numbers['files']:,}"], ["pieces", f"{numbers['pieces']:,}"], ["rows", f"{numbers['rows']:,}"]]
    rows += [[f"  {name}", f"{count:,}"] for name, count in numbers["by_licence"].items()]
    rows.append(["left out", f"{sum(numbers['left_out'].values()):,}"])
    rows += [[f"  {why}", f"{count:,}"] for why, count in numbers["left_out"].items()]
    rows += [[f"  licence {name}", f"{count:,}"] for name, count in numbers["licences_left_out"].items()]
    rows.append(["secrets and addresses masked", f"{numbers['secrets_masked']:,}"])
    if numbers["model"]:
        dollars = "unknown" if numbers["dollars"] is None else f"{numbers['dollars']:.4f}"
        rows.append(["calls, of them now", f"{numbers['calls']:,}, {numbers['calls_now']:,}"])
        rows.append(["tokens", f"{numbers['tokens']:,}"])
        rows.append(["dollars", dollars])
    out.print(table(["", "number"], rows, right=["number"]))
    if numbers["stopped"]:
        out.print(f"Stopped: {numbers['stopped']} The same command with a larger limit goes on.", soft_wrap=True)
    print_to_copy(out, f"Written to {numbers['out']}: corpus.jsonl, README.md, NOTICE, left_out.jsonl")
