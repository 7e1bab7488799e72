"""Whether a card is consistent: its names, expressions, cases and generators of inputs fit each other."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from cudamaster.core import resources
from cudamaster.core.expressions import ExpressionError, Number, call, evaluate, to_c
from cudamaster.tasks.held_out import check_blocks
from cudamaster.tasks.misfits import Misfits
from cudamaster.tasks.parameters import LARGEST, NOT_IN_PYTORCH, RANGES, WHOLE, check_bounds, check_filled

if TYPE_CHECKING:
    from cudamaster.tasks.cards import Case, TaskCard

_MOST_CASES = 500
# Generators whose last number is how many times larger outliers are, and the largest of the other elements.
WITH_OUTLIERS: Mapping[str, Callable[..., float]] = {
    "uniform": lambda low, high, _: max(abs(low), abs(high)),
    "spectral": lambda n, _: math.sqrt(3 / max(n, 1)),
    "ell": lambda *_: 1,
}


def check(card: TaskCard) -> None:
    """Raises Misfits with everything that is inconsistent in a card."""
    misfits = Misfits()
    _check_names(card, misfits)
    _check_written(card, misfits)
    with misfits.at():
        _check_cases(card)
    for k, generator in enumerate(card.inputs):
        with misfits.at("inputs", k):
            _filled_by(card, generator)
    misfits.end()  # what follows needs cases
    for k, generator in enumerate(card.inputs):
        with misfits.at("inputs", k):
            for argument in call(generator)[1][len(_filled_by(card, generator)) :]:
                evaluate(argument, card.cases[0].values)
    filled = [name for generator in card.inputs for name in _filled_by(card, generator)]
    wanted = [p.name for p in card.parameters if p.is_read]
    with misfits.at("inputs"):
        if sorted(filled) != sorted(wanted):
            raise ValueError(f"inputs fill {filled}, but have to fill each of {wanted} once")
    for case in card.cases:
        with misfits.at():
            check_case(card, case)
        if misfits.found:
            break
    misfits.end()
    check_blocks(card)


def _check_names(card: TaskCard, misfits: Misfits) -> None:
    """Names of parameters and sizes stand for each other, and there is an output."""
    scalars = [p.name for p in card.parameters if p.is_number]
    with misfits.at("sizes"):
        if missing := [name for name in scalars if name not in card.sizes]:
            raise ValueError(f"scalar parameters {missing} have no entry in sizes")
    with misfits.at("parameters"):
        if not any(p.is_written for p in card.parameters):
            raise ValueError("no parameter is an output")
    for k, p in enumerate(card.parameters):
        with misfits.at("parameters", k, "type"):
            if card.is_eager and p.length is not None and p.type in NOT_IN_PYTORCH:
                raise ValueError(f"PyTorch, which runs the baseline, has no elements of type {p.type}")
        with misfits.at("parameters", k, "role"):
            if card.is_eager and p.role == "scratch":
                raise ValueError("PyTorch, which runs the baseline, takes no scratch memory")
    names = [p.name for p in card.parameters]
    for k, name in enumerate(names):
        with misfits.at("parameters", k, "name"):
            if name in names[:k]:
                raise ValueError(f"two parameters have the same name, {name}")
    with misfits.at("fixed"):
        if unknown := [name for name in card.fixed if name not in card.sizes]:
            raise ValueError(f"fixed names {unknown}, which have no entry in sizes")
    with misfits.at("wrapper"):
        if card.own_wrapper is not None and card.family is not None:
            raise ValueError("wrapper and family both name the wrapper: leave one of them out")


def _check_written(card: TaskCard, misfits: Misfits) -> None:
    """All values that the harness holds as C can be written as C, unused defaults included, and so can others."""
    known = dict.fromkeys(card.sizes, "c")
    with misfits.at("weight"):
        to_c(card.weight, known)
    for field in ("bytes_read", "bytes_written", "operations", "gathered"):
        if (text := getattr(card.floor, field)) is not None:
            with misfits.at("floor", field):
                to_c(text, {**known, "element_bytes": "c"})
    for position, (name, default) in enumerate(card.sizes.items()):
        if default is not None:
            with misfits.at("sizes", name):
                to_c(str(default), dict.fromkeys(list(card.sizes)[:position], "c"))
    for k, parameter in enumerate(card.parameters):
        for field in ("length", "unit", "cost", "exact_if", "ulps"):
            if (text := getattr(parameter, field)) is not None:
                with misfits.at("parameters", k, field):
                    to_c(text, known)


def _check_cases(card: TaskCard) -> None:
    """Raises Misfits unless the card makes cases, some of them timed; each block that makes none is named."""
    misfits = Misfits()
    with misfits.at("sweep"):
        check_number(card)
        if not any(map(_number_of_cases, card.sweep)):
            raise ValueError("there is no timed case: sweep is empty")
    misfits.end()
    try:
        _ = card.cases
    except ValueError as error:
        for field, blocks in (("verify", card.verify), ("sweep", card.sweep)):
            for k, block in enumerate(blocks):
                with misfits.at(field, k):
                    for values in crossed(block):
                        card.values_of(values)
        misfits.end()
        raise Misfits.of(error, "weight") from error  # all else that a case takes is there


def check_number(card: TaskCard) -> None:
    """Raises ValueError for too many cases."""
    if (number := sum(map(_number_of_cases, (*card.verify, *card.sweep)))) > _MOST_CASES:
        raise ValueError(f"sweep and verify make {number} cases, and {_MOST_CASES} is the most")


def check_case(card: TaskCard, case: Case) -> None:
    """Raises Misfits unless lengths, units, costs, weight and floor of a case are numbers that make sense."""
    misfits = Misfits()
    with misfits.at("weight"):
        if not (case.weight > 0 if case.sweep else case.weight >= 0):
            raise ValueError(f"the weight of case {case.label} is {case.weight:g}")
    real = {p.name for p in card.parameters if p.is_number and not p.is_whole}
    names = {name: float(value) if name in real else value for name, value in case.values.items()}
    for k, parameter in enumerate(card.parameters):
        for what, text, least in (("length", parameter.length, 0), ("unit", parameter.unit, 1)):
            with misfits.at("parameters", k, what):
                number = least if text is None else evaluate(text, names)
                if not isinstance(number, int) or not least <= number <= WHOLE:
                    raise ValueError(f"the {what} of {parameter.name} is {number} in case {case.label}")
        with misfits.at("parameters", k, "exact_if"):
            if parameter.exact_if is not None:
                evaluate(parameter.exact_if, names)
        with misfits.at("parameters", k, "cost"):
            if card.reference_unit(parameter, case)[1] < 0:
                raise ValueError(f"the cost of {parameter.name} is negative in case {case.label}")
    with misfits.at():
        _check_whole(card, case)
    for k in range(len(card.inputs)):
        with misfits.at("inputs", k):
            _check_outliers(card, k, case)
    for precision in card.precisions:
        with misfits.at("floor"):
            if negative := [key for key, amount in card.floor_of(case, precision).items() if amount < 0]:
                raise ValueError(f"{', '.join(negative)} of the floor: negative in case {case.label}")
        with misfits.at("floor", "gathered"):
            if (card.gathered_bytes(case, precision) or 0) < 0:
                raise ValueError(f"gathered of the floor: negative in case {case.label}")
    misfits.end()


def _check_whole(card: TaskCard, case: Case) -> None:
    """Raises ValueError where a parameter's type does not hold what a case passes to it, or fills it with."""
    whole = {p.name: p for p in card.parameters if p.is_whole}
    for name, p in whole.items():
        if p.is_number:
            value, (least, most) = case.values[name], RANGES[p.type]
            if not isinstance(value, int) or not least <= value <= most:
                raise ValueError(
                    f"{name} is {value:.17g} in case {case.label}, and {p.type} holds whole numbers from {least} "
                    f"to {most}"
                )
    for generator, (filled, *numbers) in map(call, card.inputs):
        if filled in whole and generator in ("integers", "uniform"):
            low, high, *outliers = (evaluate(number, case.values) for number in numbers)
            if outliers and outliers[0] > 1:
                farthest = max(abs(low), abs(high)) * outliers[0]
                low, high = -farthest if low < 0 else low, farthest
            check_bounds(generator, whole[filled], low, high, f"in case {case.label}")


