"""Renders the test harness of a task: one readable .cu with a region that a person or an agent fills in."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import jinja2

from cudamaster.core import resources
from cudamaster.core.errors import UsageError
from cudamaster.core.expressions import call, parse, to_c
from cudamaster.core.values import Precision
from cudamaster.guards.renaming import as_candidate
from cudamaster.tasks import truth
from cudamaster.tasks.cards import TaskCard
from cudamaster.tasks.parameters import ELEMENT_TYPES, STREAM, Parameter

_ZEROS = {"__nv_bfloat16": "__float2bfloat16(0.0f)", "__half": "__float2half(0.0f)"}
_TRUTHS = {"c": "kReference", "python": "kPython", "baseline": "kBaseline"}
_USES = {"input": "kInput", "output": "kOutput", "inout": "kInOut", "scratch": "kScratch"}


def render(
    card: TaskCard,
    precision: Precision,
    region: str | None = None,
    *,
    bench: Path = Path("bench"),
    file: Path | None = None,
    reference: Sequence[str] = (),
) -> str:
    """The harness as CUDA C++ text; `region` is the candidate, by default the baseline under `_optimized` names.

    The build line in its head takes `bench` for the benchmark's folder and `file` for where the text is written to, and
    starts the program with `reference`, the command of a reference in Python.
    Compiled with -DMSKB_JUDGE the kernels are left out, with -DMSKB_CALL all but the call of a wrapper that is linked.
    """
    buffers = [p for p in card.parameters if p.length is not None]
    prefix = {name: f"c.{name}" for name in card.sizes}
    size_types = {name: _size_type(card, name) for name in card.sizes}
    written = partial(to_c, prefix=prefix, real=[name for name, kind in size_types.items() if kind == "double"])
    wrapper = card.wrapper(precision)
    file = file or Path(f"{wrapper}_harness.cu")
    baseline = _baseline_text(card, precision)
    program = str(file.with_suffix("")) if file.suffix else f"{file}.out"
    return _template("test_harness.cu.j2").render(
        card=card,
        card_file=_card_file(card),
        task_set=card.suite,
        truth=_TRUTHS[card.truth],
        against=truth.against(card),
        reference=f"reference/{card.reference_path.name}" if card.shipped else str(card.reference_path),
        header=element_header(precision),
        precision=precision.value,
        bench=shlex.quote(str(bench)),
        file=shlex.quote(str(file)),
        program=shlex.quote(program),
        start=shlex.join([program if file.is_absolute() else f"./{program}", *_each("--reference", reference)]),
        includes=_includes(baseline, precision),
        baseline=baseline,
        region=(baseline_region(card, precision) if region is None else region).strip(),
        declaration=card.declaration(precision),
        wrapper=wrapper,
        element_type=ELEMENT_TYPES[precision],
        size_types=size_types,
        defaults={name: None if default is None else written(str(default)) for name, default in card.sizes.items()},
        buffers=[
            {
                "index": index,
                "name": p.name,
                "type": p.element_type(precision),
                "length": written(str(p.length)),
                "use": _USES[p.role],
                "exact": _exact(p, written),
                "sound": repr(p.sound) if p.has_bounds_of_its_own else None,
                "ulps": f"static_cast<double>({written(p.ulps)})",
                "unit": written(p.unit),
                "cost": written(p.cost),
                "width": written(_width(p) or "0"),
                "shape": [written(each) for each in p.shape or ()],
            }
            for index, p in enumerate(buffers)
        ],
        generators=[_generator(text, buffers, written) for text in card.inputs],
        reference_arguments=_reference_arguments(card, buffers, precision),
        numbers=[_number(card, name, size_types[name], precision) for name in card.sizes],
        call_arguments=_call_arguments(card, precision),
    )


def skeleton(card: TaskCard, precision: Precision, named: str = "") -> str:
    """A candidate to start from: it has the wrapper, and one thread for each element of the first output.

    It builds, and its result is wrong. It says how to try it, on the task as it is `named`, by default by its name.
    """
    result = next(p for p in card.parameters if p.is_written)
    length = str(result.length)
    passed = {name for _, name in card.signature(precision)}
    derived = {name: str(card.sizes[name]) for name in _names(length) if name not in passed}
    # A product of two ints may need more than an int.
    wide = {name: name if name in derived or name == length else f"(long long){name}" for name in (*passed, *derived)}
    written = partial(to_c, prefix=wide)
    kind = result.element_type(precision)
    to_kernel = [p for p in card.parameters if p.type != STREAM]
    return _template("skeleton.cu.j2").render(
        card=card,
        named=shlex.quote(named or card.name),
        precision=precision.value,
        width=max(len(name) for name in (*passed, *card.unpassed)),
        kernel=f"{card.wrapper(precision)}_kernel",
        parameters=", ".join(f"{p.c_type(precision)} {p.name}" for p in to_kernel),
        arguments=", ".join(p.name for p in to_kernel),
        stream=next((p.name for p in card.parameters if p.type == STREAM), None),
        result=result,
        zero=_ZEROS.get(kind, "0"),
        headers=type_headers(card, precision),
        declaration=card.declaration(precision),
        derived={name: written(text) for name, text in derived.items()},
        length=written(length),
    )


def element_header(precision: Precision) -> str:
    """The header of the element type; that of bf16 for fp32, which needs none."""
    return "cuda_fp16.h" if precision is Precision.FP16 else "cuda_bf16.h"


def _includes(baseline: str, precision: Precision) -> list[str]:
    """Lines of a baseline that include what the harness does not: they belong before the baseline's namespace."""
    lines = [line.strip() for line in baseline.splitlines() if re.match(r"\s*#\s*include\b", line)]
    known = {f"#include <{name}>" for name in (element_header(precision), "cuda_bf16.h", "cuda_runtime.h")}
    return [line for line in dict.fromkeys(lines) if line not in known]


