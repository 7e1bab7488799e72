"""Frozen dataclasses to JSON values and back, exactly: what comes back equals what went in.

Every field is written, and none may be missing or unknown when it is read. A field that was added later (its `metadata`
has "later") is left out if it has its default. So older records can be read, and are written again as the same text.
JSON has neither NaN nor infinity, and mismatches have both, so these floats are written as "nan", "inf" and "-inf". A
whole number in a field of floats is written and read as a float, so reading and writing again gives the same text.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

T = TypeVar("T")
# For counts of tokens, rounds or bytes. JSON allows larger numbers, which a sum of floats cannot hold.
_LARGEST = 2**64
_SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class RecordError(ValueError):
    """JSON that is not the expected record; the message names the place in it."""


def to_json(value: object) -> Any:
    """JSON value of a dataclass, enum, tuple, mapping, text, number or None.

    Raises TypeError for anything else, which is a bug of ours.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        hints = _hints(type(value))
        return {
            field.name: _as_read(hints[field.name], to_json(getattr(value, field.name)))
            for field in dataclasses.fields(value)
            if not (field.metadata.get("later") and getattr(value, field.name) == _default(field))
        }
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(to_json(key)): to_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    raise TypeError(f"{type(value).__name__} cannot be recorded")


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _as_read(kind: Any, data: Any) -> Any:
    """The JSON value of a field of type `kind`, its whole numbers as floats where `kind` has floats and no integers."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    kinds = arguments if origin in (typing.Union, types.UnionType) else (kind,)
    if type(data) is int and float in kinds and int not in kinds:
        return float(data)
    for one in kinds:
        origin, inner = typing.get_origin(one), typing.get_args(one)
        if origin is tuple and isinstance(data, list):
            return [_as_read(inner[0], item) for item in data]
        if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(data, dict):
            return {key: _as_read(inner[1], item) for key, item in data.items()}
    return data


def from_json(kind: type[T], data: Any) -> T:
    """The value of type `kind` that `to_json` wrote as `data`.

    Raises RecordError when a field is missing, unknown or of another type.
    """
    return typing.cast(T, _read(kind, data, kind.__name__))


def _read(kind: Any, data: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _read_union(arguments, data, where)
    if origin is tuple:
        _expect(isinstance(data, list), where, "a list", data)
        if arguments[0] is float and all(type(item) is float for item in data):
            return tuple(data)  # raw samples: most of what a run folder holds
        return tuple(_read(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(data))
    if origin is not None and issubclass(origin, Mapping):
        _expect(isinstance(data, dict), where, "an object", data)
        return {_read(arguments[0], k, where): _read(arguments[1], v, f"{where}.{k}") for k, v in data.items()}
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(kind, data, where)
    if kind is type(None):
        _expect(data is None, where, "null", data)
        return None
    if issubclass(kind, Enum):
        try:
            return kind(data)
        except ValueError as error:
            raise RecordError(f"{where}: {error}") from error
    if kind is float:
        if isinstance(data, str) and data in _SPECIAL:
            return _SPECIAL[data]
        _expect(isinstance(data, int | float) and not isinstance(data, bool), where, "a number", data)
        try:
            return float(data)
        except OverflowError as error:
            raise RecordError(f"{where}: a number beyond all floats") from error
    _expect(type(data) is kind, where, kind.__name__, data)
    if kind is int and abs(data) > _LARGEST:
        raise RecordError(f"{where}: a number beyond 64 bits")
    return data


def _read_union(arguments: tuple[Any, ...], data: Any, where: str) -> Any:
    reasons = []
    for argument in arguments:
        try:
            return _read(argument, data, where)
        except RecordError as error:
            reasons.append(str(error))
    raise RecordError("; ".join(reasons))


def _read_dataclass(kind: Any, data: Any, where: str) -> Any:
    _expect(isinstance(data, dict), where, "an object", data)
    hints = _hints(kind)
    fields = dataclasses.fields(kind)
    names = [field.name for field in fields]
    if missing := [field.name for field in fields if field.name not in data and not field.metadata.get("later")]:
        raise RecordError(f"{where}: {', '.join(missing)} missing")
    if unknown := [name for name in data if name not in names]:
        raise RecordError(f"{where}: {', '.join(unknown)} unknown")
    return kind(**{name: _read(hints[name], data[name], f"{where}.{name}") for name in names if name in data})


def _expect(right: bool, where: str, wanted: str, data: Any) -> None:
    if not right:
        raise RecordError(f"{where}: {type(data).__name__} instead of {wanted}")
