"""The parameters of a wrapper as a card describes them, and the types that they may have."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from cudamaster.core.expressions import Number
from cudamaster.core.values import Precision

# What is written into the harness as it stands: names, and the words of its comment.
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f\x85\u2028\u2029]+$")]

WHOLE = 2**53  # the harness holds sizes as doubles, and compares elements as doubles
SOUND, ULPS = 1e-4, "4"  # as in mskb/task.h
ELEMENT_TYPES = {Precision.FP32: "float", Precision.BF16: "__nv_bfloat16", Precision.FP16: "__half"}
T_BYTES = {Precision.FP32: 4, Precision.BF16: 2, Precision.FP16: 2}
STREAM = "stream"
NOT_IN_PYTORCH = ("unsigned int", "size_t")  # as elements of a buffer

Type = Literal[
    "T", "float", "double", "half", "bf16",
    "int", "long long", "unsigned char", "unsigned int", "size_t", "bool",
    "stream",
]  # fmt: skip
# Those whose name in C is another one.
_IN_C = {"half": "__half", "bf16": "__nv_bfloat16", STREAM: "cudaStream_t"}
_BYTES = {"double": 8, "float": 4, "half": 2, "bf16": 2,
          "int": 4, "long long": 8, "unsigned char": 1, "unsigned int": 4, "size_t": 8, "bool": 1}  # fmt: skip
# The least and the largest number of a type that holds whole ones.
RANGES: Mapping[str, tuple[int, int]] = {
    "int": (-(2**31), 2**31 - 1),
    "long long": (-WHOLE, WHOLE),
    "unsigned char": (0, 255),
    "unsigned int": (0, 2**32 - 1),
    "size_t": (0, WHOLE),
    "bool": (0, 1),
}
# The largest finite number of the others, by their names in C.
LARGEST: Mapping[str, float] = {
    "double": sys.float_info.max,
    "float": float.fromhex("0x1.fffffep127"),
    "__nv_bfloat16": float.fromhex("0x1.fep127"),
    "__half": 65504.0,
}


# Generators of inputs.h by what they can fill: their first buffers with indices, or whole numbers as well.
_INDICES = {"csr": 2, "coo": 2, "ell": 1}
_OF_INDICES = ("int", "long long", "unsigned int", "size_t")
_FILL_WHOLE = ("integers", "uniform", "attention_mask")


class Strict(BaseModel):
    """A part of a card: nothing that is not described, and nothing changes later."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True, serialize_by_alias=True)


