"""The strategies by name: what each is, what it needs, and the one function that runs it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from importlib import import_module

from cudamaster.core.errors import UsageError, nearest
from cudamaster.core.values import ProfileMode, Role
from cudamaster.models.protocol import Model
from cudamaster.strategies.frame import Frame
from cudamaster.strategies.large_gains import JumpRule, RemeasuringWorkbench
from cudamaster.strategies.protocol import Observer
from cudamaster.strategies.result import Result
from cudamaster.strategies.strategy import Option, SearchSettings, Strategy, options_of, unknown_option

# The files of the strategies, the default one first. Each ends with its STRATEGY.
_FILES = (
    "cudamaster",
    "cudaforge",
    "contrastive",
    "sample",
    "beam",
    "mapelites",
    "bandit",
    "agent",
)
STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy for strategy in (import_module(f"{__package__}.{name}").STRATEGY for name in _FILES)
}
_LARGEST = 2**63  # what a run's settings keep is below


def find(name: str) -> Strategy:
    """The strategy of that name. Raises UsageError for an unknown one."""
    if name not in STRATEGIES:
        fix = nearest(name, STRATEGIES, f"Take one of {', '.join(STRATEGIES)}.")
        raise UsageError(f"There is no strategy {name!r}.", fix)
    return STRATEGIES[name]


def begin(
    workbench: RemeasuringWorkbench, models: Mapping[Role, Model], settings: SearchSettings, observer: Observer
) -> Frame:
    """The frame of a search with the settings' strategy, which takes no jump in the score on trust.

    Raises UsageError for settings that make no search.
    """
    roles = find(settings.strategy).roles
    if settings.rounds < 1:
        raise UsageError(f"{settings.rounds} rounds make no search.", "Give at least one with -R.")
    if Role.REVIEWER in settings.models:
        roles = (*roles, Role.REVIEWER)
    rule = JumpRule(settings.jump_factor, settings.jump_above)
    return Frame(workbench, models, roles, observer, rule=rule, tie=settings.tie)


def run(frame: Frame, settings: SearchSettings) -> Result:
    """Search in a frame that has just begun.

    Raises UsageError, DeviceError if the baseline itself does not pass, and ModelError if a model cannot be reached.
    BudgetSpent may end it at any time; then `frame.result` is that of a search that was stopped.

    Given the same replies and verdicts every strategy does the same, which is what resume and replay rest on: random
    draws come from `search_seed` alone.
    """
    frame.measure_baseline()
    note = find(settings.strategy).search(frame, settings)
    if note is not None:
        frame.observer.stopped(note)
    return frame.result(note)


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
    """The profile as given or by default. Raises UsageError if one is given that no agent sees."""
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
            raise unknown_option(strategy, name)
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
