"""Holds the reading of vendors' libraries to what was measured of them, beside our kernels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report_runs import run, samples

from cudamaster.core import speed
from cudamaster.core.values import Precision, Status
from cudamaster.report.export import as_json
from cudamaster.report.headline import headline
from cudamaster.report.loading import load
from cudamaster.report.settings import title
from cudamaster.report.tables import authorities
from cudamaster.vendor import comparison

FP32, BF16 = Precision.FP32, Precision.BF16


def contest(status: Status, p: float, against_us: float) -> comparison.Contest:
    """A contest on one size, won by P."""
    before, after = samples(against_us, p)
    compared = speed.compare(before, after)
    # That was right, and timed before another one failed, where the whole is wrong.
    case = comparison.ContestCase("N=8", 8.0, Status.CORRECT, "", against_us / p, against_us, None, 5.0, 10.0, compared)
    right = status is Status.CORRECT
    return comparison.Contest(
        status,
        "DETAIL",
        p if right else None,
        compared if right else None,
        True,
        1,
        (),
        (case,),
        {},
        "",
    )


def test_authorities_are_read_where_they_lie_among_results_or_are_named(tmp_path: Path) -> None:
    """Measured, failing and skipped libraries, with our kernel beside them; an emulated measurement says nothing."""
    right, wrong = Status.CORRECT, Status.WRONG
    records = (
        comparison.VendorRecord("fft", FP32, "cuFFT", "12.0", "", "", None, contest(right, 4.0, 100.0), "k",
                            contest(right, 2.0, 100.0), contest(right, 0.5, 25.0)),
        comparison.VendorRecord("fft", BF16, "cuFFT", "12.0", "", "", None, contest(wrong, 4.0, 100.0)),
        comparison.VendorRecord("sorting", FP32, "CUB", "", "", "", "no headers"),
    )  # fmt: skip
    about = {"device": "NVIDIA H200"}
    comparison.write(
        tmp_path / "all" / "vendor.json", comparison.VendorReport(comparison.FORMAT, False, about, records)
    )
    run(tmp_path / "all" / "run")
    for paths in ([tmp_path / "all"], [tmp_path / "all" / "vendor.json"]):
        report = load(paths)
        measured, failing, skipped = report.authorities
        assert (measured.library, measured.hardware, measured.score) == ("cuFFT 12.0", "NVIDIA H200", 4.0)
        assert measured.ours is not None
        assert measured.duel is not None
        assert (measured.ours.speedup, measured.duel.speedup) == (
            pytest.approx(2, rel=0.01),
            pytest.approx(0.5, rel=0.01),
        )
        (case,) = measured.cases
        assert (case.baseline_us, case.library_us, case.ours_us, case.floor_us) == (100.0, 25.0, 50.0, 5.0)
        assert (failing.status, failing.score, failing.note) == (Status.WRONG, None, "DETAIL")
        assert failing.cases == ()  # what is wrong has no times to draw
        assert (skipped.status, skipped.note) == (None, "no headers")
        if not report.results:
            assert headline(report) == ("No results of a search, vendors' libraries alone: 1 of 2 calls are right.",)
            assert title(report) == headline(report)[0]
        table = authorities(report)
        assert table is not None
        assert [row[3] for row in table.rows] == ["wrong", "correct", "skipped"]
        for said in (" wrong: DETAIL", " skipped: no headers"):
            assert said in table.note
    (tmp_path / "all" / "report.json").write_text(json.dumps(as_json(load([tmp_path / "all"]))))
    assert len(load([tmp_path / "all"]).authorities) == 3  # a report holds them too, and nothing counts twice
    (tmp_path / "all" / "report.json").unlink()
    emulated = comparison.VendorReport(comparison.FORMAT, True, about, records)
    comparison.write(tmp_path / "all" / "vendor.json", emulated)
    assert load([tmp_path / "all"]).authorities == ()
    (tmp_path / "all" / "vendor.json").write_text("{}")
    assert [problem.serious for problem in load([tmp_path / "all"]).problems] == [True]


def test_a_kernel_of_ours_that_is_wrong_there_has_no_times_beside_the_library(tmp_path: Path) -> None:
    right, wrong = contest(Status.CORRECT, 4.0, 100.0), contest(Status.WRONG, 8.0, 100.0)
    record = comparison.VendorRecord("fft", FP32, "cuFFT", "12.0", "", "", None, right, "k", wrong)
    told = comparison.VendorReport(comparison.FORMAT, False, {"device": "NVIDIA H200"}, (record,))
    comparison.write(tmp_path / "vendor.json", told)
    (found,) = load([tmp_path / "vendor.json"]).authorities
    (case,) = found.cases
    assert (found.ours, case.library_us, case.ours_us, case.ours_speedup) == (None, 25.0, None, None)
