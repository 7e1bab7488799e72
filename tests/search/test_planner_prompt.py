"""Holds the Planner's prompt to what it needs, on recorded verdicts and profiles, and other roles' to less."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from asked_prompts import asked, rows
from recorded_runs import best, findings, verdict

from cudamaster.agents.prompts import render
from cudamaster.core.values import Bottleneck, Findings, Role
from cudamaster.profiling.thresholds import load


def planner(task: str = "sorting", found: Findings | None = None, **changes: Any) -> str:
    """The Planner's user message about the recorded best kernel."""
    return asked(Role.PLANNER, best(task, "fp32"), replace(verdict(task, "fp32"), **changes), found)[1]


def test_each_case_is_a_line_with_its_time_and_its_time_over_the_floor() -> None:
    """Medians of the recorded calls; weights are parts of the score; cases that were only checked are not shown."""
    head, *cases = rows(planner())
    assert head == ["case", "weight", "baseline", "this kernel", "speedup", "x floor"]
    assert [case[0] for case in cases] == ["N=256", "N=1024", "N=4096", "N=16384", "N=65536"]
    recorded = verdict("sorting", "fp32").cases[-1]
    assert recorded.timing is not None
    assert recorded.floor_us is not None
    middle = sorted(recorded.timing.candidate_us)[24:26]
    label, weight, baseline_us, time_us, speedup, over = cases[-1]
    assert (label, weight) == ("N=65536", "78.3 %")
    assert float(time_us) == pytest.approx(sum(middle) / 2, rel=2e-3)
    assert float(baseline_us) / float(time_us) == pytest.approx(float(speedup), rel=0.05)
    assert float(over) == pytest.approx(sum(middle) / 2 / recorded.floor_us, abs=0.05)
    assert sum(float(case[1].removesuffix(" %")) for case in cases) == pytest.approx(100, abs=0.5)


def test_what_was_not_measured_has_no_column() -> None:
    """Floors and launches are those of a GPU; times on the device are there where they were taken."""
    cases = verdict("sorting", "fp32").cases
    bare = planner(cases=tuple(replace(case, floor_us=None) for case in cases), emulated=True)
    assert rows(bare)[0] == ["case", "weight", "baseline", "this kernel", "speedup"]
    assert "floor" not in bare
    assert "empty kernel" not in bare
    last = cases[-1]
    assert last.timing is not None
    timed = replace(last.timing, candidate_device_us=(19.0, 21.0, 20.0))
    with_one = rows(planner(cases=(*cases[:-1], replace(last, timing=timed))))
    assert with_one[0][4] == "on the device"
    assert [row[4] for row in with_one[-2:]] == ["-", "20.0"]


def test_a_case_that_did_not_run_is_named_with_its_reason() -> None:
    cases = verdict("sorting", "fp32").cases
    gone = replace(cases[-1], status=None, timing=None, speed=None, skipped="it needs more memory")
    text = planner(cases=(*cases[:-1], gone), complete=False)
    assert "\n- N=65536: not run (it needs more memory)\n" in text
    assert rows(text)[-1][0] == "N=16384"
    assert "cases were left out" in text


def test_metrics_come_with_units_and_meanings_and_the_class_with_its_reason() -> None:
    """The metrics of the class and no others."""
    text = planner(found=findings("one_kernel"))
    found = findings("one_kernel")
    assert found.bottleneck is Bottleneck.LATENCY
    assert "Neither the SMs nor the memory are above their limits" in text
    assert "(compute 30 %, DRAM 30 %, memory 30 % (paper))" in text
    for name, value in found.metrics.items():
        metric = load().metrics[name]
        assert f"\n- {name}: {value:.4g} {metric.unit} ({metric.meaning})\n" in text
    assert text.count("\n- ") == text.split("## Its result")[0].count("\n- ") + len(found.metrics)


@pytest.mark.parametrize("kind", Bottleneck)
def test_every_class_has_words(kind: Bottleneck) -> None:
    told = Findings("c0ffee", "a profile", kind, "a_kernel_optimized", 1.0, {"A": 1.0}, {}, "limits")
    assert re.search(r"above .*\(limits\)\.\n", render("_profile.md.j2", findings=told))


def test_without_the_filter_every_metric_of_every_kernel_is_told_at_every_case() -> None:
    """All of table 6 that this ncu gave, with units."""
    text = planner(found=findings("all_sections", full=True, cases=("N=65536", "N=256")))
    for case in ("N=65536", "N=256"):
        for name in ("merge_runs_kernel_optimized", "sort_tiles_kernel_optimized"):
            part = text.split(f"Case {case}, kernel `{name}`: ")[1].split("\n\n")[1]
            assert len(part.splitlines()) == 22  # of 24, two of which this version does not have
            assert "- Warp Cycles Per Issued Instruction: " in part
            assert all(re.fullmatch(r"- [\w/() ]+: \S+ (%|warp|cycle|inst/cycle)", line) for line in part.splitlines())


def test_the_planner_is_told_of_the_device_what_a_kernel_depends_on() -> None:
    """Figures as the device gave them, without those of its driver and its power supply."""
    system, _ = asked(Role.PLANNER, best("sorting", "fp32"), verdict("sorting", "fp32"))
    assert "NVIDIA H200" in system
    assert "- memory clock: 3201 MHz" in system
    assert "580.159.04" not in system
    assert "power" not in system


def test_no_prompt_of_another_role_holds_times_or_profiles() -> None:
    """Coder and Compiler carry out a plan: they get task, code and plan."""
    for role in (Role.CODER, Role.COMPILER):
        _, user = asked(role, best("sorting", "fp32"), verdict("sorting", "fp32"), findings("one_kernel"))
        assert rows(user) == []
        assert "L2 Hit Rate" not in user
        assert "the Planner's" in user
