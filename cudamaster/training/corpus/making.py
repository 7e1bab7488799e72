"""Makes a corpus: gathers pieces, has them described, finds context, and writes the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import cudamaster
from cudamaster.agents.describer import Description
from cudamaster.core.errors import UsageError
from cudamaster.models.protocol import Model
from cudamaster.runs.budget import Limits
from cudamaster.training.corpus import folder as corpus_folder
from cudamaster.training.corpus import held_out
from cudamaster.training.corpus.context import PASSAGES, RELATED, Contexts
from cudamaster.training.corpus.cutting import LONGEST
from cudamaster.training.corpus.describing import Described, describe_all
from cudamaster.training.corpus.gathering import NOT_ALLOWED, Entry, Gathered, gather
from cudamaster.training.corpus.licences import PERMISSIVE, Licence
from cudamaster.training.corpus.replies import Replies
from cudamaster.training.corpus.retrieval import passages
from cudamaster.training.corpus.rows import notice, row
from cudamaster.training.corpus.sources import SUFFIXES, LeftOut, must_be_there

NOT_WORTH, NO_REPLY, NOT_ASKED = "not worth learning from", "no usable reply", "not asked: the budget is spent"

_QUERY = 2_000  # characters of a piece that are looked up where it has no instruction


@dataclass(frozen=True)
class Wanted:
    """What a corpus is made of: licences, the longest piece in characters, documentation, and how much context."""

    folder: Path
    out: Path
    licences: Collection[str] = PERMISSIVE
    longest: int = LONGEST
    hold_out: bool = True
    docs: Path | None = None
    passages: int = PASSAGES
    related: int = RELATED


@dataclass(frozen=True)
class Asked:
    """Who describes the pieces: a model, its name with its settings, what may be spent, how many calls side by side."""

    model: Model
    identity: str
    limits: Limits
    most_calls: int | None = None
    jobs: int = 1


class Observer(Protocol):
    """Is told how far it is."""

    def reading(self, done: int, number: int) -> None:
        """So many files are cut."""

    def gathered(self, gathered: Gathered) -> None:
        """All pieces are there, and the model is asked now, if there is one."""

    def describing(self, done: int, number: int) -> None:
        """So many pieces are described."""

    def said(self, note: str) -> None:
        """A note for people."""


def make(wanted: Wanted, asked: Asked | None, observer: Observer | None = None) -> Mapping[str, Any]:
    """Make or continue the corpus in `wanted.out`, and return its numbers. Without `asked`, instructions are empty.

    A spent budget leaves a corpus of what was described until then; the numbers have the reason as `stopped`. Raises
    UsageError, RunFolderError, ModelError, and BudgetSpent if nothing at all was described.
    """
    reading = observer.reading if observer is not None else _nobody
    must_be_there(wanted.folder)
    if wanted.out.resolve() == wanted.folder.resolve():
        raise UsageError(f"{wanted.out} is the folder with the sources.", "Name another one with --out.")
    documents = passages(wanted.docs) if wanted.docs is not None and wanted.passages else []
    with corpus_folder.opened(wanted.out):
        gathered = gather(wanted.folder, wanted.out, wanted.licences, wanted.longest, wanted.hold_out,
                          reading)  # fmt: skip
        if not gathered.files:
            what = f"{wanted.folder} holds no file that ends in {', '.join(SUFFIXES)}."
            raise UsageError(what, "Name a folder with CUDA sources; links and hidden folders are not followed.")
        barred = Counter(each.note for each in gathered.left if each.why == NOT_ALLOWED)
        if barred and not gathered.entries:
            names, theirs = ", ".join(sorted(wanted.licences)), ", ".join(barred)
            what = f"{wanted.folder} has nothing under a licence that is allowed ({names}): its files' are {theirs}."
            raise UsageError(what, "Allow one of them with --licences, if you may use it.")
        if observer is not None:
            observer.gathered(gathered)
        described, calls = _described(wanted, asked, gathered.entries, observer)
        left = [*gathered.left, *_undescribed(gathered.entries, described, asked is not None)]
        taken = [
            (entry, described.descriptions.get(place))
            for place, entry in enumerate(gathered.entries)
            if asked is None or (place in described.descriptions and described.descriptions[place].worth_learning)
        ]
        said = [what.instruction if what is not None else "" for _, what in taken]
        tested = held_out.of_benchmark() if wanted.hold_out else None
        if described.stopped is not None and not described.descriptions:
            raise described.stopped
        contexts = Contexts([entry for entry, _ in taken], said, documents, wanted.docs, tested, wanted.passages,
                            wanted.related)  # fmt: skip
        tally = _Tally()
        corpus_folder.write_rows(wanted.out, tally.counted(taken, contexts, asked))
        numbers = _numbers(wanted, asked, gathered, tally, left, calls)
        if described.stopped is not None:
            numbers["stopped"] = described.stopped.reason
        corpus_folder.write_about(wanted.out, left, notice(tally.used.items()), numbers)
    return numbers


class _Tally:
    """Makes the rows one by one, and counts them: of all of them together there may be more than memory."""

    def __init__(self) -> None:
        self.rows = self.characters = 0
        self.by_licence: Counter[str] = Counter()
        self.in_context: Counter[str] = Counter()
        self.used: dict[str, Licence] = {}

    def counted(
        self, taken: Sequence[tuple[Entry, Description | None]], contexts: Contexts, asked: Asked | None
    ) -> Iterator[dict[str, Any]]:
        """The rows of these entries."""
        for place, (entry, what) in enumerate(taken):
            query = what.instruction if what is not None else ""
            found = contexts.of(place, query or " ".join((*entry.piece.names, entry.piece.code[:_QUERY])))
            made = row(entry, what, found, asked.model.name if asked is not None else "")
            self.rows += 1
            self.characters += len(made["text"])
            self.by_licence[entry.licence.name] += 1
            for each in found:
                # A document can have the name of a file.
                document = each.kind == "documentation"
                self.used[f"{each.path} (documentation)" if document else each.path] = each.licence
                self.in_context[each.licence.name] += document
            self.used[entry.piece.path] = entry.licence
            yield made


def _described(
    wanted: Wanted, asked: Asked | None, entries: Sequence[Entry], observer: Observer | None
) -> tuple[Described, dict[str, Any]]:
    """What the model says of the entries, and what that and earlier sessions cost."""
    if asked is None:
        return Described(), {"calls": 0, "calls_now": 0, "dollars": 0.0, "tokens": 0, "unpriced": 0}
    replies = Replies(wanted.out / corpus_folder.REPLIES, asked.limits, asked.most_calls)
    pieces = [entry.piece for entry in entries]
    show = observer.describing if observer is not None else _nobody
    say = observer.said if observer is not None else _nobody
    described = describe_all(pieces, asked.model, asked.identity, replies, asked.jobs, show, say)
    spent = replies.budget.spent
    return described, {
        "calls": spent.calls,
        "calls_now": replies.asked,
        "dollars": None if spent.unpriced else round(spent.dollars, 6),
        "tokens": spent.tokens,
        "unpriced": spent.unpriced,
    }


def _undescribed(entries: Sequence[Entry], described: Described, asked: bool) -> list[LeftOut]:
    left = []
    for place, entry in enumerate(entries if asked else ()):
        what = described.descriptions.get(place)
        why, note = NOT_ASKED, ""
        if what is not None and what.worth_learning:
            continue
        if what is not None:
            why, note = NOT_WORTH, what.reason
        elif place in described.failed:
            why, note = NO_REPLY, described.failed[place]
        piece = entry.piece
        left.append(LeftOut(piece.path, why, note, piece.lines[0][0], piece.lines[-1][1]))
    return left


def _numbers(
    wanted: Wanted,
    asked: Asked | None,
    gathered: Gathered,
    tally: _Tally,
    left: Sequence[LeftOut],
    calls: Mapping[str, Any],
) -> dict[str, Any]:
    """What was made, in numbers, as corpus.json has them."""
    return {
        "version": cudamaster.__version__,
        "folder": str(wanted.folder),
        "out": str(wanted.out),
        "files": gathered.files,
        "pieces": len(gathered.entries),
        "rows": tally.rows,
        "characters": tally.characters,
        "by_licence": dict(tally.by_licence.most_common()),
        "documentation_by_licence": dict(+tally.in_context),
        "left_out": dict(Counter(each.why for each in left).most_common()),
        "licences_left_out": dict(Counter(each.note for each in left if each.why == NOT_ALLOWED).most_common()),
        "licences": sorted(wanted.licences),
        "secrets_masked": sum({entry.piece.path: entry.secrets for entry in gathered.entries}.values()),
        "tasks_held_out": wanted.hold_out,
        "docs": str(wanted.docs) if wanted.docs is not None else None,
        "model": asked.model.name if asked is not None else "",
        **calls,
        "stopped": None,
    }


def _nobody(*told: object) -> None:
    """Tells nobody."""
