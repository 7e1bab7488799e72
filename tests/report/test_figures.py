"""Holds figures to the numbers behind them, to what may be drawn, and to files that a paper can use."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from made_up import CPU, H200, authority, comparison, report, result

from cudamaster.core.errors import UsageError
from cudamaster.core.values import BENCHMARK_PRECISIONS, Bottleneck, Hardware, Precision, Status
from cudamaster.report import class_figures, figures, speed_figures
from cudamaster.report.data import Report, TaskResult
from cudamaster.report.inlining import inline
from cudamaster.report.numbers import groups

TASKS = ("vector_add", "spmv_csr", "softmax", "fft")
ODD = "$x^2$ </svg><script>a</script> \x1b[31m \ud800 \u202e 日本 " + "long " * 40


def scored(*scores: float | None) -> list[TaskResult]:
    """A task for each P; None is one without a correct kernel."""
    made = []
    for task, score in zip(TASKS, scores, strict=False):
        plain = result(task, outcome=Status.CORRECT if score is not None else Status.WRONG)
        made.append(replace(plain, score=score, speed=None if score is None else comparison(score)))
    return made


@pytest.fixture(scope="module")
def several() -> Report:
    """Four tasks in both precisions, one without a kernel, a library, and the same on the CPU device."""
    results = [result(task, precision) for task in TASKS[:3] for precision in BENCHMARK_PRECISIONS]
    results.append(result("fft", outcome=Status.WRONG))
    emulated = [result(task, hardware=CPU) for task in TASKS]
    return report([*results, *emulated], authorities=[authority("fft", "cuFFT"), authority("sorting", "CUB", None)])


def shares(scores: Sequence[float | None]) -> dict[float, float]:
    """What the figure marks for these P, in percent by tau; 0 stands left of all."""
    [group] = groups(report(scored(*scores)))
    figure = speed_figures.cumulative_success([("a", group)])
    assert figure is not None
    [marks] = [line for line in figure.axes[0].lines if line.get_linestyle() == "None"]
    xs, ys = (np.asarray(data, dtype=float) for data in marks.get_data())
    return {0.0: float(ys[0])} | dict(zip(xs[1:].tolist(), ys[1:].tolist(), strict=True))


def test_cumulative_success_is_strict_and_counts_tasks_without_a_kernel() -> None:
    drawn = shares((0.8, 1.0, 2.5, None))
    assert drawn[0.0] == 75
    assert drawn[0.5] == 75
    assert drawn[1.0] == 25
    assert drawn[2.0] == 25
    assert drawn[4.0] == 0


def test_the_whole_curve_falls_at_each_score() -> None:
    """Between two thresholds too: the line holds its share up to a score, and has fallen at it."""
    [group] = groups(report(scored(0.8, 1.3, 2.5, 2.6)))
    figure = speed_figures.cumulative_success([("a", group)])
    assert figure is not None
    curve = figure.axes[0].lines[0]
    assert curve.get_drawstyle() == "steps-post"
    places = dict(zip(*(np.asarray(data, dtype=float).tolist() for data in curve.get_data()), strict=True))
    assert [places[tau] for tau in (0.8, 1.3, 2.5, 2.6)] == [75, 50, 25, 0]


def test_repeated_runs_have_a_band() -> None:
    once = [replace(one, repetition=1) for one in scored(3.0, 0.9)]
    again = [replace(one, repetition=2) for one in scored(3.0, 1.1)]
    [group] = groups(report([*once, *again]))
    figure = speed_figures.cumulative_success([("a", group)])
    assert figure is not None
    [band] = figure.axes[0].collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert {50.0, 100.0} <= set(np.round(heights, 6))  # at tau = 1: one of two tasks, or both


def test_the_least_time_is_a_line_at_one() -> None:
    """A task stands where its heaviest size is, in multiples of the floor."""
    one = result("fft")
    case = max(one.cases, key=lambda case: case.weight)
    figure = speed_figures.over_floor([one])
    assert figure is not None
    assert case.candidate_us is not None
    assert case.baseline_us is not None
    assert case.floor_us is not None
    xs = {round(float(np.asarray(line.get_xdata())[0]), 6) for line in figure.axes[0].lines}
    assert {1.0, round(case.candidate_us / case.floor_us, 6), round(case.baseline_us / case.floor_us, 6)} <= xs


def test_migration_counts_every_task_once() -> None:
    results = [result(task, precision) for task in TASKS for precision in BENCHMARK_PRECISIONS]
    halves = [group for group in groups(report(results)) if group.precision is Precision.BF16]
    figure = class_figures.migration(halves)
    assert figure is not None
    cells = [int(text.get_text()) for text in figure.axes[0].texts if text.get_text() != "·"]
    assert sum(cells) == len(TASKS)


def test_each_metric_is_drawn_for_every_task_of_its_class() -> None:
    results = [result(task) for task in TASKS]
    figure = class_figures.metric_changes(results)
    assert figure is not None
    named = [label.get_text() for axes in figure.axes for label in axes.get_yticklabels()]
    kinds = [one.before.bottleneck for one in results if one.before is not None]
    for kind in Bottleneck:
        if count := kinds.count(kind):
            assert sum(f"({count})" in name for name in named) >= 4


def test_a_change_from_nothing_is_no_factor() -> None:
    """A metric that was 0 before has no relative change, and is left out rather than drawn somewhere."""
    one = result("fft")
    nothing = replace(one, changes=tuple(replace(change, before=0.0, relative=None) for change in one.changes))
    assert class_figures.metric_changes([nothing]) is None


@pytest.mark.slow
def test_emulated_results_are_in_no_figure(several: Report, tmp_path: Path) -> None:
    """To the byte: with them the files are those without them."""
    without = replace(several, results=several.measured)
    both, measured = figures.draw(several, tmp_path / "both"), figures.draw(without, tmp_path / "measured")
    assert [path.name for path in both] == [path.name for path in measured]
    assert all(one.read_bytes() == other.read_bytes() for one, other in zip(both, measured, strict=True))
    assert figures.pictures(report(several.emulated)) == ()
    assert figures.draw(report(several.emulated), tmp_path / "none") == ()


@pytest.mark.slow
def test_files_are_svg_and_pdf_of_a_columns_width(several: Report, tmp_path: Path) -> None:
    """With text as text, which can be searched and restyled; wider is only the one with a panel for each task."""
    made = figures.draw(several, tmp_path)
    stems = {path.stem for path in made}
    assert stems == {
        "cumulative_success", "authorities", "speedup_over_size", "over_floor", "bottlenecks", "classes_by_category",
        "migration", "metric_changes",
    }  # fmt: skip
    assert {path.suffix for path in made} == {".svg", ".pdf"}
    for path in made:
        if path.suffix == ".pdf":
            assert path.read_bytes().startswith(b"%PDF")
            continue
        root = ElementTree.parse(path).getroot()
        points = float(root.attrib["width"].removesuffix("pt"))
        assert points == pytest.approx(72 * (7 if path.stem == "speedup_over_size" else 3.5))
        assert "".join(root.itertext()).strip()
        assert "spmv_csr" in path.read_text() or path.stem not in ("over_floor", "speedup_over_size")


@pytest.mark.slow
def test_figures_of_several_settings_and_gpus_have_files_of_their_own(tmp_path: Path) -> None:
    """One GPU is never drawn over another, and no file over another's."""
    other = Hardware("NVIDIA A100", {}, emulated=False)
    results = [
        *(result("fft", model=model) for model in ("a/b", "a b")),
        result("fft", hardware=other),
    ]
    made = figures.draw(report(results), tmp_path)
    assert len({path.name.lower() for path in made}) == len(made)
    names = [picture for picture in figures.pictures(report(results)) if picture.title == "Cumulative success"]
    assert {picture.setting for picture in names} == {H200.name, other.name}
    assert len([path for path in made if path.name.startswith("over_floor") and path.suffix == ".pdf"]) == 3


