"""`cudamaster suite`: searches for many tasks at once, under one budget, shown as they go."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cudamaster.cli import options, suite_output
from cudamaster.cli.model_options import model_options, must_leave_to_resume, record_options
from cudamaster.cli.output import console, ourselves, print_json
from cudamaster.cli.search_options import SearchCommand, budget_options, search_options
from cudamaster.library.search_options import (
    BudgetOptions,
    ModelOptions,
    RecordOptions,
    SearchOptions,
    must_be_priced,
)
from cudamaster.runs.budget import Budget

if TYPE_CHECKING:
    from cudamaster.cluster.fleet import Fleet
    from cudamaster.runs.record import Settings
    from cudamaster.strategies.protocol import Observer
    from cudamaster.strategies.result import Result
    from cudamaster.suites.folder import Entry, Suite

_JOBS_PER_GPU = 4  # so one measures while others wait for a model or a compiler


@click.command(cls=SearchCommand)
@options.of_suite
@click.option("--tasks", "patterns", multiple=True, metavar="GLOB",
              help="Tasks by name, of the suite or of any; can be repeated. hgemm_tn_fp32_* matches that variant's "
              "grid.  [default: all of the suite, MSKernelBench if none is named]")  # fmt: skip
@click.option("--sample", type=click.IntRange(1), metavar="N",
              help="Of the hgemm tasks that match, take N, spread over the sizes; always the same ones.")  # fmt: skip
@click.option("--precision", type=options.PRECISIONS,
              help="Element type; both means all of a task.  "
              "[default: fp32; for a replay, all that are in the record]")  # fmt: skip
@click.option("-j", "--jobs", type=click.IntRange(1, options.MOST_JOBS),
              help="Tasks to work on at once.  [default: 4 per GPU, but no more than CPU cores]")  # fmt: skip
@search_options
@model_options
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs"), show_default=True,
              help="Folder for the suite's folder.")  # fmt: skip
@click.option(
    "--resume",
    "resumed",
    type=click.Path(path_type=Path),
    metavar="SUITE",
    help="Continue a suite; a larger -R gives it more to do.",
)
@record_options
@budget_options
@options.as_json
def suite(
    of: str | None,
    patterns: tuple[str, ...],
    sample: int | None,
    precision: str | None,
    jobs: int | None,
    search: SearchOptions,
    ray: str | None,
    models: ModelOptions,
    out: Path,
    resumed: Path | None,
    records: RecordOptions,
    budget: BudgetOptions,
    as_json: bool,
) -> None:
    """Search for faster kernels for many tasks at once, each as `cudamaster optimize` does.

    While one task measures, others wait for models and compilers; each GPU has one measuring process at a time. Budgets
    count all tasks together. --resume SUITE continues a suite that was stopped or killed: it keeps the settings and
    tries failed tasks again; with a larger -R it also continues finished ones.

    Exits with 1 if a task failed; a spent budget is not a failure. Ctrl-C, SIGTERM and a closed terminal end it with
    130 and the line to resume.
    """
    from cudamaster.devices.choose import units
    from cudamaster.models.choose import left_out
    from cudamaster.runs import backends
    from cudamaster.suites import scheduler as suites
    from cudamaster.suites.folder import State, SuiteFolder, fresh_path
    from cudamaster.tasks import cards

    if resumed is not None:
        path = resumed
        plan = _carried_on(path, search, records, of)
        limits = budget.limits(plan.sessions[-1].limits if plan.sessions else None)
    else:
        path, limits = records.record or fresh_path(out), budget.limits()
        plan = _planned(of, patterns, sample, precision, search, models, records)
    settings = plan.settings
    whole = settings.replay is not None and not settings.replay.models_only
    fleet = None if whole else options.fleet_at(ray, settings.device)
    if fleet is not None:
        places, at_once = fleet.units, jobs or min(fleet.jobs, options.MOST_JOBS)
    else:
        places = ("record",) if whole else units(settings.device)
        at_once = jobs or _default_jobs(len(places))
    if not whole:
        # Errors that concern all tasks are reported once, before anything begins: no device, no such thresholds.
        first = plan.entries[0]
        backends.workbench(
            settings, cards.load(first.card or first.task), first.precision, places[0] if places else None, fleet
        )
    if settings.replay is None:
        asked = backends.models(settings, path, limits)
        must_be_priced(asked, limits)
        for note in left_out(settings.sampling, asked):
            click.echo(f"Note: {note}", err=True)
    spending = Budget(limits, suites.spent_before(path, plan) if resumed is not None else None)
    shown = console()
    if not as_json:
        suite_output.introduce(shown, plan, path, places, at_once, limits)
    kept = f"Everything so far is kept; to continue: {ourselves('suite', '--resume', str(path))}"
    opened = SuiteFolder.open(path) if resumed is not None else SuiteFolder.create(path, plan)
    with opened as folder:
        try:
            with suite_output.shown_while_running(shown, hidden=as_json) as show:
                ended = suites.run(folder, plan, _search_by(settings, fleet), spending, places, at_once, show)
        except BaseException:
            click.echo(kept, err=True)
            raise
    if as_json:
        print_json({"suite": str(path), "spent": spending.spent, "result": ended})
    else:
        suite_output.conclude(shown, ended, path, spending, all(entry.state is State.DONE for entry in plan.entries))
    click.get_current_context().exit(1 if any(entry.state is State.FAILED for entry in ended.entries) else 0)


def _planned(
    of: str | None,
    patterns: Sequence[str],
    sample: int | None,
    precision: str | None,
    search: SearchOptions,
    models: ModelOptions,
    records: RecordOptions,
) -> Suite:
    """A new suite, or one that replays a record."""
    from cudamaster.core.errors import UsageError
    from cudamaster.core.values import Precision
    from cudamaster.suites import planning
    from cudamaster.tasks import hgemm, task_suites

    one = precision or (options.BOTH if records.source is not None else Precision.FP32.value)
    precisions = list(Precision) if one == options.BOTH else [Precision(one)]
    if records.source is None:
        suite = None if of is None else task_suites.named(of)
        plan = planning.fresh(search.settings(models), patterns, precisions, sample, suite)
        others = (each for each in plan.entries if each.precision not in precisions and not hgemm.is_name(each.task))
        if options.was_given("precision") and (other := next(others, None)) is not None:
            fix = f"Leave out --precision, take {options.BOTH}, or name other tasks with --tasks."
            raise UsageError(f"{other.task} is a task in {other.precision}, not in {one}.", fix)
        return plan
    if of is not None:
        raise UsageError("A replay has the tasks of its record.", "Leave out --suite.")
    if sample is not None:
        raise UsageError("A replay has the tasks of its record.", "Leave out --sample.")
    return planning.replayed(records.wanted, patterns, precisions, device=search.device, seed=search.seed)


def _carried_on(path: Path, search: SearchOptions, records: RecordOptions, of: str | None) -> Suite:
    """The suite in this folder, with what is left of it to do."""
    from cudamaster.core.errors import UsageError
    from cudamaster.runs import backends
    from cudamaster.runs.carrying import More
    from cudamaster.suites import planning
    from cudamaster.suites.folder import State, read

    if records.source is not None:
        raise UsageError("A suite is resumed or replayed, not both.", "Leave --replay out.")
    if of is not None:
        raise UsageError("A suite that is resumed keeps its tasks.", "Leave out --suite.")
    must_leave_to_resume("suite")
    plan = planning.carried_on(read(path), path, More(search.rounds, search.debug_tries))
    if any(entry.state is not State.DONE for entry in plan.entries):
        backends.models_must_be_usable(plan.settings)
    return plan


def _default_jobs(places: int) -> int:
    return max(1, min(_JOBS_PER_GPU * places, os.cpu_count() or 1))


def _search_by(settings: Settings, fleet: Fleet | None) -> Callable[[Entry, Path, str, Observer, Budget], Result]:
    """How a suite with these settings searches for one of its tasks."""
    from cudamaster.runs import optimization, searching

    def search(entry: Entry, path: Path, unit: str, observer: Observer, budget: Budget) -> Result:
        wanted = searching.of_suite(path, entry.task, entry.precision, settings, unit, entry.card, fleet)
        result = wanted.run(budget, observer)
        optimization.must_make_sense(path, result)
        return result

    return search
