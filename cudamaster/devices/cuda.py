"""The cuda device: nvcc and a local GPU.

Kernels are built for the architecture of the GPU found. One process at a time measures on a GPU; it holds an flock,
which the system frees if the process dies. Clocks are read, never set.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cudamaster.core import keys, resources
from cudamaster.core.errors import DeviceError
from cudamaster.core.values import Hardware, Hold, Profile, content_hash
from cudamaster.devices import driver_stub, ncu, smi, toolkit
from cudamaster.devices.cpu import toolchain
from cudamaster.devices.gate import Gate, NeverNeeded
from cudamaster.devices.judge_request import LARGEST_FILE_BYTES, JudgeRequest
from cudamaster.devices.ncu import NoProfile
from cudamaster.devices.nvcc import COMPILE_LIMIT_S, find_nvcc, library_folders, release
from cudamaster.devices.parts import Part
from cudamaster.devices.process import lock, require_room, run_limited
from cudamaster.devices.protocol import (
    NEVER_RUN,
    OWN_SYMBOLS,
    Compiled,
    MeasuringProtocol,
    ObjectRules,
    Preprocessor,
    Ran,
    linker_options,
)
from cudamaster.devices.targets import for_gpu
from cudamaster.guards.flags import Flags, parse_command
from cudamaster.guards.preprocess import NVCC_DEFINES
from cudamaster.guards.refusal import Refusal
from cudamaster.guards.symbols import CUDA_ALLOWED_SYMBOLS, CUDA_CONSTRUCTORS, CUDA_STATE

_PROBE_LIMIT_S = 60.0
_LEAST_CORES = 4
_TENSOR_MAP = b"cuTensorMap"  # how a symbol's name begins
# One folder for all users and jobs of a machine, each of which may have a $TMPDIR of its own.
_LOCKS = Path("/tmp")
INSTALL_NVCC = f"Install the CUDA toolkit, or run `{toolkit.EXTRA}` (in a checkout, `pip install -e '.[cuda]'`)"
_NVCC_FIX = f"{INSTALL_NVCC}; or use --device cpu."


@dataclass(frozen=True)
class LocalGpu:
    """What nvidia-smi says about one GPU, the `index`-th. Clocks in MHz, power in W, memory in MiB, as printed."""

    index: int
    name: str
    uuid: str
    compute_capability: str
    driver: str
    memory_mib: str
    sm_clock_mhz: str
    memory_clock_mhz: str
    power_limit_w: str

    @property
    def architecture(self) -> str:
        """Target of nvcc, e.g. "sm_90"."""
        return "sm_" + self.compute_capability.replace(".", "")


def find_gpu() -> LocalGpu | None:
    """The first of `find_gpus`; None when there is none."""
    return next(iter(find_gpus()), None)


@functools.cache
def find_gpus() -> tuple[LocalGpu, ...]:
    """The GPUs that nvidia-smi lists and $CUDA_VISIBLE_DEVICES lets a program see, in the order it names them."""
    return visible(_listed_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))


@functools.cache
def _listed_gpus() -> tuple[LocalGpu, ...]:
    return tuple(LocalGpu(index, *fields) for index, fields in enumerate(smi.gpus()))


def visible(gpus: Sequence[LocalGpu], wanted: str | None) -> tuple[LocalGpu, ...]:
    """The GPUs that $CUDA_VISIBLE_DEVICES, by number or by a UUID's beginning, lets a program see.

    As in CUDA, the first invalid name hides all names after it.
    """
    if wanted is None:
        return tuple(gpus)
    seen: list[LocalGpu] = []
    for name in (part.strip() for part in wanted.split(",")):
        if name.isdecimal():
            found = gpus[int(name)] if int(name) < len(gpus) else None
        else:
            found = next((gpu for gpu in gpus if name and gpu.uuid.startswith(name)), None)
        if found is None:
            break
        if found not in seen:
            seen.append(found)
    return tuple(seen)


class CudaDevice:
    """nvcc and a GPU, by default the first one. Raises DeviceError when either is missing."""

    name = "cuda"
    emulated = False
    protocol = MeasuringProtocol(pairs=2, warmups=3, calls=50, work_limit=None, call_limit_s=2.0)
    has_debug_build = False

    def __init__(self, gpu: LocalGpu | None = None) -> None:
        nvcc, gpu = find_nvcc(), gpu or find_gpu()
        if nvcc is None:
            raise DeviceError("There is no nvcc.", _NVCC_FIX)
        if gpu is None:
            raise DeviceError(
                "There is no GPU: nvidia-smi is missing or lists none.",
                "Check the driver with nvidia-smi, or use --device cpu.",
            )
        self.nvcc = nvcc
        self.gpu = gpu
        self.on_hold: Callable[[Hold], None] | None = None
        self._ended_badly: JudgeRequest | None = None  # of the last run, if it did

    @property
    def unit(self) -> str:
        """The GPU's UUID."""
        return self.gpu.uuid

    @property
    def default_command(self) -> str:
        """Plain -O3 for the GPU found."""
        return f"nvcc -O3 -std=c++17 -arch={self.gpu.architecture} -c candidate.cu -o candidate.o"

    @property
    def toolkit(self) -> str:
        """Release of nvcc, e.g. "13.0"."""
        return release(self.nvcc)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash over nvcc's release and the GPU's architecture."""
        return content_hash("cuda", str(self.nvcc), self.toolkit, self.gpu.architecture)

    @functools.cached_property
    def shares_driver(self) -> bool:
        """Whether the machine has other GPUs."""
        return len(_listed_gpus()) > 1

    @functools.cached_property
    def _own_node(self) -> list[str]:
        """The option that shows a judge only its own GPU, if there are others."""
        node = device_node(self.gpu.uuid) if self.shares_driver else None
        return [] if node is None else ["--gpu-node", node]

    @functools.cached_property
    def _other_cores(self) -> list[int]:
        return other_cores(_usable_cores(), len(_listed_gpus()))

    def hardware(self) -> Hardware:
        """Figures as nvidia-smi gives them."""
        gpu = self.gpu
        figures = {
            "compute capability": gpu.compute_capability,
            "memory": f"{gpu.memory_mib} MiB",
            "largest SM clock": f"{gpu.sm_clock_mhz} MHz",
            "memory clock": f"{gpu.memory_clock_mhz} MHz",
            "power limit": f"{gpu.power_limit_w} W",
            "driver": gpu.driver,
            "CUDA toolkit": self.toolkit,
        }
        return Hardware(name=gpu.name, figures=figures, emulated=False)

    def parts(self) -> Sequence[Part]:
        """Nothing: a GPU needs no executor."""
        return ()

    def include_folders(self) -> tuple[Path, ...]:
        """Folders of CUDA's own headers, for the preprocessing of the source guard."""
        if self._searched:
            return self._searched
        home = self.nvcc.resolve().parent.parent
        return tuple(folder for folder in (home / "include", *home.glob("targets/*/include")) if folder.is_dir())

    @functools.cached_property
    def _searched(self) -> tuple[Path, ...]:
        """The header folder that nvcc reports: the nvcc on the PATH may be a script that starts the real one."""
        command = [str(self.nvcc), "--dryrun", "-c", "any.cu"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=keys.for_tools())
        rows = re.findall(r"^#\$ (?:SYSTEM_)?INCLUDES=(.*)$", done.stderr, re.MULTILINE)
        named = [Path(folder).resolve() for row in rows for folder in re.findall(r'"(?:-I)?(/[^"]+)"', row)]
        return tuple(dict.fromkeys(folder for folder in named if folder.is_dir()))

    def preprocessor(self) -> Preprocessor:
        """The host's compiler, with the macros of nvcc's host pass."""
        return Preprocessor(toolchain.working_compiler(), self.include_folders(), NVCC_DEFINES, ("cuda_runtime.h",))

    def parse_command(self, command: str) -> Flags | Refusal:
        """The flags of an nvcc command, of whose targets only what this GPU runs is built."""
        flags = parse_command(command)
        return flags if isinstance(flags, Refusal) else Flags(for_gpu(flags.arguments, self.gpu.compute_capability))

    def limits_flags(self) -> tuple[str, ...]:
        """Only a build for sm_90a has wgmma; other GPUs get the device's own target."""
        target = ("-gencode=arch=compute_90a,code=sm_90a",) if self.gpu.compute_capability == "9.0" else ()
        return ("-O2", "-std=c++17", *target)

    def object_rules(self) -> ObjectRules:
        """The CUDA runtime, memory and math functions, and what nvcc itself puts into an object."""
        return ObjectRules(CUDA_ALLOWED_SYMBOLS, CUDA_CONSTRUCTORS, CUDA_STATE)

    def compile(self, source: str, flags: Sequence[str], name: str, folder: Path, *, debug: bool = False) -> Compiled:
        """Compile with nvcc; the log holds ptxas's resource usage. Line numbers, for sanitizers, change no code."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.cu").write_text(source, encoding="utf-8")
        chosen = any(flag.startswith(("-arch=", "-gencode=")) for flag in flags)
        target = [] if chosen else [f"-arch={self.gpu.architecture}"]
        # nvcc's passes for the host and for each architecture run side by side; their results are the same. Not so with
        # --split-compile: of the playbook's hundred best kernels ten get other instructions by it.
        command = [str(self.nvcc), *flags, *target, "-lineinfo", "-Xptxas=-v", "--threads=4",
                   f"-I{resources.bench() / 'include'}", f"-I{resources.bench()}",
                   "-c", f"{name}.cu", "-o", f"{name}.o"]  # fmt: skip
        return self._call(command, folder, folder / f"{name}.o")

    def link(
        self,
        objects: Sequence[Path],
        executable: Path,
        *,
        debug: bool = False,
        libraries: Sequence[Path] = (),
        shared: bool = False,
    ) -> Compiled:
        """Link with the static CUDA runtime."""
        folders = [f"-L{folder}" for folder in library_folders(self.nvcc)]
        options = [f"-Xlinker={option}" for option in linker_options(libraries)]
        if shared:
            options += ["-shared", *(f"-Xlinker={option}" for option in OWN_SYMBOLS)]
        # The runtime finds the driver by itself. Only a candidate that makes tensor maps calls the driver directly.
        if any(_TENSOR_MAP in path.read_bytes() for path in objects):
            options.append("-lcuda")
            stub = driver_stub.made(executable.parent)
            folders += [f"-L{stub}"] if stub is not None else []
        # No object has relocatable device code (guards.flags), so there is nothing to link for the device.
        command = [str(self.nvcc), f"-arch={self.gpu.architecture}", "--no-device-link",
                   *map(str, objects), *options, *folders, "-o", str(executable)]  # fmt: skip
        return self._call(command, executable.parent, executable)

    def run(
        self, request: JudgeRequest, report: Path, limit_s: float, *, quiet: bool = False, gate: Gate | None = None
    ) -> Ran:
        """Run a judge while holding the GPU. Thread order cannot be chosen on a GPU.

        After a run that ended badly the GPU is tested first: a broken GPU is the machine's trouble and not the next
        candidate's. Raises DeviceError if it does not answer.
        """
        try:
            with self._held_for(gate, alone=request.measures, quiet=quiet) as (locks, goes_on):
                self._probe(locks)
                pinned, cores = self._cores_of(request)
                ahead = [] if goes_on is None else ["--ahead"]
                words = [*request.command, *pinned, *ahead, "--report", str(report)]
                ran = self._run(words, limit_s, locks, cores, goes_on, request.largest_file_bytes)
        except NeverNeeded:
            return NEVER_RUN
        if ran.exit_code not in (0, 1) and not (gate is not None and gate.closed):
            self._ended_badly = request
        return ran

    def execute(self, command: Sequence[str], limit_s: float) -> Ran:
        """Run a program other than a judge while holding the GPU."""
        with self.held() as locks:
            self._probe(locks)
            return self._run(command, limit_s, locks, self._other_cores)

    def _cores_of(self, request: JudgeRequest) -> tuple[list[str], Sequence[int]]:
        """A judge's options for its cores if it measures; otherwise the cores of the whole run."""
        if not request.measures:
            return [], self._other_cores
        own = measuring_cores(_usable_cores(), self.gpu.index)
        helpers = [word for core in self._other_cores for word in ("--helper-core", str(core))]
        return (["--cores", ",".join(map(str, own)), *helpers] if own else []), []

    def _run(
        self,
        command: Sequence[str],
        limit_s: float,
        locks: Sequence[int],
        cores: Sequence[int] = (),
        goes_on: Callable[[], bool] | None = None,
        largest_file_bytes: int = LARGEST_FILE_BYTES,
    ) -> Ran:
        whole = [*command, *self._own_node]
        return run_limited(
            whole, limit_s, environment=_environment(self.gpu), held=locks, cores=cores, goes_on=goes_on,
            largest_file_bytes=largest_file_bytes,
        )  # fmt: skip

    def _probe(self, locks: Sequence[int]) -> None:
        """Test the GPU after a bad end by a judge without cases: contexts of two processes, shared memory, a launch."""
        if self._ended_badly is None:
            return
        last = self._ended_badly
        test = JudgeRequest(judge=last.judge, baseline=last.baseline, baseline_only=True, cases="none")
        for wait_s in (1, 5, 20, None):
            ran = self._run(test.command, _PROBE_LIMIT_S, locks)
            if ran.exit_code == 0:
                self._ended_badly = None
                return
            if wait_s is not None:
                time.sleep(wait_s)
        raise DeviceError(
            f"{self.gpu.name} ({self.gpu.uuid}) does not answer after a candidate ended badly: {ran.stderr[-300:]}.",
            "Look at it with nvidia-smi and in the system's log (Xid); it may have to be reset. A run goes on with "
            "--resume.",
        )

    def profile(
        self, judge: JudgeRequest, worker: Path, case: str, candidate: str, metrics: Collection[str] | None
    ) -> Profile | NoProfile:
        """Profile with Nsight Compute, holding the GPU."""
        return ncu.profile(self.run, judge, worker, candidate=candidate, case=case, metrics=metrics)

    @contextmanager
    def held(self, *, alone: bool = True, quiet: bool = False, waits: bool = True) -> Iterator[tuple[int, ...]]:
        """Hold the GPU against other measuring processes of this machine; gives the descriptors of the locks.

        With `quiet`, also against runs on all GPUs of the machine. Unless it `waits`, raises BlockingIOError if others
        hold a lock.
        """
        started: float | None = None
        try:
            gpu_lock = _locked(self.gpu.uuid, alone=alone, waits=waits)
            with gpu_lock as gpu, _machine(quiet=quiet, waits=waits) as machine:
                started, since = time.time(), time.monotonic()
                yield gpu, machine
        finally:
            if started is not None and self.on_hold is not None:
                self.on_hold(Hold(self.unit, started, time.monotonic() - since, alone))

    @contextmanager
    def _held_for(
        self, gate: Gate | None, *, alone: bool, quiet: bool
    ) -> Iterator[tuple[tuple[int, ...], Callable[[], bool] | None]]:
        """Holds the GPU for a judge; gives the function that lets it continue, if it started early.

        Judges start early only on a free GPU: a compiler must not keep others from a GPU that they wait for. Raises
        NeverNeeded.
        """
        with ExitStack() as stack:
            if gate is not None:
                free: tuple[int, ...] = ()
                with suppress(BlockingIOError):
                    free = stack.enter_context(self.held(alone=alone, waits=False))
                if free:
                    yield free, functools.partial(_goes_on, gate, free[1])
                    return
                gate.wait_open()
                quiet = gate.quiet
            yield stack.enter_context(self.held(alone=alone, quiet=quiet)), None

    def _call(self, command: list[str], folder: Path, product: Path) -> Compiled:
        started = time.monotonic()
        product.unlink(missing_ok=True)
        ran = run_limited(command, COMPILE_LIMIT_S, folder=folder, cores=self._other_cores)
        require_room(ran)
        log = f"nvcc was stopped after {COMPILE_LIMIT_S:g} s" if ran.expired else ran.stderr
        return Compiled(
            object=product if ran.exit_code == 0 and product.is_file() else None,
            command=" ".join(command),
            log=log,
            seconds=time.monotonic() - started,
        )


