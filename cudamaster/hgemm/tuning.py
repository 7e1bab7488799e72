"""`cudamaster hgemm tune`: chooses a member of the family for each product and measures it beside the libraries.

    model.ranked -> building.kernels -> measuring.serve, a process -> Entry -> Writer.append

The model names the most promising members, measurements choose among them. A product is in the table the moment it is
measured; those that are there already are left out, so the same command goes on after it was stopped.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from cudamaster.core.errors import DeviceError
from cudamaster.devices import smi
from cudamaster.families import model
from cudamaster.families.config import Config
from cudamaster.hgemm import building, measuring
from cudamaster.hgemm.table import Entry, Form, Header, Mode, Writer, default_place, header
from cudamaster.tasks.hgemm import Accumulate, Layout, Shape

Serve = Callable[[Connection, Path, Path | None], None]
_START_LIMIT_S = 120.0
_LIMIT_S = 60.0  # for a product, beside the seconds that its times may take
_MOST_TRIES = 4  # of a product whose members broke the process


class Observer:
    """Is told how far a tuning is; does nothing by itself."""

    def building(self, done: int, number: int) -> None:
        """So many kernels are built."""

    def started(self, place: Path, about: Header, left: int, there: int) -> None:
        """Measuring begins: products that are left, and those that the table has."""

    def measured(self, entry: Entry) -> None:
        """A product is in the table."""

    def failed(self, shape: Shape, accumulate: Accumulate, why: str) -> None:
        """A product could not be measured."""

    def said(self, note: str) -> None:
        """A sentence to show."""


@dataclass(frozen=True)
class Wanted:
    """What to tune: shapes, ways to add up, and how long the times of a mode may take and be prepared, in seconds."""

    shapes: Sequence[Shape]
    accumulates: Sequence[Accumulate]
    candidates: int = 14  # members that are measured of each product and layout
    seconds: float = 3.0
    warm_up: float = 0.0
    whole: bool = False  # use the seconds up, as the paper does
    seed: int = 1


@dataclass
class Outcome:
    """What a tuning did: entries, failures, and the seconds that its parts took."""

    place: Path
    entries: list[Entry] = field(default_factory=list)
    failures: list[tuple[Shape, Accumulate, str]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        """Count an entry and its seconds."""
        self.entries.append(entry)
        for part, seconds in entry.seconds.items():
            self.seconds[part] = self.seconds.get(part, 0.0) + seconds


def tune(wanted: Wanted, place: Path | None, observer: Observer, serve: Serve = measuring.serve) -> Outcome:
    """Measure all products that the table does not have. Raises DeviceError without a Hopper GPU, nvcc or cuBLAS.

    `serve` is what the process that measures does.
    """
    began = time.monotonic()
    bench = building.bench()
    torch = building.torch()
    if isinstance(torch, str):
        observer.said(f"torch.matmul is left out: {torch}.")
    with _Process(bench, None if isinstance(torch, str) else torch, serve) as process:
        about = _header(process.versions)
        outcome = Outcome(place or default_place(about.gpu, Form.CLOSED))
        with Writer(outcome.place, about) as writer:
            for note in writer.notes:
                observer.said(note)
            there = {entry.key for entry in writer.entries}
            left = [(shape, way) for shape in wanted.shapes for way in wanted.accumulates if (shape, way) not in there]
            ranked = {
                (shape, way, layout): model.ranked(layout, way, shape)[: wanted.candidates]
                for shape, way in left
                for layout in Layout
            }
            built = _build(ranked, observer)
            outcome.seconds["building"] = time.monotonic() - began
            observer.started(outcome.place, about, len(left), len(there))
            for shape, way in left:
                candidates = {
                    layout: [(config, built[config]) for config in ranked[shape, way, layout]] for layout in Layout
                }
                job = measuring.Job(shape, way, candidates, wanted.seconds, wanted.warm_up, wanted.whole, wanted.seed)
                found = process.measure(job, observer)
                if isinstance(found, str):
                    outcome.failures.append((shape, way, found))
                    observer.failed(shape, way, found)
                    continue
                writer.append(found)
                outcome.add(found)
                observer.measured(found)
    return outcome


def _header(versions: Mapping[str, str]) -> Header:
    runtime = int(versions["runtime"])
    return header(
        form=Form.CLOSED,
        gpu=versions["gpu"],
        driver=next((row[3] for row in smi.gpus() if row[0] == versions["gpu"]), versions["driver"]),
        cuda=f"{runtime // 1000}.{runtime % 1000 // 10}",
        libraries={name: versions[name] for name in ("cublas", "torch") if versions.get(name)},
    )


def _build(
    ranked: Mapping[tuple[Shape, Accumulate, Layout], Sequence[Config]], observer: Observer
) -> dict[Config, Path]:
    configs = list(dict.fromkeys(config for those in ranked.values() for config in those))
    done = 0

    def one_more() -> None:
        nonlocal done
        done += 1
        observer.building(done, len(configs))

    return building.kernels(configs, one_more)


class _Process:
    """The process that measures. It is started again after a member broke it, and that member is left out."""

    def __init__(self, bench: Path, torch: Path | None, serve: Serve) -> None:
        self._bench, self._torch, self._serve = bench, torch, serve
        self._context = multiprocessing.get_context("spawn")
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._broken: set[tuple[Shape, Config]] = set()
        self.versions: dict[str, str] = {}

    def __enter__(self) -> _Process:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _start(self) -> Connection:
        ours, theirs = self._context.Pipe()
        self._process = self._context.Process(target=self._serve, args=(theirs, self._bench, self._torch), daemon=True)
        self._process.start()
        theirs.close()
        self._pipe = ours
        try:
            if not ours.poll(_START_LIMIT_S):
                raise EOFError
            _, self.versions = ours.recv()
        except EOFError:
            self._end()
            raise DeviceError(
                "The process that measures did not start; its words are above.",
                "Run `cudamaster doctor`: a Hopper GPU (sm_90) and its driver are needed.",
            ) from None
        return ours

    def _end(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._pipe = None

    def measure(self, job: measuring.Job, observer: Observer) -> Entry | str:
        """The entry of a product, or why there is none."""
        why = ""
        for _ in range(_MOST_TRIES):
            candidates = {
                layout: [each for each in those if (job.shape, each[0]) not in self._broken]
                for layout, those in job.candidates.items()
            }
            if not all(candidates.values()):
                return f"all members failed; the last: {why}"
            pipe = self._pipe or self._start()
            pipe.send(replace(job, candidates=candidates))
            limit = time.monotonic() + _LIMIT_S + len(Mode) * (job.seconds + job.warm_up)
            trying: Config | None = None
            try:
                while True:
                    if not pipe.poll(max(limit - time.monotonic(), 0.0)):
                        why = "it did not end"
                        break
                    kind, said = pipe.recv()
                    if kind == "entry":
                        return said  # type: ignore[no-any-return]
                    if kind == "error":
                        why = said
                        break
                    trying = said
            except (EOFError, ConnectionResetError):
                why = "the process ended"
            self._end()
            if trying is None:
                return why
            observer.said(f"{job.shape}: {trying} is left out: {why}.")
            self._broken.add((job.shape, trying))
        return why
