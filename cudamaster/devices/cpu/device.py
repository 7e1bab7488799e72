"""Builds and runs harness and candidates on the host: the `Device` for a machine without a GPU."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from cudamaster.core import keys, resources
from cudamaster.core.values import Hardware, Hold
from cudamaster.devices.cpu import ptx, rolled, selftest, symbols, toolchain
from cudamaster.devices.cpu.rewrite import PtxError, Unsupported, rewrite
from cudamaster.devices.cpu.sides import MixedSides, refuse_mixed_sides
from cudamaster.devices.cpu.unsupported import unsupported_in
from cudamaster.devices.gate import Gate, NeverNeeded
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.ncu import NoProfile
from cudamaster.devices.parts import Part, cores, whole
from cudamaster.devices.process import lock, require_room, run_limited
from cudamaster.devices.protocol import (
    NEVER_RUN,
    OWN_SYMBOLS,
    Compiled,
    MeasuringProtocol,
    ObjectRules,
    ObserverKind,
    Preprocessor,
    Ran,
    linker_options,
)
from cudamaster.guards.flags import Flags, parse_command
from cudamaster.guards.refusal import Refusal

_STATIC_SHARED_BYTES = 48 * 1024
_COMPILE_LIMIT_S = 300.0
_LOG_CHARACTERS = 20_000
_MOST_SHARED_BYTES = 64 << 30  # of memory that the judge and an observed worker share
# A candidate sees none of the user's environment: keys of models are in there.
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TMPDIR", "CUDAMASTER_CPU_THREADS")
_NOTES = "CUDAMASTER_CPU_TRACE"  # the descriptor that an observer writes to
_TOLD = "CUDAMASTER_CPU_TOLD"  # likewise the executor, which then tells launches in place of executing them
_EXECUTED = "CUDAMASTER_CPU_EXECUTED"  # likewise, of each kernel that it executes
# Variables of one function, as g++ mangles them: _ZZ <function> E <length> <name>.
_LOCAL_STATIC = re.compile(r"_ZZ(?P<function>.*)E\d+[A-Za-z_]\w*")


class CpuDevice:
    """The CPU device. Kernels are executed, not simulated: results are right, times mean nothing on a GPU.

    Beside the protocol: a fault inside a kernel ends the harness with exit code 70 and a line on stderr that names
    kernel, block and thread.
    """

    name = "cpu"
    unit = "cpu"
    emulated = True
    shares_driver = False
    has_debug_build = True
    default_command = "nvcc -O3 -std=c++17 -c candidate.cu -o candidate.o"
    protocol = MeasuringProtocol(pairs=1, warmups=1, calls=5, work_limit=1e7, call_limit_s=60.0)

    # That kernels see; with 0, as many as an H200 has. Tests ask for fewer: a kernel with a block for each then has
    # fewer blocks, and those have more than one piece of work.
    multiprocessors = 0

    def __init__(self) -> None:
        self.on_hold: Callable[[Hold], None] | None = None

    @property
    def fingerprint(self) -> str:
        """Hash over compiler, flags, instruction set and the executor's sources."""
        return toolchain.fingerprint()

    def hardware(self) -> Hardware:
        """The host's processor, marked as emulating a device of compute capability 9.0."""
        figures = {
            "device": "CUDA device emulated on the CPU; no hardware profile, times are no measurement of a GPU",
            "processor": toolchain.processor(),
            "cores": str(cores()),
            "compiler": toolchain.version(),
            "instruction set": toolchain.instruction_set(),
            "compute capability": "9.0 (as reported to kernels)",
            "shared memory per block": "48 KB static, up to 227 KB dynamic",
        }
        return Hardware(name=f"CPU (emulated CUDA device on {toolchain.processor()})", figures=figures, emulated=True)

    def compile(self, source: str, flags: Sequence[str], name: str, folder: Path, *, debug: bool = False) -> Compiled:
        """Compile CUDA C++ text to <folder>/<name>.o; of the flags only -D, -std and -O count.

        The rewritten source is left beside the object as <name>.cpp; errors name lines of the text given, as
        <name>.cu. DeviceError where the host has no C++ compiler.
        """
        folder.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        rewritten, target = folder / f"{name}.cpp", folder / f"{name}.o"
        command = toolchain.compile_command(rewritten, target, flags, debug=debug)
        shown = shlex.join(command)
        target.unlink(missing_ok=True)
        try:
            refuse_mixed_sides(source, flags)
            text = rewrite(source, exact_shared=debug)
        except Unsupported as error:
            log = f"{name}.cu:{error.line}: the CPU device cannot execute {error.construct}"
            return Compiled(None, shown, log, time.monotonic() - start, str(error))
        except (PtxError, MixedSides) as error:
            log = f"{name}.cu:{error.line}: error: {error.message}"
            return Compiled(None, shown, log, time.monotonic() - start)
        rewritten.write_text(_with_head(text, name), encoding="utf-8")
        ok, log = _call(command)
        if ok and not debug:
            too_much = _static_shared_excess(target)
            if too_much is not None:
                ok, log = False, too_much
        if not ok:
            target.unlink(missing_ok=True)
        unsupported = None if ok else unsupported_in(log)
        return Compiled(target if ok else None, shown, log, time.monotonic() - start, unsupported)

    def observer_fingerprint(self, observer: ObserverKind) -> str:
        """Hash over the observer's sources."""
        return toolchain.observer_fingerprint(observer)

    def flags_of_builds(self, flags: Sequence[str]) -> Sequence[Sequence[str]]:
        """What the compiler's own macros depend on, for each build of a candidate."""
        return toolchain.flags_of_builds(flags)

    def compile_observed(
        self, source: str, flags: Sequence[str], name: str, folder: Path, observer: ObserverKind
    ) -> Compiled:
        """Compile CUDA C++ text to <folder>/<name>.o that calls out to an observer; else as `compile`."""
        folder.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        rewritten, target = folder / f"{name}.cpp", folder / f"{name}.o"
        command = toolchain.observed_command(rewritten, target, flags, observer)
        target.unlink(missing_ok=True)
        try:
            text = rewrite(source, exact_shared=observer == "check")
        except Unsupported as error:
            log = f"{name}.cu:{error.line}: the CPU device cannot execute {error.construct}"
            return Compiled(None, shlex.join(command), log, time.monotonic() - start, str(error))
        except PtxError as error:
            log = f"{name}.cu:{error.line}: error: {error.message}"
            return Compiled(None, shlex.join(command), log, time.monotonic() - start)
        ok, log = self._compile_observed(command, rewritten, text, observer)
        if ok and observer == "trace":
            ok, log = _call(toolchain.redirect_command(target))
        if not ok:
            target.unlink(missing_ok=True)
        return Compiled(target if ok else None, shlex.join(command), log, time.monotonic() - start)

    @staticmethod
    def _compile_observed(
        command: Sequence[str], rewritten: Path, text: str, observer: ObserverKind
    ) -> tuple[bool, str]:
        ok, log = False, ""
        # g++ refuses its own pragma before anything but a loop.
        for tried in [_unrolled(rolled.marked(text)), _unrolled(text), text] if observer == "trace" else [text]:
            rewritten.write_text(_with_head(tried, rewritten.stem), encoding="utf-8")
            ok, log = _call(command)
            if ok:
                break
        return ok, log

    def link_observed(self, objects: Sequence[Path], executable: Path, observer: ObserverKind) -> Compiled:
        """Link objects, an observed one among them, with the executor and the observer."""
        start = time.monotonic()
        command = toolchain.link_command(objects, executable, debug=False, observer=observer)
        ok, log = _call(command)
        return Compiled(executable if ok else None, shlex.join(command), log, time.monotonic() - start)

    def parts(self) -> Sequence[Part]:
        """The executors of the four builds that a candidate has, and the self-test, which takes all of them."""
        kinds: list[tuple[str, bool, ObserverKind | None]] = [
            ("the executor that counts", False, "trace"),
            ("the executor that finds races", False, "check"),
            ("the executor that checks memory", True, None),
            ("the executor", False, None),
        ]
        executors = [
            Part(
                name,
                partial(whole, toolchain.runtime_place(debug=debug, observer=observer)),
                partial(toolchain.runtime_object, debug=debug, observer=observer),
            )
            for name, debug, observer in kinds
        ]
        return [*executors, Part("the self-test of the CPU device", selftest.passed, partial(selftest.require, self))]

    def include_folders(self) -> tuple[Path, ...]:
        """Our own CUDA headers."""
        return (toolchain.INCLUDE,)

    def preprocessor(self) -> Preprocessor:
        """The host's compiler, with a macro that says that this is the CPU device."""
        compiler = toolchain.working_compiler()
        return Preprocessor(compiler, self.include_folders(), ("MSKB_CPU_DEVICE=1",), ("cuda_runtime.h",))

    def parse_command(self, command: str) -> Flags | Refusal:
        """The flags of an nvcc command: a candidate is the same text with the same command as on a GPU."""
        return parse_command(command)

    def object_rules(self) -> ObjectRules:
        """The executor and what g++ calls. Device variables are host variables here, so none is judged."""
        return ObjectRules(symbols.allowed(debug=False), frozenset(), None)

    def link(
        self,
        objects: Sequence[Path],
        executable: Path,
        *,
        debug: bool = False,
        libraries: Sequence[Path] = (),
        shared: bool = False,
    ) -> Compiled:
        """Link objects with the executor, which is built first where the cache has none; `object` is the executable."""
        start = time.monotonic()
        options = [f"-Wl,{option}" for option in (*linker_options(libraries), *(OWN_SYMBOLS if shared else ()))]
        command = [*toolchain.link_command(objects, executable, debug=debug, shared=shared), *options]
        ok, log = _call(command)
        return Compiled(executable if ok else None, shlex.join(command), log, time.monotonic() - start)

    def run(
        self, request: JudgeRequest, report: Path, limit_s: float, *, quiet: bool = False, gate: Gate | None = None
    ) -> Ran:
        """Run a judge, killed with its children at `limit_s` seconds. Waiting for another one does not count.

        With `reversed_threads`, threads and blocks run in descending order. `quiet` asks for no more than that here.
        DeviceError where the device does not work on this machine (selftest.py).
        """
        selftest.require(self)
        words = [*request.command, "--report", str(report), *(["--ahead"] if gate is not None else [])]
        goes_on = None if gate is None else gate.wait
        environment = self._environment(request.reversed_threads)
        try:
            with self._held(alone=request.measures, gate=gate) as held, tempfile.TemporaryFile() as executed:
                ran = run_limited(
                    words,
                    limit_s,
                    environment={**environment, _EXECUTED: str(executed.fileno())},
                    held=[held, executed.fileno()],
                    goes_on=goes_on,
                    largest_file_bytes=request.largest_file_bytes,
                )
                executed.seek(0)
                return replace(ran, executed=_executed(executed.read().decode(errors="replace")))
        except NeverNeeded:
            return NEVER_RUN

    def execute(
        self, command: Sequence[str], limit_s: float, *, reversed_threads: bool = False, notes: BinaryIO | None = None
    ) -> Ran:
        """Run a program other than a judge, with or without a self-test; `notes` as for `run_observed`."""
        environment = self._environment(reversed_threads)
        if notes is not None:
            environment[_NOTES] = str(notes.fileno())
        with _device_lock(alone=False) as device:
            held = [device] if notes is None else [device, notes.fileno()]
            return run_limited(command, limit_s, environment=environment, held=held)

    def run_observed(self, request: JudgeRequest, report: Path, limit_s: float, notes: BinaryIO) -> Ran:
        """Run a judge whose candidate has an observer, which writes to the open file `notes`; or tells its launches."""
        selftest.require(self)
        environment = {**self._environment(), _TOLD if request.told else _NOTES: str(notes.fileno())}
        with self._held(alone=False) as device:
            held = [device, notes.fileno()]
            words = [*request.command, "--report", str(report)]
            # Observed runs include the largest cases, which take too long here otherwise.
            return run_limited(
                words, limit_s, environment=environment, held=held, largest_file_bytes=_MOST_SHARED_BYTES
            )

    def symbols_at(self, program: Path, places: Collection[int]) -> frozenset[str]:
        """What the executable's own table has there; nothing where it was removed meanwhile."""
        if not program.is_file():
            return frozenset()
        with program.open("rb") as file:
            table = ELFFile(file).get_section_by_name(".symtab")
            return frozenset(
                symbol.name
                for symbol in (table.iter_symbols() if isinstance(table, SymbolTableSection) else ())
                if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_value"] in places
            )

    def _environment(self, reversed_threads: bool = False) -> dict[str, str]:
        """The environment of what is executed."""
        environment = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
        if reversed_threads:
            environment["CUDAMASTER_CPU_THREAD_ORDER"] = "reversed"
        if self.multiprocessors:
            environment["CUDAMASTER_CPU_MULTIPROCESSORS"] = str(self.multiprocessors)
        return environment

    @contextmanager
    def _held(self, *, alone: bool, gate: Gate | None = None) -> Iterator[int]:
        """Holds the device as `_device_lock`, and says so once it is free again, however that ended."""
        started: float | None = None
        try:
            with _device_lock(alone=alone, gate=gate) as held:
                started, since = time.time(), time.monotonic()
                yield held
        finally:
            if started is not None and self.on_hold is not None:
                self.on_hold(Hold(self.unit, started, time.monotonic() - since, alone))

    def profile(
        self, judge: JudgeRequest, worker: Path, case: str, candidate: str, metrics: Collection[str] | None
    ) -> NoProfile:
        """There are no hardware counters here."""
        return NoProfile("kernels were executed on the CPU device, which has no counters")


