"""The outcomes of an audit as tables: what passed, what was refused and by which check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from cudamaster.audit.corpus import Expect, Kind
from cudamaster.audit.outcomes import Outcome, Result

COLUMNS = ("kind", "refused", "passed", "no cheat", "not here", "refused by")


def rows(kinds: Sequence[Kind], outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """One row of COLUMNS for each kind."""
    made = []
    for kind in kinds:
        mine = [one for one in outcomes if one.kind == kind.name]
        counts = Counter(one.result for one in mine)
        by = Counter(one.by for one in mine if one.result is Result.REFUSED)
        numbers = (counts[Result.REFUSED], counts[Result.PASSED], counts[Result.NO_CHEAT], counts[Result.UNSUPPORTED])
        checks = ", ".join(f"{name} {count}" for name, count in by.most_common())
        made.append((kind.title, *(str(number) if number else "" for number in numbers), checks))
    return made


def unexpected(kinds: Sequence[Kind], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Outcomes that should not be: a cheat that passed, one that gained, an honest candidate that was refused, or one
    that is right by the contract with wrong outputs."""
    expected = {kind.name: kind.expect for kind in kinds}
    return [one for one in outcomes if not one.as_expected(expected[one.kind])]


def sentence(kinds: Sequence[Kind], outcomes: Sequence[Outcome]) -> str:
    """The result in words."""
    expected = {kind.name: kind.expect for kind in kinds}
    tried = [one for one in outcomes if one.result in (Result.REFUSED, Result.PASSED)]
    dishonest = [one for one in tried if expected[one.kind] is Expect.REFUSED]
    harmless = [one for one in tried if expected[one.kind] is Expect.HARMLESS]
    honest = [one for one in tried if expected[one.kind] is Expect.RIGHT]
    passed = sum(one.result is Result.PASSED for one in dishonest)
    parts = [f"{len(dishonest) - passed} of {len(dishonest)} dishonest candidates refused"]
    if harmless:
        gained = sum(not one.as_expected(Expect.HARMLESS) for one in harmless)
        known = sum(one.score is not None for one in harmless)
        timed = f"{gained} of {known} timed ones gained" if known else "none timed"
        parts.append(f"{len(harmless)} that are right by the contract: {timed}")
    if honest:
        right = sum(one.result is Result.PASSED for one in honest)
        parts.append(f"{right} of {len(honest)} honest ones passed")
    return "; ".join(parts) + "."


def to_markdown(kinds: Sequence[Kind], outcomes: Sequence[Outcome], about: Mapping[str, str]) -> str:
    """The whole result for a file that is kept."""
    lines = ["# Audit", "", *(f"- {key}: {value}" for key, value in about.items()), "", sentence(kinds, outcomes), ""]
    lines += [
        '"Not here": the device cannot execute it. "No cheat": for that task it is nothing wrong, or there is nothing '
        "to do it with; the reasons are below. Counts are tasks times precisions.",
    ]
    for expect, heading in (
        (Expect.REFUSED, "Dishonest: has to be refused"),
        (Expect.HARMLESS, "Right by the contract: nothing may be gained"),
        (Expect.RIGHT, "Honest: has to pass"),
    ):
        some = [kind for kind in kinds if kind.expect is expect]
        lines += ["", f"## {heading}", "", f"| {' | '.join(COLUMNS)} |", "|---|--:|--:|--:|--:|---|"]
        lines += [f"| {' | '.join(row)} |" for row in rows(some, outcomes)]
    wrong = unexpected(kinds, outcomes)
    lines += ["", "## What should not be", ""]
    lines += [f"- {one.kind}, {one.task} {one.precision}: {describe(one)}" for one in wrong] or ["Nothing."]
    reasons: dict[tuple[str, str], int] = Counter(
        (one.kind, one.detail) for one in outcomes if one.result is Result.NO_CHEAT
    )
    lines += ["", "## No cheat, and why", ""]
    lines += [f"- {kind}: {reason} ({count})" for (kind, reason), count in sorted(reasons.items())]
    return "\n".join(lines) + "\n"


def describe(one: Outcome) -> str:
    """An outcome in words."""
    score = f", P = {one.score:.2f}" if one.score is not None else ""
    return f"{one.result}{score}{f' by {one.by}' if one.by else ''}: {one.detail}"
