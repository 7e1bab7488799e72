"""Holds a report's numbers to their definitions, and tables, CSV, JSON and the command to the numbers."""

from __future__ import annotations

import csv
import io
import json
import random
import statistics
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from report_runs import H200, run, runs, script
from scored_results import CPU, FULL, MODELLED, SINGLE, change, report, scored, view
from search_stand_ins import HARDWARE

from cudamaster.cli import main
from cudamaster.core.values import Bottleneck, Precision, Role
from cudamaster.report import tables
from cudamaster.report.data import Cost, Missing, RunProgress
from cudamaster.report.export import COLUMNS, as_csv, as_json
from cudamaster.report.headline import headline
from cudamaster.report.loading import load
from cudamaster.report.numbers import TAUS, curve, groups, point, quartiles, spread

LATENCY, BANDWIDTH, COMPUTE = Bottleneck.LATENCY, Bottleneck.BANDWIDTH, Bottleneck.COMPUTE


# ---- cumulative success


def test_a_threshold_has_to_be_exceeded() -> None:
    """P = tau is none; no correct kernel counts against every tau; a slow correct one counts at 0."""
    results = [scored("a", 2.0), scored("b", 1.0), scored("c", None), scored("d", 0.5)]
    shares = {tau: point(results, tau).share for tau in (0.0, 0.5, 0.9, 1.0, 1.9, 2.0, 8.0)}
    assert shares == {0.0: 0.75, 0.5: 0.5, 0.9: 0.5, 1.0: 0.25, 1.9: 0.25, 2.0: 0.0, 8.0: 0.0}


def test_a_correct_kernel_without_a_trusted_score_is_correct_and_no_more() -> None:
    results = [replace(scored("a", 2.0), score=None, speed=None)]
    assert [point(results, tau).share for tau in TAUS] == [1, 0, 0, 0, 0]


def test_a_score_that_is_no_number_exceeds_nothing() -> None:
    results = [replace(scored("a", 2.0), score=float("nan"))]
    assert [point(results, tau).share for tau in TAUS] == [1, 0, 0, 0, 0]
    assert [one.tau for one in curve(results)] == [0.0]
    assert spread(results) is None


def test_the_curve_is_the_definition_at_every_tau() -> None:
    """Drawn at random: at any tau the last point at or before it has the share that counting gives."""
    draw = random.Random(5)
    for _ in range(50):
        scores = [draw.choice([None, 1.0, 2.0, round(draw.uniform(0.1, 20), 1)]) for _ in range(draw.randint(1, 12))]
        results = [scored(f"t{n}", score) for n, score in enumerate(scores)]
        points = curve(results)
        for tau in (0.0, 0.05, 1.0, 2.0, 3.3, 7.9, 8.0, 25.0, *(score for score in scores if score)):
            share = [one.share for one in points if one.tau <= tau][-1]
            by_hand = [score is not None and (tau == 0 or score > tau) for score in scores]
            assert share == sum(by_hand) / len(scores)


def test_repeated_runs_share_a_tasks_vote_and_give_a_spread() -> None:
    """Two repetitions, of which one exceeds: half a vote, and the shares of both repetitions as the ends."""
    results = [
        scored("a", 3.0), scored("a", 0.5, repetition=2),
        scored("b", 3.0), scored("b", 4.0, repetition=2),
    ]  # fmt: skip
    found = point(results, 1.0)
    assert (found.tasks, found.exceeding, found.share, found.low, found.high) == (2, 1.5, 0.75, 0.5, 1.0)
    assert point(results[:1], 1.0).low is None


def test_a_task_that_was_run_once_is_in_every_repetition() -> None:
    results = [scored("a", 3.0), scored("a", 0.5, repetition=2), scored("b", 3.0)]
    found = point(results, 1.0)
    assert (found.share, found.low, found.high) == (0.75, 0.5, 1.0)


