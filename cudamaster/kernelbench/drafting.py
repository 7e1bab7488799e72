"""The card of a problem: its parameters in the documented order, its cases, and how inputs are drawn."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cudamaster.build.eager import TF32
from cudamaster.core.errors import CardError
from cudamaster.core.expressions import evaluate
from cudamaster.core.values import Precision
from cudamaster.kernelbench.problem import Problem

_PRECISIONS = {"float32": Precision.FP32, "float16": Precision.FP16, "bfloat16": Precision.BF16}
_TYPES = {"float32": "float", "float64": "double", "float16": "half", "bfloat16": "bf16", "int32": "int",
          "int64": "long long", "uint8": "unsigned char", "bool": "bool"}  # fmt: skip
_FLOATING = (*_PRECISIONS, "float64")
_READ_A_PART = ("index", "gather", "embedding", "_embedding_bag", "take", "grid_sampler", "upsample", "_upsample")
_MOST_PARAMETERS = 60
_SMALL_WORK = 2e5  # operations of a verification case, if the sizes that vary allow that few
_SPREAD = 0.1  # of parameters that the module makes all alike, such as a weight of ones, relative to 1 or to their size
# What eager PyTorch may be off by, of an output's scale. It multiplies in TF32, ten bits of each factor, where cuDNN
# convolves or runs a recurrent net, and rounds the result of each operator to the element type.
_TF32_SOUND = 2e-3
_ROUNDED_SOUND = {Precision.BF16: 2e-2, Precision.FP16: 4e-3}
_SHAPES = ((1, 1, 1, 1), (2, 3, 5, 4), (3, 7, 2, 9), (5, 17, 33, 8))  # verification sizes, above the least


def draft(problem: Problem, name: str, number: int) -> dict[str, Any]:
    """The fields of a card, in its order. Raises CardError for what no card can say."""
    told = problem.told
    element = _element(problem)
    precision = _PRECISIONS[element]
    sizes: Mapping[str, Mapping[str, Any]] = told["sizes"]
    tensors = [each for each in told["inputs"] if "shape" in each]
    scalars = [each for each in told["inputs"] if "shape" not in each and isinstance(each["value"], float)]
    parameters: list[dict[str, Any]] = []
    inputs: list[str] = []
    for each in tensors:
        view = "" if each["contiguous"] else "; contiguous here, though get_inputs gives a view"
        parameters.append(_buffer(problem, each, element, "input", f"argument {each['name']} of forward{view}"))
        inputs.append(_input(each))
    for each in scalars:
        parameters.append({"name": each["name"], "type": "float", "meaning": f"argument {each['name']} of forward"})
    for each in told["state"]:
        parameters.append(_buffer(problem, each, element, "input", f"{each['kind']} {each['path']} of the module"))
        inputs.append(_state(each))
    for k, each in enumerate(told["outputs"]):
        which = "result" if len(told["outputs"]) == 1 else f"output {k} of forward"
        out = {"name": _free_name("out" if len(told["outputs"]) == 1 else f"out{k}", parameters), **each}
        parameter = _buffer(problem, out, element, "output", which)
        if "check" not in parameter and (sound := _sound(told["operators"], precision)) is not None:
            parameter["sound"] = sound
        parameters.append(parameter)
    for side, about in sizes.items():
        meaning = f"size of dimension {about['dim']} of {about['of']}"
        parameters.append({"name": side, "type": "int", "meaning": meaning})
    if len(parameters) > _MOST_PARAMETERS:
        raise CardError(
            f"{problem.file} makes no task: its wrapper would have {len(parameters)} parameters, and "
            f"{_MOST_PARAMETERS} is the most.",
            "Take a part of the model as a problem of its own.",
        )
    given: dict[str, int] = {side: about["given"] for side, about in sizes.items()}
    work = max(int(told["operations"]), 1)
    scaled = " * ".join([f"{work / math.prod(given.values()):.6g}", *given]) if given else str(work)
    lengths = [(p, " * ".join(f"({side})" for side in p["shape"]) or "1") for p in parameters if "shape" in p]

    def moved(role: str) -> str:
        sums = [f"{_bytes(p)} * {length}" for p, length in lengths if p["role"] == role]
        return " + ".join(sums) or "0"

    nothing_varies = {} if given else {"as_given": 1}
    return {
        "id": number,
        "name": name,
        "title": _title(name),
        "category": "kernelbench",
        "summary": _summary(problem),
        "formula": f"{', '.join(p['name'] for p in parameters if p.get('role') == 'output')} = Model(...)("
        f"{', '.join(each['name'] for each in told['inputs'])})",
        "sizes": {**given, **{each["name"]: each["value"] for each in scalars}, **nothing_varies},
        **({} if given else {"fixed": list(nothing_varies)}),
        "parameters": parameters,
        "inputs": inputs,
        "sweep": [dict(given or nothing_varies)],
        "verify": list(_verification(sizes, work)) or [dict(nothing_varies)],
        "held_out": [_block(sizes, scalars, small=True, work=work)],
        "held_out_large": [_block(sizes, scalars, small=False, work=work)],
        "weight": scaled,
        "floor": {
            "bytes_read": "0" if _may_skip(problem) else moved("input"),
            "bytes_written": moved("output"),
            "operations": "0",
        },
        "precisions": [precision.value],
        "truth": "python",
        "baseline_by": "pytorch",
    }


def _may_skip(problem: Problem) -> bool:
    """Whether a call may leave parts of its inputs unread: indices or masks choose among them."""
    told = problem.told
    chosen = any(each["dtype"] not in _FLOATING for each in (*told["inputs"], *told["state"]) if "shape" in each)
    return chosen or any(name.startswith(_READ_A_PART) for name in told["operators"])


def _sound(operators: Sequence[str], precision: Precision) -> float | None:
    """What the baseline may be off by, None for what is usual."""
    if len(operators) > 1 and precision in _ROUNDED_SOUND:
        return _ROUNDED_SOUND[precision]
    return _TF32_SOUND if not TF32.isdisjoint(operators) and precision is Precision.FP32 else None


def _element(problem: Problem) -> str:
    """The element type that is T: that of the outputs, or of the first tensor of floating-point numbers."""
    told = problem.told
    kinds = [each["dtype"] for each in (*told["outputs"], *told["inputs"], *told["state"]) if "dtype" in each]
    if unknown := sorted({kind for kind in kinds if kind not in _TYPES}):
        raise CardError(
            f"{problem.file} makes no task: it has tensors of {', '.join(unknown)}.",
            f"Known are {', '.join(_TYPES)}.",
        )
    return next((kind for kind in kinds if kind in _PRECISIONS), "float32")


def _buffer(problem: Problem, each: Mapping[str, Any], element: str, role: str, meaning: str) -> dict[str, Any]:
    kind = "T" if each["dtype"] == element else _TYPES[each["dtype"]]
    shape = [str(side) for side in each["shape"]]
    exact = {"check": "exact"} if role == "output" and each["dtype"] not in _FLOATING else {}
    return {"name": each["name"], "type": kind, "role": role, "shape": shape, "meaning": meaning, **exact}


def _bytes(parameter: Mapping[str, Any]) -> str:
    sizes = {"T": "element_bytes", "float": "4", "double": "8", "half": "2", "bf16": "2", "int": "4",
             "long long": "8", "unsigned char": "1", "bool": "1"}  # fmt: skip
    return sizes[parameter["type"]]


def _free_name(wanted: str, parameters: Sequence[Mapping[str, Any]]) -> str:
    taken = {p["name"] for p in parameters}
    return next(name for name in (wanted, f"{wanted}_result", f"{wanted}_result_") if name not in taken)


def _input(each: Mapping[str, Any]) -> str:
    """How the judge draws an input: as get_inputs does, as far as a uniform distribution can."""
    name = each["name"]
    low, high = each.get("min", 0.0), each.get("max", 0.0)
    if each["whole"]:
        return f"integers({name}, {low:.0f}, {high:.0f})"
    if _near(low, 0, 0.02) and _near(high, 1, 0.02) and _near(each["mean"], 0.5, 0.05):
        return f"uniform({name}, 0, 1)"
    if _near(each["mean"], 0, 0.15) and _near(each["std"], 1, 0.15) and high > 1.8:
        return f"uniform({name}, -3, 3)"
    return f"uniform({name}, {_number(low)}, {_number(high)})"


def _state(each: Mapping[str, Any]) -> str:
    """How the judge draws a parameter: with the mean and the spread that the module gives it, within its range."""
    mean, spread = each["mean"], math.sqrt(3) * each["std"]
    if spread <= 1e-6 * max(abs(mean), 1e-6):
        spread = _SPREAD * max(abs(mean), 1.0) if mean else _SPREAD
        return f"uniform({each['name']}, {_number(mean - spread)}, {_number(mean + spread)})"
    low, high = max(each["min"], mean - spread), min(each["max"], mean + spread)
    return f"uniform({each['name']}, {_number(low)}, {_number(high)})"


def _near(value: float, wanted: float, tolerance: float) -> bool:
    return abs(value - wanted) <= tolerance


def _number(value: float) -> str:
    return f"{value:.4g}" if "e" not in f"{value:.4g}" else f"{value:.12f}".rstrip("0")


def _verification(sizes: Mapping[str, Mapping[str, Any]], work: int) -> Iterator[dict[str, int]]:
    """Small cases: the least sizes, odd ones, and one size at a time near the given."""
    seen: list[dict[str, int]] = []
    most = math.prod(about["given"] for about in sizes.values())
    for steps in _SHAPES:
        case = {
            name: min(about["low"] + steps[k % len(steps)] - 1, about["given"] + 1)
            for k, (name, about) in enumerate(sizes.items())
        }
        if sizes and case not in seen and (not seen or work * math.prod(case.values()) / most <= _SMALL_WORK):
            seen.append(case)
            yield case


def _block(
    sizes: Mapping[str, Mapping[str, Any]], scalars: Sequence[Mapping[str, Any]], *, small: bool, work: int
) -> dict[str, Any]:
    """Ranges of held-out cases: from the least on up to what is little work, or near the given sizes."""
    block: dict[str, Any] = {}
    most = math.prod(about["given"] for about in sizes.values())
    share = min(1.0, _SMALL_WORK / work)  # of the given sizes' work
    for name, about in sizes.items():
        low, given = about["low"], about["given"]
        if small:
            block[name] = [low, max(low + 3, min(given, int(given * share ** (1 / len(sizes)))))]
        else:
            block[name] = [max(low, int(0.7 * given)), max(low + 1, given)]
    assert most or not sizes
    for each in scalars:
        value = float(each["value"])
        block[each["name"]] = sorted((value / 2, value * 2)) if value else [-1.0, 1.0]
    return block


def _title(name: str) -> str:
    words = re.sub(r"^kb_", "", name).replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def _summary(problem: Problem) -> str:
    """What a reader of the card has to know beside its fields."""
    told = problem.told
    said = [
        f"A problem in KernelBench's form, from {problem.file.name}. Eager PyTorch is the baseline, the module in "
        "double precision the truth. Buffers are contiguous, row by row. Parameters of the module are inputs: the "
        "judge draws them anew for each call, in the range that the module's own initialisation has."
    ]
    fixed = [each for each in told["inputs"] if "shape" not in each and not isinstance(each["value"], float)]
    if fixed:
        said.append(f"Not passed, and always as get_inputs gives them: {', '.join(each['name'] for each in fixed)}.")
    if told["unused"]:
        said.append(f"Not passed, as no output depends on them: {', '.join(told['unused'])}.")
    if not told["sizes"]:
        said.append("No size can be another than the given one.")
    if told["training"] and (told["unused"] or any(each["kind"] == "buffer" for each in told["state"])):
        said.append("The module is in the mode in which it is made, which is that of training by default.")
    said += [f"Known fault: {fault.words}." for fault in problem.faults]
    return " ".join(said)


def checked(fields: Mapping[str, Any]) -> None:
    """Raises ValueError where an expression of the draft has no value at the given sizes."""
    for parameter in fields["parameters"]:
        for side in parameter.get("shape", ()):
            evaluate(side, fields["sizes"])
