"""Times and counters of very many kernels on a machine with GPUs, in minutes: `collect` of benchmarks/gpu_model.py.

Measured are all baselines, all kernels of the playbook and their variants (gpu_model_variants.py) at three timed cases:

    FOLDER/times.jsonl       a line a kernel: medians of calls in turn with all others of its task, or what is wrong
    FOLDER/counters.jsonl    a line a kernel: Nsight Compute's counters of each launch at its heaviest case

All kernels of a task and precision are in one program (measure_calls.cu), which times them as the judge's workers do,
but takes a tenth of a judge's time. It holds each kernel's outputs against the baseline's; a kernel that fails there
is left out. Another run of it is profiled. Several programs start at a time; on the GPU they are one after another.
Kernels are built beside that, and what the files hold already is not measured again.
"""

from __future__ import annotations

import csv
import fnmatch
import itertools
import json
import os
import signal
import subprocess
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpu_model_data as data
from gpu_model_variants import texts, variants

from cudamaster.build.building import Builder
from cudamaster.core import resources
from cudamaster.core.values import BENCHMARK_PRECISIONS, Candidate, Precision, content_hash
from cudamaster.devices import ncu
from cudamaster.devices.cuda import CudaDevice, find_gpus, measuring_cores
from cudamaster.modelling import measured
from cudamaster.models.playbook import merged
from cudamaster.tasks import cards

FAR = 0.05  # of a root mean square, that a variant's outputs may be from the baseline's where its kernel's are closer
MOST_KERNELS = 24  # of one program (measure_calls.cu)
TOGETHER = 6  # programs that start side by side
UNIT_LIMIT_S, PROGRAM_LIMIT_S = 30.0, 100.0  # the second includes the wait for others
BASELINE = "baseline"
_MARKER = "mskb_marker"
_PROGRAM = Path(__file__).with_name("measure_calls.cu")

_L1 = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
METRICS = (
    "gpu__time_duration.sum",
    "gpc__cycles_elapsed.max",
    "sm__cycles_active.avg",
    # L1: what is asked for, what is found.
    *(_L1.format(what, op) for op in ("ld", "st", "atom", "red") for what in ("requests", "sectors")),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_miss.sum",
    "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "l1tex__cycles_elapsed.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    # L2 and memory.
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_write.sum",
    "lts__t_sectors_op_atom.sum",
    "lts__t_sectors_op_red.sum",
    "lts__t_sectors_lookup_miss.sum",
    "lts__t_sectors_srcunit_tex_lookup_miss.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    # Instructions.
    "smsp__inst_executed.sum",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    *(
        f"sm__inst_executed_pipe_{pipe}.sum"
        for pipe in ("alu", "fma", "fmaheavy", "fp16", "fp64", "xu", "lsu", "adu", "cbu", "uniform")
    ),
    "sm__inst_executed_pipe_tensor_op_hmma.sum",
    "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "smsp__inst_issued.sum",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "launch__registers_per_thread",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__shared_mem_per_block",
    "launch__waves_per_multiprocessor",
)


@dataclass
class Kernel:
    """A kernel to measure, and its object of which only the wrapper is visible."""

    name: str
    candidate: Candidate
    built: Future[Path] = field(default_factory=Future)

    @property
    def code(self) -> str:
        """Hash of its text."""
        return content_hash(self.candidate.code)


@dataclass
class Unit:
    """What one program measures: the kernels of a task and precision, the baseline first.

    Those that do not build, or that turn out to be wrong, are left out of `kernels`' numbers in `linked`.
    """

    card: cards.TaskCard
    precision: Precision
    builder: Builder
    kernels: list[Kernel]
    linked: Future[tuple[Path, list[Kernel]]] = field(default_factory=Future)
    wrong: set[int] = field(default_factory=set)  # numbers in the program

    @property
    def name(self) -> str:
        """As commands have it."""
        return f"{self.card.name}-{self.precision}"

    @property
    def labels(self) -> list[str]:
        """The cases that are measured, the heaviest first."""
        return data.some_cases(self.card, data.CASES)

    @property
    def skipped(self) -> str:
        """The program's word for what it leaves out."""
        return ",".join(["-", *map(str, sorted(self.wrong))])


