"""The report of a training run: its curve, its evaluations, and what the guards found; in Markdown, and as a page."""

from __future__ import annotations

import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudamaster.core.errors import unwritable
from cudamaster.core.writing import write_text
from cudamaster.report.drawing import BLUE, GREEN, ORANGE, WIDTH_IN, blank, style
from cudamaster.training import looks, state

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CURVE, _REPORT = "curve.svg", "report.md"
_PANEL_IN = 1.7  # inches, the height of each
_SMOOTH = 10  # steps, of the thick line
_SHARE = "Share right"
_EVALUATED = ("step", "task", "held out", "samples", "right", "mean", "best", "cases")
_CANARIES = ("step", "task", "kinds", "earned")
# Panels: a title, and the series of steps.jsonl in it with their names.
_PANELS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (_SHARE, (("right", "samples", BLUE),)),
    ("Speedup of right samples", (("mean", "mean", BLUE), ("best", "best", ORANGE))),
    ("Loss", (("loss", "loss", BLUE),)),
    ("Divergence from the first model", (("kl", "KL", GREEN),)),
)
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}
table{{border-collapse:collapse;display:block;overflow-x:auto}}td,th{{padding:.2rem .6rem;text-align:left;
border-bottom:1px solid #c9ced6;vertical-align:top}}svg{{max-width:100%;height:auto;background:#fff}}</style>
<h1>{title}</h1>{body}</html>
"""

Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]


def write(folder: Path) -> Path:
    """Write report.md with its picture into the folder of a run. Raises RunFolderError for a folder that is none."""
    manifest, tables, picture = _read(folder)
    lines = [f"# {_title(manifest)}", "", *_about(manifest), ""]
    if picture is not None:
        lines += [f"![The curve of the run]({_CURVE})", ""]
    for heading, columns, rows in tables:
        lines += [f"## {heading}", "", _markdown(columns), _markdown(["---"] * len(columns))]
        lines += [*(_markdown(row) for row in rows), ""]
    try:
        if picture is not None:
            write_text(folder / _CURVE, picture)
        write_text(folder / _REPORT, "\n".join(lines))
    except OSError as error:
        raise unwritable(folder, error, "Make it writable, or use --html.") from error
    return folder / _REPORT


def write_html(folder: Path, path: Path) -> None:
    """Write the same as one page. Raises RunFolderError, and UsageError where nothing can be written."""
    manifest, tables, picture = _read(folder)
    body = [f"<p>{html.escape(line)}</p>" for line in _about(manifest) if line]
    if picture is not None:
        body.append(picture[picture.index("<svg") :])
    for heading, columns, rows in tables:
        head = "".join(f"<th>{html.escape(each)}" for each in columns)
        lines = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in row) for row in rows)
        body.append(f"<h2>{html.escape(heading)}</h2><table><tr>{head}{lines}</table>")
    try:
        write_text(path, _PAGE.format(title=html.escape(_title(manifest)), body="\n".join(body)))
    except OSError as error:
        raise unwritable(path, error, "Name another file with --html.") from error


def _read(folder: Path) -> tuple[Mapping[str, Any], list[Table], str | None]:
    manifest = state.read_manifest(folder)
    steps = state.rows(folder / state.STEPS)
    tables: list[Table] = []
    if evaluated := state.rows(folder / state.EVALUATIONS):
        tables.append(("The model tried out", _EVALUATED, [_evaluation(row) for row in evaluated]))
    looked = looks.read(folder / state.LEAPS) if (folder / state.LEAPS).exists() else ()
    if looked:
        tables.append(("Leaps in reward that were looked at", looks.COLUMNS, looks.rows(looked)))
    if canaries := state.rows(folder / state.CANARIES):
        found = [
            (str(row["step"]), row["task"], ", ".join(row["kinds"]), "; ".join(row["earned"]) or "nothing")
            for row in canaries
        ]
        tables.append(("Canaries: dishonest kernels that have to earn nothing", _CANARIES, found))
    return manifest, tables, _drawn(steps)


def _title(manifest: Mapping[str, Any]) -> str:
    return f"Training run: {manifest['stage']}"


def _about(manifest: Mapping[str, Any]) -> list[str]:
    model, judge = manifest["settings"]["model"], manifest["judge"]
    start = model["name"] or f"a new {model['new']} ({model['layers']} layers, {model['width']} wide)"
    minutes = sum(session["seconds"] for session in manifest["sessions"]) / 60
    times = f" Times: {judge['gpu']}." if "gpu" in judge else ""
    tasks = [name for name in judge if name != "gpu"]
    ended = f"Ended: {manifest['ended']}." if manifest["ended"] else "Not ended yet."
    learnt = f"Tasks: {', '.join(tasks)}. " if tasks else ""
    data, seed = manifest["settings"]["data"], manifest["settings"]["seed"]
    return [
        f"Model at the start: {start}. Data: {data}. Seed {seed}.{times}",
        "",
        f"{learnt}{ended} {minutes:.1f} minutes in {len(manifest['sessions'])} sessions.",
    ]


def _evaluation(row: Mapping[str, Any]) -> tuple[str, ...]:
    speeds = ("" if row[key] is None else f"{row[key]:.2f}" for key in ("mean", "best"))
    held = "yes" if row["held_out"] else ""
    return (str(row["step"]), row["task"], held, str(row["samples"]), f"{row['right']:.0%}", *speeds, row["cases"])


def _markdown(cells: Sequence[str]) -> str:
    """A line of a table."""
    plain = [" ".join(cell.replace("|", r"\|").split()) for cell in cells]
    return f"| {' | '.join(plain)} |"


def _drawn(steps: Sequence[Mapping[str, Any]]) -> str | None:
    """The curve as SVG; None where there is nothing to draw."""
    panels = [
        (title, there)
        for title, series in _PANELS
        if (there := [each for each in series if any(row.get(each[0]) is not None for row in steps)])
    ]
    if not panels:
        return None
    from matplotlib.ticker import MaxNLocator

    with style():
        figure: Figure = blank(_PANEL_IN * len(panels), 2 * WIDTH_IN)
        found: Any = figure.subplots(len(panels), 1, sharex=True, squeeze=False)
        for axes, (title, series) in zip(found[:, 0], panels, strict=True):
            _panel(axes, title, series, steps)
        found[-1, 0].set_xlabel("step")
        found[-1, 0].xaxis.set_major_locator(MaxNLocator(integer=True))
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _panel(axes: Axes, title: str, series: Sequence[tuple[str, str, str]], steps: Sequence[Mapping[str, Any]]) -> None:
    """Each step as a point, and the mean of the last _SMOOTH of them as a line."""
    for key, name, colour in series:
        points = [(row["step"], row[key]) for row in steps if row.get(key) is not None]
        values = [value for _, value in points]
        means = [
            sum(values[max(0, end - _SMOOTH) : end]) / (end - max(0, end - _SMOOTH))
            for end in range(1, len(values) + 1)
        ]
        axes.plot(*zip(*points, strict=True), ".", color=colour, alpha=0.35, markersize=3)
        axes.plot([step for step, _ in points], means, color=colour, label=name)
    axes.set_title(title, loc="left")
    axes.grid(visible=True)
    if title == _SHARE:
        axes.set_ylim(0, 1.05)
    if len(series) > 1:
        axes.legend(loc="upper left")
