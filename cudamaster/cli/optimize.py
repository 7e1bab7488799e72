"""`cudamaster optimize`: the main job, a search for a faster kernel, shown as it happens."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cudamaster.cli import optimize_output, options
from cudamaster.cli.model_options import (
    ModelOptions,
    RecordOptions,
    model_options,
    must_leave_to_resume,
    record_options,
)
from cudamaster.cli.output import (
    console,
    ourselves,
    print_json,
)
from cudamaster.cli.search_options import (
    BudgetOptions,
    SearchCommand,
    SearchOptions,
    budget_options,
    must_be_priced,
    search_options,
)
from cudamaster.runs.budget import Budget

if TYPE_CHECKING:
    from cudamaster.runs.searching import Search
    from cudamaster.strategies.protocol import Observer


@click.command(cls=SearchCommand)
@click.argument("task", required=False)
@options.precision
@options.of_hgemm
@search_options
@model_options
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs"), show_default=True,
              help="Folder for run folders.")  # fmt: skip
@click.option("--resume", "resumed", type=click.Path(path_type=Path), metavar="RUN",
              help="Continue an earlier run; a larger -R or -D gives it more to do.")  # fmt: skip
@record_options
@budget_options
@options.as_json
def optimize(
    task: str | None,
    precision: str,
    search: SearchOptions,
    models: ModelOptions,
    out: Path,
    resumed: Path | None,
    records: RecordOptions,
    budget: BudgetOptions,
    as_json: bool,
) -> None:
    """Search for a faster kernel for TASK in R rounds, each with up to D attempts to repair a failing kernel.

    Everything is written to a run folder at once. --resume RUN continues a stopped run with the settings that it was
    started with; with a larger -R or -D it also continues a finished run. What was done is not done or paid for again.
    A run folder is also a record: --replay repeats the run from it, with its settings.

    A run that uses up its budget ends with the best kernel so far and exit code 0, or with 7 if not even the baseline
    was measured. A run in which no model's reply led to a kernel ends with 5. Ctrl-C, SIGTERM and a closed terminal end
    it with 130 and print the command that resumes it.
    """
    from cudamaster.cli.search_progress import SearchProgress
    from cudamaster.core.errors import RunFolderError
    from cudamaster.models import choose
    from cudamaster.runs import backends, optimization
    from cudamaster.runs.spending import spent
    from cudamaster.strategies import registry
    from cudamaster.strategies.protocol import Observer

    wanted = _wanted(task, precision, search, models, out, resumed, records)
    path, settings, earlier = wanted.path, wanted.settings, wanted.earlier
    limits = budget.limits(earlier.sessions[-1].limits if earlier is not None and earlier.sessions else None)
    was_finished = wanted.is_finished
    if earlier is not None and not was_finished:
        backends.models_must_be_usable(settings)
    hardware = wanted.workbench.hardware
    asked = wanted.models(limits)
    must_be_priced(asked, limits)
    for note in choose.left_out(settings.sampling, asked):
        click.echo(f"Note: {note}", err=True)
    before = path.exists()
    spending = Budget(limits, spent(earlier) if earlier is not None else None)
    shown = console()
    observer: Observer = Observer() if as_json else SearchProgress(shown)
    if not as_json:
        what = f"{wanted.task} ({wanted.precision}), {registry.described(settings)}"
        optimize_output.introduce(shown, what, hardware, settings, path)
    try:
        result = wanted.run(spending, observer, asked)
    except BaseException as error:
        # A folder that was refused would be refused again, and one that existed before belongs to another run.
        refused = before and isinstance(error, RunFolderError)
        if path.exists() and not refused:
            click.echo(
                f"Everything so far is kept; to continue: {ourselves('optimize', '--resume', str(path))}", err=True
            )
        raise
    finally:
        if isinstance(observer, SearchProgress):
            observer.close()
    if not as_json:
        optimize_output.conclude(shown, result, path, settings)
    optimization.must_make_sense(path, result)
    if as_json:
        print_json({"run": str(path), "device": result.verdict.device, "spent": spending.spent, "result": result})
    if was_finished:
        optimize_output.say_finished(result, path, settings)


def _wanted(
    task: str | None,
    precision: str,
    search: SearchOptions,
    models: ModelOptions,
    out: Path,
    resumed: Path | None,
    records: RecordOptions,
) -> Search:
    """The search that is asked for: a new one, the continuation of a run or the replay of a record."""
    from cudamaster.core.errors import UsageError
    from cudamaster.core.values import Precision
    from cudamaster.runs import searching
    from cudamaster.runs.carrying import More
    from cudamaster.tasks import cards

    if resumed is not None:
        if records.source is not None:
            raise UsageError(
                "A run is resumed or replayed, not both.", "Use --resume alone to continue a stopped replay."
            )
        must_leave_to_resume("run")
        return searching.resumed(resumed, More(search.rounds, search.debug_tries), task)
    if records.source is not None:
        path = partial(records.path, out)
        one = Precision(precision) if task is None else options.precision_of(cards.load(task), precision)
        return searching.replayed(records.wanted, task, one, path, device=search.device, seed=search.seed)
    if task is None:
        raise UsageError("No task was given.", "Name one of `cudamaster tasks`, or give --resume RUN.")
    card = cards.load(task)
    one = options.precision_of(card, precision)
    return searching.Search(
        records.path(out, card.name, one),
        card.name,
        one,
        search.settings(models),
        card="" if card.source == card.name else card.source,
    )
