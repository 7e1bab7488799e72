"""Task cards: the one place where a task is described, read from YAML and checked.

A card holds what a task computes, the wrapper's parameters, the cases, how inputs are made and how outputs are
checked. It holds no code: baselines and a reference are in the same folder as the card's, which is bench/ for the
tasks of MSKernelBench and any other for a user's own (docs/adding.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from cudamaster.core import resources
from cudamaster.core.errors import CardError, CudaMasterError, one_line
from cudamaster.core.expressions import Number, evaluate
from cudamaster.core.values import BENCHMARK_PRECISIONS, Precision, content_hash, wrapper_name
from cudamaster.tasks import card_checks, truth
from cudamaster.tasks.held_out import Block
from cudamaster.tasks.parameters import (
    SOUND,
    T_BYTES,
    ULPS,
    WHOLE,
    Line,
    Name,
    Parameter,
    Strict,
)
from cudamaster.tasks.truth import Truth

MSKERNELBENCH = "MSKernelBench"  # the tasks of bench/, which commands take when none is named


class Floor(Strict):
    """Least bytes and operations of a case, as expressions over its sizes and `element_bytes`.

    `products`: the operations are multiply-adds of a matrix product, which tensor cores do for bf16 and fp16 operands.
    `gathered` is no part of the floor and explains times above it: bytes that a call takes from caches or shared
    memory, at places that an input names, if it takes them anew each time.
    """

    bytes_read: str
    bytes_written: str
    operations: str
    products: bool = False
    gathered: str | None = None


class Case(Strict):
    """One set of sizes. `values` holds every size, derived ones too; `sweep` cases are timed and scored.

    A `held_out` case is in no card: it was drawn for one evaluation.
    """

    values: Mapping[str, Number]
    sweep: bool
    label: str
    weight: float
    held_out: bool = False


class Family(Strict):
    """What a task shares with others: the names of its suite, of its wrapper (without precision), and of its files.

    `baseline` is the name of the baseline's file, `reference` that of the reference's, and `function` the name of the
    reference's function without `_reference`. `card_file` is where the description lies, relative to the folder.
    """

    suite: Line
    wrapper: Name
    baseline: Name
    reference: Name
    function: Name
    card_file: Line


class TaskCard(Strict):
    """A task: of MSKernelBench's fifty (paper table 7), or a user's own.

    `id` is its place in lists. `held_out` and `held_out_large` say how further cases are drawn for every evaluation:
    small ones, and ones near the largest timed case. tasks/held_out.py describes their form. Sizes in `fixed` always
    have the same value: no held-out case varies them. `precisions` are those in which the task exists. `truth` is what
    outputs are held against (tasks/truth.py). `headers` are the libraries that a candidate may include beside what
    every candidate may. `family` is for the tasks of a suite that share their files; a card of one's own has none.
    `wrapper` (`own_wrapper` here, as `wrapper()` is the name of any card's) is the name of the baseline's host
    function, to which no precision is added; without one it follows from the task's name. `baseline_by: pytorch` is for
    a task whose baseline is no kernel but a module that eager PyTorch runs, `pytorch/<task>.py` (docs/kernelbench.md).
    `timed_as` has the hashes of earlier forms of the card that time the same: P by them is the same measure, and what
    was added since is only checked.
    """

    id: int = Field(ge=1)
    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    title: Line
    category: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    summary: str
    formula: Line
    sizes: Mapping[Name, Number | str | None]
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
    truth: Truth = "c"
    family: Family | None = None
    own_wrapper: Name | None = Field(default=None, alias="wrapper")
    baseline_by: Literal["kernel", "pytorch"] = "kernel"
    timed_as: tuple[str, ...] = ()
    _folder: Path = PrivateAttr(default_factory=resources.bench)
    _file: Path | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _bounds_of_its_truth(cls, fields: Any) -> Any:
        return truth.with_defaults(fields)

    @model_validator(mode="after")
    def _consistent(self) -> TaskCard:
        card_checks.check(self)
        return self

    def check_case(self, case: Case) -> None:
        """Raises Misfits unless lengths, units, costs, weight and floor of a case are numbers that make sense."""
        card_checks.check_case(self, case)

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """All cases, verification ones first, in the order in which the harness runs them.

        Raises ValueError for too many.
        """
        card_checks.check_number(self)
        return tuple(
            self.case(values, sweep=sweep)
            for sweep, blocks in ((False, self.verify), (True, self.sweep))
            for block in blocks
            for values in card_checks.crossed(block)
        )

    def case(self, given: Mapping[str, Number], *, sweep: bool = False) -> Case:
        """A case from the sizes given; the others take their default or are derived.

        Raises ValueError for a size that is unknown, missing or no finite number.
        """
        values = self.values_of(given)
        label = ",".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                         for name, value in given.items())  # fmt: skip
        return Case(values=values, sweep=sweep, label=label, weight=float(evaluate(self.weight, values)))

    def timed_at(self, blocks: Sequence[Mapping[str, Number]]) -> TaskCard:
        """The same task, timed at these sizes in place of the card's. Raises ValueError for what is no case of it.

        It is another card by its hash, so nothing takes its P for the task's.
        """
        for given in blocks:
            if unknown := [name for name in given if name not in self.sizes]:
                raise ValueError(f"there is no size {' or '.join(unknown)}")
            if fixed := [name for name in given if name in self.fixed]:
                raise ValueError(f"{', '.join(fixed)} cannot be chosen: it is always {self.sizes[fixed[0]]}")
            if missing := [name for name, default in self.sizes.items() if default is None and name not in given]:
                raise ValueError(f"{' and '.join(missing)} missing, which has no default")
            for name in given.keys() & self._counts:
                if given[name] < 0 or given[name] != int(given[name]):
                    raise ValueError(f"{name} is {given[name]:g}, and has to be a whole number from 0 on")
            self.check_case(self.case(given, sweep=True))
        fields = self.model_dump(by_alias=True, exclude={"timed_as"})
        card = TaskCard.model_validate({**fields, "sweep": blocks})
        card._folder, card._file = self._folder, self._file
        return card

    @property
    def _counts(self) -> set[str]:
        """Sizes that count something, by the card's own cases and parameters."""
        fractions = {p.name for p in self.parameters if p.type not in ("int", "long long")}
        counted = {name for name in self.sizes if all(_counts(case.values[name]) for case in self.cases)}
        return counted - fractions

    def values_of(self, given: Mapping[str, Number]) -> dict[str, Number]:
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
            if not (abs(value) <= WHOLE if isinstance(value, int) else math.isfinite(value)):
                raise ValueError(f"case {dict(given)}: {name} is no number that a double holds exactly")
        return values

    @property
    def unpassed(self) -> tuple[str, ...]:
        """Sizes that are fixed and no parameters of the wrapper."""
        return tuple(name for name in self.fixed if all(p.name != name for p in self.parameters))

    def footprint_bytes(self, case: Case, precision: Precision) -> int:
        """Bytes of all buffers of a case, one copy of each."""
        return self.buffer_bytes(case, precision, ("input", "output", "inout", "scratch"))

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
        names = {**case.values, "element_bytes": T_BYTES[precision]}
        texts = self.floor.model_dump(exclude={"products", "gathered"})
        return {key: int(evaluate(text, names)) for key, text in texts.items()}

    def gathered_bytes(self, case: Case, precision: Precision) -> int | None:
        """Bytes that a call gathers on the chip, where the card says so."""
        if self.floor.gathered is None:
            return None
        return int(evaluate(self.floor.gathered, {**case.values, "element_bytes": T_BYTES[precision]}))

    def among(self, precisions: Sequence[Precision]) -> tuple[Precision, ...]:
        """Those of the precisions that the task exists in; without one of them, all that it exists in."""
        return tuple(each for each in precisions if each in self.precisions) or self.precisions

    def wrapper(self, precision: Precision, *, optimized: bool = False) -> str:
        """Name of the extern "C" wrapper."""
        if self.own_wrapper is not None:
            return f"{self.own_wrapper}_optimized" if optimized else self.own_wrapper
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

    @property
    def is_eager(self) -> bool:
        """Whether the baseline is a module that eager PyTorch runs."""
        return self.baseline_by == "pytorch"

    def baseline_path(self, precision: Precision) -> Path:
        """The frozen baseline: a kernel, or the module that PyTorch runs."""
        if self.is_eager:
            return self.folder / "pytorch" / f"{self.name}.py"
        return self.folder / precision.value / f"{self.file_name(precision)}.cu"

    def file_name(self, precision: Precision) -> str:
        """Name of the baseline's file, and what those of vendors' libraries begin with, without an ending."""
        return self.family.baseline if self.family else wrapper_name(self.name, precision)

    def baseline(self, precision: Precision) -> str:
        """Source of the baseline. Raises CardError where there is none."""
        return self._text(f"baseline ({precision})", self.baseline_path(precision))

    @property
    def reference_path(self) -> Path:
        """The reference in double precision, where there is one: in C++, or in Python."""
        ending = "py" if self.truth == "python" else "h"
        return self.folder / "reference" / f"{self.family.reference if self.family else self.name}.{ending}"

    def reference(self) -> str:
        """Source of the reference, empty where the baseline is the truth. Raises CardError where it is missing."""
        return "" if self.truth == "baseline" else self._text("reference", self.reference_path)

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

    def times_as(self, other: str | None) -> bool:
        """Whether P by the card with this hash is the same measure as by this one."""
        return other == self.hash or other in self.timed_as

    @property
    def _unused(self) -> dict[str, Any]:
        """What does not count in the hash: what judges nothing, and fields that cards did not have at first, as far as
        they have their defaults here.
        """
        fields = {"precisions": BENCHMARK_PRECISIONS, "headers": (), "family": None, "own_wrapper": None,
                  "truth": "c", "baseline_by": "kernel"}  # fmt: skip
        found: dict[str, Any] = {name: True for name, default in fields.items() if getattr(self, name) == default}
        of_parameters = {
            index: {
                name
                for name, default in (("exact_if", None), ("sound", SOUND), ("ulps", ULPS), ("shape", None))
                if getattr(p, name) == default
            }
            for index, p in enumerate(self.parameters)
        }
        return {**found, "parameters": of_parameters, "floor": {"gathered"}, "timed_as": True}

    def describe(self, precision: Precision) -> str:
        """The task in words, for prompts: what it computes, interface, sizes, how errors are judged."""
        buffers = "\n".join(
            f"- `{p.c_type(precision)} {p.name}`: {p.meaning}"
            + (f" ({p.role}, {p.extent} elements)" if p.length else "")
            for p in self.parameters
        )
        sweep = "; ".join(f"{case.label} (weight {case.weight:g})" for case in self.cases if case.sweep)
        not_passed = " and is not passed to the wrapper"
        fixed = "".join(
            f" {name} is always {self.sizes[name]}{not_passed if name in self.unpassed else ''}." for name in self.fixed
        )
        named = ", ".join(f"`{p.name}`" for p in self.parameters if p.role == "scratch")
        scratch = f"At the start of a call, {named} holds nothing; what is left there is lost.\n" if named else ""
        module = ""
        if self.is_eager:
            source = self.baseline(precision).strip()
            module = f"The task is what this PyTorch module computes:\n\n```python\n{source}\n```\n\n"
        return (
            f"{self.title} ({precision}): {self.summary}\n\n    {self.formula}\n\n{module}"
            f"Wrapper parameters, in order (pointers are device pointers):\n{buffers}\n\n"
            f"{scratch}Timed cases: {sweep}. "
            f"Every other legal size must be right too, odd and tiny ones included.{fixed}\n"
            f"{truth.how_judged(self, precision)}"
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


def _counts(value: Number) -> bool:
    return isinstance(value, int) and value >= 0


def same_measure(task: str, first: str | None, second: str | None) -> bool:
    """Whether P by the cards with two hashes is one measure: it is one card, or both time what today's card does."""
    if first == second:
        return True
    try:
        card = load(task)
    except CudaMasterError:
        return False
    return card.times_as(first) and card.times_as(second)
