"""Options that say how to search, and how much may be spent on it. Shared by the commands that search."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from cudamaster.cli import options
from cudamaster.cli.model_options import without_settled
from cudamaster.library.ranges import MOST_ROUNDS
from cudamaster.library.search_options import BudgetOptions, SearchOptions
from cudamaster.models.protocol import REPLY_SECONDS


class SearchCommand(click.Command):
    """A command with --strategy, whose help lists the strategies.

    Settings of configuration files are for new searches: they change no run that is resumed or replayed.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words, parsed with the defaults that apply to them."""
        ctx.default_map = without_settled(ctx.default_map or {}, args)
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The strategies, a line each."""
        from cudamaster.strategies.registry import STRATEGIES

        with formatter.section("Strategies (docs/strategies.md)"):
            formatter.write_dl([(strategy.name, strategy.summary) for strategy in STRATEGIES.values()])


def search_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --strategy and what goes with it, the device and its seed; given as `search: SearchOptions` and `ray`."""

    @functools.wraps(command)
    def wrapped(
        *,
        strategy: str,
        rounds: int | None,
        debug_tries: int | None,
        pairs: tuple[str, ...],
        device: str,
        ray: str | None,
        seed: int | None,
        profile: str | None,
        jump_factor: float,
        jump_above: float,
        examples: int,
        thresholds: str,
        agent_command: str | None,
        agent_minutes: float | None,
        **others: Any,
    ) -> Any:
        if strategy != "agent" and not options.was_given("agent_command"):
            agent_command = None  # a file's is for searches of that strategy
        if strategy != "agent" and not options.was_given("agent_minutes"):
            agent_minutes = None
        search = SearchOptions(strategy, rounds, debug_tries, pairs, device, seed, profile, jump_factor, jump_above,
                               examples, thresholds, agent_command, agent_minutes)  # fmt: skip
        return command(search=search, ray=ray, **others)

    added: list[options.Decorator] = [
        click.option("--strategy", default="cudamaster", show_default=True, help="How to search, see below."),
        click.option("-R", "--rounds", type=click.IntRange(1, MOST_ROUNDS),
                     help="Rounds of the search; samples for `sample`, submissions for `agent`.  [default: 3; agent: "
                     "20; other strategies: 10]"),
        click.option("-D", "--debug-tries", type=click.IntRange(0, MOST_ROUNDS),
                     help="Attempts to repair a failing kernel in each round, where Debug is asked.  [default: 3]"),
        click.option("--agent-command", metavar="CMD",
                     help="The program that searches, for the strategy `agent`: 'python my_agent.py', say."),
        click.option("--agent-minutes", type=options.Number(0, min_open=True), metavar="M",
                     help="How long a session lets that program work.  [default: 60]"),
        click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE",
                     help="Set an option that only this strategy has; can be repeated."),
        options.device,
        options.ray,
        options.seed,
        click.option("--profile", type=click.Choice(["filtered", "full", "cudaforge24", "none"]),
                     help="What of the hardware profile agents see.  [default: filtered; cudaforge: cudaforge24]"),
        click.option("--jump-factor", type=float, default=2.0, show_default=True,
                     help="Measure a new best again if its P is above this many times the best so far; 0: never."),
        click.option("--jump-above", type=float, default=8.0, show_default=True,
                     help="Measure a new best again if its P is above this; 0: never."),
        click.option("--examples", type=click.IntRange(0, MOST_ROUNDS), default=0, show_default=True,
                     help="Number of hand-written kernels of other tasks to show the Coder."),
        click.option("--thresholds", default="paper", show_default=True,
                     help="Thresholds that decide what bounds a kernel: paper, calibrated (for this GPU), or a file."),
    ]  # fmt: skip
    return options.added(added, wrapped)


def budget_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --max-dollars, --max-tokens and so on, and --model-timeout; given as `budget: BudgetOptions`."""

    @functools.wraps(command)
    def wrapped(
        *,
        max_dollars: float | None,
        max_tokens: float | None,
        max_minutes: float | None,
        max_gpu_seconds: float | None,
        model_timeout: float | None,
        **others: Any,
    ) -> Any:
        budget = BudgetOptions(max_dollars, max_tokens, max_minutes, max_gpu_seconds, model_timeout)
        return command(budget=budget, **others)

    limit = options.Number(0, min_open=True)
    added: list[options.Decorator] = [
        click.option("--max-dollars", type=limit, metavar="X", help="Stop, with the best kernel so far, when models "
                     "have cost this much, counting what was spent before a --resume. `inf` lifts a limit."),
        click.option("--max-tokens", type=limit, metavar="N", help="Stop after this many tokens, prompts and replies."),
        click.option("--max-minutes", type=limit, metavar="M", help="Stop after this many minutes of work in all "
                     "sessions, even during a call to a model."),
        click.option("--max-gpu-seconds", type=limit, metavar="S", help="Stop when the GPU has been in use for this "
                     "many seconds."),
        click.option("--model-timeout", type=limit, metavar="SECONDS", help="Time limit on a model's whole "
                     f"reply, even if it arrives in pieces; --resume keeps it.  [default: {REPLY_SECONDS:g}]"),
    ]  # fmt: skip
    return options.added(added, wrapped)
