"""Cases beside the timed ones, derived from them: small ones at odd sizes, and the ranges of held-out cases."""

from __future__ import annotations

import math
from collections.abc import Mapping

from cudamaster.core.expressions import Number, evaluate
from cudamaster.making.understanding import Size, Understood
from cudamaster.making.wishes import Case
from cudamaster.tasks.held_out import Block, Rule

# Sizes of small cases: tiny, and about the sizes of warps and blocks, by the number of sizes that are free.
_SMALL = {1: (1, 2, 3, 7, 31, 33, 127, 257, 1000, 4099), 2: (1, 3, 7, 33, 129, 257), 3: (1, 3, 7, 33, 65)}
_SMALL_OF_MORE = (1, 2, 5, 9)
_MOST_HELD_OUT = {1: 30_000, 2: 300, 3: 100}  # of a size, so that a small held-out case stays small
_MOST_HELD_OUT_OF_MORE = 24
_NEAR = (7, 10)  # large held-out cases begin at this share of the largest timed size, where one is free
_NEARER = (17, 20)  # where several are
_STEPS = 5  # values of a range among small cases


def check_cases(task: Understood) -> tuple[Case, ...]:
    """The cases to check that the user named, else small ones at odd sizes."""
    if task.check_cases:
        return task.check_cases
    free = [size for size in task.sizes if size.kind == "free"]
    small = _SMALL.get(len(free), _SMALL_OF_MORE)
    found: list[dict[str, Number]] = []
    for k in range(max(len(small), _STEPS) if free else _STEPS):
        case: dict[str, Number] = {}
        place = 0
        for size in task.sizes:
            if size.kind == "free":
                # Each size walks through the list at another place, so that wide, tall and square ones come up.
                case[size.name] = -(-small[(k + 2 * place) % len(small)] // size.multiple) * size.multiple
                place += 1
            elif size.kind == "fixed":
                values = _timed(task, size)
                case[size.name] = values[k % len(values)]
            else:
                case[size.name] = _step(size, case, k % _STEPS)
        if case not in found:
            found.append(case)
    return tuple(found)


def held_out(task: Understood) -> tuple[Block, ...]:
    """Ranges of small cases."""
    free = sum(size.kind == "free" for size in task.sizes)
    most = _MOST_HELD_OUT.get(free, _MOST_HELD_OUT_OF_MORE)
    return (_block(task, {size.name: (1, most) for size in task.sizes}),)


def held_out_large(task: Understood) -> tuple[Block, ...]:
    """Ranges of cases near the largest timed one."""
    largest = max(task.cases, key=lambda case: math.prod(max(value, 1) for value in case.values()))
    free = [size.name for size in task.sizes if size.kind == "free"]
    share, of = _NEAR if len(free) == 1 else _NEARER
    near = {name: (int(largest[name]) * share // of, int(largest[name])) for name in free}
    return (_block(task, near),)


def _block(task: Understood, reach: Mapping[str, tuple[int, int]]) -> Block:
    """A block of held-out cases; `reach` are the bounds of sizes that are free."""
    block: dict[str, Rule] = {}
    for size in task.sizes:
        if size.kind == "fixed":
            if len(values := _timed(task, size)) > 1:
                block[size.name] = {"choose": list(values)}
            continue
        low, high = (size.low, size.high) if size.kind == "range" else map(str, reach[size.name])
        bounds = [_bound(low, size), _bound(high, size)]
        if size.kind == "free":
            # A size of 1 is drawn as 1 or 2: what a wrapper gets has to vary.
            bounds = [max(int(low), size.multiple), max(int(high), 2 * size.multiple)]
        block[size.name] = bounds if size.multiple == 1 else {"multiple_of": [size.multiple, *bounds]}
    return block


def _bound(text: str, size: Size) -> Number | str:
    """A bound as a card has it: a number where it is one."""
    if size.depends:
        return text
    number = evaluate(text, {})
    return float(number) if size.real else number


def _timed(task: Understood, size: Size) -> list[Number]:
    return sorted({case[size.name] for case in task.cases if size.name in case})


def _step(size: Size, case: Mapping[str, Number], k: int) -> Number:
    """A value of a range: its ends first, then what lies between."""
    low, high = evaluate(size.low, case), evaluate(size.high, case)
    share = (0, 1, 0.5, 0.25, 0.75)[k]
    if size.real:
        return float(f"{low + (high - low) * share:.4g}")
    number = int(low + (high - low) * share)
    return max(number - number % size.multiple, -(-int(low) // size.multiple) * size.multiple)