def test_a_legend_has_room_in_its_figure() -> None:
    """Two precisions stand beside each other, the names of two models below each other."""
    models = [result("fft", model=model) for model in ("openai/o4-mini", "deepseek/deepseek-chat")]
    for results, columns in (([result("fft", precision) for precision in BENCHMARK_PRECISIONS], 2), (models, 1)):
        (drawn,) = (one.figure for one in figures.pictures(report(results), sizes=False) if one.all)
        (legend,) = drawn.legends
        drawn.draw_without_rendering()
        box = legend.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= drawn.bbox.x1
        assert legend._ncols == columns


def test_libraries_are_drawn_where_no_search_was_measured() -> None:
    """A measurement of them alone, or on another GPU."""
    alone = report([], authorities=[authority("fft", "cuFFT")])
    assert [one.name for one in figures.pictures(alone)] == ["authorities"]
    beside = report([result("fft")], authorities=[replace(authority("fft", "cuFFT"), hardware="NVIDIA A100")])
    assert [one.setting for one in figures.pictures(beside, sizes=False) if one.all] == [H200.name, "NVIDIA A100"]


def test_titles_of_libraries_stand_beside_each_other() -> None:
    """With the longest name and a version: none over its neighbour's, none beyond the edge."""
    found = authority("square_matrix_mul", "cuSPARSE 12.6.3.3")
    drawn = speed_figures.authorities([found, replace(found, precision=Precision.BF16)])
    assert drawn is not None
    drawn.draw_without_rendering()
    left, right = (panel.title.get_window_extent() for panel in drawn.axes)
    assert 0 <= left.x0 < left.x1 < right.x0 < right.x1 <= drawn.bbox.x1


