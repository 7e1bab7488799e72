"""Times of one kernel in several tables of a folder, held against each other: those that disagree are named.

    times*.csv, baselines.json    times for the GPU model, and of the baselines alone
    report.json, vendor.json      times beside a kernel's or a library's, in turn with it

The text identifies a kernel, the task a baseline, and times of two GPUs are not compared. How far two times may be
apart is by results/h200/timing.md:

- ACROSS_RUNS of the time. S of one kernel differed by up to 3.3 % between runs that were started separately; in S, the
  ratio of two times, cancels what they share, as how fast the machine's memory is, and in a time it does not.
- ALLOCATING instead where a call asks the driver for memory, which takes a fifth more or less from run to run.
- BETWEEN_PROCESSES_US, which two processes of one kernel differ by.
- What an empty launch of the one took more than that of the other, since it depends on the host: 8 to 11 µs. Where a
  table does not say what it took, EMPTY_US.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from cudamaster.core.errors import CudaMasterError
from cudamaster.core.values import Precision, content_hash
from cudamaster.modelling import measured
from cudamaster.report import authorities, saved
from cudamaster.report.data import Disagreement
from cudamaster.runs.record import read_json
from cudamaster.tasks import cards
from cudamaster.vendor.comparison import read as read_vendor

ACROSS_RUNS, ALLOCATING = 0.05, 0.25
BETWEEN_PROCESSES_US, EMPTY_US = 0.5, 3.0
MAY_DIFFER = (
    f"{100 * ACROSS_RUNS:g} % ({100 * ALLOCATING:g} % where a call allocates), {BETWEEN_PROCESSES_US:g} µs and what "
    f"their empty launches differ by ({EMPTY_US:g} µs where that is not known)"
)
TABLES, BASELINES = "times*.csv", "baselines.json"
BASELINE = "baseline"
_ALLOCATES = "cudaMalloc"  # and what begins so


@dataclass(frozen=True)
class Committed:
    """One time in a table. `kernel` is "baseline" or the hash of the text; `device` is empty where none is named."""

    task: str
    precision: str
    kernel: str
    case: str
    us: float
    source: str
    device: str = ""
    empty_us: float | None = None


def has_tables(folder: Path) -> bool:
    """Whether a folder has a table of its own beside saved reports."""
    return (folder / BASELINES).is_file() or any(folder.glob(TABLES))


def of_folder(folder: Path) -> tuple[Disagreement, ...]:
    """What the tables of a folder disagree on, a kernel each, the furthest apart first.

    Raises UsageError for a table that cannot be read; a report or a vendor's measurement is left to who reports it.
    """
    texts = _Texts()
    found: list[Committed] = []
    for path in sorted(folder.glob(TABLES)):
        for time in measured.read(path):
            texts.name(time.code, time.kernel)
            kernel = BASELINE if time.kernel == BASELINE else time.code or time.kernel
            found.append(
                Committed(
                    time.task, time.precision, kernel, time.case, time.whole_us, path.name, empty_us=time.empty_us
                )
            )
    if (path := folder / BASELINES).is_file():
        device = _device(path)
        found += [
            Committed(time.task, time.precision, BASELINE, time.case, time.whole_us, path.name, device, time.empty_us)
            for time in measured.read(path)
        ]
    try:
        found += _of_report(folder / saved.FILE_NAME, texts)
        found += _of_vendor(folder / authorities.FILE_NAME, texts)
    except CudaMasterError:
        pass  # loading the file for its content reports this
    return disagreements(found, texts)


class _Texts:
    """What kernels are called, whether they allocate, and which candidates are which kernel."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.kernels: dict[str, str] = {}  # by candidate
        self._allocate: dict[str, bool] = {}

    def name(self, kernel: str | None, name: str) -> None:
        """A kernel's name, where it has none yet."""
        if kernel is not None:
            self.names.setdefault(kernel, name)

    def add(self, candidate: str, code: str, name: str) -> str:
        """A candidate's text; says which kernel it is."""
        kernel = content_hash(code)
        self.name(kernel, name)
        self.kernels[candidate] = kernel
        self._allocate[kernel] = _ALLOCATES in code
        return kernel

    def allocates(self, time: Committed) -> bool:
        """Whether calls ask the driver for memory: by the text, and where that is not there by the baseline's."""
        if time.kernel in self._allocate:
            return self._allocate[time.kernel]
        return _baseline_allocates(time.task, time.precision)


@functools.cache
def _baseline_allocates(task: str, precision: str) -> bool:
    return task in cards.names() and _ALLOCATES in cards.load(task).baseline(Precision(precision))


