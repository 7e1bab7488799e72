"""Lines of a harness's report (bench/include/mskb) as values. Only these forms are lines of the report.

Fields that nobody here reads may come and go. Judging is not done here.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

_NO_NUMBERS = {name: float(name) for name in ("nan", "inf", "-inf")}  # as the harness writes them
_Number = Annotated[float, BeforeValidator(lambda value: _NO_NUMBERS.get(str(value), value))]
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0)]
Who = Literal["baseline", "candidate", "rival"]


class Line(BaseModel):
    """A line of any form; `t` is in seconds since the judge began."""

    model_config = ConfigDict(strict=True, frozen=True, defer_build=True)

    t: _Finite


class OfCase(Line):
    """A line on the case of that number, from 0."""

    index: _Count


class Begin(Line):
    """The first line: the seed of all inputs, and what the harness says of the device."""

    model_config = ConfigDict(extra="allow")

    event: Literal["begin"]
    seed: str
    task: str = ""

    @property
    def device(self) -> dict[str, str]:
        """What the harness says of the device, by its names there."""
        return {name: str(value) for name, value in (self.model_extra or {}).items() if name != "precision"}


class Isolation(Line):
    """What the candidate's process cannot do, in words."""

    event: Literal["isolation"]
    text: str


class CaseBegins(OfCase):
    """The first line on a case."""

    event: Literal["case"]


class Skip(OfCase):
    """A case that is not run, and why."""

    event: Literal["skip"]
    reason: Annotated[str, Field(min_length=1)]


class Reference(OfCase):
    """How the baseline compares with the reference, in units of the scale."""

    event: Literal["reference"]
    baseline_ok: bool
    baseline_worst_error: _Number | None = None
    constant: bool = False  # all sets of inputs have to give the same
    like_zero: dict[str, _Finite] = {}  # part of an output's elements for which zeros would pass


class NoTruth(OfCase):
    """Nothing says what outputs have to be: the reference in Python failed, or the baseline that is its own."""

    event: Literal["no_truth"]
    who: Literal["reference", "baseline"]
    what: str
    replied: bool = True  # it said so itself, and was not killed or too slow


class Mismatch(BaseModel):
    """An element that is wrong."""

    model_config = Line.model_config

    element: _Count
    expected: _Number
    got: _Number
    allowed: _Number


class Output(BaseModel):
    """What was found in one output of a call; errors and bound in units of the scale."""

    model_config = Line.model_config

    name: str
    elements: _Count
    oracle_elements: _Count
    mismatches: _Count
    worst_error: _Number
    baseline_worst_error: _Number
    bound: _Number
    pattern: str
    width: _Count = 0
    first: list[Mismatch]


class Check(OfCase):
    """A call of the candidate that was checked."""

    event: Literal["check"]
    stage: str
    ok: bool
    damage: str
    outputs: list[Output]


class Time(OfCase):
    """Timed calls, in microseconds."""

    event: Literal["time"]
    baseline_us: list[_Finite]
    candidate_us: list[_Finite]
    empty_us: list[_Finite]
    baseline_device_us: list[_Finite] = []
    candidate_device_us: list[_Finite] = []
    sm_mhz: list[_Finite] = []
    hot: _Count = 0
    power_capped: _Count = 0
    long_leads: _Count = 0
    overstated: _Finite = 1.0
    contradicted: bool = False
    rival_overstated: _Finite = 1.0
    rival_contradicted: bool = False
    retaken: _Count = 0
    asked_bytes: _Count = 0
    others: list[str] = []


class Paper(OfCase):
    """Means of calls timed as the paper does, in microseconds, and how far an output was from the baseline's."""

    event: Literal["paper"]
    baseline_us: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    candidate_us: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    largest_difference: _Number


class Fault(OfCase):
    """A call that failed; its process may be `gone`."""

    event: Literal["fault"]
    who: Who
    error: str
    detail: str
    gone: bool = False


class Timeout(OfCase):
    """A call that was stopped at its limit."""

    event: Literal["timeout"]
    who: Who = "candidate"
    limit_s: _Finite


class End(Line):
    """The last line."""

    event: Literal["end"]
    ok: bool


_AnyForm = Annotated[
    Begin | Isolation | CaseBegins | Skip | Reference | NoTruth | Check | Time | Paper | Fault | Timeout | End,
    Field(discriminator="event"),
]
_Form = TypeVar("_Form", bound=Line)


@functools.cache
def reader() -> TypeAdapter[Line]:
    """What reads lines. It takes a twentieth of a second to make, so that is done while a compiler works."""
    return TypeAdapter(_AnyForm)


def read(text: str) -> Line | None:
    """One line of a report, None when it is cut, damaged or of no known form."""
    try:
        fields: Any = json.loads(text)
        return reader().validate_python(fields)
    except (ValueError, RecursionError):  # json's and pydantic's errors are ValueErrors
        return None


def of(form: type[_Form], lines: Iterable[Line]) -> list[_Form]:
    """Those lines that have a form."""
    return [line for line in lines if isinstance(line, form)]


def first(form: type[_Form], lines: Iterable[Line]) -> _Form | None:
    """The first line that has a form."""
    return next(iter(of(form, lines)), None)
