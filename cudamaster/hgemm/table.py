"""The table of measured products: for each shape and way of adding up, our configurations, all times, all ratios.

    measuring -> entry_from_samples -> Writer.append -> TABLE.jsonl -> read -> statistics, pictures, page

A table is a file of JSON lines, of one GPU and one form. Its first line is a header: format, form, GPU, driver, CUDA
and libraries. Each further line is an entry, written and synchronised the moment it is measured, so a process that is
killed loses nothing but what it was measuring. A last line that was not written to its end is left out, and that is
said. Of several entries of one shape and accumulation the last one counts. If a table is continued with another driver
or library, another header says so from there on.

Shapes are M x N x K: A has M rows and K columns, C has M rows and N columns. Times are in microseconds.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cudamaster.core.errors import CudaMasterError, UsageError, unwritable
from cudamaster.core.records import RecordError, from_json, to_json
from cudamaster.core.speed import t_quantile
from cudamaster.core.values import LATER
from cudamaster.families.config import Config
from cudamaster.tasks.hgemm import Accumulate, Layout, Shape

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

FORMAT = 1
# How entries are measured. In 1, our launches overlapped in the mode device, cuBLASLt's algorithms were chosen by the
# host's clock where calls are short, and contestants had different numbers of calls between two events.
MEASURING = 2
SUFFIX = ".jsonl"
FOLDER = Path("runs/hgemm")  # where tables are by default
CONFIDENCE = 0.95  # of all intervals here
OURS = "ours"
# The libraries that ours is measured beside (paper, section 2.2); the last one is the strongest.
AUTHORITIES = ("torch", "cublas", "cublaslt_heuristic", "cublaslt_autotuned")
_BLOCKS = 20  # of iterations that follow each other: what disturbs one may disturb its neighbours
_FEWEST_IN_A_BLOCK = 5
_FREEDOM_LIKE_NORMAL = 2000  # beyond, Student's t is the normal distribution to four digits
_DIGITS = 6  # that are kept of a measured number


class Form(StrEnum):
    """What kernels may include: `closed` nothing but CUDA, `open` the headers of CuTe and CUTLASS too."""

    CLOSED = "closed"
    OPEN = "open"


class Mode(StrEnum):
    """How calls follow each other: back to back, or after random idle intervals (paper, section 2.4.2).

    `device` is ours and not the paper's: back to back while the host is ahead, so that only what the GPU does counts.
    """

    OFFLINE = "offline"
    SERVER = "server"
    DEVICE = "device"

    @property
    def of_paper(self) -> bool:
        """Whether the paper has it too: headlines, maps and losses are of such modes alone."""
        return self is not Mode.DEVICE


@dataclass(frozen=True)
class Times:
    """The calls of one contestant: mean and median, and the standard error of the mean in percent of it.

    The error is 0 where only one call was timed.
    """

    iterations: int
    mean_us: float
    median_us: float
    sem_percent: float


@dataclass(frozen=True)
class Ratio:
    """A library's time over ours, of each iteration: above 1 ours is faster.

    `mean` is the paper's (section 2.4); it exceeds 1 for two equal kernels with noise, by the noise's variance.
    `geometric` does not, and `low` to `high` is its 95 % interval: 0 to infinity for a single iteration.
    """

    mean: float
    median: float
    geometric: float
    low: float
    high: float

    @property
    def verdict(self) -> int:
        """1 if ours is certainly faster, -1 if certainly slower, 0 if the interval includes 1."""
        return (self.low > 1) - (self.high < 1)


@dataclass(frozen=True)
class Check:
    """Results of a contestant beside cuBLAS' own in fp32 (after the paper, section 2.3.2), in `elements` each.

    On general inputs: the largest difference from these, and the largest difference among the libraries, which it must
    not exceed. Where they agree more closely than fp16 rounds, it must not exceed `of_libraries`, the largest
    difference of a library from them. On inputs of 0 and 1: how many elements are wrong where the sum is below 2048, of
    which none may be, and where it is not, which fp16 cannot hold exactly. None stands for what was not checked; `what`
    says what was in words.
    """

    contestant: str
    what: str
    elements: int
    deviation: float | None
    among_libraries: float | None
    wrong_below_2048: int | None
    wrong_from_2048: int | None
    of_libraries: float | None = field(default=None, metadata=LATER)

    @property
    def passed(self) -> bool:
        """Whether nothing that was checked is against it."""
        if self.deviation is None or self.among_libraries is None:
            return not self.wrong_below_2048
        # What is not finite has not passed, whatever a library that fails too is off by.
        close = math.isfinite(self.deviation) and self.deviation <= max(self.among_libraries, self.of_libraries or 0.0)
        return close and not self.wrong_below_2048


@dataclass(frozen=True)
class Entry:
    """All that is known of one shape and accumulation; `date` is ISO date and time, UTC.

    `chosen` is our configuration for each layout, `tried` the number of configurations that were measured for it,
    `algorithms` that of cublasLt's. `seconds` says what the time went into: tuning, autotuning, checks, offline,
    server. `times` are by mode and contestant, e.g. `ours_nn` or `cublaslt_autotuned_tn`. `ratios` are by mode,
    authority and our layout; the authority's layout is the faster one of its two, by the median.
    """

    shape: Shape
    accumulate: Accumulate
    date: str
    chosen: Mapping[Layout, Config]
    tried: Mapping[Layout, int]
    algorithms: Mapping[Layout, int]
    seconds: Mapping[str, float]
    times: Mapping[Mode, Mapping[str, Times]]
    ratios: Mapping[Mode, Mapping[str, Mapping[Layout, Ratio]]]
    checks: tuple[Check, ...]

    @property
    def key(self) -> tuple[Shape, Accumulate]:
        """What there is one entry of in a table."""
        return self.shape, self.accumulate

    def faster(self, mode: Mode, authority: str) -> Layout | None:
        """The layout in which an authority takes less time, by the median; None where it was not measured."""
        times = self.times.get(mode, {})
        found = {layout: times[name] for layout in Layout if (name := contestant(authority, layout)) in times}
        return min(found, key=lambda layout: found[layout].median_us, default=None)

    def ratio(self, mode: Mode, authority: str, layout: Layout) -> Ratio | None:
        """A ratio; None where it was not measured."""
        return self.ratios.get(mode, {}).get(authority, {}).get(layout)

    def time(self, mode: Mode, name: str, layout: Layout) -> Times | None:
        """The times of `ours` or of an authority; None where they were not measured."""
        return self.times.get(mode, {}).get(contestant(name, layout))


@dataclass(frozen=True)
class Header:
    """What a table's entries were measured with. `libraries` are versions by name, e.g. cublas and torch.

    `measuring` is the way in which it was done, see MEASURING.
    """

    format: int
    form: Form
    gpu: str
    driver: str
    cuda: str
    libraries: Mapping[str, str]
    measuring: int = field(default=1, metadata=LATER)

    @property
    def versions(self) -> str:
        """Driver, CUDA and libraries on a line."""
        libraries = [f"{name} {version}" for name, version in sorted(self.libraries.items())]
        return ", ".join([f"driver {self.driver}", f"CUDA {self.cuda}", *libraries])


@dataclass(frozen=True)
class Table:
    """A table as it was read: entries in the order of their shapes.

    `headers` are that of the first line and those of later sessions with other versions. `notes` say what was left
    out and what was replaced, in sentences.
    """

    headers: tuple[Header, ...]
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()

    @property
    def header(self) -> Header:
        """The first one: form and GPU are the same for all."""
        return self.headers[0]

    def find(self, wanted: Shape) -> tuple[Entry, ...]:
        """The entries of a shape, one for each accumulation."""
        return tuple(entry for entry in self.entries if entry.shape == wanted)


def header(*, form: Form | str, gpu: str, driver: str, cuda: str, libraries: Mapping[str, str]) -> Header:
    """The header of a new table."""
    return Header(FORMAT, Form(form), gpu, driver, cuda, dict(libraries), MEASURING)


def contestant(name: str, layout: Layout | str) -> str:
    """The name of `ours` or of an authority in one layout, e.g. cublas_nn."""
    return f"{name}_{Layout(layout).value}"


def default_place(gpu: str, form: Form) -> Path:
    """Where the table of a GPU and a form is kept unless another place is named."""
    slug = re.sub(r"[^a-z0-9]+", "_", gpu.lower()).strip("_") or "gpu"
    return FOLDER / f"{slug}_{form.value}{SUFFIX}"


# From samples to an entry.


def entry_from_samples(
    shape: Shape,
    accumulate: Accumulate | str,
    *,
    date: str,
    contestants: Sequence[str],
    us: Mapping[Mode, ArrayLike] | Mapping[str, ArrayLike],
    chosen: Mapping[Layout, Config],
    tried: Mapping[Layout, int],
    algorithms: Mapping[Layout, int],
    seconds: Mapping[str, float],
    checks: Iterable[Check] = (),
) -> Entry:
    """The entry of what was measured: `us[mode][iteration][contestant]`, in microseconds.

    Columns are in the order of `contestants`, whatever order they were called in. Raises ValueError for names that are
    no contestants, samples of another shape and times that are not positive numbers: those are faults of the caller.
    """
    known = {contestant(name, layout) for name in (OURS, *AUTHORITIES) for layout in Layout}
    if not set(contestants) <= known or len(set(contestants)) < len(contestants):
        raise ValueError(f"contestants that are unknown or there twice: {', '.join(contestants)}")
    samples = {Mode(mode): _samples(mode, values, len(contestants)) for mode, values in us.items()}
    columns = {name: at for at, name in enumerate(contestants)}
    times = {mode: {name: times_of(found[:, at]) for name, at in columns.items()} for mode, found in samples.items()}
    entry = Entry(
        shape=shape,
        accumulate=Accumulate(accumulate),
        date=date,
        chosen={Layout(layout): config for layout, config in chosen.items()},
        tried={Layout(layout): number for layout, number in tried.items()},
        algorithms={Layout(layout): number for layout, number in algorithms.items()},
        seconds={name: _rounded(float(value)) for name, value in seconds.items()},
        times=times,
        ratios={},
        checks=tuple(checks),
    )
    return replace(entry, ratios={mode: _ratios(entry, mode, found, columns) for mode, found in samples.items()})


def _samples(mode: str, values: ArrayLike, contestants: int) -> NDArray[np.float64]:
    import numpy as np

    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 2 or found.shape[1] != contestants or not found.shape[0]:
        raise ValueError(f"{mode}: samples of shape {found.shape} for {contestants} contestants")
    if not (np.isfinite(found).all() and (found > 0).all()):
        raise ValueError(f"{mode}: times that are not positive numbers")
    return found


def _ratios(
    entry: Entry, mode: Mode, samples: NDArray[np.float64], columns: Mapping[str, int]
) -> dict[str, dict[Layout, Ratio]]:
    found: dict[str, dict[Layout, Ratio]] = {}
    for authority in AUTHORITIES:
        if (theirs := entry.faster(mode, authority)) is None:
            continue
        reference = samples[:, columns[contestant(authority, theirs)]]
        ours = {layout: columns.get(contestant(OURS, layout)) for layout in Layout}
        if made := {at: ratio_of(reference, samples[:, place]) for at, place in ours.items() if place is not None}:
            found[authority] = made
    return found


def times_of(us: NDArray[np.float64]) -> Times:
    """Mean, median and the mean's standard error of one contestant's calls, in the order of their iterations."""
    import numpy as np

    mean = float(us.mean())
    error = error_of_mean(us) if len(us) > 1 else (0.0, 0)
    return Times(len(us), _rounded(mean), _rounded(float(np.median(us))), _rounded(100 * error[0] / mean))


def ratio_of(reference_us: NDArray[np.float64], ours_us: NDArray[np.float64]) -> Ratio:
    """The ratio of two contestants over their common iterations.

    The interval is Student's, of the logarithms' mean.
    """
    import numpy as np

    ratios = reference_us / ours_us
    logarithms = np.log(ratios)
    middle = float(logarithms.mean())
    low, high = 0.0, math.inf
    if len(ratios) > 1:
        error, freedom = error_of_mean(logarithms)
        reach = t_quantile(min(freedom, _FREEDOM_LIKE_NORMAL), CONFIDENCE) * error
        low, high = math.exp(middle - reach), math.exp(min(700.0, middle + reach))  # exp of more overflows
    kept = (float(ratios.mean()), float(np.median(ratios)), math.exp(middle), low, high)
    return Ratio(*map(_rounded, kept))


def error_of_mean(values: NDArray[np.float64]) -> tuple[float, int]:
    """Standard error of a mean of at least two values, and its degrees of freedom.

    Neighbours may share a disturbance, so the error is also taken from the means of blocks, and the larger one counts.
    Fewer than _BLOCKS * _FEWEST_IN_A_BLOCK values are too few for that.
    """
    alone, freedom = float(values.std(ddof=1)) / math.sqrt(len(values)), len(values) - 1
    each = len(values) // _BLOCKS
    if each < _FEWEST_IN_A_BLOCK:
        return alone, freedom
    means = values[: each * _BLOCKS].reshape(_BLOCKS, each).mean(axis=1)
    together = float(means.std(ddof=1)) / math.sqrt(_BLOCKS)
    return (together, _BLOCKS - 1) if together > alone else (alone, freedom)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


# The file.


class Writer:
    """A table that is being written, and who else writes it has to wait.

    Made by `Writer(path, header)`: begins the file, or continues one of the same GPU and form, whose half-written last
    line is cut off. `entries` are those that the file held, so that nothing is measured twice; `notes` says what was
    found. Raises UsageError for the file of another GPU, form or format, one that is no table, or one that another
    process is writing, DeviceError for a full disk.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.notes: list[str] = []
        self.entries: tuple[Entry, ...] = ()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise unwritable(path, error, "Name another file.") from error
        try:
            self._begin(header)
        except BaseException:
            self.close()
            raise

    def append(self, entry: Entry) -> None:
        """Write an entry; it is on the disk when this returns. Raises as the constructor does."""
        self._write({"entry": to_json(entry)})

    def close(self) -> None:
        """Let others write."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _begin(self, header: Header) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"Another process is writing {self.path}.", "Wait until it ends, or name another file."
            ) from error
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            self.notes.append(f"The last line of {self.path} was not written to its end, and was cut off.")
        if not whole and content and not _is_header(content):
            raise _no_table(self.path)  # nobody's text is cut off by mistake
        if whole:
            found = _read(self.path, whole)
            _must_fit(self.path, found.header, header)
            self.entries = found.entries
        if len(whole) < len(content):
            os.ftruncate(self._file, len(whole))
        if not whole:
            self._write({"header": to_json(header)})
        elif found.headers[-1] != header:
            self.notes.append(f"{self.path} is continued with other versions: {header.versions}.")
            self._write({"header": to_json(header)})

    def _write(self, line: Mapping[str, Any]) -> None:
        text = (json.dumps(line, separators=(",", ":")) + "\n").encode()
        try:
            before = os.fstat(self._file).st_size
            try:
                while text:
                    text = text[os.write(self._file, text) :]
                os.fsync(self._file)
            except OSError:
                os.ftruncate(self._file, before)
                raise
        except OSError as error:
            raise unwritable(self.path, error, "Make room; what was measured before is kept.") from error


def read(path: Path) -> Table:
    """A table. Raises UsageError for a file that is not there or is no table of this format."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}.",
            "Name the table of a GPU, a .jsonl file that `cudamaster hgemm tune` writes.",
        ) from error
    return _read(path, content)