def _of_report(path: Path, texts: _Texts) -> Iterator[Committed]:
    """Both sides of what is measured in a saved report."""
    for result in saved.read(path).measured if path.is_file() else ():
        kernel = texts.add(result.best.candidate, result.best.code, result.idea or "") if result.best else None
        for case in result.cases:
            about = (path.name, result.hardware.name, case.empty_us)
            if case.baseline_us is not None:
                yield Committed(result.task, result.precision, BASELINE, case.label, case.baseline_us, *about)
            if case.candidate_us is not None and kernel is not None:
                yield Committed(result.task, result.precision, kernel, case.label, case.candidate_us, *about)


def _of_vendor(path: Path, texts: _Texts) -> Iterator[Committed]:
    """Our kernels, and the baseline beside them and beside the libraries."""
    report = read_vendor(path) if path.is_file() else None
    for record in report.records if report is not None and not report.emulated else ():
        assert report is not None
        kernel = None if record.kernel is None else texts.kernels.get(record.kernel, record.kernel)
        for side, contest in (("library", record.vendor), ("ours", record.ours)):
            for case in contest.cases if contest else ():
                about = (f"{path.name}, {side}", report.about.get("device", ""), case.empty_us)
                if case.against_us is not None:
                    yield Committed(record.task, record.precision, BASELINE, case.label, case.against_us, *about)
                if side == "ours" and case.own_us is not None and kernel is not None:
                    yield Committed(record.task, record.precision, kernel, case.label, case.own_us, *about)


def _device(baselines: Path) -> str:
    raw = read_json(baselines)
    about = raw.get("about") if isinstance(raw, dict) else None
    return str(about.get("device", "")) if isinstance(about, dict) else ""


def disagreements(found: Sequence[Committed], texts: _Texts | None = None) -> tuple[Disagreement, ...]:
    """Kernels with two times that disagree by more than allowed, with the two that disagree most."""
    known = texts or _Texts()
    by_kernel: dict[tuple[str, str, str], dict[str, list[Committed]]] = defaultdict(lambda: defaultdict(list))
    for time in found:
        by_kernel[time.task, time.precision, time.kernel][time.case].append(time)
    kernels = []
    for kernel, cases in by_kernel.items():
        apart = _apart(cases, known)
        if apart:
            kernels.append(_disagreement(kernel, apart, known))
    return tuple(sorted(kernels, key=lambda one: (-one.ratio, one.task, one.precision.value, one.kernel)))


def _apart(cases: Mapping[str, Sequence[Committed]], texts: _Texts) -> list[tuple[Committed, Committed]]:
    """For each case whose times disagree, the two that are furthest apart, the shorter first."""
    found = []
    for times in cases.values():
        pairs = [sorted(pair, key=lambda time: time.us) for pair in combinations(times, 2)]
        far = [(low, high) for low, high in pairs if high.us - low.us > _may_differ_us(low, high, texts)]
        if far:
            found.append(max(far, key=lambda pair: pair[1].us / pair[0].us))
    return found


def _may_differ_us(low: Committed, high: Committed, texts: _Texts) -> float:
    if low.device and high.device and low.device != high.device:
        return float("inf")
    known = low.empty_us is not None and high.empty_us is not None
    empty = abs((low.empty_us or 0) - (high.empty_us or 0)) if known else EMPTY_US
    share = ALLOCATING if texts.allocates(low) else ACROSS_RUNS
    return share * low.us + BETWEEN_PROCESSES_US + empty


def _disagreement(
    kernel: tuple[str, str, str], apart: Sequence[tuple[Committed, Committed]], texts: _Texts
) -> Disagreement:
    low, high = max(apart, key=lambda pair: pair[1].us / pair[0].us)
    task, precision, text = kernel
    return Disagreement(
        task=task,
        precision=Precision(precision),
        kernel=texts.names.get(text) or text,
        case=low.case,
        us=low.us,
        source=low.source,
        other_us=high.us,
        other_source=high.source,
        cases=len(apart),
    )


def to_markdown(found: Sequence[Disagreement]) -> str:
    """The disagreements as a page of text, a line each."""
    head = [
        "# Times that disagree",
        "",
        "Made by `python benchmarks/agreement.py`. Kernels of which two tables here have times further apart than two",
        f"measurements are: {MAY_DIFFER}.",
        "A line is of the case where they are furthest apart.",
        "",
    ]
    if not found:
        return "\n".join([*head, "There are none.", ""])
    columns = ("kernel", "case", "µs", "by", "µs", "by", "ratio", "cases")
    rows = [_line(columns), "|---|---|--:|---|--:|---|--:|--:|", *(line(one) for one in found)]
    return "\n".join([*head, *rows, ""])


def line(one: Disagreement) -> str:
    """A disagreement as a line of that page."""
    kernel = f"{one.task}-{one.precision.value} {one.kernel}"
    times = (f"{one.us:.1f}", one.source, f"{one.other_us:.1f}", one.other_source)
    return _line((kernel, one.case, *times, f"{one.ratio:.2f}", str(one.cases)))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
