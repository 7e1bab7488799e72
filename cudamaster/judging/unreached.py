"""Kernels of a candidate that no checked case launches, and small cases that launch them.

A candidate may choose its kernel by the sizes. On a device that only emulates, a check runs the verification cases, and
no call runs the largest timed ones: a kernel for them alone could be wrong. So the wrapper is called at all cases with
launches that are told and not executed, which takes milliseconds. For each kernel that only timed cases launch, the
lightest of them is run too, or if that takes too long the same with sizes halved as long as the kernel is launched.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudamaster.core.expressions import Number, evaluate
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.protocol import Observing
from cudamaster.judging.report_lines import Line, Skip, of
from cudamaster.judging.verdicts import parse
from cudamaster.tasks import held_out
from cudamaster.tasks.cards import Case, TaskCard

_LABEL = "for a kernel: "
_MOST_CASES = 6  # that are added to an evaluation
_ENOUGH = 1e7  # weight to which cases are made lighter, as far as they can be, ...
_MOST_WEIGHT = 1.1e9  # ... and that none is beyond, ...
_MOST_TOTAL = 2.2e9  # ... nor all of an evaluation together: 1e8 are up to a second, on two cores
_LIGHT = 1e6
_THRICE = 7e7  # to which a case is called on three sets of inputs, and else on one
_MOST_STEPS = 32  # runs that look for a smaller case, for one kernel
_CALL_LIMIT_S = 10.0  # of a call that executes no kernel
_LIMIT_S = 120.0  # of all calls of a run
_MOST_FAILING = 4  # calls behind which others are asked for once more

Kernel = str  # its place in the program
_Tell = Callable[[Sequence[Case]], list[frozenset[Kernel] | None]]


@dataclass(frozen=True)
class Reach:
    """Cases to be checked beside others, each with the lightest timed case of every kernel that it launches and none
    before it did; those of the kernels that none of them launches, which are in `left`; and timed cases of which nobody
    knows what they launch, as a call fails that finds no results of its kernels, or needs too much memory."""

    found: tuple[tuple[Case, tuple[Case, ...]], ...] = ()
    unreached: tuple[Case, ...] = ()
    unknown: tuple[Case, ...] = ()
    left: frozenset[Kernel] = frozenset()

    @property
    def light(self) -> list[Case]:
        """The cases that take little time under a memory checker."""
        return [case for case, _ in self.found if case.weight <= _LIGHT]

    def heavy(self, runs: Callable[[Case], bool]) -> tuple[list[Case], list[Case]]:
        """The others, without those whose kernels all have a timed case that runs anyway: those that are called
        on three sets of inputs, and those that are too heavy for that."""
        heavy = [case for case, timed in self.found if case.weight > _LIGHT and not all(map(runs, timed))]
        quick = [case for case in heavy if case.weight <= _THRICE]
        return quick, [case for case in heavy if case.weight > _THRICE]

    def notes(self, runs: Callable[[Case], bool]) -> tuple[str, ...]:
        """What remains unchecked, in sentences; timed cases that run are checked."""
        left = [case.label for case in self.unreached if not runs(case)]
        unknown = [case.label for case in self.unknown if not runs(case)]
        notes = []
        if left:
            kernels = "1 kernel" if len(left) == 1 else f"{len(left)} kernels"
            notes.append(f"{kernels} of {and_more(left)} ran in no check: no case was found that is light enough")
        if unknown:
            notes.append(
                f"kernels of {and_more(unknown)} may have run in no check: with none executed, "
                "the call fails or needs too much memory"
            )
        return tuple(notes)


def and_more(labels: Sequence[str]) -> str:
    """The first label, and how many others there are."""
    first, *others = dict.fromkeys(labels)
    return f"{first} and {len(others)} more" if others else first


def reach(card: TaskCard, device: Observing, judge: Path, worker: Path, checked: Sequence[Case]) -> Reach:
    """Light cases for the kernels of a built candidate that it launches at timed cases, and not at the `checked` ones.

    No case is heavier than `_MOST_WEIGHT`, and all together than `_MOST_TOTAL`. What the wrapper launches by what an
    earlier kernel found is not known here.
    """
    timed = sorted((case for case in card.cases if case.sweep), key=lambda case: case.weight)
    known: dict[str, frozenset[Kernel] | None] = {}  # kernels of one wrapper are often looked for at the same sizes

    def tell(cases: Sequence[Case]) -> list[frozenset[Kernel] | None]:
        new = [case for case in cases if held_out.argument(case) not in known]
        known.update(zip(map(held_out.argument, new), told(device, judge, worker, new), strict=True))
        return [known[held_out.argument(case)] for case in cases]

    launched = tell([*checked, *timed])
    seen = {kernel for kernels in launched[: len(checked)] for kernel in kernels or ()}
    lightest: dict[Kernel, tuple[Case, frozenset[Kernel]]] = {}
    for case, kernels in zip(timed, launched[len(checked) :], strict=True):
        for kernel in sorted((kernels or frozenset()) - seen):
            lightest.setdefault(kernel, (case, kernels or frozenset()))
    found: list[tuple[Case, tuple[Case, ...]]] = []
    left = _MOST_TOTAL
    for kernel, (case, kernels) in lightest.items():
        if kernel in seen or len(found) == _MOST_CASES:
            continue
        if (small := _smaller(card, tell, kernel, case, kernels)) is not None and small[0].weight <= left:
            one, all_there = small
            left -= one.weight
            found.append((one, tuple(lightest[new][0] for new in sorted(all_there - seen) if new in lightest)))
            seen |= all_there
    return Reach(
        tuple(found),
        tuple(case for kernel, (case, _) in lightest.items() if kernel not in seen),
        tuple(case for case, kernels in zip(timed, launched[len(checked) :], strict=True) if kernels is None),
        frozenset(lightest) - seen,
    )


def told(device: Observing, judge: Path, worker: Path, cases: Sequence[Case]) -> list[frozenset[Kernel] | None]:
    """The kernels that a built candidate would launch at each case; None where the call comes to no end.

    That ends the judge's run as well, so another one goes on with the next case, a few times.
    """
    found: list[frozenset[Kernel] | None] = []
    for _ in range(_MOST_FAILING + 1):
        if len(found) < len(cases):
            found += _told_until_failure(device, judge, worker, cases[len(found) :])
    return [*found, *[None] * (len(cases) - len(found))]


def _told_until_failure(
    device: Observing, judge: Path, worker: Path, cases: Sequence[Case]
) -> list[frozenset[Kernel] | None]:
    """The same up to the first call that comes to no end, that included."""
    request = JudgeRequest(
        judge=(str(judge),),
        candidate=(str(worker), "--in-place"),
        cases="none",
        labels=tuple(map(held_out.argument, cases)),
        seed=0,
        call_limit_s=_CALL_LIMIT_S,
        told=True,
    )
    with tempfile.TemporaryDirectory(prefix="cudamaster-") as folder, tempfile.TemporaryFile() as notes:
        report = Path(folder) / "report.jsonl"
        device.run_observed(request, report, _LIMIT_S, notes)
        notes.seek(0)
        text = notes.read().decode(errors="replace")
        skipped = {line.index for line in of(Skip, _lines(report))}
    calls = _calls(text)
    found: list[frozenset[Kernel] | None] = []
    for k in range(len(cases)):
        found.append(None if k in skipped else next(calls, None))
        if found[-1] is None and k not in skipped:
            break
    return found


def _lines(report: Path) -> list[Line]:
    return parse(report.read_text("utf-8", "replace")) if report.is_file() else []


def _calls(text: str) -> Iterator[frozenset[Kernel]]:
    """The kernels of each call that has come to its end: the executor says `call` before it and `end` behind it."""
    kernels: set[Kernel] = set()
    for line in text.splitlines():
        match line.split(" ", 2):
            case ["call"]:
                kernels = set()
            case ["kernel", place, *_]:
                kernels.add(place)
            case ["end"]:
                yield frozenset(kernels)


def _smaller(
    card: TaskCard, tell: _Tell, kernel: Kernel, case: Case, kernels: frozenset[Kernel]
) -> tuple[Case, frozenset[Kernel]] | None:
    """A case that launches the kernel and is light enough, with all kernels that it launches.

    From the timed case on, which launches `kernels`, sizes are halved in turn, and where no half will do, they become a
    quarter less.
    """
    taken = dict.fromkeys(_varied(card), 0)
    for _ in range(_MOST_STEPS):
        if case.weight <= _ENOUGH:
            break
        tried = [
            (quarters, name, less)
            for quarters in (2, 3)
            for name in taken
            if (less := _reduced(card, case, name, quarters)) is not None
        ]
        launched = tell([less for _, _, less in tried])
        able = [
            (quarters, taken[name], less.weight, name, less, each)
            for (quarters, name, less), each in zip(tried, launched, strict=True)
            if each is not None and kernel in each and less.weight < case.weight
        ]
        if not able:
            break
        *_, name, case, kernels = min(able, key=lambda one: one[:4])
        taken[name] += 1
    if case.weight > _MOST_WEIGHT:
        return None
    return case.model_copy(update={"label": f"{_LABEL}{case.label}", "held_out": True, "sweep": False}), kernels


def _varied(card: TaskCard) -> list[str]:
    """Whole sizes that cases choose."""
    return [
        name
        for name, default in card.sizes.items()
        if not isinstance(default, str)
        and name not in card.fixed
        and all(isinstance(case.values[name], int) for case in card.cases)
    ]


def _reduced(card: TaskCard, case: Case, name: str, quarters: int) -> Case | None:
    """The case with two or three quarters of one size, unless that is unlike the card's own cases."""
    less, rest = divmod(int(case.values[name]) * quarters, 4)
    given: dict[str, Number] = {}
    for size, default in card.sizes.items():
        derived = isinstance(default, str) and case.values[size] == evaluate(default, case.values)
        if not derived:
            given[size] = less if size == name else case.values[size]
    try:
        made = card.case(given)
        card.check_case(made)
    except (ValueError, ArithmeticError):
        return None
    return made if not rest and _is_like(card, made, name) else None


def _is_like(card: TaskCard, case: Case, name: str) -> bool:
    """Whether one size of a case has what all of the card's cases have in common, as far as that can be seen.

    It is no less than the least, a multiple of what they are multiples of, a power of two if they are, and on the same
    side of other sizes.
    """
    listed = [int(one.values[name]) for one in card.cases]
    value = int(case.values[name])
    unit = math.gcd(*listed)
    if value < max(min(listed), 1) or (unit and value % unit):
        return False
    if value.bit_count() != 1 and all(each.bit_count() == 1 for each in listed):
        return False
    for other in card.sizes:
        if all(one.values[name] <= one.values[other] for one in card.cases) and value > case.values[other]:
            return False
        if all(one.values[name] >= one.values[other] for one in card.cases) and value < case.values[other]:
            return False
    return True
