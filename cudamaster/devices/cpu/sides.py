"""Refuses what mixes host and device up: to the host's compiler both are one side, to nvcc they are not.

Host code that calls a `__device__` function, device code that calls a function of the host or reads one of its arrays,
and a kernel that is called like a function. The words are nvcc's. What is asked of the text before the preprocessor can
go wrong where macros stand for qualifiers or functions, so a name is judged only if all that the text says of it is
plain; everything else is left to nvcc.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Literal

from tree_sitter import Node

from cudamaster.devices.cpu.unsupported import INCLUDE
from cudamaster.guards.grammar import Parsed, body_of, parse, text_of, walk
from cudamaster.guards.lexer import lex, split, words
from cudamaster.guards.preprocess import Region
from cudamaster.guards.storage import declarators, is_function

Side = Literal["__host__", "__device__", "__global__", "both", "unknown"]

_RELAXED = re.compile(r"-?-expt-relaxed-constexpr")
_MARKS = frozenset({"__host__", "__device__", "__global__"})
_OF_DEVICE_MEMORY = frozenset({"__device__", "__constant__", "__shared__", "__managed__"})
_UNEVALUATED = frozenset({"sizeof_expression", "decltype", "alignof_expression", "template_argument_list"})
_DECLARATIONS = frozenset({"function_definition", "declaration", "field_declaration"})
_SCOPES = frozenset({"translation_unit", "declaration_list", "linkage_specification", "template_declaration"})
# Functions of the host's libraries, in namespace std or in none: those that are constexpr, and others.
_CONSTEXPR_OF_HOST = words(
    """
    min max minmax clamp addressof get make_pair make_tuple tie size begin end data launder as_const gcd lcm isnormal
    fpclassify isgreater isgreaterequal isless islessequal islessgreater isunordered
    """
)
_OF_HOST = words(
    """
    swap sort stable_sort partial_sort nth_element reverse fill fill_n copy copy_n copy_if transform accumulate reduce
    inner_product iota exchange find find_if count count_if to_string
    """
)
_OF_C = words(
    """
    memcmp memmove memchr strcmp strncmp qsort bsearch calloc realloc getenv rand srand exit abort system puts putchar
    fputs fputc fwrite fprintf sprintf snprintf fflush fopen
    """
)
_IF_CONSTEXPR = re.compile(r"if\s+constexpr\b")
_LIMIT = re.compile(r"(?:::)?std::numeric_limits\s*<.*>\s*::\s*\w+", re.DOTALL)
# Device functions of CUDA's headers that have no form for the host.
_OF_DEVICE = re.compile(
    r"__(?:expf|exp10f|logf|log2f|log10f|sinf|cosf|tanf|powf|sincosf|fdividef|saturatef|tanhf"
    r"|syncthreads(?:_count|_and|_or)?|syncwarp|shfl(?:_up|_down|_xor)?_sync|(?:ballot|any|all)_sync|match_(?:any|all)_sync"
    r"|activemask|reduce_\w+_sync|ldg|ldc[agsv]|ldlu|stwb|stc[gs]|stwt|popc(?:ll)?|clz(?:ll)?|ffs(?:ll)?|brev(?:ll)?"
    r"|byte_perm|dp4a|dp2a_(?:lo|hi)|float_as_u?int|u?int_as_float|u?mul(?:64)?hi|u?mul24|u?sad|funnelshift_\w+"
    r"|threadfence(?:_block|_system)?|nanosleep|[fd](?:add|sub|mul|div|ma|maf|rcp|sqrt)_r[nzud])"
    r"|atomic(?:Add|Sub|Exch|Min|Max|Inc|Dec|CAS|And|Or|Xor)(?:_block|_system)?|clock64"
)


class MixedSides(Exception):
    """What nvcc would say, and the line of the source that it would say it of."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"{message}, line {line}")
        self.message = message
        self.line = line


@dataclass
class _Functions:
    """What the text says of its functions of each name."""

    sides: Mapping[str, set[Side]]
    constexpr: frozenset[str]


