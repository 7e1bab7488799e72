"""Runs a reference in Python for the judge, as a program of its own: python -I reference_server.py FILE PATHS.

FILE defines `reference`; PATHS, as JSON, is where modules are looked for. Descriptor 3 is a socket: a question is a
line of JSON, the answer the line "done" or a line that says why there is none. Descriptor 4 is the file in which
inputs, values and scales lie (bench/include/mskb/python_reference.h). What the reference prints goes nowhere.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import mmap
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

# Threads that compute go to sleep at once, and no GPU is touched: calls are timed between two questions.
if __name__ == "__main__":
    os.environ.update(OMP_WAIT_POLICY="passive", KMP_BLOCKTIME="0", OPENBLAS_THREAD_TIMEOUT="4")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sys.path.extend(json.loads(sys.argv[2]))

import numpy as np

_SOCKET, _FILE = 3, 4
_LONGEST = 2000  # characters of an answer
_KINDS = ("numpy", "torch")


class Misfit(Exception):
    """What the reference gave, or asks for, does not fit the card."""


class Reference:
    """A reference's function, and what it made of the inputs that may be asked about again."""

    def __init__(self, path: Path) -> None:
        """Raises whatever the file raises, and Misfit for a file without a fitting function."""
        module = _loaded(path)
        self._function: Callable[..., object] = getattr(module, "reference", None) or _missing(path)
        kind = getattr(module, "ARRAYS", "numpy")
        if kind not in _KINDS:
            raise Misfit(f"ARRAYS is {kind!r}, and has to be one of {', '.join(_KINDS)}")
        self._torch: Any = importlib.import_module("torch") if kind == "torch" else None
        self._made: dict[
            int, dict[str, tuple[Any, Any]]
        ] = {}  # values and scales of each output, by the inputs' number

    def answer(self, question: Mapping[str, Any], memory: mmap.mmap) -> None:
        """Writes values and scales of the wanted elements into the memory."""
        for serial in question["forget"]:
            self._made.pop(serial, None)
        if not question["known"]:
            self._made[question["serial"]] = self._call(question, memory)
        for output in question["outputs"]:
            value, scale = self._made[question["serial"]][output["name"]]
            count, offset = output["wanted"], output["offset"]
            if count == 0:
                continue
            wanted = np.frombuffer(memory, np.int64, count, offset)
            into = np.frombuffer(memory, np.float64, 2 * count, offset + 8 * count)
            into[:count] = value[wanted]
            into[count:] = _normwise(value, wanted) if scale is None else scale[wanted]

    def _call(self, question: Mapping[str, Any], memory: mmap.mmap) -> dict[str, tuple[Any, Any]]:
        given: dict[str, object] = dict(question["numbers"])
        for each in question["inputs"]:
            kind = np.int64 if each["whole"] else np.float64
            # A copy: what the function does to its arguments stays with it.
            array = np.frombuffer(memory, kind, each["length"], each["offset"]).copy()
            array = array.reshape(each["shape"] or each["length"])
            given[each["name"]] = array if self._torch is None else self._torch.from_numpy(array)
        returned = self._function(**_wanted_of(self._function, given))
        outputs = question["outputs"]
        return {
            output["name"]: self._checked(output, entry)
            for output, entry in zip(outputs, _entries(returned, [output["name"] for output in outputs]), strict=True)
        }

    def _checked(self, output: Mapping[str, Any], entry: object) -> tuple[Any, Any]:
        """The values of an output and their scales, flat and in double; None for scales that are not given."""
        name, scale = output["name"], None
        if isinstance(entry, Mapping):
            if set(entry) != {"value", "scale"}:
                raise Misfit(f"{name} is a dict with {_names(entry)}, and has to be an array, or value and scale")
            scale = self._flat(f"the scale of {name}", output, entry["scale"])
            if (unfit := scale[~((scale >= 0) & np.isfinite(scale))]).size:
                raise Misfit(f"the scale of {name} is {unfit[0]} somewhere, and has to be a number that is at least 0")
            entry = entry["value"]
        value = self._flat(name, output, entry)
        if (unknown := np.flatnonzero(np.isnan(value))).size:
            raise Misfit(f"{name} is NaN at {unknown.size} of {value.size} elements, the first of them is {unknown[0]}")
        return value, scale

    def _flat(self, what: str, output: Mapping[str, Any], given: Any) -> Any:
        if given is None:
            raise Misfit(f"{what} is None")
        if self._torch is not None and isinstance(given, self._torch.Tensor):
            given = given.detach().cpu()
            if given.dtype is self._torch.bfloat16:
                raise Misfit(f"{what} is of bfloat16: compute in float64")
            given = given.numpy()
        array = np.asarray(given)
        if array.dtype.kind not in "biuf":
            raise Misfit(f"{what} is of {array.dtype}, and has to be of numbers")
        if array.dtype.kind == "f" and array.dtype.itemsize < 8:
            raise Misfit(f"{what} is of {array.dtype}: compute in float64")
        shape = tuple(output["shape"])
        if array.size != output["length"] or (shape and array.shape != shape):
            fitting = list(shape) or [output["length"]]
            raise Misfit(f"{what} has the shape {list(array.shape)}, and has to have {fitting}")
        return array.astype(np.float64).reshape(-1)


