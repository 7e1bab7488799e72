"""A database of tricks: kernels that seemed fast and were none, as known and as a training run refuses them.

The CUDA-L1 paper keeps such a database and shows its reward checking model the three most similar cases (section 3.2).
Here it has three parts: the shipped file tricks.yaml, the dishonest kinds of the audit's corpus, which are written from
it when they are asked for, and a file of one's own to which every kernel that a reviewer calls a trick is added.

The file is a list in YAML, which people can read, correct and merge. An entry's id is made from its code, without
comments, names and numbers, so two machines that refuse the same kernel add the same entry. An entry that is there
twice counts once, the first time.
"""

from __future__ import annotations

import difflib
import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml

from cudamaster.audit import corpus, regions
from cudamaster.audit.corpus import Expect, Kind
from cudamaster.core import writing, yaml_text
from cudamaster.core.errors import UsageError, one_line, unwritable
from cudamaster.core.values import BENCHMARK_PRECISIONS, content_hash
from cudamaster.tasks import cards
from cudamaster.training import shingles

SHIPPED = Path(__file__).parent / "tricks.yaml"
_TASKS = ("dot_product", "spmv_csr", "layer_norm", "stencil_2d")  # on which kinds of the corpus are written
_BY_TEXT = ("process", "language")  # groups whose kinds the guards refuse by their text: no reviewer sees any of them
_FIX = "Correct it, or give another file of tricks."


@dataclass(frozen=True)
class Trick:
    """A trick: what it is called, what it does, its code, how it was refused, and where it is from."""

    name: str
    what: str
    code: str
    refused: str
    source: str

    @cached_property
    def id(self) -> str:
        """Hash of the normalised code (shingles.py); without code, of name and description."""
        return shingles.fingerprint(self.code) if self.shingles else content_hash(self.name, self.what)

    @cached_property
    def shingles(self) -> shingles.Shingles:
        """Those of the code."""
        return shingles.shingles(self.code)


@dataclass(frozen=True)
class Similar:
    """A trick, and how similar to a kernel it is: 0 to 1."""

    trick: Trick
    similarity: float


class TrickDatabase:
    """The known tricks, and those of a file, to which more can be added. Several processes may use one file."""

    def __init__(self, path: Path) -> None:
        """The file may be missing: it is made by the first `add`. Raises UsageError for one that cannot be used."""
        self.path = path
        self._own: dict[str, Trick] = {}
        self._weights: dict[int, float] = {}
        self._read()

    @property
    def own(self) -> tuple[Trick, ...]:
        """Those of the file, in its order."""
        return tuple(self._own.values())

    @property
    def tricks(self) -> tuple[Trick, ...]:
        """All of them, the shipped ones first; none twice."""
        return tuple(_once((*shipped(), *self.own)).values())

    def add(self, trick: Trick) -> bool:
        """Add a trick to the file, unless it is known. A kill leaves the file as it was or with the whole entry.

        Returns whether it was added. Raises UsageError and DeviceError for a file that cannot be read or written.
        """
        return bool(self._add([trick]))

    def merge(self, other: Path) -> int:
        """Add what another machine's file has and this one lacks; returns how many that are. Raises as `add`."""
        return len(self._add(read(other)))

    def similar(self, code: str, count: int = 3) -> tuple[Similar, ...]:
        """The tricks that a kernel is most similar to, the most similar first; only such as share something with it.

        What few tricks have weighs more than what most have. So a trick of some lines is found in a long kernel.
        """
        its, tricks = shingles.shingles(code), self.tricks
        weights = self._weights or shingles.rarity([trick.shingles for trick in tricks])
        self._weights = weights  # until there are more
        found = [Similar(trick, shingles.cosine(its, trick.shingles, weights)) for trick in tricks]
        best = sorted(found, key=lambda one: (-one.similarity, one.trick.id))[:count]
        return tuple(one for one in best if one.similarity > 0)

    def refused_like(self, code: str) -> Trick | None:
        """The trick of the file that a kernel is but for names, numbers and comments, or None."""
        return self._own.get(shingles.fingerprint(code))

    def _add(self, more: Sequence[Trick]) -> list[Trick]:
        with _locked(self.path):
            self._read()  # another process may have added to it
            known = {trick.id for trick in self.tricks}
            new = [trick for id_, trick in _once(map(_layable, more)).items() if id_ not in known]
            if new:
                _append(self.path, self.own, new)
                self._read()
        return new

    def _read(self) -> None:
        self._own = _once(read(self.path)) if self.path.exists() else {}
        self._weights = {}


