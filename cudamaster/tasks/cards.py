"""Task cards: the one place where a task is described, read from YAML and checked.

A card holds what a task computes, the wrapper's parameters, the cases, how inputs are made and how outputs are
checked. It holds no code: two baselines and a reference are in the same folder as the card's, which is bench/ for the
tasks of MSKernelBench and any other for a user's own (docs/adding.md).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from cudamaster.core import resources
from cudamaster.core.errors import CardError, one_line
from cudamaster.core.expressions import ExpressionError, Number, call, evaluate, to_c
from cudamaster.core.values import BENCHMARK_PRECISIONS, Precision, content_hash, wrapper_name
from cudamaster.tasks.held_out import Block, check_blocks
from cudamaster.tasks.misfits import Misfits

MSKERNELBENCH = "MSKernelBench"  # the tasks of bench/, which commands take when none is named
ELEMENT_BYTES = {"float": 4, "int": 4}
ELEMENT_TYPES = {Precision.FP32: "float", Precision.BF16: "__nv_bfloat16", Precision.FP16: "__half"}
_T_BYTES = {Precision.FP32: 4, Precision.BF16: 2, Precision.FP16: 2}
_MOST_CASES = 500
_SOUND, _ULPS = 1e-4, "4"  # as in mskb/task.h
_WHOLE = 2**53  # the harness holds sizes as doubles
# What is written into the harness as it stands: names, and the words of its comment.
_Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f\x85\u2028\u2029]+$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


class Parameter(_Strict):
    """One parameter of the wrapper: a scalar, or a device buffer of `length` elements.

    The reference makes `unit` consecutive elements of an output together, at the `cost` of so many operations. On a
    case where all of them would take too long, it is asked for some of the units.

    `exact_if` is an expression over the sizes: in cases where it is not 0 an output is compared as if its `check` were
    exact. A baseline whose error is above `sound`, in units of an element's scale, is wrong. `ulps`, an expression, is
    what any kernel may be off by, in ulps of fp32 at that scale: tensor cores cut off at each of their steps.
    """

    name: _Name
    type: Literal["T", "float", "int"]
    meaning: str
    role: Literal["scalar", "input", "output", "inout"] = "scalar"
    length: str | None = None
    check: Literal["bounded", "exact"] = "bounded"
    unit: str = "1"
    cost: str = "1"
    exact_if: str | None = None
    sound: float = Field(default=_SOUND, gt=0, le=1)
    ulps: str = _ULPS

    @property
    def has_bounds_of_its_own(self) -> bool:
        """Whether `sound` or `ulps` is another than for all tasks."""
        return (self.sound, self.ulps) != (_SOUND, _ULPS)

    @model_validator(mode="after")
    def _length_for_buffers(self) -> Parameter:
        if (self.role == "scalar") != (self.length is None):
            raise ValueError(f"parameter {self.name}: a buffer has a role and a length, a scalar has neither")
        return self

    def c_type(self, precision: Precision) -> str:
        """Type of the parameter in C, e.g. "const __nv_bfloat16*"."""
        base = self.element_type(precision)
        return {"scalar": base, "input": f"const {base}*"}.get(self.role, f"{base}*")

    def element_type(self, precision: Precision) -> str:
        """Type of one element in C."""
        return ELEMENT_TYPES[precision] if self.type == "T" else self.type

    def element_bytes(self, precision: Precision) -> int:
        """Bytes of one element."""
        return _T_BYTES[precision] if self.type == "T" else ELEMENT_BYTES[self.type]


class Floor(_Strict):
    """Least bytes and operations of a case, as expressions over its sizes and `element_bytes`.

    `products`: the operations are multiply-adds of a matrix product, which tensor cores do for bf16 and fp16 operands.
    """

    bytes_read: str
    bytes_written: str
    operations: str
    products: bool = False


class Case(_Strict):
    """One set of sizes. `values` holds every size, derived ones too; `sweep` cases are timed and scored.

    A `held_out` case is in no card: it was drawn for one evaluation.
    """

    values: Mapping[str, Number]
    sweep: bool
    label: str
    weight: float
    held_out: bool = False


class Family(_Strict):
    """What a task shares with others: the names of its suite, of its wrapper (without precision), and of its files.

    `baseline` is the name of the baseline's file, `reference` that of the reference's, and `function` the name of the
    reference's function without `_reference`. `card_file` is where the description lies, relative to the folder.
    """

    suite: _Line
    wrapper: _Name
    baseline: _Name
    reference: _Name
    function: _Name
    card_file: _Line


class TaskCard(_Strict):
    """A task: of MSKernelBench's fifty (paper table 7), or a user's own.

    `id` is its place in lists. `held_out` and `held_out_large` say how further cases are drawn for every evaluation:
    small ones, and ones near the largest timed case. tasks/held_out.py describes their form. `precisions` are those in
    which the task exists. `headers` are the libraries that a candidate may include beside what every candidate may.
    `family` is for the tasks of a suite that share their files; a card of one's own has none.
    """

    id: int = Field(ge=1)
    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    title: _Line
    category: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    summary: str
    formula: _Line
    sizes: Mapping[_Name, Number | str | None]
    fixed: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...]
    inputs: tuple[str, ...]
    sweep: tuple[Mapping[str, list[Number] | Number], ...]
    verify: tuple[Mapping[str, list[Number] | Number], ...]
    held_out: tuple[Block, ...]
    held_out_large: tuple[Block, ...]
    weight: str
    floor: Floor
    precisions: tuple[Precision, ...] = Field(default=BENCHMARK_PRECISIONS, min_length=1)
    headers: tuple[Literal["cutlass", "cute"], ...] = ()
    family: Family | None = None
    _folder: Path = PrivateAttr(default_factory=resources.bench)
    _file: Path | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _consistent(self) -> TaskCard:
        misfits = Misfits()
        self._check_names(misfits)
        self._check_written(misfits)
        with misfits.at():
            self._check_cases()
        for k, generator in enumerate(self.inputs):
            with misfits.at("inputs", k):
                self._filled_by(generator)
        misfits.end()  # what follows needs cases
        for k, generator in enumerate(self.inputs):
            with misfits.at("inputs", k):
                for argument in call(generator)[1][len(self._filled_by(generator)) :]:
                    evaluate(argument, self.cases[0].values)
        filled = [name for generator in self.inputs for name in self._filled_by(generator)]
        wanted = [p.name for p in self.parameters if p.role in ("input", "inout")]
        with misfits.at("inputs"):
            if sorted(filled) != sorted(wanted):
                raise ValueError(f"inputs fill {filled}, but have to fill each of {wanted} once")
        for case in self.cases:
            with misfits.at():
                self.check_case(case)
            if misfits.found:
                break
        misfits.end()
        check_blocks(self)
        return self

    def _check_names(self, misfits: Misfits) -> None:
        """Names of parameters and sizes stand for each other, and there is an output."""
        scalars = [p.name for p in self.parameters if p.role == "scalar"]
        with misfits.at("sizes"):
            if missing := [name for name in scalars if name not in self.sizes]:
                raise ValueError(f"scalar parameters {missing} have no entry in sizes")
        with misfits.at("parameters"):
            if not any(p.role in ("output", "inout") for p in self.parameters):
                raise ValueError("no parameter is an output")
        names = [p.name for p in self.parameters]
        for k, name in enumerate(names):
            with misfits.at("parameters", k, "name"):
                if name in names[:k]:
                    raise ValueError(f"two parameters have the same name, {name}")
        with misfits.at("fixed"):
            if unknown := [name for name in self.fixed if name not in self.sizes]:
                raise ValueError(f"fixed names {unknown}, which have no entry in sizes")

    def _check_written(self, misfits: Misfits) -> None:
        """All values that the harness holds as C can be written as C, unused defaults included, and so can others."""
        known = dict.fromkeys(self.sizes, "c")
        with misfits.at("weight"):
            to_c(self.weight, known)
        for field in ("bytes_read", "bytes_written", "operations"):
            with misfits.at("floor", field):
                to_c(getattr(self.floor, field), {**known, "element_bytes": "c"})
        for position, (name, default) in enumerate(self.sizes.items()):
            if default is not None:
                with misfits.at("sizes", name):
                    to_c(str(default), dict.fromkeys(list(self.sizes)[:position], "c"))
        for k, parameter in enumerate(self.parameters):
            for field in ("length", "unit", "cost", "exact_if", "ulps"):
                if (text := getattr(parameter, field)) is not None:
                    with misfits.at("parameters", k, field):
                        to_c(text, known)

    def _check_cases(self) -> None:
        """Raises Misfits unless the card makes cases, some of them timed; each block that makes none is named."""
        misfits = Misfits()
        with misfits.at("sweep"):
            self._check_number()
            if not any(map(_number_of_cases, self.sweep)):
                raise ValueError("there is no timed case: sweep is empty")
        misfits.end()
        try:
            _ = self.cases
        except ValueError as error:
            for field, blocks in (("verify", self.verify), ("sweep", self.sweep)):
                for k, block in enumerate(blocks):
                    with misfits.at(field, k):
                        for values in _crossed(block):
                            self._values(values)
            misfits.end()
            raise Misfits.of(error, "weight") from error  # all else that a case takes is there

    def _check_number(self) -> None:
        """Raises ValueError for too many cases."""
        if (number := sum(map(_number_of_cases, (*self.verify, *self.sweep)))) > _MOST_CASES:
            raise ValueError(f"sweep and verify make {number} cases, and {_MOST_CASES} is the most")

    def check_case(self, case: Case) -> None:
        """Raises Misfits unless lengths, units, costs, weight and floor of a case are numbers that make sense."""
        misfits = Misfits()
        with misfits.at("weight"):
            if not (case.weight > 0 if case.sweep else case.weight >= 0):
                raise ValueError(f"the weight of case {case.label} is {case.weight:g}")
        real = {p.name for p in self.parameters if p.role == "scalar" and p.type != "int"}
        names = {name: float(value) if name in real else value for name, value in case.values.items()}
        for k, parameter in enumerate(self.parameters):
            for what, text, least in (("length", parameter.length, 0), ("unit", parameter.unit, 1)):
                with misfits.at("parameters", k, what):
                    number = least if text is None else evaluate(text, names)
                    if not isinstance(number, int) or not least <= number <= _WHOLE:
                        raise ValueError(f"the {what} of {parameter.name} is {number} in case {case.label}")
            with misfits.at("parameters", k, "exact_if"):
                if parameter.exact_if is not None:
                    evaluate(parameter.exact_if, names)
            with misfits.at("parameters", k, "cost"):
                if self.reference_unit(parameter, case)[1] < 0:
                    raise ValueError(f"the cost of {parameter.name} is negative in case {case.label}")
        for precision in self.precisions:
            with misfits.at("floor"):
                if negative := [key for key, amount in self.floor_of(case, precision).items() if amount < 0]:
                    raise ValueError(f"{', '.join(negative)} of the floor: negative in case {case.label}")
        misfits.end()

    def _filled_by(self, generator: str) -> tuple[str, ...]:
        """Buffers that a generator of `inputs` fills; ValueError where it is not called as inputs.h declares it."""
        known, (name, arguments) = generators(), call(generator)
        if name not in known:
            raise ExpressionError(name, f"is no input generator; there are {', '.join(sorted(known))}", name, known)
        buffers, numbers = known[name]
        if len(arguments) != buffers + numbers:
            raise ValueError(f"{generator!r} has {len(arguments)} arguments, {name} takes {buffers + numbers}")
        parameters = {p.name for p in self.parameters if p.role in ("input", "inout")}
        for argument in arguments[:buffers]:
            if argument not in parameters:
                what = f"fills {argument!r}, which is no input parameter"
                raise ExpressionError(generator, what, argument, parameters)
        for argument in arguments[buffers:]:
            to_c(argument, dict.fromkeys(self.sizes, "c"))
        return arguments[:buffers]

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """All cases, verification ones first, in the order in which the harness runs them.

        Raises ValueError for too many.
        """
        self._check_number()
        return tuple(
            self.case(values, sweep=sweep)
            for sweep, blocks in ((False, self.verify), (True, self.sweep))
            for block in blocks
            for values in _crossed(block)
        )

    def case(self, given: Mapping[str, Number], *, sweep: bool = False) -> Case:
        """A case from the sizes given; the others take their default or are derived.

        Raises ValueError for a size that is unknown, missing or no finite number.
        """
        values = self._values(given)
        label = ",".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                         for name, value in given.items())  # fmt: skip
        return Case(values=values, sweep=sweep, label=label, weight=float(evaluate(self.weight, values)))

    def _values(self, given: Mapping[str, Number]) -> dict[str, Number]:
        """Every size of a case. Raises as `case`."""
        if unknown := [name for name in given if name not in self.sizes]:
            raise ValueError(f"case {dict(given)} sets {unknown}; sizes are {list(self.sizes)}")
        values: dict[str, Number] = {}
        for name, default in self.sizes.items():
            if name in given:
                values[name] = given[name]
            elif default is None:
                raise ValueError(f"case {dict(given)} lacks the size {name!r}")
            else:
                values[name] = evaluate(default, values) if isinstance(default, str) else default
        for name, value in values.items():
            if not (abs(value) <= _WHOLE if isinstance(value, int) else math.isfinite(value)):
                raise ValueError(f"case {dict(given)}: {name} is no number that a double holds exactly")
        return values

    def footprint_bytes(self, case: Case, precision: Precision) -> int:
        """Bytes of all buffers of a case, one copy of each."""
        return self.buffer_bytes(case, precision, ("input", "output", "inout"))

    def buffer_bytes(self, case: Case, precision: Precision, roles: Sequence[str]) -> int:
        """Bytes of the buffers with these roles."""
        return sum(
            int(evaluate(p.length, case.values)) * p.element_bytes(precision)
            for p in self.parameters
            if p.length is not None and p.role in roles
        )

    def reference_unit(self, parameter: Parameter, case: Case) -> tuple[int, float]:
        """How many elements of an output the reference makes together, and its operations for them."""
        return int(evaluate(parameter.unit, case.values)), float(evaluate(parameter.cost, case.values))

    def floor_of(self, case: Case, precision: Precision) -> Mapping[str, int]:
        """Least bytes read, bytes written and operations of a case."""
        names = {**case.values, "element_bytes": _T_BYTES[precision]}
        return {key: int(evaluate(text, names)) for key, text in self.floor.model_dump(exclude={"products"}).items()}

    def among(self, precisions: Sequence[Precision]) -> tuple[Precision, ...]:
        """Those of the precisions that the task exists in; without one of them, all that it exists in."""
        return tuple(each for each in precisions if each in self.precisions) or self.precisions

    def wrapper(self, precision: Precision, *, optimized: bool = False) -> str:
        """Name of the extern "C" wrapper."""
        return wrapper_name(self.family.wrapper if self.family else self.name, precision, optimized=optimized)

    def signature(self, precision: Precision) -> tuple[tuple[str, str], ...]:
        """(C type, name) of each wrapper parameter, in order."""
        return tuple((parameter.c_type(precision), parameter.name) for parameter in self.parameters)

    def declaration(self, precision: Precision, *, optimized: bool = True) -> str:
        """C declaration of the wrapper, without a semicolon."""
        parameters = ", ".join(f"{kind} {name}" for kind, name in self.signature(precision))
        return f'extern "C" void {self.wrapper(precision, optimized=optimized)}({parameters})'

    @property
    def folder(self) -> Path:
        """Where its baselines and its reference lie: bench/, or a user's folder of the same form."""
        return self._folder

    @property
    def of_benchmark(self) -> bool:
        """Whether it is one of MSKernelBench's fifty."""
        return self.shipped and self.family is None

    @property
    def shipped(self) -> bool:
        """Whether its files are in bench/: it is one of the fifty, or of another suite that comes with them."""
        return self.folder == resources.bench()

    @property
    def suite(self) -> str:
        """The name of the suite that it is of. Raises CardError where a user's folder does not say that right."""
        from cudamaster.tasks import task_suites

        if self.shipped:
            return self.family.suite if self.family else MSKERNELBENCH
        return task_suites.of_folder(self.folder).name

    @property
    def source(self) -> str:
        """What `load` takes to give this card from any folder: its name if that is a shipped one's, else its path."""
        if self.family or self._file is None or self._file == self.folder / self.path == resources.bench() / self.path:
            return self.name
        return str(self._file)

    @property
    def path(self) -> Path:
        """Where it is described, relative to its folder."""
        return Path(self.family.card_file if self.family else f"tasks/{self.name}.yaml")

    @property
    def reference_function(self) -> str:
        """Name of the reference's function."""
        return f"{self.family.function if self.family else self.name}_reference"

    def baseline_path(self, precision: Precision) -> Path:
        """The frozen baseline kernel."""
        return self.folder / precision.value / f"{self.file_name(precision)}.cu"

    def file_name(self, precision: Precision) -> str:
        """Name of the baseline's file, and what those of vendors' libraries begin with, without an ending."""
        return self.family.baseline if self.family else self.wrapper(precision)

    def baseline(self, precision: Precision) -> str:
        """Source of the baseline. Raises CardError where there is none."""
        return self._text(f"baseline ({precision})", self.baseline_path(precision))

    @property
    def reference_path(self) -> Path:
        """The reference in double precision."""
        return self.folder / "reference" / f"{self.family.reference if self.family else self.name}.h"

    def reference(self) -> str:
        """Source of the reference. Raises CardError where there is none."""
        return self._text("reference", self.reference_path)

    def _text(self, what: str, path: Path) -> str:
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CardError(
                f"The {what} of {self.name} cannot be read: {one_line(error)}.",
                "Write it, or restore it from version control.",
            ) from error

    @cached_property
    def hash(self) -> str:
        """Content hash of the card. Fields that came later count if they differ from before, as records keep hashes."""
        return content_hash(self.model_dump_json(exclude=self._unused))

    @property
    def _unused(self) -> dict[str, Any]:
        """Fields that cards did not have at first, as far as they have their defaults here."""
        fields = {"precisions": BENCHMARK_PRECISIONS, "headers": (), "family": None}
        found: dict[str, Any] = {name: True for name, default in fields.items() if getattr(self, name) == default}
        of_parameters = {
            index: {
                name
                for name, default in (("exact_if", None), ("sound", _SOUND), ("ulps", _ULPS))
                if getattr(p, name) == default
            }
            for index, p in enumerate(self.parameters)
        }
        return {**found, "parameters": of_parameters}

    def describe(self, precision: Precision) -> str:
        """The task in words, for prompts: what it computes, interface, sizes, how errors are judged."""
        buffers = "\n".join(
            f"- `{p.c_type(precision)} {p.name}`: {p.meaning}"
            + (f" ({p.role}, {p.length} elements)" if p.length else "")
            for p in self.parameters
        )
        sweep = "; ".join(f"{case.label} (weight {case.weight:g})" for case in self.cases if case.sweep)
        fixed = "".join(
            f" {name} is always {self.sizes[name]} and is not passed to the wrapper." for name in self.fixed
        )
        exact = [p.name for p in self.parameters if p.check == "exact"]
        judged = (
            f"{', '.join(exact)} must be exactly right."
            if exact
            else "Each output element is compared with a double-precision reference; its error may not exceed a "
            "small multiple of the baseline's own error, on the scale of the sum of the absolute terms that make "
            f"the element.{_LOWER.get(precision, '')}"
        )
        return (
            f"{self.title} ({precision}): {self.summary}\n\n    {self.formula}\n\n"
            f"Wrapper parameters, in order (pointers are device pointers):\n{buffers}\n\n"
            f"Timed cases: {sweep}. Every other legal size must be right too, odd and tiny ones included.{fixed}\n"
            f"{judged}"
        )


