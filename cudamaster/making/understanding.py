"""What a task is made of: what the file says, what the user says, what is assumed, and the questions that are left."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cudamaster.core.errors import UsageError, nearest
from cudamaster.core.expressions import ExpressionError, Number, evaluate
from cudamaster.core.values import Precision
from cudamaster.making import roles, wishes
from cudamaster.making.reading import Function, Passed, Source
from cudamaster.making.wishes import Wishes, named_in

ELEMENTS = {Precision.FP32: "float", Precision.FP16: "half", Precision.BF16: "bf16"}
REAL = frozenset({"float", "double", "half", "bf16"})
_NARROW = {"half": Precision.FP16, "bf16": Precision.BF16}
_EXAMPLE_SIZES = {1: 2**20, 2: 2**10, 3: 2**7}
_EXAMPLE_SIDE = 2**10  # of one that may be a side of a matrix
_EXAMPLE_SIZE = 2**5  # of four and more
_OF_VECTOR = re.compile(r"n|num.*|n_.*|count|total|size|len(gth)?|.*elem(ent)?s?", re.IGNORECASE)
_LIKE_SCRATCH = re.compile(r"scratch|work|^d?_?ws|te?mp|partial|buf|block_?(sum|max|min)", re.IGNORECASE)
_MOST_INT = 2**31 - 1

RoleName = Literal["scalar", "input", "output", "inout", "scratch"]


@dataclass(frozen=True)
class Row:
    """A parameter of the card. `extents` of a shape, or one expression; `fill` is the call that makes an input."""

    name: str
    type: str
    role: RoleName
    length: str | None = None
    shape: tuple[str, ...] = ()
    fill: str | None = None


@dataclass(frozen=True)
class Size:
    """A scalar of the wrapper, but for streams.

    `free`: any number from 1 on, or any multiple of `multiple`; `range`: from `low` to `high`, expressions; `fixed`:
    only the values of the timed cases. `default` is what cases without it get.
    """

    name: str
    kind: Literal["free", "range", "fixed"]
    real: bool = False
    default: Number | None = None
    low: str = "1"
    high: str = ""
    multiple: int = 1

    @property
    def depends(self) -> frozenset[str]:
        """Other sizes that the bounds of its range name."""
        return frozenset(named_in(self.low) + named_in(self.high)) if self.kind == "range" else frozenset()


@dataclass(frozen=True)
class Question:
    """What is missing: the option, the parameter that it is about, the question for a person, a guess that works."""

    option: str
    name: str
    text: str
    guess: str

    @property
    def example(self) -> str:
        """The option as it could be given."""
        if self.option == "--scratch":
            return f"{self.option} {self.name}"
        return f"{self.option} {f'{self.name}=' if self.name else ''}{self.guess}"


@dataclass(frozen=True)
class Understood:
    """All that a card says of a wrapper. `questions` are open: their guesses were taken in place of answers."""

    wrapper: str
    precision: Precision
    rows: tuple[Row, ...]
    sizes: tuple[Size, ...]
    cases: tuple[wishes.Case, ...]
    check_cases: tuple[wishes.Case, ...]
    weight: str
    operations: str
    bytes_read: str
    assumed: tuple[str, ...]
    questions: tuple[Question, ...]


def understand(source: Source, wrapper: Function, passed: Sequence[Passed], said: Wishes) -> Understood:
    """The task of a wrapper. Raises UsageError for options that name what is not there, or contradict the file."""
    return _Understanding(source, wrapper, passed, said).result()


class _Understanding:
    """One pass over the parameters, which collects assumptions and questions."""

    def __init__(self, source: Source, wrapper: Function, passed: Sequence[Passed], said: Wishes) -> None:
        self.source, self.wrapper, self.passed, self.said = source, wrapper, passed, said
        self.assumed: dict[str, list[str]] = {}  # names by what is assumed of them
        self.questions: list[Question] = []
        self.whole = [p.name for p in passed if not p.pointer and p.type not in REAL | {"stream", "bool"}]
        known = {p.name for p in passed if p.type != "stream"}
        for name in said.names:
            if name not in known:
                fix = nearest(name, known, f"Its parameters are {', '.join(p.name for p in passed)}.")
                raise UsageError(f"{wrapper.name} has no parameter {name}.", fix)

    def result(self) -> Understood:
        precision = self._precision()
        rows = tuple(self._row(p, ELEMENTS[precision]) for p in self.passed)
        if not any(row.role in ("output", "inout") for row in rows):
            raise UsageError(f"No parameter of {self.wrapper.name} is an output.", "Name one with --output NAME.")
        lengths = [row.length for row in rows if row.length is not None]
        moved = [row.length for row in rows if row.length is not None and row.role != "scratch"]
        counted = {name for length in lengths for name in named_in(length)}
        sizes = tuple(self._size(p, counted) for p in self.passed if not p.pointer and p.type != "stream")
        cases = self._cases(sizes, lengths)
        sizes = tuple(_with_default(size, cases) for size in sizes)
        for size in sizes:
            if size.kind == "range" and size.default is not None and any(size.name not in each for each in cases):
                self._assume(size.name, f"{size.default:g} in timed cases that do not say it (--case)")
        for each in (*cases, *self.said.check_cases):
            _must_fit(each, sizes)
        weight = self.said.weight or wishes.total([(length, "1") for length in moved])
        _must_count(cases, sizes, weight)
        return Understood(
            wrapper=self.wrapper.name,
            precision=precision,
            rows=rows,
            sizes=_in_order(sizes),
            cases=cases,
            check_cases=self.said.check_cases,
            weight=weight,
            operations=self.said.operations
            or wishes.total([(str(row.length), "1") for row in rows if row.role == "output"]),
            bytes_read=self.said.bytes_read or "0",
            assumed=tuple(f"{', '.join(names)}: {what}" for what, names in self.assumed.items()),
            questions=tuple(self.questions),
        )

    def _assume(self, name: str, what: str) -> None:
        self.assumed.setdefault(what, []).append(name)

    def _precision(self) -> Precision:
        there = {p.type for p in self.passed if p.pointer and p.type in ELEMENTS.values()}
        if (chosen := self.said.precision) is not None:
            if there and ELEMENTS[chosen] not in there:
                fix = "Leave out --precision: the types of the pointers say it."
                raise UsageError(f"No pointer of {self.wrapper.name} is of {chosen}.", fix)
            return chosen
        narrow = sorted(there & set(_NARROW))
        if len(narrow) > 1:
            self.questions.append(Question("--precision", "", "Precision of the task, fp16 or bf16", "fp16"))
        if narrow and len(there) > 1:
            what = f"{_NARROW[narrow[-1]]}; pointers of other types keep theirs (--precision)"
            self._assume("precision", what)
        return _NARROW[narrow[-1]] if narrow else Precision.FP32

    def _row(self, p: Passed, element: str) -> Row:
        if not p.pointer:
            return Row(p.name, "T" if p.type == element and element != "float" else p.type, "scalar")
        groups = roles.uses(self.source, self.wrapper, p.name)
        role = self._role(p, groups)
        length, shape = self._length(p, groups)
        fill = self._fill(p) if role in ("input", "inout") else None
        return Row(p.name, "T" if p.type == element else p.type, role, length, shape, fill)

    def _role(self, p: Passed, groups: tuple[tuple[roles.Use, ...], ...]) -> RoleName:
        lists: Mapping[RoleName, tuple[str, ...]] = {
            "input": self.said.inputs, "output": self.said.outputs, "inout": self.said.inouts,
            "scratch": self.said.scratch,
        }  # fmt: skip
        named = [role for role, names in lists.items() if p.name in names]
        if len(named) > 1:
            raise UsageError(f"{p.name} is named as {' and '.join(named)}.", "Give one of these options.")
        if named and p.const and named != ["input"]:
            raise UsageError(f"{p.name} is const, and no {named[0]}.", "Leave out the option, or the const.")
        if named or p.const:
            return named[0] if named else "input"
        role, why = roles.role(groups)
        if role == "output" and roles.is_read_later(groups) and _LIKE_SCRATCH.search(p.name):
            what = f"{p.name} is written, then read: scratch or output?"
            self.questions.append(Question("--scratch", p.name, what, "scratch"))
            return "scratch"
        self._assume(p.name, f"{role}, {why} (--input, --output, --inout, --scratch)")
        return role

    def _length(self, p: Passed, groups: tuple[tuple[roles.Use, ...], ...]) -> tuple[str, tuple[str, ...]]:
        if (text := self.said.lengths.get(p.name)) is not None:
            given = wishes.factors(f"--length {p.name}", text)
            length = given if isinstance(given, str) else wishes.product(given)
            if unknown := [name for name in named_in(length) if name not in self.whole]:
                fix = (
                    f"A length is an expression over whole numbers that are passed: {', '.join(self.whole) or 'none'}."
                )
                raise UsageError(f"--length {p.name}={text} names {unknown[0]}.", fix)
            return length, () if isinstance(given, str) else given
        if not p.const and roles.is_one_element(groups):
            self._assume(p.name, "one element, no other is used (--length)")
            return "1", ()
        if len(self.whole) == 1 and roles.is_matrix(groups):
            square = f"{self.whole[0]}*{self.whole[0]}"
            self.questions.append(Question("--length", p.name, f"Elements of {p.name}", square))
            return wishes.product(square.split("*")), ()
        if len(self.whole) == 1:
            self._assume(p.name, f"{self.whole[0]} elements, the one whole number passed (--length)")
            return self.whole[0], ()
        guess = "*".join(self.whole) or "1024"
        self.questions.append(Question("--length", p.name, f"Elements of {p.name}", guess))
        return wishes.product(guess.split("*")), ()

    def _fill(self, p: Passed) -> str:
        text = self.said.ranges.get(p.name)
        if text is None and p.type in REAL:
            self._assume(p.name, "filled with numbers from -1 to 1 (--range)")
            return f"uniform({p.name}, -1, 1)"
        if text is None and p.type == "bool":
            return f"integers({p.name}, 0, 1)"
        if text is None and p.type == "unsigned char":
            text = "0:255"
            self.questions.append(Question("--range", p.name, f"Least and greatest number in {p.name}", text))
        elif text is None:
            # Whole numbers are often indices: as small as the smallest size.
            text = f"0:min({', '.join(self.whole)})-1" if len(self.whole) > 1 else f"0:{(*self.whole, '10')[0]}-1"
            self.questions.append(Question("--range", p.name, f"Least and greatest number in {p.name}", text))
        ints, low, high = wishes.bounds(f"--range {p.name}", text)
        return f"{'uniform' if p.type in REAL and not ints else 'integers'}({p.name}, {low}, {high})"

    def _size(self, p: Passed, counted: set[str]) -> Size:
        real = p.type in REAL
        multiple = self.said.multiples.get(p.name, 1)
        if p.name in self.said.fixed:
            return Size(p.name, "fixed", real)
        text = self.said.ranges.get(p.name)
        if text is None and p.name in counted:
            return Size(p.name, "free", multiple=multiple)
        if text is None and p.type == "bool":
            text = "0:1"
        if text is None:
            text = ("1e-6:1e-4" if "eps" in p.name.lower() else "0.5:2") if real else "1:8"
            what = f"Least and greatest {p.name} (or give --fixed-size {p.name})"
            self.questions.append(Question("--range", p.name, what, text))
        _, low, high = wishes.bounds(f"--range {p.name}", text)
        if unknown := [name for name in (*named_in(low), *named_in(high)) if name not in self.whole or name == p.name]:
            raise UsageError(f"--range {p.name}={text} names {unknown[0]}.", "Bounds are numbers and other sizes.")
        return Size(p.name, "range", real, low=low, high=high, multiple=multiple)

    def _cases(self, sizes: Sequence[Size], lengths: Sequence[str]) -> tuple[wishes.Case, ...]:
        due = [size for size in sizes if size.kind != "range" or size.depends]
        if self.said.cases:
            for each in (*self.said.cases, *self.said.check_cases):
                if missing := [size.name for size in due if size.name not in each]:
                    shown = ",".join(f"{name}={value}" for name, value in each.items())
                    raise UsageError(f"The case {shown} lacks {missing[0]}.", f"Add it: {shown},{missing[0]}=...")
            return self.said.cases
        if not due:
            return ({},)
        size = _EXAMPLE_SIZES.get(len(due), _EXAMPLE_SIZE)
        if len(due) == 1 and not (_OF_VECTOR.fullmatch(due[0].name) and {*lengths} <= {due[0].name, "1"}):
            size = _EXAMPLE_SIDE
        guess = {each.name: -(-size // each.multiple) * each.multiple for each in due}
        shown = ",".join(f"{name}={value}" for name, value in guess.items())
        self.questions.append(Question("--case", "", "Sizes to time", shown))
        return (guess,)


def _with_default(size: Size, cases: Sequence[wishes.Case]) -> Size:
    """A size with what cases without it get: one of the range, or the one value of a fixed size."""
    values = sorted({each[size.name] for each in cases if size.name in each})
    default: Number | None = None
    if size.kind == "fixed":
        default = values[-1] if len(values) == 1 else None
    elif size.kind == "range" and not size.depends:
        low, high = evaluate(size.low, {}), evaluate(size.high, {})
        if low > high:
            raise UsageError(f"--range {size.name}={size.low}:{size.high} holds nothing.", "Write low:high.")
        default = high
        if size.real:
            default = 1.0 if low <= 1 <= high else float(low + high) / 2
    return Size(size.name, size.kind, size.real, default, size.low, size.high, size.multiple)


def _must_fit(case: wishes.Case, sizes: Sequence[Size]) -> None:
    """Raises UsageError for a case that its own sizes contradict."""
    for size in sizes:
        value = case.get(size.name)
        if value is None or size.real:
            continue
        if not isinstance(value, int) or not 0 <= value <= _MOST_INT:
            raise UsageError(f"{size.name}={value} in a case is no whole number that can be passed.", "Correct it.")
        if value % size.multiple:
            raise UsageError(f"{size.name}={value} is no multiple of {size.multiple}.", "Correct --case or --multiple.")


def _must_count(cases: Sequence[wishes.Case], sizes: Sequence[Size], weight: str) -> None:
    """Raises UsageError for a timed case that counts nothing, as one without elements does."""
    defaults = {size.name: size.default for size in sizes if size.default is not None}
    for case in cases:
        try:
            counts = evaluate(weight, {**defaults, **case})
        except ExpressionError:
            return  # the card says what is wrong with it
        if counts <= 0:
            shown = ",".join(f"{name}={value}" for name, value in case.items())
            what = f"The case {shown} is to be timed, and counts nothing: its weight, {weight}, is {counts:g}."
            raise UsageError(what, "Give a larger one with --case, or what it counts with --weight.")


def _in_order(sizes: Sequence[Size]) -> tuple[Size, ...]:
    """Sizes of which ranges speak come before those ranges."""
    left, done = list(sizes), []
    while left:
        names = {size.name for size in left}
        ready = [size for size in left if not names & size.depends]
        if not ready:
            raise UsageError(f"The ranges of {' and '.join(sorted(names))} need each other.", "Give one plain numbers.")
        done += ready
        left = [size for size in left if size not in ready]
    return tuple(done)
