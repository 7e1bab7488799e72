"""Times of playbook kernels and their baselines, from run folders into a table: part of benchmarks/gpu_model.py.

    task,precision,kernel,case,whole_us,device_us,empty_us,code

Times are medians of a verdict's calls, `empty_us` is an empty call beside them, `code` the hash of the kernel's text. A
baseline's are of the calls that were taken in turn with the kernels of the playbook: a search times its baseline
against itself but briefly.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median

import gpu_model_data as data

from cudamaster.core.errors import UsageError
from cudamaster.core.values import Verdict, content_hash
from cudamaster.modelling import measured
from cudamaster.modelling.counts import CallCounts
from cudamaster.modelling.measured import Time
from cudamaster.runs.record import RunRecord, read_record

BASELINE = "baseline"
_Kernel = tuple[str, str, str]  # task, precision, name


def update(folders: Sequence[Path], table: Path, counts: Path) -> None:
    """Add kernels of the runs in `folders` to a table; what it has of a kernel's text of today stays as it is.

    Tasks of which a kernel allocates memory are left out, since how long the driver takes depends on what else the
    machine does: gpu_model_measuring adds them. `counts`, in the form of `gpu_model_data.pack`, shows which they are.
    Raises UsageError, and RunFolderError naming what is damaged.
    """
    allocating = _allocating(counts)
    kept: dict[_Kernel, list[Time]] = defaultdict(list)
    for time in measured.read(table) if table.is_file() else ():
        kept[time.task, time.precision, time.kernel].append(time)
    for kernel in [kernel for kernel, times in kept.items() if _outdated(kernel, times)]:
        del kept[kernel]
        print(f"removed {_said(kernel)}: its text is another by now")
    found: dict[_Kernel, list[Time]] = {}
    for record in _runs(folders):
        task, precision = record.manifest.task, record.manifest.precision.value
        if (task, precision) in allocating:
            print(f"left out {task}-{precision}: a kernel of it allocates memory")
        else:
            found.update(_of_run(record))
    new = {kernel: times for kernel, times in found.items() if kernel not in kept}
    write(table, [time for times in (kept | new).values() for time in times])
    for kernel in sorted(new):
        print(f"added {_said(kernel)}: {len(new[kernel])} cases")
    print(f"{table}: {len(kept)} kernels as they were, {len(new)} added")


def _allocating(counts: Path) -> set[tuple[str, str]]:
    """Tasks and precisions of which a kernel allocates. Times of such calls are of a machine of one GPU."""
    calls = data.read([counts]) if counts.is_file() else ()
    return {
        (each.task, each.precision)
        for each in calls
        if isinstance(each.counts, CallCounts) and any(event.event == "alloc" for event in each.counts.events)
    }


def _runs(folders: Sequence[Path]) -> Iterator[RunRecord]:
    """All runs in folders, those of a folder in the order of their names."""
    gpus = set()
    for folder in folders:
        paths = sorted(path.parent for path in folder.rglob("run.json"))
        if not paths:
            raise UsageError(f"There is no run in {folder}.", "Give run folders, or a suite's.")
        for path in paths:
            record = read_record(path)
            hardware = record.manifest.hardware
            if hardware.emulated:
                raise UsageError(f"The run {path} was not on a GPU.", "Give runs whose times were measured.")
            gpus.add(hardware.name)
            if len(gpus) > 1:
                raise UsageError(f"The runs are of {' and '.join(sorted(gpus))}.", "Make a table for each GPU.")
            yield record


def _of_run(record: RunRecord) -> dict[_Kernel, list[Time]]:
    """Times of a run's correct playbook kernels, and of the baseline beside them."""
    task, precision = record.manifest.task, record.manifest.precision.value
    names = {code: name for name, code in _texts(task, precision).items()}
    found: dict[_Kernel, list[Time]] = {}
    beside: list[Verdict] = []
    for path in sorted((record.path / "verdicts").glob("*.json")):
        verdict, candidate = record.verdict(path.stem), record.candidate(path.stem)
        assert verdict is not None
        assert candidate is not None
        name = names.get(content_hash(candidate.code))
        if name is None or not verdict.correct:
            print(f"left out {task}-{precision} {name or candidate.id}: {_why(verdict, name)}")
        elif name != BASELINE:
            beside.append(verdict)
            found[task, precision, name] = of_kernel((task, precision, name), [verdict])
    if beside:
        found[task, precision, BASELINE] = of_kernel((task, precision, BASELINE), beside)
    return found


def _why(verdict: Verdict, name: str | None) -> str:
    return "no kernel of the playbook has its text" if name is None else f"{verdict.status}, {verdict.detail}"


def of_kernel(kernel: _Kernel, verdicts: Sequence[Verdict]) -> list[Time]:
    """Medians of a kernel at every timed case, over all the verdicts, and of their empty calls."""
    empty: dict[str, list[float]] = defaultdict(list)
    whole: dict[str, list[float]] = defaultdict(list)
    device: dict[str, list[float]] = defaultdict(list)
    task, precision, name = kernel
    for case in (case for verdict in verdicts for case in verdict.cases):
        if (timing := case.timing) is not None:
            of_baseline = name == BASELINE
            whole[case.label] += timing.baseline_us if of_baseline else timing.candidate_us
            device[case.label] += timing.baseline_device_us if of_baseline else timing.candidate_device_us
            empty[case.label] += [] if case.empty_us is None else [case.empty_us]
    code = _texts(task, precision)[name]
    return [
        Time(*kernel, label, median(calls), _median(device[label]), _median(empty[label]), code)
        for label, calls in whole.items()
    ]


def _median(found: Sequence[float]) -> float | None:
    return median(found) if found else None


@cache
def _texts(task: str, precision: str) -> Mapping[str, str]:
    """Hashes of the texts of baseline and playbook, by their names."""
    return {kernel.name: kernel.code for kernel in data.kernels(task, precision) if not kernel.variant}


def _outdated(kernel: _Kernel, times: Sequence[Time]) -> bool:
    task, precision, name = kernel
    return any(time.code not in (None, _texts(task, precision).get(name)) for time in times)


def _said(kernel: _Kernel) -> str:
    return "{}-{} {}".format(*kernel)


def write(table: Path, times: Sequence[Time]) -> None:
    """Write the table with those times in one step, so that an interruption leaves it whole."""
    more = [name for name in ("empty_us", "code") if any(getattr(time, name) is not None for time in times)]
    columns = (*measured.COLUMNS, *more)
    staged = table.with_suffix(".new")
    with staged.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(sorted([_cell(getattr(time, name)) for name in columns] for time in times))
    staged.replace(table)


def _cell(value: str | float | None) -> str:
    return "" if value is None else str(round(value, 3) if isinstance(value, float) else value)