class Parameter(Strict):
    """One parameter of the wrapper: a scalar, or a device buffer of `length` elements.

    A buffer's size may be given as its `shape` instead, the last dimension of which is contiguous; `length` is then the
    product, 1 for a shape without dimensions. A `stream` is a scalar that no size belongs to: a call gets the default
    stream. A buffer of role `scratch` is a workspace: it holds nothing at the start of a call, and is not compared.

    The reference makes `unit` consecutive elements of an output together, at the `cost` of so many operations. On a
    case where all of them would take too long, it is asked for some of the units.

    `exact_if` is an expression over the sizes: in cases where it is not 0 an output is compared as if its `check` were
    exact. A baseline whose error is above `sound`, in units of an element's scale, is wrong. `ulps`, an expression, is
    what any kernel may be off by, in ulps of fp32 at that scale (for an output of double 2**-42 in place of such an
    ulp): tensor cores cut off at each of their steps.
    """

    name: Name
    type: Type
    meaning: str
    role: Literal["scalar", "input", "output", "inout", "scratch"] = "scalar"
    length: str | None = None
    shape: tuple[str, ...] | None = None
    check: Literal["bounded", "exact"] = "bounded"
    unit: str = "1"
    cost: str = "1"
    exact_if: str | None = None
    sound: float = Field(default=SOUND, gt=0, le=1)
    ulps: str = ULPS

    @property
    def has_bounds_of_its_own(self) -> bool:
        """Whether `sound` or `ulps` is another than for all tasks."""
        return (self.sound, self.ulps) != (SOUND, ULPS)

    @property
    def is_read(self) -> bool:
        """Whether it is a buffer that inputs are placed in."""
        return self.role in ("input", "inout")

    @property
    def is_written(self) -> bool:
        """Whether it is a buffer whose content is compared after a call."""
        return self.role in ("output", "inout")

    @property
    def is_number(self) -> bool:
        """Whether it is a scalar that has an entry in the card's sizes: all scalars but streams."""
        return self.role == "scalar" and self.type != STREAM

    @property
    def is_whole(self) -> bool:
        """Whether it holds whole numbers."""
        return self.type in RANGES

    @property
    def has_other_names(self) -> bool:
        """Whether C++ has several types of its numbers, of which a baseline may name another: `int64_t` is `long`."""
        return self.type in ("long long", "size_t")

    @property
    def extent(self) -> str:
        """How many elements a buffer has, for a person: "N x C", or its length; empty for a scalar."""
        if not self.shape:
            return self.length or ""
        return " x ".join(f"({each})" if " " in each else each for each in self.shape)

    @model_validator(mode="before")
    @classmethod
    def _length_of_shape(cls, fields: Any) -> Any:
        if not isinstance(fields, Mapping) or not isinstance(shape := fields.get("shape"), Sequence | None):
            return fields
        if shape is None or isinstance(shape, str):
            return fields
        length = _product([str(each) for each in shape])
        if fields.get("length") not in (None, length):
            raise ValueError(f"parameter {fields.get('name')}: give its length or its shape, not both")
        return {**fields, "length": length}

    @model_validator(mode="after")
    def _length_for_buffers(self) -> Parameter:
        if self.type == STREAM and self.role != "scalar":
            raise ValueError(f"parameter {self.name}: a stream is a scalar, and has no role and no length")
        if (self.role == "scalar") != (self.length is None):
            raise ValueError(f"parameter {self.name}: a buffer has a role and a length or shape, a scalar has neither")
        return self

    def c_type(self, precision: Precision) -> str:
        """Type of the parameter in C, e.g. "const __nv_bfloat16*"."""
        base = self.element_type(precision)
        return {"scalar": base, "input": f"const {base}*"}.get(self.role, f"{base}*")

    def element_type(self, precision: Precision) -> str:
        """Type of one element in C."""
        return ELEMENT_TYPES[precision] if self.type == "T" else _IN_C.get(self.type, self.type)

    def element_bytes(self, precision: Precision) -> int:
        """Bytes of one element. A stream has none."""
        return T_BYTES[precision] if self.type == "T" else _BYTES[self.type]


def check_filled(generator: str, position: int, parameter: Parameter) -> None:
    """Raises ValueError where a generator cannot fill a buffer that is its argument number `position`."""
    what = f"{generator} cannot fill {parameter.name}, which is of {parameter.type}"
    if position < _INDICES.get(generator, 0):
        if parameter.type not in _OF_INDICES:
            raise ValueError(f"{what}: indices are of {', '.join(_OF_INDICES)}")
    elif parameter.is_whole and generator not in _FILL_WHOLE:
        raise ValueError(f"{what}: whole numbers are made by {', '.join(_FILL_WHOLE)}")


def check_bounds(generator: str, parameter: Parameter, low: Number, high: Number, where: str) -> None:
    """Raises ValueError where numbers of low .. high are none of a buffer's type, or all of them become the same.

    Only for `integers` and `uniform`, and a buffer of whole numbers; `uniform` is rounded down, or for bool to 1 from a
    half on.
    """
    if generator not in ("integers", "uniform") or not parameter.is_whole:
        return
    least, most = RANGES[parameter.type]
    last = high if generator == "integers" or parameter.type == "bool" else math.ceil(high) - 1
    if not least <= low <= last <= most:
        made = f"{generator} makes {low:g} .. {high:g} of it {where}"
        raise ValueError(f"{parameter.name} is of {parameter.type}, from {least} to {most}, and {made}")
    if generator == "uniform" and parameter.type != "bool" and math.floor(low) == last:
        raise ValueError(f"every element of {parameter.name}, of {parameter.type}, is {last} {where}: use integers")


def _product(shape: Sequence[str]) -> str:
    """The number of elements of a shape, as an expression."""
    if not shape:
        return "1"
    return " * ".join(each if each.isidentifier() or each.isdecimal() else f"({each})" for each in shape)