def test_groups_keep_apart_what_is_no_one_search() -> None:
    """Models, configurations, GPUs, precisions and emulation each make a group; pooling takes precisions together."""
    results = [
        scored("a", 2.0),
        scored("a", 2.0, precision=Precision.BF16),
        scored("a", 2.0, models={Role.CODER: "another"}),
        scored("a", 2.0, configuration=SINGLE),
        scored("a", 2.0, hardware=replace(H200, name="A100")),
        scored("a", 2.0, hardware=CPU),
    ]
    assert len(groups(report(*results))) == 6
    assert [len(group.results) for group in groups(report(*results), pooled=True)].count(2) == 1


def test_what_one_configuration_lacks_is_missing_there() -> None:
    both = report(scored("a", 2.0), scored("b", 2.0), scored("a", 2.0, configuration=SINGLE))
    lacks = {group.configuration.rounds: [one.name for one in group.missing] for group in groups(both)}
    assert lacks == {3: [], 1: ["b_fp32"]}
    expected = report(scored("a", 2.0), missing=(Missing("c", Precision.FP32, "llm", "not reached", False),))
    assert [one.name for one in groups(expected)[0].missing] == ["c_fp32"]
    of_the_cpu = report(scored("a", 2.0), missing=(Missing("c", Precision.FP32, "llm", "not reached", True),))
    assert groups(of_the_cpu)[0].missing == ()


# ---- spreads, costs, classes


def test_a_spread_by_hand() -> None:
    """Over the tasks with a P, but shares of all tasks: fast_p at 1 and 2 is cumulative success there."""
    results = [scored("a", 1.005), scored("b", 2.0), scored("c", 4.0), scored("d", 8.0), scored("e", None)]
    found = spread(results)
    assert found is not None
    assert (found.tasks, found.scored) == (5, 4)
    assert found.mean == pytest.approx(15.005 / 4)
    assert found.geometric_mean == pytest.approx((1.005 * 64) ** 0.25)
    assert (found.maximum, found.minimum, found.median) == (8.0, 1.005, 3.0)
    assert (found.lower_quartile, found.upper_quartile) == (pytest.approx(1.75125), 5.0)
    assert found.meaningful == 0.6
    assert found.fast_p == {0.0: 0.8, 0.5: 0.8, 0.8: 0.8, 1.0: 0.8, 1.5: 0.6, 2.0: 0.4}
    results.append(scored("a", 1.0, repetition=2))  # whose runs share its vote in both
    found = spread(results)
    assert found is not None
    assert [found.fast_p[tau] for tau in (0.0, 1.0, 2.0)] == [point(results, tau).share for tau in (0.0, 1.0, 2.0)]


def test_of_repeated_runs_the_middle_one_stands_for_the_task() -> None:
    results = [scored("a", score, repetition=n) for n, score in enumerate((9.0, 2.0, 3.0), 1)]
    found = spread(results)
    assert found is not None
    assert (found.scored, found.maximum) == (1, 3.0)
    assert spread([scored("a", None), scored("a", 5.0, repetition=2)]) is None  # of two, the lower


def test_quartiles_of_few() -> None:
    assert quartiles([3.0]) == (3.0, 3.0, 3.0)
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 3.0, 4.0)


def test_unknown_costs_are_told_and_not_averaged_as_zero() -> None:
    results = [
        scored("a", 2.0),
        scored("b", 2.0, cost=Cost(2, None, 5, 0, None, 4.0, None)),
        scored("c", 2.0, cost=Cost()),
    ]
    (group,) = groups(report(*results))
    dollars, tokens, minutes = group.costs.dollars, group.costs.tokens, group.costs.minutes
    assert (dollars.mean, dollars.total, dollars.known, dollars.of) == (0.5, 0.5, 1, 3)
    assert (tokens.mean, tokens.known) == (150, 1)
    assert (minutes.mean, minutes.known) == (3.0, 2)
    (nothing,) = groups(report(scored("a", 2.0, cost=Cost())))
    assert nothing.costs.dollars.mean is None
    cost = tables.overview(report(*results))[2]
    assert cost.rows[0][2] == "0.5000 (of 1, unknown of 2)"


