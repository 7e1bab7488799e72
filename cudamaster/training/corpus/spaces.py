"""Namespaces and `extern "C"` blocks, by their braces: the syntax tree loses them where it has errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cudamaster.guards.lexer import Kind, Token


@dataclass
class Space:
    """A namespace or `extern "C"` block: its head, and the lines of its braces, the head's among the first."""

    head: str
    opens: range
    closes: int = 0


def spaces_of(tokens: Sequence[Token]) -> list[tuple[Space, ...] | None]:
    """Of each token the namespaces and `extern "C"` blocks that it lies in; None inside other braces."""
    found: list[tuple[Space, ...] | None] = []
    stack: list[tuple[Space, ...] | None] = [()]
    begun = 0  # of the declaration that a brace belongs to
    for at, token in enumerate(tokens):
        if token.text == "}" and token.kind is Kind.PUNCTUATION and len(stack) > 1:
            ended = stack.pop()
            if ended:
                ended[-1].closes = token.line
        found.append(stack[-1])
        if token.kind is not Kind.PUNCTUATION or token.text not in "{};":
            continue
        if token.text == "{":
            head, outer = [each.text for each in tokens[begun:at]], stack[-1]
            opens = "namespace" in head[:2] or head in (["extern", '"C"'], ["extern", '"C++"'])
            lines = range(tokens[begun].line, token.line + 1)
            stack.append((*outer, Space(_joined(head), lines)) if opens and outer is not None else None)
        begun = at + 1
    return found


def scope_of(spaces: Sequence[Space], first: int, last: int) -> tuple[tuple[str, ...], bool]:
    """The heads of the spaces around an item's lines, and whether the lines cut one in two.

    A space that lies in the lines whole, as in `namespace a { int x; }`, comes with them.
    """
    heads = [space.head for space in spaces]
    for space in reversed(spaces):
        lines = range(first, last + 1)
        opened, closed = any(line in lines for line in space.opens), space.closes in lines
        if opened and closed:
            heads.pop()
        elif opened or closed:
            return tuple(heads), True
        else:
            break
    return tuple(heads), False


def _joined(words: Sequence[str]) -> str:
    return re.sub(r"\s*:\s*:\s*", "::", " ".join(words))
