"""From sources to the files of an export: what is collected, split, made into sets and written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudamaster.core.errors import RunFolderError
from cudamaster.training import formats
from cudamaster.training.choosing import Standing
from cudamaster.training.collecting import HELD_OUT, Collected
from cudamaster.training.kernels import JudgedKernel
from cudamaster.training.searches import Search
from cudamaster.training.sets import NAMES, Row, Sets, Wanted, make
from cudamaster.training.shingles import NEAR_COPY
from cudamaster.training.splitting import Split, split

_NO_ROWS: Mapping[str, list[Row]] = {name: [] for name in NAMES}


@dataclass(frozen=True)
class HoldOut:
    """What is split off: globs of names and categories, how similar a near copy is, and whether one is an error."""

    names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    similarity: float = NEAR_COPY
    refuse: bool = False


@dataclass(frozen=True)
class Exported:
    """What was written: rows of each set to train on and held out, kernels, tasks, and what is in no set and why."""

    folder: str
    rows: Mapping[str, int]
    held_out_rows: Mapping[str, int]
    kernels: int
    held_out_kernels: int
    judged: int
    tasks: tuple[str, ...]
    held_out_tasks: tuple[str, ...]
    left_out: Mapping[str, int]
    unread: tuple[str, ...]
    notes: tuple[str, ...]


def export(collected: Collected, folder: Path, wanted: Wanted, hold_out: HoldOut | None = None) -> Exported:
    """Write the sets of what was collected into a folder, which is empty or an earlier export.

    Raises RunFolderError if there is no kernel at all, UsageError for a folder of somebody else's, for what `split`
    refuses and where files cannot be written.
    """
    formats.must_be_ours(folder)
    if not collected.kernels:
        raise RunFolderError(
            f"There are no judged kernels. {' '.join(collected.unread)}".rstrip(),
            "Name runs, suites, saved reports or `playbook`; --tasks and --precision choose among what they hold.",
        )
    hold_out = hold_out or HoldOut()
    parts = split(
        collected.kernels,
        hold_out.names,
        hold_out.categories,
        threshold=hold_out.similarity,
        refuse=hold_out.refuse,
    )
    # Of all kernels: a kernel that another device refused is no example, whatever side it is on.
    standing = Standing(collected.kernels, modelled=wanted.modelled)
    searches, apart, left_out = _divided(collected.searches, parts)
    train = make(parts.train, searches, collected.hardware, wanted, standing)
    held_out = make(parts.held_out, apart, collected.hardware, wanted, standing) if parts.held_out else Sets()
    left_out.update(train.left_out + held_out.left_out)
    if double := collected.judged - len(collected.kernels):
        left_out["judged more than once: one verdict counts"] = double
    notes = tuple(dict.fromkeys((*collected.notes, *train.notes, *held_out.notes)))
    reasons = {why: count for why, count in left_out.most_common() if count}
    card = formats.card_text(
        train.rows,
        held_out.rows if parts.held_out else _NO_ROWS,
        [*parts.train, *parts.held_out],
        parts.tasks,
        wanted.form.value,
        reasons,
        (*collected.unread, *notes),
    )
    with formats.alone(folder):
        formats.write(folder, train.rows, parts.train)
        if parts.held_out:
            formats.write(folder / HELD_OUT, held_out.rows, parts.held_out)
        formats.write_rest(folder, collected.hardware, card, has_held_out=bool(parts.held_out))
    return Exported(
        folder=str(folder),
        rows={name: len(rows) for name, rows in train.rows.items()},
        held_out_rows={name: len(rows) for name, rows in held_out.rows.items()},
        kernels=len(parts.train),
        held_out_kernels=len(parts.held_out),
        judged=collected.judged,
        tasks=_tasks(parts.train),
        held_out_tasks=parts.tasks,
        left_out=reasons,
        unread=collected.unread,
        notes=notes,
    )


def _divided(searches: Sequence[Search], parts: Split) -> tuple[list[Search], list[Search], Counter[str]]:
    """Searches to train on, those of held-out tasks, and why kernels and searches are in neither."""
    left_out: Counter[str] = Counter()
    if not parts.held_out:
        return list(searches), [], left_out
    left_out["near copies of held-out kernels"] += len(parts.near)
    left_out["of a task whose baseline is a near copy of a held-out kernel"] += len(parts.beside)
    train = {(one.provenance.suite, one.candidate.id) for one in parts.train}
    apart = {(one.provenance.suite, one.candidate.id) for one in parts.held_out}
    sides: tuple[list[Search], list[Search]] = ([], [])
    for search in searches:
        suite = search.about.provenance.suite
        shown = {(suite, one) for one in (search.about.candidate.id, *search.kernels)}
        if shown <= apart:
            sides[1].append(search)
        elif not shown <= train:
            left_out["searches that show a near copy of a held-out kernel"] += 1
        elif search.shows_other_tasks:
            left_out["searches whose prompts show kernels of other tasks"] += 1
        else:
            sides[0].append(search)
    return *sides, left_out


def _tasks(kernels: Sequence[JudgedKernel]) -> tuple[str, ...]:
    return tuple(sorted({one.candidate.task for one in kernels}))
