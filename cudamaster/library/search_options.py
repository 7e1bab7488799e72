"""What may be said about a search: how to search, who answers, what is kept or replayed, and what may be spent."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cudamaster.core.errors import UsageError
from cudamaster.core.values import Precision, Role
from cudamaster.runs.budget import Limits

if TYPE_CHECKING:
    from cudamaster.models.choose import Choice
    from cudamaster.models.protocol import Model
    from cudamaster.runs.record import Replay, Settings


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
    agent_command: str | None = None
    agent_minutes: float | None = None

    def settings(self, models: ModelOptions) -> Settings:
        """The settings of a fresh search with these models. Raises UsageError, and ModelError for a missing key."""
        import secrets

        from cudamaster.core.speed import MARGIN
        from cudamaster.models.choose import must_be_usable
        from cudamaster.outside import program
        from cudamaster.runs.record import Settings
        from cudamaster.strategies import registry
        from cudamaster.strategies.large_gains import JumpRule

        search = registry.find(self.strategy)
        choice = models.choice(search.roles)
        rule = JumpRule(self.jump_factor, self.jump_above)
        own = registry.parse_options(search, (*self.pairs, *self._of_agent(Role.AGENT in search.roles)))
        agent: dict[Role, str] = {}
        if Role.AGENT in search.roles:
            own["command"] = program.resolved(str(own["command"]))
            agent[Role.AGENT] = program.name_of(str(own["command"]))
        settings = Settings(
            self.strategy,
            self.rounds or search.rounds,
            registry.debug_tries_of(search, self.debug_tries),
            self.device,
            {**agent, **choice.names},
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
        named = {role: name for role, name in choice.names.items() if role not in models.objects(choice.names)}
        must_be_usable(replace(choice, names=named))  # last, because it takes seconds
        return settings

    def _of_agent(self, outside: bool) -> list[str]:
        """What was said of an outside agent, as options of its strategy. Raises UsageError where none searches."""
        said = {"command": self.agent_command, "minutes": self.agent_minutes}
        given = {name: value for name, value in said.items() if value is not None}
        if given and not outside:
            raise UsageError(
                f"--agent-{next(iter(given))} is for an outside agent, and the strategy is {self.strategy}.",
                "Add --strategy agent.",
            )
        if outside and self.seed is not None:
            raise UsageError(
                "With --seed every evaluation would have the same inputs and sizes, which the agent could learn.",
                "Leave --seed out.",
            )
        return [f"{name}={value}" for name, value in given.items()]


@dataclass(frozen=True)
class ModelOptions:
    """The options about models: names, or objects that answer (models.protocol.Model), for all roles or one by one."""

    model: str | Model | None = None
    by_role: Mapping[Role, str | Model | None] = field(default_factory=dict)
    base_url: str | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
    # Models and server of configuration files, by the variables that come before them.
    configured: Mapping[str, str] = field(default_factory=dict)

    def objects(self, roles: Iterable[Role]) -> dict[Role, Model]:
        """The objects that answer those of `roles` for which one was given."""
        given = {role: self.by_role.get(role) or (None if role is Role.REVIEWER else self.model) for role in roles}
        return {role: model for role, model in given.items() if model is not None and not isinstance(model, str)}

    def choice(self, roles: Iterable[Role]) -> Choice:
        """The models of `roles`, from these options, the environment and the defaults. Raises UsageError.

        A reviewer is asked only if its own option or variable names one, whatever --model says: no model reviews its
        own kernels unless named for it. A model for a role that is never asked, and a server without a model on it,
        would be ignored, so they are refused.
        """
        from cudamaster.models import choose as models
        from cudamaster.models.playbook import NAME
        from cudamaster.models.protocol import Sampling

        by_role = {role: _name_of(model) for role, model in self.by_role.items()}
        variable = models.variable_of(Role.REVIEWER)
        named = by_role.get(Role.REVIEWER) or os.environ.get(variable) or self.configured.get(variable)
        if named == NAME:
            raise UsageError("The playbook is not a model and cannot review.", "Name a model, or no reviewer.")
        models_of = [role for role in roles if role is not Role.AGENT]
        asked = [*models_of, Role.REVIEWER] if named else models_of
        if not models_of and (self.model is not None or (self.base_url is not None and not named)):
            raise UsageError("An outside agent asks models of its own.", "Leave --model and --base-url out.")
        for role, model in by_role.items():
            if model is not None and role not in asked:
                names = ", ".join(each.value for each in asked) or "no model"
                raise UsageError(
                    f"This strategy asks no {role.value} agent: it asks {names}.", f"Leave --{role.value}-model out."
                )
        sampling = Sampling(self.temperature, self.reasoning_effort)
        by_role[Role.REVIEWER] = named
        name = _name_of(self.model)
        choice = models.choose(os.environ, name, by_role, self.base_url, sampling, asked, self.configured)
        if choice.only_playbook and self.base_url is not None:
            raise UsageError(
                f"No model is named for {choice.base_url}, and the playbook needs no server.",
                "Name one with --model, e.g. openai/NAME, or leave --base-url out.",
            )
        return choice


@dataclass(frozen=True)
class RecordOptions:
    """The options about records: where to keep this run as one, and which one to take answers from."""

    record: Path | None = None
    replay: Path | None = None
    replay_models: Path | None = None
    real_time: bool = False

    @property
    def source(self) -> Path | None:
        """Where answers come from; None if models are asked."""
        return self.replay or self.replay_models

    @property
    def wanted(self) -> Replay:
        """The replay that was asked for, with the place as it was given."""
        from cudamaster.runs.record import Replay

        return Replay(str(self.source), self.replay is None, self.real_time)

    def path(self, out: Path, task: str, precision: Precision) -> Path:
        """The run folder's path: its place in the record, or under `out` with the time in its name."""
        from cudamaster.runs.folder import fresh_path
        from cudamaster.runs.replaying import folder_name

        if self.record is not None:
            return self.record / folder_name(task, precision)
        return fresh_path(out, task, precision)


@dataclass(frozen=True)
class BudgetOptions:
    """Limits as given: infinity for no limit, None if the option was left out."""

    dollars: float | None = None
    tokens: float | None = None
    minutes: float | None = None
    gpu_seconds: float | None = None
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


def must_be_priced(models: Mapping[Role, Model], limits: Limits) -> None:
    """Raise UsageError if a limit could not be kept.

    That is one of dollars if a model has no known price, and either of an outside agent's, which nobody counts.
    """
    from cudamaster.models.choose import unpriced

    if Role.AGENT in models:
        for option, limit in (("--max-dollars", limits.dollars), ("--max-tokens", limits.tokens)):
            if limit is not None:
                raise UsageError(
                    f"{option} cannot be kept: what an outside agent spends is unknown here.",
                    f"Limit it in the agent itself, or give --max-minutes (with --resume: and `{option} inf`).",
                )
    names = unpriced(models) if limits.dollars is not None else ()
    if names:
        raise UsageError(
            f"--max-dollars cannot be kept: the price of {' and '.join(names)} is unknown.",
            "Give --max-tokens instead (with --resume: and `--max-dollars inf`).",
        )


def _either(given: float | None, before: float | None) -> float | None:
    if given is None:
        return before
    return None if math.isinf(given) else given


def _name_of(model: str | Model | None) -> str | None:
    return model if model is None or isinstance(model, str) else model.name