def test_classes_before_and_after() -> None:
    """Migrations count tasks, a kept baseline keeps its class, an unknown class is counted as that."""
    results = [
        scored("a", 2.0, before=view(LATENCY), after=view(BANDWIDTH), changes=(change(10, 30),)),
        scored("b", 2.0, before=view(LATENCY), after=view(BANDWIDTH), changes=(change(10, 20),)),
        scored("c", 2.0, before=view(LATENCY), after=view(LATENCY), category="llm", changes=(change(0, 20),)),
        scored("d", 0.5, before=view(COMPUTE), after=view(BANDWIDTH)),
        scored("e", 2.0, before=view(None), after=view(BANDWIDTH)),
        scored("f", 2.0),
    ]
    (group,) = groups(report(*results))
    found = group.classes
    assert found.migrations == {(LATENCY, BANDWIDTH): 2, (LATENCY, LATENCY): 1, (COMPUTE, COMPUTE): 1}
    assert found.unknown == 2
    assert found.by_category == {LATENCY: {"dense": 2, "llm": 1}, COMPUTE: {"dense": 1}}
    (metric,) = found.metrics
    assert (metric.bottleneck, metric.metric, metric.tasks, metric.mean) == (LATENCY, "Mem Busy", 2, 1.5)
    assert metric.deviation == pytest.approx(statistics.stdev([2.0, 1.0]))
    categories, matrix, metrics = tables.classes(report(*results))
    assert (categories.columns, categories.rows) == (
        ("baseline is", "tasks", "dense", "llm"),
        (
            ("compute bound", "1", "1", "0"),
            ("memory latency bound", "3", "2", "1"),
            ("memory bandwidth bound", "0", "0", "0"),
        ),
    )
    assert dict(zip(matrix.columns[1:], matrix.rows[list(Bottleneck).index(LATENCY)][1:], strict=True)) == {
        "compute bound": "0", "memory latency bound": "1", "memory bandwidth bound": "2"
    }  # fmt: skip
    assert metrics.rows[0][:4] == ("memory latency bound", "Mem Busy", "2", "+150%")


# ---- words and tables


def test_the_headline_says_what_came_of_it() -> None:
    results = [scored("a", 3.0), scored("b", 1.05, reach=0.2), scored("c", None), scored("d", 0.9)]
    found = report(*results, missing=(Missing("x", Precision.FP32, "llm", "", False),))
    (sentence,) = headline(replace(found, benchmark={**found.benchmark, "x": "llm"}))
    assert sentence.startswith(
        "1 of 4 FP32 tasks certainly got faster on NVIDIA H200 (some/model; cudamaster, R = 3, D"
    )
    assert ", 2 have a P above 1." in sentence
    assert "P is 1.05 in the median" in sentence
    assert "1 without a correct kernel, 1 missing." in sentence


def test_tasks_that_are_none_of_the_benchmark_have_no_part_in_its_numbers() -> None:
    """They are a group of their own, of which nothing of the benchmark is missing, nor the other way round."""
    own = scored("mine", 9.0, configuration=replace(FULL, described=f"{FULL.described}, tasks of one's own"))
    found = report(scored("a", 3.0), own, missing=(Missing("theirs", Precision.FP32, "llm", "", False),))
    of_benchmark, of_ones_own = groups(found)
    assert (of_benchmark.tasks, of_benchmark.of_benchmark, of_benchmark.missing) == (1, 4, ())
    assert (of_ones_own.tasks, of_ones_own.of_benchmark) == (1, 1)
    assert [one.name for one in of_ones_own.missing] == ["theirs_fp32"]


def test_the_headline_has_no_speedup_of_the_cpu_device() -> None:
    (sentence,) = headline(report(scored("a", 333.0, hardware=CPU)))
    assert "333" not in sentence
    assert "no speedups" in sentence


def test_no_results_have_a_headline_too() -> None:
    assert headline(report()) == ("There are no results.",)


