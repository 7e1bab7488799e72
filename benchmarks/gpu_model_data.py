"""Counts of many kernels for the fit of the GPU model, kept as they come: part of benchmarks/gpu_model.py.

    FOLDER/TASK-PRECISION/HASH.json    one kernel: {"task", "precision", "kernel", "code", "cases": {label: counts}}

and "compilers", those that have made its object, as that says itself: a driver may find another compiler than its own.

A case that could not be counted has the reason in place of counts. `pack` makes one file of a folder for the checkout.

Kernels with a changed constant are counted too: those of gpu_model_variants.py that were measured, or all of them as
long as none was, and at the heaviest case those of the tables of kernel_metrics.py.
"""

from __future__ import annotations

import fnmatch
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gpu_model_variants
import kernel_metrics
from elftools.elf.elffile import ELFFile

from cudamaster.build.building import Builder
from cudamaster.core import resources
from cudamaster.core.values import BENCHMARK_PRECISIONS, Candidate, Precision, content_hash
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.modelling import measured, verdicts
from cudamaster.modelling.counts import CallCounts
from cudamaster.models.playbook import merged
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench

SEED = 1
CASES = 3  # of a variant
RESULTS = Path(__file__).resolve().parent.parent / "results"
TABLES = RESULTS / "h200" / "metrics"
MEASURED = RESULTS / "gpu_model" / "measured.csv.gz"


@dataclass(frozen=True)
class Kernel:
    """A kernel to count: the baseline, a file of the playbook by its name, or a `variant` of one of them.

    Of an `old` variant, from a table of kernel_metrics.py, only the heaviest case was measured; of the others three.
    """

    task: str
    precision: str
    name: str
    candidate: Candidate
    variant: bool = False
    old: bool = False

    def cases(self, most: int) -> list[str]:
        """Labels of the cases to count, at most so many."""
        return some_cases(cards.load(self.task), 1 if self.old else min(most, CASES) if self.variant else most)

    @property
    def code(self) -> str:
        """Hash of its text."""
        return content_hash(self.candidate.code)

    def file(self, folder: Path) -> Path:
        """Where its counts are kept."""
        return folder / f"{self.task}-{self.precision}" / f"{self.code}.json"


def kernels(task: str, precision: str) -> list[Kernel]:
    """Baseline and playbook kernels of a task, and their measured variants."""
    bench = Workbench(cards.load(task), Precision(precision), CpuDevice())
    command = bench.device.default_command
    found = [
        Kernel(task, precision, name, Candidate(task, bench.precision, code, merged(command, flags)))
        for name, code, flags in gpu_model_variants.texts(task, precision)
    ]
    right = measured_codes()
    for each in gpu_model_variants.variants(task, precision):
        if not right or (task, precision, content_hash(each.code)) in right:
            candidate = Candidate(task, bench.precision, each.code, merged(command, each.flags))
            found.append(Kernel(task, precision, each.name, candidate, variant=True))
    table = kernel_metrics.read(TABLES / f"{task}-{precision}.csv")
    known = {kernel.candidate.code for kernel in found}
    for name, candidate in kernel_metrics.variants(bench) if table else ():
        if name in table and candidate.code not in known:
            found.append(Kernel(task, precision, name, candidate, variant=True, old=True))
    return found


@cache
def measured_codes() -> frozenset[tuple[str, str, str]]:
    """Task, precision and hash of the text of every kernel in the table of gpu_model_collecting.py."""
    if not MEASURED.is_file():
        return frozenset()
    return frozenset((time.task, time.precision, time.code or "") for time in measured.read(MEASURED))


def playbook_files(task: str, precision: str) -> list[Path]:
    """Files of the playbook in the order of their numbers."""
    folder = resources.package() / "playbook" / task / precision
    return sorted(folder.glob("[0-9]*_*.cu"), key=lambda path: int(path.name.partition("_")[0]))


def some_cases(card: cards.TaskCard, most: int) -> list[str]:
    """Labels of timed cases from the heaviest to the lightest; of many, so many at even distances."""
    timed = sorted((case for case in card.cases if case.sweep), key=lambda case: -case.weight)
    if most >= len(timed):
        return [case.label for case in timed]
    places = [round(k * (len(timed) - 1) / max(1, most - 1)) for k in range(most)]
    return [timed[place].label for place in places]


def count_one(folder: Path, task: str, precision: str, code: str, most: int) -> str:
    """Count a kernel's cases that its file lacks; says how it went. Each case is written as soon as it is there."""
    kernel = next(kernel for kernel in kernels(task, precision) if kernel.code == code)
    path = kernel.file(folder)
    kept = json.loads(path.read_text()) if path.is_file() else {}
    done: dict[str, Any] = kept.get("cases", {})
    card, device = cards.load(task), CpuDevice()
    builder = Builder(card, Precision(precision), device)
    count = verdicts.counter(builder, device)
    begun, failed, compilers = time.monotonic(), "", set(kept.get("compilers", ()))
    for label in kernel.cases(most):
        if label in done:
            continue
        with builder.using(kernel.candidate):
            found = count(kernel.candidate, [label], SEED)[label]
            worker = builder.traced_worker(kernel.candidate).worker
            compilers |= compilers_of(worker.with_name("candidate.o")) if worker else set()
        done[label] = found if isinstance(found, str) else found.model_dump(mode="json")
        failed = found if isinstance(found, str) else failed
        path.parent.mkdir(parents=True, exist_ok=True)
        head: dict[str, Any] = {"task": task, "precision": precision, "kernel": kernel.name, "code": kernel.code}
        head["compilers"] = sorted(compilers)
        new = path.with_suffix(".new")
        new.write_text(json.dumps({**head, "cases": done}, separators=(",", ":")))
        new.replace(path)
    return f"{len(done)} cases, {time.monotonic() - begun:.1f} s{': ' + failed if failed else ''}"


