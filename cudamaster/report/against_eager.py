"""The tables of problems in KernelBench's form, whose P is the speedup over eager PyTorch: the columns of CUDA-L1's and
CudaForge's tables, and fast_p."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from cudamaster.report.data import Report
from cudamaster.report.headline import figure
from cudamaster.report.numbers import FAST_P, MEANINGFUL, Group, groups
from cudamaster.report.tables import NONE, Lines, Table

_SPREAD = ("mean", "max", "75 %", "50 %", "25 %")
_COLUMNS = ("tasks", "success", *_SPREAD, f"> {MEANINGFUL:g}", "> 1", *(f"fast_{p:g}" for p in FAST_P))


def tables(report: Report) -> tuple[Table, ...]:
    """One for each GPU and suite with such tasks, of which it has no others. The CPU device has none: its times are a
    model's."""
    eager = tuple(result for result in report.results if result.baseline_by == "pytorch")
    ours = [group for group in groups(replace(report, results=eager)) if not group.emulated]

    def place(group: Group) -> tuple[str, str]:
        return group.hardware.name, group.suite

    return tuple(_table(list(here)) for _, here in groupby(sorted(ours, key=place), place))


def _table(here: Sequence[Group]) -> Table:
    lines = Lines(here)
    suite = f", {here[0].suite}" if here[0].suite else ""
    note = (
        "P is the speedup over eager PyTorch at the sizes that a problem gives. Mean, largest and quartiles are over "
        "tasks with a P, shares of all tasks. fast_p is the share that is correct and more than p times as fast"
    )
    columns, rows = (*lines.columns, *_COLUMNS), [(*lines.of(group), *_cells(group)) for group in here]
    return Table(f"Against eager PyTorch on {here[0].hardware.name}{suite}", lines.note + note, columns, tuple(rows),
                 _COLUMNS)  # fmt: skip


def _cells(group: Group) -> tuple[str, ...]:
    spread = group.spread
    success = f"{group.success[0].share:.0%}"
    if spread is None:
        return (str(group.tasks), success, *([NONE] * (len(_COLUMNS) - 2)))
    values = (spread.mean, spread.maximum, spread.upper_quartile, spread.median, spread.lower_quartile)
    shares = (spread.meaningful, spread.fast_p[1.0], *(spread.fast_p[p] for p in FAST_P))
    return (str(group.tasks), success, *map(figure, values), *(f"{share:.0%}" for share in shares))
