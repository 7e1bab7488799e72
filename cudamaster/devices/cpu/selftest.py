"""Tests whether the CPU device works here, by kernels whose results are known (selftest.cu), in all its builds.

A compiler that translates the executor wrongly makes honest kernels look wrong, so nothing is judged before these have
given their results on this processor with this compiler. That they did is kept in the cache; a failure is tried again.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, get_args

from cudamaster.core import resources
from cudamaster.core.errors import DeviceError
from cudamaster.devices import parts
from cudamaster.devices.cpu import toolchain
from cudamaster.devices.process import threads
from cudamaster.devices.protocol import Compiled, ObserverKind, Ran

_SOURCE = Path(__file__).with_suffix(".cu")
_LIMIT_S = 60.0
_FLAGS = ("-O3", "-std=c++17")  # of a candidate that asks for nothing else
_CHECKS = ("barriers", "shuffles", "votes", "divergence", "atomics", "cooperative launch", "dynamic shared memory",
           "deep stack", "arithmetic")  # fmt: skip
# Of barrier_kernel's three blocks of eight warps with four rounds: barriers, and requests and wavefronts of loads and
# stores in shared memory.
_COUNTED = {"barriers": [3 * 8 * 4 * 4, 24, 16], "shared": [[96, 96], [96, 96], [0, 0]]}
FIX = "Set CXX to another compiler; `cudamaster doctor --self-test` tries again."
_FAULT = 70  # exit code of a program whose kernel has a fault

Build = Literal["plain", "AddressSanitizer", "fault checker", "traced"]
# Faults that a build has to find.
_FOUND: dict[Build, tuple[str, ...]] = {"AddressSanitizer": ("overrun",), "fault checker": ("race", "overrun")}
_OBSERVERS: dict[Build, ObserverKind] = {"fault checker": "check", "traced": "trace"}


class Tried(Protocol):
    """The part of the CPU device that is tried. `execute` runs a program whether or not the device is known to work."""

    def compile(self, source: str, flags: Sequence[str], name: str, folder: Path, *, debug: bool = False) -> Compiled:
        """As of a device."""
        ...

    def compile_observed(
        self, source: str, flags: Sequence[str], name: str, folder: Path, observer: ObserverKind
    ) -> Compiled:
        """As of a device that looks on."""
        ...

    def link(self, objects: Sequence[Path], executable: Path, *, debug: bool = False) -> Compiled:
        """As of a device."""
        ...

    def link_observed(self, objects: Sequence[Path], executable: Path, observer: ObserverKind) -> Compiled:
        """As of a device that looks on."""
        ...

    def execute(
        self, command: Sequence[str], limit_s: float, *, reversed_threads: bool = False, notes: BinaryIO | None = None
    ) -> Ran:
        """Run a linked program, in a traced build with a file for what the observer has to say."""
        ...


@dataclass(frozen=True)
class Tested:
    """The result of a self-test, with its compiler and processor. `failure` is None where all results were right."""

    failure: str | None
    compiler: str
    processor: str
    instruction_set: str
    seconds: float
    when: float


def require(device: Tried) -> None:
    """Make sure that the device works, by the self-test where it has not passed here before. Raises DeviceError."""
    if _key() in _passed:
        return
    tested = remembered()
    if tested is None or tested.failure is not None:
        _home().mkdir(parents=True, exist_ok=True)
        with parts.alone(_home() / "selftest.lock", "the self-test of the CPU device"):
            tested = remembered()  # another thread or process may have run it meanwhile
            if tested is None or tested.failure is not None:
                tested = run(device)
    if tested.failure is not None:
        raise DeviceError(
            f"The CPU device does not work on this machine, so no kernel is judged: {tested.failure}. Compiler: "
            f"{tested.compiler}, for {tested.instruction_set}; processor: {tested.processor}.",
            FIX,
        )
    _passed.add(_key())


_passed: set[str] = set()  # keys that this process need not look up again


def remembered() -> Tested | None:
    """What the last self-test with this compiler on this processor found; None where there was none."""
    try:
        return Tested(**json.loads(_record().read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def passed() -> bool:
    """Whether it is known that the device works here."""
    if _key() in _passed:
        return True
    tested = remembered()
    return tested is not None and tested.failure is None


def run(device: Tried) -> Tested:
    """Run the self-test even if there is a result, and keep the new one. DeviceError where nothing can be built."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cudamaster-") as folder, threads(2) as pool:
        found = pool.map(partial(failure_of, device, Path(folder)), get_args(Build))
        failures = [failure for failure in found if failure is not None]
    tested = Tested(
        failure="; ".join(failures) or None,
        compiler=f"{toolchain.compiler()}, {toolchain.version()}",
        processor=toolchain.processor(),
        instruction_set=toolchain.instruction_set(),
        seconds=time.monotonic() - started,
        when=time.time(),
    )
    record = _record()
    record.parent.mkdir(parents=True, exist_ok=True)
    making = record.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    making.write_text(json.dumps(asdict(tested)), encoding="utf-8")
    making.replace(record)
    return tested


