"""Task cards: the one place where a task is described, read from YAML and checked.

A card holds what a task computes, the wrapper's parameters, the cases, how inputs are made and how outputs are
checked. It holds no code: baselines and a reference are in the same folder as the card's, which is bench/ for the
tasks of MSKernelBench and any other for a user's own (docs/adding.md).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, PrivateAttr, ValidationError, model_validator

from cudamaster.core import resources, yaml_text
from cudamaster.core.errors import CardError, UsageError, nearest
from cudamaster.core.expressions import ExpressionError, Number, call, evaluate, to_c
from cudamaster.core.values import BENCHMARK_PRECISIONS, Precision, content_hash, wrapper_name
from cudamaster.tasks import hgemm, truth
from cudamaster.tasks.held_out import Block, check_blocks
from cudamaster.tasks.parameters import RANGES, SOUND, T_BYTES, ULPS, WHOLE, Line, Name, Parameter, Strict
from cudamaster.tasks.truth import Truth

MSKERNELBENCH = "MSKernelBench"  # the tasks of bench/, which commands take when none is named
# Characters, four times the largest card; YAML that nests a hundred thousand deep ends Python itself.
_LONGEST_FILE = 16 * 1024
_MOST_CASES = 500


class Floor(Strict):
    """Least bytes and operations of a case, as expressions over its sizes and `element_bytes`.

    `products`: the operations are multiply-adds of a matrix product, which tensor cores do for bf16 and fp16 operands.
    """

    bytes_read: str
    bytes_written: str
    operations: str
    products: bool = False


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
    small ones, and ones near the largest timed case. tasks/held_out.py describes their form. `precisions` are those in
    which the task exists. `headers` are the libraries that a candidate may include beside what every candidate may.
    `truth` is what outputs are held against (tasks/truth.py). `family` is for the tasks of a suite that share their
    files; a card of one's own has none. `wrapper` (`own_wrapper` here, as `wrapper()` is the name of any card's) is the
    name of the baseline's host function, to which no precision is added; without one it follows from the task's name.
    `baseline_by: pytorch` is for a task whose baseline is no kernel but a module that eager PyTorch runs,
    `pytorch/<task>.py` (docs/kernelbench.md).
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
    _folder: Path = PrivateAttr(default_factory=resources.bench)

    @model_validator(mode="before")
    @classmethod
    def _bounds_of_its_truth(cls, fields: Any) -> Any:
        return truth.with_defaults(fields)

    @model_validator(mode="after")
    def _consistent(self) -> TaskCard:
        if not any(case.sweep for case in self.cases):
            raise ValueError("there is no timed case: sweep is empty")
        filled = [name for generator in self.inputs for name in self._filled_by(generator)]
        wanted = [p.name for p in self.parameters if p.role in ("input", "inout")]
        if sorted(filled) != sorted(wanted):
            raise ValueError(f"inputs fill {filled}, but have to fill each of {wanted} once")
        scalars = [p.name for p in self.parameters if p.is_number]
        if missing := [name for name in scalars if name not in self.sizes]:
            raise ValueError(f"scalar parameters {missing} have no entry in sizes")
        if not any(p.role in ("output", "inout") for p in self.parameters):
            raise ValueError("no parameter is an output")
        if len({p.name for p in self.parameters}) < len(self.parameters):
            raise ValueError("two parameters have the same name")
        if unknown := [name for name in self.fixed if name not in self.sizes]:
            raise ValueError(f"fixed names {unknown}, which have no entry in sizes")
        if self.own_wrapper is not None and self.family is not None:
            raise ValueError("wrapper and family both name the wrapper: leave one of them out")
        self._check_written()
        for case in self.cases:
            self.check_case(case)
        check_blocks(self)
        return self

    def _check_written(self) -> None:
        """All values that the harness holds as C can be written as C, unused defaults included."""
        for position, default in enumerate(self.sizes.values()):
            if default is not None:
                to_c(str(default), dict.fromkeys(list(self.sizes)[:position], "c"))
        for parameter in self.parameters:
            for text in (parameter.length, parameter.unit, parameter.cost, parameter.exact_if, parameter.ulps):
                if text is not None:
                    to_c(text, dict.fromkeys(self.sizes, "c"))

    def check_case(self, case: Case) -> None:
        """Raises ValueError unless lengths, units, costs, weight and floor of a case are numbers that make sense."""
        if not (case.weight > 0 if case.sweep else case.weight >= 0):
            raise ValueError(f"the weight of case {case.label} is {case.weight:g}")
        real = {p.name for p in self.parameters if p.is_number and not p.is_whole}
        names = {name: float(value) if name in real else value for name, value in case.values.items()}
        for parameter in self.parameters:
            if parameter.is_number and parameter.is_whole:
                value, (low, high) = case.values[parameter.name], RANGES[parameter.type]
                if not isinstance(value, int) or not low <= value <= high:
                    raise ValueError(
                        f"{parameter.name} is {value:.17g} in case {case.label}, and {parameter.type} holds whole "
                        f"numbers from {low} to {high}"
                    )
            for what, text, least in (("length", parameter.length, 0), ("unit", parameter.unit, 1)):
                number = least if text is None else evaluate(text, names)
                if not isinstance(number, int) or not least <= number <= WHOLE:
                    raise ValueError(f"the {what} of {parameter.name} is {number} in case {case.label}")
            if parameter.exact_if is not None:
                evaluate(parameter.exact_if, names)
            if self.reference_unit(parameter, case)[1] < 0:
                raise ValueError(f"the cost of {parameter.name} is negative in case {case.label}")
        for precision in self.precisions:
            if negative := [key for key, amount in self.floor_of(case, precision).items() if amount < 0]:
                raise ValueError(f"{', '.join(negative)} of the floor: negative in case {case.label}")

    def _filled_by(self, generator: str) -> tuple[str, ...]:
        """Buffers that a generator of `inputs` fills; ValueError where it is not called as inputs.h declares it."""
        known, (name, arguments) = generators(), call(generator)
        if name not in known:
            raise ValueError(f"there is no input generator {name!r}; there are {', '.join(sorted(known))}")
        buffers, numbers = known[name]
        if len(arguments) != buffers + numbers:
            raise ValueError(f"{generator!r} has {len(arguments)} arguments, {name} takes {buffers + numbers}")
        parameters = {p.name for p in self.parameters if p.role in ("input", "inout")}
        for argument in arguments[:buffers]:
            if argument not in parameters:
                raise ValueError(f"{generator!r} fills {argument!r}, which is no input parameter")
        for argument in arguments[buffers:]:
            evaluate(argument, self.cases[0].values)
            to_c(argument, dict.fromkeys(self.sizes, "c"))
        return arguments[:buffers]

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """All cases, verification ones first, in the order in which the harness runs them.

        Raises ValueError for too many.
        """
        lists = [
            [value for value in block.values() if isinstance(value, list)] for block in (*self.verify, *self.sweep)
        ]
        if (number := sum(math.prod(map(len, crossed)) for crossed in lists)) > _MOST_CASES:
            raise ValueError(f"sweep and verify make {number} cases, and {_MOST_CASES} is the most")
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
        label = ",".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                         for name, value in given.items())  # fmt: skip
        return Case(values=values, sweep=sweep, label=label, weight=float(evaluate(self.weight, values)))

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
        names = {**case.values, "element_bytes": T_BYTES[precision]}
        return {key: int(evaluate(text, names)) for key, text in self.floor.model_dump(exclude={"products"}).items()}

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
    def suite(self) -> str | None:
        """The suite that it is of; None for a task of a user's own."""
        return (self.family.suite if self.family else MSKERNELBENCH) if self.shipped else None

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
                f"The {what} of {self.name} cannot be read: {_one_line(error)}.",
                "Write it, or restore it from version control.",
            ) from error

    @cached_property
    def hash(self) -> str:
        """Content hash of the card. Fields that came later count if they differ from before, as records keep hashes."""
        return content_hash(self.model_dump_json(exclude=self._unused))

    @property
    def _unused(self) -> dict[str, Any]:
        """Fields that cards did not have at first, as far as they have their defaults here."""
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
        return {**found, "parameters": of_parameters}

    def describe(self, precision: Precision) -> str:
        """The task in words, for prompts: what it computes, interface, sizes, how errors are judged."""
        buffers = "\n".join(
            f"- `{p.c_type(precision)} {p.name}`: {p.meaning}"
            + (f" ({p.role}, {p.extent} elements)" if p.length else "")
            for p in self.parameters
        )
        sweep = "; ".join(f"{case.label} (weight {case.weight:g})" for case in self.cases if case.sweep)
        fixed = "".join(
            f" {name} is always {self.sizes[name]} and is not passed to the wrapper." for name in self.fixed
        )
        module = ""
        if self.is_eager:
            source = self.baseline(precision).strip()
            module = f"The task is what this PyTorch module computes:\n\n```python\n{source}\n```\n\n"
        return (
            f"{self.title} ({precision}): {self.summary}\n\n    {self.formula}\n\n{module}"
            f"Wrapper parameters, in order (pointers are device pointers):\n{buffers}\n\n"
            f"Timed cases: {sweep}. Every other legal size must be right too, odd and tiny ones included.{fixed}\n"
            f"{truth.how_judged(self, precision)}"
        )


