"""Holds the reading of results to what the folders say: runs, suites, folders kept on purpose, and folders of those."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import H200, SIZES, TimedBench, command, kernel, plan, run, runs, samples, script, settings
from search_stand_ins import COMMAND, HARDWARE, code

from cudamaster import cards, speed, vendor
from cudamaster import suite as suites
from cudamaster.budget import Budget, Limits
from cudamaster.errors import ModelError, UsageError
from cudamaster.optimization import optimize
from cudamaster.report.data import Progress, TaskResult
from cudamaster.report.export import as_json
from cudamaster.report.loading import load
from cudamaster.report.numbers import groups
from cudamaster.report.tables import authorities
from cudamaster.strategies.protocol import Observer
from cudamaster.strategies.result import Result
from cudamaster.suitefolder import Entry, SuiteFolder
from cudamaster.values import Bottleneck, Candidate, GpuModel, Precision, ProfileMode, Role, Status

ROOT = Path(__file__).parent.parent.parent
KEPT = ROOT / "tests" / "kept"  # results of an H200 in format 1


def only(path: Path) -> TaskResult:
    """The one result that a path holds."""
    (result,) = load([path]).results
    return result


def test_a_finished_run_in_full(tmp_path: Path) -> None:
    """P and its interval, the winner's idea, author, code, flags, sizes, classes, changes of metrics, and cost."""
    result = only(run(tmp_path / "run", outcomes=(2.0, "wrong", 3.0, 2.5)))
    assert (result.task, result.category, result.precision) == (
        "dot_product",
        cards.load("dot_product").category,
        "fp32",
    )
    assert (result.progress, result.status, result.correct, result.improved) == (
        Progress.FINISHED, Status.CORRECT, True, True
    )  # fmt: skip
    assert result.score == pytest.approx(3.0, rel=0.01)
    assert result.speed is not None
    assert result.speed.interval.low < 3.0 < result.speed.interval.high
    assert (result.idea, result.round, result.author) == ("idea 2", 3, "scripted")
    assert [told.idea for told in result.rounds] == [f"idea {n}" for n in range(4)]
    assert [told.status for told in result.rounds] == ["correct", "wrong", "correct", "correct"]
    assert [told.accepted for told in result.rounds] == [True, False, True, False]
    assert result.best is not None
    assert result.baseline is not None
    assert result.best.code.startswith("// correct 3.0")
    assert result.baseline.code.startswith("// correct 1.0")
    assert "+// correct 3.0 k2" in result.diff
    assert (result.flags_added, result.flags_removed) == (("--use_fast_math",), ())
    assert [(case.label, case.sizes, case.weight) for case in result.cases] == [
        (f"N={n}", {"N": n}, n) for n, _ in SIZES
    ]
    for case, (_, us) in zip(result.cases, SIZES, strict=True):
        assert case.baseline_us == pytest.approx(us, rel=0.01)
        assert case.candidate_us == pytest.approx(us / 3, rel=0.01)
        assert case.over_floor == pytest.approx(2.0, rel=0.02)
    assert result.before is not None
    assert result.after is not None
    assert (result.before.bottleneck, result.after.bottleneck) == (Bottleneck.LATENCY, Bottleneck.BANDWIDTH)
    assert result.after.throughputs is not None
    assert result.after.throughputs.dram == 60.0
    assert result.after.limits is not None
    assert (result.after.limits.compute, result.after.limits.source) == (30.0, "paper")
    assert result.changes
    assert all(
        change.relative == pytest.approx((change.after - change.before) / change.before) for change in result.changes
    )
    calls = len(script(2.0, "wrong", 3.0, 2.5))
    assert (result.cost.calls, result.cost.dollars, result.cost.tokens) == (calls, 0.25 * calls, 15 * calls)
    assert result.cost.minutes is not None
    assert (result.configuration.rounds, result.configuration.profile) == (4, ProfileMode.FILTERED)
    assert result.notes == ("a NOTE",)
    assert result.remarks == ()


