"""The report's figures, after figures 4 to 9 of the CUDAMaster paper: which there are, what they say, their files.

Only measured results are drawn: what the CPU device took says nothing about a GPU. A figure for which there are no data
is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cudamaster.core.errors import unwritable
from cudamaster.core.writing import whole
from cudamaster.report import class_figures, settings, speed_figures
from cudamaster.report.data import Report
from cudamaster.report.drawing import label, style
from cudamaster.report.numbers import Group, groups

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """A figure with what a reader has to know of it: its file's name, a title, and how to read it.

    `setting` is what it is of: model and configuration, or the GPU of which it shows `all` settings; empty where there
    is no other.
    """

    name: str
    title: str
    caption: str
    setting: str
    figure: Figure
    all: bool = False


def draw(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write every figure as SVG and PDF into a folder, which is made. Raises UsageError where that cannot be."""
    made = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for picture in pictures(report):
            for suffix, date in ((".svg", "Date"), (".pdf", "CreationDate")):
                path = folder / f"{picture.name}{suffix}"
                with style(), whole(path) as staged:
                    # Without a date: the same data give the same file.
                    picture.figure.savefig(staged, metadata={date: None})
                    # Its parts have found their places.
                    picture.figure.set_layout_engine("none")
                made.append(path)
    except OSError as error:
        raise unwritable(folder, error, "Choose another folder with --figures.") from error
    return tuple(made)


def pictures(report: Report, *, sizes: bool = True) -> tuple[Picture, ...]:
    """Every figure that there are data for: those of a GPU with all its settings first, then those of each setting.

    `sizes` says whether speedup over size is wanted: a panel for every task takes seconds.
    """
    with style():
        return tuple(_pictures(report, sizes=sizes))


def _pictures(report: Report, *, sizes: bool) -> Iterator[Picture]:
    searches = settings.halves(report)
    measured = [group for halves in searches for group in halves]
    # A library may have been measured where no search was.
    names = [*(group.hardware.name for group in measured), *(one.hardware for one in report.authorities if one.cases)]
    gpus = list(dict.fromkeys(names))
    for number, gpu in enumerate(gpus, 1):
        here = [group for group in measured if group.hardware.name == gpu]
        several = len(gpus) > 1
        yield from _of_gpu(report, gpu, here, gpu if several else "", f"_{number}_{_slug(gpu)}" if several else "")
    pooled = {settings.key(group): group for group in groups(report, pooled=True)}
    both = [pooled[settings.key(halves[0])] for halves in searches]
    for number, (halves, setting, name) in enumerate(zip(searches, both, settings.names(both), strict=True), 1):
        suffix = "" if len(both) == 1 else f"_{number}_{_slug(name)}"
        yield from _of_setting(setting, halves, name, suffix, sizes=sizes)


def _of_gpu(report: Report, gpu: str, here: Sequence[Group], name: str, suffix: str) -> Iterator[Picture]:
    named = zip(settings.names(here), here, strict=True)
    if figure := speed_figures.cumulative_success([(label(setting, 120), group) for setting, group in named]):
        caption = (
            "Share of tasks whose P exceeds τ, strictly. A task without a correct kernel counts against every τ; at 0 "
            "it is enough to be correct."
        )
        if any(group.repetitions > 1 for group in here):
            caption += " The band reaches from the least to the largest share of a single repetition."
        if any(group.missing for group in here):
            caption += " Tasks that have no result are left out; the tables name them."
        yield Picture(f"cumulative_success{suffix}", "Cumulative success", caption, name, figure, all=True)
    if figure := speed_figures.authorities([one for one in report.authorities if one.hardware == gpu]):
        caption = (
            "How many times as fast as the baseline: our kernel, the vendor's library in its place, and a call that "
            "takes the least possible time, each timed in the same run."
        )
        yield Picture(f"authorities{suffix}", "Against the vendor's libraries", caption, name, figure, all=True)


def _of_setting(setting: Group, halves: Sequence[Group], name: str, suffix: str, *, sizes: bool) -> Iterator[Picture]:
    results = setting.results
    if sizes and (figure := speed_figures.speedup_over_size(results)):
        caption = "Speedup of the best kernel at each size of the sweep, with its 99.9 % interval."
        yield Picture(f"speedup_over_size{suffix}", "Speedup over size", caption, name, figure)
    if figure := speed_figures.over_floor(results):
        caption = (
            "A call at the heaviest timed size, in multiples of the least time that the bytes and operations of the "
            "task and an empty launch take on this GPU. At 1 nothing is left to win."
        )
        yield Picture(f"over_floor{suffix}", "Time over the floor", caption, name, figure)
    if figure := class_figures.plane(results):
        limits = [view.limits for one in results for view in (one.before, one.after) if view and view.limits]
        sources = "; ".join(dict.fromkeys(limit.source for limit in limits))
        caption = (
            "The dominating kernel of each task, before and after, in percent of the unit's peak. The dashed lines are "
            f"the limits of the classes ({sources})."
        )
        yield Picture(f"bottlenecks{suffix}", "Bottlenecks and their limits", caption, name, figure)
    if figure := class_figures.by_category(setting):
        caption = "Bottleneck class of the baselines, by category of the task."
        yield Picture(f"classes_by_category{suffix}", "Classes by category", caption, name, figure)
    if figure := class_figures.migration(halves):
        caption = "How many tasks went from which class (row) to which (column). A baseline that stayed the best stays."
        yield Picture(f"migration{suffix}", "Where the bottleneck went", caption, name, figure)
    if figure := class_figures.metric_changes(results):
        caption = (
            "Each metric that matters for the class before, after over before: every task, quartiles (bar) and median "
            f"(mark), number of tasks in brackets. Beyond a factor of {class_figures.MOST:.0f} it is drawn at that."
        )
        yield Picture(f"metric_changes{suffix}", "What became of the metrics", caption, name, figure)


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "_", name)[:40].strip("_.") or "other"
