"""Progress while a judge works: how many cases it has done, read from the report that it is writing."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from cudamaster.cli.output import Waiting
from cudamaster.core.values import Precision
from cudamaster.devices import cases, choose
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench


def case(number: int) -> str:
    """A line that opens a case, as judges write it."""
    return f'{{"event":"case","index":{number},"label":"N={number}","sweep":false,"t":0.1}}\n'


def test_cases_are_counted_while_the_report_grows(tmp_path: Path) -> None:
    """A line that is not there to its end does not count yet; the last case is done where the report ends."""
    report = tmp_path / "report.jsonl"
    with cases.judging("checking", report, 3):
        assert cases.progress() == "checking, waiting for the device"
        report.write_text('{"event":"begin"}\n' + case(0))
        assert cases.progress() == "checking, 0 of 3 cases done"
        with report.open("a") as file:
            file.write('{"event":"check"}\n' + case(1) + case(2)[:20])
            file.flush()
            assert cases.progress() == "checking, 1 of 3 cases done"
            file.write(case(2)[20:] + '{"event":"end","ok":true,"t":1}\n')
        assert cases.progress() == "checking, 3 of 3 cases done"
    assert cases.progress() is None


def test_judges_of_shares_are_told_of_as_one(tmp_path: Path) -> None:
    """Of a share some cases may be done before its judge begins; one that has not begun tells of none."""
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    with cases.at_work(cases.Judges("counting", 7)) as judges:
        assert cases.progress() == "counting, waiting for the device"
        judges.read(0, one)
        one.write_text(case(0) + case(1))
        assert cases.progress() == "counting, 1 of 7 cases done"
        judges.read(1, other)
        other.write_text(case(0) + case(1) + case(2) + '{"event":"end","ok":true,"t":1}\n')
        assert cases.progress() == "counting, 4 of 7 cases done"
        judges.read(0, tmp_path / "again.jsonl", before=2)
        assert cases.progress() == "counting, 5 of 7 cases done"
    assert cases.progress() is None


def test_a_judge_ahead_of_its_candidate_is_not_told_of(tmp_path: Path) -> None:
    """It waits, and what is being built is of interest."""
    with cases.judging("checking", tmp_path / "report.jsonl", 3, lambda: False):
        assert cases.progress() is None


def test_a_spinner_says_it_all_the_time(tmp_path: Path) -> None:
    """With the seconds so far, and then no lines are needed."""
    waiting = Waiting("relu (fp32): building and running")
    lines: list[str] = []
    report = tmp_path / "report.jsonl"
    report.write_text(case(0) + case(1))
    with cases.judging("checking", report, 3):
        shown = str(waiting.__rich__())
    assert shown == "relu (fp32): building and running; checking, 1 of 3 cases done, 0 s so far"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cases, "EVERY_S", 0.01)
        with cases.reporting("relu (fp32)", lines.append):
            threading.Event().wait(0.1)
    assert lines == []


def test_a_short_evaluation_says_nothing() -> None:
    """A line comes after ten seconds, no sooner."""
    lines: list[str] = []
    with cases.reporting("relu (fp32)", lines.append):
        pass
    assert lines == []


@pytest.mark.slow
def test_lines_tell_of_an_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of it, on the cases of the task."""
    monkeypatch.setattr(cases, "EVERY_S", 0.02)
    monkeypatch.setattr(cases, "_SHOWN_S", 0.0)
    bench = Workbench(cards.load("prefix_sum"), Precision("fp32"), choose.choose("cpu"), seed=1)
    lines: list[str] = []
    with cases.reporting("prefix_sum (fp32)", lines.append):
        assert bench.evaluate(bench.baseline).correct
    said = "\n".join(lines)
    for doing in ("checking", "looking for races", "checking and timing", "counting for the model"):
        assert re.search(rf"{doing}, [1-9]\d* of \d+ cases done", said), said
    assert all(line.endswith(" s so far") for line in lines)
