"""`cudamaster optimize`: the main job, a search for a faster kernel, shown as it happens."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cudamaster.cli import options
from cudamaster.cli.model_options import (
    ModelOptions,
    RecordOptions,
    model_options,
    must_leave_to_resume,
    record_options,
)
from cudamaster.cli.output import (
    Waiting,
    console,
    ourselves,
    print_json,
    print_to_copy,
    score_column,
    speed,
    styled,
    table,
    telling_of_cases,
    why_incomplete,
)
from cudamaster.cli.search_options import (
    BudgetOptions,
    SearchCommand,
    SearchOptions,
    budget_options,
    must_be_priced,
    search_options,
)
from cudamaster.models.playbook import NAME as PLAYBOOK
from cudamaster.runs.budget import Budget
from cudamaster.view.invisible import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status
    from rich.text import Text

    from cudamaster.agents.asking import ReplyMisfit
    from cudamaster.agents.debug import Diagnosis
    from cudamaster.core.values import Candidate, Findings, Hardware, Plan, Role, Verdict
    from cudamaster.runs.record import Settings
    from cudamaster.strategies.protocol import Observer
    from cudamaster.strategies.result import Result, Round

_PLAN_LINES = 4


@click.command(cls=SearchCommand)
@click.argument("task", required=False)
@options.precision
@search_options
@model_options
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs"), show_default=True,
              help="Folder for run folders.")  # fmt: skip
@click.option("--resume", "resumed", type=click.Path(path_type=Path), metavar="RUN",
              help="Carry on an earlier run; a larger -R or -D gives it more to do.")  # fmt: skip
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
    """Search for a faster kernel for TASK, by default in R rounds of Planner, Coder and Compiler with D debug tries.

    Everything lands in a run folder the moment it exists; a run that was stopped carries on with --resume RUN,
    which keeps the settings the run was started with; with a larger -R or -D a finished run goes on, too, and pays for
    nothing again. A run folder is also a record: a replay goes by its settings.
    A run that spent its budget ends with 0 and its best so far, with 7 where not even the baseline was measured;
    one in which no reply of a model led to a kernel ends with 5. Ctrl-C, SIGTERM and a closed terminal end it with 130
    and the line to resume.
    """
    from cudamaster.core.errors import RunFolderError, UsageError
    from cudamaster.core.values import Precision
    from cudamaster.models import choose
    from cudamaster.runs import backends, carrying, optimization, replaying
    from cudamaster.runs.record import read_manifest, read_record
    from cudamaster.runs.spending import last_unit, spent
    from cudamaster.strategies import registry
    from cudamaster.strategies.protocol import Silent
    from cudamaster.tasks import cards

    more = carrying.More(search.rounds, search.debug_tries)
    if resumed is not None and records.source is not None:
        raise UsageError("A run is resumed or replayed, not both.", "A replay that was stopped goes on with --resume.")
    if resumed is not None:
        must_leave_to_resume("run")
        manifest = read_manifest(resumed)
        settings = carrying.settings_with(resumed, more)
        if task not in (None, manifest.task):
            raise UsageError(f"{resumed} is a run of {manifest.task}, not of {task}.", "Leave TASK out with --resume.")
        task, precision, path = manifest.task, manifest.precision.value, resumed
    elif records.source is not None:
        source = replaying.find(records.source, task, Precision(precision))
        manifest = read_manifest(source)
        if task not in (None, manifest.task):
            raise UsageError(f"{source} is a record of {manifest.task}, not of {task}.", "Leave TASK out.")
        task, precision = manifest.task, manifest.precision.value
        path = records.path(out, task, manifest.precision)
        settings = backends.replayed_settings(
            source,
            manifest,
            device=search.device,
            seed=search.seed,
            models_only=records.replay is None,
            real_time=records.real_time,
        )
    elif task is None:
        raise UsageError("No task was given.", "Name one of `cudamaster tasks`, or give --resume RUN.")
    else:
        path = records.path(out, cards.load(task).name, Precision(precision))
        settings = search.settings(models)

    card = cards.load(task)
    earlier = read_record(resumed) if resumed is not None else None
    sessions = earlier.sessions if earlier is not None else ()
    limits = budget.limits(sessions[-1].limits if sessions else None)
    nothing_to_do = earlier is not None and earlier.finished and settings == earlier.manifest.settings
    if earlier is not None and not nothing_to_do:
        backends.models_must_be_usable(settings)
    bench = backends.workbench(settings, card, Precision(precision), last_unit(sessions))
    asked = backends.models(settings, path, limits)
    must_be_priced(asked, limits)
    for note in choose.left_out(settings.sampling, asked):
        click.echo(f"Note: {note}", err=True)
    before = path.exists()
    account = Budget(limits, spent(earlier) if earlier is not None else None)
    shown = console()
    observer: Observer = Silent() if as_json else Progress(shown)
    if not as_json:
        what = f"{card.name} ({precision}), {registry.described(settings)}"
        _introduce(shown, what, bench.hardware, settings, path)
    try:
        if resumed is not None:
            result = optimization.resume(path, bench, asked, observer, account, more)
        else:
            result = optimization.optimize(path, bench, asked, settings, observer, account)
        record = backends.whole_record_of(settings)
        if record is not None and not result.stopped:
            replaying.must_agree(record, result)
    except BaseException as error:
        # A folder that could not be resumed would be refused again, and one that was there is of another run.
        refused = before and isinstance(error, RunFolderError)
        if path.exists() and not refused:
            click.echo(f"What was done until here is kept: {ourselves('optimize', '--resume', str(path))}", err=True)
        raise
    finally:
        if isinstance(observer, Progress):
            observer.close()
    if not as_json:
        _conclude(shown, result, path, settings)
    optimization.must_make_sense(path, result)
    if as_json:
        print_json({"run": str(path), "device": result.verdict.device, "spent": account.spent, "result": result})
    if nothing_to_do:
        _tell_finished(result, path, settings)


def _tell_finished(result: Result, path: Path, settings: Settings) -> None:
    """A run that was finished before did nothing now: say so, and which command would carry it on."""
    on = ""
    if result.note is None and settings.replay is None:
        on = f" Carry it on: {ourselves('optimize', '--resume', str(path), '-R', str(settings.rounds + 2))}"
    click.echo(f"Note: this run is finished; nothing was asked or measured now.{on}", err=True)


class Progress:
    """Prints each step of a search as it happens; a spinner says what is being waited for."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._waiting: Status | None = None
        self._telling = ExitStack()

    def close(self) -> None:
        """Stop the spinner."""
        self._telling.close()
        if self._waiting is not None:
            self._waiting.stop()
            self._waiting = None

    def _wait(self, text: str) -> None:
        if self._waiting is None:
            self._waiting = self._out.status(text)
            self._waiting.start()
        self._waiting.update(Waiting(text))
        self._telling.close()

    def asking(self, role: Role, model: str) -> None:
        """Spin while a model answers."""
        self._wait(f"asking the {role.value} ({model})")

    def trying_again(self, role: Role, pause_s: float, why: str) -> None:
        """Say why nothing comes, and for how long."""
        from cudamaster.strategies.protocol import asked_again

        self._out.print(f"  {asked_again(role, pause_s, why)}")

    def evaluating(self, candidate: Candidate) -> None:
        """Spin while a candidate is built and run."""
        self._wait(f"building, checking and timing {candidate.id}")
        self._telling.enter_context(telling_of_cases(f"kernel {candidate.id}"))

    def baseline(self, candidate: Candidate, verdict: Verdict, findings: Findings) -> None:
        """Say that the baseline stands."""
        self._telling.close()
        self._out.print(f"Baseline: {verdict.detail}. {findings_line(findings)}")
        self._findings(findings)

    def round_started(self, number: int, rounds: int) -> None:
        """Open a round."""
        self._out.print(f"\nRound {number} of {rounds}", style="bold")

    def planned(self, number: int, plan: Plan) -> None:
        """Show the idea and how the scheme begins."""
        self._out.print(f"  plan: {plan.idea}")
        # Unwrapped text of a plan would be one long line.
        words = textwrap.wrap(visible(plan.text), min(self._out.width, 120) - 6)
        for line in [*words[:_PLAN_LINES], *(["..."] if len(words) > _PLAN_LINES else [])]:
            self._out.print(f"    {line}", style="dim")

    def without_command(self, number: int, misfit: ReplyMisfit) -> None:
        """Say why the default command is taken."""
        self._out.print(f"  note: {misfit} The default command is taken.")

    def written(self, number: int, debug_try: int, candidate: Candidate, source: str | None = None) -> None:
        """Show the build command."""
        print_to_copy(self._out, f"  kernel {candidate.id}, {candidate.command}")

    def judged(self, number: int, debug_try: int, candidate: Candidate, verdict: Verdict) -> None:
        """Show the verdict."""
        self._telling.close()
        score = f", P = {speed(verdict.score, mark=verdict.mark)}" if verdict.score is not None else ""
        seconds = verdict.seconds
        spent = f"{seconds.total:.1f} s"
        self._out.print("  ", styled(verdict.status), f"{score}: {verdict.detail} ({spent})", sep="")
        for note in verdict.notes:
            self._out.print(f"  note: {note}")

    def diagnosed(self, number: int, debug_try: int, diagnosis: Diagnosis) -> None:
        """Show what the Debug agent makes of a failure."""
        self._out.print(f"  debug try {debug_try}: {diagnosis.diagnosis}")

    def improved(self, candidate: Candidate, verdict: Verdict, findings: Findings, score: float) -> None:
        """Announce a new best."""
        self._out.print(f"  new best: P = {speed(score, mark=verdict.mark)}", style="green")
        if findings.bottleneck is not None:
            self._aside(findings_line(findings))
        self._findings(findings)

    def _findings(self, findings: Findings) -> None:
        """What a model of a GPU says of where the time goes, and the metrics that the filter kept."""
        from cudamaster.runs.digest import breakdown_lines

        if findings.modelled is None or findings.bottleneck is None:
            return
        kept = ", ".join(f"{name} {value:.3g} {findings.units.get(name, '')}".rstrip()
                         for name, value in findings.metrics.items())  # fmt: skip
        for told in (*breakdown_lines(findings.breakdown), f"findings: {kept}" if kept else ""):
            self._aside(told)

    def _aside(self, told: str) -> None:
        for line in textwrap.wrap(told, min(self._out.width, 120) - 6, subsequent_indent="  "):
            self._out.print(f"    {line}", style="dim")

    def round_ended(self, finished: Round) -> None:
        """Say why a round came to nothing."""
        if not finished.outcome.accepted:
            self._out.print(f"  not kept: {finished.outcome.detail}")

    def stopped(self, note: str) -> None:
        """Say why the search ends early."""
        self._out.print(f"  {note}")


