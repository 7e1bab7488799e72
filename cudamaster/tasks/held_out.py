"""Sizes that no one can prepare for: cases drawn afresh for every evaluation, in the ranges that a task card gives.

A card's `held_out` and `held_out_large` are lists of blocks. A block says how some sizes are drawn; the others take
their default. Rules are taken in the order of the card's sizes, and their bounds are expressions over the sizes
before them:

    [low, high]               a whole number, with bounds included; a float where a bound is one (1.0, not 1)
    {even: [low, high]}       the same, rounded down to an even number
    {multiple_of_8: [low, high]}    the same, rounded down to a multiple of 8
    {multiple_of: [24, low, high]}  rounded down to a multiple of the first number
    {power_of_two: [0, 14]}   two to the power of a whole number
    {choose: [0, 1]}          one of these
    7 or 2 * N                this

Whole numbers are spread evenly over the orders of magnitude, so that tiny ones come up as often as large ones, and in
some cases all of them are multiples of a power of two, for which kernels tend to have a separate path. Floats are
spread in the same way where both bounds are positive and far apart, else evenly.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from cudamaster.core.expressions import Number, evaluate
from cudamaster.tasks.misfits import Misfits

if TYPE_CHECKING:
    from cudamaster.tasks.cards import Case, TaskCard

Bound = Number | str
Rule = Bound | list[Bound] | Mapping[str, list[Bound]]
Block = Mapping[str, Rule]

SMALL, LARGE = 4, 2  # cases of an evaluation
_LABEL = "held out: "
_TRIES = 8  # to draw a case that the card does not list
_GRAINS = (1, 1, 1, 8, 16, 64)  # of which the whole numbers of a case are multiples
_FAR_APART = 10  # times: floats between such bounds are spread over the orders of magnitude
_BITS = 31  # of a size that is passed as an int
_DIGITS = 4  # significant ones of a float, so that its label says it exactly


def draw(card: TaskCard, seed: int, *, largest: bool = False, count: int | None = None) -> tuple[Case, ...]:
    """Cases for an evaluation with this seed, none of them timed: small ones, or ones near the largest timed case.

    The same seed gives the same cases. Every block comes up where `count` is at least the number of blocks; sizes
    that the card lists, or that were drawn before, are left out, unless a range holds hardly any others. Raises
    Misfits, which names the field, the block and the size, where a block cannot be drawn from.
    """
    field, blocks = ("held_out_large", card.held_out_large) if largest else ("held_out", card.held_out)
    stream = random.Random(f"{card.name} {field} {seed}")
    first = _below(stream, len(blocks))
    known = {_passed(card, case) for case in card.cases}
    cases = []
    for k in range((LARGE if largest else SMALL) if count is None else count):
        index = (first + k) % len(blocks)
        for _ in range(_TRIES):
            try:
                case = card.case(dict(_sizes(card, blocks[index], stream)))
            except (ValueError, ArithmeticError) as error:
                what = ValueError(f"{field}, block {index + 1}: {error}")
                what.__cause__ = error
                raise Misfits.of(what, index) from error
            if _passed(card, case) not in known:
                break
        known.add(_passed(card, case))
        cases.append(case.model_copy(update={"label": f"{_LABEL}{case.label}", "held_out": True}))
    return tuple(cases)


def argument(case: Case) -> str:
    """A case as the harness takes it after --case: every size, to the last bit."""
    return ",".join(f"{name}={value:.17g}" for name, value in case.values.items())


def in_words(block: Block) -> str:
    """The ranges of a block for a person."""
    return ", ".join(f"{name} {_rule_in_words(rule)}" for name, rule in block.items())


def check_blocks(card: TaskCard, samples: int = 12) -> None:
    """Draw from the blocks of a card.

    Raises Misfits for a block that names what is no size or is in `fixed`, for a rule that makes no sense, for a case
    that has no value or no legal buffer, and for a scalar of the wrapper that is the same in every case and not in
    `fixed`.
    """
    misfits = Misfits()
    for field, blocks in (("held_out", card.held_out), ("held_out_large", card.held_out_large)):
        with misfits.at(field):
            _check_field(card, field, blocks, samples)
    misfits.end()


def _check_field(card: TaskCard, field: str, blocks: Sequence[Block], samples: int) -> None:
    if not blocks:
        raise ValueError(f"{field} is empty: give a block with the range of every scalar parameter")
    misfits = Misfits()
    for index, block in enumerate(blocks):
        with misfits.at(index):
            if unknown := [name for name in block if name not in card.sizes]:
                raise ValueError(f"{field}, block {index + 1} names {unknown}; sizes are {list(card.sizes)}")
            if fixed := [name for name in block if name in card.fixed]:
                raise ValueError(f"{field}, block {index + 1} varies {fixed}, which is among the sizes in fixed")
    misfits.end()
    cases = draw(card, 0, largest=field == "held_out_large", count=max(samples, 2 * len(blocks)))
    for case in cases:
        _check_case(card, field, case)
    for name in (p.name for p in card.parameters if p.is_number):
        with misfits.at():
            if name not in card.fixed and len({case.values[name] for case in cases}) == 1:
                raise ValueError(f"{field} leaves {name} at {cases[0].values[name]}: give it a range in some block")
    misfits.end()


def _check_case(card: TaskCard, field: str, case: Case) -> None:
    for name, value in case.values.items():
        if not math.isfinite(value):
            raise ValueError(f"{field}: {name} is {value} in case {case.label}")
        whole = all(isinstance(listed.values[name], int) for listed in card.cases)
        if whole and not isinstance(value, int):
            raise ValueError(f"{field}: {name} is a whole number in every case of the card, and {value} is not")
    try:
        card.check_case(case)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from error


def _passed(card: TaskCard, case: Case) -> tuple[Number, ...]:
    """The wrapper's arguments for a case."""
    return tuple(case.values[p.name] for p in card.parameters if p.is_number)


