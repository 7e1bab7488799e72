"""Holds the page of a run to saying how sure P is, and to tables where there are numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from show_runs import Page

from cudamaster.core.values import GpuModel
from cudamaster.runs.reading import read
from cudamaster.runs.summary import RunSummary, change
from cudamaster.view import pages

KEPT = Path(__file__).parents[2] / "results" / "h200" / "spmv_csr_bf16"


@pytest.fixture(scope="module")
def measured() -> RunSummary:
    """Of an H200."""
    return read(KEPT)


def _words(run: RunSummary) -> str:
    return " ".join(Page(pages.run_page(run)).text.split())


def test_the_headline_has_its_interval(measured: RunSummary) -> None:
    assert "Finished: best P = 1.21, faster (99.9 % interval 1.20 to 1.22)." in _words(measured)


def test_a_modelled_headline_has_the_models_error(measured: RunSummary) -> None:
    """And what the model cannot tell is called unsure."""
    model = GpuModel("v1", "NVIDIA H200", 1.85)
    judged = measured.baseline_verdict
    assert judged is not None
    hardware = replace(measured.hardware, emulated=True, modelled=model)
    told = _words(replace(measured, hardware=hardware, baseline_verdict=replace(judged, emulated=True, modelled=model)))
    assert "best P = 1.21 (modelled), faster (by the model's known error 1.20 to 1.22)" in told


def test_a_baseline_has_no_p_over_itself(measured: RunSummary) -> None:
    """Ten calls of it against itself say nothing: this one would be slower than itself."""
    baseline = _words(measured).split("Baseline")[1].split("Round 1:")[0]
    assert "correct: 23 cases right" in baseline
    assert "slower" not in baseline
    assert "candidate µs" not in baseline


def test_a_first_profile_has_no_column_of_dashes(measured: RunSummary) -> None:
    text = pages.run_page(measured)
    first, later = text.split('<section id="round-1">')
    assert '<th>metric</th><th class="n">value</th>' in first
    assert '<th class="n">before</th>' not in first
    assert '<th class="n">before</th><th class="n">after</th><th class="n">change</th>' in later


def test_modelled_times_are_a_table(measured: RunSummary) -> None:
    """A line for each part of a call, and its unit once."""
    assert measured.baseline_profile is not None
    parts = {"whole call": 10.65, "kernels": 0.851, "latency alone": 0.6821}
    modelled = replace(measured.baseline_profile, breakdown=parts, modelled=GpuModel("v1", "NVIDIA H200"))
    text = pages.run_page(replace(measured, baseline_profile=modelled))
    for name, shown in (("whole call", "10.65"), ("kernels", "0.85"), ("latency alone", "0.68")):
        assert f'<tr><td>{name}</td><td class="n">{shown}</td></tr>' in text
    assert '<th>part</th><th class="n">modelled µs</th>' in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1020.0, "1,020"), (66520.4, "66,520"), (0.19, "0.19"), (0.000082, "0.000082"), (0.0, "0"), (-37.129, "-37.13"),
     (None, "–"), (math.nan, "–")],
)  # fmt: skip
def test_numbers_are_written_as_people_write_them(value: float | None, shown: str) -> None:
    assert pages.plain(value) == shown


@pytest.mark.parametrize(
    ("relative", "shown"), [(None, "–"), (-0.1, "-10%"), (3.316, "+332%"), (9.0, "+900%"), (665.2, "> 10 x")]
)
def test_a_change_beyond_tenfold_is_no_percentage(relative: float | None, shown: str) -> None:
    assert change(relative) == shown


def test_a_long_name_breaks_at_its_parts() -> None:
    assert pages.breaks("rows=1,<b>=2") == "rows=1,<wbr>&lt;b&gt;=2"
