"""A stage of training as it happens: a bar with the step's figures, lines for evaluations, and a table at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from cudamaster.cli.output import table
from cudamaster.training.session import Observer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rich.console import Console

_FIGURES = (("right", "right", "{:.0%}"), ("mean", "mean", "{:.2f}"), ("best", "best", "{:.2f}"),
            ("loss", "loss", "{:.3f}"), ("kl", "KL", "{:.4f}"))  # fmt: skip
_SHOWN = 12  # steps in the closing table


class Progress(Observer):
    """Shows a stage on a console; nothing where it is hidden."""

    def __init__(self, out: Console, *, hidden: bool) -> None:
        self._out = out
        self._hidden = hidden
        self._bar = Bar(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("{task.fields[now]}"), console=out, transient=True, disable=hidden,
        )  # fmt: skip
        self._task = self._bar.add_task("Loading the model", total=None, now="")

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def said(self, line: str) -> None:
        """A sentence."""
        if not self._hidden:
            self._out.print(line, highlight=False, soft_wrap=True)

    def doing(self, what: str, done: int, total: int | None) -> None:
        """Beside the bar: what is being done within a step."""
        self._bar.update(self._task, now=f"{what} {done}{'' if total is None else f'/{total}'}")

    def step(self, row: Mapping[str, Any], total: int | None) -> None:
        """The bar, with the figures of the last step."""
        description = f"Step {row['step']}: {figures(row)}"
        self._bar.update(self._task, description=description, completed=row["step"], total=total, now="")

    def evaluated(self, row: Mapping[str, Any]) -> None:
        """A line for each task."""
        held = " (held out)" if row["held_out"] else ""
        self.said(f"After step {row['step']}, {row['task']}{held}: {figures(row)}")

    def table(self, folder: Path) -> None:
        """The steps, or some of them where there are many, the last one among them."""
        from cudamaster.training import state

        rows = state.rows(folder / state.STEPS)
        every = -(-len(rows) // _SHOWN) or 1
        chosen = [row for row in rows if row is rows[-1] or (len(rows) - row["step"]) % every == 0]
        there = [each for each in _FIGURES if any(row.get(each[0]) is not None for row in rows)]
        headings = ["step", *(heading for _, heading, _ in there)]
        lines = [[str(row["step"]), *(_figure(row, key, form) for key, _, form in there)] for row in chosen]
        if rows:
            self._out.print(table(headings, lines, right=headings))


def figures(row: Mapping[str, Any]) -> str:
    """The figures of a line in words."""
    return ", ".join(
        f"{heading} {_figure(row, key, form)}" for key, heading, form in _FIGURES if row.get(key) is not None
    )


def _figure(row: Mapping[str, Any], key: str, form: str) -> str:
    value = row.get(key)
    return "" if value is None else form.format(value)