def _sizes(card: TaskCard, block: Block, stream: random.Random) -> Iterator[tuple[str, Number]]:
    """The sizes that a block names, drawn."""
    grain = _GRAINS[_below(stream, len(_GRAINS))]
    known: dict[str, Number] = {}
    for name, default in card.sizes.items():
        if name in block:
            try:
                known[name] = _value(block[name], known, stream, grain)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
            yield name, known[name]
        elif isinstance(default, str):
            known[name] = evaluate(default, known)
        elif default is not None:
            known[name] = default


def _value(rule: Rule, names: Mapping[str, Number], stream: random.Random, grain: int) -> Number:
    def bounds(low: Bound, high: Bound) -> tuple[Number, Number]:
        least, most = _number(low, names), _number(high, names)
        if not least <= most:
            raise ValueError(f"there is nothing between {low} and {high}" + _at(names))
        return least, most

    match rule:
        case int() | float() | str():
            return _number(rule, names)
        case [low, high]:
            least, most = bounds(low, high)
            if isinstance(least, int) and isinstance(most, int):
                return _whole(least, most, stream, grain)
            return _real(least, most, stream)
        case {"even": [low, high], **rest} if not rest:
            least, most = bounds(low, high)
            even = _whole(math.ceil(least / 2), math.floor(most / 2), stream, max(grain // 2, 1))
            return 2 * even
        case {"multiple_of_8": [low, high], **rest} if not rest:
            least, most = bounds(low, high)
            return 8 * _whole(math.ceil(least / 8), math.floor(most / 8), stream, max(grain // 8, 1))
        case {"multiple_of": [int(unit), low, high], **rest} if not rest and unit > 0:
            least, most = bounds(low, high)
            return unit * _whole(math.ceil(least / unit), math.floor(most / unit), stream, max(grain // unit, 1))
        case {"power_of_two": [low, high], **rest} if not rest:
            least, most = bounds(low, high)
            if not 0 <= least <= most < _BITS or isinstance(least, float) or isinstance(most, float):
                raise ValueError(f"the powers of two go from 0 to {_BITS - 1}, and the bounds are {low} and {high}")
            return int(2 ** (least + _below(stream, most - least + 1)))
        case {"choose": [_, *_] as choices, **rest} if not rest:
            return _number(choices[_below(stream, len(choices))], names)
    raise ValueError(
        f"{rule!r} is no rule: write [low, high], a number, an expression, or one of even, multiple_of_8, multiple_of, "
        "power_of_two and choose"
    )


def _at(names: Mapping[str, Number]) -> str:
    return f" at {', '.join(f'{name}={value:g}' for name, value in names.items())}" if names else ""


def _number(bound: Bound, names: Mapping[str, Number]) -> Number:
    return evaluate(bound, names) if isinstance(bound, str) else bound


def _whole(low: int, high: int, stream: random.Random, grain: int) -> int:
    shift = max(1 - low, 0)  # the logarithm needs numbers from 1 on
    start, end = math.log(low + shift), math.log(high + 1 + shift)
    number = min(max(int(math.exp(start + (end - start) * stream.random())) - shift, low), high)
    return number - number % grain if number - number % grain >= max(low, 1) else number


def _real(low: float, high: float, stream: random.Random) -> float:
    share = stream.random()
    spread = low > 0 and high > _FAR_APART * low
    number = low * (high / low) ** share if spread else low + (high - low) * share
    return min(max(float(f"{number:.{_DIGITS}g}"), low), high)


def _below(stream: random.Random, n: int) -> int:
    # random() is the one method whose numbers stay the same from one version of Python to the next.
    return int(stream.random() * n)


def _rule_in_words(rule: Rule) -> str:
    match rule:
        case [low, high]:
            return f"{low} .. {high}"
        case {"even": [low, high]}:
            return f"{low} .. {high}, even"
        case {"multiple_of_8": [low, high]}:
            return f"{low} .. {high}, a multiple of 8"
        case {"multiple_of": [unit, low, high]}:
            return f"{low} .. {high}, a multiple of {unit}"
        case {"power_of_two": [low, high]}:
            return f"2^{low} .. 2^{high}"
        case {"choose": choices}:
            return " or ".join(str(choice) for choice in choices)
    return f"= {rule}"
