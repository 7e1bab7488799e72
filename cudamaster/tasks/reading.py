"""Reads a task card: YAML text into a `TaskCard`, or an error that says what is wrong with it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from cudamaster.core import yaml_text
from cudamaster.core.errors import CardError, one_line
from cudamaster.core.expressions import ExpressionError
from cudamaster.tasks.cards import TaskCard

# Characters, four times the largest card; YAML that nests a hundred thousand deep ends Python itself.
_LONGEST_FILE = 16 * 1024

_COMPARE = "Compare it with bench/tasks/spmv_csr.yaml; the fields are described in cudamaster/tasks/cards.py."


@lru_cache(maxsize=128)
def read(path: Path, _changed: int, folder: Path) -> TaskCard:
    """The card in a file, whose baselines and reference are in `folder`. `_changed` is the file's time of change.

    Raises CardError.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST_FILE + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise CardError(f"The card {path} cannot be read: {one_line(error)}.", _COMPARE) from error
    return checked(text, path, folder)


def checked(text: str, path: Path, folder: Path) -> TaskCard:
    """The card in a text that was read from `path`. Raises CardError."""
    try:
        content = _content(text)
    except yaml.YAMLError as error:
        raise CardError(f"The card {path} cannot be read: {one_line(error)}.", _COMPARE) from error
    if not isinstance(content, dict):
        raise CardError(f"The card {path} is no mapping of fields.", _COMPARE)
    try:
        card = TaskCard.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "card"
        raise CardError(
            f"The card {path} is wrong at {one_line(where)}: {one_line(first['msg'])}.", _COMPARE
        ) from error
    except (ExpressionError, ValueError) as error:
        raise CardError(f"The card {path} is wrong: {one_line(error)}.", _COMPARE) from error
    card._folder = folder
    return card


def _content(text: str) -> Any:
    """The content of YAML text. Raises YAMLError, also for forms that only mistakes and attacks have."""
    if len(text) > _LONGEST_FILE:
        raise yaml.YAMLError(f"it has more than {_LONGEST_FILE} characters")
    loader = yaml_text.LOADER(text)
    try:
        root = loader.get_single_node()
        _check_plain(root)
        return None if root is None else loader.construct_document(root)
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        # What PyYAML raises for 2001-99-99, !!bool maybe, !!timestamp x and numbers of thousands of digits.
        raise yaml.YAMLError(f"a value makes no sense: {error}") from error
    finally:
        loader.dispose()


def _check_plain(root: yaml.Node | None) -> None:
    """Refuses aliases, a few of which can stand for millions of values, and repeated keys: one would be lost."""
    seen: set[int] = set()
    left = [root] if root is not None else []
    while left:
        node = left.pop()
        line = node.start_mark.line + 1
        if id(node) in seen:
            raise yaml.YAMLError(f"line {line} is meant twice: write it out instead of an alias")
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            if twice := next((key for key in keys if keys.count(key) > 1), None):
                raise yaml.YAMLError(f"the mapping in line {line} has the key {twice} twice")
            left.extend(part for pair in node.value for part in pair)
        elif isinstance(node, yaml.SequenceNode):
            left.extend(node.value)