def test_tables_in_the_form_of_the_papers() -> None:
    """One line a configuration and precision, and one for both precisions; thresholds as columns."""
    results = [
        scored("a", 9.0), scored("b", 3.0), scored("a", None, precision=Precision.BF16),
        scored("a", 1.5, configuration=SINGLE),
    ]  # fmt: skip
    success = tables.overview(report(*results))[0]
    assert success.note.startswith("some/model. Share")
    lines = {row[:2]: row[2:] for row in success.rows}
    assert lines[FULL.described, "fp32"] == ("2 of 4", "100%", "100%", "100%", "50%", "50%", "-")
    assert lines[FULL.described, "both"][:3] == ("3 of 8", "67%", "67%")
    assert lines[SINGLE.described, "fp32"] == ("1 of 4", "100%", "100%", "0%", "0%", "0%", "1 missing")
    assert success.columns[3:8] == ("correct", "P > 1", "P > 2", "P > 4", "P > 8")


def test_partial_and_incomplete_results_are_told_in_the_table() -> None:
    results = [scored("a", 2.0, progress=RunProgress.STOPPED), scored("b", 2.0, complete=False)]
    assert tables.overview(report(*results))[0].rows[0][-1] == "1 partial, 1 without all sizes"
    (listed,) = tables.tasks(report(*results))
    assert [row[3] for row in listed.rows] == ["correct, stopped", "correct, incomplete"]


def test_a_faster_kernel_that_a_stopped_run_had_not_taken_yet_is_no_kept_baseline() -> None:
    """Its profile was not finished: the class after is unknown, and not that of the baseline."""
    cut = {"progress": RunProgress.STOPPED, "improved": False, "before": view(LATENCY)}
    results = report(scored("a", 53.0, **cut), scored("b", 0.9, **cut))
    (group,) = groups(results)
    assert (dict(group.classes.migrations), group.classes.unknown) == ({(LATENCY, LATENCY): 1}, 1)
    (listed,) = tables.tasks(results)
    assert [row[5] for row in listed.rows] == ["memory latency → ?", "memory latency"]
    lines = list(csv.DictReader(io.StringIO(as_csv(results))))
    assert [line["class_after"] for line in lines] == ["", "memory latency bound"]


def test_a_mean_over_next_to_nothing_is_no_percentage() -> None:
    """One task of which a metric was 0.0001 before would make a mean of thousands of percent."""
    results = [
        scored("a", 2.0, before=view(LATENCY), after=view(LATENCY), changes=(change(0.0001, 30),)),
        scored("b", 2.0, before=view(LATENCY), after=view(LATENCY), changes=(change(10, 5),)),
        scored("c", 2.0, before=view(LATENCY), after=view(LATENCY), changes=(change(10, 10),)),
    ]
    metrics = tables.classes(report(*results))[-1]
    ((*_, mean, deviation, median, quartiles),) = metrics.rows
    assert (mean, deviation, median) == ("> 10 x", "-", "+0%")
    assert quartiles.endswith("to > 10 x")
    assert "close to nothing" in metrics.note


def test_what_is_missing_is_counted_as_it_is_listed() -> None:
    """Also in a precision of which nothing has a result: four and one are five."""
    lost = [Missing(task, Precision.FP32, "dense", "not reached") for task in ("c", "d", "e", "f")]
    lost.append(Missing("a", Precision.BF16, "dense", "not reached"))
    benchmark = dict.fromkeys("abcdef", "dense")
    found = replace(report(scored("a", 2.0), scored("b", 2.0)), missing=tuple(lost), benchmark=benchmark)
    (pooled,) = groups(found, pooled=True)
    sentences = headline(found)
    assert len(pooled.missing) == 5
    assert "4 missing" in sentences[0]
    assert "In BF16 1 task is missing, and there is no result." in sentences
    assert not any("there is no result" in one for one in headline(replace(found, missing=tuple(lost[:4]))))


