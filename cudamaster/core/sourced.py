"""A figure that a model goes by, as its file has it: with its unit, its range, and where it comes from.

    block_cycles: {value: 639.5, unit: cycles of an SM, range: [100, 1500], source: fitted, by: "..."}

`by` names the program, the counter, the data sheet or the paper. The range is what repetitions or other launches gave
where the figure was measured, what a fit may choose from where it is fitted, and what is plausible where it is assumed.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

# "unkept" was measured too, but the table of it is lost.
Source = Literal["measured", "unkept", "data sheet", "architecture", "publication", "fitted", "assumed"]
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_WIDTH = 118  # of a line of a file
_DIGITS = 10


class Sourced(BaseModel):
    """A figure with all of it."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    value: _Finite
    unit: Annotated[str, Field(min_length=1)]
    range: tuple[_Finite, _Finite]
    source: Source
    by: Annotated[str, Field(min_length=1)]

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        low, high = self.range
        if not low <= self.value <= high:
            raise ValueError(f"{number(self.value)} is not in its range, {number(low)} to {number(high)}")
        return self


def line(name: str, value: float, unit: str, source: Source, range: tuple[float, float] | None, by: str) -> str:
    """A figure of a file: one line of YAML, or two where that is too long."""
    parts = [f"value: {number(value)}", f"unit: {unit}"]
    parts += [] if range is None else [f"range: [{number(range[0])}, {number(range[1])}]"]
    parts.append(f"source: {source}")
    said = f"by: {json.dumps(by, ensure_ascii=False)}"
    whole = f"  {name}: {{{', '.join([*parts, said] if by else parts)}}}"
    return whole if len(whole) <= _WIDTH or not by else f"  {name}: {{{', '.join(parts)},\n    {said}}}"


def number(value: float) -> str:
    """As YAML reads a number: with a point in front of an exponent."""
    text = f"{value:.{_DIGITS}g}"
    return text.replace("e", ".0e") if "e" in text and "." not in text else text
