"""Which buffers a wrapper's kernels write, and whether they read them first: told from the text of the functions.

A pointer is followed through the arguments of calls and launches, casts, and variables that take its value. What cannot
be told is `unknown`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tree_sitter import Node

from cudamaster.guards.grammar import body_of, text_of, walk
from cudamaster.guards.storage import declarators
from cudamaster.making.reading import Function, Source

_FILLS = frozenset({"cudaMemset", "cudaMemsetAsync", "memset", "cudaMemset2D", "cudaMemset2DAsync"})
_COPIES = frozenset({"cudaMemcpy", "cudaMemcpyAsync", "memcpy"})
_STORES = frozenset({"__stcs", "__stcg", "__stwb", "__stwt"})
_LOADS = frozenset({"__ldg", "__ldca", "__ldcg", "__ldcs", "__ldlu", "__ldcv"})
_CASTS = frozenset({"reinterpret_cast", "static_cast", "const_cast"})
_WRAPS = frozenset({"parenthesized_expression", "cast_expression"})
_SAYS_NOTHING = frozenset({"if_statement", "condition_clause", "sizeof_expression", "conditional_expression"})
_DEEPEST = 8  # calls of calls


@dataclass(frozen=True)
class Use:
    """One use of a buffer's elements; `index` is the text of the index, or "*" where it is not seen."""

    kind: Literal["read", "write", "both", "unknown"]
    index: str


def uses(source: Source, wrapper: Function, name: str) -> tuple[tuple[Use, ...], ...]:
    """The uses of a wrapper's pointer, one group for each call or launch that gets it, in the text's order."""
    return tuple(group for group in _groups(source, wrapper, name, 0) if group)


def role(groups: tuple[tuple[Use, ...], ...]) -> tuple[Literal["input", "output", "inout"], str]:
    """The role of a buffer that is not const, and why it is assumed.

    An output is only written by the first call or launch that gets it.
    """
    kinds = {use.kind for group in groups for use in group}
    if not kinds or "unknown" in kinds:
        return "inout", "as not all that is done with it was understood"
    if kinds == {"read"}:
        return "input", "as kernels only read it"
    if all(use.kind == "write" for use in groups[0]):
        return "output", "as kernels only write it" if kinds == {"write"} else "as it is written before it is read"
    return "inout", "as kernels read it and write it"


def is_read_later(groups: tuple[tuple[Use, ...], ...]) -> bool:
    """Whether a call or launch after the first reads what was written, so that it may be no result of its own."""
    return any(use.kind in ("read", "both") for group in groups[1:] for use in group)


def is_one_element(groups: tuple[tuple[Use, ...], ...]) -> bool:
    """Whether all uses that were seen are of the first element."""
    found = [use for group in groups for use in group if use.index != "all"]
    return bool(found) and all(use.index == "0" and use.kind != "unknown" for use in found)


def is_matrix(groups: tuple[tuple[Use, ...], ...]) -> bool:
    """Whether an index multiplies two variables, as `row * width + column` does; a block's place times its size is
    none."""
    indices = [re.sub(r"\w+Idx\.\w\*\w+|\w+\*\w+Idx\.\w", "", use.index) for group in groups for use in group]
    return any(re.search(r"[A-Za-z_]\w*\)?\*\(?[A-Za-z_]", index) for index in indices)


def _groups(source: Source, function: Function, name: str, depth: int) -> Iterator[tuple[Use, ...]]:
    body = body_of(function.node)
    if body is None:
        return
    tracked = {name}
    for node in walk(body):
        if node.type != "identifier" or text_of(node) not in tracked or depth > _DEEPEST:
            continue
        yield tuple(_use(source, node, tracked, depth))


