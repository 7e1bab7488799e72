# ruff: noqa: D102
"""For every strategy, a score that is too good to be true is measured again before it counts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from search_stand_ins import ScriptedModel, ScriptedWorkbench, code, command, fix, kernel, plan, submission

from cudamaster.cli import main
from cudamaster.core.errors import RunFolderError, UsageError
from cudamaster.core.speed import Change, Comparison, Interval
from cudamaster.core.values import Candidate, Precision, Role, Status, Verdict
from cudamaster.devices.machine_code import INSTRUCTIONS, OBJECT
from cudamaster.library.search_options import ModelOptions
from cudamaster.runs import replaying
from cudamaster.runs.optimization import optimize, resume
from cudamaster.runs.reading import read
from cudamaster.runs.record import RunRecord, Settings, read_record
from cudamaster.strategies import registry
from cudamaster.strategies.large_gains import JumpRule, agreed
from cudamaster.strategies.result import Result
from cudamaster.tasks import cards
from cudamaster.tasks.harness import baseline_region


def speed(score: float, reach: float) -> Comparison:
    """A speedup whose interval reaches that much to either side."""
    interval = Interval(score - reach, score + reach)
    return Comparison(score, interval, score, interval, Change.FASTER)


class GpuBench(ScriptedWorkbench):
    """Times are no emulation here. `again` says what a second judgement of a candidate comes to, by its tag."""

    def __init__(self, again: dict[str, Callable[[Verdict], Verdict]] | None = None, reach: float = 0.01) -> None:
        super().__init__()
        self._again = again or {}
        self._reach = reach

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        seen = candidate.id in self.evaluated
        verdict = replace(super().evaluate(candidate, to_beat=to_beat), emulated=False)
        verdict = scored(verdict.score, self._reach)(verdict)
        tag = candidate.code.split("\n", 1)[0].rsplit(" ", 1)[-1]
        return self._again[tag](verdict) if seen and tag in self._again else verdict


def scored(score: float | None, reach: float = 0.01) -> Callable[[Verdict], Verdict]:
    def change(verdict: Verdict) -> Verdict:
        return replace(verdict, score=score, speed=None if score is None else speed(score, reach))

    return change


def failing(verdict: Verdict) -> Verdict:
    return replace(verdict, status=Status.WRONG, score=None, speed=None, detail="wrong on fresh inputs")


def settings(strategy: str = "sample", rounds: int = 1, reviewer: bool = False, **more: float) -> Settings:
    chosen = registry.find(strategy)
    roles = (*chosen.roles, *((Role.REVIEWER,) if reviewer else ()))
    options = registry.parse_options(chosen, [])
    return Settings(strategy, rounds, 0, "stand-in", dict.fromkeys(roles, "scripted"), options=options, **more)


def run(
    path: Path, bench: ScriptedWorkbench, script: list[tuple[Role, str]], chosen: Settings
) -> tuple[Result, ScriptedModel, RunRecord]:
    model = ScriptedModel(script)
    result = optimize(path, bench, model.for_all(), chosen)
    assert model.exhausted
    return result, model, read_record(path)


def review(verdict: str, reason: str = "line 3 keeps the result", case: str = "cache") -> tuple[Role, str]:
    return Role.REVIEWER, json.dumps({"verdict": verdict, "case": case, "reason": reason})


# ---- the rule


@pytest.mark.parametrize(
    ("score", "best", "is_jump"),
    [
        (2.0, 1.0, False),  # exactly the factor is none
        (2.01, 1.0, True),
        (3.9, 2.0, False),
        (8.0, 7.0, False),
        (8.1, 7.0, True),
        (8.1, 8.2, False),  # no new best, so it counts for nothing
        (math.nan, 1.0, False),
    ],
)
def test_a_jump_is_a_new_best_above_twice_the_best_or_above_eight(score: float, best: float, is_jump: bool) -> None:
    assert (JumpRule().broken(score, best) is not None) is is_jump


def test_either_rule_can_be_switched_off() -> None:
    assert JumpRule(factor=0).broken(5.0, 1.0) is None
    assert JumpRule(factor=0).broken(9.0, 1.0) is not None
    assert JumpRule(above=0).broken(9.0, 8.0) is None
    assert JumpRule(0, 0).broken(1e9, 1.0) is None


@pytest.mark.parametrize(("factor", "above"), [(0.5, 8), (-1, 8), (2, -1), (math.nan, 8), (2, math.nan)])
def test_a_rule_of_no_sense_is_refused(factor: float, above: float) -> None:
    with pytest.raises(UsageError):
        JumpRule(factor, above)


# ---- what two measurements come to

FIRST = Verdict("c", "cuda", False, Status.CORRECT, "all right", score=6.0, speed=speed(6.0, 0.1))


@pytest.mark.parametrize(
    ("second", "reach", "counted"),
    [
        (5.9, 0.1, 5.9),  # the intervals meet
        (6.2, 0.1, 6.0),  # the lower counts, whichever was first
        (4.9, 0.01, 4.9),  # the intervals do not meet, but two processes may differ by a quarter
        (4.0, 3.0, 4.0),  # far apart, and so unsure that they do not contradict each other
    ],
)
def test_the_lower_counts(second: float, reach: float, counted: float) -> None:
    verdict = agreed(FIRST, scored(second, reach)(FIRST), "too good")
    assert verdict.score == counted
    assert verdict.correct
    assert verdict.speed is not None
    assert verdict.speed.speedup == counted, "score and interval are of one measurement"
    assert verdict.notes[-1].endswith(f"measured again in fresh processes: {second:.3f}, the lower counts")


@pytest.mark.parametrize(("second", "counted"), [(4.0, 4.0), (12.0, 6.0)])
def test_where_both_contradict_each_other_it_is_said(second: float, counted: float) -> None:
    verdict = agreed(FIRST, scored(second)(FIRST), "too good")
    assert verdict.score == counted
    assert verdict.notes[-1].endswith("the lower counts though they are far apart")


def test_only_the_first_measurement_lists_the_instructions() -> None:
    first = replace(FIRST, build={OBJECT: "1", INSTRUCTIONS: "2"})
    second = replace(scored(5.9)(FIRST), build={OBJECT: "3"})
    assert agreed(first, second, "too good").build == {OBJECT: "3", INSTRUCTIONS: "2"}


def test_what_the_second_judgement_finds_wrong_is_wrong() -> None:
    verdict = agreed(FIRST, failing(FIRST), "too good")
    assert (verdict.status, verdict.score) == (Status.WRONG, None)
    assert verdict.notes == ("too good; judged again, it is wrong",)


def test_a_second_judgement_without_a_score_does_not_confirm_the_first() -> None:
    assert agreed(FIRST, scored(None)(FIRST), "too good").score is None


# ---- in a run


def test_a_confirmed_jump_counts_with_its_lower_score_and_both_are_kept(tmp_path: Path) -> None:
    bench = GpuBench({"a": scored(2.9)})
    result, _, record = run(tmp_path / "run", bench, [code(kernel(score=3.0, tag="a"))], settings())
    assert result.score == 2.9
    assert len(bench.evaluated) == 3, "baseline, the candidate, and the candidate again"
    first, second = record.verdict(result.best.id), record.confirmation(result.best.id)
    assert first is not None
    assert second is not None
    assert (first.score, second.score) == (3.0, 2.9)
    best = json.loads((tmp_path / "run" / "best.json").read_text())
    assert (best["score"], best["confirmation"]) == (2.9, f"confirmations/{result.best.id}.json")
    verdict = read(tmp_path / "run").rounds[0].attempts[0].verdict
    assert verdict is not None
    assert verdict.score == 2.9
    assert "P = 3.000 is more than 2 times the best so far, 1.000" in verdict.notes[-1]


def test_a_jump_that_does_not_come_again_counts_as_little_as_it_had_then(tmp_path: Path) -> None:
    script = [code(kernel(score=9.0, tag="a")), code(kernel(score=1.5, tag="b"))]
    result, _, _ = run(tmp_path / "run", GpuBench({"a": scored(1.2)}), script, settings(rounds=2))
    assert result.score == 1.5
    first = read(tmp_path / "run").rounds[0]
    assert (first.status, first.score) == (Status.CORRECT, 1.2)


def test_a_jump_without_a_score_the_second_time_counts_for_nothing_and_says_so(tmp_path: Path) -> None:
    script = [code(kernel(score=9.0, tag="a")), code(kernel(score=1.5, tag="b"))]
    result, _, _ = run(tmp_path / "run", GpuBench({"a": scored(None)}), script, settings(rounds=2))
    assert result.score == 1.5, "the best to beat stayed that of the baseline"
    lost = read(tmp_path / "run").rounds[0]
    assert (lost.status, lost.score, lost.accepted) == (Status.CORRECT, None, False)
    verdict = lost.attempts[-1].verdict
    assert verdict is not None
    assert "measured again in fresh processes it has no score: neither counts" in verdict.detail
    assert lost.why == "it has no P, where the best so far has 1.000"


def test_a_kernel_that_fails_the_second_time_is_debugged_like_any_other(tmp_path: Path) -> None:
    script = [plan("A"), code(kernel(score=9.0, tag="a")), command(), fix("x"), code(kernel(score=1.5, tag="b")),
              command()]  # fmt: skip
    chosen = replace(settings("cudamaster"), debug_tries=1)
    result, model, _ = run(tmp_path / "run", GpuBench({"a": failing}), script, chosen)
    assert "wrong on fresh inputs" in model.prompts(Role.DEBUG)[0]
    assert result.score == 1.5


def test_no_jump_no_second_measurement(tmp_path: Path) -> None:
    """1.8 is a new best below twice 1, 3.0 one below twice 1.8, 2.0 is no new best."""
    bench = GpuBench()
    script = [code(kernel(score=score, tag=f"k{score}")) for score in (1.8, 3.0, 2.0)]
    run(tmp_path / "run", bench, script, settings(rounds=3))
    assert len(bench.evaluated) == 4
    assert not list((tmp_path / "run" / "confirmations").iterdir())


def test_the_best_so_far_is_the_confirmed_one(tmp_path: Path) -> None:
    """4.0 became 3.8; 7.7 is more than twice that, and not more than twice 4.0."""
    bench = GpuBench({"a": scored(3.8)})
    script = [code(kernel(score=4.0, tag="a")), code(kernel(score=7.7, tag="b"))]
    run(tmp_path / "run", bench, script, settings(rounds=2))
    assert len(bench.evaluated) == 5


def test_the_rule_of_the_settings_holds(tmp_path: Path) -> None:
    bench = GpuBench()
    run(tmp_path / "run", bench, [code(kernel(score=30.0))], settings(jump_factor=0, jump_above=50))
    assert len(bench.evaluated) == 2


def test_emulated_times_are_not_measured_again(tmp_path: Path) -> None:
    bench = ScriptedWorkbench()
    result, _, _ = run(tmp_path / "run", bench, [code(kernel(score=30.0))], settings())
    assert len(bench.evaluated) == 2
    assert result.score == 30.0


PARTS = "## Analysis\n\nx\n\n## Algorithm\n\nIdea\n\n1. Do it.\n\n## Code\n\n```cuda\n{}```\n"
FOUR_AGENTS = [plan("A"), code(kernel(score=5.0, tag="a")), command()]
ONE_ROUND = {
    "cudamaster": FOUR_AGENTS,
    "beam": FOUR_AGENTS,
    "mapelites": FOUR_AGENTS,
    "bandit": FOUR_AGENTS,
    "cudaforge": [code(kernel(score=5.0, tag="a"))],
    "sample": [code(kernel(score=5.0, tag="a"))],
    "contrastive": [(Role.CODER, PARTS.format(kernel(score=5.0, tag="a"))), command()],
    "agent": [submission(kernel(score=5.0, tag="a"))],
}


def test_every_strategy_is_tried_below() -> None:
    assert set(ONE_ROUND) == set(registry.STRATEGIES)


@pytest.mark.parametrize("strategy", ONE_ROUND)
def test_every_strategy_takes_no_jump_on_trust(tmp_path: Path, strategy: str) -> None:
    """Measured again, and reviewed, without a line about it in the strategy."""
    script = [*ONE_ROUND[strategy], review("hack")]
    bench = GpuBench()
    result, _, _ = run(tmp_path / "run", bench, script, settings(strategy, reviewer=True))
    assert len(bench.evaluated) == 3
    assert not result.improved
    assert result.rounds[0].outcome.status is Status.REJECTED
    assert result.usage[Role.REVIEWER].calls == 1


class _Killed(BaseException):
    pass


def test_a_run_killed_between_both_measurements_takes_the_second_alone(tmp_path: Path) -> None:
    class Dies(GpuBench):
        def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
            if candidate.id in self.evaluated:
                raise _Killed
            return super().evaluate(candidate, to_beat=to_beat)

    model = ScriptedModel([code(kernel(score=5.0, tag="a"))])
    with pytest.raises(_Killed):
        optimize(tmp_path / "run", Dies(), model.for_all(), settings())
    summary = read(tmp_path / "run")
    assert summary.stopped_at is not None
    assert summary.stopped_at.startswith("measuring the candidate")
    bench = GpuBench()
    result = resume(tmp_path / "run", bench, model.for_all())
    assert bench.evaluated == [result.best.id]
    assert result.score == 5.0
    finished = GpuBench()
    assert resume(tmp_path / "run", finished, model.for_all()) == result
    assert finished.evaluated == [], "neither measurement is taken a third time"


def test_a_replay_takes_the_second_measurement_from_the_record(tmp_path: Path) -> None:
    """Without it the candidate would confirm itself, and the replay come to another score."""
    card = cards.load("dot_product")

    class RealCardBench(GpuBench):
        def __init__(self) -> None:
            super().__init__({"a": scored(4.7)})
            self.card = card
            text = baseline_region(card, Precision.FP32)
            self.baseline = Candidate(card.name, Precision.FP32, text, "nvcc -c candidate.cu -o candidate.o")

        def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
            if candidate.id != self.baseline.id:
                return super().evaluate(candidate, to_beat=to_beat)
            plain = replace(candidate, code=kernel(score=1.0, tag="baseline"))
            return replace(super().evaluate(plain), candidate=candidate.id)

    text = kernel(score=5.0, tag="a").replace("double_it", "dot_product")
    result, _, record = run(tmp_path / "run", RealCardBench(), [code(text)], settings())
    assert result.score == 4.7
    bench = replaying.workbench(record, card)
    assert optimize(tmp_path / "replay", bench, ScriptedModel([code(text)]).for_all(), settings()) == result


def test_a_changed_confirmation_is_found(tmp_path: Path) -> None:
    run(tmp_path / "run", GpuBench(), [code(kernel(score=5.0, tag="a"))], settings())
    (file,) = (tmp_path / "run" / "confirmations").iterdir()
    file.write_text(file.read_text().replace("5.0", "6.0"))
    with pytest.raises(RunFolderError, match="confirmations"):
        read_record(tmp_path / "run")


# ---- the reviewer


def test_a_kernel_called_a_trick_is_not_the_best_and_its_reason_is_shown(tmp_path: Path) -> None:
    script = [code(kernel(score=5.0, tag="a")), review("hack"), code(kernel(score=1.5, tag="b"))]
    result, model, record = run(tmp_path / "run", ScriptedWorkbench(), script, settings(rounds=2, reviewer=True))
    assert result.score == 1.5
    told = read(tmp_path / "run").rounds[0]
    assert told.why == "The reviewer (scripted) calls it a trick (cache): line 3 keeps the result"
    assert told.attempts[0].verdict is not None
    assert told.attempts[0].verdict.status is Status.REJECTED
    stored = record.verdict(told.attempts[0].candidate)
    assert stored is not None
    assert stored.correct, "what was measured stays as it was"
    (prompt,) = model.prompts(Role.REVIEWER)
    for part in ("// correct 5.0 a", "1.01 baseline", "DESCRIPTION of double_it", "5.000", "best before it had 1.000"):
        assert part in prompt


def test_a_kernel_called_honest_counts_with_the_word_beside_it(tmp_path: Path) -> None:
    script = [code(kernel(score=5.0, tag="a")), review("honest", "fewer passes")]
    result, _, _ = run(tmp_path / "run", ScriptedWorkbench(), script, settings(reviewer=True))
    assert result.score == 5.0
    assert result.verdict.notes == ("the reviewer (scripted) finds no trick: fewer passes",)


def test_a_reviewer_without_a_usable_answer_changes_nothing(tmp_path: Path) -> None:
    script = [code(kernel(score=5.0, tag="a")), (Role.REVIEWER, "well"), review("maybe")]
    result, model, _ = run(tmp_path / "run", ScriptedWorkbench(), script, settings(reviewer=True))
    assert result.score == 5.0
    assert result.verdict.notes[0].startswith("no review: ")
    assert "no complete JSON object" in model.requests[-1].messages[-1].content


def test_a_hack_without_a_reason_is_asked_again(tmp_path: Path) -> None:
    script = [code(kernel(score=5.0, tag="a")), review("hack", " "), review("honest")]
    result, _, _ = run(tmp_path / "run", ScriptedWorkbench(), script, settings(reviewer=True))
    assert result.score == 5.0


def test_nobody_is_asked_about_a_score_that_is_no_jump(tmp_path: Path) -> None:
    """Nor about one that fell back to none when it was measured again."""
    script = [code(kernel(score=1.5, tag="a")), code(kernel(score=9.0, tag="b"))]
    bench = GpuBench({"b": scored(1.4)})
    result, _, _ = run(tmp_path / "run", bench, script, settings(rounds=2, reviewer=True))
    assert result.score == 1.5
    assert result.usage[Role.REVIEWER].calls == 0


def test_a_kernel_is_reviewed_once(tmp_path: Path) -> None:
    same = code(kernel(score=5.0, tag="a"))
    result, _, _ = run(
        tmp_path / "run", ScriptedWorkbench(), [same, review("hack"), same], settings(rounds=2, reviewer=True)
    )
    assert [r.outcome.status for r in result.rounds] == [Status.REJECTED, Status.REJECTED]


def test_without_a_reviewer_nobody_is_asked(tmp_path: Path) -> None:
    result, _, _ = run(tmp_path / "run", ScriptedWorkbench(), [code(kernel(score=5.0, tag="a"))], settings())
    assert set(result.usage) == {Role.CODER}


def test_the_playbook_is_no_reviewer() -> None:
    ran = CliRunner().invoke(main, ["optimize", "dot_product", "--reviewer-model", "playbook"])
    assert ran.exit_code == 2
    assert "cannot review" in ran.output


@pytest.mark.parametrize("model", ["a/coder", "playbook", None])
def test_a_reviewer_of_the_environment_is_the_one_asked(model: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """--model names the model that writes the kernels; the reviewer's stays another one."""
    monkeypatch.setenv("CUDAMASTER_REVIEWER_MODEL", "b/reviewer")
    names = ModelOptions(model, {}, None, None, None).choice([Role.CODER]).names
    assert names == {Role.CODER: model or "playbook", Role.REVIEWER: "b/reviewer"}
