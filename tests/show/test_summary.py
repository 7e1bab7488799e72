"""The summary of a run says what the search decided, for every kind of round."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from search_stand_ins import kernel
from show_runs import DONE, Page, page, run_of, show

from cudamaster.core.values import Bottleneck, CaseVerdict, OutputCheck, Role, Status
from cudamaster.runs.digest import LOG_LINES, breakdown_lines, difference, main_part
from cudamaster.runs.reading import read
from cudamaster.runs.summary import RunState, RunSummary


def test_every_kind_of_round_is_told(summary: RunSummary) -> None:
    """What came of each plan, and why: as the search itself decided it."""
    told = [(r.plan.idea if r.plan else None, r.status, r.accepted, r.best_score) for r in summary.rounds]
    assert told == [
        ("Mended <script>alert(1)</script>", Status.CORRECT, True, 2.0),
        ("Slow", Status.CORRECT, False, 2.0),
        ("Asked twice", Status.REJECTED, False, 2.0),
        ("Unmended", Status.FAULT, False, 2.0),
        ("Slow again", Status.CORRECT, False, 2.0),
        ("Best", Status.CORRECT, True, 3.0),
        (None, None, None, 3.0),
    ]
    assert summary.rounds[1].why == "speedup 0.500, where the best so far has 2.000"
    assert (summary.state, summary.stopped_at) == (RunState.FINISHED, None)
    assert summary.note == "The planner has no further idea after 6 of 8 rounds."
    assert summary.best is not None
    assert (summary.best.score, summary.best.improved) == (3.0, True)
    assert summary.best.code == kernel(score=3.0, tag="f")


def test_each_attempt_says_what_it_came_from_and_changed(summary: RunSummary) -> None:
    """The first is written from the best so far, a debug try from the failing one before it."""
    first, second, third = summary.rounds[0].attempts
    assert first.written_from == summary.baseline
    assert second.written_from == first.candidate
    assert third.written_from == second.candidate
    assert first.diff.split("\n")[1:3] == ["-// correct 1.01 baseline", "+// compile_error - a"]
    assert (first.lines_added, first.lines_removed) == (1, 1)
    assert [a.diagnosis.fix if a.diagnosis else None for a in (first, second, third)] == [
        None,
        "FIX brace",
        "FIX index",
    ]
    assert (third.flags_added, second.flags_added) == (("--use_fast_math",), ())
    slow = summary.rounds[1].attempts[0]
    assert slow.written_from == third.candidate
    assert slow.flags_removed == ("--use_fast_math",)
    statuses = [a.verdict.status for a in (first, second, third) if a.verdict]
    assert statuses == [Status.COMPILE_ERROR, Status.WRONG, Status.CORRECT]


def test_the_main_part_of_a_log_starts_at_its_error(summary: RunSummary) -> None:
    told = summary.rounds[0].attempts[0].verdict
    assert told is not None
    assert main_part(told.log) == "candidate.cu(3): error: LOG of a"
    assert told.log.startswith("prelude 0")


def test_a_candidate_that_came_twice_was_judged_once(summary: RunSummary) -> None:
    """Its seconds count only in the first of its rounds."""
    slow, again = summary.rounds[1], summary.rounds[4]
    assert slow.attempts[0].candidate == again.attempts[0].candidate
    assert [r.attempts[0].judged_before for r in (slow, again)] == [False, True]
    assert (slow.judging_s, again.judging_s) == (1.75, 0.0)


def test_refused_replies_are_told_with_the_reason(summary: RunSummary) -> None:
    """Those that were asked again, and the one that ended the round."""
    refused = {c.number: (c.refused, c.reply) for r in summary.rounds for c in r.calls if c.refused}
    assert sorted(refused) == [13, 15, 16]
    assert refused[13][1] == "Well,"
    assert refused[16] == ("there is no fenced code block in it.", "none")
    assert [r.gave_up for r in summary.rounds] == [False, False, False, True, False, False, False]


def test_a_new_best_is_told_with_what_changed_in_the_hardware(summary: RunSummary) -> None:
    """Before is the best before; a metric that was measured there, but not shown, has its value."""
    assert [r.number for r in summary.rounds if r.profile] == [1, 6]
    profile = summary.rounds[0].profile
    assert profile is not None
    assert (profile.bottleneck_before, profile.bottleneck) == (Bottleneck.LATENCY, Bottleneck.BANDWIDTH)
    told = [(m.name, m.before, m.after, m.relative) for m in profile.metrics]
    assert told == [("L2 Hit Rate", 40.0, 80.0, 1.0), ("DRAM Throughput", 20.0, 40.0, 1.0)]
    assert [metric.unit for metric in profile.metrics] == ["% of lookups", None]
    assert summary.baseline_profile is not None
    assert [(m.before, m.after) for m in summary.baseline_profile.metrics] == [(None, 40.0)]


def test_costs_are_those_of_the_calls(summary: RunSummary) -> None:
    assert [r.usage.calls for r in summary.rounds] == [9, 3, 4, 4, 3, 3, 1]
    assert (summary.usage.calls, summary.usage.prompt_tokens, summary.usage.dollars) == (27, 270, 6.75)
    assert summary.rounds[0].judging_s == 3 * 1.75


def test_an_error_that_is_no_number_is_the_worst() -> None:
    """A NaN beside an error within its bound does not hide behind that."""
    output = OutputCheck("out", 1, 1, 1, 0.5, 0.0, 1.0, "")
    case = CaseVerdict("N=8", True, 8.0, Status.WRONG, outputs=(output, replace(output, worst_error=math.nan)))
    assert case.of_bound is not None
    assert math.isnan(case.of_bound)


def test_a_log_without_an_error_is_told_from_its_start() -> None:
    log = "\n".join(f"line {i}" for i in range(30))
    assert main_part(log).splitlines() == [f"line {i}" for i in range(LOG_LINES)]


def test_the_same_code_has_no_difference() -> None:
    assert difference("a\nb\n", "a\nb\n") == ""
    assert difference("a\x0cb\n", "a\x0cc\n").split("\n")[1:3] == ["-a\x0cb", "+a\x0cc"]


def test_a_round_without_an_idea_says_why(tmp_path: Path) -> None:
    """No usable reply, no further idea, and none yet are three things, in the command and on the page."""
    unusable = [(Role.PLANNER, "Well,"), (Role.PLANNER, "No.")]
    of_scripts = {
        "finished": (["(no usable reply from the planner)", "(no further idea from the planner)"], [*unusable, *DONE]),
        "stopped": (["(no usable reply from the planner)", "(no idea yet)"], unusable),
        "asked again": (["(no idea yet)"], unusable[:1]),
    }
    for name, (titles, script) in of_scripts.items():
        run = run_of(tmp_path / name, script)
        assert [told.title for told in read(run).rounds] == titles
        text = Page(page(run, tmp_path / f"{name}.html")).text
        for number, title in enumerate(titles, 1):
            assert f"Round {number}: {title}" in show(run).stdout
            assert f"Round {number}: {title}" in text


def test_a_breakdown_is_written_as_people_write_numbers() -> None:
    """A slow baseline takes ten thousand microseconds, and has no exponent."""
    lines = breakdown_lines({"whole call": 12503.2, "kernels": 12404.0, "the rest": 49.6, "latency alone": 0.68})
    assert lines[0] == "modelled µs: whole call 12,503 = kernels 12,404 + the rest 49.6"
    assert lines[1].endswith(": latency 0.68")
