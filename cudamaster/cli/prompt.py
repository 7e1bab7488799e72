"""`cudamaster prompt`: what a model would see."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cudamaster.cli import options
from cudamaster.cli.output import print_json
from cudamaster.core.values import MODEL_ROLES, ProfileMode, Role
from cudamaster.library.kernel_file import read_kernel
from cudamaster.view.invisible import visible

if TYPE_CHECKING:
    from cudamaster.models.protocol import Request
    from cudamaster.strategies.strategy import Strategy


@click.command()
@click.argument("task", required=False)
@click.option("--role", type=click.Choice([role.value for role in (*MODEL_ROLES, Role.AGENT)]), required=True,
              help="Agent whose prompt to show.")  # fmt: skip
@options.precision
@options.of_hgemm
@click.option("--strategy", help="The strategy that asks.  [default: cudamaster; judge: cudaforge]")
@click.option("--candidate", "file", type=click.Path(path_type=Path), metavar="FILE",
              help="A kernel, as for evaluate; it is built and judged first.")  # fmt: skip
@click.option("--command", help="Compile command of the kernel; the device's default otherwise.")
@click.option("--run", "run", type=click.Path(path_type=Path), metavar="RUN", help="Show what this run asked.")
@click.option("--round", "number", type=click.IntRange(1), metavar="N",
              help="Round of the run.  [default: the last one in which the role is asked]")  # fmt: skip
@options.device
@click.option("--profile", type=click.Choice([mode.value for mode in ProfileMode]),
              help="What Planner or Judge see of the profile.  [default: filtered; judge: cudaforge24]")  # fmt: skip
@options.seed
@options.as_json
def prompt(
    task: str | None,
    role: str,
    precision: str,
    strategy: str | None,
    file: Path | None,
    command: str | None,
    run: Path | None,
    number: int | None,
    device: str,
    profile: str | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Show what a model in a role would see: the system and the user message, with an estimate of their tokens.

    For TASK: the prompt about its baseline before anything was measured, or about a kernel that is built and judged
    here. <...> stands for another agent's words. With --run RUN: what the run asked, in today's wording. No model is
    asked.
    """
    from cudamaster.core.errors import UsageError

    asked = Role(role)
    if run is not None:
        known = ("task", "file", "command", "profile", "strategy", "precision", "device", "seed")
        if any(map(options.was_given, known)):
            raise UsageError(
                "A run has its own task, precision, device, strategy, kernels and profiles.",
                "With --run, give no TASK, and no options but --role, --round and --json.",
            )
        request, where = _of_run(run, asked, number)
    elif task is None:
        raise UsageError("No task was given.", "Name one of `cudamaster tasks`, or give --run RUN.")
    elif number is not None:
        raise UsageError("--round needs a run.", "Give --run RUN with --round.")
    else:
        search = _asking(asked, strategy)
        profile = profile or search.profile
        request, where = _of_kernel(task, asked, search.name, precision, file, command, device, profile, seed)
    _print(request, where, as_json=as_json)


def _asking(role: Role, strategy: str | None) -> Strategy:
    """The strategy that asks `role`. Raises UsageError if the one given does not."""
    from cudamaster.core.errors import UsageError
    from cudamaster.strategies import registry

    if strategy is None:
        strategy = next((name for name, each in registry.STRATEGIES.items() if role in each.roles), "cudamaster")
    search = registry.find(strategy)
    if role not in (*search.roles, Role.REVIEWER):
        raise UsageError(
            f"The strategy {search.name} asks no {role.value} agent.",
            f"It asks {', '.join(each.value for each in search.roles)}; any strategy can ask a reviewer.",
        )
    return search


def _of_kernel(
    task: str,
    role: Role,
    strategy: str,
    precision: str,
    file: Path | None,
    command: str | None,
    device: str,
    profile: str,
    seed: int | None,
) -> tuple[Request, str]:
    import math

    from cudamaster.core.errors import UsageError
    from cudamaster.core.values import Candidate, Status, Verdict
    from cudamaster.devices.choose import choose
    from cudamaster.profiling.filter import no_profile
    from cudamaster.runs import prompting
    from cudamaster.strategies.frame import brief_of
    from cudamaster.tasks import cards
    from cudamaster.workbench.evaluation import Workbench

    if file is None and command is not None:
        raise UsageError("--command needs a kernel.", "Give the kernel with --candidate FILE.")
    card, chosen = cards.load(task), choose(device)
    one = options.precision_of(card, precision)
    bench = Workbench(card, one, chosen, seed=seed, profile=ProfileMode(profile))
    if file is None:
        candidate = bench.baseline
        verdict = Verdict(candidate.id, chosen.name, chosen.emulated, Status.CORRECT, "not measured")
        findings = no_profile(candidate.id, "nothing was measured.")
        where = f"the baseline of {card.name} ({one}), not measured"
    else:
        code = read_kernel(file, card, one)
        candidate = Candidate(card.name, one, code, command or chosen.default_command)
        # As in a search: compute-sanitizer explains a fault, and no score is a new best.
        verdict = bench.evaluate(candidate, to_beat=math.inf)
        profiled = verdict.correct and role in (Role.PLANNER, Role.JUDGE)
        findings = bench.findings(candidate, verdict) if profiled else no_profile(candidate.id, "none was asked for.")
        where = f"{file} as a kernel for {card.name} ({one}), {verdict.status}"
    return prompting.of_kernel(role, brief_of(bench), bench.baseline, candidate, verdict, findings, strategy), where


def _of_run(path: Path, role: Role, number: int | None) -> tuple[Request, str]:
    from cudamaster.core.errors import UsageError
    from cudamaster.runs import prompting, searching
    from cudamaster.runs.record import read_record
    from cudamaster.tasks import cards

    record = read_record(path)
    heard, end = prompting.of_run(record, cards.load(searching.card_of(record.manifest) or record.manifest.task))
    # If a reply was asked for again, the first request; the second one adds the reply and what was wrong with it.
    fitting = [each for each in heard if each.request.role is role and len(each.request.messages) == 2]
    rounds = sorted({each.round for each in fitting})
    found = [each for each in fitting if number in (None, each.round)]
    if not found:
        asked = f"round {', '.join(map(str, rounds))}" if rounds else "no round"
        raise UsageError(
            f"{path} does not ask the {role.value} agent{'' if number is None else f' in round {number}'}"
            + (f" ({end})" if end else "")
            + ".",
            f"It is asked in {asked}; `cudamaster show {path}` lists the rounds.",
        )
    last = found[-1]
    stored = record.exchange(last.number)
    if stored is None:
        sent = "not asked yet"
    elif stored.request.messages == last.request.messages:
        sent = "as it was sent"
    else:
        sent = "as it would be worded now"
    return last.request, f"exchange {last.number} of {path}, round {last.round}, {sent}"


def _print(request: Request, where: str, *, as_json: bool) -> None:
    from cudamaster.runs import prompting

    counts = [(len(message.content), prompting.tokens(message.content)) for message in request.messages]
    characters, tokens = (sum(part) for part in zip(*counts, strict=True))
    if as_json:
        print_json(
            {
                "role": request.role,
                "about": where,
                "messages": request.messages,
                "characters": characters,
                "tokens_estimate": tokens,
            }
        )
        return
    for message, (length, estimate) in zip(request.messages, counts, strict=True):
        click.secho(f"── {message.role}: {length:,} characters, about {estimate:,} tokens ──", bold=True)
        click.echo(visible(message.content))
    click.secho(f"── {request.role.value}, {where}: {characters:,} characters, about {tokens:,} tokens ──", bold=True)
