# ruff: noqa: D102
"""strategies/cudaforge.py follows the CudaForge paper: which agent is asked, what it reads, where a round starts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import search_stand_ins
from chat_servers import ChatServer
from search_stand_ins import COMMAND, ScriptedModel, ScriptedWorkbench, code, dot_product, kernel
from small_cards import small_card

from cudamaster.core.errors import UsageError
from cudamaster.core.values import (
    Bottleneck,
    Candidate,
    Findings,
    KernelProfile,
    Precision,
    Profile,
    ProfileMode,
    Role,
    Status,
    Verdict,
)
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.models.litellm_model import LiteLLMModel
from cudamaster.models.playbook import PlaybookModel
from cudamaster.models.protocol import Reply, Request
from cudamaster.profiling.filter import findings_of_set
from cudamaster.profiling.metric_sets import MetricSet, load
from cudamaster.profiling.thresholds import load as load_thresholds
from cudamaster.runs.optimization import optimize, resume
from cudamaster.runs.reading import read
from cudamaster.runs.record import Settings
from cudamaster.strategies.cudaforge import NAME, Options
from cudamaster.strategies.result import Result
from cudamaster.workbench.evaluation import Workbench


def advice(method: str) -> tuple[Role, str]:
    """The Judge's optimisation, with the names of the paper."""
    fields = {"bottleneck": f"LIMIT {method}", "optimization method": method, "modification plan": f"PLAN {method}"}
    return Role.JUDGE, json.dumps(fields)


def correction(issue: str) -> tuple[Role, str]:
    fields = {"critical_issue": issue, "why_it_matters": f"WHY {issue}", "minimal_fix_hint": f"HINT {issue}"}
    return Role.JUDGE, json.dumps(fields)


class MeasuringBench(ScriptedWorkbench):
    """Has metrics of every kernel, with the kernel's first line among them."""

    def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
        found = super().findings(candidate, verdict)
        first = candidate.code.split("\n", 1)[0]
        return replace(found, note=f"METRICS OF {first}", metrics={"dram__bytes_read.sum": 4096.0})


def search(
    script: list[tuple[Role, str]], rounds: int, judge: str = "both"
) -> tuple[Result, ScriptedModel, MeasuringBench]:
    bench, model = MeasuringBench(), ScriptedModel(script)
    result = search_stand_ins.search(bench, model.for_all(), NAME, rounds, options={"judge": judge})
    assert model.exhausted, "the strategy asked less than it should have"
    return result, model, bench


def asked(model: ScriptedModel) -> list[Role]:
    return [request.role for request in model.requests]


FAILS_THEN_PASSES = [
    code(kernel("wrong", tag="a")),
    correction("no barrier"), code(kernel(score=1.5, tag="b")),
    advice("use shared memory"), code(kernel(score=2.5, tag="c")),
]  # fmt: skip


def test_the_first_round_is_the_coder_alone() -> None:
    """Section 2.1 and appendix D.1: task and baseline, no Judge, no metrics; the default command, no Compiler."""
    result, model, _ = search([code(kernel(score=2.0, tag="a"))], 1)
    assert asked(model) == [Role.CODER]
    (prompt,) = model.prompts(Role.CODER)
    assert "// correct 1.01 baseline" in prompt
    assert "METRICS" not in prompt
    assert result.best.command == COMMAND
    assert result.score == 2.0


def test_the_judge_corrects_what_fails_and_optimises_what_is_right() -> None:
    """Appendix D.2 and D.3: a round is Judge, then Coder; which word the Judge gives depends on the latest verdict."""
    result, model, _ = search(FAILS_THEN_PASSES, 3)
    assert asked(model) == [Role.CODER, Role.JUDGE, Role.CODER, Role.JUDGE, Role.CODER]
    correcting, optimizing = model.prompts(Role.JUDGE)
    assert "LOG of a" in correcting
    assert "// wrong - a" in correcting
    assert "// correct 1.01 baseline" in correcting
    assert "METRICS" not in correcting
    assert "METRICS OF // correct 1.5 b" in optimizing
    assert "dram__bytes_read.sum: 4096" in optimizing
    assert "// correct 1.5 b" in optimizing
    assert "// correct 1.01 baseline" in optimizing
    assert "LOG" not in optimizing
    _, mending, improving = model.prompts(Role.CODER)
    for part in ("LOG of a", "// wrong - a", "no barrier", "WHY no barrier", "HINT no barrier"):
        assert part in mending
    for part in ("// correct 1.5 b", "use shared memory", "LIMIT use shared memory", "PLAN use shared memory"):
        assert part in improving
    assert "METRICS" not in improving, "metrics go to the Judge alone"
    assert [r.outcome.accepted for r in result.rounds] == [False, True, True]
    assert [r.outcome.plan.idea for r in result.rounds] == [
        "First kernel",
        "Correct: no barrier",
        "use shared memory",
    ]