def test_a_run_without_a_correct_kernel_has_no_p(tmp_path: Path) -> None:
    """The baseline is right and stays the best, and is no success of the run."""
    result = only(run(tmp_path / "run", outcomes=("wrong", "compile_error")))
    assert (result.correct, result.improved, result.score, result.best) == (False, False, None, None)
    assert result.status is Status.COMPILE_ERROR
    (group,) = groups(load([tmp_path]))
    assert [point.share for point in group.success] == [0, 0, 0, 0, 0]


def test_a_correct_kernel_that_is_slower_is_correct_and_no_more(tmp_path: Path) -> None:
    """P below 1 is told, the baseline stays, and the task is a success at 0 alone."""
    result = only(run(tmp_path / "run", outcomes=("wrong", 0.5, 0.7)))
    assert result.score == pytest.approx(0.7, rel=0.01)
    assert (result.correct, result.improved, result.idea) == (True, False, "idea 2")
    (group,) = groups(load([tmp_path]))
    assert [point.share for point in group.success] == [1, 0, 0, 0, 0]


def test_the_baseline_given_back_is_no_kernel_of_the_runs_own(tmp_path: Path) -> None:
    replies = [plan("nothing"), code(kernel(score=1.0, tag="baseline")), command(COMMAND)]
    result = only(run(tmp_path / "run", outcomes=(1.0,), replies=replies))
    assert (result.correct, result.score) == (False, None)


def test_a_jump_counts_with_the_lower_measurement_and_its_sizes(tmp_path: Path) -> None:
    """A score above 8 is measured again; sizes and P are of the same one of both."""
    result = only(run(tmp_path / "run", outcomes=(20.0,)))
    assert result.score == pytest.approx(20.0, rel=0.01)
    assert any("measured again" in note for note in result.notes)
    assert [case.speedup for case in result.cases] == pytest.approx([20.0] * 3, rel=0.01)


def test_unknown_prices_and_tokens_are_unknown(tmp_path: Path) -> None:
    """One call without a price makes the sum unknown, and never 0."""
    path = run(tmp_path / "run")
    exchange = path / "exchanges" / "0001_planner.json"
    from cudamaster.runfolder import write_record
    from cudamaster.runrecord import Exchange, decoded

    kept = decoded(Exchange, exchange)
    usage = replace(kept.reply.usage, dollars=None, prompt_tokens=None)
    write_record(exchange, replace(kept, reply=replace(kept.reply, usage=usage)))
    cost = only(path).cost
    assert (cost.dollars, cost.tokens, cost.prompt_tokens) == (None, None, None)
    assert cost.completion_tokens == 30
    (path / "sessions.json").unlink()
    assert (only(path).cost.minutes, only(path).cost.gpu_seconds) == (None, None)


def test_a_killed_run_is_reported_as_far_as_it_got(tmp_path: Path) -> None:
    """Its best so far counts and is called partial."""
    path = run(tmp_path / "run", outcomes=(2.0, 3.0), replies=script(2.0))
    report = load([path])
    (result,) = report.results
    assert result.progress is Progress.STOPPED
    assert "asking the planner agent (scripted)" in str(result.stopped_at)
    assert result.score == pytest.approx(2.0, rel=0.01)
    (problem,) = report.problems
    assert "partial" in problem.what
    assert not problem.serious
    assert groups(report)[0].partial == 1


def test_a_run_killed_before_its_first_kernel_is_missing_and_no_failure(tmp_path: Path) -> None:
    """It says nothing about the model: it counts for no tau and is named."""
    runs(tmp_path / "runs", {"gelu": (2.0, 2.0)})
    run(tmp_path / "runs" / "relu", "relu", outcomes=(2.0, 3.0), replies=[plan("x")])
    report = load([tmp_path / "runs"])
    assert [result.task for result in report.results] == ["gelu"]
    assert [(one.task, "was stopped before it had judged a kernel" in one.why) for one in report.missing] == [
        ("relu", True)
    ]
    (group,) = groups(report)
    assert (group.tasks, group.success[0].share) == (1, 1.0)
    assert [one.name for one in group.missing] == ["relu_fp32"]


