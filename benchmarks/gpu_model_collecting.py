"""Times and counters of very many kernels on a machine with GPUs, in minutes: `collect` of benchmarks/gpu_model.py.

Measured are all baselines, all kernels of the playbook and their variants (gpu_model_variants.py) at three timed cases:

    FOLDER/times.jsonl       a line a kernel: medians of calls by cudamaster's judge, or why it is not right
    FOLDER/counters.jsonl    a line a kernel: Nsight Compute's counters of each launch at its heaviest case

A judge of its own measures all kernels of a task and precision, in turn with the baseline and as `evaluate` does, but
with fewer calls, one pair of processes, and outputs that are held against few elements of the reference. Kernels are
built beside that on other cores. Counters come from one program with all kernels of a task (profile_calls.cu), several
of which start at a time; on the GPU they are one after another. What the files hold already is not measured again.
"""

from __future__ import annotations

import csv
import fnmatch
import json
import os
import signal
import statistics
import subprocess
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpu_model_data as data
from gpu_model_variants import texts, variants

from cudamaster.build.building import Builder
from cudamaster.core.errors import CudaMasterError
from cudamaster.core.values import BENCHMARK_PRECISIONS, Candidate, Precision, Status, content_hash
from cudamaster.devices import ncu
from cudamaster.devices.cuda import CudaDevice, find_gpus
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.guards.flags import Flags
from cudamaster.judging.judge_process import Trial, Trials
from cudamaster.judging.verdicts import Judgement
from cudamaster.modelling.counts import CallCounts, Launch
from cudamaster.models.playbook import merged
from cudamaster.tasks import card_checks, cards

CALLS = 20
FEW_CHECKS = ("--oracle-operations", "1e5", "--oracle-elements", "1024", "--extra-seconds", "0.1")
MOST_LAUNCHES = 40  # of a call whose counters are read
MOST_KERNELS = 24  # of one program (profile_calls.cu)
TOGETHER = 6  # programs that start side by side
KERNEL_LIMIT_S, PROGRAM_LIMIT_S = 30.0, 45.0
BASELINE = "baseline"
_MARKER = "mskb_marker"
_PROGRAM = Path(__file__).with_name("profile_calls.cu")

_L1 = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
METRICS = (
    "gpu__time_duration.sum",
    "gpc__cycles_elapsed.max",
    "sm__cycles_active.avg",
    "sm__cycles_elapsed.max",
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
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum",
    # L2 and memory.
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_write.sum",
    "lts__t_sectors_op_atom.sum",
    "lts__t_sectors_op_red.sum",
    "lts__t_sectors_lookup_hit.sum",
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
    "smsp__cycles_active.avg",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "smsp__warps_active.avg.per_cycle_active",
    # What decides the class (profiles/thresholds.yaml).
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "launch__registers_per_thread",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__shared_mem_per_block",
    "launch__waves_per_multiprocessor",
)


@dataclass
class Kernel:
    """A kernel to measure, and what is built of it: its worker, and its object of which only the wrapper is visible."""

    name: str
    candidate: Candidate
    built: Future[tuple[Path, Path]] = field(default_factory=Future)

    @property
    def code(self) -> str:
        """Hash of its text."""
        return content_hash(self.candidate.code)


