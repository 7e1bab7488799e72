"""Options that say who answers: models by role and their settings, or the record of an earlier run.

Shared by the commands that search. Each role has an option of its own.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudamaster.cli import options
from cudamaster.core.values import Precision, Role

if TYPE_CHECKING:
    from cudamaster.models.choose import Choice
    from cudamaster.runs.record import Replay

_FOLDER = click.Path(path_type=Path)
# Parameters whose values a record holds.
_SETTLED = {"strategy", "rounds", "debug_tries", "pairs", "profile", "thresholds", "examples", "jump_factor",
            "jump_above", "model", "base_url", "temperature", "reasoning_effort"}  # fmt: skip
# And those of a run that is resumed, or replayed whole.
_SETTLED_TOO = {"device", "seed", "precision", "patterns", "record"}
_ROLE_MODELS = {f"{role.value}_model" for role in Role}


@dataclass(frozen=True)
class ModelOptions:
    """The options about models."""

    model: str | None
    by_role: Mapping[Role, str | None]
    base_url: str | None
    temperature: float | None
    reasoning_effort: str | None
    configured: Mapping[str, str]  # models and server of configuration files, by the variables that come before them

    def choice(self, roles: Iterable[Role]) -> Choice:
        """The models of `roles`, from these options, the environment and the defaults. Raises UsageError.

        A reviewer is asked only if its own option or variable names one, whatever --model says: no model reviews its
        own kernels unless named for it. A model for a role that is never asked, and a server without a model on it,
        would be ignored, so they are refused.
        """
        from cudamaster.core.errors import UsageError
        from cudamaster.models import choose as models
        from cudamaster.models.playbook import NAME
        from cudamaster.models.protocol import Sampling

        variable = models.variable_of(Role.REVIEWER)
        named = self.by_role.get(Role.REVIEWER) or os.environ.get(variable) or self.configured.get(variable)
        if named == NAME:
            raise UsageError("The playbook is not a model and cannot review.", "Name a model, or no reviewer.")
        asked = [*roles, Role.REVIEWER] if named else [*roles]
        for role, model in self.by_role.items():
            if model is not None and role not in asked:
                names = ", ".join(each.value for each in asked)
                raise UsageError(
                    f"This strategy asks no {role.value} agent: it asks {names}.", f"Leave --{role.value}-model out."
                )
        sampling = Sampling(self.temperature, self.reasoning_effort)
        by_role = {**self.by_role, Role.REVIEWER: named}
        choice = models.choose(os.environ, self.model, by_role, self.base_url, sampling, asked, self.configured)
        if choice.only_playbook and self.base_url is not None:
            raise UsageError(
                f"No model is named for {choice.base_url}, and the playbook needs no server.",
                "Name one with --model, e.g. openai/NAME, or leave --base-url out.",
            )
        return choice


@dataclass(frozen=True)
class RecordOptions:
    """The options about records: where to keep this run as one, and which one to take answers from."""

    record: Path | None
    replay: Path | None
    replay_models: Path | None
    real_time: bool

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


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --model, --<role>-model, --base-url, --temperature, --reasoning-effort; given as `models: ModelOptions`."""

    @functools.wraps(command)
    def wrapped(
        *,
        model: str | None,
        base_url: str | None,
        temperature: float | None,
        reasoning_effort: str | None,
        **others: Any,
    ) -> Any:
        from cudamaster.models import choose

        by_role = {role: others.pop(f"{role.value}_model") for role in Role}
        # The environment comes before files, and click knows nothing of these variables.
        configured = {
            choose.MODEL: _of_file("model", model),
            choose.BASE_URL: _of_file("base_url", base_url),
            **{choose.variable_of(role): _of_file(f"{role.value}_model", name) for role, name in by_role.items()},
        }
        models = ModelOptions(
            model if options.was_given("model") else None,
            {role: name if options.was_given(f"{role.value}_model") else None for role, name in by_role.items()},
            base_url if options.was_given("base_url") else None,
            temperature,
            reasoning_effort,
            {variable: value for variable, value in configured.items() if value},
        )
        return command(models=models, **others)

    added = [
        click.option("--model", help="LiteLLM model of all roles, e.g. openai/o4-mini; default $CUDAMASTER_MODEL or "
                     "playbook."),
        *(click.option(f"--{role.value}-model", help=f"Model of the {role.value} agent alone.") for role in Role),
        click.option("--base-url", help="Address of an OpenAI-compatible server of your own."),
        click.option("--temperature", type=options.Number(0, 2), help="Of all models that take one."),
        click.option("--reasoning-effort", help="Of all models that take one: low, medium, high, or what else their "
                     "provider knows."),
    ]  # fmt: skip
    return _all(added, wrapped)


