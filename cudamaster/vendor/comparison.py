"""The authorities: what a vendor's library does with a task, and our best kernel beside it, on the same machine.

    bench/vendor/<task>[_bf16][.<library>].cu -> worker -> in the candidate's place: checks, times -> VendorRecord

A task may have several libraries, each in a file of its own. Our kernel's contest with the baseline is one for all of
them.

The library's call is judged as a candidate is: same harness, inputs, checks and timing. The guards are left out, since
the file is ours and keeps handles and work space from call to call, which is the point (worker.cu, calls.h).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cudamaster.core import resources, speed
from cudamaster.core.errors import BaselineError, DeviceError, UsageError, unwritable
from cudamaster.core.records import RecordError, from_json, to_json
from cudamaster.core.speed import Comparison
from cudamaster.core.values import LATER, Candidate, CaseVerdict, Precision, Status, Verdict, content_hash
from cudamaster.core.writing import write_text
from cudamaster.devices.protocol import Device
from cudamaster.tasks.cards import TaskCard
from cudamaster.vendor import libraries
from cudamaster.workbench.evaluation import Workbench

FORMAT = 1
_LOG_CHARACTERS = 2000
ANOTHER = "Give another place with --save."


@dataclass(frozen=True)
class VendorFile:
    """A file of bench/vendor/: the call of a library in the shape of one task's wrapper."""

    card: TaskCard
    precision: Precision
    path: Path
    text: str

    @property
    def library(self) -> str:
        """What it calls, e.g. cuBLAS."""
        return " and ".join(library.name for library in libraries.called_by(self.text)) or "no library"

    @property
    def head(self) -> str:
        """The comment at its head: what the call is, what it includes and what is left out."""
        head = re.match(r"(?://[^\n]*\n)*", self.text)
        return "\n".join(re.sub(r"^// ?", "", line) for line in head[0].splitlines()) if head else ""

    @property
    def id(self) -> str:
        """Content hash over the file and the headers of bench/vendor/."""
        return content_hash(self.text, headers())


@dataclass(frozen=True)
class ContestCase:
    """One timed case: medians of whole calls in microseconds, of `own` and of what it is timed `against`.

    `detail` says why there are no times. `own_device_us` is a call's time on the device, without launching and waiting.
    """

    label: str
    weight: float
    status: Status | None
    detail: str
    own_us: float | None = None
    against_us: float | None = None
    own_device_us: float | None = None
    floor_us: float | None = None
    empty_us: float | None = None
    speed: Comparison | None = None


@dataclass(frozen=True)
class Contest:
    """One kernel or library timed against another on all cases of a task; `score` is P, above 1 where it is faster.

    `failing` has each case that is not right, timed or not, with what is wrong.
    """

    status: Status
    detail: str
    score: float | None
    speed: Comparison | None
    complete: bool
    seed: int | None
    notes: tuple[str, ...]
    cases: tuple[ContestCase, ...]
    failing: Mapping[str, str]
    log: str


@dataclass(frozen=True)
class VendorRecord:
    """The result of one vendor file. If it was not run, `skipped` is the reason.

    `vendor` is the library against the baseline, `ours` our best kernel against the baseline, `duel` our kernel against
    the library. `kernel` is the id of that kernel. `key` is the hash of what was built and how it was run; records
    that an earlier version saved have none.
    """

    task: str
    precision: Precision
    library: str
    version: str
    head: str
    source: str
    skipped: str | None = None
    vendor: Contest | None = None
    kernel: str | None = None
    ours: Contest | None = None
    duel: Contest | None = None
    key: str = field(default="", metadata=LATER)

    @property
    def failed(self) -> bool:
        """Whether the library's call was run, or built, and is not right."""
        return self.vendor is not None and self.vendor.status is not Status.CORRECT


@dataclass(frozen=True)
class VendorReport:
    """A whole measurement, as it is saved: on what, when, and a record for each file. Emulated times say nothing."""

    format: int
    emulated: bool
    about: Mapping[str, str]
    records: tuple[VendorRecord, ...]


@dataclass(frozen=True)
class Ready:
    """A vendor file that was built, or that cannot be: then `record` says why."""

    file: VendorFile
    version: str
    worker: Path | None
    record: VendorRecord | None

    def key(self, bench: Workbench, *, check_only: bool = False) -> str:
        """Hash of all that a record depends on but for our kernel and the seed; empty where nothing can be run."""
        if self.worker is None:
            return ""
        return content_hash(self.worker.name, self.version, bench.key(bench.baseline), str(check_only))


def files(cards: Sequence[TaskCard], precisions: Sequence[Precision], folder: Path | None = None) -> list[VendorFile]:
    """The vendor files of these tasks, of bench/vendor/ or of another folder; a task's libraries are neighbours."""
    folder = folder or resources.bench() / "vendor"
    found = []
    for card in cards:
        for precision in card.among(precisions):
            name = card.file_name(precision)
            for path in (folder / f"{name}.cu", *sorted(folder.glob(f"{name}.*.cu"))):
                if path.is_file():
                    found.append(VendorFile(card, precision, path, path.read_text("utf-8")))
    return found


def headers() -> str:
    """The headers that vendor files share, bench/vendor/*.h, in one text."""
    return "".join(path.read_text("utf-8") for path in sorted((resources.bench() / "vendor").glob("*.h")))


