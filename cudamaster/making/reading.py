"""What a user's CUDA file has: its functions, which of them launches kernels, and that one's parameters.

It is read as the preprocessor leaves it, so that macros and untaken branches mislead nobody. Headers of the system are
not opened: what they define stays a name.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tree_sitter import Node

from cudamaster.core.errors import UsageError
from cudamaster.guards.grammar import Parsed, body_of, parse, text_of, walk
from cudamaster.guards.lexer import Kind, Token
from cudamaster.guards.preprocess import NVCC_DEFINES, Region, preprocess, region_of
from cudamaster.guards.refusal import Refusal
from cudamaster.guards.signature import canonical_type
from cudamaster.guards.source import aliases_of, type_of
from cudamaster.guards.storage import declarators, is_function
from cudamaster.making.flattening import Flat

# Types of a card by the type in C, as `canonical_type` spells it; `stream` is a cudaStream_t.
TYPES = {
    "float": "float",
    "__half": "half",
    "__nv_bfloat16": "bf16",
    "double": "double",
    "int": "int",
    "unsigned int": "unsigned int",
    "long": "long long",
    "unsigned long": "size_t",
    "unsigned char": "unsigned char",
    "bool": "bool",
}
_SPELLED = {"long": "long long", "unsigned long": "size_t"}  # as people write them
_ELEMENT_OF = {"half": "__half"}
_LAUNCHERS = frozenset({"cudaLaunchKernel", "cudaLaunchKernelEx", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel"})
_FROM_HOST = ("cudaMemcpyHostToDevice", "cudaMemcpyDeviceToHost")
_ADAPTER = "Add a plain function beside it that calls it, and name that one with --wrapper"


@dataclass(frozen=True)
class Function:
    """A function of the file: its definition, its lines in the flat text, and the names that its body uses.

    `outer` is the definition with `template <...>` or `extern "C"` before it; `scope` are the namespaces and classes
    around it.
    """

    name: str
    node: Node
    outer: Node
    kind: Literal["kernel", "device", "host"]
    first: int
    last: int
    scope: tuple[str, ...]
    template: bool
    uses: frozenset[str]
    launches: bool
    c_linkage: bool


@dataclass(frozen=True)
class Passed:
    """A parameter of the wrapper: its type in a card, `stream` included, and whether it points to such elements."""

    name: str
    type: str
    pointer: bool = False
    const: bool = False

    @property
    def c_type(self) -> str:
        """Its type in C."""
        kind = next((c for c, card in TYPES.items() if card == self.type), "cudaStream_t")
        kind = _SPELLED.get(kind, kind)
        return f"{'const ' if self.const else ''}{kind}{'*' if self.pointer else ''}"


@dataclass(frozen=True)
class Source:
    """A file that was read."""

    flat: Flat
    region: Region
    parsed: Parsed
    functions: tuple[Function, ...]

    def named(self, name: str) -> list[Function]:
        """All functions of that name."""
        return [function for function in self.functions if function.name == name]

    def reachable(self, names: Sequence[str]) -> frozenset[str]:
        """Names of the functions that these use, themselves included, also through others."""
        known = {function.name for function in self.functions}
        found: set[str] = set()
        left = [name for name in names if name in known]
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left.extend(used for function in self.named(name) for used in function.uses & known)
        return frozenset(found)

    def tokens_in(self, start: int, end: int) -> Sequence[Token]:
        """The tokens between two offsets."""
        tokens = self.parsed.tokens
        starts = [token.start for token in tokens]
        return tokens[bisect_left(starts, start) : bisect_left(starts, end)]


def read(flat: Flat, compiler: str) -> Source:
    """The functions of a flat text; `compiler` is one whose preprocessor is run. Raises UsageError."""
    expanded = preprocess(flat.text, compiler, (), NVCC_DEFINES)
    if isinstance(expanded, Refusal):
        where = f"{flat.place(expanded.line)}: " if expanded.line else ""
        raise UsageError(f"{where}{expanded.reason}.", expanded.fix)
    region = region_of(expanded)
    parsed = parse(region)
    source = Source(flat, region, parsed, ())
    return Source(flat, region, parsed, tuple(_functions(source)))


def _functions(source: Source) -> Iterator[Function]:
    parsed = source.parsed
    for node in walk(parsed.root):
        if node.type != "function_definition" or parsed.function_of(node.parent) is not None:
            continue
        declared, body = next(declarators(node), None), body_of(node)
        if declared is None or body is None or not is_function(declared[1]):
            continue
        outer, template, c_linkage = node, False, False
        scope = []
        around = node.parent
        while around is not None:
            if around.type == "template_declaration" and outer in (node, around):
                outer, template = around, True
            elif around.type == "linkage_specification":
                c_linkage |= text_of(around).startswith('extern "C"')
                outer = around if around.child_by_field_name("body") == outer else outer
            elif around.type in ("namespace_definition", "class_specifier", "struct_specifier"):
                name = around.child_by_field_name("name")
                scope.append("(unnamed)" if name is None else text_of(name))
            around = around.parent
        template |= any(each.type == "template_declaration" for each in above(node))
        inside = source.tokens_in(body.start_byte, body.end_byte)
        whole = source.tokens_in(parsed.head_start(outer), outer.end_byte)
        marks = parsed.marks_between(parsed.head_start(outer), body.start_byte)
        kind: Literal["kernel", "device", "host"] = "host"
        if "__global__" in marks:
            kind = "kernel"
        elif "__device__" in marks and "__host__" not in marks:
            kind = "device"
        uses = frozenset(token.text for token in inside if token.kind is Kind.NAME)
        yield Function(
            name=declared[0],
            node=node,
            outer=outer,
            kind=kind,
            first=whole[0].line,
            last=whole[-1].line,
            scope=tuple(reversed(scope)),
            template=template,
            uses=uses,
            launches=bool(uses & _LAUNCHERS) or _has_launch(inside),
            c_linkage=c_linkage,
        )


def above(node: Node) -> Iterator[Node]:
    """What a node lies in, from the inside out."""
    while node.parent is not None:
        node = node.parent
        yield node


def _has_launch(tokens: Sequence[Token]) -> bool:
    return any(
        [token.text for token in three] == ["<"] * 3 and three[2].start == three[0].start + 2
        for three in zip(tokens, tokens[1:], tokens[2:], strict=False)
    )


def choose_wrapper(source: Source, name: str | None) -> Function:
    """The host function that becomes the task: the one named, or the one that launches kernels and no other calls.

    Functions without a pointer among their parameters, `main` for one, do not count as callers. Raises UsageError.
    """
    if name is not None:
        found = [function for function in source.named(name) if function.kind == "host"]
        if not found:
            there = ", ".join(function.name for function in _launching(source)) or "none"
            raise UsageError(f"There is no host function {name}.", f"Functions that launch kernels: {there}.")
        if len(found) > 1:
            fix = "Give the one that is meant a name of its own."
            raise UsageError(f"There are {len(found)} functions {name} (overloads).", fix)
        return found[0]
    candidates = [function for function in _launching(source) if _has_pointer(function)]
    called = {used for function in candidates for used in source.reachable(sorted(function.uses))}
    free = [function for function in candidates if function.name not in called]
    if len(free) == 1:
        return free[0]
    file = source.flat.lines[-1].file.name
    if free:
        names = [function.name for function in free]
        if len(set(names)) == 1:
            fix = "Give the one that is meant a name of its own."
            raise UsageError(f"{file} has {len(free)} functions {names[0]} (overloads) that launch kernels.", fix)
        raise UsageError(f"{file} has {len(free)} functions that launch kernels: {', '.join(names)}.",
                         f"Say which one is meant: --wrapper {names[0]}.")  # fmt: skip
    if kernels := [function for function in source.functions if function.kind == "kernel"]:
        error = NoWrapper(
            f"{file} has the kernel {kernels[0].name}, and no host function with pointers that launches it.",
            "Add one that says how many blocks and threads it takes, such as the one printed here.",
        )
        error.kernel = kernels[0]
        raise error
    raise UsageError(
        f"There is no kernel in {file}.", "Give a file with a __global__ function, and one that launches it."
    )


class NoWrapper(UsageError):
    """A file with kernels alone; `kernel` is the first one, of which `making.adapter` makes a function to paste."""

    kernel: Function


def comment_on(source: Source, function: Function) -> str:
    """The text of the // comment directly above a function, empty where there is none."""
    rows = []
    for line in reversed(source.flat.lines[: function.first - 1]):
        text = line.text.strip()
        if not text.startswith("//"):
            break
        rows.append(text.lstrip("/!< ").strip())
    return " ".join(reversed(rows))


