"""The forms of a harness's report lines (bench/include/mskb): what is not one of them is no line of the report.

Fields that nobody here reads may come and go. Judging is not done here.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

_Number = float | Literal["nan", "inf", "-inf"]
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Index = Annotated[int, Field(ge=0)]
_Count = Annotated[int, Field(ge=0)]


class _Line(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class _Begin(_Line):
    event: Literal["begin"]
    seed: str
    t: _Finite


class _Isolation(_Line):
    event: Literal["isolation"]
    text: str
    t: _Finite


class _Case(_Line):
    event: Literal["case"]
    index: _Index
    t: _Finite


class _Skip(_Line):
    event: Literal["skip"]
    index: _Index
    reason: Annotated[str, Field(min_length=1)]
    t: _Finite


class _Reference(_Line):
    event: Literal["reference"]
    index: _Index
    baseline_ok: bool
    baseline_worst_error: _Number = 0.0
    t: _Finite


class _Mismatch(_Line):
    element: _Count
    expected: _Number
    got: _Number
    allowed: _Number


class _Output(_Line):
    name: str
    elements: _Count
    oracle_elements: _Count
    mismatches: _Count
    worst_error: _Number
    baseline_worst_error: _Number
    bound: _Number
    pattern: str
    width: _Count = 0
    first: list[_Mismatch]


class _Check(_Line):
    event: Literal["check"]
    index: _Index
    stage: str
    ok: bool
    damage: str
    outputs: list[_Output]
    t: _Finite


class _Time(_Line):
    event: Literal["time"]
    index: _Index
    baseline_us: list[_Finite]
    candidate_us: list[_Finite]
    empty_us: list[_Finite]
    baseline_outside_us: list[_Finite] = []
    candidate_outside_us: list[_Finite] = []
    baseline_device_us: list[_Finite] = []
    candidate_device_us: list[_Finite] = []
    sm_mhz: list[_Finite] = []
    hot: _Count = 0
    power_capped: _Count = 0
    others: list[str] = []
    t: _Finite


class _Paper(_Line):
    event: Literal["paper"]
    index: _Index
    baseline_us: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    candidate_us: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    largest_difference: _Number
    t: _Finite


class _Fault(_Line):
    event: Literal["fault"]
    index: _Index
    who: Literal["baseline", "candidate", "rival"]
    error: str
    detail: str
    gone: bool = False
    t: _Finite


class _Timeout(_Line):
    event: Literal["timeout"]
    index: _Index
    who: Literal["baseline", "candidate", "rival"] = "candidate"
    limit_s: _Finite
    t: _Finite


class _End(_Line):
    event: Literal["end"]
    ok: bool
    t: _Finite


_FORMS: TypeAdapter[Any] = TypeAdapter(
    Annotated[
        _Begin | _Isolation | _Case | _Skip | _Reference | _Check | _Time | _Paper | _Fault | _Timeout | _End,
        Field(discriminator="event"),
    ]
)


def read(text: str) -> dict[str, Any] | None:
    """One line of a report, None when it is cut, damaged or of no known form."""
    try:
        line: dict[str, Any] = json.loads(text)
        _FORMS.validate_python(line)
    except (ValueError, RecursionError):  # json's and pydantic's errors are ValueErrors
        return None
    return line
