"""Reads RESULTS into a report: run folders, suites, folders kept on purpose, and folders of those.

Reports that were saved with --json and measurements of vendors' libraries are read too, where they lie among them as
report.json and vendor.json, or are named.

What cannot be read becomes a problem in words, and all else is reported. Nothing that is read is changed.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TypeVar

import cudamaster
from cudamaster.core.errors import CudaMasterError, UsageError
from cudamaster.report import agreement, authorities, from_run, kept, saved
from cudamaster.report.data import Authority, Disagreement, Missing, Problem, Report, RunProgress, TaskResult
from cudamaster.report.numbers import suite_of
from cudamaster.runs.record import FORMAT, read_json
from cudamaster.suites import folder as suitefolder
from cudamaster.suites.folder import Entry, State, Suite
from cudamaster.tasks import cards

_Either = TypeVar("_Either", TaskResult, Missing)
_DEEPEST = 4  # folders within folders
_NAMED = 6  # folders of a kind that are named
_PARTS = ("verdicts", "exchanges", "candidates", "best.json", "verdict.json")


def load(paths: Sequence[Path]) -> Report:
    """Everything that lies under `paths`. Raises UsageError for a path that does not exist."""
    for path in paths:
        if not path.exists():
            raise UsageError(f"There is no {path}.", "Name run folders, suites, or folders of those, e.g. runs.")
    loader = _Loader()
    for path in paths:
        before = loader.found
        loader.take(path, 0)
        if loader.found == before:
            loader.problem(path, f"{path} holds no results.", "Name run folders, suites, or folders of those.")
    apart = _by_folder([*loader.results, *loader.missing])
    results = _numbered([apart(result) for result in loader.results])
    return Report(
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"cudamaster": cudamaster.__version__, "python": platform.python_version()},
        sources=tuple(str(path) for path in paths),
        results=results,
        missing=_still_missing([apart(one) for one in loader.missing], results),
        problems=(*loader.problems, *_unusual(results), *_mixed(results)),
        authorities=tuple(loader.authorities),
        benchmark=benchmark(),
        disagreements=tuple(dict.fromkeys(loader.disagreements)),
    )


def benchmark() -> Mapping[str, str]:
    """All tasks of the benchmark with their categories."""
    return {name: cards.load(name).category for name in cards.names()}


@dataclass(frozen=True)
class _Place:
    """Where a result stands, and whether it is of a run's own folder."""

    index: int
    live: bool