def record_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --record, --replay, --replay-models and --real-time; given as `records: RecordOptions`."""

    @functools.wraps(command)
    def wrapped(
        *, record: Path | None, replay: Path | None, replay_models: Path | None, real_time: bool, **others: Any
    ) -> Any:
        if replay is not None and replay_models is not None:
            raise click.UsageError("--replay takes the replies from the record too; leave --replay-models out.")
        if real_time and replay is None and replay_models is None:
            raise click.UsageError("--real-time needs a record: give --replay or --replay-models.")
        if replay is not None or replay_models is not None:
            inputs = {"device", "seed"} if replay is not None else set()
            _must_leave(_SETTLED | inputs, "A replay goes by the settings of its record")
        return command(records=RecordOptions(record, replay, replay_models, real_time), **others)

    added = [
        click.option("--record", type=_FOLDER, metavar="DIR",
                     help="Keep the run in DIR/<task>_<precision>, as a record to replay."),
        click.option("--replay", type=_FOLDER, metavar="DIR",
                     help="Replay a run from its record: no key, no network, no GPU, the same result."),
        click.option("--replay-models", type=_FOLDER, metavar="DIR",
                     help="Take the models' replies from a record, in their order; measure anew."),
        click.option("--real-time", is_flag=True, help="Let a replayed reply take as long as it took then."),
    ]  # fmt: skip
    return _all(added, wrapped)


def must_leave_to_resume(kind: str) -> None:
    """Refuse, when a `kind` of thing is resumed, each option that it keeps from its start: the option would be ignored.

    Budgets, the number of tasks at once and the form of the output may change; rounds and tries may grow. Raises
    click.UsageError.
    """
    kept = (_SETTLED - {"rounds", "debug_tries"}) | _SETTLED_TOO
    may = "; -R and -D may be raised, and limits (--max-...) given anew"
    _must_leave(kept, f"A {kind} resumes with the settings that it was started with", may)


def _of_file(name: str, value: str | None) -> str | None:
    """The value of an option if a configuration file set it."""
    return None if options.was_given(name) else value


def without_settled(configured: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Defaults from configuration files, without those that a run or record which `words` name has settled."""
    given = {word.partition("=")[0] for word in words}
    settled: set[str] = set()
    if given & {"--resume", "--replay", "--replay-models"}:
        settled |= _SETTLED | _ROLE_MODELS
    if given & {"--resume", "--replay"}:
        settled |= _SETTLED_TOO
    return {name: value for name, value in configured.items() if name not in settled}


def _must_leave(settled: set[str], why: str, may: str = "") -> None:
    """A setting that is given again would be ignored, so it is refused."""
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(str(option.name)) is click.core.ParameterSource.COMMANDLINE
        if given and (option.name in settled or option.name in _ROLE_MODELS):
            raise click.UsageError(f"{why}: leave {option.opts[-1]} out{may}.")


def _all(
    added: Sequence[Callable[[Callable[..., Any]], Callable[..., Any]]], command: Callable[..., Any]
) -> Callable[..., Any]:
    for option in reversed(added):
        command = option(command)
    return command
