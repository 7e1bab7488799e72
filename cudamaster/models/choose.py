"""Which model answers which role: from options, then the environment, then the built-in playbook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cudamaster.errors import UsageError
from cudamaster.models.litellm_model import LiteLLMModel
from cudamaster.models.playbook import NAME, PlaybookModel
from cudamaster.models.protocol import Model
from cudamaster.values import Role


@dataclass(frozen=True)
class Choice:
    """The name of the model for each role, and the address of a server of one's own."""

    names: Mapping[Role, str]
    base_url: str | None = None

    @property
    def only_playbook(self) -> bool:
        """Whether no model is asked at all."""
        return set(self.names.values()) == {NAME}


def choose(
    environ: Mapping[str, str],
    model: str | None = None,
    by_role: Mapping[Role, str | None] | None = None,
    base_url: str | None = None,
) -> Choice:
    """Resolve names: the role's own option, --model, $CUDAMASTER_<ROLE>_MODEL, $CUDAMASTER_MODEL, "playbook".

    The base URL is `base_url`, else $CUDAMASTER_BASE_URL. Raises UsageError for an empty name.
    """
    own = by_role or {}
    names = {
        role: own.get(role)
        or model
        or environ.get(f"CUDAMASTER_{role.value.upper()}_MODEL")
        or environ.get("CUDAMASTER_MODEL")
        or NAME
        for role in Role
    }
    for role, name in names.items():
        if not name.strip() or name != name.strip() or any(c.isspace() for c in name):
            raise UsageError(
                f"{name!r} is no model name for the {role.value}.",
                "Give one as PROVIDER/NAME, or `playbook`.",
            )
    return Choice(names, base_url or environ.get("CUDAMASTER_BASE_URL") or None)


def build(choice: Choice) -> dict[Role, Model]:
    """One model object per name, shared by the roles that name it. Nothing is imported or reached yet."""
    built: dict[str, Model] = {}
    for name in choice.names.values():
        if name not in built:
            built[name] = PlaybookModel() if name == NAME else LiteLLMModel(name, choice.base_url)
    return {role: built[name] for role, name in choice.names.items()}
