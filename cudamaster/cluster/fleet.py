"""The cluster as home sees it: its keepers, which of them gets what, and which are left out for what reason."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cudamaster.cluster import ray_calls
from cudamaster.cluster.keeper import Compiler, Keeper
from cudamaster.cluster.messages import Description, Done, Failed, FailedThere, Message, NodeFault
from cudamaster.cluster.program import program_hash
from cudamaster.cluster.ray_calls import Lost, Node
from cudamaster.core.errors import DeviceError

_START_S = 120.0  # for the actors to start: a process that loads this package from a disk of its own
_END_S = 3.0
_FIGURES = ("driver", "CUDA toolkit", "power limit", "largest SM clock", "memory clock", "memory")


@dataclass(eq=False)
class Station:
    """A keeper with what it said of itself. `left_out` is why it gets no more to do."""

    actor: Any
    node: str
    is_: Description
    left_out: str | None = None
    benches: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    calls: int = 0

    @property
    def kind(self) -> str:
        """What it has in common with others that may go on with its work: the GPU's model. All CPU devices are alike:
        their times are computed from counts."""
        return self.is_.device if self.is_.emulated else self.is_.hardware.name

    @property
    def described(self) -> str:
        """For people: the node, and its GPU."""
        return self.node if self.is_.emulated else f"{self.node} ({self.is_.hardware.name}, {self.is_.unit})"

    def differs(self, other: Station) -> str:
        """The figures in which its GPU differs from another's, in words; empty for none."""
        mine, others = self.is_.hardware.figures, other.is_.hardware.figures
        if self.is_.emulated:
            return ""
        named = [f"{name} {mine[name]} instead of {others[name]}" for name in _FIGURES
                 if name in mine and name in others and mine[name] != others[name]]  # fmt: skip
        return f" It has {', '.join(named)}." if named else ""


class Fleet:
    """The keepers of one command on a cluster. Used as a context, which ends all of them."""

    def __init__(
        self, device: str, stations: Sequence[Station], compilers: Sequence[Any], notes: Sequence[str], place: str
    ) -> None:
        """`notes` say which nodes are left out from the beginning, and why; `place` is where the head listens."""
        self.device = device
        self.place = place
        self.stations = tuple(stations)
        self.notes = tuple(notes)
        self._compilers = tuple(compilers)
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def described(self) -> str:
        """For people: how many of what measure, on how many nodes, and how many others compile."""
        kinds = Counter("CPU device" if one.is_.emulated else one.is_.hardware.name for one in self.stations)
        measuring = ", ".join(f"{number} x {kind}" for kind, number in kinds.items())
        nodes = len({one.node for one in self.stations})
        return f"measuring: {measuring} on {nodes} node{'s' * (nodes > 1)}; compiling alone: {len(self._compilers)}"

    @property
    def emulated(self) -> bool:
        """Whether times are not measured on GPUs."""
        return all(station.is_.emulated for station in self.stations)

    @property
    def units(self) -> tuple[str, ...]:
        """The GPUs' UUIDs, or names of the nodes' CPU devices."""
        return tuple(station.is_.unit for station in self.stations)

    @property
    def jobs(self) -> int:
        """So many tasks at once keep it at work: four for a GPU, one for each core that emulates one."""
        return sum(station.is_.cores if station.is_.emulated else 4 for station in self.stations)

    def choose(self, kind: str | None = None, unit: str | None = None, besides: Sequence[Station] = ()) -> Station:
        """The station of that kind with the least to do, or `unit` if that is one.

        Raises DeviceError where there is none.
        """
        with self._lock:
            fit = [one for one in self.stations if one.left_out is None and kind in (None, one.kind)]
            fit = [one for one in fit if one not in besides]
            named = [one for one in fit if one.is_.unit == unit]
            if not fit:
                raise self._none_left(kind)
            return min(named or fit, key=lambda one: (len(one.benches), one.calls))

    def _none_left(self, kind: str | None) -> DeviceError:
        out = [f"{one.node}: {one.left_out}" for one in self.stations if one.left_out]
        said = "; ".join(dict.fromkeys(out))
        of = f" with {kind}" if kind and kind != "cpu" else ""
        return DeviceError(
            f"No node of the cluster{of} is left{f' ({said})' if said else ''}.",
            "Add such a node, or repair one; a run or suite goes on with --resume.",
        )

    def leave_out(self, station: Station, why: str) -> bool:
        """Give a station no more to do; whether it was not left out before."""
        with self._lock:
            first, station.left_out = station.left_out is None, station.left_out or why
            return first

    def trouble(self, station: Station) -> str | None:
        """What is wrong with a station's node; None if it seems to be in order. Raises Lost."""
        found = ray_calls.answer(ray_calls.asked(station.actor, "trouble"))
        return None if found is None else str(found)

    def call(self, station: Station, tell: Callable[[Message], None], method: str, *arguments: object) -> Any:
        """What a method of a station's keeper comes to; `tell` gets what happens meanwhile.

        Raises Lost, FailedThere with what the keeper's workbench raised, NodeFault, and what `tell` raises.
        """
        with self._lock:
            if self._closed:
                raise DeviceError("The work on the cluster was ended.", "Start it again.")
            station.calls += 1
        try:
            for message in ray_calls.messages(station.actor, method, *arguments):
                if isinstance(message, Done):
                    return message.value
                if isinstance(message, Failed):
                    if message.error is not None:
                        raise FailedThere(message.error)
                    raise NodeFault(f"A fault of the program on {station.node}:\n{message.trace}")
                tell(message)
        finally:
            with self._lock:
                station.calls -= 1
        raise Lost("it ended without a result")

    def close(self) -> None:
        """End what runs on the cluster for this command, and leave it."""
        with self._lock:
            before, self._closed = self._closed, True
        if before:
            return
        ray_calls.end([*(one.actor for one in self.stations), *self._compilers], _END_S)
        until = time.monotonic() + _END_S
        while any(station.calls for station in self.stations) and time.monotonic() < until:
            time.sleep(0.01)  # threads of ours that still wait for an answer get an error
        ray_calls.disconnect()