@dataclass
class Unit:
    """What one judge measures: the kernels of a task and precision, the baseline first."""

    card: cards.TaskCard
    precision: Precision
    builder: Builder
    kernels: list[Kernel]
    shared: Future[None] = field(default_factory=Future)

    @property
    def name(self) -> str:
        """As commands have it."""
        return f"{self.card.name}-{self.precision}"

    @property
    def heaviest(self) -> str:
        """Label of the case that is profiled."""
        return data.some_cases(self.card, 1)[0]


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
    folder: Path, earlier: Sequence[Path], patterns: Sequence[str], part: tuple[int, int], jobs: int, seconds: float
) -> None:
    """Measure what the files lack, on all GPUs that this process sees, and begin nothing new after `seconds`.

    `part` is (k, n): the k-th of n parts of the tasks.
    """
    until = time.monotonic() + seconds
    devices = [CudaDevice(gpu) for gpu in find_gpus()]
    print(f"{len(devices)} x {devices[0].gpu.name}, {os.cpu_count()} cores, part {part[0]} of {part[1]}", flush=True)
    kept = Kept(folder, earlier)
    units = _units(devices[0], kept, patterns, part)
    kernels = sum(len(unit.kernels) - 1 for unit in units)
    print(f"{len(units)} tasks and precisions with {kernels} kernels beside the baselines", flush=True)
    with ThreadPoolExecutor(jobs) as pool:
        program = pool.submit(_compiled_program, devices[0], folder)
        for unit in units:
            for kernel in unit.kernels:
                pool.submit(_settle, kernel.built, lambda unit=unit, kernel=kernel: _built(unit, kernel, until))
            pool.submit(_settle, unit.shared, unit.builder.build_shared)
        queue, turn = iter(units), threading.Lock()
        threads = [
            threading.Thread(target=_serve, args=(device, queue, turn, program, kept, folder, until))
            for device in devices
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pool.shutdown(cancel_futures=True)
    print(f"over, {until - time.monotonic():.0f} s were left", flush=True)


def _units(device: CudaDevice, kept: Kept, patterns: Sequence[str], part: tuple[int, int]) -> list[Unit]:
    """What is to be measured, in an order that mixes the tasks."""
    names = [(task, each) for task in cards.names() for each in BENCHMARK_PRECISIONS]
    names.sort(key=lambda pair: content_hash(pair[0], pair[1].value))
    found = []
    for task, precision in names[part[0] - 1 :: part[1]]:
        named = f"{task}-{precision.value}"
        if patterns and not any(fnmatch.fnmatch(named, one) or fnmatch.fnmatch(task, one) for one in patterns):
            continue
        card = fewer_cases(cards.load(task))
        builder = Builder(card, precision, device)
        unit = Unit(card, precision, builder, [])
        every = [*texts(task, precision.value), *((v.name, v.code, v.flags) for v in variants(task, precision.value))]
        for name, code, flags in every:
            command = merged(device.default_command, flags) if flags else device.default_command
            kernel = Kernel(name, Candidate(task, precision, code, command))
            if name == BASELINE or not all(kept.has(table, unit, kernel) for table in ("times", "counters")):
                unit.kernels.append(kernel)
        if len(unit.kernels) > 1:
            found.append(unit)
    return found


def fewer_cases(card: cards.TaskCard) -> cards.TaskCard:
    """The card with but those timed cases that are measured here."""
    labels = data.some_cases(card, data.CASES)
    every = [values for block in card.sweep for values in card_checks.crossed(block)]
    return card.timed_at([values for values in every if card.case(values, sweep=True).label in labels])


def _settle(future: Future[Any], make: Any) -> None:
    """What `make` gives, as the future's result."""
    try:
        future.set_result(make())
    except BaseException as error:
        future.set_exception(error)


def _built(unit: Unit, kernel: Kernel, until: float) -> tuple[Path, Path]:
    """Compile and link a kernel. It is our own text, so no guard reads it."""
    if time.monotonic() > until:
        raise TimeoutError("no time left to build it")
    builder, device = unit.builder, unit.builder.device
    if kernel.name == BASELINE:
        local = builder._localised(builder._object(builder._baseline_text(debug=False)), ".measured.o")
        return builder.baseline_worker(), local
    folder = builder._folder(kernel.candidate)
    flags = device.parse_command(kernel.candidate.command)
    assert isinstance(flags, Flags), flags
    compiled = builder._compile(kernel.candidate.code, flags, folder, False)
    if compiled.object is None:
        raise ValueError(compiled.log.strip()[:300])
    local = builder._localised(compiled.object)
    linked = device.link([*builder._worker_objects(False), local], builder.executable(kernel.candidate))
    if linked.object is None:
        raise ValueError(linked.log.strip()[:300])
    return linked.object, local


def _compiled_program(device: CudaDevice, folder: Path) -> Path:
    """The program that is profiled, without kernels."""
    text = _PROGRAM.read_text(encoding="utf-8")
    compiled = device.compile(text, ("-O2", "-std=c++17"), "profile_calls", folder / "program")
    assert compiled.object is not None, compiled.log
    return compiled.object


def _serve(
    device: CudaDevice, queue: Any, turn: Any, program: Future[Path], kept: Kept, folder: Path, until: float
) -> None:
    """Measure units on one GPU, as many at a time as are profiled together."""
    over = False
    while not over and time.monotonic() < until:
        measured: list[tuple[Unit, list[Kernel]]] = []
        while len(measured) < TOGETHER and time.monotonic() < until:
            with turn:
                unit = next(queue, None)
            if unit is None:
                over = True
                break
            try:
                measured.append((unit, _timed(unit, device, kept)))
            except Exception:
                print(f"{unit.name} failed:\n{traceback.format_exc(limit=3)}", flush=True)
        try:
            _profiled(measured, device, program.result(), kept, folder)
        except Exception:
            print(f"profiles failed:\n{traceback.format_exc(limit=3)}", flush=True)


def _timed(unit: Unit, device: CudaDevice, kept: Kept) -> list[Kernel]:
    """Measure a unit's times; gives the kernels that are right."""
    unit.shared.result()
    right, asked = [unit.kernels[0]], []
    for kernel in unit.kernels[1:]:
        try:
            worker, _ = kernel.built.result()
        except TimeoutError:
            continue
        except Exception as error:
            kept.add("times", unit, kernel, status="not built", detail=str(error))
            kept.add("counters", unit, kernel, detail="not built")
            continue
        request = JudgeRequest(
            candidate=(str(worker),), cases="sweep", calls=CALLS, pairs=1, extra_seconds=0.1, others=FEW_CHECKS
        )
        asked.append((kernel, request))
    if not asked:
        return []
    began = time.monotonic()
    builder = Builder(unit.card, unit.precision, device)
    trials = Trials(unit.card, builder, device, device.protocol, calls=CALLS, seed=None)
    sweep = [case for case in unit.card.cases if case.sweep]
    wanted = []
    for kernel, request in asked:
        seeded = JudgeRequest(**{**vars(request), "seed": trials.draw_seed()})
        wanted.append((kernel, Trial(seeded, sweep, KERNEL_LIMIT_S, trusted=True)))
    with trials.together([trial for _, trial in wanted]):
        for kernel, trial in wanted:
            try:
                judged = trials.run(trial)
            except CudaMasterError as error:
                kept.add("times", unit, kernel, gpu=device.gpu.name, status="failed", detail=str(error)[:300])
                continue
            kept.add("times", unit, kernel, gpu=device.gpu.name, **_line(judged))
            if judged.status is Status.CORRECT:
                right.append(kernel)
    wall_s = time.monotonic() - began
    print(f"{unit.name}: {len(right) - 1} of {len(unit.kernels) - 1} right, {wall_s:.1f} s", flush=True)
    return right


def _line(judged: Judgement) -> dict[str, object]:
    """What is kept of a judgement."""
    cases = {}
    for case in judged.cases:
        if case.timing is not None and judged.status is Status.CORRECT:
            cases[case.label] = {
                "whole_us": _middle(case.timing.candidate_us),
                "device_us": _middle(case.timing.candidate_device_us),
                "empty_us": case.empty_us,
                "baseline_us": _middle(case.timing.baseline_us),
                "baseline_device_us": _middle(case.timing.baseline_device_us),
                "calls": len(case.timing.candidate_us),
            }
    line: dict[str, object] = {"status": judged.status.value, "cases": cases}
    if judged.asked_bytes:
        line["asked_bytes"] = judged.asked_bytes
    return line if judged.status is Status.CORRECT else {**line, "detail": judged.detail[:300]}


def _middle(times: Sequence[float]) -> float | None:
    return round(statistics.median(times), 3) if times else None


def _profiled(
    measured: Sequence[tuple[Unit, list[Kernel]]], device: CudaDevice, program: Path, kept: Kept, folder: Path
) -> None:
    """Counters of the right kernels of several units."""
    began, many = time.monotonic(), _many_launches()
    wanted = []
    for unit, kernels in measured:
        few = [one for one in kernels if (unit.card.name, unit.precision.value, one.code) not in many]
        few = [one for one in few if not kept.has("counters", unit, one)]
        if few:
            # The baseline's calls launch most.
            wanted.append((unit, [*few[1:], few[0]][:MOST_KERNELS]))
    with ThreadPoolExecutor(TOGETHER) as pool:
        linked = list(pool.map(lambda pair: _linked(pair[0], pair[1], program, folder), wanted))
        lock = folder / f"lock-{device.gpu.uuid}"
        with device.held():
            words = [
                pool.submit(_counted, unit, kernels, executable, device, lock, kept)
                for (unit, kernels), executable in zip(wanted, linked, strict=True)
            ]
            said = [word.result() for word in words]
    print(f"counters of {', '.join(said)}; {time.monotonic() - began:.1f} s", flush=True)


def _linked(unit: Unit, kernels: Sequence[Kernel], program: Path, folder: Path) -> Path:
    """The program with a unit's kernels."""
    builder, home = unit.builder, folder / "program" / unit.name
    home.mkdir(parents=True, exist_ok=True)
    wrapper = builder._signature.wrapper
    call = builder._object(builder._call_text(False))
    names = subprocess.run(["nm", str(call)], capture_output=True, text=True, check=True).stdout.split()
    entry = next(name for name in names if "call_candidate" in name)
    objects = [program, builder._object(builder._task_text)]
    for number, kernel in enumerate(kernels):
        _, local = kernel.built.result()
        renames = [f"--redefine-sym={wrapper}=mskb_kernel_{number}", f"--redefine-sym={entry}=mskb_call_{number}"]
        for source, name in ((call, "call"), (local, "kernel")):
            target = home / f"{name}_{number}.o"
            subprocess.run(["objcopy", *renames, str(source), str(target)], check=True, capture_output=True)
            objects.append(target)
    linked = builder.device.link(objects, home / "run")
    assert linked.object is not None, linked.log[-500:]
    return linked.object


def _counted(
    unit: Unit, kernels: Sequence[Kernel], executable: Path, device: CudaDevice, lock: Path, kept: Kept
) -> str:
    """Run the profiler and keep what it says; a few words for the log."""
    found = ncu.find_ncu()
    assert found is not None, ncu.NOT_INSTALLED
    log = executable.with_name("ncu.csv")
    program = [str(executable), unit.heaviest, str(lock)]
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
            return f"{unit.name} (stopped after {PROGRAM_LIMIT_S:g} s)"
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    by_kernel = launches(text)
    for number, kernel in enumerate(kernels):
        if number in by_kernel:
            kept.add("counters", unit, kernel, case=unit.heaviest, launches=by_kernel[number])
    if len(by_kernel) < len(kernels):
        words = [line for line in (text + output).splitlines() if line.strip() and not line.startswith('"')]
        return f"{unit.name} ({len(by_kernel)} of {len(kernels)}: {' / '.join(words[-3:])[:300]})"
    return unit.name


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
        figures = {metric: value for metric in METRICS if (value := ncu._number(fields.get(metric))) is not None}
        about = {"function": name, "grid": _volume(fields["Grid Size"]), "block": _volume(fields["Block Size"])}
        found[number].append({**about, **figures})
    return found


def _volume(size: str) -> int:
    """Of "(2, 3, 1)"."""
    volume = 1
    for word in size.strip("() ").split(","):
        volume *= int(word)
    return volume


def _many_launches() -> set[tuple[str, str, str]]:
    """Task, precision and code of kernels whose calls launch very often at some case."""
    from gpu_model_validation import COUNTS

    found = set()
    for each in data.read([COUNTS]) if COUNTS.is_file() else ():
        if isinstance(each.counts, CallCounts):
            launched = sum(event.count for event in each.counts.events if isinstance(event, Launch))
            if launched > MOST_LAUNCHES:
                found.add((each.task, each.precision, each.code))
    return found