def type_headers(card: TaskCard, precision: Precision) -> list[str]:
    """The header of the element type, and those of the parameters' other types, without CUDA's runtime."""
    of_types = {"__half": "cuda_fp16.h", "__nv_bfloat16": "cuda_bf16.h"}
    further = {of_types.get(p.element_type(precision)) for p in card.parameters} - {element_header(precision)}
    return [element_header(precision), *sorted(header for header in further if header is not None)]


def vendor_declarations(card: TaskCard, precision: Precision) -> list[str]:
    """What a vendor's file defines: the baseline's wrapper, and what is called with a case's shape before its calls.

    The shape is the sizes that a caller of a library knows: those of the buffers and of the wrapper's scalars. A file
    may define a third, which is weak here: what is called before each call, with the arguments of that call.
    """
    wrapper = card.wrapper(precision)
    sizes = ", ".join(f"{_size_type(card, name)} {name}" for name in _shape(card))
    call = card.declaration(precision, optimized=False)
    bind = call.replace(f" {wrapper}(", f" {wrapper}_bind(")
    return [f"{call};", f'extern "C" void {wrapper}_prepare({sizes});', f"{bind} __attribute__((weak));"]


def render_vendor_call(card: TaskCard, precision: Precision) -> str:
    """The call of a vendor's file in the candidate's place, to be linked to a worker and to that file."""
    return _template("vendor_call.cu.j2").render(
        card=card,
        precision=precision.value,
        wrapper=card.wrapper(precision),
        declarations=vendor_declarations(card, precision),
        size_types={name: _size_type(card, name) for name in card.sizes},
        shape=_shape(card),
        call_arguments=_call_arguments(card, precision),
        header=element_header(precision),
        card_file=_card_file(card),
    )


def _baseline_text(card: TaskCard, precision: Precision) -> str:
    """What the harness says of the baseline: the kernel, or in a comment the module that PyTorch runs."""
    text = card.baseline(precision).strip()
    if not card.is_eager:
        return text
    return "\n".join(["// No kernel: eager PyTorch runs this.", *(f"// {line}".rstrip() for line in text.splitlines())])


def baseline_region(card: TaskCard, precision: Precision) -> str:
    """The baseline's text as a candidate: kernels and wrapper carry the `_optimized` suffix.

    Where the wrapper's name follows from the task's, comments name it and get the suffix too. Where the baseline is a
    module that PyTorch runs, it is a skeleton with a first line that says so: it stands for the module, and is never
    run.
    """
    if card.is_eager:
        return f"// Stands for eager PyTorch, which runs pytorch/{card.name}.py.\n{skeleton(card, precision)}"
    return as_candidate(card.baseline(precision), card.wrapper(precision), comments=card.own_wrapper is None)


def stands_for_eager(card: TaskCard, precision: Precision, code: str) -> bool:
    """Whether a candidate's text stands for a baseline in eager PyTorch, and is not to be built."""
    return card.is_eager and code == baseline_region(card, precision)


