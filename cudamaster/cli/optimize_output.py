"""What `cudamaster optimize` prints before a search and after it; what comes between is in search_progress."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cudamaster.cli.output import (
    ourselves,
    print_to_copy,
    reach_of,
    score_column,
    styled,
    table,
    taken_in_a_word,
    why_incomplete,
)
from cudamaster.core.values import Role
from cudamaster.models.playbook import NAME as PLAYBOOK

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from cudamaster.core.speed import Comparison
    from cudamaster.core.values import Candidate, Hardware
    from cudamaster.runs.record import Settings
    from cudamaster.strategies.result import Result


def introduce(out: Console, what: str, hardware: Hardware, settings: Settings, path: Path) -> None:
    """What is searched for, on which device, by which models, and where it is kept."""
    from cudamaster.devices.choose import why_not_cuda

    out.print(f"{what}, on {hardware.name}", style="bold")
    replay = settings.replay
    if replay is not None and not replay.models_only:
        out.print(f"Replayed from {replay.record}: replies, verdicts and costs are those of that run.")
        out.print("No model is asked; nothing is built or measured.")
    elif hardware.emulated:
        reason = f" because {why_not_cuda()}" if why_not_cuda() else ""
        times = "times are emulated" if hardware.modelled is None else "times are modelled"
        out.print(f"Device: cpu{reason}. Kernels are executed on the host: results are checked, {times}.")
        if hardware.modelled is not None:
            out.print(f"Model of a GPU: {hardware.modelled.described}.")
    models = {role: name for role, name in settings.models.items() if role is not Role.AGENT}
    names = sorted(set(models.values()))
    if Role.AGENT in settings.models:
        print_to_copy(out, f"Agent: {settings.options['command']}")
    if names == [PLAYBOOK]:
        out.print("Model: the built-in playbook of hand-written kernels, not a language model.")
    elif names:
        out.print(f"Models: {', '.join(f'{role.value} {name}' for role, name in models.items())}"
                  if len(names) > 1 else f"Model: {names[0]}")  # fmt: skip
    if replay is not None and replay.models_only:
        out.print(f"Replies and their costs come from {replay.record}; kernels are built and measured again.")
    print_to_copy(out, f"Run folder: {path}\n")


def conclude(out: Console, result: Result, path: Path, settings: Settings) -> None:
    """Prints how a search ended: the rounds, where the best kernel is, what models cost, and what to do next.

    What a modelled result is worth comes before the advice, because P on the CPU device is no measurement.
    """
    only_playbook = set(settings.models.values()) == {PLAYBOOK}
    _show_rounds(out, result)
    in_times = f" in {result.verdict.mark} time" if result.verdict.mark else ""
    nothing = f"nothing beat it{in_times}" if not result.contenders else "nothing is likely to beat it, by the model"
    lost = "" if result.improved else f" (the baseline: {nothing})"
    print_to_copy(out, f"Best kernel:    {path / 'best.cu'}{lost}")
    print_to_copy(out, f"Build command:  {result.best.command}")
    print_to_copy(out, f"Evidence:       {path / 'verdicts' / (result.best.id + '.json')}")
    if not only_playbook and Role.AGENT not in settings.models:
        _say_cost(out, result)
    if not result.verdict.complete:
        out.print(
            f"Incomplete:     cases of the sweep {why_incomplete(result.verdict.modelled)}; the evidence names them."
        )
    offered = [] if result.stopped else _offered(result)
    if result.verdict.emulated:
        _say_emulated(out, result, path, advise=not offered)
    if only_playbook:
        out.print(
            "The kernels came from the built-in playbook, which is not a language model.\n"
            "To use a model: export OPENAI_API_KEY=... and add --model openai/o4-mini (any LiteLLM name will do)."
        )
    if result.stopped:
        out.print(f"Stopped:        {result.note}")
    if offered:
        _offer(out, result, path, offered)
    else:
        print_to_copy(out, f"Next: {_next(result, path, settings)}")


def _show_rounds(out: Console, result: Result) -> None:
    """The table of rounds; the baseline's line comes first."""
    known = any(finished.outcome.against is not None for finished in result.rounds)
    one: list[str | Text] = ["0", "baseline", styled("correct"), "1.00", "1.00"]
    rows = [[*one, *([""] if known else [])]]
    for finished in result.rounds:
        outcome = finished.outcome
        score = "-" if outcome.score is None else f"{outcome.score:.2f}"
        if outcome.interval is not None:
            score += f" [{outcome.interval.low:.2f}–{outcome.interval.high:.2f}]"
        row: list[str | Text] = [str(outcome.round), outcome.plan.idea, styled(outcome.status), score]
        rows.append(
            [
                *row,
                f"{finished.best_score:.2f}",
                *([taken_in_a_word(accepted=outcome.accepted, unsure=outcome.unsure)] if known else []),
            ]
        )
    p = score_column(result.verdict.mark)
    columns = ["round", "idea", "status", p, "best so far", *(["taken"] if known else [])]
    out.print()
    out.print(table(columns, rows, right=["round", p, "best so far"]))


