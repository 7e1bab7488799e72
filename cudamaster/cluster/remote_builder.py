"""Builds the candidates of a GPU node on nodes without a GPU; what is built travels as content into its cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from time import monotonic
from typing import Any

from cudamaster.build.building import Build, Builder
from cudamaster.cluster import ray_calls
from cudamaster.cluster.messages import Done, Failed, Guarded
from cudamaster.cluster.parcel import Parcel
from cudamaster.core.errors import CudaMasterError, DeviceError, one_line
from cudamaster.core.values import Candidate, Precision
from cudamaster.devices import parts
from cudamaster.devices.cuda import LocalGpu
from cudamaster.devices.process import threads
from cudamaster.devices.protocol import Device
from cudamaster.tasks.cards import TaskCard

COMPILE_LOG = "compile.log"


@dataclass(eq=False)
class CompilingNode:
    """An actor that compiles (keeper.Compiler), and how many builds it was asked for that have not ended."""

    actor: Any
    name: str
    waiting: int = 0


@dataclass
class CompilingNodes:
    """The nodes that compile for a GPU node. One that is gone, or whose builds fail by themselves, is left out."""

    left: list[CompilingNode]
    lock: Lock = field(default_factory=Lock)

    def take(self) -> CompilingNode | None:
        """The one with the fewest builds; `give_back` it."""
        with self.lock:
            node = min(self.left, key=lambda one: one.waiting, default=None)
            if node is not None:
                node.waiting += 1
            return node

    def give_back(self, node: CompilingNode) -> None:
        """Its build has ended."""
        with self.lock:
            node.waiting -= 1

    def leave_out(self, node: CompilingNode) -> bool:
        """Whether it was not left out before."""
        with self.lock:
            there = node in self.left
            self.left = [one for one in self.left if one is not node]
            return there


@dataclass(frozen=True)
class BuiltThere:
    """A build on another node: its `key` (Builder.key), and the files of the candidate's folder, by name."""

    build: Build
    key: str
    files: dict[str, bytes]


class RemoteBuilder(Builder):
    """Has candidates built by other nodes where there are such, and else builds them itself.

    What all candidates of a task share is built here: a judge and the baseline's worker stay on the node.
    """

    def __init__(
        self,
        card: TaskCard,
        precision: Precision,
        device: Device,
        *,
        parcel: Parcel,
        gpu: LocalGpu,
        nodes: CompilingNodes,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(card, precision, device)
        self._parcel = parcel
        self._gpu = gpu
        self._nodes = nodes
        self._say = say

    def build(self, candidate: Candidate, *, on_compile: Callable[[], None] = lambda: None) -> Build:
        """As `Builder.build`, on a node that compiles. A node that is lost costs a retry on the next one."""
        started = monotonic()
        passed = _Once(on_compile)
        while (node := self._nodes.take()) is not None:
            try:
                with threads(1) as pool:
                    shared = pool.submit(self.build_shared)
                    there = self._built_there(node, candidate, passed)
                    shared.result()
                if there is None:
                    break
                if there.key != self.key(candidate):
                    raise _NotAsHere("what it links a candidate with is not the same there")
                return replace(self._placed(candidate, there), seconds=monotonic() - started)
            except (ray_calls.Lost, _NotAsHere) as error:
                if isinstance(error, ray_calls.Lost) and error.returns:
                    continue
                if self._nodes.leave_out(node):
                    self._say(f"{node.name} compiles no more: {error}. Its builds are made elsewhere.")
            finally:
                self._nodes.give_back(node)
        return super().build(candidate, on_compile=passed)

    def _built_there(
        self, node: CompilingNode, candidate: Candidate, on_compile: Callable[[], None]
    ) -> BuiltThere | None:
        """The build, or None for an error of ours: the same build here shows whether the node is to blame."""
        arguments = (self._parcel, self.precision, self._gpu, candidate)
        for message in ray_calls.messages(node.actor, "build", *arguments):
            if isinstance(message, Guarded):
                on_compile()
            elif isinstance(message, Done):
                assert isinstance(message.value, BuiltThere)
                return message.value
            elif isinstance(message, Failed) and isinstance(message.error, CudaMasterError):
                return None
            elif isinstance(message, Failed):
                raise _NotAsHere(one_line(message.error or message.trace, 300).rstrip("."))
        raise ray_calls.Lost("it ended without a result")

    def _placed(self, candidate: Candidate, there: BuiltThere) -> Build:
        """The build with its files in this node's cache."""
        build = there.build
        with self.using(candidate):
            folder = self._folder(candidate)
            with parts.alone(folder / "lock", f"kernel {candidate.id}"):
                for name, content in there.files.items():
                    arriving = folder / f"{name}.arriving"
                    arriving.write_bytes(content)
                    arriving.chmod(0o644 if name == COMPILE_LOG else 0o755)
                    arriving.replace(folder / name)
            if build.status is not None:
                return build
            record = {**build.record, "folder": str(folder)}
            return replace(build, worker=self.executable(candidate), record=record)


class _NotAsHere(Exception):
    """Another node cannot build for this one."""


class _Once:
    """Calls a function the first time only."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function: Callable[[], None] | None = function

    def __call__(self) -> None:
        function, self._function = self._function, None
        if function is not None:
            function()


def built_for(
    card: TaskCard, precision: Precision, device: Device, candidate: Candidate, on_compile: Callable[[], None]
) -> BuiltThere:
    """Build a candidate here for the GPU of another node. Raises DeviceError, OSError."""
    builder = Builder(card, precision, device)
    with builder.using(candidate):
        build = builder.build(candidate, on_compile=on_compile)
        if build.status is None and build.worker is None:
            raise DeviceError("There is no worker of a candidate that was built.", "Report this.")
        paths = [] if build.worker is None else [build.worker, build.worker.with_name(COMPILE_LOG)]
        files = {path.name: path.read_bytes() for path in paths if path.is_file()}
        return BuiltThere(replace(build, worker=None, debug=None), builder.key(candidate), files)


def shared_by(actors: Sequence[tuple[Any, str]]) -> CompilingNodes:
    """The nodes that compile, by their actors and names."""
    return CompilingNodes([CompilingNode(actor, name) for actor, name in actors])