def _launching(source: Source) -> list[Function]:
    direct = {function.name for function in source.functions if function.kind == "host" and function.launches}
    return [
        function
        for function in source.functions
        if function.kind == "host" and function.name != "main" and source.reachable([function.name]) & direct
    ]


def _has_pointer(function: Function) -> bool:
    return any("*" in text_of(node) or "[" in text_of(node) for node in parameter_nodes(function))


def parameter_nodes(function: Function) -> list[Node]:
    """The parameters of a function as they are declared."""
    _, chain = next(declarators(function.node))
    declarator = next(part for part in chain if part.type == "function_declarator")
    listed = declarator.child_by_field_name("parameters")
    nodes = [] if listed is None else [node for node in listed.named_children if node.type != "comment"]
    return [] if [text_of(node) for node in nodes] == ["void"] else nodes


def parameters(source: Source, wrapper: Function) -> tuple[Passed, ...]:
    """The parameters of the function that becomes the task.

    Raises UsageError for a function that no task can be made of: the reason, and what to change.
    """
    where, name = source.flat.place(wrapper.first), wrapper.name
    if wrapper.template:
        raise UsageError(f"{where}: {name} is a template.", f"{_ADAPTER}: its types have to be known.")
    if wrapper.scope:
        what = f"{name} lies in {'::'.join(wrapper.scope)}"
        raise UsageError(f"{where}: {what}.", f"{_ADAPTER}, outside all namespaces and classes.")
    _, chain = next(declarators(wrapper.node))
    kind = wrapper.node.child_by_field_name("type")
    returned = "" if kind is None else text_of(kind)
    if returned != "void" or chain[0].type != "function_declarator":
        returned += "*" if chain[0].type == "pointer_declarator" else ""
        fix = f"Make it void: results are written through pointers. Or: {_ADAPTER.lower()}."
        raise UsageError(f"{where}: {name} returns {returned}.", fix)
    body = body_of(wrapper.node)
    inside = [] if body is None else source.tokens_in(body.start_byte, body.end_byte)
    copied = next((token for token in inside if token.text in _FROM_HOST), None)
    if copied is not None:
        raise UsageError(
            f"{source.flat.place(copied.line)}: {name} copies between host and device.",
            "A task's pointers are device pointers: take out cudaMalloc, cudaMemcpy and cudaFree, and launch on them.",
        )
    nodes = parameter_nodes(wrapper)
    if not nodes:
        raise UsageError(f"{where}: {name} takes no parameters.", "Pass its buffers and sizes as parameters.")
    return tuple(_passed(source, node, at) for at, node in enumerate(nodes, 1))