@dataclass(frozen=True)
class _Text:
    parsed: Parsed
    spliced: str
    macros: frozenset[str]
    relaxed: bool
    locals: dict[int, frozenset[str]] = field(default_factory=dict)
    sides: dict[int, Side] = field(default_factory=dict)

    @cached_property
    def functions(self) -> _Functions:
        sides: defaultdict[str, set[Side]] = defaultdict(set)
        constexpr: set[str] = set()
        for node in walk(self.parsed.root):
            if node.type not in _DECLARATIONS or (node.type == "declaration" and self.parsed.function_of(node.parent)):
                continue
            for name, chain in declarators(node):
                if is_function(chain):
                    name = _last(name)
                    sides[name].add(self._side(node))
                    if "constexpr" in text_of(node).partition("{")[0]:
                        constexpr.add(name)
        return _Functions(sides, frozenset(constexpr))

    def _side(self, function: Node) -> Side:
        if function.id not in self.sides:
            self.sides[function.id] = self._side_by_qualifiers(function)
        return self.sides[function.id]

    def _side_by_qualifiers(self, function: Node) -> Side:
        body = body_of(function)
        start, end = self.parsed.head_start(function), body.start_byte if body is not None else function.end_byte
        marks = self.parsed.marks_between(start, end, function) & _MARKS
        if self.macros & {token.text for token in self.parsed.tokens if start <= token.start < end}:
            return "unknown"
        if "= default" in text_of(function) or "=default" in text_of(function):
            return "both"
        if {"__host__", "__device__"} <= marks:
            return "both"
        if "__global__" in marks:
            return "__global__"
        return "__device__" if "__device__" in marks else "__host__"

    def side_of(self, node: Node) -> tuple[Side, str]:
        """Where a call or a name stands, and the name of the function around it. A lambda is its function's."""
        function = self.parsed.function_of(node.parent)
        while function is not None and function.type == "lambda_expression":
            body = body_of(function)
            if body is None or self.parsed.marks_between(function.start_byte, body.start_byte, function) & _MARKS:
                return "unknown", ""
            function = self.parsed.function_of(function.parent)
        if function is None:
            return "unknown", ""
        name = next((_last(name) for name, _ in declarators(function)), "")
        return self._side(function), name

    def local_names(self, node: Node) -> frozenset[str]:
        """What the function around a node declares, parameters and those of its lambdas included."""
        outermost = function = self.parsed.function_of(node.parent)
        while function is not None:
            outermost, function = function, self.parsed.function_of(function.parent)
        if outermost is None:
            return frozenset()
        if outermost.id not in self.locals:
            kinds = {"declaration", "parameter_declaration", "optional_parameter_declaration", "for_range_loop"}
            found = {
                name
                for each in walk(outermost)
                if each.type in kinds or each.type == "variadic_parameter_declaration"
                for name, _ in declarators(each)
            }
            self.locals[outermost.id] = frozenset(found)
        return self.locals[outermost.id]


def refuse_mixed_sides(source: str, flags: Sequence[str]) -> None:
    """Raises MixedSides for the first such mistake of a source, compiled with an nvcc command's flags."""
    if not source.isascii():
        source = source.encode("ascii", "replace").decode()
    lexed = lex(source)
    directives, _ = split(lexed.tokens)
    macros = {each.rest[0].text for each in directives if each.name == "define" and each.rest}
    parsed = parse(Region(source, tuple(range(1, source.count("\n") + 2)), ()))
    text = _Text(parsed, lexed.spliced, frozenset(macros), any(_RELAXED.fullmatch(flag) for flag in flags))
    arrays = dict(_host_arrays(text))
    for node in walk(parsed.root):
        if node.type == "call_expression":
            found = _of_call(text, node)
        elif node.type in ("subscript_expression", "for_range_loop") and arrays:
            found = _of_array(text, node, arrays)
        else:
            continue
        if found is not None:
            raise MixedSides(found, parsed.line(node))


def _of_call(text: _Text, call: Node) -> str | None:
    """What is wrong with a call, None where nothing is or nobody knows."""
    called = call.child_by_field_name("function")
    while called is not None and called.type == "parenthesized_expression":
        called = called.named_child(0)
    if called is None or called.type not in {"identifier", "qualified_identifier", "template_function"}:
        return None
    spelled = re.sub(r"\s+", "", text_of(called)).removeprefix("::")
    side, caller = text.side_of(call)
    if side in ("both", "unknown") or _is_unevaluated(call) or _launched(text, call):
        return None
    if side != "__host__" and not text.relaxed and _LIMIT.fullmatch(spelled):
        return _not_allowed("constexpr __host__", _last(spelled), side, caller)
    scope, _, name = re.sub(r"<.*>", "", spelled).rpartition("::")
    if name in text.macros or name in text.local_names(call):
        return None
    sides = text.functions.sides.get(name)
    if sides and (scope != "std"):
        return _of_own(text, name, sides, side, caller)
    if scope not in ("", "std"):
        return None
    if side == "__host__":
        known = scope == "" and _OF_DEVICE.fullmatch(name)
        return _not_allowed("__device__", name, side, caller) if known else None
    if name in _OF_C or (scope == "std" and name in _OF_HOST):
        return _not_allowed("__host__", name, side, caller)
    if scope == "std" and name in _CONSTEXPR_OF_HOST and not text.relaxed:
        return _not_allowed("constexpr __host__", name, side, caller)
    return None


