"""What `cudamaster optimize` prints before a search and after it; what comes between is in search_progress."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cudamaster.cli.output import ourselves, print_to_copy, score_column, styled, table, why_incomplete
from cudamaster.core.values import Role
from cudamaster.models.playbook import NAME as PLAYBOOK

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from cudamaster.core.values import Hardware
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
    lost = "" if result.improved else f" (the baseline: nothing beat it{in_times})"
    print_to_copy(out, f"Best kernel:    {path / 'best.cu'}{lost}")
    print_to_copy(out, f"Build command:  {result.best.command}")
    print_to_copy(out, f"Evidence:       {path / 'verdicts' / (result.best.id + '.json')}")
    if not only_playbook and Role.AGENT not in settings.models:
        _say_cost(out, result)
    if not result.verdict.complete:
        out.print(
            f"Incomplete:     cases of the sweep {why_incomplete(result.verdict.modelled)}; the evidence names them."
        )
    if result.verdict.emulated:
        _say_emulated(out, result, path)
    if only_playbook:
        out.print(
            "The kernels came from the built-in playbook, which is not a language model.\n"
            "To use a model: export OPENAI_API_KEY=... and add --model openai/o4-mini (any LiteLLM name will do)."
        )
    if result.stopped:
        out.print(f"Stopped:        {result.note}")
    print_to_copy(out, f"Next: {_next(result, path, settings)}")


def _show_rounds(out: Console, result: Result) -> None:
    """The table of rounds; the baseline's line comes first."""
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


def _say_cost(out: Console, result: Result) -> None:
    """What the models took: calls, tokens and dollars."""
    asked = [use for use in result.usage.values() if use.calls]
    tokens = _total([n for use in asked for n in (use.prompt_tokens, use.completion_tokens)], "{:.0f}")
    cached = sum(use.cached_tokens or 0 for use in asked)
    tokens += f" ({cached} of them cached)" if cached else ""
    dollars = _total([use.dollars for use in asked], "{:.4f}")
    out.print(f"Models:         {sum(use.calls for use in asked)} calls, tokens: {tokens}, dollars: {dollars}")


def _say_emulated(out: Console, result: Result, path: Path) -> None:
    """What a result of the CPU device is worth, and how to measure it on a GPU."""
    model = result.verdict.modelled
    said = (
        "times are emulated and say nothing about a GPU:\na kernel that is slow here may be the fastest there."
        if model is None
        else f"P is modelled:\n{model.described}. Only a GPU can confirm it."
    )
    out.print(f"\nThis ran on the CPU device: results are checked there, {said}")
    for finished in result.rounds:
        if finished.untimed:
            kernel = path / "candidates" / f"{finished.untimed}.cu"
            print_to_copy(out, f"Only a GPU can time the kernel of round {finished.outcome.round}: {kernel}")
    print_to_copy(out, f"All kernels are kept, with their commands, in {path / 'candidates'}.")
    out.print("To measure on a GPU: run it on a machine with an NVIDIA GPU and nvcc.")
    print_to_copy(out, f"To see what is missing for that: {ourselves('doctor')}")


def _next(result: Result, path: Path, settings: Settings) -> str:
    """The command to try next: the one that continues a stopped search, or else evaluates its best kernel again."""
    from cudamaster.runs.record import read_manifest
    from cudamaster.tasks import finding

    if result.stopped:
        return ourselves("optimize", "--resume", str(path))
    best = result.best
    task = finding.short(best.task, read_manifest(path).card)
    again = ["evaluate", task, str(path / "best.cu"), "--precision", best.precision.value]
    if settings.device != "auto":
        again += ["--device", settings.device]
    if best.command != result.baseline.command:
        again += ["--command", best.command]
    return ourselves(*again)


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
