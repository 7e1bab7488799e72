"""Where samples are judged: processes for the CPU device, this machine's GPUs, or the nodes of a Ray cluster.

Each judges by the workbench, as `cudamaster evaluate` does.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Protocol

from cudamaster.cluster.fleet import Fleet
from cudamaster.cluster.workbench import ClusterWorkbench
from cudamaster.core.errors import DeviceError, UsageError
from cudamaster.core.values import Candidate, Precision, Verdict
from cudamaster.devices.choose import choose
from cudamaster.devices.cuda import CudaDevice, LocalGpu
from cudamaster.strategies.protocol import Workbench as AnyWorkbench
from cudamaster.tasks.cards import TaskCard
from cudamaster.training.problems import Problem
from cudamaster.workbench.evaluation import Workbench

_TOGETHER = 8  # candidates that one judge on a GPU is asked about


class Benches(Protocol):
    """Judges for a pool of threads (scoring.py). `together` is how many candidates one call should be about."""

    workers: int
    together: int

    def judge(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Verdict]:
        """Verdicts on candidates of one problem; each thread is served by itself."""
        ...

    def bench(self, card: TaskCard, precision: Precision) -> AnyWorkbench:
        """A workbench that says what a prompt needs to know."""
        ...

    def close(self) -> None:
        """End what it started."""
        ...


class Processes:
    """The CPU device in processes of their own: guards in one interpreter would take turns with the model."""

    together = 1

    def __init__(self, workers: int | None) -> None:
        self.workers = workers or max(1, (os.cpu_count() or 2) - 1)
        self._pool = ProcessPoolExecutor(self.workers, multiprocessing.get_context("spawn"), initializer=_end_with_us)

    def judge(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Verdict]:
        """See Benches."""
        try:
            return [
                self._pool.submit(_judged, problem.card, problem.precision, candidate).result()
                for candidate in candidates
            ]
        except BrokenProcessPool as error:
            raise DeviceError(
                "A process that judges samples was killed.", "Look for what killed it (memory?), and run it again."
            ) from error

    def bench(self, card: TaskCard, precision: Precision) -> Workbench:
        """See Benches."""
        return Workbench(card, precision, choose("cpu"))

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)


_benches: dict[tuple[str, str, Precision], Workbench] = {}  # of a process of the pool


def _end_with_us() -> None:
    """In a process of the pool: end with the process that started it, when that is killed or interrupted."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    # Without a traceback; what a judge is at is ended on the way.
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _judged(card: TaskCard, precision: Precision, candidate: Candidate) -> Verdict:
    key = (card.name, card.hash, precision)
    bench = _benches.get(key) or _benches.setdefault(key, Workbench(card, precision, choose("cpu")))
    return _forgetting(bench, [candidate])[0]


def _forgetting(bench: Workbench, candidates: Sequence[Candidate]) -> list[Verdict]:
    """Verdicts, after which the builds are removed: thousands of some megabytes, that nobody asks for again."""
    try:
        return bench.evaluate_all(candidates) if len(candidates) > 1 else [bench.evaluate(candidates[0])]
    finally:
        for candidate in candidates:
            if candidate.id != bench.baseline.id:
                bench.forget(candidate)


class Gpus:
    """GPUs of this machine, each of which measures one kernel at a time while its other threads build."""

    together = _TOGETHER

    def __init__(self, gpus: Sequence[LocalGpu], workers: int | None) -> None:
        """Raises UsageError for GPUs of two models: their speedups are not comparable."""
        if names := sorted({gpu.name for gpu in gpus if gpu.name != gpus[0].name}):
            what = f"The GPUs are of several models ({gpus[0].name}, {', '.join(names)})."
            raise UsageError(what, "Choose those of one model with CUDA_VISIBLE_DEVICES.")
        self.gpus = tuple(gpus)
        self.workers = workers or 4 * len(gpus)
        self._own = _OfThread()
        self._served = 0
        self._lock = threading.Lock()

    def judge(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Verdict]:
        """See Benches."""
        if problem.name not in self._own.benches:
            if self._own.gpu is None:
                with self._lock:
                    self._own.gpu = self.gpus[self._served % len(self.gpus)]
                    self._served += 1
            device = CudaDevice(self._own.gpu)
            self._own.benches[problem.name] = Workbench(problem.card, problem.precision, device)
        bench = self._own.benches[problem.name]
        assert isinstance(bench, Workbench)
        return _forgetting(bench, candidates)

    def bench(self, card: TaskCard, precision: Precision) -> Workbench:
        """See Benches."""
        return Workbench(card, precision, CudaDevice(self.gpus[0]))

    def bench_besides(self, unit: str, card: TaskCard, precision: Precision) -> Workbench | None:
        """A workbench on another GPU than `unit`, for a second measurement; None if there is no other."""
        other = next((gpu for gpu in self.gpus if gpu.uuid != unit), None)
        return None if other is None else Workbench(card, precision, CudaDevice(other))

    def close(self) -> None:
        """Nothing was started."""


class Nodes:
    """The nodes of a Ray cluster that have the GPU of which there are most (cluster/)."""

    together = 1

    def __init__(self, fleet: Fleet, workers: int | None) -> None:
        kinds = [station.kind for station in fleet.stations]
        self._fleet = fleet
        self._kind = max(kinds, key=kinds.count)
        self.workers = workers or fleet.jobs
        self._own = _OfThread()

    def judge(self, problem: Problem, candidates: Sequence[Candidate]) -> list[Verdict]:
        """See Benches."""
        if problem.name not in self._own.benches:
            self._own.benches[problem.name] = self.bench(problem.card, problem.precision)
        return [self._own.benches[problem.name].evaluate(candidate) for candidate in candidates]

    def bench(self, card: TaskCard, precision: Precision) -> ClusterWorkbench:
        """See Benches."""
        return ClusterWorkbench(self._fleet, card, precision, model=self._kind)

    def close(self) -> None:
        """The fleet is ended by who connected it."""


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.benches: dict[str, AnyWorkbench] = {}
        self.gpu: LocalGpu | None = None


def chosen(
    device: str,
    workers: int | None,
    of_model: Sequence[LocalGpu],
    there: Sequence[LocalGpu],
    fleet: Fleet | None,
) -> Benches:
    """Where samples are judged, the model being on the GPUs `of_model`: on others that are `there`, if there are any.

    Raises DeviceError for a device that is not there.
    """
    if fleet is not None:
        return Nodes(fleet, workers)
    if choose(device).name == "cpu":
        return Processes(workers)
    free = [gpu for gpu in there if gpu not in of_model]
    return Gpus(free or list(of_model), workers)
