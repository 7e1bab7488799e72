"""The context of an instruction: passages of a documentation, and pieces of the corpus that are about the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cudamaster.training.corpus.gathering import Entry
from cudamaster.training.corpus.held_out import HeldOut, kernels_of
from cudamaster.training.corpus.licences import Licence, Licences
from cudamaster.training.corpus.retrieval import BM25, Passage
from cudamaster.training.shingles import Shingles, overlap, shingles

PASSAGES, RELATED = 3, 1
LONGEST_RELATED = 3_000  # characters; a longer piece is no context
GIVEN_AWAY = 0.5  # overlap from which on a text gives a piece away, so it is no context for it
_LOOKED_AT = 30  # of the best texts; the first can be of the piece's own file, or hold the piece itself


@dataclass(frozen=True)
class Found:
    """One part of a context: "documentation" or "code", where it is from, its lines, score by BM25 and licence."""

    kind: str
    path: str
    first: int
    last: int
    score: float
    licence: Licence
    text: str

    @property
    def shown(self) -> str:
        """As it stands in the context."""
        if self.kind == "code":
            return f"Related code, from {self.path}:\n\n```cuda\n{self.text.rstrip()}\n```"
        return f"From {self.path}:\n\n{self.text.strip()}"


class Contexts:
    """Finds the context of the pieces of one corpus."""

    def __init__(
        self,
        entries: Sequence[Entry],
        about: Sequence[str],
        documents: Sequence[Passage] = (),
        docs: Path | None = None,
        tested: HeldOut | None = None,
        passages: int = PASSAGES,
        related: int = RELATED,
    ) -> None:
        """`about` has what is said of each entry: its instruction. `documents` are passages of the folder `docs`.

        `tested` are kernels that no passage may hold.
        """
        self._entries = entries
        self._passages = passages
        self._related = related
        self._documents = [
            each for each in documents if tested is None or tested.copied_by(kernels_of(each.text)) is None
        ]
        self._shapes: dict[int, Shingles] = {}  # of passages that were looked at
        self._licences = Licences(docs) if docs is not None else None
        self._in_documents = BM25([f"{each.path}\n{each.text}" for each in self._documents])
        self._in_code = BM25(
            [f"{said}\n{' '.join(entry.piece.names)}\n{entry.piece.code}" if related else ""
             for entry, said in zip(entries, about, strict=True)]
        )  # fmt: skip

    def of(self, place: int, query: str) -> list[Found]:
        """The context of the entry at that place: no code of its own file, and nothing that has much of its code."""
        found: list[Found] = []
        asked = self._entries[place]
        if self._licences is not None:
            for at, score in self._in_documents.best(query, self._passages + _LOOKED_AT):
                passage = self._documents[at]
                if len(found) == self._passages:
                    break
                if overlap(self._shape(at), asked.shape) >= GIVEN_AWAY:
                    continue
                licence = self._licences.of(passage.path, ())
                found.append(Found("documentation", passage.path, passage.first, passage.last, round(score, 3),
                                   licence, passage.text))  # fmt: skip
        left = self._related
        for at, score in self._in_code.best(query, _LOOKED_AT) if left else []:
            entry = self._entries[at]
            piece = entry.piece
            if left == 0:
                break
            if piece.path == asked.piece.path or len(piece.code) > LONGEST_RELATED:
                continue
            if overlap(entry.shape, asked.shape) >= GIVEN_AWAY:
                continue
            found.append(Found("code", piece.path, piece.lines[0][0], piece.lines[-1][1], round(score, 3),
                               entry.licence, piece.code))  # fmt: skip
            left -= 1
        return found

    def _shape(self, at: int) -> Shingles:
        if at not in self._shapes:
            self._shapes[at] = shingles(self._documents[at].text)
        return self._shapes[at]