@contextmanager
def _locked(name: str, *, alone: bool, waits: bool = True) -> Iterator[int]:
    """Holds a lock of this machine, which the system frees if its holders die. Gives its descriptor."""
    path = _LOCKS / f"cudamaster-{name}.lock"
    try:
        try:
            descriptor = os.open(path, os.O_RDONLY)  # also for another user's file: a lock needs no more
        except FileNotFoundError:
            descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
            with suppress(PermissionError):  # another process made it meanwhile
                os.fchmod(descriptor, 0o644)  # a umask may have hidden it from others
    except OSError as error:
        raise DeviceError(
            f"The lock {path}, which keeps measurements apart, cannot be opened: {error.strerror}.",
            "Ask its owner to remove it while nothing measures on this machine.",
        ) from error
    try:
        kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        if waits:
            lock(descriptor, kind)
        else:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _machine(*, quiet: bool, waits: bool = True) -> Iterator[int]:
    """Shares the machine with runs on its other GPUs, or has it `quiet`. While one waits for that, no other starts."""
    with ExitStack() as held:
        with _locked("turn", alone=True, waits=waits):
            machine = held.enter_context(_locked("machine", alone=quiet, waits=waits))
        yield machine


def _goes_on(gate: Gate, machine: int) -> bool:
    """Whether a judge that was started early continues; if it has to be quiet, it then has the machine to itself."""
    opened = gate.wait()
    if opened and gate.quiet:
        # A process that already waits for the machine may be waiting for us.
        fcntl.flock(machine, fcntl.LOCK_UN)
        with _locked("turn", alone=True):
            lock(machine, fcntl.LOCK_EX)
    return opened


