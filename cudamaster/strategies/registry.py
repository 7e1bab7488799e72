"""The strategies by name: what each is, what it asks for, and the one way to run it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any, Protocol

from cudamaster.core.errors import UsageError, nearest
from cudamaster.core.values import ProfileMode, Role
from cudamaster.models.protocol import Model
from cudamaster.strategies import contrastive, cudaforge, cudamaster, sample
from cudamaster.strategies.large_gains import JumpRule, RemeasuringWorkbench, Scrutiny
from cudamaster.strategies.protocol import Observer, Workbench
from cudamaster.strategies.result import Result

Option = str | bool | int | float
_LARGEST = 2**63  # what a run's settings keep is below


class EarlierStage(Protocol):
    """The part of a stage of a run that is told (runrecord.Stage)."""

    @property
    def rounds(self) -> int:
        """R of then."""
        ...

    @property
    def debug_tries(self) -> int:
        """D of then."""
        ...


class SearchSettings(Protocol):
    """The part of a run's settings that a search goes by (runrecord.Settings)."""

    @property
    def strategy(self) -> str:
        """Name of the strategy."""
        ...

    @property
    def rounds(self) -> int:
        """R of algorithm 1, N of CudaForge, k of sampling."""
        ...

    @property
    def debug_tries(self) -> int:
        """D of algorithm 1."""
        ...

    def tries_in(self, number: int) -> int:
        """D of that round, which is another one where the run was given more since."""
        ...

    @property
    def search_seed(self) -> int:
        """Seed of the strategy's own draws."""
        ...

    @property
    def earlier(self) -> Sequence[EarlierStage]:
        """What the run had before each time that it was carried on."""
        ...

    @property
    def models(self) -> Mapping[Role, str]:
        """Who is asked: the roles of the strategy, and the reviewer where one is wanted."""
        ...

    @property
    def jump_factor(self) -> float:
        """JumpRule.factor."""
        ...

    @property
    def jump_above(self) -> float:
        """JumpRule.above."""
        ...

    @property
    def tie(self) -> float:
        """By what part of 1 a modelled score has to be above the best so far, to be one."""
        ...

    @property
    def examples(self) -> int:
        """How many kernels of other tasks the Coder is shown."""
        ...

    @property
    def options(self) -> Mapping[str, Option]:
        """The strategy's own options by name."""
        ...


Run = Callable[[Workbench, Mapping[Role, Model], SearchSettings, Observer], Result]


@dataclass(frozen=True)
class NoOptions:
    """A strategy without options of its own."""


@dataclass(frozen=True)
class Strategy:
    """One strategy: the roles that it asks, its defaults, and how it is run with a run's settings.

    `options` is a frozen dataclass whose fields, text, numbers or truth values, all have defaults; it raises UsageError
    for values that make no sense. `debug_tries` is None where a strategy has none. `profile` is what is asked of the
    hardware, and `shows_profile` whether with its options an agent is told of it; else it is for readers of the run.
    """

    name: str
    summary: str
    roles: tuple[Role, ...]
    run: Run
    rounds: int
    debug_tries: int | None = None
    profile: ProfileMode = ProfileMode.FILTERED
    shows_profile: Callable[[Any], bool] = lambda options: True
    options: type[Any] = NoOptions


def _cudamaster(
    workbench: Workbench, models: Mapping[Role, Model], settings: SearchSettings, observer: Observer
) -> Result:
    return cudamaster.optimize(workbench, models, settings.rounds, settings.tries_in, observer, tie=settings.tie)


def _cudaforge(
    workbench: Workbench, models: Mapping[Role, Model], settings: SearchSettings, observer: Observer
) -> Result:
    options = options_of(find(cudaforge.NAME), settings.options)
    return cudaforge.optimize(workbench, models, settings.rounds, options, observer, tie=settings.tie)


def _sample(workbench: Workbench, models: Mapping[Role, Model], settings: SearchSettings, observer: Observer) -> Result:
    return sample.optimize(workbench, models, settings.rounds, observer, tie=settings.tie)


def _contrastive(
    workbench: Workbench, models: Mapping[Role, Model], settings: SearchSettings, observer: Observer
) -> Result:
    options = options_of(find(contrastive.NAME), settings.options)
    return contrastive.optimize(
        workbench, models, settings.rounds, options, settings.search_seed, observer, tie=settings.tie
    )


STRATEGIES = {
    strategy.name: strategy
    for strategy in (
        Strategy(
            cudamaster.NAME,
            "algorithm 1: Planner, Coder, Compiler and Debug, R rounds of up to D debug tries",
            cudamaster.ROLES,
            _cudamaster,
            rounds=3,
            debug_tries=3,
        ),
        Strategy(
            cudaforge.NAME,
            "CudaForge: Coder and Judge over R rounds, with 24 metrics",
            cudaforge.ROLES,
            _cudaforge,
            rounds=10,
            profile=ProfileMode.CUDAFORGE24,
            shows_profile=lambda options: options.judge != cudaforge.CORRECTION,
            options=cudaforge.Options,
        ),
        Strategy(
            contrastive.NAME,
            "CUDA-L1 with fixed weights: R kernels, each written from earlier ones and their scores",
            contrastive.ROLES,
            _contrastive,
            rounds=10,
            shows_profile=lambda options: False,
            options=contrastive.Options,
        ),
        Strategy(
            sample.NAME,
            "R independent single shots of the Coder, without any feedback",
            sample.ROLES,
            _sample,
            rounds=10,
            shows_profile=lambda options: False,
        ),
    )
}


