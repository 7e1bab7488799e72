"""What a file declares, item by item: functions, types, constants, macros and includes, and the names that each uses.

The file is read as it stands, before the preprocessor (readings.py). Items are whole lines of it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from tree_sitter import Node

from cudamaster.guards.grammar import Parsed, body_of, depth, text_of, walk
from cudamaster.guards.lexer import Directive, Kind, Token, lex, split
from cudamaster.guards.storage import declarators, is_function
from cudamaster.training.corpus.comments import Comment, comments_of
from cudamaster.training.corpus.readings import best_reading
from cudamaster.training.corpus.spaces import scope_of, spaces_of

_DEEPEST = 400  # levels of a syntax tree
_GROUP_LINES = 60  # an #if around macros and includes alone stays whole up to here,
_CODE_LINES = 20  # and one around code up to here
_TYPES = ("struct_specifier", "class_specifier", "union_specifier", "enum_specifier", "concept_definition")
_DEVICE_WORD = re.compile(r"_{0,2}(?:[A-Z0-9]+_)*DEVICE(?:_(?:HOST|INLINE|FORCEINLINE|FUNC|FUNCTION|CALLABLE))*")
_LAUNCHED = re.compile(r"\b(\w+)\s*(?:<[^;{}()]{0,300}>)?\s*<<<")


class Is(Enum):
    """Kinds of items."""

    KERNEL = auto()
    DEVICE = auto()
    HOST = auto()
    TYPE = auto()
    VALUE = auto()  # a constant or a variable
    DECLARED = auto()  # a function without its body
    MACRO = auto()
    INCLUDE = auto()
    USING = auto()  # using namespace: what it brings has no name here


@dataclass(frozen=True)
class Item:
    """Something that a file declares, on its lines `first` to `last`, from 1; comments directly above belong to it.

    `scope` are the heads of the namespaces and `extern "C"` blocks around it, from the outside in. `opens` is the line
    with the brace of a function's body. `broken` says that the grammar could not read it.
    """

    kind: Is
    names: frozenset[str]
    uses: frozenset[str]
    first: int
    last: int
    scope: tuple[str, ...] = ()
    on_device: bool = False
    opens: int = 0
    broken: bool = False


@dataclass(frozen=True)
class Outline:
    """The items of a file in their order, its comments, and the lines of kernels that were not understood."""

    items: tuple[Item, ...]
    comments: tuple[Comment, ...]
    lost: tuple[int, ...]


def outline(text: str) -> Outline | None:
    """The items of a file, or None if it nests too deeply to be read."""
    tokens = _Tokens(lex(text).tokens)
    directives, words = split(tokens.all)
    parsed = best_reading(text, directives)
    if depth(parsed.root) > _DEEPEST:
        return None
    declared = _Declared(parsed, tokens, text, _marks_of_macros(directives))
    comments = comments_of(text)
    code = list(declared.items())
    bodies = [range(item.first, item.last + 1) for item in code]
    outside = [item for item in _of_directives(directives, tokens) if not any(item.first in each for each in bodies)]
    blocks = _blocks(directives, tokens)
    items = [_with_block(item, blocks, tokens) for item in (*outside, *code)]
    in_items = [range(item.first, item.last + 1) for item in items if item.kind is not Is.MACRO]
    # Of the whole file: the reading may lack a branch with a kernel in it.
    lost = {word.line for word in words if word.text == "__global__"}
    lost = {line for line in lost if not any(line in lines for lines in in_items)}
    items = sorted((_with_comments(item, comments) for item in items), key=lambda item: (item.first, item.last))
    return Outline(tuple(items), comments, tuple(sorted(lost)))


class _Tokens:
    """Tokens of the file as it stands, by line."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.all = list(tokens)
        self._lines = [token.line for token in tokens]

    def on(self, first: int, last: int) -> Sequence[Token]:
        return self.all[bisect_left(self._lines, first) : bisect_right(self._lines, last)]

    def names(self, first: int, last: int) -> frozenset[str]:
        return frozenset(token.text for token in self.on(first, last) if token.kind is Kind.NAME)


def _marks_of_macros(directives: Sequence[Directive]) -> Mapping[str, str]:
    """Macros of the file that stand for __global__ or __device__."""
    found = {}
    for directive in directives:
        if directive.name == "define" and directive.rest:
            words = {token.text for token in directive.rest[1:]}
            if len(words) <= 6 and (mark := next((each for each in ("__global__", "__device__") if each in words), "")):
                found[directive.rest[0].text] = mark
    return found


def _of_directives(directives: Sequence[Directive], tokens: _Tokens) -> Iterator[Item]:
    """Macros and includes."""
    for directive in directives:
        first, last = directive.line, max((token.line for token in directive.rest), default=directive.line)
        if directive.name == "include":
            yield Item(Is.INCLUDE, frozenset(), frozenset(), first, last)
        elif directive.name == "define" and directive.rest:
            name = directive.rest[0].text
            yield Item(Is.MACRO, frozenset({name}), tokens.names(first, last) - {name}, first, last)


@dataclass(frozen=True)
class _Block:
    """An #if with all of its branches: its first and last line, and whether it can stand for an item in it."""

    first: int
    last: int
    whole: bool


def _with_block(item: Item, blocks: Sequence[_Block], tokens: _Tokens) -> Item:
    """The item with the whole #if that it lies in, if that is short: its branches belong together.

    So it is where a function has a head for each branch, and the branches end before its body does.
    """
    for block in blocks:
        around = block.whole and block.first <= item.first and item.last <= block.last
        heads = item.first <= block.last < item.last and block.first < item.first
        if around or heads:
            first, last = block.first, max(block.last, item.last)
            return replace(item, first=first, last=last, uses=tokens.names(first, last) - item.names)
    return item


