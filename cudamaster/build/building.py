"""From a candidate to executables: guards, compilers and linker, in this order.

    flags -> source -> compile -> object -> localise -> link with the cached objects of a worker

A run needs a judge, which knows the task, and one worker each for baseline and candidate (docs/architecture.md). Each
candidate's files are in a folder of its own. Everything else is shared (build/shared.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic

from cudamaster.build import open_headers
from cudamaster.build.shared import SharedBuilder
from cudamaster.build.source_guard import guarded
from cudamaster.core import caching, resources
from cudamaster.core.errors import DeviceError
from cudamaster.core.tool_logs import first_error, without_folders
from cudamaster.core.values import Candidate, Status, content_hash
from cudamaster.devices import machine_code, parts
from cudamaster.devices.nvcc import resource_usage
from cudamaster.devices.process import Stop, threads
from cudamaster.devices.protocol import Compiled, ObserverKind, Observing
from cudamaster.guards.flags import Flags
from cudamaster.guards.object import check_object
from cudamaster.guards.refusal import Refusal
from cudamaster.guards.signature import Undecided, compiler_check, refused_by_compiler
from cudamaster.guards.source import check_as_written, device_names

_LOG, _LOG_FILE = "compile log", "compile.log"  # in a build's record, and beside its worker in the cache


@dataclass(frozen=True)
class Build:
    """The result of building a candidate: its worker, or a status that says why there is none.

    `debug` is the memory-checking worker, if the device has one. `record` holds the commands and tool logs.
    """

    status: Status | None
    detail: str
    log: str
    worker: Path | None = None
    debug: Path | None = None
    record: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class _Made:
    """What a compiler made of each variant of a candidate; its preprocessed text, and what was left to the compiler."""

    variants: Sequence[Compiled]
    expanded: str
    undecided: tuple[Undecided, ...]


class Builder(SharedBuilder):
    """Builds candidates of one task and precision on one device."""

    def build(self, candidate: Candidate, *, on_compile: Callable[[], None] = lambda: None) -> Build:
        """Guard, compile and link a candidate. Its errors are returned as a status.

        `on_compile` is called once the source has passed the guards.
        """
        started = monotonic()
        with self.using(candidate):
            folder = self._folder(candidate)
            with parts.alone(folder / "lock", f"kernel {candidate.id}"):
                result = self._build(candidate, folder, on_compile)
        caching.trim_now_and_then(resources.cache())
        return replace(result, seconds=monotonic() - started)

    def executable(self, candidate: Candidate, *, debug: bool = False) -> Path:
        """The path where `build` leaves a candidate's worker; with `debug` the memory-checking one."""
        return self._folder(candidate) / ("debug" if debug else "run")

    def _build(self, candidate: Candidate, folder: Path, on_compile: Callable[[], None]) -> Build:
        """Builds a candidate in its folder, which nobody else is in.

        In this order: the guards read command and text, the compiler makes an object of each variant, the object guard
        reads the first of them, and each is linked with the worker. The first step that fails is the result.
        """
        flags = self.device.parse_command(candidate.command)
        refusal = flags if isinstance(flags, Refusal) else check_as_written(candidate.code, self._signature)
        if refusal is not None:
            return _failed(Status.REJECTED, str(refusal))
        assert not isinstance(flags, Refusal)
        if self.device.emulated and (header := open_headers.included(candidate.code, self._signature.headers)):
            return _failed(Status.UNSUPPORTED, f"the {self.device.name} device cannot execute header <{header[0]}>")
        made = self._made(candidate, flags, folder, on_compile)
        if isinstance(made, Refusal):
            return _failed(Status.REJECTED, str(made))
        first = made.variants[0]
        record = {"command": candidate.command, "compile": first.command, _LOG: first.log.strip()}
        (folder / _LOG_FILE).write_text(record[_LOG], encoding="utf-8")
        failed = self._failure(made, record)
        if failed is None and (refusal := self._object_refusal(candidate, made)) is not None:
            failed = _failed(Status.REJECTED, str(refusal), record=record)
        return failed or self._link(candidate, made, folder, record)

    def _made(
        self, candidate: Candidate, flags: Flags, folder: Path, on_compile: Callable[[], None]
    ) -> _Made | Refusal:
        """What the compiler makes of a candidate whose source passes the guards; what all candidates share is built
        meanwhile."""
        with threads(2) as pool, Stop() as stop:
            # nvcc takes most of an evaluation of a small kernel, so it does not wait for the guard of the source. A
            # compiler executes nothing of what it compiles, and is stopped where the guard refuses.
            early = None
            if not self.device.emulated:
                early = pool.submit(stop.call, partial(self._compile, candidate.code, flags, folder, False))
            passed = guarded(candidate.code, flags, self.device, self._signature)
            if isinstance(passed, Refusal):
                return passed
            on_compile()
            expanded, undecided = passed
            shared = pool.submit(self.build_shared)
            if early is not None and not undecided:
                compiled = [early.result()]
            else:
                stop.stop()
                wait([early] if early is not None else [])
                code = candidate.code + compiler_check(self._signature, undecided)
                compiled = list(pool.map(lambda debug: self._compile(code, flags, folder, debug), self._variants))
            shared.result()
        return _Made(compiled, expanded, undecided)

    def _failure(self, made: _Made, record: Mapping[str, str]) -> Build | None:
        """Why there is no object of one of the variants, if there is none."""
        for result in made.variants:
            if result.unsupported is not None:
                detail = f"the {self.device.name} device cannot execute {result.unsupported}"
                return _failed(Status.UNSUPPORTED, detail, record=record)
            if (other := refused_by_compiler(result.log, made.undecided)) is not None:
                fix = f"Write {self._signature}."
                refusal = Refusal("source", self._signature.differs(other.at, other.written), None, fix)
                return _failed(Status.REJECTED, str(refusal), record=record)
            if result.object is None:
                return _not_built(result.log, record)
        return None

    def _object_refusal(self, candidate: Candidate, made: _Made) -> Refusal | None:
        """What the guard of objects says. The checking build has the same text, but also the checker's own symbols."""
        first, rules = made.variants[0], self.device.object_rules()
        assert first.object is not None
        return check_object(
            first.object,
            self._signature.wrapper,
            [*rules.symbols, *open_headers.symbols(candidate.code, self._signature.headers)],
            constructors=rules.constructors,
            state=rules.state,
            device=device_names(candidate.code, made.expanded),
        )

    def _link(self, candidate: Candidate, made: _Made, folder: Path, record: Mapping[str, str]) -> Build:
        """Links each variant with the worker."""
        executables: dict[bool, Path] = {}
        assert made.variants[0].object is not None
        for debug, result in zip(self._variants, made.variants, strict=True):
            assert result.object is not None
            objects = [*self._worker_objects(debug), self._localised(result.object)]
            linked = self.device.link(objects, folder / "linking", debug=debug)
            if linked.object is None:
                return _not_built(linked.log, record)
            # Another run may be executing the same build right now, so the file is replaced, not overwritten.
            executables[debug] = linked.object.replace(self.executable(candidate, debug=debug))
        return Build(
            status=None,
            detail="built",
            log="",
            worker=executables.get(False),
            debug=executables.get(True),
            record={
                **record,
                **machine_code.of_object(made.variants[0].object),
                **self.digests(),
                "folder": str(folder),
            },
        )

    def instructions(self, candidate: Candidate) -> Mapping[str, str]:
        """A hash of the GPU's instructions in the object of a built candidate, for its record (machine_code.py)."""
        return machine_code.of_instructions(self._folder(candidate) / "candidate.o")

    def using(self, candidate: Candidate) -> AbstractContextManager[None]:
        """Keeps a candidate's builds in the cache while they are made and run."""
        return caching.using(self._folder(candidate))

    def built(self, candidate: Candidate) -> Build:
        """The build of a candidate, made again only if its worker is no longer in the cache."""
        folder = self._folder(candidate)
        worker, log = self.executable(candidate), folder / _LOG_FILE
        if not parts.whole(worker):
            return self.build(candidate)
        return Build(None, "built", "", worker, record={_LOG: log.read_text(encoding="utf-8")} if log.is_file() else {})

    def forget(self, candidate: Candidate) -> None:
        """Remove a candidate's builds, unless they are in use: then it is for whoever uses them."""
        caching.remove_unused(self._folder(candidate))

    def own_object(self, candidate: Candidate) -> Path:
        """A candidate as an object, of which only the wrapper is visible. No guard reads it: its text is ours.

        Raises ValueError with what the compiler says where it does not compile.
        """
        flags = self.device.parse_command(candidate.command)
        if isinstance(flags, Refusal):
            raise ValueError(str(flags))
        compiled = self._compile(candidate.code, flags, self._folder(candidate), False)
        if compiled.object is None:
            raise ValueError(compiled.log.strip())
        return self._localised(compiled.object)

    def traced_worker(self, candidate: Candidate, *, read: Callable[[Path], None] = lambda worker: None) -> Build:
        """The worker that counts what the kernels of a successfully built candidate do.

        `candidate.ptxas` beside it is ptxas's report on their resources, if nvcc is there. `read` is given the worker
        while nvcc may still be at work.
        """
        return self._observed_worker(candidate, "trace", read)

    def checked_worker(self, candidate: Candidate) -> Build:
        """The worker that finds faults of the kernels of a successfully built candidate."""
        return self._observed_worker(candidate, "check")

    def _observed_worker(
        self, candidate: Candidate, observer: ObserverKind, read: Callable[[Path], None] = lambda worker: None
    ) -> Build:
        device = self.device
        if not isinstance(device, Observing):
            raise DeviceError(f"The {device.name} device has no observed builds.", "Use --device cpu.")
        flags = self.device.parse_command(candidate.command)
        if isinstance(flags, Refusal):
            return _failed(Status.REJECTED, str(flags))
        started = monotonic()
        with self.using(candidate):
            folder = self._folder(candidate) / f"{observer}-{device.observer_fingerprint(observer)}"
            folder.mkdir(parents=True, exist_ok=True)
            executable = folder / "run"
            with parts.alone(folder / "lock", f"kernel {candidate.id}"):
                if parts.whole(executable):
                    read(executable)
                else:
                    with threads(1) as pool:
                        asked = None
                        if observer == "trace":
                            asked = pool.submit(resource_usage, candidate.code, flags.arguments, "candidate", folder)
                        linked = self._observed_executable(candidate, device, flags, folder, observer)
                        if isinstance(linked, Build):
                            return linked
                        read(linked)
                        if asked is not None:
                            (folder / "candidate.ptxas").write_text(asked.result(), encoding="utf-8")
                    linked.replace(executable)
        return Build(None, "built", "", executable, seconds=monotonic() - started)

    def _observed_executable(
        self, candidate: Candidate, device: Observing, flags: Flags, folder: Path, observer: ObserverKind
    ) -> Path | Build:
        """An observed executable that is not yet in its place, or why there is none."""
        compiled = device.compile_observed(candidate.code, flags.arguments, "candidate", folder, observer)
        if compiled.object is None:
            if compiled.unsupported is None:
                return _not_built(compiled.log)
            return _failed(Status.UNSUPPORTED, compiled.unsupported, without_folders(compiled.log).strip())
        objects = [*self._worker_objects(debug=False), self._localised(compiled.object)]
        linked = device.link_observed(objects, folder / "linking", observer)
        return _not_built(linked.log) if linked.object is None else linked.object

    def key(self, candidate: Candidate) -> str:
        """Hash of an executable's inputs: the candidate and the harness that it is linked to."""
        libraries = open_headers.versions(candidate.code, self._signature.headers)
        return content_hash(candidate.id, *self._harness_sources(), *libraries)

    def _folder(self, candidate: Candidate) -> Path:
        # Of the targets that the command names, a device may build fewer.
        built = self.device.parse_command(candidate.command)
        return self.device_cache() / "candidates" / content_hash(self.key(candidate), str(built))

    def _compile(self, code: str, flags: Flags, folder: Path, debug: bool) -> Compiled:
        # The two builds run side by side, each in its own folder, under the file name in the agent's command.
        where = folder / "checked" if debug else folder
        more = open_headers.flags(code, self._signature.headers)
        return self.device.compile(code, [*flags.arguments, *more], "candidate", where, debug=debug)


def _failed(status: Status, detail: str, log: str = "", record: Mapping[str, str] | None = None) -> Build:
    return Build(status, detail, log or detail, record=record or {})


def _not_built(log: str, record: Mapping[str, str] | None = None) -> Build:
    log = without_folders(log).strip()
    return _failed(Status.COMPILE_ERROR, first_error(log), log, record)
