"""A baseline's text as a candidate: its host function and its kernels under names of their own.

Names are followed by the grammar, as a kernel may be called like a local variable, a parameter of a macro, a member or
a function of the runtime. What is no use of the kernel or the host function keeps its name.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache

from tree_sitter import Node

from cudamaster.guards.grammar import Parsed, parse, text_of, walk
from cudamaster.guards.lexer import SPLICE, Kind, Token, closing, lex, split, words
from cudamaster.guards.preprocess import Region
from cudamaster.guards.storage import declarators, is_function

_SUFFIX = "_optimized"
_DECLARATORS = words(
    """
    pointer_declarator array_declarator init_declarator reference_declarator parenthesized_declarator
    function_declarator attributed_declarator variadic_declarator structured_binding_declarator
    """
)
_DECLARING = words(
    """
    declaration parameter_declaration optional_parameter_declaration variadic_parameter_declaration for_range_loop
    function_definition lambda_capture_initializer field_declaration enumerator
    """
)
# Where a name is known that is declared there. Of these, only the local ones and classes hide a kernel.
_SCOPES = words(
    """
    compound_statement for_statement for_range_loop if_statement while_statement switch_statement catch_clause
    lambda_expression function_definition template_declaration field_declaration_list enumerator_list
    declaration_list translation_unit
    """
)
_FILE_SCOPES = words("declaration_list translation_unit")


@lru_cache(maxsize=256)  # an audit asks for the same baseline once for every kind
def as_candidate(text: str, wrapper: str, *, comments: bool = False) -> str:
    """The text with `_optimized` added to the name of its wrapper (the host function that is called) and its kernels.

    With `comments` the names are changed in comments too.
    """
    parsed = parse(Region(text, tuple(range(1, text.count("\n") + 2)), ()))
    return _Names(text, parsed, wrapper).renamed(comments)


class _Names:
    """The uses of a wrapper's and of kernels' names in a text. Offsets are those of the text with its lines joined."""

    def __init__(self, text: str, parsed: Parsed, wrapper: str) -> None:
        self._text, self._parsed = text, parsed
        self._all = lex(text)
        kernels = frozenset(_kernels(parsed.tokens))
        self._names = kernels | {wrapper}
        self._at = {token.start: index for index, token in enumerate(parsed.tokens)}
        self._callable: dict[str, set[str]] = defaultdict(set, {wrapper: {"host"}})
        self._namespaces: set[str] = set()
        self._hidden: dict[str, list[tuple[int, int, int]]] = defaultdict(list)  # from .. to, and the declaration
        nodes = list(walk(parsed.root))
        for node in nodes:
            self._look_at(node)
        self._nodes = [node for node in nodes if node.type in ("identifier", "type_identifier")]

    def renamed(self, comments: bool) -> str:
        places = {node.start_byte: node.end_byte for node in self._nodes if self._is_meant(node)}
        places.update((token.start, token.end) for token in self._in_macros())
        if comments:
            places.update(self._in_comments())
        joins = list(SPLICE.finditer(self._text))
        starts, removed = [], [0]
        for join in joins:
            starts.append(join.start() - removed[-1])
            removed.append(removed[-1] + len(join[0]))
        pieces, last = [], 0
        for end in sorted(places.values()):
            # A name ends before the line that is joined to it.
            here = end + removed[bisect_right(starts, end - 1)]
            pieces += [self._text[last:here], _SUFFIX]
            last = here
        return "".join([*pieces, self._text[last:]])

    def _look_at(self, node: Node) -> None:
        """Notes what a node says of the names: functions that are called by them, and declarations that hide them."""
        if node.type == "namespace_definition" and (namespace := node.child_by_field_name("name")) is not None:
            self._namespaces.update(text_of(namespace).split("::"))
        elif node.type == "namespace_alias_definition":
            alias, *meant = (text_of(child) for child in node.named_children)
            if meant and set(meant[0].split("::")) <= self._namespaces:
                self._namespaces.add(alias)
        elif node.type in ("function_definition", "declaration"):
            for name, chain in declarators(node):
                plain = name.partition("<")[0]
                if plain in self._names and is_function(chain):
                    self._callable[plain] |= self._callers(node, chain[0])
        elif node.type in ("identifier", "field_identifier") and (name := text_of(node)) in self._names:
            scope = _scope_of_declaration(node)
            if scope is not None and (scope.type not in _FILE_SCOPES or _is_enumerator(node)):
                everywhere = scope.type in ("field_declaration_list", "enumerator_list", *_FILE_SCOPES)
                self._hidden[name].append((scope.start_byte, scope.end_byte, 0 if everywhere else node.start_byte))

    def _callers(self, node: Node, declarator: Node) -> set[str]:
        """Who may call a function plainly; nobody calls a kernel."""
        marks = self._parsed.head_marks(node, declarator.start_byte)
        if "__global__" in marks:
            return set()
        if "__device__" not in marks:
            return {"host"}
        return {"host", "device"} if "__host__" in marks else {"device"}

    def _is_meant(self, node: Node) -> bool:
        name = text_of(node)
        if name not in self._names or _is_enumerator(node):
            return False
        launched = self._launched(node)
        if node.type == "type_identifier" and not launched:
            return False
        top, scopes = _qualified(node)
        if scopes:
            if not {scope for scope in scopes if scope} <= self._namespaces:
                return False
        elif any(max(start, first) <= node.start_byte < end for start, end, first in self._hidden[name]):
            return False
        called = top.parent is not None and top.parent.type == "call_expression" and _is_function(top)
        if launched or not called:
            return True
        where = "device" if self._parsed.on_device(self._parsed.function_of(node)) else "host"
        return where in self._callable[name]

    def _launched(self, node: Node) -> bool:
        """Whether `<<<` follows a name and its template arguments."""
        index = self._at.get(node.start_byte)
        return index is not None and _launches(self._parsed.tokens, index + 1)

    def _in_macros(self) -> Iterator[Token]:
        """Uses in what macros stand for. A parameter of a macro is no use."""
        for directive in split(self._all.tokens)[0]:
            rest = directive.rest
            if directive.name != "define" or not rest:
                continue
            own: set[str] = set()
            begin = 1
            if len(rest) > 1 and rest[1].text == "(" and rest[1].start == rest[0].end:
                begin = closing(rest, 1) + 1
                own = {token.text for token in rest[2:begin]}
            for index in range(begin, len(rest)):
                token, before = rest[index], rest[index - 1].text
                if token.text not in self._names or token.text in own or token.spliced or before in (".", "->"):
                    continue
                if before == ">" and rest[index - 2].text == "-":
                    continue
                if before == ":" and not (index > 2 and rest[index - 3].text in self._namespaces):
                    continue
                plain_call = index + 1 < len(rest) and rest[index + 1].text == "("
                if not plain_call or self._callable[token.text]:
                    yield token

    def _in_comments(self) -> Iterator[tuple[int, int]]:
        tokens = [token for token in self._all.tokens if token.kind is not Kind.NEWLINE]
        starts = [token.start for token in tokens]
        for found in re.finditer(r"\b\w+\b", self._all.spliced):
            at = bisect_right(starts, found.start()) - 1
            if found[0] in self._names and (at < 0 or tokens[at].end <= found.start()):
                yield found.span()


def _kernels(tokens: Sequence[Token]) -> Iterator[str]:
    """Names of the kernels that are declared: behind `__global__` the first one with parameters and a body."""
    for index, token in enumerate(tokens):
        if token.text != "__global__":
            continue
        at = index + 1
        while at + 1 < len(tokens) and tokens[at].text not in (";", "{", "}"):
            if tokens[at].kind is Kind.NAME and tokens[at + 1].text == "(":
                end = closing(tokens, at + 1)
                if end + 1 < len(tokens) and tokens[end + 1].text in ("{", ";"):
                    yield tokens[at].text
                    break
                at = end
            at += 1


def _launches(tokens: Sequence[Token], index: int) -> bool:
    def is_open(at: int) -> bool:
        return at + 2 < len(tokens) and all(
            tokens[at + k].text == "<" and tokens[at + k].start == tokens[at].start + k for k in range(3)
        )

    if is_open(index):
        return True
    if index >= len(tokens) or tokens[index].text != "<":
        return False
    depth = 0
    while index < len(tokens) and tokens[index].text not in (";", "{", "}"):
        if tokens[index].text in ("(", "["):
            index = closing(tokens, index)
        elif is_open(index):
            return False
        depth += (tokens[index].text == "<") - (tokens[index].text == ">")
        index += 1
        if depth == 0:
            return is_open(index)
    return False


def _qualified(node: Node) -> tuple[Node, list[str]]:
    """The whole of a name, with what stands before it and behind it, and its scopes from the outside in."""
    scopes: list[str] = []
    while node.parent is not None:
        parent = node.parent
        if parent.type == "qualified_identifier" and parent.child_by_field_name("name") == node:
            scope = parent.child_by_field_name("scope")
            scopes.insert(0, text_of(scope) if scope is not None else "")
        elif parent.type != "template_function" or parent.child_by_field_name("name") != node:
            break
        node = parent
    return node, scopes


def _is_enumerator(node: Node) -> bool:
    parent = node.parent
    return parent is not None and parent.type == "enumerator" and parent.child_by_field_name("name") == node


def _is_function(node: Node) -> bool:
    return node.parent is not None and node.parent.child_by_field_name("function") == node


def _scope_of_declaration(name: Node) -> Node | None:
    """Where a name is known that is declared at a node; None where it is none that is declared there."""
    node = name
    while node.parent is not None and node.parent.type in _DECLARATORS:
        declared = node.parent.child_by_field_name("declarator")
        if declared != node and not (declared is None and node.is_named):
            return None
        node = node.parent
    declaration = node.parent
    if declaration is None or declaration.type not in _DECLARING:
        return None
    field = {"enumerator": "name", "lambda_capture_initializer": "left"}.get(declaration.type, "declarator")
    if node not in declaration.children_by_field_name(field):
        return None
    # A function is known around it and its template, and an enumerator around an enum that is no class.
    within = declaration.parent if declaration.type in ("function_definition", "declaration") else declaration
    if within is not None and within.type == "template_declaration":
        within = within.parent
    if declaration.type == "enumerator" and within is not None and within.parent is not None:
        enum = within.parent.parent
        if enum is not None and not any(child.type in ("class", "struct") for child in enum.children):
            within = enum
    return _scope_around(within)


def _scope_around(node: Node | None) -> Node | None:
    """The scope that a node is in. A function that is only declared is one for its parameters."""
    while node is not None:
        if node.type in _SCOPES:
            return node
        if node.type == "function_declarator" and not _of_definition(node):
            return node
        node = node.parent
    return None


def _of_definition(declarator: Node) -> bool:
    node: Node | None = declarator
    while node is not None and node.type in _DECLARATORS:
        node = node.parent
    return node is not None and node.type == "function_definition"
