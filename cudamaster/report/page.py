"""The report as one HTML file that asks nothing of a network: light and dark, for a phone and for a wide screen.

Models write ideas, code and names. Everything is escaped, and the page's policy lets no script run but its own, which
is known by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from markupsafe import Markup

from cudamaster.core import resources
from cudamaster.core.errors import unwritable
from cudamaster.core.values import Precision
from cudamaster.core.writing import write_text
from cudamaster.report import against_eager, at_floor, figures, highlighting, settings, size_plots, tables
from cudamaster.report.data import Authority, HardwareView, Missing, Report, TaskResult
from cudamaster.report.headline import figure, headline
from cudamaster.report.inlining import inline
from cudamaster.report.numbers import by_task, groups, suite_of, typical
from cudamaster.report.speed_figures import heaviest
from cudamaster.view import pages


@dataclass(frozen=True)
class _Entry:
    """A result with what a row and its details show of it; `anchor` is its place in the page."""

    anchor: str
    result: TaskResult
    setting: str
    repeated: bool
    outcome: str
    before: str | None
    classes: str
    over_floor: float | None
    small: size_plots.Plot | None
    large: size_plots.Plot | None
    code: Markup | None
    diff: Markup | None


@dataclass(frozen=True)
class _Lost:
    """A task without a result, and the name of the search that lacks it where there are several."""

    of: Missing
    setting: str


@dataclass(frozen=True)
class _Part:
    """All measured results, or all emulated ones, and what can be chosen among them."""

    entries: tuple[_Entry, ...]
    missing: tuple[_Lost, ...]
    settings: tuple[str, ...]

    @property
    def precisions(self) -> list[str]:
        """Of results and missing ones."""
        found = {one.result.precision.value for one in self.entries}
        return sorted(found | {one.of.precision.value for one in self.missing})

    @property
    def categories(self) -> list[str]:
        """Of results and missing ones."""
        return sorted({one.result.category for one in self.entries} | {one.of.category for one in self.missing})

    @property
    def outcomes(self) -> list[str]:
        """Of results and missing ones."""
        return sorted({one.outcome for one in self.entries} | ({"missing"} if self.missing else set()))

    @property
    def modelled(self) -> bool:
        """Whether any P is a model's."""
        return any(one.result.mark == "modelled" for one in self.entries)

    @property
    def bare(self) -> bool:
        """Whether any times are emulated ones, of which no P is shown."""
        return any(one.result.mark == "emulated" for one in self.entries)

    @property
    def classes(self) -> list[str]:
        """Those of the baselines."""
        return sorted({one.before for one in self.entries if one.before})


@dataclass(frozen=True)
class _Tile:
    """A task in small: its runs in both precisions, and P of each."""

    task: str
    anchor: str
    scores: tuple[tuple[str, str], ...]
    plot: size_plots.Plot


@dataclass(frozen=True)
class _Shown:
    """A picture in the page. `of` is the GPU where there are several."""

    title: str
    caption: str
    of: str
    svg: Markup


@dataclass(frozen=True)
class _Search:
    """The pictures of one setting, whose name is empty where there is no other, and its tasks in small."""

    name: str
    pictures: tuple[_Shown, ...]
    tiles: tuple[_Tile, ...]


def write(report: Report, path: Path) -> None:
    """Write the page. Raises UsageError where that cannot be."""
    # Half of a surrogate pair, which JSON may hold, has no place in UTF-8.
    content = page(report)
    try:
        write_text(path, content, errors="backslashreplace")
    except OSError as error:
        raise unwritable(path, error, "Choose another file with --html.") from error


def page(report: Report) -> str:
    """The text of the page."""
    folder = resources.package() / "view/pages"
    script = (folder / "report.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # What nobody knows the device of is missing among the results that there are.
    lost = {kind: tuple(one for one in report.missing if _of_cpu(one, report) is kind) for kind in (False, True)}
    measured = replace(report, results=report.measured, missing=lost[False])
    emulated = replace(report, results=report.emulated, missing=lost[True])
    shown = size_plots.common_reach(report.measured)
    part = _part(measured, shown)
    # Speedup over size has tiles and a plot in every row instead.
    drawn = figures.pictures(report, sizes=False)
    return (
        pages.environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            title=settings.title(report),
            sentences=headline(measured) if report.measured else (),
            pictures=[_shown(picture) for picture in drawn if picture.all],
            searches=_searches(drawn, part, shown),
            reach=shown,
            beyond=any(shown.leaves_out(result) for result in report.measured),
            overview=(*tables.overview(measured), *against_eager.tables(measured)),
            classes=tables.classes(measured),
            measured=part,
            emulated=_part(emulated, shown),
            emulated_sentences=headline(emulated),
            emulated_overview=tables.overview(emulated),
            disagreements=tables.disagreements(report),
            problems=sorted(report.problems, key=lambda problem: not problem.serious),
            serious=sum(problem.serious for problem in report.problems),
            css=Markup((folder / "report.css").read_text("utf-8")),
            script=Markup(script),
            script_hash=f"sha256-{digest}",
            figure=figure,
            at_floor=at_floor.at_floor,
            at_floor_means=at_floor.MEANING,
            ahead=_ahead,
            inf=math.inf,
        )
    )


