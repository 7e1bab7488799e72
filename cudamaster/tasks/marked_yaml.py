"""YAML of people's own files: its content as plain values, and the line of every place in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from cudamaster.core import yaml_text

# Characters, four times the largest card; YAML that nests a hundred thousand deep ends Python itself.
LONGEST_FILE = 16 * 1024


@dataclass(frozen=True)
class Document:
    """The content of a text, and the nodes that it was made of."""

    content: Any
    root: yaml.Node | None

    def line(self, place: Sequence[str | int]) -> int:
        """The line, from 1, of a place such as ("parameters", 2, "length"): of its key where it has one.

        Where the text does not go that deep, as for a field that is missing, it is the line of what should hold it.
        """
        lines = [line for _, _, line in self._walk(place)]
        return lines[-1] if lines else 1 if self.root is None else self.root.start_mark.line + 1

    def within(self, place: Sequence[str | int]) -> tuple[str | int, ...]:
        """The parts of a place that are there in the text; pydantic's own, such as "list[int]", are not."""
        return tuple(part for part, _, _ in self._walk(place))

    def _walk(self, place: Sequence[str | int]) -> Iterator[tuple[str | int, yaml.Node, int]]:
        """The parts of a place that are there, each with its node and line."""
        node = self.root
        for part in place:
            if (found := _child(node, part)) is not None:
                node, line = found
                yield part, node, line


def _child(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                return value, key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part].start_mark.line + 1
    return None


def parsed(text: str) -> Document:
    """The content of YAML text. Raises YAMLError, also for forms that only mistakes and attacks have."""
    if len(text) > LONGEST_FILE:
        raise yaml.YAMLError(f"it has more than {LONGEST_FILE} characters")
    loader = yaml_text.LOADER(text)
    try:
        root = loader.get_single_node()
        _check_plain(root)
        return Document(None if root is None else loader.construct_document(root), root)
    except yaml_text.SENSELESS as error:
        raise yaml.YAMLError(f"a value makes no sense: {error}") from error
    finally:
        loader.dispose()


def line_of(error: yaml.YAMLError) -> int:
    """The line of an error, from 1; 1 where it does not say."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return 1 if mark is None else mark.line + 1


def _check_plain(root: yaml.Node | None) -> None:
    """Refuses aliases, a few of which can stand for millions of values, and repeated keys: one would be lost."""
    seen: set[int] = set()
    left = [root] if root is not None else []
    while left:
        node = left.pop()
        if id(node) in seen:
            raise _at(node, "this is meant twice: write it out instead of an alias")
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            first: set[str] = set()
            for key in keys:
                if key.value in first:
                    raise _at(key, f"the key {key.value} comes twice in a mapping")
                first.add(key.value)
            left.extend(part for pair in node.value for part in pair)
        elif isinstance(node, yaml.SequenceNode):
            left.extend(node.value)


def _at(node: yaml.Node, what: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=what, problem_mark=node.start_mark)