def connect(address: str, device: str) -> Fleet:
    """Join the cluster at `address` ("auto" for the one that this machine is part of), with keepers on its nodes.

    `device` is auto, cuda or cpu; auto takes GPUs if a node has one. Raises UsageError and DeviceError.
    """
    ray_calls.connect(address)
    try:
        return _begun(device)
    except BaseException:
        ray_calls.disconnect()
        raise


def _begun(device: str) -> Fleet:
    nodes = ray_calls.nodes()
    gpus = any(node.gpus for node in nodes)
    if device == "cuda" and not gpus:
        fix = "Start Ray on a machine with a GPU (`ray start --address=HOST:6379`), or use --device cpu."
        raise DeviceError("No node of the cluster has a GPU.", fix)
    name = ("cuda" if gpus else "cpu") if device == "auto" else device
    notes: list[str] = []
    used = _of_the_same_program([node for node in nodes if node.cpus or (node.gpus and name == "cuda")], notes)
    measuring = [node for node in used if node.gpus] if name == "cuda" else used
    compiling = [node for node in used if node not in measuring]
    keepers = [
        (node, ray_calls.start(Keeper, (name, node.name), node, gpus=int(name == "cuda"), cpus=int(name == "cpu")))
        for node in measuring
        for _ in range(node.gpus if name == "cuda" else 1)
    ]
    compilers = [(node, ray_calls.start(Compiler, (), node, cpus=1)) for node in compiling]
    until = time.monotonic() + _START_S
    stations = [Station(actor, node.name, found) for node, actor, found in _described(keepers, until, notes)]
    stations = _each_gpu_once(stations, notes)
    if not stations:
        why = " ".join(notes) or "no node has a CPU for Ray."
        fix = "Mend that; docs/cluster.md says what a node needs."
        raise DeviceError(f"No node of the cluster can measure: {why}", fix)
    built = [(actor, node.name, found) for node, actor, found in _described(compilers, until, notes)]
    for station in stations:
        same = [(actor, node) for actor, node, found in built if found == station.is_.tools]
        if other := [node for _, node, found in built if found != station.is_.tools]:
            notes.append(f"{', '.join(other)} cannot compile for {station.node}: other tools.")
        if same:
            ray_calls.answer(ray_calls.asked(station.actor, "use", same))
    return Fleet(name, stations, [actor for actor, _, _ in built], tuple(dict.fromkeys(notes)), ray_calls.place())


def _of_the_same_program(nodes: Sequence[Node], notes: list[str]) -> list[Node]:
    """Those that have this very program; others are left out, with the reason among the notes."""
    ours = program_hash()
    asked = [(node, ray_calls.waiting(node, _program_there())) for node in nodes]
    found = []
    until = time.monotonic() + _START_S
    for node, reference in asked:
        try:
            said = ray_calls.answer(reference, max(1.0, until - time.monotonic()))
        except (Lost, TimeoutError) as error:
            said = f"it does not answer ({str(error) or 'too slow'})"
        if said == ours:
            found.append(node)
        else:
            notes.append(f"{node.name} is left out: {_misfit(str(said), ours)}.")
    return found


def _misfit(said: str, ours: str) -> str:
    is_hash = len(said) == len(ours) and " " not in said
    return f"its cudamaster is another one ({said}, here {ours}); install the same on all nodes" if is_hash else said


def _program_there() -> Callable[[], str]:
    # A function inside a function travels as code, so that it also runs where this package is missing.
    def program() -> str:
        try:
            from cudamaster.cluster.program import program_hash
        except ImportError as error:
            return f"cudamaster is not installed there ({error}); run `pip install 'cudamaster[ray]'` on it"
        return program_hash()

    return program


def _described(actors: Sequence[tuple[Node, Any]], until: float, notes: list[str]) -> list[tuple[Node, Any, Any]]:
    """The actors that said what they are, with that; others are left out, with the reason among the notes."""
    asked = [(node, actor, ray_calls.asked(actor, "describe")) for node, actor in actors]
    found = []
    for node, actor, reference in asked:
        why = None
        try:
            said = ray_calls.answer(reference, max(1.0, until - time.monotonic()))
        except TimeoutError:
            why = "Ray does not start a process there; other jobs may hold its GPU or its CPUs"
        except Lost as error:
            why = f"its process ended ({error})"
        else:
            if isinstance(said, Failed):
                why = str(said.error or said.trace).rstrip(".")
        if why is None:
            found.append((node, actor, said))
        else:
            notes.append(f"{node.name} is left out: {why}.")
            ray_calls.end([actor], 0.0)
    return found


def _each_gpu_once(stations: Sequence[Station], notes: list[str]) -> list[Station]:
    """Two nodes of one machine that both see its first GPU would measure on it at once."""
    found: dict[str, Station] = {}
    for station in stations:
        first = found.setdefault(station.is_.unit, station)
        if first is not station:
            notes.append(
                f"{station.node} is left out: its GPU {station.is_.unit} is that of {first.node} too. Start each node "
                "of a machine with a CUDA_VISIBLE_DEVICES of its own."
            )
            ray_calls.end([station.actor], 0.0)
    return list(found.values())
