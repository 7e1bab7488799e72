"""What runs on the nodes: a keeper for each GPU (or each node that emulates one), and a compiler on nodes without one.

A keeper owns its GPU as a program at home does: with the device's own lock, and a `Workbench` for each search that is
served. Several searches are served at once, in threads: one measures while others build.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from cudamaster.audit import running
from cudamaster.audit.corpus import Kind
from cudamaster.audit.outcomes import Outcome
from cudamaster.audit.running import Subject
from cudamaster.build.building import Builder
from cudamaster.cluster.messages import (
    Built,
    Description,
    Done,
    Failed,
    Guarded,
    Held,
    Job,
    Message,
    Said,
    Work,
)
from cudamaster.cluster.parcel import Parcel, unpacked
from cudamaster.cluster.program import program_hash, tools
from cudamaster.cluster.remote_builder import RemoteBuilder, built_for, shared_by
from cudamaster.core import resources
from cudamaster.core.values import Candidate, Hold, Precision
from cudamaster.devices import choose, process, smi
from cudamaster.devices.cuda import CudaDevice, LocalGpu
from cudamaster.devices.protocol import Device
from cudamaster.tasks.cards import TaskCard
from cudamaster.workbench.evaluation import Workbench

TEMPORARY = "cudamaster-node-"
_REMOVING_S = 2.0  # for files that come while they are removed
_SOME_BYTES = bytes(1 << 16)


def _unheard(_message: Message) -> None:
    return


@dataclass(eq=False)
class _Served:
    """A search or an audit that is served: its workbench or subject, and who gets what happens."""

    lock: Lock = field(default_factory=Lock)
    bench: Workbench | None = None
    subject: Subject | None = None
    tell: Callable[[Message], None] = _unheard


class _OnNode:
    """What each actor of ours can be asked."""

    def __init__(self) -> None:
        # Ray ends an actor without the clean-up of a Python that exits, so what it leaves has a place of its own.
        self._temporary: str | None = None
        with suppress(OSError):  # a full disk is found before each work
            self._temporary = tempfile.tempdir = tempfile.mkdtemp(prefix=TEMPORARY)

    def ping(self) -> None:
        """Answer."""

    def end(self) -> None:
        """End all programs that run here, and remove their files: this process is about to be ended."""
        process.end_all()
        until = time.monotonic() + _REMOVING_S
        while self._temporary is not None and Path(self._temporary).exists() and time.monotonic() < until:
            shutil.rmtree(self._temporary, ignore_errors=True)  # fails where a program's end still writes a file
            time.sleep(0.01)

    def trouble(self) -> str | None:
        """What is wrong with this node itself, whatever it was asked to do; None if nothing is seen."""
        return self._disk_trouble()

    def _disk_trouble(self) -> str | None:
        try:
            place = resources.cache_place()
            place.mkdir(parents=True, exist_ok=True)
            if (full := process.full_disk()) is not None:
                return f"its disk is full ({full})"
            with tempfile.TemporaryFile(dir=place) as probe:
                probe.write(_SOME_BYTES)
        except OSError as error:
            return f"its cache {resources.cache_place()} cannot be used: {error.strerror or error}"
        return None

    def _must_be_in_order(self) -> None:
        """Raise OSError where it is not: a compiler or a judge without room says less clearly what it lacks."""
        if (why := self._disk_trouble()) is not None:
            raise OSError(why)


class Keeper(_OnNode):
    """Judges candidates on one device of its node: the GPU that Ray gave to it, or the CPU device."""

    def __init__(self, device: str, node: str) -> None:
        super().__init__()
        self._name = device
        self._node = node
        self._served: dict[str, _Served] = {}
        self._lock = Lock()
        self._compiling = shared_by([])
        self._unit: str | None = None  # the GPU's UUID, once it is known

    def describe(self) -> Description | Failed:
        """What is here."""
        try:
            device = choose.choose(self._name)
            gpu = device.gpu if isinstance(device, CudaDevice) else None
            self._unit = gpu.uuid if gpu is not None else None
            return Description(
                program=program_hash(),
                tools=tools(),
                device=device.name,
                unit=device.unit if gpu is not None else f"{device.unit} of {self._node}",
                hardware=device.hardware(),
                default_command=device.default_command,
                emulated=device.emulated,
                cores=len(os.sched_getaffinity(0)),
                gpu=gpu,
            )
        except Exception as error:
            return Failed.by(error)

    def use(self, compilers: Sequence[tuple[Any, str]]) -> None:
        """Have candidates built by these actors, each with the name of its node."""
        self._compiling = shared_by(compilers)

    def trouble(self) -> str | None:
        """Of the node, or of the GPU: asked only after an error, since nvidia-smi disturbs who measures."""
        if self._unit is not None and not any(self._unit in fields for fields in smi.now()):
            return f"nvidia-smi no longer lists its GPU {self._unit}"
        return self._disk_trouble()

    def work(self, job: Job, work: Work) -> Iterator[Message]:
        """Do it, and yield what happens meanwhile; the last message is Done or Failed."""

        def begun(tell: Callable[[Message], None]) -> object:
            self._must_be_in_order()
            with self._lock:
                served = self._served.setdefault(job.owner, _Served())
            with served.lock:  # home asks again where only the connection broke, while the first call still works
                served.tell = tell
                bench = served.bench = served.bench or self._bench(job, served)
                if work.what == "hardware":
                    return bench.hardware
                result: object = getattr(bench, work.what)(*work.arguments, **work.options)
                return result

        yield from _messages(begun)

    def audit(
        self, parcel: Parcel, precision: Precision, kinds: Sequence[Kind], known: Mapping[str, Outcome]
    ) -> Iterator[Message]:
        """The outcomes of kinds that are judged alike for a task (audit.running.outcomes)."""

        def begun(tell: Callable[[Message], None]) -> object:
            self._must_be_in_order()
            with self._lock:
                served = self._served.setdefault(f"audit of {parcel.key} {precision}", _Served())
            with served.lock:
                served.tell = tell
                subject = served.subject = served.subject or self._subject(parcel, precision, served)
            return running.outcomes([(kind, subject) for kind in kinds], known)

        yield from _messages(begun)

    def _bench(self, job: Job, served: _Served) -> Workbench:
        """The workbench of a search, which tells what happens to whoever asks at that time."""
        device = choose.choose(self._name)
        bench = Workbench(
            unpacked(job.parcel),
            job.precision,
            device,
            seed=job.seed,
            profile=job.profile,
            thresholds=job.thresholds,
            brief_baseline=True,
            builder=self._builder(device, job.parcel, lambda message: served.tell(message)),
            modelled_gpu=job.modelled,
        )
        bench.on_build = lambda candidate, log: served.tell(Built(candidate, log))
        bench.on_hold = lambda hold: served.tell(Held(self._of_node(hold)))
        return bench

    def _subject(self, parcel: Parcel, precision: Precision, served: _Served) -> Subject:
        device = choose.choose(self._name)
        builder = self._builder(device, parcel, lambda message: served.tell(message))
        return Subject(unpacked(parcel), precision, device, builder)

    def _builder(
        self, device: Device, parcel: Parcel, tell: Callable[[Message], None]
    ) -> Callable[[TaskCard, Precision, Device], Builder]:
        if not isinstance(device, CudaDevice):
            return Builder
        say: Callable[[str], None] = lambda line: tell(Said(line))  # noqa: E731
        return partial(RemoteBuilder, parcel=parcel, gpu=device.gpu, nodes=self._compiling, say=say)

    def _of_node(self, hold: Hold) -> Hold:
        return hold if self._name == "cuda" else replace(hold, unit=f"{hold.unit} of {self._node}")


class Compiler(_OnNode):
    """Builds candidates for GPUs of other nodes."""

    def describe(self) -> str | Failed:
        """The tools of this node."""
        try:
            resources.cache()
            return tools()
        except Exception as error:
            return Failed.by(error)

    def build(self, parcel: Parcel, precision: Precision, gpu: LocalGpu, candidate: Candidate) -> Iterator[Message]:
        """Build a candidate for a GPU, and yield its files with the result."""

        def begun(tell: Callable[[Message], None]) -> object:
            self._must_be_in_order()
            return built_for(unpacked(parcel), precision, CudaDevice(gpu), candidate, lambda: tell(Guarded()))

        yield from _messages(begun)


def _messages(begun: Callable[[Callable[[Message], None]], object]) -> Iterator[Message]:
    """What a function tells while it works in a thread of its own, and its result."""
    told: SimpleQueue[Message] = SimpleQueue()

    def run() -> None:
        try:
            told.put(Done(begun(told.put)))
        except BaseException as error:
            told.put(Failed.by(error))

    Thread(target=run, daemon=True).start()
    while True:
        message = told.get()
        yield message
        if isinstance(message, Done | Failed):
            return
