"""Collects judged kernels from run folders, suites, saved results and earlier exports. Nothing that is read is changed.

One candidate on one GPU model is one kernel, however often it was judged, and one verdict counts (`the_one`):

1. A refusal. A race or a wrong sum in one input of a hundred shows now and then, so a kernel that was refused once is
   refused.
2. Of those that passed, one with all of its cases timed.
3. Of these, the one whose run began last: it is by the newest version of the judge. Never the fastest, which would be
   the luckiest. Of one run and a report on it, the run's, which has the raw times.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from cudamaster.core.errors import CudaMasterError, UsageError, nearest
from cudamaster.core.records import RecordError, from_json
from cudamaster.core.values import Hardware, Precision
from cudamaster.report import kept as kept_results
from cudamaster.report import saved
from cudamaster.runs.record import FORMAT, read_json
from cudamaster.suites import folder as suitefolder
from cudamaster.suites.folder import State
from cudamaster.training import kept
from cudamaster.training.choosing import is_refused
from cudamaster.training.kernels import JudgedKernel, gpu_of
from cudamaster.training.searches import Search, read_run

KERNELS, HARDWARE = "kernels.jsonl", "hardware.json"
HELD_OUT = "held-out"
_DEEPEST = 4  # folders within folders
_NAME_THEM = "Name run folders, suites, saved reports, exports, or folders of those, or `playbook`."


@dataclass(frozen=True)
class Collected:
    """What sources hold: each kernel once, the searches, the devices by the names of their GPUs, and what to tell.

    `judged` counts verdicts, so `judged - len(kernels)` are of a kernel that has another one. `unread` are reasons,
    each with its path, why something is not in it at all; `notes` say what is unusual about what is.
    """

    kernels: tuple[JudgedKernel, ...]
    searches: tuple[Search, ...] = ()
    hardware: Mapping[str, Hardware] = field(default_factory=dict)
    judged: int = 0
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def collect(sources: Sequence[Path]) -> list[JudgedKernel]:
    """Every judged kernel of the sources, right or refused, each once. Raises UsageError as `gather` does.

    What cannot be read is left out without a word here; `gather` says what and why.
    """
    return list(gather(sources).kernels)


def gather(
    sources: Sequence[Path],
    *,
    tasks: Sequence[str] = (),
    precisions: Sequence[Precision] = tuple(Precision),
    more: Sequence[JudgedKernel] = (),
    devices: Mapping[str, Hardware] | None = None,
    unread: Sequence[str] = (),
) -> Collected:
    """Everything that the sources hold of the tasks (globs; all without any) and precisions.

    `more` are kernels from elsewhere, judged on `devices`, and `unread` is what could not be had there. Raises
    UsageError for a source that is not there, and for a glob that no kernel's task matches.
    """
    for source in sources:
        if not source.exists():
            raise UsageError(f"There is no {source}.", _NAME_THEM)
    reader = _Reader()
    reader.unread += unread
    for source in sources:
        reader.take(source)
    reader.kernels += more
    reader.hardware.update(devices or {})
    known = sorted({one.candidate.task for one in reader.kernels})
    for pattern in tasks:
        if known and not any(fnmatch(name, pattern) for name in known):
            fix = nearest(pattern, known, f"Their tasks are {', '.join(known[:20])}.")
            raise UsageError(f"The sources have no kernel of a task {pattern!r}.", fix)

    def wanted(kernel: JudgedKernel) -> bool:
        named = not tasks or any(fnmatch(kernel.candidate.task, pattern) for pattern in tasks)
        return named and kernel.candidate.precision in precisions

    chosen = [kernel for kernel in reader.kernels if wanted(kernel)]
    kernels = merged(chosen)
    return Collected(
        kernels=tuple(kernels),
        searches=tuple(search for search in reader.searches if wanted(search.about)),
        hardware=reader.hardware,
        judged=len(chosen),
        unread=tuple(dict.fromkeys(reader.unread)),
        notes=tuple(dict.fromkeys(reader.notes)),
    )


def merged(kernels: Iterable[JudgedKernel]) -> list[JudgedKernel]:
    """Each kernel once, in the order of their first verdicts."""
    by_kernel: dict[tuple[str, str, str], list[JudgedKernel]] = {}
    for one in kernels:
        by_kernel.setdefault((one.provenance.suite, one.candidate.id, one.gpu), []).append(one)
    return [the_one(verdicts) for verdicts in by_kernel.values()]


def the_one(verdicts: Sequence[JudgedKernel]) -> JudgedKernel:
    """The verdict that counts of several on one kernel, by the rules at the top of this module."""

    def worth(one: JudgedKernel) -> tuple[bool, bool, bool, str, bool]:
        verdict = one.verdict
        whole = verdict.complete and verdict.score is not None
        raw = any(case.timing is not None for case in verdict.cases)
        return is_refused(one), verdict.correct, whole, one.provenance.started, raw

    return max(reversed(verdicts), key=worth)


def read_kernels(path: Path) -> list[JudgedKernel]:
    """The kernels in a file of JSON lines, or in the kernels.jsonl of a folder.

    This is how a program reads what `cudamaster export` wrote, with every raw time. Raises UsageError, which names the
    line.
    """
    file = path / KERNELS if path.is_dir() else path
    kernels = []
    try:
        # Bytes: a text has more line ends, which may stand in a kernel's comment.
        for number, line in enumerate(file.read_bytes().splitlines(), 1):
            try:
                kernels.append(JudgedKernel.from_json(json.loads(line)))
            except (ValueError, RecursionError) as error:
                what = f"Line {number} of {file} holds no judged kernel: {error}."
                raise UsageError(what, "Export it again from its sources.") from error
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror or error}.", "Name a file that `cudamaster export` wrote."
        ) from error
    return kernels


class _Reader:
    """What was found so far. A folder that is reached twice is read once."""

    def __init__(self) -> None:
        self.kernels: list[JudgedKernel] = []
        self.searches: list[Search] = []
        self.hardware: dict[str, Hardware] = {}
        self.unread: list[str] = []
        self.notes: list[str] = []
        self._seen: set[Path] = set()

    def take(self, source: Path) -> None:
        """Everything under a source, which has to hold something."""
        if not self._take(source, 0):
            self.unread.append(f"{source} holds no judged kernels.")

    def _take(self, path: Path, depth: int) -> bool:
        """Whether there was something of ours, readable or not."""
        where = path.resolve()
        if where in self._seen:
            return True
        self._seen.add(where)
        if not path.is_dir():
            return self._file(path, named=depth == 0)
        if (path / "suite.json").is_file():
            self._suite(path)
        elif (path / "run.json").is_file():
            self._try(path, self._run if self._is_run(path) else self._kept)
        elif any((path / part).is_dir() for part in ("verdicts", "exchanges", "candidates")):
            self.unread.append(f"{path} is damaged: its run.json is missing.")
        elif depth < _DEEPEST:
            inside = sorted(each for each in path.iterdir() if not each.name.startswith("."))
            ours = [each for each in inside if each.is_dir() or each.name in (saved.FILE_NAME, KERNELS)]
            found = [self._take(each, depth + 1) for each in ours]
            return any(found)
        else:
            return False
        return True

    def _try(self, path: Path, read: Callable[[Path], None]) -> None:
        try:
            read(path)
        except CudaMasterError as error:
            self.unread.append(error.reason)
        except OSError as error:
            self.unread.append(f"{path} cannot be read: {error.strerror or error}.")
        except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
            self.unread.append(f"{path} makes no sense: {error}.")

    def _file(self, path: Path, *, named: bool) -> bool:
        if path.suffix == ".jsonl":
            self._try(path, self._lines)
        elif path.suffix == ".json":
            self._try(path, self._report)
        elif named:
            return False
        return True

    def _lines(self, path: Path) -> None:
        self.kernels += read_kernels(path)
        if (path.parent / HARDWARE).is_file():
            raw = read_json(path.parent / HARDWARE)
            try:
                self.hardware.update({gpu: from_json(Hardware, one) for gpu, one in raw.items()})
            except (RecordError, AttributeError) as error:
                self.notes.append(f"{path.parent / HARDWARE} is damaged: {error}.")

    def _report(self, path: Path) -> None:
        if not saved.is_report(path):
            self.unread.append(f"{path} is no report that was saved with --json.")
            return
        for result in saved.read(path).results:
            self.hardware.setdefault(gpu_of(result.hardware), result.hardware)
            self.kernels += kept.kernels_of(result)

    def _kept(self, path: Path) -> None:
        result = kept_results.result(path, "kept")
        self.hardware.setdefault(gpu_of(result.hardware), result.hardware)
        self.kernels += kept.kernels_of(result)

    @staticmethod
    def _is_run(path: Path) -> bool:
        """Whether a folder is a run's own, of this format; others are kept results, or of another version."""
        if not any((path / part).is_dir() for part in ("exchanges", "verdicts")):
            return False
        try:
            run = read_json(path / "run.json")
        except CudaMasterError:
            return True  # which says what is wrong with it
        return not isinstance(run, dict) or run.get("format") == FORMAT

    def _run(self, path: Path) -> None:
        run = read_run(path)
        self.kernels += run.kernels
        self.searches += [run.search] if run.search is not None else []
        self.hardware[gpu_of(run.hardware)] = run.hardware
        self.notes += run.notes

    def _suite(self, path: Path) -> None:
        """The runs of a suite; a task without a folder is told, and one that failed with its reason."""
        try:
            suite = suitefolder.read(path)
        except CudaMasterError as error:
            self.unread.append(f"{error.reason} Its runs are read one by one.")
            for inside in sorted(one.parent for one in path.glob("*/run.json")):
                self._take(inside, _DEEPEST)
            return
        for entry in suite.entries:
            folder = path / entry.name
            if folder.is_dir():
                self._take(folder, _DEEPEST)
            if entry.state is State.FAILED:
                said = " ".join((entry.error or "no reason is kept").split())
                (self.notes if folder.is_dir() else self.unread).append(f"{folder} failed: {said}")
            elif not folder.is_dir():
                self.unread.append(f"{path} did not get to {entry.name}.")
