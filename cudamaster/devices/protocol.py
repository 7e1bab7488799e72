"""What every device can do. Guards, verdicts and strategies know devices only through this."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, Protocol, runtime_checkable

from cudamaster.core.values import Hardware, Hold, Profile
from cudamaster.devices.gate import Gate
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.parts import Part

if TYPE_CHECKING:
    from cudamaster.devices.ncu import NoProfile
    from cudamaster.guards.flags import Flags
    from cudamaster.guards.refusal import Refusal


@dataclass(frozen=True)
class Compiled:
    """Result of one compiler call. `object` is None if it failed, and `log` then says why.

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

    `seconds` count from when its candidate was built; `ahead` is how long it ran before that, and `waited` how long its
    caller waited besides, mainly for a device that others held. `executed` are kernels, each by the program that it is
    in and its place there, on a device that can tell (`Observing`).
    """

    exit_code: int | None
    signal: int | None
    expired: bool
    stderr: str
    seconds: float
    ahead: float = 0.0
    waited: float = 0.0
    executed: frozenset[tuple[Path, int]] = frozenset()


# A run whose candidate never came.
NEVER_RUN = Ran(exit_code=None, signal=None, expired=False, stderr="", seconds=0.0)


@dataclass(frozen=True)
class MeasuringProtocol:
    """The measuring protocol of a device: how many calls by how many pairs of processes, and what is too long for it.

    `work_limit` is the largest card weight T of the timed cases that run besides the lightest one, None for no limit. A
    single call is stopped after `call_limit_s`, or a thousand times the baseline's time if that is longer. Where
    `times_count` is off, timed calls are only there to be checked: others may use the device meanwhile, and no clock
    confirms the times.
    """

    pairs: int
    warmups: int
    calls: int
    work_limit: float | None
    call_limit_s: float
    times_count: bool = True


@dataclass(frozen=True)
class ObjectRules:
    """Regular expressions, full match, for the object guard: undefined symbols, functions that run before main, and
    writable variables (None if device variables look like the host's)."""

    symbols: frozenset[str]
    constructors: frozenset[str]
    state: frozenset[str] | None


@dataclass(frozen=True)
class Preprocessor:
    """How the source guard sees a region: a compiler of the host, its folders of headers, what the device's compiler
    predefines (NAME or NAME=VALUE), and the headers that it includes first."""

    compiler: str
    folders: tuple[Path, ...]
    defines: tuple[str, ...]
    first: tuple[str, ...]


def linker_options(libraries: Sequence[Path]) -> list[str]:
    """The linker's options for shared libraries, by their paths, where the executable finds them again when it runs.

    They are linked in whatever order the compiler passes them. The old kind of tag also applies to libraries of
    libraries.
    """
    folders = dict.fromkeys(f"-rpath={library.parent}" for library in libraries)
    return ["--no-as-needed", *map(str, libraries), "--disable-new-dtags", *folders] if libraries else []


# A flag of nvcc for an object that goes into a shared library.
SHARED = "-Xcompiler=-fPIC"
# Of the linker, for a library that a process loads which has another CUDA runtime: each keeps to its own.
OWN_SYMBOLS = ("-Bsymbolic", "--exclude-libs=ALL")

# The observer of an observed build: `trace` counts what a kernel does, `check` finds faults.
ObserverKind = Literal["trace", "check"]


@runtime_checkable
class Observing(Protocol):
    """A device that can observe what it executes: the CPU device."""

    def observer_fingerprint(self, observer: ObserverKind) -> str:
        """Hash of what observed builds have in addition to the device's fingerprint."""
        ...

    def flags_of_builds(self, flags: Sequence[str]) -> Sequence[Sequence[str]]:
        """What the compiler's own macros depend on, for each build that a candidate has here."""
        ...

    def compile_observed(
        self, source: str, flags: Sequence[str], name: str, folder: Path, observer: ObserverKind
    ) -> Compiled:
        """Compile CUDA C++ text to an object file that calls out to an observer."""
        ...

    def link_observed(self, objects: Sequence[Path], executable: Path, observer: ObserverKind) -> Compiled:
        """Link harness and candidate objects with the device's runtime and the observer."""
        ...

    def run_observed(self, request: JudgeRequest, report: Path, limit_s: float, notes: BinaryIO) -> Ran:
        """Run a judge whose candidate has an observer; the observer writes to `notes`, which it may read first.

        With `told` in the request there is no observer: `notes` gets the kernels that each call would launch.
        """
        ...

    def symbols_at(self, program: Path, places: Collection[int]) -> frozenset[str]:
        """The symbols of functions at these places of an executable."""
        ...


class Unit(Protocol):
    """What identifies a GPU whose limits were measured."""

    @property
    def uuid(self) -> str:
        """Names it among all GPUs."""
        ...

    @property
    def driver(self) -> str:
        """Version of the driver."""
        ...


@runtime_checkable
class Limited(Protocol):
    """A device whose limits can be measured by bench/harness/limits.cu: a GPU. Others have no floor under a time."""

    @property
    def gpu(self) -> Unit:
        """The GPU that the limits are of."""
        ...

    def limits_flags(self) -> tuple[str, ...]:
        """Flags that limits.cu is compiled with."""
        ...

    def execute(self, command: Sequence[str], limit_s: float) -> Ran:
        """Run a program other than a judge, which has the device to itself."""
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
        """Whether its times are not measured on a GPU."""
        ...

    @property
    def shares_driver(self) -> bool:
        """Whether runs on other devices of the machine may delay calls that allocate through the driver."""
        ...

    @property
    def default_command(self) -> str:
        """The compile command of a candidate if no agent chose one; it builds candidate.cu to candidate.o."""
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
        If compiling fails, the Compiled has no object; DeviceError is for a missing compiler.
        """
        ...

    @property
    def has_debug_build(self) -> bool:
        """Whether `debug=True` makes a memory-checking build that is worth running on every candidate."""
        ...

    def parts(self) -> Sequence[Part]:
        """What is built once for the device, for all tasks, longest first; it may be built at any time."""
        ...

    def include_folders(self) -> tuple[Path, ...]:
        """Folders of the headers that candidates see beside the host's own."""
        ...

    def preprocessor(self) -> Preprocessor:
        """What expands a region for the source guard. Raises DeviceError where that does not run: no region's fault."""
        ...

    def parse_command(self, command: str) -> Flags | Refusal:
        """The flags of a candidate's compile command that are allowed here, or why it is refused. Raises nothing."""
        ...

    def object_rules(self) -> ObjectRules:
        """What a candidate's object may carry."""
        ...

    def link(
        self,
        objects: Sequence[Path],
        executable: Path,
        *,
        debug: bool = False,
        libraries: Sequence[Path] = (),
        shared: bool = False,
    ) -> Compiled:
        """Link harness and candidate objects with the device's runtime; `object` is the executable.

        `libraries` are shared ones, which the executable finds again at the same path. With `shared`, a shared library
        is made of objects that were compiled with SHARED.
        """
        ...

    def run(
        self, request: JudgeRequest, report: Path, limit_s: float, *, quiet: bool = False, gate: Gate | None = None
    ) -> Ran:
        """Run a judge, its JSON lines going to `report`, holding the device's lock meanwhile.

        A judge that measures is alone on the device; checks may share it. With `quiet` no run of ours uses another
        device of the machine either: calls that allocate through the driver wait for everything that it does.

        A judge with a `gate` starts before its candidate is built and waits for it there; the gate then says whether to
        be quiet. If the gate closes, the judge is ended, and the result means nothing.
        """
        ...

    def profile(
        self, judge: JudgeRequest, worker: Path, case: str, candidate: str, metrics: Collection[str] | None
    ) -> Profile | NoProfile:
        """Profile one call of a candidate's worker at the case with that label, or say why there is no profile.

        `judge` names the judge and the baseline's worker.
        """
        ...
