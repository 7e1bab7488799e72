"""`cudamaster hgemm tune` as it happens: a line for each product that was measured, and how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from cudamaster.hgemm.table import AUTHORITIES, OURS, Mode
from cudamaster.hgemm.tuning import Observer

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from cudamaster.hgemm.table import Entry, Header
    from cudamaster.tasks.hgemm import Accumulate, Shape


class Progress(Observer):
    """Shows a tuning on a console; nothing where it is hidden."""

    def __init__(self, out: Console, *, hidden: bool) -> None:
        self._out = out
        self._bar = Bar(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=out, transient=True, disable=hidden,
        )  # fmt: skip
        self._hidden = hidden
        self._task = self._bar.add_task("Starting", total=None)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def building(self, done: int, number: int) -> None:
        """So many kernels are built."""
        self._bar.update(self._task, description="Building kernels", completed=done, total=number)

    def started(self, place: Path, about: Header, left: int, there: int) -> None:
        """Measuring begins."""
        self.said(f"{about.gpu}; {about.versions}")
        self.said(f"{place}: {left} to measure, {there} there already")
        self._bar.reset(self._task, description="Measuring", total=left)

    def measured(self, entry: Entry) -> None:
        """A line: the shape, our times, and what the strongest library takes."""
        parts = []
        for mode in (Mode.OFFLINE, Mode.SERVER):
            layout = entry.faster(mode, OURS)
            rival = entry.faster(mode, AUTHORITIES[-1])
            if layout is None or rival is None:
                continue
            ours, theirs = entry.time(mode, OURS, layout), entry.time(mode, AUTHORITIES[-1], rival)
            if ours is not None and theirs is not None:
                ratio = theirs.median_us / ours.median_us
                parts.append(
                    f"{mode.value} {ours.median_us:.1f} µs, {AUTHORITIES[-1]} {theirs.median_us:.1f} ({ratio:.2f})"
                )
        self.said(f"{entry.shape} {entry.accumulate}: {'; '.join(parts)}")
        self._bar.advance(self._task)

    def failed(self, shape: Shape, accumulate: Accumulate, why: str) -> None:
        """A product could not be measured."""
        self.said(f"{shape} {accumulate} failed: {why}")
        self._bar.advance(self._task)

    def said(self, note: str) -> None:
        """A sentence."""
        if not self._hidden:
            self._out.print(note, highlight=False, soft_wrap=True)