def find(name: str) -> Strategy:
    """The strategy of that name. Raises UsageError for an unknown one."""
    if name not in STRATEGIES:
        fix = nearest(name, STRATEGIES, f"Take one of {', '.join(STRATEGIES)}.")
        raise UsageError(f"There is no strategy {name!r}.", fix)
    return STRATEGIES[name]


def run(
    workbench: RemeasuringWorkbench, models: Mapping[Role, Model], settings: SearchSettings, observer: Observer
) -> Result:
    """Search with the strategy of the settings, which takes no jump in the score on trust.

    Raises what the strategies raise, UsageError for an unknown one.

    Given the same replies and verdicts every strategy does the same, which is what resume and replay rest on: random
    draws come from `search_seed` alone.
    """
    rule = JumpRule(settings.jump_factor, settings.jump_above)
    reviewer = models[Role.REVIEWER] if Role.REVIEWER in settings.models else None
    trusted = Scrutiny(workbench, rule, reviewer, observer)
    result = find(settings.strategy).run(trusted, models, settings, observer)
    return changed(result, usage={**result.usage, **trusted.usage})


def described(settings: SearchSettings) -> str:
    """The strategy with its figures in a few words."""
    strategy = find(settings.strategy)
    words = [strategy.name, f"R = {settings.rounds}"]
    if strategy.debug_tries is not None:
        words.append(f"D = {settings.debug_tries}")
    if settings.examples:
        words.append(f"worked examples = {settings.examples}")
    words += [f"{name} = {value}" for name, value in settings.options.items()]
    if settings.earlier:
        first = settings.earlier[0]
        tries = f", D = {first.debug_tries}" if first.debug_tries != settings.debug_tries else ""
        words.append(f"carried on from R = {first.rounds}{tries}")
    return ", ".join(words)


def debug_tries_of(strategy: Strategy, given: int | None) -> int:
    """D as given or by default; 0 for a strategy without. Raises UsageError where one is given to such a strategy."""
    if strategy.debug_tries is None and given is not None:
        raise UsageError(f"The strategy {strategy.name} has no debug tries.", "Leave out -D.")
    return given if given is not None else strategy.debug_tries or 0


def profile_of(strategy: Strategy, given: str | None, options: Mapping[str, Option]) -> ProfileMode:
    """The profile as given or by default. Raises UsageError where one is given that no agent is told of."""
    mode = strategy.profile if given is None else ProfileMode(given)
    if given is None or mode is ProfileMode.NONE or strategy.shows_profile(options_of(strategy, options)):
        return mode
    defaults = strategy.options()
    changed = [f"{name}={value}" for name, value in options.items() if value != getattr(defaults, name)]
    which = f" with {', '.join(changed)}" if strategy.shows_profile(defaults) else ""
    raise UsageError(
        f"The strategy {strategy.name}{which} shows no agent a profile.",
        "Leave out --profile, or give none, which profiles nothing.",
    )


def options_of(strategy: Strategy, given: Mapping[str, Option]) -> Any:
    """The strategy's options as it wants them. Raises UsageError for an unknown name and a value of no sense."""
    known = {field.name for field in dataclasses.fields(strategy.options)}
    for name in given:
        if name not in known:
            raise _unknown(strategy, name)
    return strategy.options(**given)


def parse_options(strategy: Strategy, pairs: Sequence[str]) -> dict[str, Option]:
    """All options of a strategy from NAME=VALUE words, the rest by default: what a run's settings keep.

    Raises UsageError for an unknown name, and for a value of another kind than the option's.
    """
    given: dict[str, Option] = {}
    defaults = strategy.options()
    known = {field.name for field in dataclasses.fields(defaults)}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise UsageError(f"{pair!r} sets nothing.", "Write it as NAME=VALUE.")
        if name not in known:
            raise _unknown(strategy, name)
        given[name] = _value(name, text.strip(), getattr(defaults, name))
    return dataclasses.asdict(options_of(strategy, given))


def _value(name: str, text: str, default: Option) -> Option:
    kind = type(default)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise UsageError(f"{name} is {text!r}, which is neither true nor false.", f"Write {name}=true.")
        return text.lower() == "true"
    try:
        value = kind(text)
    except ValueError as error:
        words = {int: "whole number", float: "number"}
        raise UsageError(f"{name} is {text!r}, which is no {words[kind]}.", f"Write {name}={default}.") from error
    if isinstance(value, int) and abs(value) >= _LARGEST:
        raise UsageError(f"{name} is beyond 64 bits.", f"Write {name}={default}.")
    return value


def _unknown(strategy: Strategy, name: str) -> UsageError:
    names = [f"{field.name}={field.default}" for field in dataclasses.fields(strategy.options)]
    return UsageError(
        f"The strategy {strategy.name} has no option {name!r}.",
        f"It has {', '.join(names)}." if names else "It has none of its own.",
    )
