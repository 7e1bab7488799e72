"""From a run folder, or from what `reproduce` kept, to a bundle."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from cudamaster.build.shared import REFERENCE
from cudamaster.bundles import task_files
from cudamaster.bundles.archive import hash_of
from cudamaster.bundles.contents import Bundle, Claim, must_be_result
from cudamaster.bundles.reproduction import Reproduction
from cudamaster.core.errors import CudaMasterError, RunFolderError, UsageError, one_line
from cudamaster.core.records import RecordError, from_json
from cudamaster.core.values import Candidate, Verdict
from cudamaster.runs.reading import read as read_run
from cudamaster.runs.record import RunRecord, read_json, read_record
from cudamaster.tasks import finding
from cudamaster.tasks.cards import TaskCard
from cudamaster.tasks.harness import baseline_region

_LARGEST_BYTES = 64 << 20
_MEASURE = "Measure the kernel again with the task as it is, or check out the version that the run was made with."


def of_result(result: Path, *, candidate: str | None = None, number: int | None = None) -> Bundle:
    """The bundle of a result: the best kernel of a run, its `candidate` of that id, or that of round `number`; or what
    `reproduce` kept in a file.

    Raises UsageError where there is no result, or no speedup to claim, RunFolderError for a damaged run, and CardError
    for a task whose files cannot be read.
    """
    if candidate is not None and number is not None:
        raise UsageError("A candidate and a round were given.", "Give one of them.")
    if result.is_file():
        if candidate is not None or number is not None:
            raise UsageError(f"{result} is one result, not a run.", "Leave out --candidate and --round.")
        return _of_reproduction(read_reproduction(result))
    if not (result / "run.json").is_file() and (inside := sorted(result.glob("*/run.json"))):
        runs = ", ".join(str(each.parent) for each in inside[:3]) + (" ..." if len(inside) > 3 else "")
        raise UsageError(f"{result} is not a run but a folder of {len(inside)} runs.", f"Name one of them: {runs}")
    record = read_record(result)
    return _of_run(record, candidate or _chosen(record, number))


def read_reproduction(path: Path) -> Reproduction:
    """What `reproduce` kept. Raises UsageError for another file."""
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise ValueError("it is too large")
        return from_json(Reproduction, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError, RecordError) as error:
        raise UsageError(
            f"{path} is no run folder, and no JSON file that `cudamaster reproduce` kept: {one_line(error, 200)}.",
            "Give one of these two.",
        ) from error


def _chosen(record: RunRecord, number: int | None) -> str:
    """The candidate that is meant without one: the best, or the best of a round."""
    if number is None:
        path = record.path / "best.json"
        if not path.is_file():
            raise UsageError(f"The run {record.path} has no best kernel yet.", "Wait until its baseline was measured.")
        best = read_json(path)
        if not isinstance(best, dict) or not isinstance(best.get("candidate"), str):
            raise RunFolderError(f"{path} is damaged.", "Restore the folder from a copy.")
        return str(best["candidate"])
    rounds = read_run(record.path).rounds
    found = next((one for one in rounds if one.number == number), None)
    if found is None:
        raise UsageError(f"{record.path} has no round {number}, it has {len(rounds)}.", "Name one of these.")
    judged = [each for each in found.attempts if each.verdict is not None and each.verdict.score is not None]
    if not judged:
        raise UsageError(f"Round {number} of {record.path} has no kernel with a speedup.", "Name another round.")
    return max(judged, key=lambda each: (each.verdict.score if each.verdict else None) or 0.0).candidate


def _of_run(record: RunRecord, name: str) -> Bundle:
    run, candidate = record.manifest, record.candidate(name) if name.isalnum() else None
    verdict = None if candidate is None else record.verdict(name)
    if candidate is None or verdict is None:
        known = sorted(path.stem for path in (record.path / "verdicts").glob("*.json"))
        raise UsageError(f"{record.path} has no judged kernel {name!r}.", f"It has {', '.join(known) or 'none'}.")
    counted, second = _counted(verdict, record.confirmation(name))
    score = must_be_result(candidate, counted)
    card = _card(record, verdict)
    claim = Claim(
        task=run.task,
        precision=run.precision,
        suite=run.suite or card.suite,
        card_hash=run.card_hash,
        candidate=candidate.id,
        score=score,
        hardware=run.hardware,
        versions=run.versions,
        made=run.started,
        origin="a run",
    )
    files = task_files.of(card, run.precision)
    return _with_hash(Bundle(claim, candidate, counted, files, second, record.build_log(name) or ""))


def _counted(verdict: Verdict, again: Verdict | None) -> tuple[Verdict, Verdict | None]:
    """The verdict that counts, and the other where the score was measured twice: the lower one does, or a failure."""
    if again is None:
        return verdict, None
    if not again.correct or again.score is None or again.score < (verdict.score or 0.0):
        return again.after(verdict), verdict
    return verdict, again


def _card(record: RunRecord, verdict: Verdict) -> TaskCard:
    """The task of a run, as it still is. Raises UsageError where it changed: the claim would be another task's."""
    run = record.manifest
    own = bool(run.card) and Path(run.card).is_file()
    try:
        card = finding.load(run.card if own else run.task)
    except CudaMasterError as error:
        where = f", whose card was {run.card}" if run.card else ""
        raise UsageError(
            f"The task of the run {record.path}{where} is not here: {error.reason}",
            f"Put its folder back, or name it in CUDAMASTER_TASKS. {error.fix}",
        ) from error
    baseline = record.candidate(run.baseline)
    changed = {
        "its card": not card.times_as(run.card_hash) or run.precision not in card.precisions,
        "its baseline": baseline is None or baseline.code != baseline_region(card, run.precision),
        "its reference": verdict.build.get(REFERENCE, "") not in ("", task_files.reference_hash(card)),
    }
    if what := [name for name, other in changed.items() if other]:
        raise UsageError(
            f"The task {run.task} has changed since the run {record.path} ({' and '.join(what)}), so its claim is of "
            "another task.",
            _MEASURE,
        )
    return card


def _of_reproduction(found: Reproduction) -> Bundle:
    candidate = Candidate(found.task, found.precision, found.code, found.command)
    score = must_be_result(candidate, found.verdict)
    claim = Claim(
        task=found.task,
        precision=found.precision,
        suite=found.suite,
        card_hash=found.card_hash,
        candidate=candidate.id,
        score=score,
        hardware=found.hardware,
        versions=found.versions,
        made=found.made,
        origin="a reproduction" if found.claim.bundle else "a claim made with another harness, measured here",
        reproduces=found.claim.bundle,
    )
    return _with_hash(Bundle(claim, candidate, found.verdict, found.files))


def _with_hash(bundle: Bundle) -> Bundle:
    return replace(bundle, sha256=hash_of(bundle.content))