def _passed(source: Source, node: Node, at: int) -> Passed:
    where = source.flat.place(source.parsed.line(node))
    written = " ".join(text_of(node).split())
    declared = next(declarators(node), None)
    if node.type not in ("parameter_declaration", "optional_parameter_declaration") or declared is None:
        raise UsageError(f"{where}: parameter {at}, {written!r}, has no name.", "Give it one.")
    name, chain = declared
    kind = type_of(node)
    if any(part.type == "reference_declarator" for part in chain):
        raise UsageError(f"{where}: {name} is a reference.", "Pass a number by value, and an array as a pointer.")
    if any(part.type == "function_declarator" for part in chain):
        raise UsageError(f"{where}: {name} is a function.", "A task's parameters are pointers and numbers.")
    if "cudaStream_t" in kind:
        if "*" in kind:
            raise UsageError(f"{where}: {name} points to streams.", "Pass a cudaStream_t by value.")
        return Passed(name, "stream")
    parts = canonical_type(kind, aliases_of(source.parsed.root))
    if parts is None or parts[0] not in TYPES:
        known = ", ".join([*(_SPELLED.get(each, each) for each in TYPES), "cudaStream_t"])
        fix = _instead(kind) or f"Take one of {known}, or a pointer to one; of a struct pass the members."
        raise UsageError(f"{where}: {name} has the type {' '.join(kind.split())!r}, which no card can describe.", fix)
    if len(parts) > 2:
        raise UsageError(f"{where}: {name} is a pointer to pointers.", "Pass each array as a parameter of its own.")
    const = "const" in kind.split("*")[0].split()
    return Passed(name, TYPES[parts[0]], pointer=len(parts) == 2, const=len(parts) == 2 and const)


def _instead(kind: str) -> str:
    """What to pass in place of a pointer to small signed numbers or to CUDA's vectors; empty for other types."""
    words = [word for word in re.findall(r"\w+", kind) if not word.startswith("__restrict")]
    base = " ".join(word for word in words if word not in ("const", "std", "restrict"))
    vector = re.fullmatch(r"(float|double|int|half|__half|__nv_bfloat16)[234]", base)
    element = _ELEMENT_OF.get(vector[1], vector[1]) if vector else ""
    if base in ("char", "signed char", "int8_t"):
        element = "unsigned char"
    if not element or "*" not in kind:
        return ""
    const = "const " if "const" in words else ""
    return f"Pass a `{const}{element}*`, and cast it inside the function: `reinterpret_cast<{const}{base}*>(...)`."
