"""What is wrong with a kernel, in the words of the log that a person and the Debug agent read.

First it says how many cases failed and which sizes distinguish them from those that passed. Then come the failing
cases: which elements, what they are and what they should be. This module does not judge.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from cudamaster.core.expressions import Number
from cudamaster.core.values import CaseVerdict, OutputCheck, Status

_SHOWN_WITH_ELEMENTS, _SHOWN, _LISTED = 2, 6, 12
_LONGEST_LABEL = 80
# The chance with which a rule may separate randomly chosen failing cases. It is small because there are many rules.
_ACCIDENT = 1 / 50


def clearest_first(failed: Sequence[CaseVerdict]) -> list[CaseVerdict]:
    """Failing cases. Those with some right elements come first, because they show which elements are wrong."""
    return sorted(failed, key=lambda v: not any(0 < o.mismatches < o.elements for o in v.outputs))


def explain(verdicts: Sequence[CaseVerdict], sizes: Mapping[str, Mapping[str, Number]]) -> str:
    """The log of cases, some of which failed.

    `sizes` are the values of every size by the case's label.
    """
    ran = [v for v in verdicts if v.status is not None]
    failed = clearest_first([v for v in ran if v.status is not Status.CORRECT])
    passed = [v for v in ran if v.status is Status.CORRECT]
    lines = [f"{len(failed)} of {len(ran)} cases failed."]
    given = {v.label: re.findall(r"(\w+)=", v.label) for v in ran}
    rules = sizes_that_fail(
        [sizes[v.label] for v in failed],
        [sizes[v.label] for v in passed],
        names=list(dict.fromkeys(name for names in given.values() for name in names)),
        usual=_usual([{k: x for k, x in sizes[label].items() if k not in names} for label, names in given.items()]),
    )
    lines += rules
    if not rules and passed and len(failed) > _SHOWN:
        labels = [_short(v.label) for v in failed[:_LISTED]]
        lines.append(f"Failed: {'; '.join(labels)}{' ...' if len(failed) > _LISTED else ''}")
    for position, verdict in enumerate(failed[:_SHOWN]):
        lines += _case(verdict, elements=position < _SHOWN_WITH_ELEMENTS)
    return "\n".join(lines)


def sizes_that_fail(
    failed: Sequence[Mapping[str, Number]],
    passed: Sequence[Mapping[str, Number]],
    names: Sequence[str],
    usual: Mapping[str, Number],
) -> list[str]:
    """Sentences on how one of the sizes `names` relates to which cases fail.

    `usual` are the values of sizes that most cases keep. There are no sentences if there are too few cases.
    """
    if len(passed) < 2 or not failed:
        return []
    for name, value in usual.items():
        alike = sum(sizes[name] != value for sizes in passed)
        chance = math.comb(len(failed) + alike, len(failed)) / math.comb(len(failed) + len(passed), len(failed))
        if name in names and all(s[name] != value for s in failed) and (alike == 0 or chance <= _ACCIDENT):
            which = f"{name} is not {_number(value)}, its usual value"
            others = f"so it is in {alike} of the {len(passed)} that passed" if alike else "in those that passed it is"
            return [f"In each of them {which}; {others}."]
    if 1 / math.comb(len(failed) + len(passed), len(failed)) > _ACCIDENT:
        return []
    rules = [_rule(name, [s[name] for s in failed], [s[name] for s in passed]) for name in names]
    found = " or else ".join(rule for rule in rules if rule is not None)
    return [f"They are those where {found}."] if found else []


def _rule(name: str, failed: Sequence[Number], passed: Sequence[Number]) -> str | None:
    if min(failed) > max(passed):
        return f"{name} >= {_number(min(failed))} (up to {_number(max(passed))} it passes)"
    if max(failed) < min(passed):
        return f"{name} <= {_number(max(failed))} (from {_number(min(passed))} on it passes)"
    if len(set(failed)) == 1 and failed[0] not in passed:
        return f"{name} is {_number(failed[0])}"
    if not all(isinstance(value, int) for value in (*failed, *passed)):
        return None
    for word, within, without in (("not a multiple", passed, failed), ("a multiple", failed, passed)):
        found = [m for m in _powers_of_two(1024) if _divides(m, within) and not any(v % m == 0 for v in without)]
        if found:
            others = f" (nor of {', '.join(map(str, found[1:]))})" if len(found) > 1 and without is failed else ""
            return f"{name} is {word} of {found[0]}{others}"
    return None


def _divides(divisor: int, values: Sequence[Number]) -> bool:
    return all(value % divisor == 0 for value in values)


def _powers_of_two(largest: int) -> Iterator[int]:
    power = 2
    while power <= largest:
        yield power
        power *= 2


def _usual(untouched: Sequence[Mapping[str, Number]]) -> dict[str, Number]:
    """Sizes that have the same value in every case that does not set them."""
    values: dict[str, set[Number]] = {}
    for sizes in untouched:
        for name, value in sizes.items():
            values.setdefault(name, set()).add(value)
    return {name: found.pop() for name, found in values.items() if len(found) == 1}


def _case(verdict: CaseVerdict, *, elements: bool) -> Iterator[str]:
    yield ""
    yield f"case {_short(verdict.label)}: {verdict.detail}"
    for output in verdict.outputs:
        if not output.mismatches:
            continue
        if output.bound > 0:
            yield (
                f"  {output.name}: worst error {output.worst_error:.1e}, allowed {output.bound:.1e}, the baseline's "
                f"{output.baseline_worst_error:.1e} (of the scale of an element)"
            )
        if elements:
            yield from _elements(output)


def _elements(output: OutputCheck) -> Iterator[str]:
    """A table of the first mismatches."""
    width = output.width

    def place(element: int) -> str:
        return f"{output.name}[{element // width}, {element % width}]" if width else f"{output.name}[{element}]"

    rows = [("element", "expected", "got", "allowed error")]
    rows += [(place(m.element), f"{m.expected:.9g}", f"{m.got:.9g}", f"{m.allowed:.3g}") for m in output.first]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    align: list[Callable[[str, int], str]] = [str.ljust, str.rjust, str.rjust, str.rjust]
    for row in rows:
        yield "    " + "  ".join(fit(cell, room) for cell, room, fit in zip(row, widths, align, strict=True))


def _number(value: Number) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else f"{label[:_LONGEST_LABEL]}..."
