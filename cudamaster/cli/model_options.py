"""Options that say who answers: models by role and their settings, or the record of an earlier run.

Shared by the commands that search. Each role has an option of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from cudamaster.cli import options
from cudamaster.core.values import MODEL_ROLES
from cudamaster.library.search_options import ModelOptions, RecordOptions

_FOLDER = click.Path(path_type=Path)
# Parameters whose values a record holds.
_SETTLED = {"strategy", "rounds", "debug_tries", "pairs", "profile", "thresholds", "examples", "jump_factor",
            "jump_above", "agent_command", "agent_minutes", "model", "base_url", "temperature",
            "reasoning_effort"}  # fmt: skip
# And those of a run that is resumed, or replayed whole.
_SETTLED_TOO = {"device", "seed", "precision", "patterns", "record"}
_ROLE_MODELS = {f"{role.value}_model" for role in MODEL_ROLES}


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

        by_role = {role: others.pop(f"{role.value}_model") for role in MODEL_ROLES}
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
        *(click.option(f"--{role.value}-model", help=f"Model of the {role.value} agent alone.")
          for role in MODEL_ROLES),
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
