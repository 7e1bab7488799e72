"""What every device can do. Guards, verdicts and strategies know devices by this alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, Protocol, runtime_checkable

from cudamaster.core.values import Hardware, Hold, Profile
from cudamaster.devices.gate import Gate
from cudamaster.devices.parts import Part

if TYPE_CHECKING:
    from cudamaster.devices.ncu import NoProfile


@dataclass(frozen=True)
class Compiled:
    """Result of one compiler call. `object` is None when it failed, and `log` then says why.

    `unsupported` is set when the source is beyond what this device can execute: the construct and its line.
    """

    object: Path | None
    command: str
    log: str
    seconds: float
    unsupported: str | None = None


@dataclass(frozen=True)
class Ran:
    """A finished harness process. `signal` is set when it was killed by one; `expired` by our own limit.

    `seconds` are those from when its candidate was there; `ahead` it ran before that, and `waited` is how long whoever
    asked for it waited beside that, for a device that others held above all.
    """

    exit_code: int | None
    signal: int | None
    expired: bool
    stderr: str
    seconds: float
    ahead: float = 0.0
    waited: float = 0.0


# A run whose candidate never came.
NEVER_RUN = Ran(exit_code=None, signal=None, expired=False, stderr="", seconds=0.0)


@dataclass(frozen=True)
class MeasuringProtocol:
    """The measuring protocol of a device: how many calls by how many pairs of processes, and what is too long for it.

    `work_limit` is the largest card weight T of a timed case that is run beside the lightest one, None for no limit. A
    single call is stopped after `call_limit_s`, or a thousand times the baseline's time if that is longer.
    """

    pairs: int
    warmups: int
    calls: int
    work_limit: float | None
    call_limit_s: float


@dataclass(frozen=True)
class ObjectRules:
    """Regular expressions, full match, for the object guard: undefined symbols, functions that run before main, and
    writable variables (None where device variables cannot be told from the host's)."""

    symbols: frozenset[str]
    constructors: frozenset[str]
    state: frozenset[str] | None


def linker_options(libraries: Sequence[Path]) -> list[str]:
    """The linker's options for shared libraries, by their paths: it finds them there again when it is run.

    Whatever order the compiler passes them in, they are linked; and the old kind of tag counts for libraries of
    libraries too.
    """
    folders = dict.fromkeys(f"-rpath={library.parent}" for library in libraries)
    return ["--no-as-needed", *map(str, libraries), "--disable-new-dtags", *folders] if libraries else []


def worker_words(who: str, command: Sequence[str]) -> list[str]:
    """The judge's options that say how the worker `who` (baseline, candidate, rival) is started."""
    return [word for part in command for word in (f"--{who}", part)]


def baseline_alone(words: Sequence[str]) -> list[str]:
    """Of a judge's options, or its whole command, those that say how the baseline's worker is started."""
    return worker_words("baseline", [word for option, word in pairwise(words) if option == "--baseline"])


# Who looks on in an observed build: `trace` counts what a kernel does, `check` finds what is wrong with it.
Observer = Literal["trace", "check"]


@runtime_checkable
class Observing(Protocol):
    """A device that can look on while it executes: the CPU device."""

    def observer_fingerprint(self, observer: Observer) -> str:
        """Hash of what observed builds have beside the device's fingerprint."""
        ...

    def flags_of_builds(self, flags: Sequence[str]) -> Sequence[Sequence[str]]:
        """What the compiler's own macros depend on, for each build that a candidate has here."""
        ...

    def compile_observed(
        self, source: str, flags: Sequence[str], name: str, folder: Path, observer: Observer
    ) -> Compiled:
        """Compile CUDA C++ text to an object file that calls out to an observer."""
        ...

    def link_observed(self, objects: Sequence[Path], executable: Path, observer: Observer) -> Compiled:
        """Link harness and candidate objects with the device's runtime and the observer."""
        ...

    def run_observed(self, command: Sequence[str], report: Path, limit_s: float, notes: BinaryIO) -> Ran:
        """Run a linked harness; what the observer has to say goes to `notes`, which it may read first."""
        ...


class Device(Protocol):
    """A place to build and run candidates.

    `on_hold` is called after each run, once the device is free again.
    """

    on_hold: Callable[[Hold], None] | None

    @property
    def name(self) -> str:
        """Name for --device: "cuda" or "cpu"."""
        ...

    @property
    def unit(self) -> str:
        """Which of several devices of that name: a GPU's UUID."""
        ...

    @property
    def emulated(self) -> bool:
        """Whether its times are no measurement of a GPU."""
        ...

    @property
    def shares_driver(self) -> bool:
        """Whether what is run on other devices of the machine may hold up calls that ask the driver for memory."""
        ...

    @property
    def default_command(self) -> str:
        """The compile command that a candidate has when no agent chose one; it builds candidate.cu to candidate.o."""
        ...

    @property
    def protocol(self) -> MeasuringProtocol:
        """Default warm-ups and timed calls."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hash over compiler, architecture and runtime: keys the build cache."""
        ...

    def hardware(self) -> Hardware:
        """Name and figures of the device."""
        ...

    def compile(self, source: str, flags: Sequence[str], name: str, folder: Path, *, debug: bool = False) -> Compiled:
        """Compile CUDA C++ text to an object file <folder>/<name>.o.

        `flags` were checked by the flag guard. Includes of `mskb/...` and `reference/...` resolve to bench/.
        `debug` asks for the memory-checking build where the device has one (AddressSanitizer on the CPU).
        A compiler that says no is a Compiled without object; DeviceError is for a compiler that is not there.
        """
        ...

    @property
    def has_debug_build(self) -> bool:
        """Whether `debug=True` makes a memory-checking build that is worth running on every candidate."""
        ...

    def parts(self) -> Sequence[Part]:
        """What is built once for the device, whatever the task, the longest first; it may be built at any time."""
        ...

    def include_folders(self) -> tuple[Path, ...]:
        """Folders of the CUDA headers that candidates see, for the preprocessing of the source guard."""
        ...

    def predefined(self) -> tuple[str, ...]:
        """Macros, as NAME or NAME=VALUE, that the device's compiler predefines beyond a host compiler's."""
        ...

    def object_rules(self) -> ObjectRules:
        """What a candidate's object may carry."""
        ...

    def link(
        self, objects: Sequence[Path], executable: Path, *, debug: bool = False, libraries: Sequence[Path] = ()
    ) -> Compiled:
        """Link harness and candidate objects with the device's runtime; `object` is the executable.

        `libraries` are shared ones, which the executable finds again where they lie.
        """
        ...

    def run(
        self,
        command: Sequence[str],
        report: Path,
        limit_s: float,
        *,
        reversed_threads: bool = False,
        alone: bool = True,
        quiet: bool = False,
        gate: Gate | None = None,
    ) -> Ran:
        """Run a linked harness, its JSON lines going to `report`, holding the device's lock meanwhile.

        What measures runs `alone` on the device; checks may share it with each other. With `quiet` no run of ours is on
        another device of the machine either: calls that ask the driver for memory wait for all that it does.

        A judge with a `gate` is started ahead of its candidate and waits for it there; the gate then says what is to be
        quiet. Where it closes the judge is ended, and what this gives says nothing.
        """
        ...

    def profile(
        self, judge: Sequence[str], worker: Path, case: str, candidate: str, metrics: Collection[str] | None
    ) -> Profile | NoProfile:
        """Profile one call of a candidate's worker at the case with that label; why there is no profile, otherwise.

        `judge` is the judge's command without the candidate.
        """
        ...
