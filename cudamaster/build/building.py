"""From a candidate to executables: guards, compilers and linker, in this order.

    flags -> source -> compile -> object -> localise -> link with the cached objects of a worker

A run needs a judge, which knows the task, and one worker each for baseline and candidate (docs/architecture.md). Each
candidate's files are in a folder of its own. Everything else is shared, and cached by the hash of its inputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from time import monotonic

from cudamaster.core import caching, resources
from cudamaster.core.errors import DeviceError
from cudamaster.core.tool_logs import without_folders
from cudamaster.core.values import Candidate, Precision, Status, content_hash
from cudamaster.devices import parts
from cudamaster.devices.parts import Part
from cudamaster.devices.process import Stop, threads
from cudamaster.devices.protocol import Compiled, Device, ObserverKind, Observing
from cudamaster.guards.flags import Flags
from cudamaster.guards.object import check_object, localise
from cudamaster.guards.preprocess import preprocess, region_of
from cudamaster.guards.refusal import Refusal
from cudamaster.guards.signature import Signature, Undecided, compiler_check, refused_by_compiler
from cudamaster.guards.source import check_as_written, check_source, device_names, left_to_compiler
from cudamaster.guards.symbols import INSTEAD
from cudamaster.guards.text import check_characters
from cudamaster.tasks.cards import TaskCard
from cudamaster.tasks.harness import baseline_region, render, render_vendor_call, vendor_declarations

_FLAGS = ("-O2", "-std=c++17")  # of harness and baseline
_LOG, _LOG_FILE = "compile log", "compile.log"  # in a build's record, and beside its worker in the cache
_NO_KERNELS = ("-x", "c++")  # the text has no kernels: the host's compiler alone is four times as fast


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


@dataclass(frozen=True)
class _Text:
    """A text of ours to compile. `part` is its name for people; `about` is what else its object depends on."""

    part: str
    name: str
    text: str
    flags: tuple[str, ...] = ()
    debug: bool = False
    about: str = ""


class Builder:
    """Builds candidates of one task and precision on one device."""

    def __init__(self, card: TaskCard, precision: Precision, device: Device) -> None:
        self.card = card
        self.precision = precision
        self.device = device

    @cached_property
    def harness_text(self) -> str:
        """The rendered harness. For scoring, judge and calls are compiled from it separately, without the region."""
        return render(self.card, self.precision)

    @cached_property
    def _reference(self) -> str:
        return self.card.reference()

    def build(
        self, candidate: Candidate, *, check_only: bool = False, on_compile: Callable[[], None] = lambda: None
    ) -> Build:
        """Guard, compile and link a candidate. Its errors are returned as a status.

        With `check_only` only the memory-checking worker is linked, if the device has one. `on_compile` is called once
        the source has passed the guards.
        """
        started = monotonic()
        with self.using(candidate):
            folder = self._folder(candidate)
            with parts.alone(folder / "lock", f"kernel {candidate.id}"):
                result = self._build(candidate, folder, check_only and self.device.has_debug_build, on_compile)
        caching.trim_now_and_then(resources.cache())
        return replace(result, seconds=monotonic() - started)

    def executable(self, candidate: Candidate, *, debug: bool = False) -> Path:
        """The path where `build` leaves a candidate's worker; with `debug` the memory-checking one."""
        return self._folder(candidate) / ("debug" if debug else "run")

    def _build(self, candidate: Candidate, folder: Path, check_only: bool, on_compile: Callable[[], None]) -> Build:
        """Builds a candidate in its folder, which nobody else is in.

        In this order: the guards read command and text, the compiler makes an object of each variant, the object guard
        reads the first of them, and each is linked with the worker. The first step that fails is the result.
        """
        flags = self.device.parse_command(candidate.command)
        refusal = flags if isinstance(flags, Refusal) else check_as_written(candidate.code, self._signature())
        if refusal is not None:
            return _failed(Status.REJECTED, str(refusal))
        assert not isinstance(flags, Refusal)
        made = self._made(candidate, flags, folder, on_compile)
        if isinstance(made, Refusal):
            return _failed(Status.REJECTED, str(made))
        first = made.variants[0]
        record = {"command": candidate.command, "compile": first.command, _LOG: first.log.strip()}
        (folder / _LOG_FILE).write_text(record[_LOG], encoding="utf-8")
        failed = self._failure(made, record)
        if failed is None and (refusal := self._object_refusal(candidate, made)) is not None:
            failed = _failed(Status.REJECTED, str(refusal), record=record)
        return failed or self._link(candidate, made, folder, check_only, record)

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
            guarded = self._guarded(candidate, flags)
            if isinstance(guarded, Refusal):
                return guarded
            on_compile()
            expanded, undecided = guarded
            shared = pool.submit(self.build_shared)
            if early is not None and not undecided:
                compiled = [early.result()]
            else:
                stop.stop()
                wait([early] if early is not None else [])
                code = candidate.code + compiler_check(self._signature(), undecided)
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
                fix = f"Write {self._signature()}."
                refusal = Refusal("source", self._signature().differs(other.at, other.written), None, fix)
                return _failed(Status.REJECTED, str(refusal), record=record)
            if result.object is None:
                log = without_folders(result.log).strip()
                return _failed(Status.COMPILE_ERROR, _first_error(log), log, record)
        return None

    def _object_refusal(self, candidate: Candidate, made: _Made) -> Refusal | None:
        """What the guard of objects says. The checking build has the same text, but also the checker's own symbols."""
        first, rules = made.variants[0], self.device.object_rules()
        assert first.object is not None
        return check_object(
            first.object,
            self.card.wrapper(self.precision, optimized=True),
            rules.symbols,
            constructors=rules.constructors,
            state=rules.state,
            device=device_names(candidate.code, made.expanded),
        )

    def _link(
        self, candidate: Candidate, made: _Made, folder: Path, check_only: bool, record: Mapping[str, str]
    ) -> Build:
        """Links each variant with the worker."""
        executables: dict[bool, Path] = {}
        for debug, result in zip(self._variants, made.variants, strict=True):
            assert result.object is not None
            if check_only and not debug:
                continue
            local = result.object.with_suffix(".local.o")
            localise(result.object, self.card.wrapper(self.precision, optimized=True), local, _redirected())
            linked = self.device.link([*self._worker_objects(debug), local], folder / "linking", debug=debug)
            if linked.object is None:
                log = without_folders(linked.log).strip()
                return _failed(Status.COMPILE_ERROR, _first_error(log), log, record)
            # Another run may be executing the same build right now, so the file is replaced, not overwritten.
            executables[debug] = linked.object.replace(self.executable(candidate, debug=debug))
        return Build(
            status=None,
            detail="built",
            log="",
            worker=executables.get(False),
            debug=executables.get(True),
            record={**record, "folder": str(folder)},
        )

    def _guarded(self, candidate: Candidate, flags: Flags) -> tuple[str, tuple[Undecided, ...]] | Refusal:
        """The preprocessed text of a candidate whose source passes the guard, and what is left to the compiler."""
        expanded = self._expand(candidate, flags)
        if isinstance(expanded, Refusal):
            return expanded
        refusal = check_source(candidate.code, self._signature(), expanded)
        refusal = refusal or self._differs_between_builds(candidate, flags, expanded)
        return refusal or (expanded, left_to_compiler(candidate.code, self._signature(), expanded))

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

    def build_shared(self, *, debug_baseline: bool = False) -> None:
        """Build what every candidate needs to be judged, unless it is cached. Raises DeviceError."""
        of_device = list(self.device.parts())
        texts = [self._judge_text, *(self._worker_text(debug) for debug in reversed(self._variants))]
        texts += [self._baseline_text(debug_baseline), self._task_text]
        texts += [self._call_text(debug) for debug in self._variants]
        # Texts that all tasks share take longest. The self-test waits for the executors, so it comes last.
        own = [self._part(text) for text in texts]
        parts.build([*own[:1], *of_device[:-1], *own[1:], *of_device[-1:]])
        with threads(4) as pool:
            linked: list[Callable[[], object]] = [self.judge, partial(self.baseline_worker, debug_baseline)]
            for done in [pool.submit(part) for part in linked]:
                done.result()

    def judge(self) -> Path:
        """The executable that runs cases and judges, without any kernel of the task. Raises DeviceError."""
        return self._linked([self._object(self._judge_text), self._object(self._task_text)], debug=False)

    def baseline_worker(self, debug: bool = False) -> Path:
        """The worker that runs the baseline, linked as a candidate is. Raises DeviceError."""
        kernels = self._object(self._baseline_text(debug))
        # Through the ledger too: it costs the host a microsecond, which otherwise only candidates would pay.
        local = kernels.with_suffix(f".{_ledger_hash()}.o")
        with parts.alone(local.with_suffix(".lock"), "the baseline"):
            if not (parts.whole(local) and caching.kept(local)):
                made = local.with_suffix(".making")
                localise(kernels, self.card.wrapper(self.precision, optimized=True), made, _redirected())
                made.replace(local)
        return self._linked([*self._worker_objects(debug), local], debug=debug)

    def traced_worker(self, candidate: Candidate) -> Build:
        """The worker that counts what the kernels of a successfully built candidate do."""
        return self._observed_worker(candidate, "trace")

    def checked_worker(self, candidate: Candidate) -> Build:
        """The worker that finds faults of the kernels of a successfully built candidate."""
        return self._observed_worker(candidate, "check")

    def _observed_worker(self, candidate: Candidate, observer: ObserverKind) -> Build:
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
                if not parts.whole(executable):
                    compiled = device.compile_observed(candidate.code, flags.arguments, "candidate", folder, observer)
                    if compiled.object is None:
                        status = Status.COMPILE_ERROR if compiled.unsupported is None else Status.UNSUPPORTED
                        log = without_folders(compiled.log).strip()
                        return _failed(status, compiled.unsupported or _first_error(log), log)
                    local = compiled.object.with_suffix(".local.o")
                    localise(compiled.object, self.card.wrapper(self.precision, optimized=True), local, _redirected())
                    linked = device.link_observed(
                        [*self._worker_objects(debug=False), local], folder / "linking", observer
                    )
                    if linked.object is None:
                        log = without_folders(linked.log).strip()
                        return _failed(Status.COMPILE_ERROR, _first_error(log), log)
                    linked.object.replace(executable)
        return Build(None, "built", "", executable, seconds=monotonic() - started)

    def vendor_worker(self, text: str, about: str, flags: Sequence[str], libraries: Sequence[Path]) -> Path:
        """The worker that runs a vendor's library in a candidate's place. Raises DeviceError.

        `text` is a file of ours, so no guard checks it, and it may keep a handle from call to call. `about`
        distinguishes the headers that it includes from others of the same names.
        """
        declared = " ".join(vendor_declarations(self.card, self.precision))  # the compiler holds the file to them
        call = render_vendor_call(self.card, self.precision)
        name = f"{self._wrapper}-vendor"
        source = f'#include <cuda_bf16.h>\n{declared}\n#line 1 "{name}.cu"\n{text}'
        objects = [
            self._object(self._worker_text(debug=False)),
            self._object(_Text("the call of the library", f"{name}-call", call, _NO_KERNELS)),
            self._object(_Text("the library's file", name, source, tuple(flags), about=about)),
        ]
        return self._linked(objects, debug=False, libraries=libraries)

    def _worker_objects(self, debug: bool) -> list[Path]:
        """The objects that turn a kernel into a worker: main, and the call of the wrapper."""
        return [self._object(self._worker_text(debug)), self._object(self._call_text(debug))]

    @property
    def _judge_text(self) -> _Text:
        return _Text("the judge", "judge", _harness_source("judge"))

    @property
    def _task_text(self) -> _Text:
        flags = (*_NO_KERNELS, "-DMSKB_JUDGE")
        return _Text(f"{self._wrapper}: its cases", self._wrapper, self.harness_text, flags, about=self._reference)

    def _worker_text(self, debug: bool) -> _Text:
        name = f"the worker{_checking(debug)}"
        return _Text(name, "worker", _harness_source("worker"), ("-DMSKB_SEPARATE_CANDIDATE",), debug)

    def _call_text(self, debug: bool) -> _Text:
        flags = (*_NO_KERNELS, "-DMSKB_CALL")
        name = f"{self._wrapper}: its call{_checking(debug)}"
        return _Text(name, f"{self._wrapper}-call", self.harness_text, flags, debug)

    def _baseline_text(self, debug: bool) -> _Text:
        text = baseline_region(self.card, self.precision)
        return _Text(f"{self._wrapper}: the baseline", f"{self._wrapper}-baseline", text, debug=debug)

    @property
    def _wrapper(self) -> str:
        return self.card.wrapper(self.precision)

    def _part(self, text: _Text) -> Part:
        return Part(text.part, partial(parts.whole, self._place(text)), partial(self._object, text))

    def _place(self, text: _Text) -> Path:
        """Where the object file of a text is kept."""
        key = content_hash(text.text, _headers_hash(), text.about, *_FLAGS, *text.flags)
        return self.device_cache() / "harnesses" / f"{text.name}-{key}{'-debug' if text.debug else ''}.o"

    def _object(self, text: _Text) -> Path:
        """Object file of a text of ours, from the cache if possible."""
        name, flags, final = text.name, (*_FLAGS, *text.flags), self._place(text)
        final.parent.mkdir(parents=True, exist_ok=True)
        with parts.alone(final.with_suffix(".lock"), text.part):
            if parts.whole(final) and caching.kept(final):
                return final
            with parts.workshop(final) as folder:
                built = self.device.compile(text.text, flags, name, folder, debug=text.debug)
                if built.object is None:
                    why = _first_error(built.unsupported or built.log)
                    raise DeviceError(
                        f"{name}.cu of the harness of {self.card.name} does not compile: {why}.",
                        f"Run `cudamaster doctor`. The command was: {built.command}",
                    )
                return built.object.replace(final)

    def _linked(self, objects: Sequence[Path], *, debug: bool, libraries: Sequence[Path] = ()) -> Path:
        """Executable of objects from the cache, kept beside the last of them."""
        names = [*(path.name for path in objects), *map(str, libraries)]
        executable = objects[-1].with_suffix("." + content_hash(*names))
        with parts.alone(executable.with_suffix(f"{executable.suffix}-lock"), f"the harness of {self.card.name}"):
            if parts.whole(executable) and caching.kept(executable):
                return executable
            linking = executable.with_suffix(f"{executable.suffix}-linking")
            built = self.device.link(objects, linking, debug=debug, libraries=libraries)
            if built.object is None:
                raise DeviceError(
                    f"The harness of {self.card.name} does not link: {_first_error(built.log)}.",
                    "Run `cudamaster doctor`; the linker's whole log is: " + built.log.strip()[-1500:],
                )
            return built.object.replace(executable)

    @property
    def _variants(self) -> tuple[bool, ...]:
        """The values of `debug` to build a candidate with."""
        return (False, True) if self.device.has_debug_build else (False,)

    def device_cache(self) -> Path:
        """Folder for what is built for this device, compiler and architecture."""
        return resources.cache() / self.device.name / self.device.fingerprint

    def key(self, candidate: Candidate) -> str:
        """Hash of an executable's inputs: the candidate and the harness that it is linked to."""
        return content_hash(candidate.id, self.harness_text, _headers_hash(), self._reference, *_sources())

    def _folder(self, candidate: Candidate) -> Path:
        # Of the targets that the command names, a device may build fewer.
        built = self.device.parse_command(candidate.command)
        return self.device_cache() / "candidates" / content_hash(self.key(candidate), str(built))

    def _compile(self, code: str, flags: Flags, folder: Path, debug: bool) -> Compiled:
        # The two builds run side by side, each in its own folder, under the file name in the agent's command.
        where = folder / "checked" if debug else folder
        return self.device.compile(code, flags.arguments, "candidate", where, debug=debug)

    def _signature(self) -> Signature:
        return Signature(self.card.wrapper(self.precision, optimized=True), self.card.signature(self.precision))

    def _differs_between_builds(self, candidate: Candidate, flags: Flags, expanded: str) -> Refusal | None:
        """Refuses a region whose text differs between builds: it could do less in the one that is counted."""
        if not isinstance(self.device, Observing):
            return None
        plain = region_of(expanded)
        with threads(2) as pool:
            builds = pool.map(partial(self._expand, candidate, flags), self.device.flags_of_builds(flags.arguments))
        for build in builds:
            if isinstance(build, Refusal):
                return build
            if (other := region_of(build)).text != plain.text:
                pairs = zip(plain.text.split("\n"), other.text.split("\n"), plain.lines, strict=False)
                line = next((line for one, another, line in pairs if one != another), None)
                return Refusal(
                    "source",
                    "the text depends on how it is compiled",
                    line,
                    "Write a constant or a macro of your own in place of __OPTIMIZE__, __TIME__ and the like.",
                )
        return None

    def _expand(self, candidate: Candidate, flags: Flags, more: Sequence[str] = ()) -> str | Refusal:
        """The region after the preprocessor, which gets nothing that is no plain text."""
        by = self.device.preprocessor()
        return check_characters(candidate.code) or preprocess(
            candidate.code,
            by.compiler,
            by.folders,
            [*by.defines, *flags.defines],
            standard=flags.standard,
            prelude=by.first,
            flags=more,
        )