def prepare(file: VendorFile, bench: Workbench, device: Device) -> Ready:
    """Find the libraries of a file and build its worker, with what every evaluation shares."""
    found = [(library, libraries.find(library, device.include_folders())) for library in libraries.called_by(file.text)]
    if device.emulated and found:
        missing = [f"{file.library} runs on a GPU, and this is the {device.name} device"]
    else:
        missing = [where for _, where in found if isinstance(where, str)]
    present = [where for _, where in found if isinstance(where, libraries.Found)]
    version = ", ".join(where.version for where in present)
    if missing:
        return Ready(file, version, None, _record(file, version, skipped="; ".join(missing)))
    folders = dict.fromkeys(where.include for where in present)
    flags = [f"-I{folder}" for folder in folders if folder not in device.include_folders()]
    shared = [where.shared for where in present if where.shared is not None]
    try:
        worker = bench.vendor_worker(file.text, headers(), flags, shared)
    except DeviceError as error:
        failed = Contest(Status.COMPILE_ERROR, error.reason, None, None, True, None, (), (), {}, error.fix)
        return Ready(file, version, None, _record(file, version, vendor=failed))
    return Ready(file, version, worker, None)


def measure(
    ready: Ready,
    bench: Workbench,
    ours: Candidate | None = None,
    *,
    beside: VendorRecord | None = None,
    check_only: bool = False,
) -> VendorRecord:
    """Check and time a vendor's library, then our kernel, then our kernel against the library if both are right.

    `beside` is the record of another library with the same kernel, made just now: its contest of our kernel is taken
    over. With `check_only` the library's call is checked at the verification sizes, and that is all.
    """
    if ready.worker is None:
        assert ready.record is not None
        return ready.record
    own, duel = None, None
    try:
        vendor = bench.evaluate_vendor(ready.worker, ready.file.id, check_only=check_only)
        if ours is not None and not check_only:
            own = (beside.ours if beside else None) or _contest(bench.evaluate(ours))
            if own.status is vendor.status is Status.CORRECT:
                duel = bench.against_vendor(ours, ready.worker)
    except BaselineError as error:
        return _record(ready.file, ready.version, skipped=f"{error.reason} {error.fix}")
    return _record(
        ready.file,
        ready.version,
        vendor=_contest(vendor),
        kernel=None if own is None or ours is None else ours.id,
        ours=own,
        duel=None if duel is None else _contest(duel),
        key=ready.key(bench, check_only=check_only),
    )


def _record(file: VendorFile, version: str, **rest: Any) -> VendorRecord:
    return VendorRecord(file.card.name, file.precision, file.library, version, file.head, file.id, **rest)


def _contest(verdict: Verdict) -> Contest:
    wrong = {case.label: case.detail for case in verdict.cases if case.status not in (None, Status.CORRECT)}
    return Contest(
        status=verdict.status,
        detail=verdict.detail,
        score=verdict.score,
        speed=verdict.speed,
        complete=verdict.complete,
        seed=verdict.seed,
        notes=verdict.notes,
        cases=tuple(_contest_case(case) for case in verdict.cases if case.sweep),
        failing=wrong,
        log="" if verdict.correct else verdict.log[-_LOG_CHARACTERS:],
    )


def _contest_case(case: CaseVerdict) -> ContestCase:
    timing = case.timing
    return ContestCase(
        label=case.label,
        weight=case.weight,
        status=case.status,
        detail=case.skipped or case.detail,
        own_us=speed.median(timing.candidate_us if timing else ()),
        against_us=speed.median(timing.baseline_us if timing else ()),
        own_device_us=speed.median(timing.candidate_device_us if timing else ()),
        floor_us=case.floor_us,
        empty_us=case.empty_us,
        speed=case.speed,
    )


def saved(path: Path, about: Mapping[str, str]) -> tuple[VendorRecord, ...]:
    """The records of the measurement that a path holds, to be carried on; none where there is no file.

    Raises UsageError where it holds something else, or was measured under other circumstances than `about`, the date
    aside: it would be lost.
    """
    if not path.exists():
        return ()
    fix = "Name another file with --save, or move this one away."
    try:
        kept = read(path)
    except UsageError as error:
        raise UsageError(error.reason, fix) from error
    names = sorted({*kept.about, *about} - {"date"})
    if other := [name for name in names if kept.about.get(name) != about.get(name)]:
        was, now = kept.about.get(other[0], "not told"), about.get(other[0], "not told")
        raise UsageError(f"{path} was measured otherwise: its {other[0]} is {was}, and here it is {now}.", fix)
    return kept.records


def read(path: Path) -> VendorReport:
    """A saved measurement. Raises UsageError if it is not one, or of another format."""
    fix = "Measure again with `cudamaster vendor --save FILE`."
    try:
        data = json.loads(path.read_text("utf-8"))
        if isinstance(data, dict) and data.get("format") != FORMAT:
            raise UsageError(f"{path} has format {data.get('format')}, and this version reads {FORMAT}.", fix)
        return from_json(VendorReport, data)
    except (OSError, ValueError, RecordError) as error:
        raise UsageError(f"{path} is no measurement of vendors' libraries: {error}.", fix) from error


def write(path: Path, report: VendorReport) -> None:
    """Save a measurement, replacing an older one. Raises UsageError if that is not possible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(to_json(report), indent=1) + "\n")
    except OSError as error:
        raise unwritable(path, error, ANOTHER) from error