def _of_cpu(one: Missing, report: Report) -> bool:
    return not report.measured if one.emulated is None else one.emulated


def _shown(picture: figures.Picture) -> _Shown:
    described = highlighting.shown(f"{picture.title}. {picture.caption}")
    svg = inline(picture.figure, picture.name, described)
    of = picture.setting if picture.all else ""
    return _Shown(picture.title, picture.caption, of, svg)


def _searches(drawn: Sequence[figures.Picture], part: _Part, shown: size_plots.Reach) -> list[_Search]:
    tiles: dict[str, dict[str, list[_Entry]]] = {}
    for entry in part.entries:
        tiles.setdefault(entry.setting, {}).setdefault(entry.result.task, []).append(entry)
    return [
        _Search(
            name,
            tuple(_shown(picture) for picture in drawn if not picture.all and picture.setting == name),
            tuple(
                _Tile(task, entries[0].anchor, _scores([entry.result for entry in entries]), plot)
                for task, entries in sorted(of_task.items())
                if (plot := size_plots.small([entry.result for entry in entries], shown))
            ),
        )
        for name, of_task in sorted(tiles.items())
    ]


def _scores(results: Sequence[TaskResult]) -> tuple[tuple[str, str], ...]:
    """P of a task in each precision; of repeated runs the typical one's."""
    scores = {runs[0].precision: tables.score(typical(runs)) for runs in by_task(results).values()}
    return tuple((precision.value.upper(), scores[precision]) for precision in Precision if precision in scores)


def _part(report: Report, shown: size_plots.Reach) -> _Part:
    pooled = groups(report, pooled=True)
    names = dict(zip(map(settings.key, pooled), settings.names(pooled), strict=True))
    repetitions = {settings.key(group): group.repetitions for group in pooled}
    # An emulated P is none to go by.
    ordered = sorted(
        report.results,
        key=lambda run: (
            not run.correct, 0.0 if run.mark == "emulated" else -(run.score or 0.0), run.name, run.repetition
        ),
    )  # fmt: skip
    # Of repeated runs the typical one shows its kernel: ten runs of everything would be 30 MB of code.
    typicals = {id(typical(runs)) for group in pooled for runs in by_task(group.results).values()}
    entries = []
    for number, result in enumerate(ordered, 1):
        key = (result.hardware.name, result.model, result.configuration.described, suite_of(result))
        repeated = repetitions[key] > 1
        entries.append(_entry(result, number, names[key], shown, repeated=repeated, with_code=id(result) in typicals))
    # Of several searches each says what it lacks, which another one may have.
    if len(pooled) > 1:
        missing = [_Lost(one, names[settings.key(group)]) for group in pooled for one in group.missing]
    else:
        missing = [_Lost(one, "") for one in report.missing]
    return _Part(tuple(entries), tuple(missing), tuple(sorted(filter(None, names.values()))))


def _entry(
    result: TaskResult, number: int, setting: str, shown: size_plots.Reach, *, repeated: bool, with_code: bool
) -> _Entry:
    outcome = "no kernel" if result.status is None else result.status.value
    if result.correct and not result.emulated:
        outcome = result.speed.change.value if result.speed is not None else "unsure"
    before, after = _class(result.before), _class(result.before if result.kept_baseline else result.after)
    case = heaviest(result)
    diff = None
    if with_code and result.diff and result.baseline is not None and result.best is not None:
        diff = highlighting.difference(result.diff, result.baseline.code, result.best.code)
    return _Entry(
        anchor=f"{'emulated' if result.emulated else 'task'}-{re.sub(r'[^a-z0-9_]+', '-', result.name)}-{number}",
        result=result,
        setting=setting,
        repeated=repeated,
        outcome=outcome,
        before=before,
        classes=_move(before, after),
        over_floor=case.over_floor if case else None,
        small=None if result.emulated else size_plots.small([result], shown),
        large=None if result.emulated else size_plots.large(result),
        code=highlighting.code(result.best.code) if with_code and result.best is not None else None,
        diff=diff,
    )


def _class(view: HardwareView | None) -> str | None:
    return view.bottleneck.value.removesuffix(" bound") if view is not None and view.bottleneck is not None else None


def _move(before: str | None, after: str | None) -> str:
    """From which class to which; a question mark is one that nobody measured."""
    return (before or "") if before == after else f"{before or '?'} → {after or '?'}"


def _ahead(one: Authority) -> str:
    """At how many sizes our kernel takes less time than the library."""
    pairs = [(case.ours_us, case.library_us) for case in one.cases]
    known = [ours < library for ours, library in pairs if ours is not None and library is not None]
    return f"{sum(known)} of {len(known)}" if known else "–"