def compilers_of(file: Path) -> set[str]:
    """Those that have made an object, with their versions."""
    with file.open("rb") as opened:
        section = ELFFile(opened).get_section_by_name(".comment")
        return {word.decode() for word in section.data().split(b"\0") if word} if section else set()


def count_all(folder: Path, jobs: int, pattern: str, most: int, limit_s: float) -> None:
    """Count all kernels of tasks whose TASK-PRECISION matches, in processes of their own; none can stop the others."""
    wanted = [
        kernel
        for task in sorted(cards.names())
        for precision in ("fp32", "bf16")
        if fnmatch.fnmatch(f"{task}-{precision}", pattern) or fnmatch.fnmatch(task, pattern)
        for kernel in kernels(task, precision)
    ]
    missing = [kernel for kernel in wanted if _lacking(kernel, folder, most)]
    print(f"{len(wanted)} kernels, {len(wanted) - len(missing)} of them counted already", flush=True)
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(_in_a_process, kernel, folder, most, limit_s): kernel for kernel in missing}
        for number, done in enumerate(as_completed(running), 1):
            kernel = running[done]
            said = f"{kernel.task}-{kernel.precision} {kernel.name}: {done.result()}"
            print(f"[{number}/{len(missing)}] {said}", flush=True)


def _lacking(kernel: Kernel, folder: Path, most: int) -> bool:
    path = kernel.file(folder)
    if not path.is_file():
        return True
    done = json.loads(path.read_text())["cases"]
    return any(label not in done for label in kernel.cases(most))


def _in_a_process(kernel: Kernel, folder: Path, most: int, limit_s: float) -> str:
    """Run `count-one` for a kernel; its last line, or why it has none."""
    script = Path(__file__).with_name("gpu_model.py")
    words = ["count-one", str(folder), kernel.task, kernel.precision, kernel.code, "--cases", str(most)]
    with subprocess.Popen(
        [sys.executable, str(script), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=dict(os.environ),
    ) as process:
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"stopped after {limit_s:g} s"
    last = (said.strip().splitlines() or ["it said nothing"])[-1]
    return last if process.returncode == 0 else f"failed with {process.returncode}: {last}"


def forget_failed(folder: Path) -> None:
    """Take the cases out of a folder that could not be counted."""
    for path in folder.glob("*/*.json"):
        kept = json.loads(path.read_text())
        cases = {label: counts for label, counts in kept["cases"].items() if not isinstance(counts, str)}
        if len(cases) < len(kept["cases"]):
            path.write_text(json.dumps({**kept, "cases": cases}, separators=(",", ":")))


def pack(folder: Path, file: Path) -> None:
    """All counts of a folder as one file of JSON lines, a line per kernel and case. Equal counts give equal bytes.

    Counts of kernels whose text has changed are left out, and of calls that nobody has measured.
    """
    timed = {(time.task, time.precision, time.code, time.case) for time in measured.read(MEASURED)}
    lines, compilers = [], set[str]()
    current = {
        kernel.file(folder) for name in cards.names() for each in BENCHMARK_PRECISIONS for kernel in kernels(name, each)
    }
    for path in sorted(current & set(folder.glob("*/*.json"))):
        kept = json.loads(path.read_text())
        compilers.update(kept.get("compilers") or ["one that is not named"])
        head = {name: kept[name] for name in ("task", "precision", "kernel", "code")}
        for label, counts in sorted(kept["cases"].items()):
            if (kept["task"], kept["precision"], kept["code"], label) not in timed:
                continue
            lines.append(json.dumps({**head, "case": label, "counts": counts}, separators=(",", ":"), sort_keys=True))
    if len(compilers) > 1:
        sys.exit(
            f"{folder} has counts by several compilers, which make other code of it: {', '.join(sorted(compilers))}. "
            "Remove those of all but one, and count these kernels anew: gpu_model.py count-all."
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        packed.write(("\n".join(lines) + "\n").encode())
    print(f"{file}: {len(lines)} calls, {file.stat().st_size / 1e6:.2f} MB")


@dataclass(frozen=True)
class Counted:
    """A call that was counted; `counts` is the reason where it was not."""

    task: str
    precision: str
    kernel: str
    code: str
    case: str
    counts: CallCounts | str


def read(files: Sequence[Path]) -> Iterator[Counted]:
    """All calls in packed files."""
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                kept = json.loads(line)
                counts = kept.pop("counts")
                yield Counted(**kept, counts=counts if isinstance(counts, str) else CallCounts.model_validate(counts))
