"""Holds which results a report calls "at the floor" to the definition, and that it says so everywhere P stands."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from scored_results import CPU, MODELLED, report, scored

from cudamaster.cli import main
from cudamaster.core.speed import Interval
from cudamaster.core.values import Status
from cudamaster.report import kernels, page, tables
from cudamaster.report.at_floor import MEANING, NEAR, at_floor, over_floor, room
from cudamaster.report.data import CaseResult, TaskResult
from cudamaster.report.export import as_csv, as_json
from cudamaster.report.headline import headline
from cudamaster.report.loading import load


def case(weight: float, baseline_us: float | None, candidate_us: float | None, floor_us: float | None) -> CaseResult:
    """A case whose speedup belongs to its times."""
    known = baseline_us is not None and candidate_us is not None
    speedup = baseline_us / candidate_us if known else None  # type: ignore[operator]
    interval = Interval(speedup, speedup) if speedup is not None else None
    sizes = {"N": weight}
    return CaseResult(
        f"N={weight:g}",
        sizes,
        weight,
        Status.CORRECT,
        None,
        baseline_us,
        candidate_us,
        speedup,
        interval,
        floor_us,
        9.0,
    )


def timed(*cases: CaseResult, task: str = "a", **changed: object) -> TaskResult:
    """A result with these cases."""
    return scored(task, 1.0, **{"cases": cases, **changed})


LAUNCH = timed(case(1.0, 10.0, 10.0, 9.0), case(3.0, 10.5, 10.6, 9.5))


def test_baseline_and_kernel_near_the_floor_are_at_it() -> None:
    assert room(LAUNCH) == pytest.approx((10 / 9 + 3 * 10.5 / 9.5) / 4)
    assert over_floor(LAUNCH) == pytest.approx((10 / 9 + 3 * 10.6 / 9.5) / 4)
    assert at_floor(LAUNCH)


@pytest.mark.parametrize(
    ("which", "cases"),
    [
        ("a slow baseline that the kernel beats", (case(1.0, 20.0, 9.5, 9.0),)),
        ("a slow kernel beside a baseline at the floor", (case(1.0, 9.5, 20.0, 9.0),)),
        ("both slow alike: P is 1, and there is much to gain", (case(1.0, 20.0, 20.0, 9.0),)),
        ("the heaviest size far away", (case(1.0, 9.0, 9.0, 9.0), case(9.0, 20.0, 20.0, 9.0))),
    ],
)
def test_what_is_away_from_the_floor_is_not_at_it(which: str, cases: tuple[CaseResult, ...]) -> None:
    assert not at_floor(timed(*cases)), which


def test_the_limit_holds_on_both_sides_of_it() -> None:
    """Just below on both sides is at the floor; just above on either is not."""
    below, above = 10 * NEAR * 0.999, 10 * NEAR * 1.001
    assert at_floor(timed(case(1.0, below, below, 10.0)))
    assert not at_floor(timed(case(1.0, above, below, 10.0)))
    assert not at_floor(timed(case(1.0, below, above, 10.0)))


def test_sizes_count_by_their_weight() -> None:
    """A light size far above the floor does not count much, as in P; a heavy one does."""
    near, far = (10.0, 10.0, 9.5), (20.0, 20.0, 9.5)
    assert at_floor(timed(case(99.0, *near), case(1.0, *far)))
    assert not at_floor(timed(case(1.0, *near), case(99.0, *far)))


@pytest.mark.parametrize(
    ("which", "result"),
    [
        ("no floor", timed(case(1.0, 9.0, 9.0, 9.0), case(1.0, 9.0, 9.0, None))),
        ("no baseline", timed(case(1.0, 9.0, 9.0, 9.0), case(1.0, None, 9.0, 9.0))),
        ("no kernel's time", timed(case(1.0, 9.0, 9.0, 9.0), case(1.0, 9.0, None, 9.0))),
        ("no cases", timed()),
        ("no weights", timed(case(0.0, 9.0, 9.0, 9.0))),
        ("incomplete", replace(LAUNCH, complete=False)),
        ("wrong", replace(LAUNCH, correct=False, status=Status.WRONG)),
        ("emulated", replace(LAUNCH, hardware=CPU)),
        ("modelled", replace(LAUNCH, hardware=MODELLED)),
    ],
)
def test_what_is_not_known_is_not_at_the_floor(which: str, result: TaskResult) -> None:
    assert at_floor(LAUNCH)
    assert not at_floor(result), which


def test_a_report_says_it_wherever_p_stands() -> None:
    """Of two tasks with P = 1 one is at the floor: headline, table, pages, CSV and JSON say of which."""
    away = timed(case(1.0, 20.0, 20.0, 9.0), task="b")
    found = report(LAUNCH, away)
    assert " 1 is at the floor, where" in " ".join(headline(found))
    (shown,) = tables.tasks(found)
    status = {row[0]: row[list(shown.columns).index("status")] for row in shown.rows}
    assert "at the floor" in status["a_fp32"]
    assert "at the floor" not in status["b_fp32"]
    assert shown.note == MEANING
    lines = {line["task"]: line["at_floor"] for line in csv.DictReader(io.StringIO(as_csv(found)))}
    assert lines == {"a": "yes", "b": "no"}
    assert as_json(found)["groups"][0]["at_floor"] == ["a_fp32"]
    for text in (page.page(found), kernels.page(found)):
        assert MEANING in text
        assert text.count('<span class="quiet">at the floor') == 1


def test_a_report_of_none_at_the_floor_does_not_speak_of_it() -> None:
    found = report(timed(case(1.0, 20.0, 20.0, 9.0)))
    assert "at the floor" not in " ".join(headline(found))
    (shown,) = tables.tasks(found)
    assert shown.note == ""
    assert all("at the floor" not in cell for row in shown.rows for cell in row)


def test_help_and_page_name_the_limit_that_counts() -> None:
    words = f"at most {NEAR:g} times the floor"
    shown = " ".join(CliRunner().invoke(main, ["report", "--help"]).output.split())
    assert words in shown
    assert words in MEANING
    assert words in (Path(__file__).parents[2] / "docs/report.md").read_text("utf-8")


def test_saved_results_of_the_h200() -> None:
    """Of what this repository keeps, no product is at the floor; some activations are, and their P belongs to it."""
    kept = load([Path(__file__).parents[2] / "results/h200/report.json"])
    there = {result.name for result in kept.results if at_floor(result)}
    by_name = {result.name: result for result in kept.results}
    assert any(by_name[name].category == "activation" for name in there)
    assert not {"matrix_mul_fp32", "spmm_csr_fp32", "batch_norm_fp32", "stencil_2d_fp32"} & there
    for name in there:
        score = by_name[name].score
        assert score is not None
        assert 1 / NEAR <= score <= NEAR