def names() -> list[str]:
    """Names of MSKernelBench's tasks, in the order of their ids; those whose card cannot be used come last."""
    return _names_in(resources.bench())


def own_names() -> list[str]:
    """Names of a user's own tasks in the same order, none where there are none. Raises as `resources.own_tasks`."""
    folder = resources.own_tasks()
    return [] if folder is None else _names_in(folder)


def _names_in(folder: Path) -> list[str]:
    stems = [path.stem for path in (folder / "tasks").glob("*.yaml")]
    return sorted(stems, key=lambda name: (_id(name), name))


def _id(name: str) -> float:
    try:
        return load(name).id
    except CardError:  # loading it raises the error
        return math.inf


def load(name: str) -> TaskCard:
    """The card of a task, by name, or of a user's own card by path (…/card.yaml).

    By name it is one of MSKernelBench's, one in $CUDAMASTER_TASKS, or one of the suite hgemm, whose names say the shape
    (tasks/hgemm.py). Raises UsageError for an unknown task, CardError for a card that cannot be used.
    """
    if name.endswith(".yaml"):
        return _by_path(Path(name))
    folders = [resources.bench()] + ([own] if (own := resources.own_tasks()) is not None else [])
    found = [folder for folder in folders if _is_file(folder / "tasks" / f"{name}.yaml") and "/" not in name]
    if not found and hgemm.is_meant(name):
        return _of_hgemm(hgemm.parse_name(name))
    if not found:
        known = sorted([*names(), *own_names()])
        products = f" The suite {hgemm.SUITE} has a task for every shape: {hgemm.EXAMPLE}, say."
        more = "" if own is not None else f" A folder of your own tasks is named by {resources.TASKS}."
        every = f"Choose one of: {', '.join(known)}.{products}{more}"
        raise UsageError(f"Unknown task {name!r}.", nearest(name, [*known, hgemm.SUITE, hgemm.EXAMPLE], every))
    path = found[-1] / "tasks" / f"{name}.yaml"
    fix = f"Give the file and the field `name` of {path} another name."
    if len(found) > 1:
        raise CardError(f"{path} has the name of a task of {MSKERNELBENCH}.", fix)
    card = _read(path, path.stat().st_mtime_ns, found[0])
    if card.name != name:
        raise CardError(f"The card {path} has the name {card.name}, and its file another one.", "Make them the same.")
    return card


