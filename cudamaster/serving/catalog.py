"""The tasks that a server offers, and what whoever writes a kernel has to know of one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from cudamaster.agents.prompts import clip, render
from cudamaster.core.errors import CardError, UsageError, nearest
from cudamaster.strategies.frame import brief_of
from cudamaster.tasks import cards, finding, harness, held_out, hgemm, task_suites, truth
from cudamaster.tasks.cards import TaskCard
from cudamaster.tasks.task_suites import TaskSuite
from cudamaster.workbench.evaluation import Workbench

_NAME = re.compile(r"[A-Za-z0-9_.+-]{1,200}")
_MOST_LISTED = 200
_TEXT_LIMIT = 16_000


class Catalog:
    """The tasks of one suite, or of all. They are looked for in each call: a user may add one meanwhile."""

    def __init__(self, suite: str | None) -> None:
        """`suite` is a name or a folder. Raises UsageError for an unknown one."""
        self._suite = suite
        self.suites()

    def suites(self) -> tuple[TaskSuite, ...]:
        """The suites that are offered."""
        return task_suites.every() if self._suite is None else (task_suites.named(self._suite),)

    def load(self, name: str) -> TaskCard:
        """The card of a task by its name alone. Raises UsageError for an unknown one, CardError for a wrong card.

        The path of a card is refused, because its reference may be a program.
        """
        if not _NAME.fullmatch(name) or name.endswith(".yaml"):
            raise UsageError(f"{name[:200]!r} is no name of a task.", "list_tasks gives the names.")
        if self._suite is None:
            return finding.load(name)
        (suite,) = self.suites()
        if hgemm.is_meant(suite.name):
            if (card := finding.load(name)).suite == suite.name:
                return card
            raise UsageError(f"{name} is no task of {suite.name}.", f"Take a name such as {hgemm.EXAMPLE}.")
        sources = dict(zip(suite.tasks, suite.sources, strict=True))
        if name not in sources:
            fix = nearest(name, sources, "list_tasks gives the names.")
            raise UsageError(f"The suite {suite.name} has no task {name!r}.", fix)
        return finding.load(sources[name])

    def listed(self, suite: str | None, category: str | None) -> dict[str, Any]:
        """The tasks of each suite by category, one short line for each."""
        suites = {each.name: each for each in self.suites()}
        if suite is not None and suite not in suites:
            fix = nearest(suite, suites, f"There are {', '.join(suites)}.")
            raise UsageError(f"There is no suite {suite[:200]!r}.", fix)
        found: dict[str, dict[str, list[str]]] = {}
        notes: list[str] = []
        for each in [suites[suite]] if suite is not None else suites.values():
            if hgemm.is_meant(each.name):
                notes.append(f"{each.name}: {each.title}; one task for every shape, named as {hgemm.EXAMPLE}.")
                continue
            found[each.name] = {}
            for card in self._cards(each, notes):
                if category is None or card.category == category:
                    found[each.name].setdefault(card.category, []).append(f"{card.name}: {_short(card)}")
        categories = sorted({name for of in found.values() for name in of})
        if category is not None and not categories:
            every = sorted({card.category for each in suites.values() for card in self._cards(each, [])})
            raise UsageError(f"No task is of the category {category[:200]!r}.", f"There are {', '.join(every)}.")
        return {"suites": found, "notes": notes}

    def _cards(self, suite: TaskSuite, notes: list[str]) -> Iterator[TaskCard]:
        sources = () if hgemm.is_meant(suite.name) else suite.sources
        for source in sources[:_MOST_LISTED]:
            try:
                yield cards.load(source)
            except CardError as error:
                notes.append(str(error))
        if len(sources) > _MOST_LISTED:
            notes.append(f"{suite.name} has {len(sources)} tasks, of which {_MOST_LISTED} are listed.")


def described(bench: Workbench, *, with_baseline: bool) -> dict[str, Any]:
    """What a kernel of a task has to do, to declare and to keep, and how it is tried."""
    card, one = bench.card, bench.precision
    brief = brief_of(bench)
    baseline = card.baseline(one) if card.is_eager else bench.baseline.code
    said = {
        "task": card.name,
        "precision": one.value,
        "precisions": [each.value for each in card.precisions],
        "suite": card.suite,
        "category": card.category,
        "what_it_computes": brief.description,
        "declare": f"{brief.declaration};",
        "tolerance": {p.name: truth.bound(card, p) for p in card.parameters if p.role in ("output", "inout")},
        "checked_sizes": [case.label for case in card.cases if not case.sweep],
        "drawn_sizes": [f"small: {held_out.in_words(block)}" for block in card.held_out]
        + [f"large: {held_out.in_words(block)}" for block in card.held_out_large],
        "rules": render("_contract.md.j2", brief=brief),
        "device": f"{brief.hardware.name}{f'; times are {brief.hardware.mark}' if brief.hardware.mark else ''}",
        "default_command": brief.default_command,
        "score": "P, the speedup over the baseline at the timed sizes, weighted by their work. Whole calls count.",
        "start_from": harness.skeleton(card, one),
    }
    return {**said, "baseline": clip(baseline, _TEXT_LIMIT)} if with_baseline else said


def _short(card: TaskCard) -> str:
    """The first sentence of what it computes."""
    first = re.split(r"(?<=[.;:])\s", " ".join(card.summary.split()), maxsplit=1)[0].rstrip(".;:")
    return first if len(first) <= 90 else f"{first[:87]}..."