def _check_outliers(card: TaskCard, k: int, case: Case) -> None:
    """Raises ValueError where outliers that the generator number k makes are smaller than the others, or too large."""
    name, arguments = call(card.inputs[k])
    buffers = generators()[name][0]
    if name not in WITH_OUTLIERS or len(arguments) < sum(generators()[name]):
        return
    filled = arguments[buffers - 1]
    numbers = [evaluate(argument, case.values) for argument in arguments[buffers:]]
    outliers, where = numbers[-1], f"in case {case.label}"
    if not outliers >= 1:
        raise ValueError(
            f"outliers of {filled} are {outliers:g} times as large as other elements {where}: 1 is the least"
        )
    parameter = next(p for p in card.parameters if p.name == filled)
    farthest = WITH_OUTLIERS[name](*numbers) * outliers
    for precision in card.precisions:
        kind = parameter.element_type(precision)
        if outliers > 1 and farthest > (most := LARGEST.get(kind, math.inf)):
            raise ValueError(
                f"outliers of {filled} are up to {farthest:g} {where}, and {kind} holds at most {most:.9g}"
            )


def _filled_by(card: TaskCard, generator: str) -> tuple[str, ...]:
    """Buffers that a generator of `inputs` fills; ValueError where it is not called as inputs.h declares it."""
    known, (name, arguments) = generators(), call(generator)
    if name not in known:
        raise ExpressionError(name, f"is no input generator; there are {', '.join(sorted(known))}", name, known)
    buffers, numbers, optional = known[name]
    most = buffers + numbers + optional
    if not buffers + numbers <= len(arguments) <= most:
        due = f"{buffers + numbers} to {most}" if optional else f"{most}"
        raise ValueError(f"{generator!r} has {len(arguments)} arguments, {name} takes {due}")
    parameters = {p.name: p for p in card.parameters if p.is_read}
    for position, argument in enumerate(arguments[:buffers]):
        if argument not in parameters:
            what = f"fills {argument!r}, which is no input parameter"
            raise ExpressionError(generator, what, argument, parameters)
        check_filled(name, position, parameters[argument])
    for argument in arguments[buffers:]:
        to_c(argument, dict.fromkeys(card.sizes, "c"))
    return arguments[:buffers]


@lru_cache(maxsize=1)
def generators() -> Mapping[str, tuple[int, int, int]]:
    """Input generators that a card can name, as inputs.h declares them.

    Of each: how many buffers and numbers it takes, and how many numbers behind them that a card may leave out.
    """
    text = (resources.bench() / "include" / "mskb" / "inputs.h").read_text(encoding="utf-8")
    one = r"(?:int|double) \w+(?: = \d+)?"
    found = re.findall(rf"^void (\w+)\(Inputs& inputs((?:,\s*{one})*)\);", text, re.MULTILINE)
    known = {}
    for name, rest in found:
        optional = rest.count(" = ")
        known[name] = (len(re.findall(r"\bint ", rest)), len(re.findall(r"\bdouble ", rest)) - optional, optional)
    return known


def _number_of_cases(block: Mapping[str, list[Number] | Number]) -> int:
    return math.prod(len(value) for value in block.values() if isinstance(value, list))


def crossed(block: Mapping[str, list[Number] | Number]) -> Iterator[dict[str, Number]]:
    """Every combination of the values of a block."""
    lists = [value if isinstance(value, list) else [value] for value in block.values()]
    for combination in itertools.product(*lists):
        yield dict(zip(block, combination, strict=True))