@contextmanager
def computing_on(gpus: Sequence[LocalGpu]) -> Iterator[None]:
    """Hold GPUs for work that is no measurement, such as a model's: nothing measures there until the block is left.

    Runs that need the whole machine quiet wait too. A judge of this process waits like any other, so the block must not
    wait for one.
    """
    with ExitStack() as held:
        # In one order, so that two programs never wait for each other.
        for gpu in sorted(gpus, key=lambda gpu: gpu.uuid):
            held.enter_context(_locked(gpu.uuid, alone=True))
        if gpus:
            held.enter_context(_machine(quiet=False))
        yield


def _environment(gpu: LocalGpu) -> dict[str, str]:
    """The environment of a judge and its workers: without a model's key, and with only the GPU that is held."""
    kept = ("PATH", "HOME", "LD_LIBRARY_PATH", "TMPDIR")
    return {**{key: os.environ[key] for key in kept if key in os.environ}, "CUDA_VISIBLE_DEVICES": gpu.uuid}


def device_node(uuid: str, gpus: Path = Path("/proc/driver/nvidia/gpus")) -> str | None:
    """The device node of a GPU, e.g. "/dev/nvidia2", as the driver reports it; None if it does not."""
    for path in gpus.glob("*/information"):
        fields = dict(re.findall(r"^(.+?):\s*(.+?)\s*$", path.read_text(encoding="utf-8"), re.MULTILINE))
        if fields.get("GPU UUID") == uuid and fields.get("Device Minor", "").isdecimal():
            return f"/dev/nvidia{fields['Device Minor']}"
    return None


def _usable_cores() -> list[int]:
    """The processor cores that this process may use; none if the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def measuring_cores(usable: Sequence[int], gpu: int) -> list[int]:
    """The cores of the judge and of the workers of a run that measures on the `gpu`-th GPU of the machine.

    Each GPU has two cores of its own if there are enough. They are the last ones, because the first serve interrupts.
    """
    free = sorted(usable, reverse=True)[2 * gpu :]
    return [free[1], free[0]] if len(free) >= _LEAST_CORES else []


def other_cores(usable: Sequence[int], gpus: int) -> list[int]:
    """The cores for everything else, compilers above all: a call that has to wait for a core looks slower than it is.

    None, meaning any core, if less than half of them would be left.
    """
    own = {core for gpu in range(gpus) for core in measuring_cores(usable, gpu)}
    left = [core for core in usable if core not in own]
    return left if own and 2 * len(left) >= len(usable) else []