def _by_path(path: Path) -> TaskCard:
    """A card by its path: with the baselines and the reference beside it where they are, else with the benchmark's."""
    if not _is_file(path):
        raise UsageError(f"There is no card {path}.", "Give the path of a file, or the name of a task without .yaml.")
    folder = path.absolute().parent.parent
    beside = ("reference", *(precision.value for precision in Precision))
    whole = path.absolute().parent.name == "tasks" and any((folder / name).is_dir() for name in beside)
    return _read(path, path.stat().st_mtime_ns, resources.task_folder(folder) if whole else resources.bench())


@lru_cache(maxsize=4096)
def _of_hgemm(task: hgemm.Task) -> TaskCard:
    try:
        text = hgemm.card_text(task)
    except (OSError, UnicodeDecodeError) as error:
        raise CardError(
            f"The description of {task.name} cannot be read: {_one_line(error)}.", "Restore it from version control."
        ) from error
    return _checked(text, resources.bench() / hgemm.CARD_FILE, resources.bench())


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long for a file
        return False


@lru_cache(maxsize=1)
def generators() -> Mapping[str, tuple[int, int]]:
    """Input generators that a card can name, as inputs.h declares them: how many buffers and numbers each takes."""
    text = (resources.bench() / "include" / "mskb" / "inputs.h").read_text(encoding="utf-8")
    found = re.findall(r"^void (\w+)\(Inputs& inputs((?:,\s*(?:int|double) \w+)*)\);", text, re.MULTILINE)
    return {name: (len(re.findall(r"\bint ", rest)), len(re.findall(r"\bdouble ", rest))) for name, rest in found}