def test_every_round_goes_on_from_the_latest_kernel_and_the_best_is_kept() -> None:
    """Section 2.1: the previous kernel is what the Coder is given, a slower one too; the fastest is the result."""
    script = [code(kernel(score=3.0, tag="a"))]
    for tag, score in (("b", 1.2), ("c", 2.0)):
        script += [advice(tag), code(kernel(score=score, tag=tag))]
    result, model, bench = search(script, 3)
    assert "// correct 1.2 b" in model.prompts(Role.CODER)[2]
    assert "// correct 3.0 a" not in model.prompts(Role.CODER)[2]
    assert result.score == 3.0
    assert len(bench.profiled) == 3, "the baseline for the record, a and b for the Judge: each once"


def test_no_agent_is_told_of_earlier_rounds_or_of_scores() -> None:
    script = [code(kernel(score=3.0, tag="a")), advice("first idea"), code(kernel(score=1.2, tag="b"))]
    script += [advice("second idea"), code(kernel(score=2.0, tag="c"))]
    _, model, _ = search(script, 3)
    later = [message.content for request in model.requests[3:] for message in request.messages]
    assert not [text for text in later if "first idea" in text or "speedup" in text.lower()]


@pytest.mark.parametrize(
    ("judge", "failing", "right", "coder_on_right"),
    [
        ("both", True, True, "METHOD"),
        ("correction", True, False, "Make it faster."),
        ("optimization", False, True, "METHOD"),
        ("none", False, False, "METRICS OF // correct 1.5 b"),
    ],
)
def test_the_ablations_take_the_judges_word_away(judge: str, failing: bool, right: bool, coder_on_right: str) -> None:
    """Section 3.2: O3-10-C, O3-10-O and O3-10. The log of a failure stays with the Coder in all of them."""
    script = [code(kernel("wrong", tag="a"))]
    script += [correction("ISSUE")] if failing else []
    script += [code(kernel(score=1.5, tag="b"))]
    script += [advice("METHOD")] if right else []
    script += [code(kernel(score=2.0, tag="c"))]
    result, model, _ = search(script, 3, judge)
    mending, improving = model.prompts(Role.CODER)[1:]
    assert "LOG of a" in mending
    assert ("ISSUE" in mending) is failing
    assert coder_on_right in improving
    assert ("METRICS" in improving) is (judge == "none"), "self-refinement alone gives the Coder the metrics"
    assert result.score == 2.0
    assert result.usage[Role.JUDGE].calls == failing + right


def test_an_option_of_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="judge is 'sometimes'"):
        Options("sometimes")


def test_underscores_in_the_judges_names_are_read_too() -> None:
    fields = {"bottleneck": "x", "optimization_method": "M", "modification_plan": "P"}
    script = [code(kernel(score=1.5, tag="a")), (Role.JUDGE, json.dumps(fields)), code(kernel(score=2.0, tag="b"))]
    assert search(script, 2)[0].rounds[1].outcome.plan.idea == "M"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ('{"bottleneck": "x", "optimization method": "M"}', "modification plan: Field required"),
        ('{"bottleneck": "x", "optimization method": ["M", "N"], "modification plan": "P"}', "optimization method"),
        ('{"bottleneck": "x", "optimization method": "M", "modification plan": " "}', "though there is a method"),
    ],
    ids=["a field is missing", "two methods", "no plan"],
)
def test_an_advice_out_of_form_is_asked_again_once(reply: str, reason: str) -> None:
    script = [code(kernel(score=1.5, tag="a")), (Role.JUDGE, reply), advice("M"), code(kernel(score=2.0, tag="b"))]
    result, model, _ = search(script, 2)
    assert reason in model.requests[2].messages[-1].content
    assert result.score == 2.0


