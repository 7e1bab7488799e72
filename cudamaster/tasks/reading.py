"""Reads a task card: YAML text into a `TaskCard`, or all that is wrong with it, each with line and fix."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from cudamaster.core.errors import CardError, Problem, nearest, one_line
from cudamaster.core.expressions import ExpressionError
from cudamaster.tasks import marked_yaml
from cudamaster.tasks.cards import TaskCard
from cudamaster.tasks.marked_yaml import Document
from cudamaster.tasks.misfits import Misfits, Place

_COMPARE = "Compare it with bench/tasks/spmv_csr.yaml; the fields are described in cudamaster/tasks/cards.py."
T = TypeVar("T", bound=BaseModel)


@lru_cache(maxsize=128)
def read(path: Path, _changed: int, folder: Path) -> TaskCard:
    """The card in a file, whose baselines and reference are in `folder`. `_changed` is the file's time of change.

    Raises CardError.
    """
    return checked(text_of(path), path, folder)


def text_of(path: Path) -> str:
    """The text of a card's file, up to somewhat more than a card may have. Raises CardError."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(marked_yaml.LONGEST_FILE + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise CardError.of([Problem(str(path), 1, "", f"it cannot be read: {one_line(error)}", _COMPARE)]) from error


def wrong_at(path: Path, field: str, what: str, fix: str) -> CardError:
    """The error for a field of a card that can be read."""
    return CardError.of([problem_at(path, field, what, fix)])


def problem_at(path: Path, field: str, what: str, fix: str) -> Problem:
    """What is wrong with a field of a card's file, or with the file if it has no such field. Raises CardError."""
    try:
        document = marked_yaml.parsed(text_of(path))
    except yaml.YAMLError:
        return Problem(str(path), 1, "", what, fix)
    return Problem(str(path), document.line([field]), ".".join(map(str, document.within([field]))), what, fix)


def checked(text: str, path: Path, folder: Path) -> TaskCard:
    """The card in a text that was read from `path`. Raises CardError."""
    card = described(TaskCard, text, path)
    card._folder, card._file = folder, path
    return card


def described(kind: type[T], text: str, path: Path, fix: str = _COMPARE) -> T:
    """What a text of YAML describes, as a value of `kind`. Raises CardError with everything that is wrong."""
    try:
        document = marked_yaml.parsed(text)
    except yaml.YAMLError as error:
        what = f"it cannot be read: {one_line(getattr(error, 'problem', None) or error)}"
        raise CardError.of([Problem(str(path), marked_yaml.line_of(error), "", what, fix)]) from error
    if not isinstance(document.content, dict):
        raise CardError.of([Problem(str(path), 1, "", "it is no mapping of fields", fix)])
    try:
        return kind.model_validate(document.content)
    except ValidationError as error:
        raise CardError.of(_problems(kind, document, path, error.errors(), fix)) from error
    except ValueError as error:
        raise CardError.of([Problem(str(path), 1, "", one_line(error), fix)]) from error


def _problems(
    kind: type[BaseModel], document: Document, path: Path, errors: Sequence[Mapping[str, Any]], fix: str
) -> list[Problem]:
    """What pydantic found, in the order of lines, each thing once."""
    found: dict[tuple[Place, str], str] = {}
    wrong: dict[Place, list[Mapping[str, Any]]] = {}
    for error in errors:
        raised = error.get("ctx", {}).get("error")
        there = document.within(error["loc"])
        if isinstance(raised, Misfits):
            for place, each in raised.found:
                found.setdefault((document.within((*there, *place)), str(each)), _fix_of(each))
        elif isinstance(raised, ValueError):
            found.setdefault((there, str(raised)), _fix_of(raised))
        elif error["type"] == "missing":
            name = str(error["loc"][-1])
            found[there, f"the field {name} is missing"] = f"Add {name}."
        elif error["type"] == "extra_forbidden":
            known = _fields(kind, error["loc"][:-1])
            every = f"Known are {', '.join(known)}." if known else ""
            found[there, "there is no such field"] = nearest(str(error["loc"][-1]), known, every)
        else:
            wrong.setdefault(there, []).append(error)
    for place, of_place in wrong.items():
        if not any(other[: len(place)] == place and other != place for other in wrong):  # what is wrong lies deeper
            what, better = _of_value(of_place)
            found[place, what] = better
    return sorted(
        (
            Problem(
                str(path), document.line(place), one_line(".".join(map(str, place)), 80), one_line(what), known or fix
            )
            for (place, what), known in found.items()
        ),
        key=lambda problem: problem.line,
    )


def _of_value(errors: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """What is wrong with a value, which may be of several types and is of none, and what it was meant to be."""
    due = [_due(error["msg"]) for error in errors]
    value = errors[0]["input"]
    words = re.findall(r"'([^']+)'", " ".join(due))
    fix = nearest(value, words, "") if isinstance(value, str) else ""
    return f"{one_line(repr(value), 60)} should be {' or '.join(dict.fromkeys(due))}", fix


def _due(said: str) -> str:
    """What a value was meant to be, without pydantic's words: after "should be"."""
    said = re.sub(r"^Input should be |, unable to parse.*|, got a.*", "", said)
    said = re.sub(r"^a valid (tuple|list)$", "a list, as [a, b]", said)
    said = re.sub(r"^a valid dictionary.*", "a mapping of keys", said)
    said = re.sub(r"^String should match pattern ", "a text of the form ", said)
    return re.sub(
        r"^(String|Tuple|List) should have (at \w+ \d+ \w+).*",
        lambda found: f"{'a text' if found[1] == 'String' else 'a list'} of {found[2]}",
        said,
    )


def _fix_of(error: BaseException | None) -> str:
    """What to do about an unknown name, wherever below the error it was found."""
    while error is not None:
        if isinstance(error, ExpressionError) and error.unknown is not None:
            every = f"Use these names: {', '.join(error.known)}." if error.known else "Write a number."
            return nearest(error.unknown, error.known, every)
        error = error.__cause__
    return ""


def _fields(kind: type[BaseModel], place: Place) -> list[str]:
    """Names of the fields that the model at a place has."""
    for part in place:
        if isinstance(part, str) and part in kind.model_fields:
            inner = next(_models(kind.model_fields[part].annotation), None)
            if inner is None:
                return []
            kind = inner
    fields = kind.model_fields.items()
    return [field.alias or name for name, field in fields if name != "family"]  # which no card of one's own has


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and not isinstance(annotation, UnionType) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def of_json(text: str, folder: Path) -> TaskCard:
    """A card that was read before, from its JSON, with its files in `folder`. It is in no file here."""
    card = TaskCard.model_validate_json(text)
    card._folder = folder
    return card