def _executed(text: str) -> frozenset[tuple[Path, int]]:
    """The executor's lines on kernels: its program and the place in it. A process may have ended in the last one."""
    found = (line.split(" ", 2) for line in text.split("\n")[:-1])
    return frozenset(
        (Path(words[2]), int(words[1], 16)) for words in found if len(words) == 3 and words[0] == "executed"
    )


def _with_head(text: str, name: str) -> str:
    """A rewritten text as the compiler gets it: with the source's line numbers, and with what PTX needs."""
    include = '#include "cudamaster_cpu/ptx.h"\n' if ptx.NAMESPACE in text else ""
    return f'{include}#line 1 "{name}.cu"\n{text}'


def _unrolled(text: str) -> str:
    """The text with nvcc's pragma for loops in g++'s spelling."""
    text = re.sub(r"^([ \t]*#[ \t]*pragma)[ \t]+unroll[ \t]*(//.*)?$", r"\1 GCC unroll 64", text, flags=re.MULTILINE)
    return re.sub(
        r"^([ \t]*#[ \t]*pragma)[ \t]+unroll[ \t(]+(\d+)[ \t)]*$", r"\1 GCC unroll \2", text, flags=re.MULTILINE
    )


@contextmanager
def _device_lock(*, alone: bool, gate: Gate | None = None) -> Iterator[int]:
    """Holds the device: a lock that the system frees when its holders die. Gives its descriptor.

    A judge that starts before its candidate is built takes the device only if it is free.
    """
    folder = resources.cache()
    folder.mkdir(parents=True, exist_ok=True)
    kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    with (folder / "cpu.lock").open("w") as file:
        try:
            if gate is None:
                lock(file.fileno(), kind)
            else:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            assert gate is not None
            gate.wait_open()
            lock(file.fileno(), kind)
        yield file.fileno()


def _call(command: Sequence[str]) -> tuple[bool, str]:
    """Whether a compiler or linker call succeeded, and what it said."""
    ran = run_limited(command, _COMPILE_LIMIT_S, environment={**keys.for_tools(), "LC_ALL": "C.UTF-8"})
    if ran.expired:
        return False, f"the compiler did not end within {_COMPILE_LIMIT_S:.0f} s"
    require_room(ran)
    return ran.exit_code == 0, ran.stderr[:_LOG_CHARACTERS]


def _static_shared_excess(target: Path) -> str | None:
    """An error text where a function of the object has more static shared memory than a block may have."""
    used: Counter[str] = Counter()
    with target.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        for symbol in table.iter_symbols() if isinstance(table, SymbolTableSection) else ():
            found = _LOCAL_STATIC.match(symbol.name)
            if symbol["st_info"]["type"] == "STT_TLS" and found is not None:
                used[found.group("function")] += symbol["st_size"]
    for function, size in used.items():
        if size > _STATIC_SHARED_BYTES:
            return (
                f"error: function {function} uses too much shared data ({size:#x} bytes, {_STATIC_SHARED_BYTES:#x} max)"
            )
    return None
