"""Near copies among kernels: the same code but for names, numbers, comments and layout.

A kernel becomes a sequence of tokens. Comments and white space are gone, numbers are one token, and so are the names
that the kernel gives to its own functions, types, macros, parameters and variables. Words of the language and names
that come from outside (`threadIdx`, `float4`, `__shfl_xor_sync`, `expf`) stay: what a kernel calls is what it does.
Two kernels are as similar as their sets of shingles (runs of SHINGLE tokens) are: the Jaccard index, what both have
over what either has (Broder, On the resemblance and containment of documents, 1997).

THRESHOLD is from the baselines and the playbook's kernels of the fifty tasks, each pair of two tasks in one precision.
From 0.7 on, both are one scheme with another formula in it: `elu` and `leaky_relu` (0.92), a product and one of square
matrices (0.99), a stencil in two and in three dimensions (0.70). Below it are the first pairs that share little but an
element for each thread and a launch: `row_tanh` and `prefix_sum` (0.67 in BF16), a product and a transposition (0.63).
`docs/training.md#near-copies` has more of them, which a test computes again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

from tree_sitter import Node

from cudamaster.guards.grammar import parse, text_of, walk
from cudamaster.guards.lexer import Kind, Token, lex, split, words
from cudamaster.guards.preprocess import Region

SHINGLE = 8  # tokens: about a statement
THRESHOLD = 0.7
_DECLARATORS = words(
    """
    pointer_declarator array_declarator init_declarator reference_declarator parenthesized_declarator
    function_declarator attributed_declarator variadic_declarator structured_binding_declarator
    pointer_type_declarator
    """
)
_DECLARING = words(
    """
    declaration parameter_declaration optional_parameter_declaration variadic_parameter_declaration for_range_loop
    function_definition lambda_capture_initializer field_declaration enumerator alias_declaration type_definition
    struct_specifier class_specifier union_specifier enum_specifier namespace_definition type_parameter_declaration
    optional_type_parameter_declaration
    """
)
_PARAMETERS = words("type_parameter_declaration optional_type_parameter_declaration")  # whose name is no field
_NAMES = frozenset({"identifier", "field_identifier", "type_identifier", "namespace_identifier"})


@dataclass(frozen=True)
class Pair:
    """Two kernels that are near copies: their keys, and how similar they are (0 to 1)."""

    first: str
    second: str
    similarity: float


def tokens(code: str) -> tuple[str, ...]:
    """The normalised tokens of a kernel."""
    names, members = _own_names(code)
    found: list[str] = []
    for token in lex(code).tokens:
        # threadIdx.x is no use of a parameter x.
        own = members if found[-1:] == ["."] or found[-2:] == ["-", ">"] else names
        if token.kind is not Kind.NEWLINE:
            found.append(_normal(token, own))
    return tuple(found)


@lru_cache(maxsize=65536)
def shingles(code: str) -> frozenset[int]:
    """The shingles of a kernel, as hashes. A kernel of fewer tokens than one shingle has itself as its only one."""
    found = tokens(code)
    runs = max(1, len(found) - SHINGLE + 1)
    return frozenset(crc32("\0".join(found[start : start + SHINGLE]).encode()) for start in range(runs))


def similarity(first: str, second: str) -> float:
    """How similar two kernels are, by their code: 0 to 1."""
    return _jaccard(shingles(first), shingles(second))


def between(first: Mapping[str, str], second: Mapping[str, str], threshold: float = THRESHOLD) -> tuple[Pair, ...]:
    """The near copies of two sides, each from key to code: for each key of `first` the most similar of `second`."""
    others = _merged(second)
    found = []
    for shape, keys in _merged(first).items():
        best = max(((_jaccard(shape, other), names) for other, names in _alike(shape, others, threshold)), default=None)
        if best is not None and best[0] >= threshold:
            found += [Pair(key, best[1][0], best[0]) for key in keys]
    return tuple(sorted(found, key=lambda pair: (-pair.similarity, pair.first)))


def _merged(side: Mapping[str, str]) -> dict[frozenset[int], list[str]]:
    """The keys by their shingles: many variants of a kernel differ in numbers alone."""
    merged: dict[frozenset[int], list[str]] = {}
    for key, code in side.items():
        merged.setdefault(shingles(code), []).append(key)
    return merged


def _alike(
    shape: frozenset[int], others: Mapping[frozenset[int], list[str]], threshold: float
) -> Iterator[tuple[frozenset[int], list[str]]]:
    """Those of a size that can reach the threshold: the index is at most the smaller size over the larger."""
    for other, keys in others.items():
        if min(len(shape), len(other)) >= threshold * max(len(shape), len(other)):
            yield other, keys


def _jaccard(first: frozenset[int], second: frozenset[int]) -> float:
    both = len(first & second)
    return both / (len(first) + len(second) - both)


def _normal(token: Token, own: frozenset[str]) -> str:
    if token.kind is Kind.NUMBER:
        return "0"
    return "v" if token.kind is Kind.NAME and token.text in own else token.text


def _own_names(code: str) -> tuple[frozenset[str], frozenset[str]]:
    """What a kernel gives a name to, macros and members among them; and its members alone."""
    parsed = parse(Region(code, tuple(range(1, code.count("\n") + 2)), ()))
    declared = list(_declared(walk(parsed.root)))
    names = {name for name, _ in declared}
    for directive in split(lex(code).tokens)[0]:
        if directive.name == "define" and directive.rest:
            names.add(directive.rest[0].text)
            names.update(_parameters(directive.rest))
    return frozenset(names), frozenset(name for name, is_member in declared if is_member)


def _declared(nodes: Iterable[Node]) -> Iterator[tuple[str, bool]]:
    """The names that are declared, and whether as those of members."""
    for node in nodes:
        if node.type not in _NAMES:
            continue
        at: Node = node
        around: Node | None = node.parent
        while around is not None and around.type in _DECLARATORS and around.child_by_field_name("value") != at:
            at, around = around, around.parent
        if around is None or around.type not in _DECLARING:
            continue
        named = (*around.children_by_field_name("declarator"), *around.children_by_field_name("name"))
        if at in named or around.type in _PARAMETERS:
            yield text_of(node), node.type == "field_identifier"


def _parameters(rest: Sequence[Token]) -> Iterator[str]:
    """The parameters of a macro: names in the bracket that follows its own without a blank."""
    if len(rest) > 1 and rest[1].text == "(" and rest[1].start == rest[0].end:
        for token in rest[2:]:
            if token.text == ")":
                return
            if token.kind is Kind.NAME:
                yield token.text
