"""Holds `report --compare` to what two measurements at different times can say."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from report_runs import H200, runs
from scored_results import CPU, FULL, SINGLE, report, scored
from search_stand_ins import HARDWARE

from cudamaster.cli import main
from cudamaster.core.errors import UsageError
from cudamaster.core.speed import Change, Interval, overall
from cudamaster.core.values import Precision, Role, Status
from cudamaster.report import tables
from cudamaster.report.comparing import Step, compare
from cudamaster.report.data import CaseResult, Kernel, Report, RunProgress, TaskResult
from cudamaster.tasks.cards import MSKERNELBENCH


def step(first: TaskResult, second: TaskResult) -> Step:
    """What B changed in one task; the two are not the very same run."""
    (one,) = compare(report(first), report(replace(second, origin="elsewhere"))).steps
    return one


def test_what_got_better_worse_or_stayed() -> None:
    """Sure differences beyond the margin are changes, in both directions alike."""
    assert step(scored("a", 2.0), scored("a", 3.0)).change is Change.FASTER
    assert step(scored("a", 3.0), scored("a", 2.0)).change is Change.SLOWER
    assert step(scored("a", 2.0), scored("a", 2.01)).change is Change.SAME
    assert step(scored("a", 2.0, reach=0.5), scored("a", 2.2, reach=0.5)).change is Change.UNSURE


def test_a_task_is_held_against_that_of_its_own_suite() -> None:
    """Of two suites with one name, that of the same folder; a suite whose folder moved is the same one."""
    own, moved = {"suite": "mine", "folder": "/x"}, {"suite": "mine", "folder": "/y"}
    first = report(scored("a", 2.0), scored("a", 3.0, **own))
    found = compare(first, report(scored("a", 3.0), scored("a", 2.0, **moved)))
    assert [(one.suite, one.change) for one in found.steps] == [
        (MSKERNELBENCH, Change.FASTER), ("mine", Change.SLOWER),
    ]  # fmt: skip
    assert {row[0] for row in tables.steps(found).rows} == {"a_fp32 of MSKernelBench", "a_fp32 of mine"}
    apart = [scored("a", 2.0, suite="mine in /x", folder="/x"), scored("a", 4.0, suite="mine in /y", folder="/y")]
    found = compare(report(*apart), report(scored("a", 4.0, **moved)))
    assert [(one.suite, one.change) for one in found.steps] == [("mine in /y", Change.SAME)]
    assert found.only_first == ("a_fp32 of mine in /x",)
    old = report(scored("other", 2.0))  # of a record that says no suite
    assert compare(old, report(scored("other", 3.0, **own))).steps[0].change is Change.FASTER


def test_ratio_and_interval() -> None:
    """The ratio's ends are as far off, on the log scale, as both ends that make them, added in squares."""
    found = step(scored("a", 2.0, reach=0.03), scored("a", 3.0, reach=0.04))
    assert found.ratio == pytest.approx(1.5)
    assert found.interval is not None
    reach = math.hypot(math.log(1.03), math.log(1.04))
    assert found.interval.low == pytest.approx(1.5 * math.exp(-reach))
    assert found.interval.high == pytest.approx(1.5 * math.exp(reach))


def test_a_difference_that_two_processes_may_make_is_none() -> None:
    """Calls of 10 µs: 5 % is within what the host's clock differs by; calls of 1000 µs: it is a change."""
    short = [replace(scored("a", p, reach=0.001), cases=(timed(10.0, p),)) for p in (2.0, 2.1)]
    long = [replace(scored("a", p, reach=0.001), cases=(timed(1000.0, p),)) for p in (2.0, 2.1)]
    assert step(*short).change is Change.SAME
    assert step(*long).change is Change.FASTER


def timed(baseline_us: float, p: float) -> CaseResult:
    return CaseResult("N=8", {}, 8.0, Status.CORRECT, None, baseline_us, baseline_us / p, p)


def test_the_baseline_is_what_one_holds_where_nothing_was_faster() -> None:
    """It is 1 for sure: a first faster kernel is a change, and so is its loss; two kept baselines are the same."""
    slow, none, fast = scored("a", 0.5), scored("a", None), scored("a", 2.0)
    assert step(slow, fast).change is Change.FASTER
    assert step(fast, slow).change is Change.SLOWER
    lost = step(fast, none)
    assert (lost.change, lost.second.score) == (Change.SLOWER, 1.0)
    assert lost.why == "B kept the baseline, and made no correct kernel"
    same = step(slow, none)
    assert (same.change, same.ratio) == (Change.SAME, None)
    assert "A alone made a correct kernel" in same.why


