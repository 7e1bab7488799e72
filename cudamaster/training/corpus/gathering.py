"""From a folder to the pieces that may be used: found, licensed, without secrets, cut, and none twice."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from cudamaster.training.corpus import held_out
from cudamaster.training.corpus.comments import comments_of
from cudamaster.training.corpus.cutting import LONGEST, Piece, cut
from cudamaster.training.corpus.licences import PERMISSIVE, Licence, Licences, allowed
from cudamaster.training.corpus.masking import masked
from cudamaster.training.corpus.near import Index
from cudamaster.training.corpus.sources import LeftOut, SourceFile, find
from cudamaster.training.shingles import Shingles, shingles

COPY, OF_BENCHMARK = "near copy of another piece", "near copy of a kernel of the benchmark"
NOT_ALLOWED = "licence is not allowed"


@dataclass(frozen=True)
class Entry:
    """A piece that may be used, and where it is from; `secrets` is how many were masked in its file."""

    piece: Piece
    sha256: str
    licence: Licence
    shape: Shingles = field(repr=False)
    secrets: int = 0


@dataclass(frozen=True)
class Gathered:
    """The pieces of a folder in their order, how many files they were looked for in, and what was left out."""

    entries: tuple[Entry, ...]
    files: int
    left: tuple[LeftOut, ...]


def gather(
    folder: Path,
    out: Path | None = None,
    licences: Collection[str] = PERMISSIVE,
    longest: int = LONGEST,
    hold_out: bool = True,
    show: Callable[[int, int], None] = lambda done, number: None,
) -> Gathered:
    """All pieces of `folder` under these licences, of at most `longest` characters. Raises UsageError.

    `out`, if it lies in the folder, is not looked into. With `hold_out`, near copies of the benchmark's kernels are
    left out.
    """
    files, left = find(folder, out)
    seen = len(files) + len(left)
    of_files = Licences(folder)
    tested = held_out.of_benchmark() if hold_out else None
    index = Index()
    entries: list[Entry] = []
    for done, source in enumerate(files):
        show(done, len(files))
        comments = comments_of(source.text)
        licence = of_files.of(source.path, comments)
        if not allowed(licence.name, licences):
            left.append(LeftOut(source.path, NOT_ALLOWED, licence.name))
            continue
        text, secrets = masked(source.text)
        pieces, not_cut = cut(SourceFile(source.path, text, source.sha256), licence.hidden, longest)
        left += not_cut
        for piece in pieces:
            first, last = piece.lines[0][0], piece.lines[-1][1]
            if tested is not None and (copied := tested.copied_by(piece.functions)) is not None:
                left.append(LeftOut(source.path, OF_BENCHMARK, copied, first, last))
                continue
            shape = shingles(piece.code)
            if (nearest := index.nearest(shape)) is not None:
                left.append(LeftOut(source.path, COPY, f"{nearest[0]} ({nearest[1]:.2f})", first, last))
                continue
            index.add(f"{source.path}:{first}-{last}", shape)
            entries.append(Entry(piece, source.sha256, licence, shape, secrets))
    show(len(files), len(files))
    return Gathered(tuple(entries), seen, tuple(left))