class Kept:
    """The files of a folder, written a line at a time, and what earlier runs left in them or in copies of them."""

    def __init__(self, folder: Path, earlier: Sequence[Path]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock = threading.Lock()
        files = [path for each in (folder, *earlier) for path in sorted(each.glob("*.jsonl"))]
        self._done = {(path.stem, key(line)) for path in files for line in read_lines(path)}

    def has(self, table: str, unit: Unit, kernel: Kernel) -> bool:
        """Whether a kernel's line is there, whatever it says."""
        return (table, (unit.card.name, unit.precision.value, kernel.name, kernel.code)) in self._done

    def add(self, table: str, unit: Unit, kernel: Kernel, **what: object) -> None:
        """Write a kernel's line."""
        head = {"task": unit.card.name, "precision": unit.precision.value, "kernel": kernel.name, "code": kernel.code}
        with self._lock, (self._folder / f"{table}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({**head, **what}, separators=(",", ":")) + "\n")
            self._done.add((table, key(head)))


def key(line: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """What a line is about."""
    return line["task"], line["precision"], line["kernel"], line["code"]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; one that was cut off is left out."""
    found = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return found


def collect(
    folder: Path,
    earlier: Sequence[Path],
    patterns: Sequence[str],
    left_out: frozenset[str],
    plain: bool,
    jobs: int,
    seconds: float,
) -> None:
    """Measure what the files lack, on all GPUs that this process sees, and begin nothing new after `seconds`.

    Variants whose hashes are `left_out` are known to be wrong; a `plain` run has no variants. What is built lies in the
    cache.
    """
    began = time.monotonic()
    until = began + seconds
    devices = [CudaDevice(gpu) for gpu in find_gpus()]
    print(f"{len(devices)} x {devices[0].gpu.name}, {os.cpu_count()} cores", flush=True)
    kept = Kept(folder, earlier)
    units = _units(devices[0], kept, patterns, left_out, plain)
    kernels = sum(len(unit.kernels) - 1 for unit in units)
    print(f"{len(units)} tasks and precisions with {kernels} kernels beside the baselines", flush=True)
    with ThreadPoolExecutor(jobs) as pool, ThreadPoolExecutor(2 * TOGETHER) as linking:
        work = resources.cache() / "gpu-model"
        program = pool.submit(_compiled_program, devices[0], work)
        for unit in units:
            for kernel in unit.kernels:
                pool.submit(_settle, kernel.built, lambda unit=unit, kernel=kernel: _built(unit, kernel, until))
            linking.submit(_settle, unit.linked, lambda unit=unit: _linked(unit, program, work, kept))
        queue, turn = iter(units), threading.Lock()
        threads = [
            threading.Thread(target=_serve, args=(device, queue, turn, kept, work, began, until)) for device in devices
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pool.shutdown(wait=False, cancel_futures=True)
        linking.shutdown(wait=False, cancel_futures=True)
        print(f"over, {until - time.monotonic():.0f} s were left", flush=True)
        os._exit(0)  # whatever still builds is of no use


def _units(
    device: CudaDevice, kept: Kept, patterns: Sequence[str], left_out: frozenset[str], plain: bool
) -> list[Unit]:
    """What is to be measured: first what the other table of times lacks, else in an order that mixes the tasks."""
    from gpu_model_validation import TIMES

    timed = {(each.task, each.precision, each.code) for each in measured.read(TIMES)}
    found = []
    for task, precision in ((task, each) for task in cards.names() for each in BENCHMARK_PRECISIONS):
        named = f"{task}-{precision.value}"
        if patterns and not any(fnmatch.fnmatch(named, one) or fnmatch.fnmatch(task, one) for one in patterns):
            continue
        card = cards.load(task)
        unit = Unit(card, precision, Builder(card, precision, device), [])
        every = [*texts(task, precision.value), *((v.name, v.code, v.flags) for v in variants(task, precision.value))]
        lacking = 0
        for name, code, flags in every:
            command = merged(device.default_command, flags) if flags else device.default_command
            kernel = Kernel(name, Candidate(task, precision, code, command))
            lacking += is_playbook(name) and (task, precision.value, kernel.code) not in timed
            known = all(kept.has(table, unit, kernel) for table in ("times", "counters"))
            if name == BASELINE or not (known or kernel.code in left_out or (plain and not is_playbook(name))):
                unit.kernels.append(kernel)
        unit.kernels = unit.kernels[:MOST_KERNELS]
        if len(unit.kernels) > 1:
            found.append((-min(lacking, 1), content_hash(task, precision.value), unit))
    return [unit for _, _, unit in sorted(found, key=lambda each: each[:2])]


def is_playbook(name: str) -> bool:
    """Whether a kernel is one of the playbook, by its name."""
    return name != BASELINE and " " not in name


def _settle(future: Future[Any], make: Any) -> None:
    """What `make` gives, as the future's result."""
    try:
        future.set_result(make())
    except BaseException as error:
        future.set_exception(error)


def _built(unit: Unit, kernel: Kernel, until: float) -> Path:
    """Compile a kernel. It is our own text, so no guard reads it."""
    if time.monotonic() > until:
        raise TimeoutError("no time left to build it")
    builder = unit.builder
    if kernel.name == BASELINE:
        builder.task_object()
        builder.call_object()
    try:
        return builder.own_object(kernel.candidate)
    except ValueError as error:
        raise ValueError(str(error)[:300]) from error


def _compiled_program(device: CudaDevice, folder: Path) -> Path:
    """The program that is profiled, without kernels."""
    text = _PROGRAM.read_text(encoding="utf-8")
    compiled = device.compile(text, ("-O2", "-std=c++17"), "measure_calls", folder)
    assert compiled.object is not None, compiled.log
    return compiled.object


def _linked(unit: Unit, program: Future[Path], folder: Path, kept: Kept) -> tuple[Path, list[Kernel]]:
    """The program with a unit's kernels that build, and these."""
    kernels = []
    for kernel in unit.kernels:
        try:
            kernel.built.result()
            kernels.append(kernel)
        except TimeoutError:
            continue
        except Exception as error:
            kept.add("times", unit, kernel, status="not built", detail=str(error))
            kept.add("counters", unit, kernel, detail="not built")
    builder, home = unit.builder, folder / unit.name
    home.mkdir(parents=True, exist_ok=True)
    wrapper = unit.card.wrapper(unit.precision, optimized=True)
    call = builder.call_object()
    names = subprocess.run(["nm", str(call)], capture_output=True, text=True, check=True).stdout.split()
    entry = next(name for name in names if "call_candidate" in name)
    objects = [program.result(), builder.task_object()]
    for number, kernel in enumerate(kernels):
        renames = [f"--redefine-sym={wrapper}=mskb_kernel_{number}", f"--redefine-sym={entry}=mskb_call_{number}"]
        for source, name in ((call, "call"), (kernel.built.result(), "kernel")):
            target = home / f"{name}_{number}.o"
            subprocess.run(["objcopy", *renames, str(source), str(target)], check=True, capture_output=True)
            objects.append(target)
    linked = builder.device.link(objects, home / "run")
    assert linked.object is not None, linked.log[-500:]
    return linked.object, kernels


def _serve(
    device: CudaDevice,
    queue: Iterator[Unit],
    turn: threading.Lock,
    kept: Kept,
    folder: Path,
    began: float,
    until: float,
) -> None:
    """Measure units on one GPU, as many at a time as start side by side.

    Times come first. Counters of baselines and the playbook are read where the next units are not built yet, and then
    those of the variants.
    """
    first, second = list[Unit](), list[Unit]()  # what is to be profiled: now, and once all are timed
    with turn:
        group = list(itertools.islice(queue, TOGETHER))
    while (group or first or second) and time.monotonic() < until:
        if group and (all(unit.linked.done() for unit in group) or not first):
            ready = _ready(group, until)
            with device.held():
                said = _safely(_timed, ready, device, kept)
            first += ready
            _tell(began, "times", ready, said)
            with turn:
                group = list(itertools.islice(queue, TOGETHER))
            continue
        variants_too = not first
        waiting = second if variants_too else first
        now = [waiting.pop(0) for _ in range(min(TOGETHER, len(waiting)))]
        with device.held():
            said = _safely(_profiled, now, device, kept, folder, variants_too)
        second += [] if variants_too else now
        _tell(began, "counters", now, said)


def _ready(group: Sequence[Unit], until: float) -> list[Unit]:
    """Those whose programs are built."""
    ready = []
    for unit in group:
        try:
            unit.linked.result(timeout=max(1.0, until - time.monotonic()))
            ready.append(unit)
        except Exception as error:
            print(f"    {unit.name} is not built: {str(error)[:200]}", flush=True)
    return ready


def _safely(measure: Callable[..., list[str]], *given: object) -> list[str]:
    """What went wrong, also where it is ours."""
    try:
        return measure(*given)
    except Exception:
        return [traceback.format_exc(limit=4)]


def _tell(began: float, what: str, units: Sequence[Unit], said: Sequence[str]) -> None:
    print(f"{time.monotonic() - began:5.0f} s: {what} of {' '.join(unit.name for unit in units)}", flush=True)
    for word in said:
        print(f"    {word[:160]}", flush=True)


class _Running:
    """A program that times calls: it has started, and begins with a line that it gets."""

    def __init__(self, unit: Unit, device: CudaDevice) -> None:
        executable, self.kernels = unit.linked.result()
        self.unit = unit
        self.seen: list[dict[str, Any]] = []
        # Cores of its own, if there are some: compilers keep away from these.
        cores = measuring_cores(sorted(os.sched_getaffinity(0)), device.gpu.index)
        pinned = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
        command = [*pinned, str(executable), "times", unit.skipped, *unit.labels]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": device.gpu.uuid},
        )  # fmt: skip

    def wait_ready(self) -> None:
        """Until its context is there."""
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def run(self) -> int | None:
        """Lets it measure; gives the number of the kernel that is to blame if it does not come to its end."""
        killer = threading.Timer(UNIT_LIMIT_S, self._process.kill)
        killer.start()
        output, _ = self._process.communicate("go\n")
        killer.cancel()
        for text in output.splitlines():
            with suppress(json.JSONDecodeError):
                self.seen.append(json.loads(text))
        if any("over" in line for line in self.seen):
            return None
        if failed := [line["failed"] for line in self.seen if "failed" in line]:
            return int(failed[0])
        # The first one that is not checked at the case where the last one is.
        checked = [line for line in self.seen if "checked" in line]
        numbers = [number for number in range(len(self.kernels)) if number not in self.unit.wrong]
        of_case = [line["checked"] for line in checked if line["case"] == checked[-1]["case"]] if checked else []
        rest = [number for number in numbers if number not in of_case] or numbers
        return rest[0]


def _timed(group: Sequence[Unit], device: CudaDevice, kept: Kept) -> list[str]:
    """Times of some units; those in which a kernel fails start once more without it. Gives what went wrong."""
    words = []
    waiting = [unit for unit in group if not all(kept.has("times", unit, one) for one in unit.linked.result()[1])]
    while waiting:
        again = []
        running = [_Running(unit, device) for unit in waiting]
        for each in running:
            each.wait_ready()
        for each in running:
            blamed = each.run()
            if blamed is None:
                _keep(each, device, kept)
                continue
            unit = each.unit
            why = next((line["why"] for line in each.seen if "failed" in line), "it does not end")
            words.append(f"{unit.name} {each.kernels[blamed].name}: {why}")
            unit.wrong.add(blamed)
            if blamed == 0:  # the baseline: nothing can be compared
                continue
            kept.add("times", unit, each.kernels[blamed], status="failed", detail=why)
            kept.add("counters", unit, each.kernels[blamed], detail="failed")
            if len(unit.wrong) < len(each.kernels):
                again.append(unit)
        waiting = again
    return words


def _keep(found: _Running, device: CudaDevice, kept: Kept) -> None:
    """Write a unit's times, and which of its kernels are wrong."""
    unit = found.unit
    times: dict[tuple[int, str], dict[str, Any]] = {}
    far: dict[int, float] = defaultdict(float)
    for line in found.seen:
        if "timed" in line:
            times[line.pop("timed"), line.pop("case")] = line
        if "checked" in line:
            apart = [a / max(size, 1e-30) for a, size in zip(line["apart"], line["size"], strict=True)]
            far[line["checked"]] = max([far[line["checked"]], *apart])
    for number, kernel in enumerate(found.kernels):
        if number in unit.wrong:
            continue
        # How far a kernel of the playbook may be from the baseline, its card says; a variant of it may be as far.
        parent = next((n for n, k in enumerate(found.kernels) if k.name == kernel.name.split(" ")[0]), 0)
        right = is_playbook(kernel.name) or far[number] <= max(FAR, 2 * far[parent])
        cases = {
            label: {**own, "baseline_us": beside["whole_us"], "baseline_device_us": beside["device_us"]}
            for label in unit.labels
            if (own := times.get((number, label))) and (beside := times.get((0, label)))
        }
        status = {"status": "correct" if right else "wrong", "apart": float(f"{far[number]:.3g}")}
        kept.add("times", unit, kernel, gpu=device.gpu.name, **status, cases=cases)
        if not right:
            unit.wrong.add(number)


def _profiled(group: Sequence[Unit], device: CudaDevice, kept: Kept, folder: Path, variants_too: bool) -> list[str]:
    """Counters of the right kernels of some units. Gives what went wrong."""
    lock = folder / f"lock-{device.gpu.uuid}"
    with ThreadPoolExecutor(max(1, len(group))) as pool:
        asked = []
        for unit in group:
            executable, kernels = unit.linked.result()
            wanted = [
                number
                for number, kernel in enumerate(kernels)
                if number not in unit.wrong
                and not kept.has("counters", unit, kernel)
                and (variants_too or " " not in kernel.name)
            ]
            if wanted:
                asked.append(pool.submit(_counted, unit, wanted, kernels, executable, device, lock, kept))
        return [said for one in asked if (said := one.result())]


def _counted(
    unit: Unit,
    wanted: Sequence[int],
    kernels: Sequence[Kernel],
    executable: Path,
    device: CudaDevice,
    lock: Path,
    kept: Kept,
) -> str:
    """Run the profiler and keep what it says; what went wrong."""
    found = ncu.find_ncu()
    assert found is not None, ncu.NOT_INSTALLED
    log = executable.with_name("ncu.csv")
    skipped = ",".join(["-", *(str(number) for number in range(len(kernels)) if number not in wanted)])
    program = [str(executable), "profile", skipped, unit.labels[0], str(lock)]
    own = executable.with_name("tmp")  # the profiler has a lock of its own there; ours is enough
    own.mkdir(exist_ok=True)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": device.gpu.uuid, "TMPDIR": str(own)}
    with subprocess.Popen(
        ncu.command(found, METRICS, program, log), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True, env=environment,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=PROGRAM_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return f"{unit.name}: the profiler was stopped after {PROGRAM_LIMIT_S:g} s"
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    by_kernel = launches(text)
    for number in wanted:
        if number in by_kernel:
            kept.add("counters", unit, kernels[number], case=unit.labels[0], launches=by_kernel[number])
    if len(by_kernel) < len(wanted):
        words = [line for line in (text + output).splitlines() if line.strip() and not line.startswith('"')]
        return f"{unit.name}: counters of {len(by_kernel)} of {len(wanted)}: {' / '.join(words[-3:])[:300]}"
    return ""


def launches(text: str) -> dict[int, list[dict[str, object]]]:
    """What the profiler wrote, by the numbers of the kernels, which the markers before their launches tell."""
    table = list(csv.reader(line for line in text.splitlines() if line.startswith('"')))
    if len(table) < 3:
        return {}
    header, _, *rows = table
    found: dict[int, list[dict[str, object]]] = {}
    number = -1
    for row in rows:
        fields = dict(zip(header, row, strict=False))
        name = fields["Kernel Name"]
        if _MARKER in name:
            number = _volume(fields["Grid Size"]) - 1
            found[number] = []
            continue
        figures = {metric: value for metric in METRICS if (value := ncu.number(fields.get(metric))) is not None}
        about = {"function": name, "grid": _volume(fields["Grid Size"]), "block": _volume(fields["Block Size"])}
        found[number].append({**about, **figures})
    return found


def _volume(size: str) -> int:
    """Of "(2, 3, 1)"."""
    volume = 1
    for word in size.strip("() ").split(","):
        volume *= int(word)
    return volume