def _once(tricks: Iterable[Trick]) -> dict[str, Trick]:
    """Tricks by their ids; of two with one id the first."""
    found: dict[str, Trick] = {}
    for trick in tricks:
        found.setdefault(trick.id, trick)
    return found


def read(path: Path) -> tuple[Trick, ...]:
    """The tricks of a file, as they stand there. Raises UsageError for what is no such file."""
    try:
        return _parsed(path, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {one_line(error)}.", _FIX) from error


def _parsed(path: Path, text: str) -> tuple[Trick, ...]:
    try:
        entries = yaml_text.load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {one_line(error)}.", _FIX) from error
    if not isinstance(entries, list | None):
        raise UsageError(f"{path} is no list of tricks.", _FIX)
    return tuple(_trick(path, number, entry) for number, entry in enumerate(entries or (), 1))


def _trick(path: Path, number: int, entry: Any) -> Trick:
    names = Trick.__dataclass_fields__
    if not isinstance(entry, dict) or not all(isinstance(text, str) for text in entry.values()):
        raise UsageError(f"Entry {number} of {path} is no trick: its fields are {', '.join(names)}, all texts.", _FIX)
    for what, wrong in (("lacks", names.keys() - entry), ("has an unknown field", entry.keys() - names - {"id"})):
        if wrong:
            raise UsageError(f"Entry {number} of {path} {what}: {', '.join(sorted(wrong))}.", _FIX)
    return Trick(**{name: entry[name].strip("\n") for name in names})


@cache
def shipped() -> tuple[Trick, ...]:
    """The tricks that come with the program: those of tricks.yaml, and dishonest kinds of the audit's corpus."""
    kinds = [kind for kind in corpus.load() if kind.expect is Expect.REFUSED and kind.group not in _BY_TEXT]
    return (*read(SHIPPED), *map(of_kind, kinds))


def of_kind(kind: Kind) -> Trick:
    """A kind of the audit's corpus as a trick. Its code is what it adds to the baseline of a task that it fits."""
    source = f"the audit's corpus, {kind.group}"
    return Trick(kind.name, kind.title, _added(kind), "the harness, in every audit", source)


def _added(kind: Kind) -> str:
    plain = Kind(name="plain", title="the baseline")
    for task in _TASKS:
        card = cards.load(task)
        timed = [case for case in card.cases if case.sweep]
        heaviest = [max(timed, key=lambda case: case.weight)]
        for precision in [kind.precision] if kind.precision else BENCHMARK_PRECISIONS:
            text = regions.region(kind, card, precision, heaviest)
            baseline = regions.region(plain, card, precision, heaviest)
            if isinstance(text, str) and isinstance(baseline, str):
                return _difference(baseline, text)
    return ""


def _difference(before: str, after: str) -> str:
    """The lines of a text that another lacks."""
    old, new = before.splitlines(), after.splitlines()
    changes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    pieces = ["\n".join(new[low:high]) for what, _, _, low, high in changes if what in ("insert", "replace")]
    return "\n".join(piece for piece in pieces if piece.strip())


def _append(path: Path, own: Sequence[Trick], new: Sequence[Trick]) -> None:
    """Write a file anew with more entries behind what is there: comments and order stay."""
    old = path.read_text(encoding="utf-8") if own else ""
    text = f"{old.rstrip()}\n\n{_text(new)}" if own else _text(new)
    try:
        laid = _once(_parsed(path, text)).keys() == _once((*own, *new)).keys()
    except UsageError:
        laid = False
    if not laid:  # the file is laid out in a way that nothing can be appended to
        text = _text((*own, *new))
    try:
        with writing.whole(path) as staged, staged.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(path, error, "Give another file of tricks.") from error


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are read."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, "|" if "\n" in text else None),
)


def _text(tricks: Sequence[Trick]) -> str:
    entries = [{"id": trick.id, **asdict(trick)} for trick in tricks]
    return "\n".join(
        yaml.dump([entry], Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110) for entry in entries
    )


def _layable(trick: Trick) -> Trick:
    """A trick whose texts come back from YAML as they are, its code line by line: no tabs, no blanks at line ends."""
    texts = {name: text.encode("utf-8", "replace").decode().strip("\n") for name, text in asdict(trick).items()}
    code = "\n".join(line.expandtabs(4).rstrip(" ") for line in texts["code"].split("\n"))
    return Trick(**{**texts, "code": code.strip("\n")})


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The one process and thread that writes to a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise unwritable(path, error, "Give another file of tricks.") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
