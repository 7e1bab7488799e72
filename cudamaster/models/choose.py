"""Which model answers which role: from options, then the environment, then the built-in playbook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from cudamaster.core.errors import UsageError
from cudamaster.core.keys import checked_url
from cudamaster.core.values import Role
from cudamaster.models.call_errors import NAME_IT
from cudamaster.models.litellm_model import LiteLLMModel
from cudamaster.models.playbook import NAME, PlaybookModel
from cudamaster.models.protocol import REPLY_SECONDS, Model, Sampling

MODEL, BASE_URL = "CUDAMASTER_MODEL", "CUDAMASTER_BASE_URL"


@dataclass(frozen=True)
class Choice:
    """The name of each role's model, the address of the user's own server, and sampling options for all models."""

    names: Mapping[Role, str]
    base_url: str | None = None
    sampling: Sampling = field(default_factory=Sampling)

    @property
    def only_playbook(self) -> bool:
        """Whether no model is asked at all."""
        return set(self.names.values()) == {NAME}


def variable_of(role: Role) -> str:
    """The environment variable that names the model of a role."""
    return f"CUDAMASTER_{role.value.upper()}_MODEL"


def choose(
    environ: Mapping[str, str],
    model: str | None = None,
    by_role: Mapping[Role, str | None] | None = None,
    base_url: str | None = None,
    sampling: Sampling | None = None,
    roles: Iterable[Role] = (Role.PLANNER, Role.CODER, Role.COMPILER, Role.DEBUG),
    configured: Mapping[str, str] | None = None,
) -> Choice:
    """Resolve names: the role's own option, --model, $CUDAMASTER_<ROLE>_MODEL, $CUDAMASTER_MODEL, "playbook".

    Before "playbook" comes what is `configured`, under the same variables. `roles` are those that the strategy asks.
    The base URL is `base_url`, otherwise $CUDAMASTER_BASE_URL. Raises UsageError for an empty name, and for an address
    that may contain a key.
    """
    levels = (environ, configured or {})
    own = by_role or {}
    names = {
        role: own.get(role)
        or model
        or next((found for level in levels if (found := level.get(variable_of(role)) or level.get(MODEL))), NAME)
        for role in roles
    }
    for role, name in names.items():
        if not name.strip() or name != name.strip() or any(c.isspace() for c in name):
            raise UsageError(
                f"{name!r} is not a model name for the {role.value}.",
                "Give one as PROVIDER/NAME, or `playbook`.",
            )
    url = checked_url(base_url or next((level[BASE_URL] for level in levels if level.get(BASE_URL)), None))
    return Choice(names, url, sampling or Sampling())


def build(
    choice: Choice, reply_seconds: float | None = REPLY_SECONDS, playbook: Callable[[], Model] = PlaybookModel
) -> dict[Role, Model]:
    """One model object per name, shared by the roles that name it. Nothing is imported or reached yet.

    A whole reply may take `reply_seconds`; None for no limit. `playbook` makes the playbook.
    """
    built: dict[str, Model] = {}
    for name in choice.names.values():
        if name not in built:
            built[name] = (
                playbook()
                if name == NAME
                else LiteLLMModel(name, choice.base_url, choice.sampling, timeout_s=reply_seconds)
            )
    return {role: built[name] for role, name in choice.names.items()}


def must_be_usable(choice: Choice) -> None:
    """Raise early for errors that the first call would show only after measurements.

    That is UsageError for a name without a provider, and ModelError for a missing key. Imports LiteLLM if a model is
    named; contacts no server.
    """
    for model in dict.fromkeys(build(choice).values()):
        if isinstance(model, LiteLLMModel):
            if not model.known:
                raise UsageError(f"No model is known as {model.name}: LiteLLM has no provider for it.", NAME_IT)
            model.must_have_key()


def left_out(sampling: Sampling, models: Mapping[Role, Model]) -> tuple[str, ...]:
    """Which options are not sent to which of `models`, in words.

    If no option was given, nothing is looked up; otherwise this imports LiteLLM, which takes seconds. Contacts no
    server.
    """
    if sampling == Sampling():
        return ()
    notes = []
    for model in dict.fromkeys(models.values()):
        options = model.left_out() if isinstance(model, LiteLLMModel) else ()
        notes += [f"{model.name} takes no {option.replace('_', ' ')}: it is left out." for option in options]
        if isinstance(model, PlaybookModel):
            notes.append("The playbook is not a model: temperature and reasoning effort have no effect on it.")
    return tuple(notes)


def unpriced(models: Mapping[Role, Model]) -> tuple[str, ...]:
    """Names of those `models` whose calls have no known price. Imports LiteLLM if one of them needs it."""
    asked = dict.fromkeys(models.values())
    return tuple(model.name for model in asked if isinstance(model, LiteLLMModel) and not model.priced)