# What is outside the bound, by precision. Of FP16 the summary says in what sums are due.
_LOWER = dict.fromkeys(
    BENCHMARK_PRECISIONS,
    " TF32, FP16 or BF16 arithmetic in place of FP32, or BF16 accumulation, is outside that.",
)


def names() -> list[str]:
    """As `finding.names`."""
    from cudamaster.tasks import finding

    return finding.names()


def own_names() -> list[str]:
    """As `finding.own_names`."""
    from cudamaster.tasks import finding

    return finding.own_names()


def load(name: str) -> TaskCard:
    """As `finding.load`."""
    from cudamaster.tasks import finding

    return finding.load(name)


@lru_cache(maxsize=1)
def generators() -> Mapping[str, tuple[int, int]]:
    """Input generators that a card can name, as inputs.h declares them: how many buffers and numbers each takes."""
    text = (resources.bench() / "include" / "mskb" / "inputs.h").read_text(encoding="utf-8")
    found = re.findall(r"^void (\w+)\(Inputs& inputs((?:,\s*(?:int|double) \w+)*)\);", text, re.MULTILINE)
    return {name: (len(re.findall(r"\bint ", rest)), len(re.findall(r"\bdouble ", rest))) for name, rest in found}


def _number_of_cases(block: Mapping[str, list[Number] | Number]) -> int:
    return math.prod(len(value) for value in block.values() if isinstance(value, list))


def _crossed(block: Mapping[str, list[Number] | Number]) -> Iterator[dict[str, Number]]:
    lists = [value if isinstance(value, list) else [value] for value in block.values()]
    for combination in itertools.product(*lists):
        yield dict(zip(block, combination, strict=True))