def findings_line(findings: Findings) -> str:
    """The findings on one line: the class with the throughputs, or why there is none."""
    if findings.bottleneck is None:
        return f"No hardware profile: {findings.note}"
    share = f", {findings.time_share:.0%} of the time" if findings.time_share is not None else ""
    marked = " (modelled)" if findings.modelled is not None else ""
    return f"{findings.kernel}: {findings.bottleneck}{marked}{share}."


def _total(parts: Sequence[float | None], form: str) -> str:
    """The sum; what is unknown is said, never counted as nothing."""
    known = [part for part in parts if part is not None]
    if not known and parts:
        return "unknown"
    return form.format(sum(known)) + (" and more (unknown for some calls)" if len(known) < len(parts) else "")


def _introduce(out: Console, what: str, hardware: Hardware, settings: Settings, path: Path) -> None:
    from cudamaster.devices.choose import why_not_cuda

    out.print(f"{what}, on {hardware.name}", style="bold")
    replay = settings.replay
    if replay is not None and not replay.models_only:
        out.print(f"Replayed from {replay.record}: replies, verdicts and costs are those of that run.")
        out.print("No model is asked, nothing is built or measured.")
    elif hardware.emulated:
        reason = f" because {why_not_cuda()}" if why_not_cuda() else ""
        times = "times are emulated" if hardware.modelled is None else "times are modelled"
        out.print(f"Device: cpu{reason}. Kernels are executed on the host: results are proven, {times}.")
        if hardware.modelled is not None:
            out.print(f"Model of a GPU: {hardware.modelled.described}.")
    names = sorted(set(settings.models.values()))
    if names == [PLAYBOOK]:
        out.print("Model: the built-in playbook of hand-written kernels. It is no language model.")
    else:
        out.print(f"Models: {', '.join(f'{role.value} {name}' for role, name in settings.models.items())}"
                  if len(names) > 1 else f"Model: {names[0]}")  # fmt: skip
    if replay is not None and replay.models_only:
        out.print(f"Replies and their costs are those of {replay.record}; kernels are built and measured anew.")
    print_to_copy(out, f"Run folder: {path}\n")


