"""`cudamaster optimize`: the main job, a search for a faster kernel, shown as it happens."""

from __future__ import annotations

from pathlib import Path

import click

from cudamaster.cli import optimize_output, options
from cudamaster.cli.model_options import model_options, must_leave_to_resume, record_options
from cudamaster.cli.output import console, ourselves, print_json
from cudamaster.cli.search_options import SearchCommand, budget_options, search_options
from cudamaster.library.search_options import BudgetOptions, ModelOptions, RecordOptions, SearchOptions


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
    ray: str | None,
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
    from cudamaster.library.searching import prepare
    from cudamaster.runs import optimization
    from cudamaster.runs.record import read_manifest
    from cudamaster.strategies import registry
    from cudamaster.strategies.protocol import Observer

    if resumed is not None and records.source is None:
        must_leave_to_resume("run")
    one = options.given_precision(precision)
    fleet = None
    if ray is not None and records.replay is None:
        device = search.device if resumed is None else read_manifest(resumed).settings.device
        fleet = options.fleet_at(ray, device)
    prepared = prepare(task, one, search, models, out, resumed, records, budget, fleet=fleet)
    wanted = prepared.search
    path, settings = wanted.path, wanted.settings
    for note in prepared.notes:
        click.echo(f"Note: {note}", err=True)
    before = path.exists()
    shown = console()
    observer: Observer = Observer() if as_json else SearchProgress(shown)
    if not as_json:
        what = f"{wanted.task} ({wanted.precision}), {registry.described(settings)}"
        optimize_output.introduce(shown, what, wanted.workbench.hardware, settings, path)
    try:
        run = prepared.run(observer)
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
        optimize_output.conclude(shown, run.result, path, settings)
    optimization.must_make_sense(path, run.result)
    if as_json:
        print_json({"run": str(path), "device": run.verdict.device, "spent": run.spent, "result": run.result})
    if prepared.was_finished:
        optimize_output.say_finished(run.result, path, settings)
