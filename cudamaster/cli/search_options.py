"""Options that say how to search, and how much may be spent on it. Shared by the commands that search."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from cudamaster.cli import options
from cudamaster.cli.model_options import ModelOptions, without_settled
from cudamaster.core.errors import UsageError
from cudamaster.models.protocol import REPLY_SECONDS
from cudamaster.runs.budget import Limits

_MOST = 1_000_000  # of rounds, tries and examples; a run folder cannot keep a number of any size

if TYPE_CHECKING:
    from cudamaster.core.values import Role
    from cudamaster.models.protocol import Model
    from cudamaster.runs.record import Settings


@dataclass(frozen=True)
class SearchOptions:
    """The options about the search; None where the strategy has a default of its own."""

    strategy: str
    rounds: int | None
    debug_tries: int | None
    pairs: tuple[str, ...]
    device: str
    seed: int | None
    profile: str | None
    jump_factor: float
    jump_above: float
    examples: int
    thresholds: str

    def settings(self, models: ModelOptions) -> Settings:
        """The settings of a fresh search with these models. Raises UsageError, and ModelError for a missing key."""
        import secrets

        from cudamaster.core.speed import MARGIN
        from cudamaster.models.choose import must_be_usable
        from cudamaster.runs.record import Settings
        from cudamaster.strategies import registry
        from cudamaster.strategies.large_gains import JumpRule

        search = registry.find(self.strategy)
        choice = models.choice(search.roles)
        rule = JumpRule(self.jump_factor, self.jump_above)
        own = registry.parse_options(search, self.pairs)
        settings = Settings(
            self.strategy,
            self.rounds or search.rounds,
            registry.debug_tries_of(search, self.debug_tries),
            self.device,
            choice.names,
            choice.base_url,
            self.seed,
            registry.profile_of(search, self.profile, own),
            self.thresholds,
            options=own,
            search_seed=secrets.randbits(63) if self.seed is None else self.seed,
            examples=self.examples,
            sampling=choice.sampling,
            jump_factor=rule.factor,
            jump_above=rule.above,
            tie=MARGIN,
        )
        must_be_usable(choice)  # last, because it takes seconds
        return settings


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
    """Add --strategy and what goes with it, the device and its seed; given as `search: SearchOptions`."""

    @functools.wraps(command)
    def wrapped(
        *,
        strategy: str,
        rounds: int | None,
        debug_tries: int | None,
        pairs: tuple[str, ...],
        device: str,
        seed: int | None,
        profile: str | None,
        jump_factor: float,
        jump_above: float,
        examples: int,
        thresholds: str,
        **others: Any,
    ) -> Any:
        search = SearchOptions(strategy, rounds, debug_tries, pairs, device, seed, profile, jump_factor, jump_above,
                               examples, thresholds)  # fmt: skip
        return command(search=search, **others)

    added: list[options.Decorator] = [
        click.option("--strategy", default="cudamaster", show_default=True, help="How to search, see below."),
        click.option("-R", "--rounds", type=click.IntRange(1, _MOST),
                     help="Rounds of the search; samples for `sample`.  [default: 3; other strategies: 10]"),
        click.option("-D", "--debug-tries", type=click.IntRange(0, _MOST),
                     help="Attempts to repair a failing kernel in each round (strategy cudamaster).  [default: 3]"),
        click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE",
                     help="Set an option that only this strategy has; can be repeated."),
        options.device,
        options.seed,
        click.option("--profile", type=click.Choice(["filtered", "full", "cudaforge24", "none"]),
                     help="What of the hardware profile agents see.  [default: filtered; cudaforge: cudaforge24]"),
        click.option("--jump-factor", type=float, default=2.0, show_default=True,
                     help="Measure a new best again if its P is above this many times the best so far; 0: never."),
        click.option("--jump-above", type=float, default=8.0, show_default=True,
                     help="Measure a new best again if its P is above this; 0: never."),
        click.option("--examples", type=click.IntRange(0, _MOST), default=0, show_default=True,
                     help="Number of hand-written kernels of other tasks to show the Coder."),
        click.option("--thresholds", default="paper", show_default=True,
                     help="Thresholds that decide what bounds a kernel: paper, calibrated (for this GPU), or a file."),
    ]  # fmt: skip
    return options.added(added, wrapped)


@dataclass(frozen=True)
class BudgetOptions:
    """Limits as given: infinity for no limit, None if the option was left out."""

    dollars: float | None
    tokens: float | None
    minutes: float | None
    gpu_seconds: float | None
    reply_seconds: float | None = None

    def limits(self, before: Limits | None = None) -> Limits:
        """The limits in force: each as given, otherwise as in `before`, the limits of the previous session."""
        known = before or Limits()
        return Limits(
            _either(self.dollars, known.dollars),
            _either(self.tokens, known.tokens),
            _either(self.minutes, known.minutes),
            _either(self.gpu_seconds, known.gpu_seconds),
            _either(self.reply_seconds, known.reply_seconds),
        )


def _either(given: float | None, before: float | None) -> float | None:
    if given is None:
        return before
    return None if math.isinf(given) else given


def must_be_priced(models: Mapping[Role, Model], limits: Limits) -> None:
    """Raise UsageError if dollars are limited and a model has no known price: the limit could not be kept."""
    from cudamaster.models.choose import unpriced

    names = unpriced(models) if limits.dollars is not None else ()
    if names:
        raise UsageError(
            f"--max-dollars cannot be kept: the price of {' and '.join(names)} is unknown.",
            "Give --max-tokens instead (with --resume: and `--max-dollars inf`).",
        )


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