def _conclude(out: Console, result: Result, path: Path, settings: Settings) -> None:
    only_playbook = set(settings.models.values()) == {PLAYBOOK}
    emulated = result.verdict.emulated
    rows: list[list[str | Text]] = [["0", "baseline", styled("correct"), "1.00", "1.00"]]
    for finished in result.rounds:
        outcome = finished.outcome
        score = "-" if outcome.score is None else f"{outcome.score:.2f}"
        rows.append(
            [str(outcome.round), outcome.plan.idea, styled(outcome.status), score, f"{finished.best_score:.2f}"]
        )
    p = score_column(result.verdict.mark)
    out.print()
    out.print(table(["round", "idea", "status", p, "best so far"], rows, right=["round", p, "best so far"]))
    in_times = f" in {result.verdict.mark} time" if result.verdict.mark else ""
    if result.improved:
        print_to_copy(out, f"Best kernel:    {path / 'best.cu'}")
    else:
        print_to_copy(out, f"Best kernel:    {path / 'best.cu'} (the baseline: nothing beat it{in_times})")
    print_to_copy(out, f"Build command:  {result.best.command}")
    print_to_copy(out, f"Evidence:       {path / 'verdicts' / (result.best.id + '.json')}")
    if not only_playbook:
        asked = [use for use in result.usage.values() if use.calls]
        tokens = _total([n for use in asked for n in (use.prompt_tokens, use.completion_tokens)], "{:.0f}")
        cached = sum(use.cached_tokens or 0 for use in asked)
        tokens += f" ({cached} of them cached)" if cached else ""
        dollars = _total([use.dollars for use in asked], "{:.4f}")
        out.print(f"Models:         {sum(use.calls for use in asked)} calls, tokens: {tokens}, dollars: {dollars}")
    if not result.verdict.complete:
        out.print(
            f"Incomplete:     cases of the sweep {why_incomplete(result.verdict.modelled)}; the evidence names them."
        )
    if emulated:
        model = result.verdict.modelled
        said = (
            "times are emulated and say nothing about a GPU:\na kernel that is slow here may be the fastest there."
            if model is None
            else f"P is modelled:\n{model.described}. A GPU has the last word."
        )
        out.print(f"\nThis ran on the CPU device: results are proven there, {said}")
        print_to_copy(out, f"All kernels are kept, with their commands, in {path / 'candidates'}.")
        out.print("To measure on a GPU: run it on a machine with an NVIDIA GPU and nvcc.")
        print_to_copy(out, f"What is missing for that: {ourselves('doctor')}")
    if only_playbook:
        out.print(
            "The kernels came from the built-in playbook, which is no language model.\n"
            "To use a model: export OPENAI_API_KEY=... and add --model openai/o4-mini (any LiteLLM name will do)."
        )
    if result.stopped:
        out.print(f"Stopped:        {result.note}")
        print_to_copy(out, f"Next: {ourselves('optimize', '--resume', str(path))}")
        return
    best = result.best
    again = ["evaluate", best.task, str(path / "best.cu"), "--precision", best.precision.value]
    if settings.device != "auto":
        again += ["--device", settings.device]
    if best.command != result.baseline.command:
        again += ["--command", best.command]
    print_to_copy(out, f"Next: {ourselves(*again)}")
