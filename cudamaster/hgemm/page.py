"""A table as one HTML file that asks nothing of a network: headline, statistics, heat maps, losses, what was chosen."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from cudamaster.core import resources
from cudamaster.core.errors import UsageError, unwritable
from cudamaster.core.writing import write_text
from cudamaster.hgemm import bounds, pictures, words
from cudamaster.hgemm.statistics import Contest, contests, statistics, strongest
from cudamaster.hgemm.table import OURS, Entry, Form, Mode, Table
from cudamaster.report.drawing import style
from cudamaster.report.inlining import inline
from cudamaster.report.tables import Table as Shown
from cudamaster.tasks.hgemm import Accumulate, Layout
from cudamaster.view import pages

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FORMS = {
    Form.CLOSED: "Closed form: kernels of CUDA alone, without the headers of CuTe or CUTLASS",
    Form.OPEN: "Open form: kernels may use the headers of CuTe and CUTLASS",
}


_REM_OF_AN_INCH = 9  # of a wide figure, so that the labels of its cells can be read


@dataclass(frozen=True)
class _Picture:
    """A figure in the page; one that takes more than a column has a width of its own, in rem."""

    title: str
    svg: Markup
    rem: float | None = None


@dataclass(frozen=True)
class _Losses:
    """The shapes that ours loses in one mode, accumulation and layout, of how many."""

    title: str
    shapes: int
    certain: int
    bound: str
    table: Shown | None


def write(table: Table, path: Path) -> None:
    """Write the page. Raises UsageError where that cannot be, and for a table without ratios."""
    content = page(table)
    try:
        write_text(path, content, errors="backslashreplace")
    except OSError as error:
        raise unwritable(path, error, "Choose another file with --html.") from error


def page(table: Table) -> str:
    """The text of the page. Raises UsageError for a table in which nothing was compared."""
    authority = strongest(table.entries)
    if authority is None:
        raise UsageError("Nothing in the table was compared with a library.", "Measure shapes beside libraries.")
    every = statistics(table.entries)
    against = [each for each in contests(table.entries) if each.authority == authority and each.mode.of_paper]
    limits = bounds.limits_of(table.header.gpu)
    folder = resources.package() / "view/pages"
    script = (folder / "report.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    with style():
        maps, sizes = _maps(against, table.entries), list(_sizes(against, table.entries))
        chosen = list(_choices(table.entries))
    return (
        pages.environment()
        .get_template("hgemm.html.j2")
        .render(
            table=table,
            form=_FORMS[table.header.form],
            shapes=len({entry.shape for entry in table.entries}),
            dates=sorted({entry.date[:10] for entry in table.entries}),
            hours=sum(sum(entry.seconds.values()) for entry in table.entries) / 3600,
            unpassed=words.failed_checks(table.entries),
            authority=words.NAMES[authority],
            sentences=words.headline(table, every, authority),
            statistics=words.statistics_tables(every),
            device=words.device_table(authority, table.entries),
            best=words.best_tables(every),
            maps=maps,
            sizes=sizes,
            by_size=words.size_table(against, table.entries),
            losses=list(_losses(table.entries, limits)),
            limits=limits,
            chosen=chosen,
            css=Markup((folder / "report.css").read_text("utf-8")),
            own_css=Markup((folder / "hgemm.css").read_text("utf-8")),
            script=Markup(script),
            script_hash=f"sha256-{digest}",
        )
    )


def _maps(against: Sequence[Contest], entries: Sequence[Entry]) -> dict[str, list[_Picture]]:
    """Heat maps by mode and accumulation, one for each layout."""
    octaves = pictures.reach(against, entries)
    found: dict[str, list[_Picture]] = {}
    for number, contest in enumerate(against):
        if (figure := pictures.heat_map(contest, entries, octaves)) is not None:
            of, title = _title(contest.mode, contest.accumulate), f"Ours {contest.layout.value}"
            svg = inline(figure, f"map_{number}", f"Ratios over the grid of shapes: {of}, {title}")
            found.setdefault(of, []).append(_Picture(title, _told(svg, contest, entries), _rem(figure)))
    return found


def _rem(figure: Figure) -> float:
    return float(_REM_OF_AN_INCH * figure.get_figwidth())


def _title(mode: Mode, accumulate: Accumulate) -> str:
    return f"{mode.value.capitalize()}, {accumulate.value} sums"


def _told(svg: Markup, contest: Contest, entries: Sequence[Entry]) -> Markup:
    """The heat map with words for whoever points at a cell."""
    texts = {}
    for entry, ratio in contest.ratios(entries):
        said = f"{entry.shape}: {words.ratio_text(ratio.geometric)} ({words.interval(ratio.low, ratio.high)})"
        ours = entry.time(contest.mode, OURS, contest.layout)
        theirs = entry.faster(contest.mode, contest.authority)
        library = None if theirs is None else entry.time(contest.mode, contest.authority, theirs)
        if ours is not None and library is not None and theirs is not None:
            times = words.microseconds(ours.median_us), words.microseconds(library.median_us)
            said += f", ours {times[0]} µs, library {times[1]} µs ({theirs.value})"
        texts[entry.shape] = said

    def titled(found: re.Match[str]) -> str:
        shapes = iter(pictures.shapes_of(int(found[2])))

        def one(path: re.Match[str]) -> str:
            shape = next(shapes)
            return f"{path[1]}><title>{escape(texts.get(shape, f'{shape}: not measured'))}</title></path>"

        return found[1] + re.sub(r"(<path\b[^>]*?) ?/>", one, found[3])

    return Markup(re.sub(rf'(<g id="\w+-{pictures.cells(0)[:-1]}(\d+)">)(.*?</g>)', titled, str(svg)))


def _sizes(against: Sequence[Contest], entries: Sequence[Entry]) -> Iterator[_Picture]:
    for mode in filter(lambda mode: mode.of_paper, Mode):
        for accumulate in Accumulate:
            those = [each for each in against if (each.mode, each.accumulate) == (mode, accumulate)]
            if (figure := pictures.over_size(those, entries)) is not None:
                title = _title(mode, accumulate)
                yield _Picture(
                    title, inline(figure, f"size_{mode.value}_{accumulate.value}", f"Ratio by size: {title}")
                )


def _choices(entries: Sequence[Entry]) -> Iterator[_Picture]:
    for accumulate in Accumulate:
        of = [entry for entry in entries if entry.accumulate is accumulate]
        if (figure := pictures.choices(of)) is not None:
            title = f"{accumulate.value} sums"
            svg = inline(figure, f"chosen_{accumulate.value}", f"What was chosen: {title}")
            yield _Picture(title, svg, _rem(figure))


def _losses(entries: Sequence[Entry], limits: bounds.Limits | None) -> Iterator[_Losses]:
    for mode in filter(lambda mode: mode.of_paper, Mode):
        for accumulate in Accumulate:
            for layout in Layout:
                compared = {
                    entry.shape
                    for entry in entries
                    if entry.accumulate is accumulate
                    and any(layout in of for of in entry.ratios.get(mode, {}).values())
                }
                if not compared:
                    continue
                found = bounds.losses(entries, mode, accumulate, layout, limits)
                kinds = [loss.bound for loss in found if loss.certain]
                counted = ", ".join(
                    f"{kinds.count(kind)} {kind}" for kind in ("launch", "memory", "tensor") if kind in kinds
                )
                yield _Losses(
                    f"{_title(mode, accumulate)}, ours {layout.value}",
                    len(compared),
                    sum(loss.certain for loss in found),
                    counted,
                    words.loss_table(found, limits),
                )