class _Loader:
    """What was found so far. A folder that is reached twice is read once."""

    def __init__(self) -> None:
        self.results: list[TaskResult] = []
        self.missing: list[Missing] = []
        self.problems: list[Problem] = []
        self.authorities: list[Authority] = []
        self.disagreements: list[Disagreement] = []
        self.found = 0
        self._seen: set[Path] = set()
        self._benchmark = benchmark()
        self._runs: dict[tuple[str, str, str, str], _Place] = {}

    def problem(self, path: Path, what: str, fix: str, *, serious: bool = True) -> None:
        """Note what is wrong with a path."""
        self.problems.append(Problem(str(path), what, fix, serious))

    def take(self, path: Path, depth: int) -> None:
        """Whatever a path holds."""
        try:
            where = path.resolve()
            if where in self._seen:
                self.found += 1
                return
            self._seen.add(where)
            if not path.is_dir():
                if path.suffix == ".json":
                    self._file(path)
                return
            if (path / "suite.json").exists():
                self._suite(path)
            elif any((path / part).exists() for part in ("run.json", *_PARTS)):
                self.found += 1
                self._single(path, "run")
            elif depth < _DEEPEST:
                for name in (saved.FILE_NAME, authorities.FILE_NAME):
                    # An empty one is what a shell makes for `report FOLDER --json > FOLDER/report.json`.
                    if (path / name).is_file() and (path / name).stat().st_size:
                        self.take(path / name, depth + 1)
                self._tables(path)
                for inside in sorted(path.iterdir()):
                    if inside.is_dir() and not inside.name.startswith("."):
                        self.take(inside, depth + 1)
        except OSError as error:
            self.found += 1
            self.problem(path, f"{path} cannot be read: {error.strerror}.", "Give access, or leave it out.")

    def _single(self, path: Path, source: str) -> TaskResult | None:
        """A run folder, or one that is kept on purpose; None where it has no result."""
        try:
            result = _read(path, source)
        except CudaMasterError as error:
            self.problem(path, error.reason, error.fix)
            return None
        except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
            # A record with right hashes that makes no sense, e.g. written by a program of somebody else's.
            self.problem(path, f"{path} makes no sense: {error}.", "Restore it from a copy, or leave it out.")
            return None
        if isinstance(result, Missing):
            self.missing.append(result)
            self.problem(path, f"{result.why}.", f"Wait where it still goes on; else optimize --resume {path}")
            return None
        if result.progress is not RunProgress.FINISHED:
            doing = f" while {result.stopped_at}" if result.stopped_at else ""
            how = "still goes on" if result.progress is RunProgress.RUNNING else f"was stopped{doing}"
            self.problem(
                path,
                f"{path} is partial: it {how}; it counts with what it has so far.",
                "Wait for it." if result.progress is RunProgress.RUNNING else f"Carry it on: optimize --resume {path}",
                serious=False,
            )
        if result.task not in self._benchmark and not suite_of(result):
            result = _marked_apart(result)
        self._keep(result, live=result.source != "kept")
        return result

    def _keep(self, result: TaskResult, *, live: bool) -> None:
        """A result, unless it is there already: a report, kept folders and the runs that made both hold the same.

        Only folders of runs are `live`: two of them are two runs, and a run goes before what was made of it earlier.
        """
        which = _which(result)
        before = self._runs.get(which)
        if before is None or (live and before.live):
            self._runs[which] = _Place(len(self.results), live)
            self.results.append(result)
        elif live:
            self._runs[which] = _Place(before.index, live)
            self.results[before.index] = result

    def _file(self, path: Path) -> None:
        """A report that was saved, or a measurement of vendors' libraries."""
        self.found += 1
        try:
            if saved.is_report(path):
                self._saved(saved.read(path))
                return
            vendors = authorities.load(path)
        except CudaMasterError as error:
            self.problem(path, error.reason, error.fix)
            return
        if not vendors:
            self.problem(path, f"{path} is emulated or empty, so it says nothing about a library.", "", serious=False)
        self._measured(vendors)

    def _tables(self, path: Path) -> None:
        """Tables of times beside each other in a folder, where they disagree."""
        if not agreement.has_tables(path):
            return
        try:
            self.disagreements += agreement.of_folder(path)
        except CudaMasterError as error:
            self.problem(path, error.reason, error.fix)

    def _saved(self, report: Report) -> None:
        """What a report holds, with the problems that it was made with."""
        there = set(self._runs)
        for result in report.results:
            if _which(result) not in there:  # its own results are not each other's, whatever they have in common
                self._runs[_which(result)] = _Place(len(self.results), live=False)
                self.results.append(result)
        self.missing += report.missing
        self._measured(report.authorities)
        self.problems += [problem for problem in report.problems if problem.serious]

    def _measured(self, found: Sequence[Authority]) -> None:
        """Libraries' measurements, unless already read: a saved report includes those of the vendor.json beside it."""
        self.authorities += [one for one in found if one not in self.authorities]

    def _suite(self, path: Path) -> None:
        """A suite: its tasks, those too that it did not get to."""
        self.found += 1
        try:
            suite = suitefolder.read(path)
        except CudaMasterError as error:
            self.problem(path, error.reason, f"{error.fix} Its runs are reported one by one.")
            for inside in sorted(one.parent for one in path.glob("*/run.json")):
                self.take(inside, _DEEPEST)
            return
        emulated = _emulated(suite)
        for entry in suite.entries:
            folder = path / entry.name
            if folder.resolve() in self._seen:
                continue
            self._seen.add(folder.resolve())
            before, problems = len(self.missing), len(self.problems)
            single = self._single(folder, "suite") if folder.is_dir() else None
            if single is None and len(self.missing) == before:
                self.missing.append(_not_there(path, entry, emulated, begun=folder.is_dir()))
            if entry.state is State.FAILED:
                if len(self.missing) > before:  # that it had no kernel yet goes without saying
                    del self.problems[problems:]
                what = f"{folder} failed: {' '.join((entry.error or 'no reason is kept').split())}"
                self.problem(folder, what, f"Try it again: suite --resume {path}", serious=single is None)


def _which(result: TaskResult) -> tuple[str, str, str, str]:
    """What a run has in common with all that was made of it."""
    return result.name, result.started, result.model, result.hardware.name


def _read(path: Path, source: str) -> TaskResult | Missing:
    """Read a folder by its kind: a run of this format, or something to read leniently."""
    if not (path / "run.json").is_file():
        raise UsageError(f"{path} is damaged: its run.json is missing.", "Restore it from a copy, or leave it out.")
    run = read_json(path / "run.json")
    is_run = (path / "exchanges").is_dir() or (path / "verdicts").is_dir()
    if is_run and isinstance(run, dict) and run.get("format") == FORMAT:
        return from_run.result(path, source)
    return kept.result(path, source if is_run else "kept")