def read_all(paths: Sequence[Path]) -> Table:
    """One table from several files of one GPU and form, and folders of such: of entries measured twice the later one.

    Without paths, those in runs/hgemm. Raises UsageError as `read` does, where there is none, and where they do not
    belong together: closed and open form, and two GPUs, are never shown together.
    """
    tables = {file: read(file) for path in paths or [FOLDER] for file in _files(path)}
    if not tables:
        raise UsageError(
            f"There is no table in {' or '.join(map(str, paths or [FOLDER]))}.",
            "Measure one with `cudamaster hgemm tune`, or name a file.",
        )
    first, *others = tables
    for other in others:
        _must_fit(other, tables[first].header, tables[other].header, beside=first)
    if not others:
        return tables[first]
    entries = sorted((entry for table in tables.values() for entry in table.entries), key=lambda entry: entry.date)
    kept = {entry.key: entry for entry in entries}
    headers = tuple(_different(header for table in tables.values() for header in table.headers))
    notes = [note for table in tables.values() for note in table.notes]
    if twice := len(entries) - len(kept):
        notes.append(f"{twice} entries are in several of the files; the latest counts.")
    return Table(headers, tuple(sorted(kept.values(), key=_order)), tuple(notes))


def _order(entry: Entry) -> tuple[Shape, int]:
    return entry.shape, list(Accumulate).index(entry.accumulate)