def must_be_kernel(card: TaskCard, precision: Precision, code: str) -> None:
    """Raises UsageError for a text that stands for a baseline in eager PyTorch."""
    if stands_for_eager(card, precision, code):
        raise UsageError(
            f"This text stands for the baseline of {card.name}, eager PyTorch, which is no kernel of the task's own.",
            "Give a kernel; `cudamaster evaluate` and `cudamaster compare` take the baseline too.",
        )


def row_width(length: str) -> str | None:
    """Elements of a row of a matrix with that many elements: the last factor of the product, None for a vector.

    Buffers are stored row by row, so `N * C * H * W` has rows of W elements.
    """
    match parse(length):
        case ast.BinOp(op=ast.Mult(), right=last):
            return ast.unparse(last)
    return None


def _width(p: Parameter) -> str | None:
    """Elements of a row of a buffer: by its shape where the card gives it, else by its length."""
    if p.shape is not None:
        return p.shape[-1] if len(p.shape) > 1 else None
    return row_width(str(p.length))


def _card_file(card: TaskCard) -> str:
    """Where the card lies: in any checkout, or in a user's folder."""
    return str((Path("bench") if card.shipped else card.folder) / card.path)


def _each(option: str, words: Sequence[str]) -> list[str]:
    return [each for word in words for each in (option, word)]


def _number(card: TaskCard, name: str, size_type: str, precision: Precision) -> dict[str, str]:
    """A size or scalar as a reference in Python gets it: the value that the wrapper gets, and whether it is whole."""
    scalar = next((p for p in card.parameters if p.name == name), None)
    value = f"static_cast<double>(c.{name})" if scalar is None else f"mskb::to_double({_scalar(scalar, precision)})"
    return {"name": name, "value": value, "whole": str(size_type == "long long").lower()}


def _exact(p: Parameter, written: Callable[[str], str]) -> str:
    """Whether an output is compared exactly, as C."""
    if p.check == "exact" or p.exact_if is None:
        return "true" if p.check == "exact" else "false"
    return f"({written(p.exact_if)}) != 0"


def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.templates()),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    return environment.get_template(name)


def _call_arguments(card: TaskCard, precision: Precision) -> list[str]:
    """The wrapper's arguments in terms of a case `c` and of the buffers in `device`."""
    buffers = [p for p in card.parameters if p.length is not None]

    def pointer(p: Parameter) -> str:
        named = "any" if p.has_other_names else f"pointer<{p.element_type(precision)}>"
        return f"device.{named}({buffers.index(p)})"

    return [_scalar(p, precision) if p.length is None else pointer(p) for p in card.parameters]


def _shape(card: TaskCard) -> list[str]:
    """Sizes of a case that its buffers or the wrapper's scalars show, in the card's order."""
    shown = {p.name for p in card.parameters if p.is_number}
    for p in card.parameters:
        if p.length is not None:
            shown |= set(_names(str(p.length)))
    return [name for name in card.sizes if name in shown]


def _names(expression: str) -> list[str]:
    return [node.id for node in ast.walk(parse(expression)) if isinstance(node, ast.Name)]


def _size_type(card: TaskCard, name: str) -> str:
    real = {p.name for p in card.parameters if p.is_number and not p.is_whole}
    whole = all(isinstance(case.values[name], int) for case in card.cases)
    return "long long" if name not in real and whole else "double"


def _generator(text: str, buffers: list[Parameter], written: Callable[[str], str]) -> str:
    name, arguments = call(text)
    filled = {p.name for p in buffers}
    passed = [f"Buffer::{argument}" if argument in filled else written(argument) for argument in arguments]
    return f"mskb::{name}({', '.join(['inputs', *passed])})"


def _scalar(p: Parameter, precision: Precision) -> str:
    element = p.element_type(precision)
    if p.type == STREAM:
        return f"{element}{{}}"  # the default stream
    half = p.type in ("T", "half", "bf16")
    return f"mskb::from_double<{element}>(c.{p.name})" if half else f"static_cast<{element}>(c.{p.name})"


def _reference_arguments(card: TaskCard, buffers: list[Parameter], precision: Precision) -> list[str]:
    """Arguments in the wrapper's order: inputs as host pointers, outputs as Expected, in-place ones as both.

    A stream and scratch memory are left out.
    """
    arguments: list[str] = []
    for p in card.parameters:
        if p.type == STREAM:
            continue
        if p.length is None:
            arguments.append(_scalar(p, precision))
            continue
        index = buffers.index(p)
        if p.is_read:
            arguments.append(f"static_cast<const {p.element_type(precision)}*>(host[{index}])")
        if p.is_written:
            arguments.append(f"expected[{index}]")
    return arguments