def test_a_correction_without_an_issue_is_asked_again() -> None:
    script = [code(kernel("fault", tag="a")), correction(" "), correction("x"), code(kernel(score=2.0, tag="b"))]
    assert search(script, 2)[0].score == 2.0


def test_a_round_lost_to_a_misfit_leaves_the_latest_kernel_as_it_was() -> None:
    """The next round asks about the same kernel again."""
    script = [code(kernel(score=1.5, tag="a")), (Role.JUDGE, "no"), (Role.JUDGE, "no")]
    script += [advice("M"), code(kernel(score=2.0, tag="b"))]
    result, model, _ = search(script, 3)
    assert result.rounds[1].outcome.status is Status.REJECTED
    assert "answered twice in no usable form" in result.rounds[1].outcome.detail
    assert "// correct 1.5 a" in model.prompts(Role.JUDGE)[-1]
    assert result.score == 2.0


def test_a_first_round_lost_to_a_misfit_is_tried_anew() -> None:
    script = [(Role.CODER, "no"), (Role.CODER, "no"), code(kernel(score=2.0, tag="a"))]
    result, model, _ = search(script, 2)
    assert model.requests[0].messages == model.requests[2].messages
    assert result.score == 2.0


def test_a_judge_that_sees_nothing_to_gain_ends_the_search() -> None:
    result, _, _ = search([code(kernel(score=2.0, tag="a")), advice("")], 5)
    assert len(result.rounds) == 1
    assert result.note == "The judge sees nothing left to gain after 1 of 5 rounds."


# ---- the 24 metrics


def profile_of(metrics: dict[str, float]) -> Profile:
    main = KernelProfile("main_kernel_optimized", 1, 30.0, metrics)
    return Profile("c", "N=8", "ncu", (main, KernelProfile("small_kernel_optimized", 2, 10.0, {})))


def test_findings_of_a_set_hold_all_of_it_in_its_order_and_no_more() -> None:
    """All 24 by Nsight Compute's names, of the dominating kernel; what tells the class is measured and not shown."""
    chosen, thresholds = load("cudaforge24"), load_thresholds()
    measured = {name: float(number) for number, name in enumerate(chosen.metrics)}
    along = dict.fromkeys(thresholds.filtered, 10.0)
    found = findings_of_set(profile_of({**along, **measured}), thresholds, chosen)
    assert list(found.metrics) == list(chosen.metrics)
    assert len(found.metrics) == 24
    assert found.metrics == measured
    assert found.meanings["dram__bytes_read.sum"] == "bytes read from device memory"
    assert found.kernel == "main_kernel_optimized"
    assert found.time_share == 0.75


def test_what_a_gpu_lacks_of_a_set_is_named_and_a_stand_in_goes_by_its_own_name() -> None:
    chosen = MetricSet(metrics={"sm__a.avg": ("sm__b.avg",), "sm__c.avg": (), "sm__d.avg": ()})
    found = findings_of_set(profile_of({"sm__b.avg": 1.0, "sm__c.avg": 2.0}), load_thresholds(), chosen)
    assert found.metrics == {"sm__b.avg": 1.0, "sm__c.avg": 2.0}
    assert "This GPU does not give sm__d.avg." in found.note
    assert found.bottleneck is None


def test_the_class_is_told_where_its_throughputs_came_along() -> None:
    thresholds = load_thresholds()
    along = {thresholds.metrics[name].ncu: 5.0 for name in
             (thresholds.axes.compute, thresholds.axes.dram, thresholds.axes.memory)}  # fmt: skip
    found = findings_of_set(profile_of(along), thresholds, MetricSet(metrics={"sm__c.avg": ()}))
    assert found.bottleneck is Bottleneck.LATENCY


# ---- with a run folder

SETTINGS = Settings(
    "cudaforge",
    3,
    0,
    "stand-in",
    {Role.CODER: "scripted", Role.JUDGE: "scripted"},
    profile=ProfileMode.CUDAFORGE24,
    options={"judge": "both"},
)


class _Killed(BaseException):
    pass


class _Dies:
    """A model whose process is killed at its n-th call."""

    name = "scripted"

    def __init__(self, model: ScriptedModel, at: int) -> None:
        self._model = model
        self._left = at

    def ask(self, request: Request) -> Reply:
        self._left -= 1
        if self._left == 0:
            raise _Killed
        return self._model.ask(request)