def test_runs_of_one_search_are_repetitions_in_the_order_they_began(tmp_path: Path) -> None:
    """Other seeds repeat a search; another R, model, profile or GPU is another one."""
    for n, seed in enumerate((1, 2, 3)):
        run(tmp_path / f"{n}", search_seed=seed, seed=seed)
    others: list[dict[str, object]] = [
        {"outcomes": (2.0,)},
        {"model": "another"},
        {"profile": ProfileMode.NONE},
        {"jump_factor": 3.0},
        {"hardware": replace(H200, name="NVIDIA A100")},
    ]
    for n, other in enumerate(others):
        run(tmp_path / f"other{n}", **other)  # type: ignore[arg-type]
    report = load([tmp_path])
    assert sorted(group.repetitions for group in groups(report)) == [1] * len(others) + [3]
    repeated = [result for result in report.results if result.origin.rsplit("/", 1)[1] in "012"]
    assert [result.repetition for result in sorted(repeated, key=lambda one: one.started)] == [1, 2, 3]


def test_one_folder_is_read_once_however_often_it_is_named(tmp_path: Path) -> None:
    path = run(tmp_path / "all" / "run")
    (tmp_path / "all" / "link").symlink_to(tmp_path / "all")  # a loop
    assert len(load([path, path, tmp_path / "all", tmp_path]).results) == 1


def test_a_path_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no"):
        load([tmp_path / "nowhere"])


def test_emulated_results_make_no_speedup(tmp_path: Path) -> None:
    """They have a group of their own with success at 0 and nothing else, and change no number of the measured."""
    runs(tmp_path / "gpu", {"gelu": (2.0,), "relu": (4.0,)})
    before = groups(load([tmp_path / "gpu"]))
    runs(tmp_path / "cpu", {"gelu": (50.0,), "selu": (60.0,)}, hardware=HARDWARE)
    report = load([tmp_path])
    measured, emulated = groups(report)
    assert len(report.emulated) == 2
    assert (emulated.emulated, emulated.curve, emulated.spread) == (True, (), None)
    assert [(point.tau, point.share) for point in emulated.success] == [(0.0, 1.0)]
    assert (measured.success, measured.curve, measured.spread) == (before[0].success, before[0].curve, before[0].spread)
    assert measured.missing == ()
    assert any("emulated" in problem.what for problem in report.problems)


def test_modelled_results_make_no_speedup_either(tmp_path: Path) -> None:
    """Nor do they stand in a group with emulated ones of the same machine."""
    model = GpuModel("v1", "NVIDIA H200", 1.25)
    modelled = replace(HARDWARE, name=f"{HARDWARE.name} with a model", modelled=model)
    runs(tmp_path / "gpu", {"gelu": (2.0,)})
    before = groups(load([tmp_path / "gpu"]))
    runs(tmp_path / "model", {"gelu": (50.0,)}, hardware=modelled)
    runs(tmp_path / "cpu", {"gelu": (60.0,)}, hardware=HARDWARE)
    report = load([tmp_path])
    told = {group.hardware.mark: group for group in groups(report)}
    assert set(told) == {"", "modelled", "emulated"}
    assert (told[""].success, told[""].spread) == (before[0].success, before[0].spread)
    assert (told["modelled"].curve, told["modelled"].spread) == ((), None)
    (result,) = told["modelled"].results
    assert (result.mark, result.hardware.modelled) == ("modelled", model)
    assert result.score == pytest.approx(50.0, rel=0.01)


def test_two_gpus_are_told_and_kept_apart(tmp_path: Path) -> None:
    runs(tmp_path / "a", {"gelu": (2.0,)})
    runs(tmp_path / "b", {"gelu": (4.0,)}, hardware=replace(H200, name="NVIDIA A100"))
    report = load([tmp_path])
    assert any("2 GPUs" in problem.what for problem in report.problems)
    assert [(group.hardware.name, group.success[2].share) for group in groups(report)] == [
        ("NVIDIA A100", 1.0),
        ("NVIDIA H200", 0.0),
    ]


def test_another_driver_is_told(tmp_path: Path) -> None:
    runs(tmp_path / "a", {"gelu": (2.0,)})
    runs(tmp_path / "b", {"relu": (4.0,)}, hardware=replace(H200, figures={"driver": "590", "CUDA toolkit": "13.0"}))
    assert any("versions of driver: 580.1, 590" in problem.what for problem in load([tmp_path]).problems)