def _blocks(directives: Sequence[Directive], tokens: _Tokens) -> list[_Block]:
    """The short #if blocks, the outermost first; whole is one that opens no brace and leaves it open."""
    code = split(tokens.all)[1]
    code_lines = [token.line for token in code]
    stack: list[int] = []
    found = []
    for directive in directives:
        if directive.name in ("if", "ifdef", "ifndef"):
            stack.append(directive.line)
        elif directive.name == "endif" and stack:
            first, last = stack.pop(), directive.line
            inside = [token.text for token in code[bisect_left(code_lines, first) : bisect_right(code_lines, last)]]
            if last - first < (_CODE_LINES if inside else _GROUP_LINES):
                found.append(_Block(first, last, inside.count("{") == inside.count("}")))
    return sorted(found, key=lambda block: (block.first, -block.last))


class _Declared:
    """The items that the syntax tree has."""

    def __init__(self, parsed: Parsed, tokens: _Tokens, text: str, macros: Mapping[str, str]) -> None:
        self._parsed = parsed
        self._tokens = tokens
        self._macros = macros
        self._launched = {found[1] for found in _LAUNCHED.finditer(text)}
        self._starts = [token.start for token in parsed.tokens]
        self._spaces = spaces_of(parsed.tokens)

    def items(self) -> Iterator[Item]:
        """All of them."""
        yield from self._in(self._parsed.root)

    def _in(self, space: Node) -> Iterator[Item]:
        for node in space.named_children:
            body = node.child_by_field_name("body")
            if node.type in ("namespace_definition", "linkage_specification") and body is not None:
                if body.type == "declaration_list":
                    yield from self._in(body)
                    continue
                inner = body
            elif node.type == "ERROR":
                yield from self._in(node)
                continue
            else:
                inner = node
            while inner.type == "template_declaration":
                inner = inner.named_children[-1]
            if (item := self._item(node, inner)) is not None:
                yield item

    def _span(self, node: Node) -> tuple[int, int]:
        """The first token of a node, with the qualifiers before it, and the one behind its last."""
        return (bisect_left(self._starts, self._parsed.head_start(node)), bisect_left(self._starts, node.end_byte))

    def _lines(self, node: Node) -> tuple[int, int]:
        """First and last line of a node, with the qualifiers before it."""
        first, behind = self._span(node)
        if first == behind:
            return (self._parsed.line(node),) * 2
        return self._parsed.tokens[first].line, self._parsed.tokens[behind - 1].line

    def _item(self, outer: Node, node: Node) -> Item | None:
        first, last = self._lines(outer)
        at, behind = self._span(outer)
        spaces = self._spaces[at] if at < behind else None
        if spaces is None:
            return None  # what the grammar took for an item lies in a class or a function
        uses = self._tokens.names(first, last)
        names, kind = _named(node)
        if kind is None:
            return None
        body = body_of(node) if node.type == "function_definition" else None
        start = self._parsed.head_start(outer)
        end = body.start_byte if body is not None else outer.end_byte
        marks = set(self._parsed.marks_between(start, end))
        opens = self._parsed.line(body) if body is not None else 0
        for token in self._tokens.on(first, opens or last):
            marks.add(self._macros.get(token.text, ""))
            if token.kind is Kind.NAME and _DEVICE_WORD.fullmatch(token.text):
                marks.add("__device__")
        on_device = bool(marks & {"__device__", "__constant__", "__managed__"})
        if kind is Is.HOST:
            kernel = "__global__" in marks or names & self._launched
            kind = Is.KERNEL if kernel else Is.DEVICE if on_device else Is.HOST
        scope, split_up = scope_of(spaces, first, last)
        broken = node.has_error or split_up
        return Item(kind, names, uses - names, first, last, scope, on_device, opens, broken)


def _named(node: Node) -> tuple[frozenset[str], Is | None]:
    """The names that a node declares, and as what; functions are all of the host until their marks are looked at."""
    if node.type == "function_definition":
        found = next(declarators(node), None)
        if found is None or not is_function(found[1]):
            return frozenset(), None
        return frozenset(part for part in re.split(r"\W+", found[0]) if part), Is.HOST
    if node.type in _TYPES or node.type in ("alias_declaration", "namespace_alias_definition"):
        name = node.child_by_field_name("name")
        names = {part for part in re.split(r"\W+", text_of(name))[:1] if part} if name is not None else set()
        return frozenset(names | _enumerators(node)), Is.TYPE
    if node.type in ("declaration", "type_definition"):
        found_all = list(declarators(node))
        names = {re.split(r"\W+", name.strip())[-1] for name, _ in found_all} - {""}
        inside = node.child_by_field_name("type")
        if inside is not None and inside.type in _TYPES and inside.child_by_field_name("body") is not None:
            more, _ = _named(inside)
            names |= more
        if node.type == "type_definition":
            return frozenset(names), Is.TYPE
        declared = bool(found_all) and all(is_function(chain) for _, chain in found_all)
        return frozenset(names), (Is.DECLARED if declared else Is.VALUE) if names else None
    if node.type == "using_declaration":
        return frozenset(), Is.USING
    return frozenset(), None


def _enumerators(node: Node) -> set[str]:
    if node.type != "enum_specifier":
        return set()
    return {
        text_of(name)
        for each in walk(node)
        if each.type == "enumerator" and (name := each.child_by_field_name("name")) is not None
    }


def _with_comments(item: Item, comments: Sequence[Comment]) -> Item:
    """The item with the comments that end on the line above it."""
    if item.kind in (Is.INCLUDE, Is.USING):
        return item
    first = item.first
    for comment in reversed(comments):
        if comment.alone and comment.last == first - 1:
            first = comment.first
    return replace(item, first=first)