def test_a_faster_kernel_counts_before_the_run_took_it() -> None:
    """Where a run was stopped in between: it is what the report has P of."""
    cut = scored("a", 2.0, progress=RunProgress.STOPPED, improved=False)
    found = step(cut, scored("a", 2.0))
    assert (found.change, found.first.score, found.first.kernel) == (Change.SAME, 2.0, "a2.0")
    assert step(scored("a", 1.0), cut).change is Change.FASTER


def test_a_score_without_an_interval_is_unsure() -> None:
    assert step(replace(scored("a", 2.0), speed=None), scored("a", 9.0)).change is Change.UNSURE


def test_an_interval_that_knows_nothing_is_unsure() -> None:
    wide = scored("a", 9.0)
    assert wide.speed is not None
    wide = replace(wide, speed=replace(wide.speed, interval=Interval(0.0, math.inf)))
    assert step(scored("a", 2.0), wide).change is Change.UNSURE


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"hardware": replace(H200, name="A100")}, "another GPU"),
        ({"baseline": Kernel("another", "", "")}, "another baseline"),
        ({"cases": (timed(1000.0, 9.0), replace(timed(1.0, 9.0), label="N=9"))}, "not the same sizes"),
        ({"cases": (replace(timed(1000.0, 9.0), weight=9.0),)}, "not the same sizes and weights"),
    ],
)
def test_what_is_no_measure_of_the_same_is_unsure(changed: dict[str, object], why: str) -> None:
    found = step(scored("a", 2.0, baseline=Kernel("base", "", "")), scored("a", 9.0, **changed))
    assert (found.change, found.ratio) == (Change.UNSURE, None)
    assert why in found.why


def test_another_card_of_the_same_sizes_is_told() -> None:
    """A card's text may change without what is timed."""
    found = step(scored("a", 2.0), scored("a", 9.0, card_hash="another"))
    assert (found.change, found.why) == (Change.FASTER, "another task card")


def test_emulated_times_say_nothing() -> None:
    """But which side has a correct kernel is shown."""
    found = step(scored("a", 2.0, hardware=CPU), scored("a", 9.0, hardware=CPU))
    assert (found.change, found.ratio) == (Change.UNSURE, None)
    assert "A alone made a correct kernel" in step(scored("a", 2.0, hardware=CPU), scored("a", None, hardware=CPU)).why


def test_repeated_runs_have_to_differ_by_more_than_between_them() -> None:
    """The middle run stands for a task, within the intervals of all."""
    first = report(*(scored("a", p, repetition=n) for n, p in enumerate((1.8, 2.0, 4.0), 1)))
    second = report(*(scored("a", p, repetition=n, origin=f"b{n}") for n, p in enumerate((2.9, 3.0, 3.1), 1)))
    (found,) = compare(first, second).steps
    assert (found.first.runs, found.first.score, found.second.score) == (3, 2.0, 3.0)
    assert found.change is Change.UNSURE


@pytest.mark.slow
def test_two_runs_of_one_kernel_are_hardly_ever_told_apart() -> None:
    """Samples with noise, an offset for each process and outliers, seeded: of 300 pairs none gets a false verdict."""
    draw = random.Random(11)
    verdicts = [step(measured(draw, 2.0), measured(draw, 2.0)).change for _ in range(300)]
    assert {verdict for verdict in verdicts if verdict in (Change.FASTER, Change.SLOWER)} == set()
    assert verdicts.count(Change.SAME) > 250


def test_a_tenth_faster_is_seen() -> None:
    draw = random.Random(12)
    assert [step(measured(draw, 2.0), measured(draw, 2.2)).change for _ in range(100)].count(Change.FASTER) > 90


def measured(draw: random.Random, p: float) -> TaskResult:
    """A run as it is measured: 50 turns of calls of 200 and 50 µs, each process off by up to 0.29 µs."""
    cases = []
    for weight, us in ((1.0, 50.0), (4.0, 200.0)):
        offsets = [draw.uniform(-0.29, 0.29) for _ in range(2)]
        sides = [
            [us / part * draw.lognormvariate(0, 0.01) * (3 if draw.random() < 0.02 else 1) + offset for _ in range(50)]
            for part, offset in zip((1.0, p), offsets, strict=True)
        ]
        cases.append((weight, *sides))
    speed = overall(cases)
    told_cases = tuple(timed(us, p) for us in (50.0, 200.0))
    return replace(scored("a", p), score=speed.speedup, speed=speed, cases=told_cases)


@pytest.mark.parametrize("changed", [{"started": "2026-02-02"}, {"progress": RunProgress.STOPPED}])
def test_a_folder_of_the_same_name_may_hold_another_measurement(changed: dict[str, object]) -> None:
    """Reports outlive their runs: the folder was used again, or its run went on. Else it is the very same run."""
    first = scored("a", 2.0, **changed)
    (found,) = compare(report(first), report(scored("a", 3.0))).steps
    assert (found.change, found.ratio) == (Change.FASTER, pytest.approx(1.5))
    (same,) = compare(report(first), report(first)).steps
    assert (same.change, same.why) == (Change.SAME, "the very same run")