def _say_cost(out: Console, result: Result) -> None:
    """What the models took: calls, tokens and dollars."""
    asked = [use for use in result.usage.values() if use.calls]
    tokens = _total([n for use in asked for n in (use.prompt_tokens, use.completion_tokens)], "{:.0f}")
    cached = sum(use.cached_tokens or 0 for use in asked)
    tokens += f" ({cached} of them cached)" if cached else ""
    dollars = _total([use.dollars for use in asked], "{:.4f}")
    out.print(f"Models:         {sum(use.calls for use in asked)} calls, tokens: {tokens}, dollars: {dollars}")


def _say_emulated(out: Console, result: Result, path: Path, *, advise: bool) -> None:
    """What a result of the CPU device is worth, and how to measure it on a GPU unless what follows says so."""
    model = result.verdict.modelled
    said = (
        "times are emulated and say nothing about a GPU:\na kernel that is slow here may be the fastest there."
        if model is None
        else f"P is modelled:\n{model.described}. Only a GPU can confirm it."
    )
    out.print(f"\nThis ran on the CPU device: results are checked there, {said}")
    if any(done.outcome.interval is not None for done in result.rounds):
        out.print("In brackets: the interval in which a GPU would measure P in 9 of 10 cases.")
    for finished in result.rounds:
        if finished.untimed:
            kernel = path / "candidates" / f"{finished.untimed}.cu"
            print_to_copy(out, f"Only a GPU can time the kernel of round {finished.outcome.round}: {kernel}")
    print_to_copy(out, f"All kernels are kept, with their commands, in {path / 'candidates'}.")
    if advise:
        out.print("To measure on a GPU: run it on a machine with an NVIDIA GPU and nvcc.")
        print_to_copy(out, f"To see what is missing for that: {ourselves('doctor')}")


def _offered(result: Result) -> list[tuple[Candidate, int, Comparison]]:
    """The kernels that should be measured on a GPU, with their rounds; none where no time is modelled.

    These are the best and those that the model cannot tell from it.
    """
    offered = [(each.candidate, each.round, each.speed) for each in result.contenders]
    if result.improved and result.verdict.modelled is not None and result.verdict.speed is not None:
        of_best = next(done for done in result.rounds if done.best == result.best.id)
        offered.insert(0, (result.best, of_best.outcome.round, result.verdict.speed))
    return offered


def _offer(out: Console, result: Result, path: Path, offered: Sequence[tuple[Candidate, int, Comparison]]) -> None:
    """Print the kernels for a GPU, with the commands that measure them there."""
    these = "this kernel" if len(offered) == 1 else "these kernels"
    what = f"UNSURE: the model cannot tell {these} from the baseline."
    if result.improved:
        several = f"UNSURE: the model cannot tell these {len(offered)} kernels apart."
        compared = any(done.outcome.against is not None for done in result.rounds)
        what = several if result.contenders else "The model has this kernel ahead of all others." if compared else ""
    out.print(f"\nNext: measure on a GPU. {what}".rstrip(), style="bold")
    print_to_copy(out, "On a machine with an NVIDIA GPU and nvcc (`cudamaster doctor` says there what it lacks),")
    print_to_copy(out, f"with a copy of {path}:")
    for candidate, number, speed in offered:
        best = ", the best so far" if candidate.id == result.best.id else ""
        out.print(f"\n  round {number}{best}: P = {speed.speedup:.2f} (modelled){reach_of(speed, mark='modelled')}")
        words = _evaluate(result, candidate, path / "candidates" / f"{candidate.id}.cu", path)
        print_to_copy(out, shlex.join(["cudamaster", *words]))


def _evaluate(result: Result, candidate: Candidate, file: Path, path: Path) -> list[str]:
    """The words of the command that judges a kernel of the run again, on whatever device is there."""
    from cudamaster.runs.record import read_manifest
    from cudamaster.tasks import finding

    task = finding.short(candidate.task, read_manifest(path).card)
    again = ["evaluate", task, str(file), "--precision", candidate.precision.value]
    if candidate.command != result.baseline.command:
        again += ["--command", candidate.command]
    return again


def _next(result: Result, path: Path, settings: Settings) -> str:
    """The command to try next: the one that continues a stopped search, or else evaluates its best kernel again."""
    if result.stopped:
        return ourselves("optimize", "--resume", str(path))
    on = [] if settings.device == "auto" else ["--device", settings.device]
    return ourselves(*_evaluate(result, result.best, path / "best.cu", path), *on)


def say_finished(result: Result, path: Path, settings: Settings) -> None:
    """The run was finished before and did nothing now: say so, and which command would continue it."""
    on = ""
    if result.note is None and settings.replay is None:
        on = f" To continue it: {ourselves('optimize', '--resume', str(path), '-R', str(settings.rounds + 2))}"
    click.echo(f"Note: this run is finished; nothing was asked or measured now.{on}", err=True)


def _total(parts: Sequence[float | None], form: str) -> str:
    """The sum; unknown amounts are named, never counted as zero."""
    known = [part for part in parts if part is not None]
    if not known and parts:
        return "unknown"
    return form.format(sum(known)) + (" and more (unknown for some calls)" if len(known) < len(parts) else "")
