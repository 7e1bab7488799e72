"""Tables of what gpu_model_collecting.py kept: `tables` of benchmarks/gpu_model.py.

    measured.csv.gz     a line a kernel and case, in the form of results/h200/times.csv and with the times of the
                        baseline in turn with the kernel
    counters.csv.gz     a line a launch of a kernel's call at its heaviest case, by Nsight Compute's names

Lines of a kernel whose text is another by now are left out, and so are kernels that were not right.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import gpu_model_variants
from gpu_model_collecting import BASELINE, METRICS, key, read_lines

from cudamaster.core.values import BENCHMARK_PRECISIONS, content_hash
from cudamaster.tasks import cards

_TIMES = ("whole_us", "device_us", "empty_us")
_BESIDE = ("baseline_us", "baseline_device_us")
_ABOUT = ("launch", "function", "grid", "block")


def make(folders: Sequence[Path], to_times: Path, to_counters: Path) -> None:
    """Write both tables, and say what they hold."""
    current = _current()
    times = [line for line in _lines(folders, "times") if key(line) in current]
    right = [line for line in times if line["status"] == "correct"]
    _write(to_times, ("task", "precision", "kernel", "case", *_TIMES, "code", *_BESIDE), _of_times(right))
    known = {key(line) for line in right}
    counters = [line for line in _lines(folders, "counters") if key(line) in known and "launches" in line]
    head = ("task", "precision", "kernel", "case", "code", *_ABOUT, *METRICS)
    _write(to_counters, head, _of_counters(counters))
    variants = sum(" " in line["kernel"] for line in right)
    print(f"{len(right)} kernels of {len(times)} are right, {variants} of them variants; {len(counters)} have counters")
    for (status, what), count in Counter((line["status"], _kind(line)) for line in times).most_common():
        print(f"  {status}, {what}: {count}")


def _kind(line: dict[str, Any]) -> str:
    return "baseline" if line["kernel"] == BASELINE else "variant" if " " in line["kernel"] else "playbook"


def _current() -> set[tuple[str, str, str, str]]:
    """Task, precision, name and hash of the text of all kernels of today."""
    found = set()
    for task in cards.names():
        for precision in (each.value for each in BENCHMARK_PRECISIONS):
            every = [(name, code) for name, code, _ in gpu_model_variants.texts(task, precision)]
            every += [(each.name, each.code) for each in gpu_model_variants.variants(task, precision)]
            found |= {(task, precision, name, content_hash(code)) for name, code in every}
    return found


def _lines(folders: Sequence[Path], table: str) -> list[dict[str, Any]]:
    """A line for each kernel: of several the last one."""
    found = {}
    for path in (path for folder in folders for path in sorted(folder.rglob(f"{table}.jsonl"))):
        found.update({key(line): line for line in read_lines(path)})
    return [found[name] for name in sorted(found)]


def _of_times(right: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for line in right:
        head = {name: line[name] for name in ("task", "precision", "kernel", "code")}
        rows += [
            {**head, "case": case, **{name: times[name] for name in (*_TIMES, *_BESIDE)}}
            for case, times in line["cases"].items()
        ]
    return sorted(rows, key=lambda row: (row["task"], row["precision"], row["kernel"], row["case"]))


def _of_counters(counters: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for line in counters:
        head = {name: line[name] for name in ("task", "precision", "kernel", "case", "code")}
        rows += [{**head, "launch": number, **launch} for number, launch in enumerate(line["launches"])]
    return rows


def _write(path: Path, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """A packed table; equal rows give equal bytes."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(row.get(name)) for name in columns} for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        packed.write(text.getvalue().encode())
    print(f"{path}: {len(rows)} rows, {path.stat().st_size / 1e6:.2f} MB")


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