def failure_of(device: Tried, folder: Path, build: Build) -> str | None:
    """What is wrong in one build, a clause that names it; None where all is right."""
    wrong = _wrong(device, folder / build.replace(" ", "-"), build)
    return None if wrong is None else f"in the {build} build {wrong}"


def _wrong(device: Tried, folder: Path, build: Build) -> str | None:
    text, observer, debug = _SOURCE.read_text(encoding="utf-8"), _OBSERVERS.get(build), build == "AddressSanitizer"
    executable = folder / "selftest"
    if observer is None:
        compiled = device.compile(text, _FLAGS, executable.name, folder, debug=debug)
    else:
        compiled = device.compile_observed(text, _FLAGS, executable.name, folder, observer)
    if compiled.object is None:
        return f"the self-test does not compile: {_end(compiled.log)}"
    if observer is None:
        linked = device.link([compiled.object], executable, debug=debug)
    else:
        linked = device.link_observed([compiled.object], executable, observer)
    if linked.object is None:
        return f"the self-test does not link: {_end(linked.log)}"
    program = [str(executable)]
    # Nothing is ever looked at by an observer in reversed order.
    for reversed_threads in (False,) if observer else (False, True):
        with tempfile.TemporaryFile() as notes:
            ran = device.execute(
                program,
                _LIMIT_S,
                reversed_threads=reversed_threads,
                notes=notes if observer == "trace" else None,
            )
            wrong = _wrong_results(ran) or (_wrong_counts(notes) if observer == "trace" else None)
        if wrong is not None:
            return wrong + (" (threads in reversed order)" if reversed_threads else "")
    for fault in _FOUND.get(build, ()):
        if device.execute([*program, fault], _LIMIT_S).exit_code != _FAULT:
            return f"the {fault} of a kernel that has one is not found"
    return None


def _wrong_results(ran: Ran) -> str | None:
    lines = ran.stderr.splitlines()
    failed = [line.removeprefix("failed ") for line in lines if line.startswith("failed ")]
    if failed:
        return ", ".join(failed)
    missing = [check for check in _CHECKS if f"passed {check}" not in lines]
    if ran.exit_code == 0 and not missing:
        return None
    if ran.expired:
        end = f"did not end within {_LIMIT_S:.0f} s"
    else:
        said = [line for line in lines if not line.startswith(("begins ", "passed "))]
        how = f"ended with signal {ran.signal}" if ran.signal else f"ended with exit code {ran.exit_code}"
        end = how + (f": {_end(said[0])}" if said else "")
    return f"{missing[0] if missing else 'the program'} {end}"


def _wrong_counts(notes: BinaryIO) -> str | None:
    """Of the one launch that is recorded, counts that are known."""
    notes.seek(0)
    try:
        events = [json.loads(line) for line in notes.read().splitlines()]
        (launch,) = [event for event in events if event["event"] == "launch"]
        got = {name: launch[name] for name in _COUNTED}
    except (ValueError, KeyError, TypeError) as error:
        return f"the counts of a launch cannot be read: {error}"
    return next((f"{name} counted are {got[name]}, not {known}" for name, known in _COUNTED.items()
                 if got[name] != known), None)  # fmt: skip


def _end(log: str) -> str:
    return log.strip()[:300] or "it does not say why"


def _record() -> Path:
    return _home() / f"selftest-{_key()}.json"


def _home() -> Path:
    return resources.cache() / "cpu-runtime"


def _key() -> str:
    observers = [toolchain.observer_fingerprint(observer) for observer in get_args(ObserverKind)]
    about = [str(_home()), toolchain.fingerprint(), toolchain.processor_fingerprint(), *observers, _source_hash()]
    return hashlib.sha256("\0".join(about).encode()).hexdigest()[:16]


@cache
def _source_hash() -> str:
    return hashlib.sha256(_SOURCE.read_bytes()).hexdigest()