def _emulated(suite: Suite) -> bool | None:
    """Whether a suite's tasks are measured on the CPU device, as far as it says so."""
    if suite.settings.device in ("cpu", "cuda"):
        return suite.settings.device == "cpu"
    judged = [entry.emulated for entry in suite.entries if entry.score is not None]
    return judged[0] if judged else None


def _not_there(path: Path, entry: Entry, emulated: bool | None, *, begun: bool) -> Missing:
    if entry.error:
        why = f"it failed in {path}: {' '.join(entry.error.split())}"
    elif begun:
        why = f"its run in {path} cannot be read"
    else:
        why = f"{path} did not get to it"
    said = from_run.about(entry.task, None, card=entry.card)
    return Missing(entry.task, entry.precision, said.category, why, emulated, said.suite, said.folder)


def _still_missing(missing: Sequence[Missing], results: Sequence[TaskResult]) -> tuple[Missing, ...]:
    """Each task once, unless another folder has it."""
    there = {(result.name, suite_of(result), result.emulated) for result in results}
    left: dict[tuple[str, str, bool | None], Missing] = {}
    for one in missing:
        kinds = (True, False) if one.emulated is None else (one.emulated,)
        if not any((one.name, suite_of(one), kind) in there for kind in kinds):
            left.setdefault((one.name, suite_of(one), one.emulated), one)
    return tuple(sorted(left.values(), key=lambda one: one.name))


def _marked_apart(result: TaskResult) -> TaskResult:
    """The result of a user's own task as one of another configuration: it has no part in the benchmark's numbers."""
    described = f"{result.configuration.described}, tasks of one's own"
    return changed(result, configuration=changed(result.configuration, described=described))


def _by_folder(found: Sequence[TaskResult | Missing]) -> Callable[[_Either], _Either]:
    """What names the folder in the suite of a result, where suites of several folders have one name."""
    folders: dict[str, set[str]] = {}
    for one in found:
        if one.folder:
            folders.setdefault(one.suite, set()).add(one.folder)

    def apart(one: _Either) -> _Either:
        if one.folder and len(folders[one.suite]) > 1:
            return changed(one, suite=f"{one.suite} in {one.folder}")
        return one

    return apart


def _unusual(results: Sequence[TaskResult]) -> tuple[Problem, ...]:
    """What is unusual about how results were read, each kind once with the folders that it is true of."""
    folders: dict[str, list[str]] = {}
    for result in results:
        for remark in result.remarks:
            folders.setdefault(remark, []).append(result.origin)
    found = []
    for remark, origins in folders.items():
        others = f" and {len(origins) - _NAMED} more" if len(origins) > _NAMED else ""
        what = f"{remark[:1].upper()}{remark[1:]}: {', '.join(origins[:_NAMED])}{others}."
        found.append(Problem(origins[0], what, "", serious=False))
    return tuple(found)


def _numbered(results: Sequence[TaskResult]) -> tuple[TaskResult, ...]:
    """In order, with runs of the same task and setting numbered by when they began."""

    def same(result: TaskResult) -> tuple[bool, str, str, str, str, str, str]:
        where = (result.emulated, result.hardware.name, result.model, result.configuration.described, suite_of(result))
        return (*where, result.precision.value, result.task)

    numbered = []
    for _, runs in groupby(sorted(results, key=lambda result: (same(result), result.started)), same):
        numbered += [changed(run, repetition=number) for number, run in enumerate(runs, 1)]
    return tuple(numbered)


def _mixed(results: Sequence[TaskResult]) -> tuple[Problem, ...]:
    """What has to be known of results that do not belong together."""
    found = []
    gpus = Counter(result.hardware.name for result in results if not result.emulated)
    if len(gpus) > 1:
        names = ", ".join(f"{count} on {name}" for name, count in gpus.items())
        found.append(Problem("", f"Results of {len(gpus)} GPUs: {names}. Each has its own numbers.", "", serious=False))
    emulated = sum(result.emulated for result in results)
    if emulated and emulated < len(results):
        what = f"{emulated} of {len(results)} results are of the CPU device, emulated or modelled: they stand apart."
        found.append(Problem("", what, "", serious=False))
    for name in gpus:
        for figure in ("driver", "CUDA toolkit"):
            had = {result.hardware.figures.get(figure, "unknown") for result in results if result.hardware.name == name}
            if len(had) > 1:
                what = f"Results on {name} are of several versions of {figure}: {', '.join(sorted(had))}."
                found.append(Problem("", what, "", serious=False))
    return tuple(found)