def _use(source: Source, node: Node, tracked: set[str], depth: int, index: str = "0") -> Iterator[Use]:
    """The uses that one mention of a pointer stands for; `index` is that of the element it points to."""
    at, parent = node, node.parent
    while parent is not None:
        if parent.type == "binary_expression":
            if any(child.type in ("==", "!=", "&&", "||", "<", ">") for child in parent.children):
                return
            index = "*"
        elif not (parent.type in _WRAPS or _is_cast(parent) or _is_cast(parent.parent)):
            break
        at, parent = parent, parent.parent
    if parent is None or parent.type in _SAYS_NOTHING:
        return
    if parent.type == "init_declarator":
        if parent.child_by_field_name("value") == at and (found := next(declarators(parent), None)) is not None:
            tracked.add(found[0])
        return
    if parent.type == "assignment_expression":
        left = parent.child_by_field_name("left")
        if left != at and left is not None and left.type == "identifier":
            tracked.add(text_of(left))
        return
    if parent.type == "argument_list":
        yield from _passed_on(source, at, parent, depth, index)
    elif parent.type == "subscript_expression" and parent.child_by_field_name("argument") == at:
        written = parent.child_by_field_name("indices")
        text = "" if written is None else "".join(text_of(written).split()).strip("[]")
        yield from _access(source, parent, tracked, depth, text if index == "0" else "*")
    elif parent.type == "pointer_expression" and text_of(parent).startswith("*"):
        yield from _access(source, parent, tracked, depth, index)
    elif parent.type == "field_expression":
        yield from _access(source, at, tracked, depth, index)
    elif parent.type not in ("parameter_declaration", "pointer_declarator"):
        yield Use("unknown", "*")


def _access(source: Source, node: Node, tracked: set[str], depth: int, index: str) -> Iterator[Use]:
    """What happens to an element: it is assigned to, read, or its address is taken."""
    at, parent = node, node.parent
    while parent is not None and parent.type in ("field_expression", "parenthesized_expression"):
        at, parent = parent, parent.parent
    if parent is not None and parent.type == "assignment_expression" and parent.child_by_field_name("left") == at:
        operator = parent.child_by_field_name("operator")
        plain = operator is None or text_of(operator) == "="
        yield Use("write" if plain else "both", index)
    elif parent is not None and parent.type == "update_expression":
        yield Use("both", index)
    elif parent is not None and parent.type == "pointer_expression" and text_of(parent).startswith("&"):
        yield from _use(source, parent, tracked, depth, index)
    else:
        yield Use("read", index)


def _passed_on(source: Source, at: Node, arguments: Node, depth: int, index: str) -> Iterator[Use]:
    """What a function does with a pointer that it gets as an argument."""
    call = arguments.parent
    function = None if call is None else call.child_by_field_name("function")
    if function is None:
        yield Use("unknown", "*")
        return
    name: Node | None = function
    while name is not None and name.type in ("template_function", "qualified_identifier"):  # a::b::f<T>
        name = name.child_by_field_name("name")
    called = "" if name is None else text_of(name)
    place = [child for child in arguments.named_children if child.type != "comment"].index(at)
    if called in _FILLS or called in _COPIES:
        yield Use("write" if place == 0 else "read", "all")
    elif called in _STORES:
        yield Use("write" if place == 0 else "read", index)
    elif found := source.named(called):
        for each in found:
            if (passed := _parameter(each, place)) is not None:
                for group in _groups(source, each, passed, depth + 1):
                    yield from (use if index == "0" else Use(use.kind, "*") for use in group)
    elif called.startswith("atomic"):
        yield Use("both", index)
    else:
        yield Use("read" if called in _LOADS else "unknown", index)


def _parameter(function: Function, place: int) -> str | None:
    _, chain = next(declarators(function.node))
    declarator = next(part for part in chain if part.type == "function_declarator")
    listed = declarator.child_by_field_name("parameters")
    nodes = [] if listed is None else [node for node in listed.named_children if node.type != "comment"]
    found = next(declarators(nodes[place]), None) if place < len(nodes) else None
    return None if found is None else found[0]


def _is_cast(node: Node | None) -> bool:
    """Whether a call is a cast of C++, `reinterpret_cast<float4*>(x)`."""
    if node is None or node.type != "call_expression":
        return False
    function = node.child_by_field_name("function")
    name = None if function is None else function.child_by_field_name("name") or function
    return name is not None and text_of(name) in _CASTS
