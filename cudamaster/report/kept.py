"""Results kept on purpose, and run folders of other versions: best kernel, verdict and findings, read leniently.

    run.json  best.json  best.cu  verdict.json (or verdicts/<id>.json)  findings.json (or findings/<id>.json)

Such files may be of any format. They have no hashes, since paths in them were shortened by hand. Fields that this
version does not know are ignored, and missing ones are None. P and its interval are computed anew from the timings,
which every format has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as changed
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cudamaster.core import speed
from cudamaster.core.errors import RunFolderError
from cudamaster.core.speed import Comparison
from cudamaster.core.values import (
    Bottleneck,
    CaseVerdict,
    Findings,
    GpuModel,
    Hardware,
    Precision,
    ProfileMode,
    Role,
    Status,
    Timing,
)
from cudamaster.profiling.thresholds import load as load_thresholds
from cudamaster.report import hardware_views
from cudamaster.report.data import Configuration, Cost, HardwareView, Kernel, RunProgress, TaskResult
from cudamaster.report.from_run import about, case
from cudamaster.runs.record import FORMAT, read_json

T = TypeVar("T", bound="_Lenient")
_FIX = "Restore it from a copy, or leave the folder out."
_Microseconds = tuple[float, ...]


class _Lenient(BaseModel):
    """Ignores fields that only other versions have."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _Hardware(_Lenient):
    name: str
    figures: Mapping[str, str] = {}
    emulated: bool = False


class _Settings(_Lenient):
    strategy: str = "unknown"
    rounds: int = 0
    debug_tries: int = 0
    models: Mapping[Role, str] = {}
    profile: ProfileMode = ProfileMode.FILTERED


class _Run(_Lenient):
    format: int
    started: str = ""
    versions: Mapping[str, str] = {}
    task: str
    precision: Precision
    card_hash: str | None = None
    baseline: str
    hardware: _Hardware
    settings: _Settings
    suite: str = ""
    card: str = ""
    baseline_by: str = "kernel"


class _Best(_Lenient):
    candidate: str
    command: str
    score: float | None = None
    complete: bool = True


class _Timing(_Lenient):
    baseline_us: _Microseconds = ()
    candidate_us: _Microseconds = ()


class _Case(_Lenient):
    label: str
    sweep: bool
    weight: float = Field(ge=0, allow_inf_nan=False)
    status: Status | None = None
    skipped: str | None = None
    timing: _Timing | None = None
    empty_us: float | None = None
    floor_us: float | None = None
    not_modelled: str = ""


class _Verdict(_Lenient):
    candidate: str
    emulated: bool = False
    modelled: GpuModel | None = None
    status: Status
    complete: bool = True
    notes: tuple[str, ...] = ()
    sanitizers: Mapping[str, str] = {}
    cases: tuple[_Case, ...] = ()


class _Findings(_Lenient):
    candidate: str
    note: str = ""
    bottleneck: Bottleneck | None = None
    kernel: str | None = None
    time_share: float | None = None
    metrics: Mapping[str, float] = {}
    measured: Mapping[str, float] = {}
    thresholds: str = ""
    units: Mapping[str, str] = {}


def result(path: Path, source: str) -> TaskResult:
    """The result in a folder; `source` is TaskResult.source. Raises RunFolderError, which names the file."""
    run, best = _file(_Run, path / "run.json"), _file(_Best, path / "best.json")
    inside = path / "verdicts" / f"{best.candidate}.json"
    verdict = _file(_Verdict, inside if inside.exists() else path / "verdict.json")
    if verdict.candidate != best.candidate:
        raise RunFolderError(f"The verdict in {path} is of {verdict.candidate}, the best is {best.candidate}.", _FIX)
    said = about(run.task, run.card_hash, run.suite, run.card)
    own = best.candidate != run.baseline and verdict.status is Status.CORRECT
    sweep = tuple(_timed(one) for one in verdict.cases if one.sweep)
    overall = _overall(sweep) if own else None
    whole = not any(one.lacks_model for one in sweep)
    settings = run.settings
    return TaskResult(
        origin=str(path),
        source=source,
        task=run.task,
        title=said.title,
        category=said.category,
        precision=run.precision,
        hardware=Hardware(
            run.hardware.name,
            run.hardware.figures,
            run.hardware.emulated or verdict.emulated,
            verdict.modelled,
        ),
        versions=run.versions,
        started=run.started,
        models=settings.models,
        configuration=_configuration(settings),
        # Only finished runs were kept on purpose, and nothing else in a run folder shows that in every format.
        progress=RunProgress.FINISHED if source == "kept" or (path / "summary.json").exists() else RunProgress.STOPPED,
        correct=own,
        improved=own and whole,
        status=verdict.status if own else None,
        score=(overall.speedup if overall else best.score) if own and whole else None,
        speed=overall,
        complete=best.complete and verdict.complete,
        cases=tuple(map(case, sweep)) if own else (),
        cost=Cost(),
        best=Kernel(best.candidate, _text(path / "best.cu"), best.command) if own else None,
        after=_view(path, best.candidate) if own else None,
        notes=verdict.notes,
        remarks=(*said.remarks, *_remarks(run, best, overall if own else None)),
        sanitizers=verdict.sanitizers,
        card_hash=run.card_hash,
        suite=said.suite,
        folder=said.folder,
        baseline_by=run.baseline_by,
    )


def _remarks(run: _Run, best: _Best, overall: Comparison | None) -> list[str]:
    anew = overall is not None and best.score is not None and abs(overall.speedup / best.score - 1) > 1e-9
    recomputed = "P is computed anew from the timings, as it is today"
    if run.format == FORMAT:
        return [f"recomputed: {recomputed}"] if anew else []
    age = "older" if run.format < FORMAT else "newer"
    return [f"{age}: of format {run.format}, where this version has {FORMAT}{f'; {recomputed}' if anew else ''}"]


def _configuration(settings: _Settings) -> Configuration:
    words = f"{settings.strategy}, R = {settings.rounds}, D = {settings.debug_tries}"
    profile = "no profile" if settings.profile is ProfileMode.NONE else f"{settings.profile.value} profile"
    return Configuration(
        settings.strategy, settings.rounds, settings.debug_tries, settings.profile, f"{words}, {profile}"
    )


def _overall(sweep: tuple[CaseVerdict, ...]) -> Comparison | None:
    timed = [
        (one.weight, one.timing.baseline_us, one.timing.candidate_us)
        for one in sweep
        if one.timing is not None and one.status is Status.CORRECT
    ]
    try:
        return speed.overall(timed)
    except ValueError:  # samples that do not pair up, or none
        return None


def _timed(stored: _Case) -> CaseVerdict:
    timing = None if stored.timing is None else Timing(stored.timing.baseline_us, stored.timing.candidate_us)
    timed = CaseVerdict(**{**dict(stored), "timing": timing})
    return changed(timed, speed=_overall((timed,))) if timed.weight else timed


def _view(path: Path, candidate: str) -> HardwareView | None:
    beside, inside = path / "findings.json", path / "findings" / f"{candidate}.json"
    place = beside if beside.exists() else inside
    if not place.exists():
        return None
    found = _file(_Findings, place)
    if found.candidate != candidate:
        raise RunFolderError(f"{place} is of {found.candidate}, the best is {candidate}.", _FIX)
    return hardware_views.view(Findings(**dict(found)), load_thresholds())


def _file(kind: type[T], path: Path) -> T:
    raw: Any = read_json(path)
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "its whole"
        raise RunFolderError(f"{path} is damaged at {where}: {first['msg']}.", _FIX) from error


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror}.", _FIX) from error