def _files(path: Path) -> list[Path]:
    return sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path] if path != FOLDER else []


def _different(headers: Iterable[Header]) -> list[Header]:
    found: list[Header] = []
    for each in headers:
        if each not in found:
            found.append(each)
    return found


def _must_fit(path: Path, has: Header, wanted: Header, beside: Path | None = None) -> None:
    """Raise UsageError unless two headers are of one GPU, one form and one way of measuring."""
    one, other = (path, "this one") if beside is None else (beside, str(path))
    for what, ours, theirs in (
        ("GPU", has.gpu, wanted.gpu),
        ("form", has.form.value, wanted.form.value),
        ("way of measuring", has.measuring, wanted.measuring),
    ):
        if ours != theirs:
            raise UsageError(
                f"{one} is of the {what} {ours!r}, {other} of {theirs!r}; they are never put together.",
                "Name another file." if beside is None else f"Name tables of one {what}.",
            )


def _no_table(path: Path) -> CudaMasterError:
    return UsageError(f"{path} is no table of products.", "Name a .jsonl file that `cudamaster hgemm tune` writes.")


def _is_header(content: bytes) -> bool:
    begun = b'{"header":'
    return content.startswith(begun) or begun.startswith(content)


def _read(path: Path, content: bytes) -> Table:
    lines, notes = content.split(b"\n"), []
    if not content.strip() or not _is_header(content):
        raise _no_table(path)
    if rest := lines.pop():
        # Nobody wrote its end: a process that was killed, or one that is writing at this moment.
        notes.append(f"The last line of {path} is not written to its end, and is left out.")
        if not lines:
            raise UsageError(
                f"{path} ends within its first line, after {len(rest)} bytes.", "Measure again; nothing is in it."
            )
    headers: list[Header] = []
    entries: dict[tuple[Shape, Accumulate], Entry] = {}
    replaced = 0
    for number, line in enumerate(lines, 1):
        found = _line(path, number, line)
        if isinstance(found, Header):
            if headers:
                _must_fit(path, headers[0], found)
            headers.append(found)
        else:
            replaced += found.key in entries
            entries[found.key] = found
    if len(headers) > 1:
        notes.append(f"{path} was measured in {len(headers)} sessions with different versions.")
    if replaced:
        notes.append(f"{path}: {replaced} entries were measured again; the last one counts.")
    return Table(tuple(headers), tuple(sorted(entries.values(), key=_order)), tuple(notes))


def _line(path: Path, number: int, line: bytes) -> Header | Entry:
    fix = "Remove that line, whose shape is then measured again." if number > 1 else "Name another table."
    try:
        data = json.loads(line)
        if isinstance(data, dict) and list(data) == ["header"]:
            if isinstance(data["header"], dict) and (form := data["header"].get("format")) != FORMAT:
                raise UsageError(
                    f"{path} is a table of format {form}; this program reads format {FORMAT}.",
                    "Take the version of the program that wrote it.",
                )
            return from_json(Header, data["header"])
        if isinstance(data, dict) and list(data) == ["entry"]:
            return from_json(Entry, data["entry"])
        raise RecordError("neither header nor entry")
    except (ValueError, UnicodeDecodeError) as error:
        raise UsageError(f"Line {number} of {path} cannot be read: {error}.", fix) from error