def _normwise(value: Any, wanted: Any) -> Any:
    """The scales of elements whose terms are not known: their size, or the root mean square of all if that is more."""
    finite = value[np.isfinite(value)]
    largest = float(np.max(np.abs(finite), initial=0.0))  # whose square may be too large for a double
    usual = largest * float(np.sqrt(np.mean(np.square(finite / largest)))) if largest else 0.0
    size = np.abs(value[wanted])
    return np.where(np.isinf(size), usual, np.maximum(size, usual))


def _entries(returned: object, names: list[str]) -> list[object]:
    """What was returned for each output, in the card's order."""
    if isinstance(returned, Mapping):
        if set(returned) == set(names):
            return [returned[name] for name in names]
        if len(names) == 1 and set(returned) == {"value", "scale"}:
            return [returned]
        raise Misfit(f"it returned a dict with {_names(returned)}, and the outputs are {', '.join(names)}")
    if isinstance(returned, tuple):
        if len(returned) != len(names):
            raise Misfit(f"it returned {len(returned)} values, and the outputs are {', '.join(names)}")
        return list(returned)
    if len(names) > 1:
        raise Misfit(f"it returned a {type(returned).__name__}, and the outputs are {', '.join(names)}")
    return [returned]


def _names(of: Mapping[Any, object]) -> str:
    return ", ".join(map(str, of))


def _wanted_of(function: Callable[..., object], given: Mapping[str, object]) -> dict[str, object]:
    """The arguments that the function has parameters for, by name."""
    parameters = inspect.signature(function).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return dict(given)
    for name, each in parameters.items():
        if name not in given and each.default is inspect.Parameter.empty:
            raise Misfit(f"it has a parameter {name!r}, and there are {', '.join(given)}")
    return {name: given[name] for name in parameters if name in given}


def _missing(path: Path) -> Callable[..., object]:
    raise Misfit(f"{path} defines no function `reference`")


def _loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference_of_the_task", path)
    if spec is None or spec.loader is None:
        raise Misfit(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _why(error: BaseException, path: Path) -> str:
    """The last line of the traceback, with the file and the line of the reference where it happened."""
    words = str(error) if isinstance(error, Misfit) else traceback.format_exception_only(error)[-1]
    steps = traceback.extract_tb(error.__traceback__)
    line = next((step.lineno for step in reversed(steps) if step.filename == str(path)), None)
    if isinstance(error, SyntaxError) and error.filename == str(path):
        line = error.lineno
    where = f" ({path}, line {line})" if line is not None else f" ({path})"
    return " ".join(words.split())[:_LONGEST] + where


def main() -> None:
    """Answer questions until the judge is gone."""
    path = Path(sys.argv[1])
    sys.dont_write_bytecode = True
    reference, failure, memory, size = None, "", None, 0
    try:
        reference = Reference(path)
    except BaseException as error:  # the file may call exit()
        failure = _why(error, path)
    with os.fdopen(_SOCKET, "rb", closefd=False) as questions:
        for line in questions:
            if reference is not None:
                try:
                    if memory is None or os.fstat(_FILE).st_size != size:
                        size = os.fstat(_FILE).st_size
                        memory = mmap.mmap(_FILE, size)
                    reference.answer(json.loads(line), memory)
                    failure = ""
                except BaseException as error:
                    failure = _why(error, path)
            os.write(_SOCKET, (failure or "done").encode("utf-8", "replace") + b"\n")


if __name__ == "__main__":
    main()