@pytest.mark.parametrize("at", range(1, 6))
def test_a_run_killed_at_any_call_resumes_to_the_same_result(tmp_path: Path, at: int) -> None:
    whole = optimize(tmp_path / "whole", MeasuringBench(), ScriptedModel(FAILS_THEN_PASSES).for_all(), SETTINGS)
    model = ScriptedModel(FAILS_THEN_PASSES)
    with pytest.raises(_Killed):
        optimize(tmp_path / "run", MeasuringBench(), dict.fromkeys(Role, _Dies(model, at)), SETTINGS)
    summary = read(tmp_path / "run")
    assert summary.stopped_at is not None
    assert resume(tmp_path / "run", MeasuringBench(), model.for_all()) == whole
    assert model.exhausted


def test_a_run_is_shown_with_what_each_kernel_was_written_from(tmp_path: Path) -> None:
    """Not from the best, as in algorithm 1, but from the one before."""
    script = [code(kernel(score=3.0, tag="a")), advice("M"), code(kernel(score=1.2, tag="b")),
              advice("N"), code(kernel(score=2.0, tag="c"))]  # fmt: skip
    optimize(tmp_path / "run", MeasuringBench(), ScriptedModel(script).for_all(), SETTINGS)
    summary = read(tmp_path / "run")
    attempts = [told.attempts[0] for told in summary.rounds]
    assert [attempt.written_from for attempt in attempts] == [
        summary.baseline,
        attempts[0].candidate,
        attempts[1].candidate,
    ]
    assert summary.search == "cudaforge, R = 3, judge = both"
    assert summary.rounds[1].plan is not None
    assert summary.rounds[1].plan.text == "LIMIT M\nPLAN M"
    assert summary.best is not None
    assert summary.best.score == 3.0


@pytest.mark.slow
def test_the_whole_way_through_a_server_and_real_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Judge's prompt has the compiler's own words, and the Coder's the Judge's; the server refuses one without."""
    monkeypatch.setenv("OPENAI_API_KEY", "dummy")
    broken, good = dot_product("totl += X[i] * Y[i];"), dot_product("total += X[i] * Y[i];  // good")

    def answer(role: Role, messages: list[dict[str, str]]) -> tuple[int, str]:
        text = messages[-1]["content"]
        if role is Role.JUDGE and "Nsight Compute" in messages[0]["content"]:
            return (200, advice("")[1]) if "// good" in text else (400, "not the latest kernel")
        if role is Role.JUDGE:
            told = re.search(r"Status: compile_error.*error: .*\btotl\b", text, re.DOTALL)
            return (200, correction("totl is unknown")[1]) if told else (400, "the log lacks the error")
        return 200, code(good if "problem: totl is unknown" in text else broken)[1]

    workbench = Workbench(small_card("dot_product"), Precision.FP32, CpuDevice(), modelled=False)
    with ChatServer(answer) as server:
        models = dict.fromkeys(Role, LiteLLMModel("openai/test-model", server.url, retries=0))
        names = dict.fromkeys((Role.CODER, Role.JUDGE), "openai/test-model")
        result = optimize(tmp_path / "run", workbench, models, replace(SETTINGS, models=names))
    assert [r.outcome.status for r in result.rounds] == [Status.COMPILE_ERROR, Status.CORRECT]
    assert result.best.code == good
    assert result.note is not None


def test_the_playbook_answers_coder_and_judge(tmp_path: Path) -> None:
    """Its steps in their order, the Judge giving the next one, and the end when there is none."""
    folder = tmp_path / "double_it" / "fp32"
    folder.mkdir(parents=True)
    for number in (1, 2):
        text = f"// idea: Step {number}\n// why: Because.\n// flags:\n" + kernel(score=number + 1.0)
        (folder / f"{number}_step.cu").write_text(text)

    class HeaderBench(MeasuringBench):
        def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
            bare = replace(candidate, code=candidate.code.split("// flags:\n")[-1])
            return replace(super().evaluate(bare, to_beat=to_beat), candidate=candidate.id)

    result = search_stand_ins.search(HeaderBench(), dict.fromkeys(Role, PlaybookModel(tmp_path)), NAME, 5)
    assert [r.outcome.plan.idea for r in result.rounds] == ["First kernel", "Step 2"]
    assert result.score == 3.0
    assert result.note is not None