def test_no_axis_of_a_library_has_a_single_tick() -> None:
    """Where all speedups are near 1 ticks are finer than powers of two."""
    near = authority("fft", "cuFFT")
    cases = tuple(replace(case, speedup=0.62, ours_speedup=1.3, floor_us=None) for case in near.cases)
    drawn = speed_figures.authorities([replace(near, cases=cases)])
    assert drawn is not None
    drawn.draw_without_rendering()
    (panel, *_) = drawn.axes
    low, high = panel.get_ylim()
    told = [label.get_text() for label in panel.get_yticklabels() if low <= label.get_position()[1] <= high]
    assert len(told) >= 3
    assert "1" in told


def test_names_of_metrics_are_whole() -> None:
    one = result("fft")
    long = "Warp Cycles Per Executed Instruction"
    changed = replace(one, changes=(replace(one.changes[0], name=long),))
    drawn = class_figures.metric_changes([changed])
    assert drawn is not None
    assert [" ".join(label.get_text().split()) for label in drawn.axes[0].get_yticklabels()] == [f"{long} (1)"]


@pytest.mark.slow
def test_whatever_a_name_is_figures_can_be_drawn(several: Report, tmp_path: Path) -> None:
    """A name may hold mathematics, tags, control characters or half a surrogate pair, and be far too long."""
    results = [
        replace(one, task=ODD, models=dict.fromkeys(one.models, ODD + one.precision.value)) for one in several.measured
    ]
    odd = report(results, authorities=[replace(one, task=ODD, library=ODD) for one in several.authorities])
    assert figures.draw(odd, tmp_path)
    for picture in figures.pictures(odd, sizes=False):
        element = str(inline(picture.figure, picture.name, ODD.replace("\ud800", "")))
        assert "<script" not in element
        assert "\x1b" not in re.sub('aria-label="[^"]*"', "", element)


@pytest.mark.slow
def test_a_figure_in_a_page_has_the_pages_colours_and_ids_of_its_own(several: Report) -> None:
    """Nothing in it is of one scheme alone, nothing points to another figure, and nothing outside."""
    seen: set[str] = set()
    for picture in figures.pictures(several, sizes=False):
        element = inline(picture.figure, picture.name, "what <it> shows")
        assert not re.findall(r"#[0-9a-f]{6}\b", element)
        assert "var(--ink)" in element
        assert "<style" not in element
        assert "http" not in element
        ids = set(re.findall(r' id="([^"]+)"', element))
        assert not ids & seen
        seen |= ids
        assert set(re.findall(r'href="#([^"]+)"', element)) <= ids
        assert set(re.findall(r"url\(#([^)]+)\)", element)) <= ids
        assert 'aria-label="what &lt;it&gt; shows"' in element


def test_no_results_are_no_figures(tmp_path: Path) -> None:
    assert figures.draw(report([]), tmp_path / "new") == ()
    assert (tmp_path / "new").is_dir()


@pytest.mark.slow
def test_scores_that_are_no_numbers_do_no_harm(tmp_path: Path) -> None:
    wrong = [replace(one, score=score) for one, score in zip(scored(1.0, 2.0), (math.inf, math.nan), strict=True)]
    assert figures.draw(report([*wrong, *scored(None, None, 3.0)]), tmp_path)


def test_a_folder_that_cannot_be_written_is_named(several: Report, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file.*--figures"):
        figures.draw(several, tmp_path / "file")
