"""Holds what the terminal and --json show of a run to the whole of it, at the terminal's width."""

from __future__ import annotations

import json
import os
from pathlib import Path

from search_stand_ins import code, command, kernel, plan
from show_runs import DONE, run_of, show


def test_the_terminal_shows_each_event(kept: Path) -> None:
    shown = show(kept)
    assert shown.exit_code == 0
    flat = " ".join(shown.stdout.split())
    for told in (
        "double_it (fp32): finished, best P = 3.00 (emulated)",
        "PLAN for Mended",
        "(+1 -1 lines)",
        "-// correct 1.01 baseline",
        "flags: + --use_fast_math",
        "compile_error: DETAIL a",
        "candidate.cu(3): error: LOG of a",
        "Debug try 1: CAUSE brace",
        "Fix: FIX index",
        "correct, P = 2.00 (emulated), faster",
        "memory latency bound → memory bandwidth bound, 90% of the time",
        "L2 Hit Rate: 40 → 80 % of lookups (+100%)",
        "DRAM Throughput: 20 → 40 (+100%)",
        "Accepted: the new best, P = 3.00 (emulated).",
        "Not kept: speedup 0.500, where the best so far has 2.000",
        "Reply 16, of the coder agent, could not be used: there is no fenced code block in it.",
        "The Debug agent offered no fix. Not kept: it ends with fault",
        "(judged in an earlier attempt)",
        "note: NOTE of the device",
        "The planner has no further idea after 6 of 8 rounds.",
        "9 calls, 90 + 45 tokens, $2.2500, 0.9 s; judging 5.2 s",
    ):
        assert told in flat, told
    assert shown.stdout.splitlines()[-1].startswith("Next: ")
    assert f"evaluate double_it {kept}/best.cu --precision fp32 --device cpu" in shown.stdout.splitlines()[-1]


def test_the_terminal_wraps_at_its_width(kept: Path) -> None:
    """All but what is there to be copied: paths and commands."""
    wide = [line for line in show(kept).stdout.splitlines() if len(line.rstrip()) > 80]
    assert [line for line in wide if not line.startswith(("Next:", "Run:"))] == []


def test_one_round_is_shown_in_full(kept: Path) -> None:
    shown = show(kept, "--round", "1").stdout
    assert "prelude 0" in shown
    assert "N=8" in shown
    assert "Slow" not in shown
    assert "prelude 0" not in show(kept).stdout


def test_a_long_difference_is_cut_unless_asked_for(tmp_path: Path) -> None:
    long = kernel(score=2.0, tag="long") + "".join(f"// line {i}\n" for i in range(50))
    run = run_of(tmp_path / "run", [plan("Long"), code(long), command(), *DONE])
    assert "// line 49" not in show(run).stdout
    assert "lines of difference: --round 1)" in show(run).stdout
    assert "// line 49" in show(run, "--round", "1").stdout
    assert "// line 1" not in show(run, "--no-diff").stdout


def test_json_is_the_whole_account(kept: Path) -> None:
    told = json.loads(show(kept, "--json").stdout)
    assert told["state"] == "finished"
    assert [r["best_score"] for r in told["rounds"]] == [2.0, 2.0, 2.0, 2.0, 2.0, 3.0, 3.0]
    failed, _, right = (attempt["judgement"] for attempt in told["rounds"][0]["attempts"])
    assert failed["telling"] == "candidate.cu(3): error: LOG of a"
    assert right["speed"]["change"] == "faster"
    case = right["cases"][0]
    assert (case["label"], case["baseline_us"], case["candidate_us"], case["of_floor"]) == ("N=8", 3.0, 1.5, None)
    assert "timing" not in case
    assert [r["number"] for r in json.loads(show(kept, "--json", "--round", "4").stdout)["rounds"]] == [4]


def test_a_round_that_is_not_there_is_a_usage_error(kept: Path) -> None:
    result = show(kept, "--round", "8")
    assert result.exit_code == 2
    assert "has no round 8, it has 7" in result.stderr


def test_of_several_runs_the_latest_is_named(tmp_path: Path) -> None:
    """A shell's pattern fits all runs of a task."""
    first, second = (run_of(tmp_path / name, DONE) for name in ("first", "second"))
    os.utime(first, (0, 0))
    ran = show(first, second)
    assert ran.exit_code == 2
    assert "2 runs were given" in ran.output
    assert ran.output.rstrip().endswith(f"show {second}")