def _checking(debug: bool) -> str:
    return " that checks memory" if debug else ""


def _failed(status: Status, detail: str, log: str = "", record: Mapping[str, str] | None = None) -> Build:
    return Build(status, detail, log or detail, record=record or {})


@cache
def _harness_source(name: str) -> str:
    return (resources.bench() / "harness" / f"{name}.cu").read_text(encoding="utf-8")


def _sources() -> list[str]:
    return [_harness_source("judge"), _harness_source("worker")]


@cache
def _headers_hash() -> str:
    folder = resources.bench()
    headers: Sequence[Path] = sorted(folder.glob("include/**/*.h"))
    return content_hash(*(path.read_text(encoding="utf-8") for path in headers))


@cache
def _ledger_hash() -> str:
    return content_hash(*_redirected())


@cache
def _redirected() -> Mapping[str, str]:
    """Functions of the runtime that a candidate reaches through the harness's ledger, which sees what is left open, and
    those in whose place it reaches others."""
    text = (resources.bench() / "include" / "mskb" / "ledger.h").read_text(encoding="utf-8")
    ledger = {name: f"mskb_{name}" for name in re.findall(r"^cudaError_t mskb_(_*cuda\w+)\(", text, re.MULTILINE)}
    return {**INSTEAD, **ledger}


def _first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "no message")
