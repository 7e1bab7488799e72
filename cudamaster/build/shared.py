"""What needs no candidate: the judge, the workers' own objects, and the workers of baseline and vendor libraries.

Each is built once, and kept in the cache by the hash of its inputs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path

from cudamaster.build import eager
from cudamaster.core import caching, resources
from cudamaster.core.errors import DeviceError
from cudamaster.core.tool_logs import first_error
from cudamaster.core.values import Candidate, Precision, content_hash
from cudamaster.devices import parts
from cudamaster.devices.parts import Part
from cudamaster.devices.process import threads
from cudamaster.devices.protocol import SHARED, Compiled, Device
from cudamaster.guards.object import localise
from cudamaster.guards.signature import Signature
from cudamaster.guards.symbols import INSTEAD
from cudamaster.tasks.cards import TaskCard
from cudamaster.tasks.harness import (
    baseline_region,
    render,
    render_vendor_call,
    stands_for_eager,
    type_headers,
    vendor_declarations,
)

HARNESS, REFERENCE = "harness", "reference sha256"  # in a build's record
_FLAGS = ("-O2", "-std=c++17")  # of harness and baseline
_NO_KERNELS = ("-x", "c++")  # the text has no kernels: the host's compiler alone is four times as fast


@dataclass(frozen=True)
class _Text:
    """A text to compile. `part` is its name for people; `about` is what else its object depends on.

    `file` is the task's own file that it was made of, line for line.
    """

    part: str
    name: str
    text: str
    flags: tuple[str, ...] = ()
    debug: bool = False
    about: str = ""
    file: Path | None = None


class SharedBuilder:
    """Builds what all candidates of one task and precision share on one device."""

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
        """The reference that is compiled with the judge: none where it is in Python or is the baseline."""
        return self.card.reference() if self.card.truth == "c" else ""

    def _harness_sources(self) -> list[str]:
        """What a worker and its judge are made of, beside the kernels."""
        texts = [_harness_source(name) for name in ("judge", "worker")]
        return [self.harness_text, _headers_hash(), self._reference, *texts]

    def digests(self) -> Mapping[str, str]:
        """Hashes of what judges a candidate: the harness of this program, and SHA-256 of the task's reference."""
        harness = content_hash(_headers_hash(), *map(_harness_source, ("judge", "worker")))
        return {HARNESS: harness, **({} if self.card.truth == "baseline" else {REFERENCE: self._reference_hash})}

    @cached_property
    def _reference_hash(self) -> str:
        return hashlib.sha256(self.card.reference().encode()).hexdigest()

    def eager_sources(self) -> list[str]:
        """What a verdict depends on where PyTorch runs the baseline, and no candidate's build. Raises DeviceError."""
        if not self.card.is_eager:
            return []
        ours = map(_eager_source, ("problem.py", "wiring.py", "worker.py"))
        return [eager.torch_of(eager.python())[0], *ours, self._eager_call_text.text]

    def build_shared(self, *, debug_baseline: bool = False) -> None:
        """Build what every candidate needs to be judged, unless it is cached. Raises DeviceError."""
        of_device = list(self.device.parts())
        texts = [self._judge_text, *(self._worker_text(debug) for debug in reversed(self._variants))]
        own_baseline = [] if self.card.is_eager else [self._baseline_text(debug_baseline)]
        texts += [*own_baseline, self._task_text]
        texts += [self._call_text(debug) for debug in self._variants]
        # Texts that all tasks share take longest. The self-test waits for the executors, so it comes last.
        own = [self._part(text) for text in texts]
        parts.build([*own[:1], *of_device[:-1], *own[1:], *of_device[-1:]])
        with threads(4) as pool:
            linked: list[Callable[[], object]] = [self.judge, partial(self.baseline_command, debug_baseline)]
            for done in [pool.submit(part) for part in linked]:
                done.result()

    def judge(self) -> Path:
        """The executable that runs cases and judges, without any kernel of the task. Raises DeviceError."""
        return self._linked([self._object(self._judge_text), self.task_object()], debug=False)

    def baseline_command(self, debug: bool = False) -> tuple[str, ...]:
        """What starts the baseline's worker: an executable, or for a module a Python with PyTorch. Raises DeviceError.

        The second has no build that checks memory.
        """
        if self.card.is_eager:
            return eager.command(self.card, self.precision, self.device.name, self._eager_library())
        return (str(self.baseline_worker(debug)), *(["--exact"] if debug else []))

    def stands_for_eager(self, candidate: Candidate) -> bool:
        """Whether a candidate stands for a baseline in eager PyTorch, and is not to be built."""
        return stands_for_eager(self.card, self.precision, candidate.code)

    def _eager_library(self) -> Path:
        """The worker as a library, the same for all tasks."""
        objects = [self._object(text) for text in (self._eager_worker_text, self._eager_call_text)]
        return self._linked(objects, debug=False, shared=True)

    @property
    def _eager_worker_text(self) -> _Text:
        flags = ("-DMSKB_SEPARATE_CANDIDATE", SHARED)
        return _Text("the worker as a library", "worker-shared", _harness_source("worker"), flags)

    @property
    def _eager_call_text(self) -> _Text:
        text = (resources.bench() / "harness" / "eager.cpp").read_text(encoding="utf-8")
        return _Text("its call of PyTorch", "eager", text, (*_NO_KERNELS, SHARED))

    def baseline_worker(self, debug: bool = False) -> Path:
        """The worker that runs the baseline, linked as a candidate is. Raises DeviceError."""
        kernels = self._object(self._baseline_text(debug))
        # Through the ledger too: it costs the host a microsecond, which otherwise only candidates would pay.
        local = kernels.with_suffix(f".{_ledger_hash()}.o")
        with parts.alone(local.with_suffix(".lock"), "the baseline"):
            if not (parts.whole(local) and caching.kept(local)):
                self._localised(kernels, f".{_ledger_hash()}.making").replace(local)
        return self._linked([*self._worker_objects(debug), local], debug=debug)

    def vendor_worker(self, text: str, about: str, flags: Sequence[str], libraries: Sequence[Path]) -> Path:
        """The worker that runs a vendor's library in a candidate's place. Raises DeviceError.

        `text` is a file of ours, so no guard checks it, and it may keep a handle from call to call. `about`
        distinguishes the headers that it includes from others of the same names.
        """
        declared = " ".join(vendor_declarations(self.card, self.precision))  # the compiler holds the file to them
        call = render_vendor_call(self.card, self.precision)
        name = f"{self._wrapper}-vendor"
        headers = [*type_headers(self.card, self.precision), "cuda_runtime.h"]
        included = "".join(f"#include <{header}>\n" for header in headers)
        source = f'{included}{declared}\n#line 1 "{name}.cu"\n{text}'
        objects = [
            self._object(self._worker_text(debug=False)),
            self._object(_Text("the call of the library", f"{name}-call", call, _NO_KERNELS)),
            self._object(_Text("the library's file", name, source, tuple(flags), about=about)),
        ]
        return self._linked(objects, debug=False, libraries=libraries)

    def task_object(self) -> Path:
        """The task's cases, as an object. Raises DeviceError."""
        return self._object(self._task_text)

    def call_object(self) -> Path:
        """A worker's call of the wrapper, as an object. Raises DeviceError."""
        return self._object(self._call_text(debug=False))

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
        file = self.card.baseline_path(self.precision)
        return _Text(f"{self._wrapper}: the baseline", f"{self._wrapper}-baseline", text, debug=debug, file=file)

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
                    raise self._not_compiled(text, built)
                return built.object.replace(final)

    def _not_compiled(self, text: _Text, built: Compiled) -> DeviceError:
        why = first_error(built.unsupported or built.log)
        command = f"The command was: {built.command}"
        if text.file is None:
            what = f"{text.name}.cu of the harness of {self.card.name} does not compile: {why}."
            return DeviceError(what, f"Run `cudamaster doctor`. {command}")
        fix = "Correct it; if it is right, run `cudamaster doctor`."
        if "kernel launch" in why:
            fix = "Write kernel<<<blocks, threads>>>(...) with the kernel's whole name: no macro may put it together."
        what = (
            f"{text.file}, the baseline of {self.card.name}, does not compile for the {self.device.name} device: {why}."
        )
        return DeviceError(what, f"{fix} {command}")

    def _linked(
        self, objects: Sequence[Path], *, debug: bool, libraries: Sequence[Path] = (), shared: bool = False
    ) -> Path:
        """Executable of objects from the cache, kept beside the last of them."""
        names = [*(path.name for path in objects), *map(str, libraries)]
        executable = objects[-1].with_suffix("." + content_hash(*names))
        with parts.alone(executable.with_suffix(f"{executable.suffix}-lock"), f"the harness of {self.card.name}"):
            if parts.whole(executable) and caching.kept(executable):
                return executable
            linking = executable.with_suffix(f"{executable.suffix}-linking")
            built = self.device.link(objects, linking, debug=debug, libraries=libraries, shared=shared)
            if built.object is None:
                raise DeviceError(
                    f"The harness of {self.card.name} does not link: {first_error(built.log)}.",
                    "Run `cudamaster doctor`; the linker's whole log is: " + built.log.strip()[-1500:],
                )
            return built.object.replace(executable)

    @cached_property
    def _signature(self) -> Signature:
        wrapper = self.card.wrapper(self.precision, optimized=True)
        return Signature(wrapper, self.card.signature(self.precision), self.card.headers)

    def _localised(self, source: Path, suffix: str = ".local.o") -> Path:
        """An object beside another, with all symbols local but the wrapper."""
        target = source.with_suffix(suffix)
        localise(source, self._signature.wrapper, target, redirected())
        return target

    @property
    def _variants(self) -> tuple[bool, ...]:
        """The values of `debug` to build a candidate with."""
        return (False, True) if self.device.has_debug_build else (False,)

    def device_cache(self) -> Path:
        """Folder for what is built for this device, compiler and architecture."""
        return resources.cache() / self.device.name / self.device.fingerprint


def _checking(debug: bool) -> str:
    return " that checks memory" if debug else ""


@cache
def _harness_source(name: str) -> str:
    return (resources.bench() / "harness" / f"{name}.cu").read_text(encoding="utf-8")


@cache
def _eager_source(name: str) -> str:
    return (resources.bench() / "pytorch" / name).read_text(encoding="utf-8")


@cache
def _headers_hash() -> str:
    folder = resources.bench()
    headers: Sequence[Path] = sorted(folder.glob("include/**/*.h"))
    return content_hash(*(path.read_text(encoding="utf-8") for path in headers))


@cache
def _ledger_hash() -> str:
    return content_hash(*redirected())


@cache
def redirected() -> Mapping[str, str]:
    """Functions of the runtime that a candidate reaches through the harness's ledger, which sees what is left open, and
    those in whose place it reaches others."""
    text = (resources.bench() / "include" / "mskb" / "ledger.h").read_text(encoding="utf-8")
    ledger = {name: f"mskb_{name}" for name in re.findall(r"^cudaError_t mskb_(_*cuda\w+)\(", text, re.MULTILINE)}
    return {**INSTEAD, **ledger}
