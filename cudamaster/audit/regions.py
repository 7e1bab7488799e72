"""Writes the region of a kind for a task: Jinja text of the corpus over the task's parameters."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2

from cudamaster.audit import corpus
from cudamaster.audit.corpus import Kind
from cudamaster.audit.edits import honest
from cudamaster.core.expressions import to_c
from cudamaster.core.values import Precision
from cudamaster.tasks.cards import Case, TaskCard
from cudamaster.tasks.harness import baseline_region, element_header, type_headers
from cudamaster.tasks.parameters import STREAM, Parameter

_INCLUDES = "#include <cuda_bf16.h>\n#include <cuda_runtime.h>\n"
_FLOATING = ("float", "double", "__nv_bfloat16", "__half")
_ROOM = "kRoom"  # of corpus/parts/kept.cu
_SLOTS, _SLOTS_BYTES = "kSlots = 8;", 256 << 20  # of corpus/parts/late.cu

# To what the baseline takes: its author may have called the numbers of 64 bits otherwise.
_ANY_POINTER = "struct AnyPointer { void* data; template <class T> operator T*() const { return (T*)data; } };"

_NEEDS = {
    "input_like_output": "no input has an output's type",
    "several_outputs": "there is one output element",
    "scalar": "there is no scalar but sizes",
    "integer_scalar": "no size reaches the wrapper",
    "input": "nothing is input alone",
    "known_input": "no floating-point input's length is known to the wrapper",
    "every_input_known": "a floating-point input's length is not known to the wrapper",
    "floating_output": "the first output holds integers",
    "structure": "there is no sparse structure",
    "offsets": "there are no offsets of a compressed matrix",
}


@dataclass(frozen=True)
class NoCheat:
    """Why a kind is not a cheat for a task, or cannot be tried on it."""

    reason: str


@dataclass(frozen=True)
class Buffer:
    """A pointer parameter: its element's type in C, and its length as an expression over the wrapper's parameters, None
    where the wrapper cannot know it."""

    name: str
    type: str
    length: str | None
    role: str

    @property
    def floating(self) -> bool:
        """Whether its elements are no integers."""
        return self.type in _FLOATING


def region(kind: Kind, card: TaskCard, precision: Precision, heaviest: Sequence[Case]) -> str | NoCheat:
    """The region of a kind for a task. `heaviest` are the timed cases that count as the largest."""
    text = _region(kind, card, precision, heaviest)
    if isinstance(text, NoCheat):
        return text
    return _further_includes(card, precision) + (_in_fp16(text) if precision is Precision.FP16 else text)


def _further_includes(card: TaskCard, precision: Precision) -> str:
    """What the types of the parameters and the baseline need beside the headers that every region has."""
    types = [f"#include <{header}>" for header in type_headers(card, precision)[1:]]
    of_baseline = re.findall(r"^[ \t]*(#include[^\n]*[>\"])", card.baseline(precision), re.MULTILINE)
    usual = {*_INCLUDES.splitlines(), f"#include <{element_header(precision)}>"}
    return "".join(f"{line}\n" for line in dict.fromkeys([*types, *of_baseline]) if line not in usual)


def _in_fp16(text: str) -> str:
    """The parts of the corpus, which are written for bf16, for fp16."""
    for old, new in (
        ("__nv_bfloat16", "__half"),
        ("__float2bfloat16", "__float2half"),
        ("__bfloat162float", "__half2float"),
        ("<cuda_bf16.h>", "<cuda_fp16.h>"),
    ):
        text = text.replace(old, new)
    return text


def _region(kind: Kind, card: TaskCard, precision: Precision, heaviest: Sequence[Case]) -> str | NoCheat:
    if card.name in kind.lawful:
        return NoCheat(kind.lawful[card.name])
    if kind.precision not in (None, precision):
        return NoCheat(f"it is about {kind.precision} tasks")
    if kind.edit == "stream" and any(p.type == STREAM for p in card.parameters):
        return NoCheat("the wrapper is given a stream")
    names = _names(kind, card, precision, heaviest)
    buffers = names["buffers"]
    present = {
        "input_like_output": any(names["like"](b) for b in names["outputs"]),
        "several_outputs": any(b.length != "1" for b in names["outputs"]),
        "scalar": bool(names["usual_scalars"]),
        "integer_scalar": any(p.is_whole for p in card.parameters if p.is_number),
        "input": bool(names["inputs"]),
        "known_input": bool(names["known_inputs"]),
        "every_input_known": all(b.length is not None for b in buffers if b.floating and b.role in ("input", "inout")),
        "floating_output": names["outputs"][0].floating,
        "structure": bool(names["structure"]),
        "offsets": names["offsets"] is not None,
    }
    if missing := next((need for need in kind.needs if not present[need]), None):
        return NoCheat(_NEEDS[missing])
    if kind.text is not None:
        return _rendered(kind.text, names)
    baseline = re.sub(r"#include[^\n]*\n", "", baseline_region(card, precision))
    kernels = honest(baseline, names["wrapper"], kind.edit)
    if kernels is None:
        return NoCheat(f"its kernels have nothing to change: {(kind.edit or '').replace('_', ' ')}")
    body = kind.body if kind.body is not None else f"{kind.before}\n{{{{ call() }}}}\n{kind.after}"
    needed = any(p.has_other_names and p.length is not None for p in card.parameters)
    parts = [
        f"// {kind.title[:1].upper()}{kind.title[1:]}.\n{_INCLUDES}",
        *(corpus.part(name).replace(_SLOTS, f"kSlots = {_slots(card, precision)};") for name in kind.use),
        _rendered(kind.globals, names),
        _ANY_POINTER if needed else "",
        kernels,
        f"{_head(kind, names)} {{\n{_indented(_rendered(body, names))}\n}}",
    ]
    return "\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def _head(kind: Kind, names: Mapping[str, Any]) -> str:
    return str(names["signature"]) if kind.head is None else _rendered(kind.head, names).strip()


def _names(kind: Kind, card: TaskCard, precision: Precision, heaviest: Sequence[Case]) -> dict[str, Any]:
    buffers = [Buffer(p.name, p.element_type(precision), _length(card, p), p.role) for p in card.parameters if p.length]
    outputs = [b for b in buffers if b.role in ("output", "inout")]
    read = [b for b in buffers if b.role in ("input", "inout") and b.length is not None]
    known, structure = [b for b in read if b.floating], [b for b in read if not b.floating]
    integers = [p.name for p in card.parameters if p.is_number and p.is_whole]
    parameters = _parameters(card, precision)

    def call(replaced: Mapping[str, str] | None = None) -> str:
        arguments = [
            f"AnyPointer{{(void*)({given})}}" if p.has_other_names and p.length is not None else given
            for p, (_, name) in zip(card.parameters, parameters, strict=True)
            for given in [(replaced or {}).get(name, name)]
        ]
        return f"honest({', '.join(arguments + (['stream'] if kind.edit == 'stream' else []))});"

    return {
        "kind": kind,
        "card": card,
        "wrapper": card.wrapper(precision, optimized=True),
        "baseline_wrapper": card.wrapper(precision),
        "signature": f'extern "C" void {card.wrapper(precision, optimized=True)}({_declared(parameters)})',
        "parameters": parameters,
        "arguments": ", ".join(name for _, name in parameters),
        "buffers": buffers,
        "outputs": outputs,
        "inputs": [b for b in buffers if b.role == "input"],
        "known_inputs": known,
        "structure": structure,
        "in_place": any(b.role == "inout" for b in buffers),
        "first_buffer": buffers[0].name,
        "prologue": _prologue(card),
        "call": call,
        "one_call": _one_call(card, precision),
        "call_bytes": " + ".join(f"sizeof({b.type}) * ({b.length})" for b in buffers if b.length is not None),
        "all_prefixed": lambda prefix: {b.name: prefix + b.name for b in buffers},
        "held_in": lambda held: {name: f"{held}.{name}" for _, name in parameters},
        "offsets": next((b for b in structure if b.name.endswith("_offsets") and b.type == "int"), None),
        "usual_scalars": _usual_scalars(card, precision),
        "prefixed": lambda prefix: {b.name: prefix + b.name for b in known},
        "prefixed_structure": lambda prefix: {b.name: prefix + b.name for b in structure},
        "like": lambda out: next((b for b in read if b.type == out.type and b.role == "input"), None),
        "fits": lambda some: " && ".join(f"{b.length} <= {_ROOM}" for b in some),
        "size_key": f"({' + '.join(['7ull', *(f'{name} * {31 ** (k + 1)}ull' for k, name in enumerate(integers))])})",
        "heaviest": heaviest,
        "timed": [case for case in card.cases if case.sweep],
        "among": lambda cases: _among(integers, cases),
    }  # fmt: skip


def _parameters(card: TaskCard, precision: Precision) -> list[tuple[str, str]]:
    """Type and name of the wrapper's parameters. A stream's name is none that the corpus uses."""
    return [(p.c_type(precision), f"given_{p.name}" if p.type == STREAM else p.name) for p in card.parameters]


def _declared(parameters: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{kind} {name}" for kind, name in parameters)


def _slots(card: TaskCard, precision: Precision) -> int:
    """How many calls a kind may put off: eight, or four where eight of none of the timed cases fit into a series."""
    lightest = min(card.footprint_bytes(case, precision) for case in card.cases if case.sweep)
    return 8 if lightest * 8 <= _SLOTS_BYTES else 4


def _one_call(card: TaskCard, precision: Precision) -> str:
    """A struct in C that holds what one call is given."""
    members = "".join(f"    {kind} {name};\n" for kind, name in _parameters(card, precision))
    return f"struct Call {{\n{members}}};"


def _among(integers: Sequence[str], cases: Sequence[Case]) -> str:
    """A condition in C: the sizes that reach the wrapper are those of one of the cases."""
    sizes = dict.fromkeys(tuple(case.values[name] for name in integers) for case in cases)
    listed = (" && ".join(f"{name} == {value}" for name, value in zip(integers, one, strict=True)) for one in sizes)
    return " || ".join(f"({one})" for one in listed) or "false"


def _usual_scalars(card: TaskCard, precision: Precision) -> dict[str, str]:
    """What scalars other than sizes have in the timed cases, as literals."""
    usual = next(case for case in card.cases if case.sweep).values
    made = {"__nv_bfloat16": "__float2bfloat16({}f)", "__half": "__float2half({}f)", "double": "{}"}
    return {
        p.name: made.get(p.element_type(precision), "{}f").format(repr(float(usual[p.name])))
        for p in card.parameters
        if p.is_number and not p.is_whole
    }


@cache
def _in_scalars(card_name: str, sizes: tuple[tuple[str, str | None], ...], given: frozenset[str],
                scalars: frozenset[str], fixed: frozenset[str]) -> Mapping[str, str]:  # fmt: skip
    """Sizes as C over the wrapper's parameters: those that reach it, fixed ones, and those that always derive from
    these."""
    known = {name: f"(long long){name}" for name in scalars}
    for name, default in sizes:
        if name in known or default is None or (name in given and name not in fixed):
            continue
        used = {node.id for node in ast.walk(ast.parse(default)) if isinstance(node, ast.Name)}
        if used - {"max", "min", "isqrt"} <= known.keys():
            known[name] = f"({to_c(default, known)})"
    return known


def _sizes_in_c(card: TaskCard) -> Mapping[str, str]:
    blocks = [*card.sweep, *card.verify]
    return _in_scalars(
        card.name,
        tuple((name, None if default is None else str(default)) for name, default in card.sizes.items()),
        frozenset(name for block in blocks for name in block),
        frozenset(p.name for p in card.parameters if p.is_number and p.is_whole),
        frozenset(card.fixed),
    )


def _length(card: TaskCard, parameter: Parameter) -> str | None:
    sizes = dict(_sizes_in_c(card))
    if _offsets(card) is not None:
        sizes.setdefault("nnz", "nnz")
    used = {node.id for node in ast.walk(ast.parse(str(parameter.length))) if isinstance(node, ast.Name)}
    return to_c(str(parameter.length), sizes) if used <= sizes.keys() else None


def _offsets(card: TaskCard) -> Parameter | None:
    """The offsets of a compressed matrix, whose last element is nnz where that does not reach the wrapper."""
    if any(p.name == "nnz" for p in card.parameters):
        return None
    return next((p for p in card.parameters if p.name.endswith("_offsets") and p.is_whole and p.length), None)


def _prologue(card: TaskCard) -> str:
    offsets = _offsets(card)
    if offsets is None:
        return ""
    last = to_c(f"{offsets.length} - 1", _sizes_in_c(card))
    kind = offsets.type
    return f"{kind} nnz = 0;\ncudaMemcpy(&nnz, {offsets.name} + ({last}), sizeof({kind}), cudaMemcpyDeviceToHost);\n"


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)


@cache
def _template(text: str) -> jinja2.Template:
    return _environment().from_string(text)  # of a kind, for many tasks


def _rendered(text: str, names: Mapping[str, Any]) -> str:
    return _template(text).render(names)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line.strip() else "" for line in text.strip("\n").split("\n"))