def test_emulated_tables_stand_apart_and_have_correctness_alone() -> None:
    both = report(scored("a", 2.0), scored("b", 77.0, hardware=CPU))
    measured, spreads, _, emulated, cost = tables.overview(both)
    assert (measured.title, emulated.title) == ("Success on NVIDIA H200", "Success on CPU")
    assert emulated.columns == ("precision", "tasks", "correct", "incomplete")
    assert "device seconds" in cost.columns
    assert not any("77" in cell for table in (measured, spreads, emulated) for row in table.rows for cell in row)
    assert [table.title for table in tables.tasks(both)] == ["Tasks on NVIDIA H200", "Tasks on CPU"]
    assert "P (emulated)" in tables.tasks(both)[1].columns


def test_modelled_tables_stand_apart_with_the_models_error() -> None:
    """P is only in its own list, marked; it is in no threshold, mean or class table."""
    both = report(scored("a", 2.0), scored("b", 77.0, hardware=MODELLED), scored("c", 5.5, hardware=CPU))
    overview = tables.overview(both)
    assert not any("77" in cell for table in overview for row in table.rows for cell in row)
    assert any("modelled times make no speedup" in table.note for table in overview)
    (modelled,) = [table for table in tables.tasks(both) if table.title == "Tasks on CPU with a model"]
    assert "P (modelled)" in modelled.columns
    assert modelled.rows[0][1] == "77.0"
    assert "gpu-model v1 of an NVIDIA H200; 9 of 10 speedups within a factor of 1.25" in modelled.note
    lines = {line["task"]: line for line in csv.DictReader(io.StringIO(as_csv(both)))}
    told_in = [lines["b"][name] for name in ("p", "p_low", "p_emulated", "p_modelled")]
    assert told_in == ["", "", "", "77.0"]
    assert "gpu-model v1" in lines["b"]["gpu_model"]
    assert (lines["c"]["p_emulated"], lines["c"]["p_modelled"]) == ("5.5", "")


# ---- for programs


def test_csv_has_a_line_for_each_result_and_each_missing_task() -> None:
    results = report(
        scored("a", 2.0, idea='=HYPERLINK("x"),\n"quoted"'),
        scored("b", 5.0, hardware=CPU),
        scored("c", None),
        missing=(Missing("d", Precision.BF16, "llm", "not reached"),),
    )
    lines = list(csv.DictReader(io.StringIO(as_csv(results))))
    assert [tuple(line) for line in lines] == [COLUMNS] * 4
    a, b, c, d = lines
    assert (a["task"], a["p"], a["change"], a["correct"], a["dollars"]) == ("a", "2.0", "faster", "yes", "0.5")
    assert a["best_idea"] == '\'=HYPERLINK("x"),\n"quoted"'
    assert (b["emulated"], b["p"], b["p_low"], b["p_emulated"]) == ("yes", "", "", "5.0")
    assert (c["status"], c["correct"], c["p"]) == ("wrong", "no", "")
    assert (d["task"], d["progress"], d["status"], d["remarks"]) == ("d", "missing", "", "not reached")


def test_json_has_everything() -> None:
    """It survives strict JSON, holds every result, and groups point into them."""
    results = report(
        scored("a", 2.0, before=view(LATENCY), after=view(BANDWIDTH)),
        scored("b", None, speed=None),
        scored("a", float("inf"), precision=Precision.BF16),
    )
    text = json.dumps(as_json(results), allow_nan=False)
    read = json.loads(text)
    assert [one["task"] for one in read["results"]] == ["a", "b", "a"]
    by_precision = {group["precision"]: group for group in read["groups"]}
    assert sorted(by_precision["fp32"]["results"]) == [0, 1]
    assert sorted(by_precision[None]["results"]) == [0, 1, 2]
    assert [one["share"] for one in by_precision["fp32"]["success"]] == [0.5, 0.5, 0.0, 0.0, 0.0]
    assert by_precision["fp32"]["classes"]["migrations"] == [
        {"before": "memory latency bound", "after": "memory bandwidth bound", "tasks": 1}
    ]