def test_another_task_card_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of a card that was changed since keeps its P, marked."""
    path = run(tmp_path / "run")
    from cudamaster.runfolder import write_record
    from cudamaster.runrecord import read_manifest

    write_record(path / "run.json", replace(read_manifest(path), card_hash="0000000000000000"))
    assert only(path).remarks[0].startswith("other card:")


# ---- suites


def suite(
    path: Path, tasks: dict[tuple[str, Precision], tuple[float | str, ...]], limits: Limits | None = None
) -> Path:
    """A suite of scripted searches; the outcome "no model" is an error of a task."""
    told = settings(rounds=1)

    def search(entry: Entry, folder: Path, unit: str, observer: Observer, budget: Budget) -> Result:
        outcomes = tasks[entry.task, entry.precision]
        if outcomes == ("no model",):
            raise ModelError("The model cannot be reached.", "Try again.")
        from search_stand_ins import ScriptedModel

        bench = TimedBench(entry.task, entry.precision, H200)
        model = ScriptedModel(script(*outcomes))
        return optimize(folder, bench, dict.fromkeys(Role, model), told, observer, budget)

    plan = suites.new(told, list(tasks))
    with SuiteFolder.create(path, plan) as folder:
        suites.run(folder, plan, search, Budget(limits), ("GPU-a",), 1)
    return path


FP32, BF16 = Precision.FP32, Precision.BF16


def test_a_suite_with_what_failed_and_what_it_did_not_get_to(tmp_path: Path) -> None:
    """Missing tasks are missing, with the reason, and no failures of the model."""
    path = suite(
        tmp_path / "suite",
        {
            ("gelu", FP32): (2.0,),
            ("gelu", BF16): ("wrong",),
            ("relu", FP32): ("no model",),
            ("selu", FP32): (3.0,),
            ("elu", FP32): (3.0,),
        },
        Limits(dollars=1.6),  # a task costs 0.75
    )
    report = load([path])
    assert [(result.name, result.source) for result in report.results] == [
        ("gelu_bf16", "suite"),
        ("gelu_fp32", "suite"),
    ]
    why = {one.name: one.why for one in report.missing}
    assert "The model cannot be reached" in why["relu_fp32"]
    assert len([one for one in report.problems if "relu_fp32" in one.path]) == 1  # told once
    assert "was stopped before it had judged a kernel" in why["selu_fp32"]
    assert "did not get to it" in why["elu_fp32"]
    by_precision = {group.precision: group for group in groups(report)}
    assert [one.name for one in by_precision[FP32].missing] == ["elu_fp32", "relu_fp32", "selu_fp32"]
    assert (by_precision[FP32].tasks, by_precision[FP32].success[0].share) == (1, 1.0)
    assert by_precision[BF16].success[0].share == 0.0


def test_a_suite_whose_own_file_is_damaged_is_reported_run_by_run(tmp_path: Path) -> None:
    path = suite(tmp_path / "suite", {("gelu", FP32): (2.0,), ("relu", FP32): (3.0,)})
    (path / "suite.json").write_text("{")
    report = load([path])
    assert [result.task for result in report.results] == ["gelu", "relu"]
    assert "suite.json" in report.problems[0].what


def test_a_run_of_a_suite_that_is_named_too_is_read_once(tmp_path: Path) -> None:
    path = suite(tmp_path / "suite", {("gelu", FP32): (2.0,), ("relu", FP32): (3.0,)})
    for paths in ([path / "gelu_fp32", path], [path, path / "gelu_fp32"]):
        assert [result.name for result in load(paths).results] == ["gelu_fp32", "relu_fp32"]


def test_a_damaged_run_of_a_suite_is_missing(tmp_path: Path) -> None:
    path = suite(tmp_path / "suite", {("gelu", FP32): (2.0,), ("relu", FP32): (3.0,)})
    (path / "relu_fp32" / "run.json").unlink()
    report = load([path])
    assert [result.task for result in report.results] == ["gelu"]
    assert [one.task for one in report.missing] == ["relu"]
    assert any("run.json is missing" in problem.what for problem in report.problems)


# ---- saved reports


def test_a_saved_report_is_read_back_in_full(tmp_path: Path) -> None:
    """Everything but when it was made and of what comes back, so that pages can be made where the runs are no more."""
    folder = runs(tmp_path / "runs", {"gelu": (2.0, 3.0), "relu": ("wrong", 0.5)})
    shutil.copytree(folder / "gelu", folder / "gelu again")  # another run that began in the same second
    (folder / "broken").mkdir()
    (folder / "broken" / "run.json").write_text("{")
    report = load([folder])
    (tmp_path / "saved.json").write_text(json.dumps(as_json(report)))
    again = load([tmp_path / "saved.json"])
    assert replace(again, made=report.made, sources=report.sources) == report
    assert as_json(again)["groups"] == as_json(report)["groups"]


def test_a_report_beside_what_it_was_made_of_counts_nothing_twice(tmp_path: Path) -> None:
    """Also beside folders that were kept of the same runs; two runs are two, though they began in one second."""
    folder = runs(tmp_path / "all" / "runs", {"gelu": (2.0,), "relu": (3.0,)})
    report = load([folder])
    (tmp_path / "all" / "report.json").write_text(json.dumps(as_json(report)))
    kept_of(folder / "gelu", tmp_path / "all" / "kept", form=1)
    for paths in ([tmp_path / "all"], [folder, tmp_path / "all"], [tmp_path / "all" / "report.json", folder]):
        assert [result.task for result in load(paths).results] == ["gelu", "relu"], paths
    (tmp_path / "all" / "report.json").write_text("")  # while a shell fills it with this report
    assert load([tmp_path / "all"]).problems == ()
    shutil.copytree(folder / "gelu", folder / "gelu again")
    assert [result.repetition for result in load([folder]).results] == [1, 2, 1]


def test_a_run_goes_before_what_was_reported_of_it_earlier(tmp_path: Path) -> None:
    """A report of a run that was partial then counts no more when the run is there, finished."""
    path = run(tmp_path / "run", outcomes=(2.0, 3.0))
    report = load([path])
    earlier = replace(report.results[0], score=2.0, progress=Progress.STOPPED)
    (tmp_path / "report.json").write_text(json.dumps(as_json(replace(report, results=(earlier,)))))
    (result,) = load([tmp_path]).results
    assert (result.progress, result.score) == (Progress.FINISHED, pytest.approx(3.0, rel=0.01))


def test_a_saved_report_of_another_format_is_named(tmp_path: Path) -> None:
    folder = runs(tmp_path / "runs", {"gelu": (2.0,)})
    raw = as_json(load([folder]))
    for wrong, words in (({**raw, "format": 99}, "format 99"), ({**raw, "made": 3}, "Report.made")):
        (folder / "report.json").write_text(json.dumps(wrong))
        report = load([folder])
        assert [result.task for result in report.results] == ["gelu"]
        assert [words in problem.what for problem in report.problems] == [True]


# ---- vendors' libraries


def contest(status: Status, p: float, against_us: float) -> vendor.Contest:
    """A contest on one size, won by P."""
    before, after = samples(against_us, p)
    compared = speed.compare(before, after)
    case = vendor.ContestCase("N=8", 8.0, status, "", against_us / p, against_us, None, 5.0, 10.0, compared)
    right = status is Status.CORRECT
    return vendor.Contest(
        status,
        "DETAIL",
        p if right else None,
        compared if right else None,
        True,
        1,
        (),
        (case,) if right else (),
        {},
        "",
    )


def test_authorities_are_read_where_they_lie_among_results_or_are_named(tmp_path: Path) -> None:
    """Measured, failing and skipped libraries, with our kernel beside them; an emulated measurement says nothing."""
    right, wrong = Status.CORRECT, Status.WRONG
    records = (
        vendor.VendorRecord("fft", FP32, "cuFFT", "12.0", "", "", None, contest(right, 4.0, 100.0), "k",
                            contest(right, 2.0, 100.0), contest(right, 0.5, 25.0)),
        vendor.VendorRecord("fft", BF16, "cuFFT", "12.0", "", "", None, contest(wrong, 4.0, 100.0)),
        vendor.VendorRecord("sorting", FP32, "CUB", "", "", "", "no headers"),
    )  # fmt: skip
    about = {"device": "NVIDIA H200"}
    vendor.write(tmp_path / "all" / "vendor.json", vendor.VendorReport(vendor.FORMAT, False, about, records))
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
        assert (skipped.status, skipped.note) == (None, "no headers")
        table = authorities(report)
        assert table is not None
        assert [row[3] for row in table.rows] == ["wrong: DETAIL", "correct", "skipped: no headers"]
    emulated = vendor.VendorReport(vendor.FORMAT, True, about, records)
    vendor.write(tmp_path / "all" / "vendor.json", emulated)
    assert load([tmp_path / "all"]).authorities == ()
    (tmp_path / "all" / "vendor.json").write_text("{}")
    assert [problem.serious for problem in load([tmp_path / "all"]).problems] == [True]


# ---- folders kept on purpose


def test_the_kept_results_of_an_older_format(tmp_path: Path) -> None:
    """Each is reported with its P computed from its raw timings, and called older."""
    report = load([KEPT])
    there = {path.parent.name for path in KEPT.glob("*/verdict.json")}
    assert {result.name for result in report.results if result.source == "kept"} <= there
    for result in report.results:
        raw = json.loads((Path(result.origin) / "verdict.json").read_text())
        timed = [
            (case["weight"], case["timing"]["baseline_us"], case["timing"]["candidate_us"])
            for case in raw["cases"]
            if case["sweep"]
        ]
        assert result.speed == speed.overall(timed)
        assert len(result.cases) == len(timed)
        assert result.best is not None
        found = Candidate(result.task, result.precision, result.best.code, result.best.command)
        assert found.id == raw["candidate"]


def test_an_older_format_is_one_clear_word(tmp_path: Path) -> None:
    """A kept folder of format 1, made of a run of today, is read, marked older, and its costs are unknown."""
    path = kept_of(run(tmp_path / "run"), tmp_path / "kept", form=1)
    result = only(path)
    assert result.source == "kept"
    assert [remark.partition(":")[0] for remark in result.remarks] == ["older"]
    assert result.score == pytest.approx(3.0, rel=0.01)
    assert (result.cost.dollars, result.cost.tokens, result.cost.minutes) == (None, None, None)
    assert result.after is not None
    assert result.after.bottleneck is Bottleneck.BANDWIDTH


def test_a_run_folder_of_an_older_format_is_read_too(tmp_path: Path) -> None:
    """As far as its best kernel tells."""
    path = run(tmp_path / "run")
    manifest = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**manifest, "format": 3}))
    result = only(path)
    assert result.source == "run"
    assert [remark.partition(":")[0] for remark in result.remarks] == ["older"]
    assert (result.progress, result.score) == (Progress.FINISHED, pytest.approx(3.0, rel=0.01))


def test_a_newer_format_is_called_newer(tmp_path: Path) -> None:
    path = kept_of(run(tmp_path / "run"), tmp_path / "kept", form=99)
    assert only(path).remarks[0].startswith("newer:")


def test_a_kept_baseline_is_no_success(tmp_path: Path) -> None:
    path = kept_of(run(tmp_path / "run", outcomes=("wrong",)), tmp_path / "kept", form=1)
    assert (only(path).correct, only(path).score) == (False, None)


def kept_of(path: Path, folder: Path, form: int) -> Path:
    """A folder as results/ has them, of a run."""
    folder.mkdir()
    best = json.loads((path / "best.json").read_text())
    for name in ("best.cu", "best.json"):
        shutil.copy(path / name, folder / name)
    shutil.copy(path / best["verdict"], folder / "verdict.json")
    shutil.copy(path / "findings" / f"{best['candidate']}.json", folder / "findings.json")
    (folder / "run.json").write_text(json.dumps({**json.loads((path / "run.json").read_text()), "format": form}))
    return folder