def _of_own(text: _Text, name: str, sides: set[Side], side: Side, caller: str) -> str | None:
    """What is wrong with a call of a function of the text. One of several of the name may be the right one."""
    if sides == {"__global__"}:
        return f'a __global__ function call must be configured: kernel "{name}" is called without <<<...>>>'
    is_constexpr = name in text.functions.constexpr
    if is_constexpr and text.relaxed:
        return None
    kind = "constexpr " if is_constexpr else ""
    if side == "__host__":
        return _not_allowed(kind + "__device__", name, side, caller) if sides == {"__device__"} else None
    # A function of CUDA's may have the same name, and be the better match.
    if sides == {"__host__"} and not _known_to_cuda(name):
        return _not_allowed(kind + "__host__", name, side, caller)
    return None


def _not_allowed(what: str, name: str, side: Side, caller: str) -> str:
    return f'calling a {what} function("{name}") from a {side} function("{caller}") is not allowed'


def _known_to_cuda(name: str) -> bool:
    return name in _of_cuda()


@cache
def _of_cuda() -> frozenset[str]:
    """Names that our headers give functions."""
    texts = (file.read_text(encoding="utf-8") for file in INCLUDE.rglob("*") if file.is_file())
    return frozenset(name for text in texts for name in re.findall(r"\b([A-Za-z_]\w*)\(", text))


def _of_array(text: _Text, node: Node, arrays: Mapping[str, Node]) -> str | None:
    """An array of the host's that device code takes elements of, other than where the language asks for a constant."""
    array = node.child_by_field_name("right" if node.type == "for_range_loop" else "argument")
    name = text_of(array) if array is not None and array.type == "identifier" else ""
    if name not in arrays or _is_unevaluated(node) or _is_constant(node):
        return None
    if name in text.local_names(node) or text.side_of(node)[0] not in ("__device__", "__global__"):
        return None
    return f'identifier "{name}" is undefined in device code'


def _host_arrays(text: _Text) -> Iterator[tuple[str, Node]]:
    """Arrays of namespaces without a qualifier of device memory, if the text has no other variable of the name."""
    seen: defaultdict[str, list[Node | None]] = defaultdict(list)
    for node in walk(text.parsed.root):
        if node.type != "declaration" or text.parsed.function_of(node.parent) is not None:
            continue
        if node.parent is None or node.parent.type not in _SCOPES:
            continue
        start = text.parsed.head_start(node)
        macros = text.macros & {each.text for each in text.parsed.tokens if start <= each.start < node.end_byte}
        marks = text.parsed.marks_between(start, node.end_byte) & _OF_DEVICE_MEMORY
        for name, chain in declarators(node):
            is_array = any(part.type == "array_declarator" for part in chain)
            seen[name].append(node if is_array and not marks and not macros else None)
    for name, nodes in seen.items():
        if len(nodes) == 1 and nodes[0] is not None:
            yield name, nodes[0]


def _is_unevaluated(node: Node) -> bool:
    current: Node | None = node
    while current is not None and current.type not in ("compound_statement", "lambda_expression"):
        if current.type in _UNEVALUATED:
            return True
        if current.type == "declaration" and "constexpr" in text_of(current).partition("=")[0]:
            return node.type != "call_expression"
        current = current.parent
    return False


def _is_constant(node: Node) -> bool:
    """Whether the language asks for a constant where an element of an array stands."""
    inner, current = node, node.parent
    while current is not None and current.type != "compound_statement":
        match current.type:
            case "static_assert_declaration" | "enumerator":
                return True
            case "array_declarator" if current.child_by_field_name("size") == inner:
                return True
            case "case_statement":
                return current.child_by_field_name("value") == inner
            case "if_statement":
                condition = current.child_by_field_name("condition")
                return condition == inner and _IF_CONSTEXPR.match(text_of(current)) is not None
        inner, current = current, current.parent
    return False


def _launched(text: _Text, call: Node) -> bool:
    """Whether a launch configuration, which is blanked in the tree, stands before the arguments."""
    arguments = call.child_by_field_name("arguments")
    return arguments is not None and "<<<" in text.spliced[call.start_byte : arguments.start_byte]


def _last(name: str) -> str:
    """A name without what it is in and without its template arguments."""
    return re.sub(r"\s+|<.*>", "", name).rpartition("::")[2]