# ---- the command


def cli(*arguments: object) -> tuple[int, str]:
    told = CliRunner().invoke(main, ["report", *map(str, arguments)])
    assert told.exception is None or isinstance(told.exception, SystemExit), told.exception
    return told.exit_code, told.output


def test_the_command_tells_a_headline_tables_and_what_is_wrong(tmp_path: Path) -> None:
    runs(tmp_path / "gpu", {"gelu": (2.0, 3.0), "relu": ("wrong", "wrong")})
    runs(tmp_path / "cpu", {"selu": (7.77,)}, hardware=HARDWARE)
    run(tmp_path / "partial", "elu", outcomes=(2.0, 2.0), replies=script(1.5))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    code, text = cli(tmp_path)
    assert code == 0
    assert text.startswith(
        "2 of 3 FP32 tasks certainly got faster on NVIDIA H200 (scripted; cudamaster, R = 2, D = 0, "
    )
    for part in (
        "Success on NVIDIA H200", "P on NVIDIA H200", "Cost per task on NVIDIA H200", "Success on Stand-in device",
        "Classes before and after", "Relative changes of metrics", "Left out", "broken/run.json is damaged",
        "partial is partial", "7.77",
    ):  # fmt: skip
        assert part in text, part
    assert text.count("7.77") == 1  # in the list of emulated tasks


def test_the_command_writes_csv_and_json(tmp_path: Path) -> None:
    path = runs(tmp_path / "gpu", {"gelu": (2.0,), "relu": (4.0,)})
    code, text = cli(path, "--csv", tmp_path / "out.csv")
    assert (code, "Wrote" in text) == (0, True)
    lines = list(csv.DictReader((tmp_path / "out.csv").open(newline="")))
    assert [(line["task"], round(float(line["p"]), 1)) for line in lines] == [("gelu", 2.0), ("relu", 4.0)]
    code, text = cli(path, "--json")
    assert code == 0
    assert json.loads(text)["groups"][0]["tasks"] == 2
    assert json.loads(text)["results"][0]["best"]["code"].startswith("// correct 2.0")


def test_the_command_says_whether_it_drew_anything(tmp_path: Path) -> None:
    """Emulated times are in no figure."""
    measured = runs(tmp_path / "gpu", {"gelu": (2.0,)})
    emulated = runs(tmp_path / "cpu", {"gelu": (2.0,)}, hardware=HARDWARE)
    assert "Drew the figures into" in cli(measured, "--figures", tmp_path / "a")[1]
    code, text = cli(emulated, "--figures", tmp_path / "b")
    assert (code, "Drew" in text, "No figures" in text) == (0, False, True)


def test_a_file_that_cannot_be_written_is_wrong_usage(tmp_path: Path) -> None:
    path = runs(tmp_path / "gpu", {"gelu": (2.0,)})
    code, text = cli(path, "--csv", tmp_path / "no" / "where.csv")
    assert code == 2
    assert "cannot be written" in text


def test_many_tasks_are_cut_short_unless_all_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["cudamaster.cli.report"], "_FEW", 2)
    path = runs(tmp_path / "gpu", {"gelu": (2.0,), "relu": (4.0,), "selu": (3.0,)})
    code, text = cli(path)
    assert (code, "selu_fp32" in text, "1 more: --all" in text) == (0, False, True)
    assert "selu_fp32" in cli(path, "--all")[1]


def test_nothing_that_could_be_read_has_the_code_of_a_damaged_folder(tmp_path: Path) -> None:
    code, text = cli(tmp_path)
    assert (code, "holds no results" in text) == (6, True)
    assert cli(tmp_path / "nowhere")[0] == 2


def test_reading_changes_nothing(tmp_path: Path) -> None:
    """Every file of every folder stays as it is, byte by byte, and none is added."""
    path = runs(tmp_path / "gpu", {"gelu": (2.0,), "relu": (4.0,)})
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert load([path]).results
    cli(path, "--json")
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
