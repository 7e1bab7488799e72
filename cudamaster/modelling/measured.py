"""Measured times of kernels on a GPU, which the model is fitted on and held against: read from a CSV file.

    task,precision,kernel,case,whole_us,device_us[,empty_us][,code]

`kernel` is "baseline" or the name of a playbook file without its suffix, `case` the label of a case. The whole call is
by the host's clock; the device's time may be missing. `empty_us` is an empty call of the same process,
`code` the hash of the text that was measured.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from cudamaster.core.errors import UsageError

COLUMNS = ("task", "precision", "kernel", "case", "whole_us", "device_us")


@dataclass(frozen=True)
class Time:
    """One kernel at one case, in microseconds."""

    task: str
    precision: str
    kernel: str
    case: str
    whole_us: float
    device_us: float | None = None
    empty_us: float | None = None
    code: str | None = None

    @property
    def of_task(self) -> tuple[str, str, str]:
        """What kernels are compared at: task, precision and case."""
        return self.task, self.precision, self.case


def read(path: Path) -> list[Time]:
    """Times in a CSV file (.csv, .csv.gz), or of baselines in a .json file that `cudamaster baselines --save` wrote.

    Raises UsageError naming what is wrong.
    """
    try:
        if path.suffix == ".json":
            return list(_of_baselines(json.loads(path.read_text(encoding="utf-8"))))
        with _opened(path) as file:
            reader = csv.DictReader(file)
            if missing := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
                raise ValueError(f"it has no column {missing[0]}")
            times = [_time(row) for row in reader]
        calls = Counter((*time.of_task, time.kernel) for time in times)
        if twice := [call for call, count in calls.items() if count > 1]:
            task, precision, case, kernel = twice[0]
            raise ValueError(f"it has two times of {task}-{precision} {kernel} at {case}")
        return times
    except (OSError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"The measured times {path} cannot be used: {error}.", f"Give a CSV with {', '.join(COLUMNS)}."
        ) from error


# The third of every five tasks is held out.
_THIRD, _EVERY = 2, 5


def split(categories: Mapping[str, str]) -> tuple[frozenset[str], frozenset[str]]:
    """Tasks to fit on, and a fifth of them that are never fitted to, from each task's category.

    In the order of categories and names, the third of every five is held out. Of the fifty, every category has one.
    """
    ordered = sorted(categories, key=lambda task: (categories[task], task))
    held_out = frozenset(ordered[_THIRD::_EVERY])
    return frozenset(categories) - held_out, held_out


def _time(row: Mapping[str, str]) -> Time:
    whole, device, empty = (_figure(row.get(name) or "") for name in ("whole_us", "device_us", "empty_us"))
    if whole is None:
        raise ValueError(f"{row['task']} {row['kernel']} at {row['case']} has no whole_us")
    return Time(
        row["task"], row["precision"], row["kernel"], row["case"], whole, device, empty,
        row.get("code") or None,
    )  # fmt: skip


def _opened(path: Path) -> TextIO:
    """A CSV file, which may be packed."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", newline="", encoding="utf-8")
    return path.open(newline="", encoding="utf-8")


def _figure(cell: str) -> float | None:
    if not cell:
        return None
    value = float(cell)
    if not 0 < value < float("inf"):
        raise ValueError(f"{cell} is no time")
    return value


def _of_baselines(content: Mapping[str, list[dict[str, object]]]) -> Iterable[Time]:
    for baseline in content["baselines"]:
        timed = baseline["timed"]
        assert isinstance(timed, list)
        for case in timed:
            yield Time(
                str(baseline["task"]), str(baseline["precision"]), "baseline", case["label"],
                float(case["median_us"]), None, float(case["empty_us"]),
            )  # fmt: skip