# ---- all tasks together


def test_one_task_that_got_slower_makes_the_whole_slower() -> None:
    first = report(scored("a", 2.0), scored("b", 2.0), scored("c", 2.0))

    def whole(*scores: float, reach: float = 0.01) -> Change:
        second = (scored(name, p, reach, origin="x") for name, p in zip("abc", scores, strict=False))
        return compare(first, report(*second)).change

    assert whole(3.0, 2.0, 1.5) is Change.SLOWER
    assert whole(3.0, 2.0, 2.0) is Change.FASTER
    assert whole(2.0, 2.0, 2.0) is Change.SAME
    assert whole(2.0, 2.0, 2.1, reach=0.9) is Change.UNSURE
    assert whole(2.0, 2.0) is Change.UNSURE  # c is lost
    assert whole(3.0, 2.0) is Change.UNSURE  # whatever else got faster
    assert whole(1.5, 2.0) is Change.SLOWER


def test_tasks_of_one_side_alone_are_named() -> None:
    first, second = report(scored("a", 2.0), scored("b", 2.0)), report(scored("a", 4.0, origin="x"), scored("c", 2.0))
    found = compare(first, second)
    assert (found.only_first, found.only_second) == (("b_fp32",), ("c_fp32",))
    assert found.geometric_mean == pytest.approx(2.0)


def test_precisions_are_tasks_of_their_own() -> None:
    first = report(scored("a", 2.0))
    with pytest.raises(UsageError, match="no task in common"):
        compare(first, report(scored("a", 2.0, precision=Precision.BF16)))


def test_a_side_with_two_searches_is_refused() -> None:
    """It is unknown which of them is meant."""
    mixed = report(scored("a", 2.0), scored("b", 2.0, configuration=SINGLE))
    with pytest.raises(UsageError, match="results of 2 searches"):
        compare(report(scored("a", 2.0)), mixed)


def test_another_model_and_configuration_may_be_compared_and_are_told() -> None:
    second = scored("a", 3.0, models={Role.CODER: "another"}, configuration=SINGLE, origin="x")
    found = compare(report(scored("a", 2.0)), report(second))
    assert found.steps[0].change is Change.FASTER
    assert found.notes == (
        "Model: some/model in A, another in B.",
        f"Configuration: {FULL.described} in A, {SINGLE.described} in B.",
    )


def test_emulated_results_beside_measured_ones_are_left_out() -> None:
    first: Report = report(scored("a", 2.0), scored("a", 50.0, hardware=CPU))
    assert compare(first, report(scored("a", 3.0, origin="x"))).steps[0].change is Change.FASTER


# ---- the command


def cli(*arguments: object) -> tuple[int, str]:
    told = CliRunner().invoke(main, ["report", "--compare", *map(str, arguments)])
    assert told.exception is None or isinstance(told.exception, SystemExit), told.exception
    return told.exit_code, told.output


def test_the_codes_of_the_command(tmp_path: Path) -> None:
    """0, 10, 11, 12 as documented, by runs on disk; the help names all four."""
    a = runs(tmp_path / "a", {"gelu": (2.0,), "relu": (2.0,)})
    b = runs(tmp_path / "b", {"gelu": (2.0,), "relu": (3.0,)})
    cpu = runs(tmp_path / "cpu", {"gelu": (2.0,)}, hardware=HARDWARE)
    assert cli(a, a)[0] == 0
    code, text = cli(a, b)
    assert code == 10
    assert "From A to B: 1 FASTER, 1 SAME, 0 SLOWER, 0 UNSURE; all together FASTER." in text
    assert cli(b, a)[0] == 11
    assert cli(cpu, cpu)[0] == 12
    help_text = CliRunner().invoke(main, ["report", "--help"]).output
    for code in (0, 10, 11, 12):
        assert f"\n    {code:<3} " in help_text or f"\n  {code:<3} " in help_text


def test_json_of_a_comparison(tmp_path: Path) -> None:
    a = runs(tmp_path / "a", {"gelu": (2.0,)})
    b = runs(tmp_path / "b", {"gelu": (3.0,)})
    code, text = cli(a, b, "--json")
    assert (code, json.loads(text)["change"], json.loads(text)["steps"][0]["task"]) == (10, "faster", "gelu")


def test_wrong_use_of_the_command(tmp_path: Path) -> None:
    """One side, files to write, and a side without a result."""
    a = runs(tmp_path / "a", {"gelu": (2.0,)})
    (tmp_path / "empty").mkdir()
    assert cli(a)[0] == 2
    assert cli(a, a, "--csv", tmp_path / "x.csv")[0] == 2
    assert cli(a, tmp_path / "empty")[0] == 6
