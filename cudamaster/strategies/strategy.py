"""What a strategy is: each file of a search ends with one of these, and registry.py runs it by its name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cudamaster.agents import planner
from cudamaster.agents.brief import Brief
from cudamaster.core.errors import UsageError
from cudamaster.core.values import Candidate, Findings, ProfileMode, Role, Verdict
from cudamaster.models.protocol import Model
from cudamaster.strategies.frame import Frame

Option = str | bool | int | float


class EarlierStage(Protocol):
    """The part of a stage of a run that is described (record.Stage)."""

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


# Searches in a frame whose baseline is measured. Returns why it ended before its last round, if it did.
Search = Callable[[Frame, SearchSettings], str | None]
# Asks the Coder about a candidate alone, given the baseline too: the first after the baseline, or that itself.
AskCoder = Callable[[Model, Brief, Candidate, Candidate, Verdict], object]
# Asks the Planner about a correct candidate alone, as at the start of a search.
AskPlanner = Callable[[Model, Brief, Candidate, Verdict, Findings], object]


def _of_the_best(model: Model, brief: Brief, candidate: Candidate, verdict: Verdict, findings: Findings) -> object:
    return planner.propose(model, brief, candidate, verdict, findings, [])


@dataclass(frozen=True)
class NoOptions:
    """A strategy without options of its own."""


@dataclass(frozen=True)
class Strategy:
    """One strategy: the roles that it asks, its defaults, and how it searches with a run's settings.

    `options` is a frozen dataclass whose fields, text, numbers or truth values, all have defaults; it raises UsageError
    for values that make no sense. `debug_tries` is None where a strategy has none. `profile` is what is asked of the
    hardware, and `shows_profile` whether an agent sees it with these options; otherwise it is for readers of the run.
    `coder` and `planner` are for `cudamaster prompt`; no `coder` if what it is asked depends on more than a kernel.
    """

    name: str
    summary: str
    roles: tuple[Role, ...]
    search: Search
    rounds: int
    debug_tries: int | None = None
    profile: ProfileMode = ProfileMode.FILTERED
    shows_profile: Callable[[Any], bool] = lambda options: True
    options: type[Any] = NoOptions
    coder: AskCoder | None = None
    planner: AskPlanner = _of_the_best


def options_of(strategy: Strategy, given: Mapping[str, Option]) -> Any:
    """The strategy's options as it wants them. Raises UsageError for an unknown name and a value of no sense."""
    known = {field.name for field in dataclasses.fields(strategy.options)}
    for name in given:
        if name not in known:
            raise unknown_option(strategy, name)
    return strategy.options(**given)


def unknown_option(strategy: Strategy, name: str) -> UsageError:
    """The error for an option that a strategy does not have."""
    names = [f"{field.name}={field.default}" for field in dataclasses.fields(strategy.options)]
    return UsageError(
        f"The strategy {strategy.name} has no option {name!r}.",
        f"It has {', '.join(names)}." if names else "It has none of its own.",
    )