_COMPARE = "Compare it with bench/tasks/spmv_csr.yaml; the fields are described in cudamaster/tasks/cards.py."


@lru_cache(maxsize=128)
def _read(path: Path, _changed: int, folder: Path) -> TaskCard:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST_FILE + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise CardError(f"The card {path} cannot be read: {_one_line(error)}.", _COMPARE) from error
    return _checked(text, path, folder)


def _checked(text: str, path: Path, folder: Path) -> TaskCard:
    """The card in a text that was read from `path`. Raises CardError."""
    try:
        content = _content(text)
    except yaml.YAMLError as error:
        raise CardError(f"The card {path} cannot be read: {_one_line(error)}.", _COMPARE) from error
    if not isinstance(content, dict):
        raise CardError(f"The card {path} is no mapping of fields.", _COMPARE)
    try:
        card = TaskCard.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "card"
        raise CardError(
            f"The card {path} is wrong at {_one_line(where)}: {_one_line(first['msg'])}.", _COMPARE
        ) from error
    except (ExpressionError, ValueError) as error:
        raise CardError(f"The card {path} is wrong: {_one_line(error)}.", _COMPARE) from error
    card._folder = folder
    return card


def _one_line(said: object, longest: int = 600) -> str:
    text = " ".join(str(said).split())
    return text if len(text) <= longest else f"{text[:longest]} ..."


def _content(text: str) -> Any:
    """The content of YAML text. Raises YAMLError, also for forms that only mistakes and attacks have."""
    if len(text) > _LONGEST_FILE:
        raise yaml.YAMLError(f"it has more than {_LONGEST_FILE} characters")
    loader = yaml_text.LOADER(text)
    try:
        root = loader.get_single_node()
        _check_plain(root)
        return None if root is None else loader.construct_document(root)
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        # What PyYAML raises for 2001-99-99, !!bool maybe, !!timestamp x and numbers of thousands of digits.
        raise yaml.YAMLError(f"a value makes no sense: {error}") from error
    finally:
        loader.dispose()


def _check_plain(root: yaml.Node | None) -> None:
    """Refuses aliases, a few of which can stand for millions of values, and repeated keys: one would be lost."""
    seen: set[int] = set()
    left = [root] if root is not None else []
    while left:
        node = left.pop()
        line = node.start_mark.line + 1
        if id(node) in seen:
            raise yaml.YAMLError(f"line {line} is meant twice: write it out instead of an alias")
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            if twice := next((key for key in keys if keys.count(key) > 1), None):
                raise yaml.YAMLError(f"the mapping in line {line} has the key {twice} twice")
            left.extend(part for pair in node.value for part in pair)
        elif isinstance(node, yaml.SequenceNode):
            left.extend(node.value)


def _crossed(block: Mapping[str, list[Number] | Number]) -> Iterator[dict[str, Number]]:
    lists = [value if isinstance(value, list) else [value] for value in block.values()]
    for combination in itertools.product(*lists):
        yield dict(zip(block, combination, strict=True))
