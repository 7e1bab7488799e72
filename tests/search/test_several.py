"""Searches that keep several kernels, or go by kinds: from which kernel a round starts, and what the Planner reads."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import search_stand_ins
from scored_exemplars import exemplar
from search_stand_ins import COMMAND, ScriptedModel, ScriptedWorkbench, code, command, kernel, plan

from cudamaster.core.values import Bottleneck, Candidate, Findings, Plan, Precision, Role, Verdict
from cudamaster.models.protocol import Reply, Request
from cudamaster.runs import optimization, reading, replaying
from cudamaster.runs.record import Settings, read_record
from cudamaster.strategies import bandit, beam, mapelites, registry
from cudamaster.strategies.mapelites import Archive, Cell
from cudamaster.strategies.protocol import Observer
from cudamaster.strategies.result import Result
from cudamaster.strategies.several import Kernel, likeness
from cudamaster.tasks import cards
from cudamaster.tasks.harness import baseline_region

NEW = ("beam", "mapelites", "bandit")
NOTHING = (Role.PLANNER, json.dumps({"idea": "", "plan": ""}))
Script = list[tuple[Role, str]]


class ClassedBench(ScriptedWorkbench):
    """Of the class that a kernel's code names; latency bound where it names none."""

    def findings(self, candidate: Candidate, verdict: Verdict) -> Findings:
        """Findings with a class, the same in every process."""
        found = super().findings(candidate, verdict)
        named = next((limit for limit in Bottleneck if limit.name in candidate.code), Bottleneck.LATENCY)
        return replace(found, bottleneck=named, note=f"NOTE of {candidate.id}")


def step(idea: str, score: float | None = None, status: str = "correct", body: str = "") -> Script:
    """Replies of a round whose kernel has that score, and shares few lines with any other."""
    lines = "".join(f"// {idea}\nint {idea}_{number}; {body}\n" for number in range(9))
    return [plan(idea), code(kernel(status, score, idea) + lines), command()]


def search(
    strategy: str, script: Script, rounds: int, seed: int = 0, bench: ScriptedWorkbench | None = None, **options: object
) -> tuple[Result, ScriptedModel, ScriptedWorkbench]:
    bench, model = bench or ClassedBench(), ScriptedModel(script)
    chosen = {**asdict(registry.find(strategy).options()), **options}
    result = search_stand_ins.search(bench, model.for_all(), strategy, rounds, options=chosen, search_seed=seed)
    assert model.exhausted, "the strategy asked less than it should have"
    return result, model, bench


def starts(model: ScriptedModel) -> list[str]:
    """The tag of the kernel that each round's Coder started from."""
    return [prompt.rpartition("```cuda\n// ")[2].split(maxsplit=3)[2] for prompt in model.prompts(Role.CODER)]


def made(score: float, text: str, number: int) -> Kernel:
    candidate = Candidate("double_it", Precision.FP32, text, COMMAND)
    return Kernel(candidate, exemplar(score).verdict, score, number)


# ---- a beam


def test_a_beam_takes_a_step_from_each_of_its_best_kernels() -> None:
    """Two kernels: both rounds of the first generation start from the baseline, then from the faster, and the other."""
    script = [*step("a", 1.5), *step("b", 2.0), *step("c", 1.8), *step("d", 1.7), *step("e", 1.1), *step("f", 1.1)]
    result, model, bench = search("beam", script, 6, width=2)
    assert starts(model) == ["baseline", "baseline", "b", "a", "b", "c"]
    assert result.score == 2.0
    assert [done.outcome.accepted for done in result.rounds] == [True, True, False, False, False, False]
    assert len(bench.profiled) == 4, "the baseline, the bests a and b, and c, which the Planner saw"


def test_the_planner_of_a_beam_reads_where_its_kernel_stands() -> None:
    """A plan that made the kernel no faster is a failure, whatever the fastest is; others' plans are titles alone."""
    script = [*step("a", 1.5), *step("b", 2.0), *step("c", 0.9), *step("d", 1.6), *step("e", status="wrong")]
    script += step("f", 1.7)
    _, model, _ = search("beam", script, 6, width=2)
    prompt = model.prompts(Role.PLANNER)[-1]  # about d, which was made from a
    assert "The fastest kernel of the search has a weighted speedup of 2.000." in prompt
    assert "1. speedup 1.500: a\n2. speedup 1.600: d\n" in prompt
    assert "- correct, speedup 2.000: b\n- correct, speedup 0.900: c\n- wrong: e\n" in prompt
    assert "PLAN for c" not in prompt
    assert prompt.rstrip().endswith("## Plans for this kernel so far\n\nNone yet.")
    third = model.prompts(Role.PLANNER)[1]
    assert "1. ACCEPTED, speedup 1.500: a" in third
    assert "It need not be the fastest." in model.requests[0].messages[0].content


def test_a_beam_holds_the_fastest_that_differ() -> None:
    """Comments and blanks make no difference, one line of ten does not either; among equals the earlier one is kept."""
    ten = "".join(f"line {number};\n" for number in range(10))
    kernels = [
        made(1.0, ten, 0),
        made(1.2, ten.replace("line 3", "line 33"), 1),
        made(1.2, "another();\n" * 10, 2),
        made(1.1, "// faster?\n" + ten.replace("line", "  line"), 3),
        made(0.8, "a third();\n", 4),
        made(0.7, "a fourth();\n", 5),
    ]
    assert [each.made for each in beam.best_that_differ(kernels, beam.Options())] == [1, 2, 4]
    all_apart = beam.Options(width=9, alike=1.1)
    assert [each.made for each in beam.best_that_differ(kernels, all_apart)] == [1, 2, 3, 0, 4, 5]
    assert likeness(kernels[0].candidate, kernels[3].candidate) == 1.0
    assert likeness(kernels[0].candidate, kernels[1].candidate) == pytest.approx(0.9)


def test_a_copy_joins_no_beam_and_a_spent_kernel_leaves_it() -> None:
    """The Planner has nothing for the baseline after a: the beam goes on with a alone, and ends with it."""
    script = [*step("a", 1.5), *step("a", 1.5), NOTHING, *step("b", 1.2), NOTHING, NOTHING]
    result, model, bench = search("beam", script, 9, width=3)
    assert starts(model) == ["baseline", "baseline", "a"]
    assert len(bench.evaluated) == 3, "a copy is judged once"
    assert len(result.rounds) == 3
    assert result.note == "The planner has no further idea for any kernel that is kept after 3 of 9 rounds."
    # Also where no two kernels are alike: a and its copy would take both places.
    script = [*step("a", 1.5), *step("a", 1.5), *step("b", 1.2), *step("c", 1.1)]
    assert starts(search("beam", script, 4, width=2, alike=2.0)[1]) == ["baseline", "baseline", "a", "baseline"]


def test_a_reply_without_a_form_costs_a_beam_the_round() -> None:
    script = [(Role.PLANNER, "hm"), (Role.PLANNER, "hm"), *step("a", 1.5), *step("b", 1.6)]
    result, model, _ = search("beam", script, 3, width=2)
    assert starts(model) == ["baseline", "a"]
    assert result.rounds[0].outcome.plan.idea == "(no plan)"
    assert "(no plan)" in model.prompts(Role.PLANNER)[-1]


# ---- islands of MAP-Elites


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("wmma::mma_sync(c, a, b, c); __shared__ float s[1];", "tensor cores"),
        ('asm("mma.sync.aligned.m16n8k16");', "tensor cores"),
        ('asm("cp.async.cg.shared.global [%0], [%1], 16;"); __shared__ int x;', "asynchronous copies"),
        ("__shared__ float s[32]; __shfl_down_sync(m, v, 1);", "shared memory"),
        ("v += __shfl_xor_sync(~0u, v, 16); // no __shared__ here", "warp primitives"),
        ("/* wmma would not help */ float comma = 1;", "registers alone"),
    ],
)
def test_the_means_of_a_kernel_are_those_of_its_code(text: str, means: str) -> None:
    assert mapelites.means_of(text) == means


def test_a_cell_keeps_its_fastest_kernel_and_the_best_move_in_a_ring() -> None:
    one, two = Cell("compute bound", "shared memory"), Cell("not known", "registers alone")
    islands = [Archive(), Archive(), Archive()]
    first, equal, other, third = made(1.5, "a", 1), made(1.5, "b", 2), made(1.2, "c", 3), made(1.0, "d", 4)
    for cell, each in ((one, first), (one, equal), (two, other)):
        islands[0].add(cell, each)
    assert islands[0].cells == {one: first, two: other}
    islands[1].add(two, third)
    islands[2].add(two, third)
    mapelites.migrate(islands)
    assert islands[1].cells == {two: third, one: first}
    assert islands[2].cells == {two: third}, "what had just arrived did not move on"
    assert islands[0].cells == {one: first, two: other}
    assert str(two) == "class not known, registers alone"


def test_a_parent_is_any_kernel_that_is_the_best_of_its_cell() -> None:
    """a and b differ in class, c is a slower one of b's cell: never drawn, and profiled all the same."""
    script = [*step("a", 1.5), *step("b", 2.0, body="COMPUTE"), *step("c", 1.8, body="COMPUTE")]
    script += [each for number in range(20) for each in step(f"x{number}", 0.5)]
    _, model, bench = search("mapelites", script, 23, islands=1)
    assert set(starts(model)[3:]) == {"a", "b"}
    assert len(bench.profiled) == 24, "the class of each kernel is half of its cell"
    prompt = model.prompts(Role.PLANNER)[starts(model).index("a", 3)]
    assert "- compute bound, registers alone: speedup 2.000, by: b\n" in prompt


def test_islands_take_turns_and_have_kernels_of_their_own_until_some_move() -> None:
    script = [made for number, tag in enumerate("abcdef") for made in step(tag, 1.5 + number / 10)]
    _, model, _ = search("mapelites", script, 6, islands=2, migration_interval=4)
    assert starts(model)[:4] == ["baseline", "baseline", "a", "b"]
    assert starts(model)[4:] == ["d", "d"], "the faster of both is in both islands, in the only cell"
    one, two = (search("mapelites", script, 6, seed)[1].requests for seed in (3, 3))
    assert one == two


# ---- a bandit


def test_ucb1_chooses_by_mean_and_trials() -> None:
    """By hand: after four trials, sqrt(2 ln 4 / 1) = 1.665 and sqrt(2 ln 4 / 3) = 0.961."""
    first, second, third = (arm.kind for arm in bandit.KINDS[:3])
    record = bandit.Record()
    assert record.choose([first, second], 1.0) == first
    for kind, value in ((first, 0.9), (first, 0.9), (second, 0.3), (first, 0.9)):
        record.add(kind, value)
    assert record.choose([first, second, third], 1.0) == third
    assert record.index(first, 1.0) == pytest.approx(0.9 + 0.961, abs=1e-3)
    assert record.index(second, 1.0) == pytest.approx(0.3 + 1.665, abs=1e-3)
    assert record.choose([first, second], 1.0) == second
    assert record.choose([first, second], 0.2) == first
    assert [bandit.reward(1.0, after) for after in (1.0, 2.0, 8.0)] == [0.0, 1.0, 1.0]
    assert bandit.reward(2.0, 3.0) == pytest.approx(math.log2(1.5))


def kinds(model: ScriptedModel) -> list[str | tuple[str, ...]]:
    return [request.facts["kind"] for request in model.requests if request.role is Role.PLANNER]


def test_a_kind_that_paid_is_asked_for_again_and_the_profile_leaves_some_out() -> None:
    """Eight kinds are left for a kernel that waits for memory. The third doubles the speed, so it comes back first."""
    gains = {3: 2.0, 9: 3.0}
    script = [made for number in range(1, 10) for made in step(f"i{number}", gains.get(number, 0.9))]
    result, model, _ = search("bandit", script, 9)
    asked = kinds(model)
    assert asked[:8] == [arm.kind.name for arm in bandit.KINDS if Bottleneck.LATENCY not in arm.left_out]
    assert asked[8] == asked[2] == "shared memory"
    assert result.score == 3.0
    assert "\n**shared memory**: tiles that" in model.prompts(Role.PLANNER)[8]
    assert "Best kernel so far" in model.prompts(Role.PLANNER)[8]
    assert {"tensor cores", "cheaper arithmetic"}.isdisjoint(asked)
    _, model, _ = search("bandit", [made for n in range(10) for made in step(f"i{n}", 0.9)], 10, prune=False)
    assert set(kinds(model)) == {arm.kind.name for arm in bandit.KINDS}


def test_the_class_of_the_best_kernel_decides_not_that_of_the_baseline() -> None:
    """The first step makes it compute bound: tensor cores come in, asynchronous copies go out."""
    script = [*step("i0", 1.1, body="COMPUTE"), *(made for n in range(1, 8) for made in step(f"i{n}", 0.9))]
    asked = kinds(search("bandit", script, 8)[1])
    assert {"tensor cores", "cheaper arithmetic"} < set(asked)
    assert {"asynchronous copies", "launch shape"}.isdisjoint(asked)


def test_a_kind_that_cannot_help_costs_a_reply_and_comes_back_with_a_new_best() -> None:
    script = [NOTHING, *step("a", 0.9), NOTHING, *step("b", 1.5), NOTHING, *[NOTHING] * 7]
    result, model, _ = search("bandit", script, 5)
    names = [kind.name for kind in bandit.kinds_for(Bottleneck.LATENCY)]
    assert kinds(model)[:4] == names[:4]
    assert set(kinds(model)[4:]) == set(names), "each once more for the new best"
    assert len(result.rounds) == 2
    assert result.note == "The planner has no idea of any kind after 2 of 5 rounds."


def test_readers_see_which_kind_it_is_and_agents_do_not() -> None:
    plans: list[str] = []

    class Watching(Observer):
        def planned(self, number: int, plan: Plan) -> None:
            plans.append(plan.text)

    model = ScriptedModel(step("a", 1.5))
    options = asdict(bandit.Options())
    search_stand_ins.search(ClassedBench(), model.for_all(), "bandit", 1, observer=Watching(), options=options)
    (told,) = plans
    assert told.startswith(
        "Kind: memory access (not tried yet). Left out of a kernel that is memory latency bound: tens"
    )
    assert "Kind:" not in model.prompts(Role.CODER)[0]


def test_every_kind_is_left_for_some_class_and_every_class_has_most_kinds() -> None:
    assert len({arm.kind.name for arm in bandit.KINDS}) == len(bandit.KINDS) == 10
    for arm in bandit.KINDS:
        assert len(arm.left_out) < len(Bottleneck)
        assert all(arm.left_out.values())
    assert all(len(bandit.kinds_for(limit)) == 8 for limit in Bottleneck)
    assert len(bandit.kinds_for(None)) == 10


# ---- all three: killed, resumed, replayed

SCORES = (1.2, None, 1.5, 0.8, 1.4, 1.9, 1.9, 0.7)
SCRIPT = [made for n, s in enumerate(SCORES) for made in step(f"i{n}", s, "correct" if s else "wrong")]


def settings(strategy: str) -> Settings:
    found = registry.find(strategy)
    asked = dict.fromkeys(found.roles, "scripted")
    options = registry.parse_options(found, ())
    return Settings(strategy, len(SCORES), 0, "cpu", asked, options=options, search_seed=2**62 + 5)


class Dies(ScriptedModel):
    """The process is killed when it is asked once more."""

    def ask(self, request: Request) -> Reply:
        """Answer, or die."""
        if len(self.requests) == len(list(self.script)):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().ask(request)


def in_a_process_of_its_own(work: Callable[[], object]) -> int:
    """How a forked process ends that does the work."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("strategy", NEW)
def test_killed_at_any_question_a_run_goes_on_as_it_would_have(strategy: str, tmp_path: Path) -> None:
    """kill -9 in a process of its own: the same requests to the letter, the same result, nothing judged twice."""

    def requests(run: Path) -> list[object]:
        return [json.loads(path.read_text())["request"] for path in sorted((run / "exchanges").glob("*.json"))]

    whole_bench = ClassedBench()
    whole = optimization.optimize(tmp_path / "whole", whole_bench, ScriptedModel(SCRIPT).for_all(), settings(strategy))
    assert len(whole.rounds) == len(SCORES)
    for answered in (0, 8, 13, 23):
        run, dies = tmp_path / str(answered), Dies(SCRIPT[:answered]).for_all()
        ended = in_a_process_of_its_own(
            lambda run=run, dies=dies: optimization.optimize(run, ClassedBench(), dies, settings(strategy))
        )
        assert ended == -signal.SIGKILL
        assert len(requests(run)) == answered
        if answered:
            assert reading.read(run).stopped_at is not None
        bench = ClassedBench()
        resumed = optimization.resume(run, bench, ScriptedModel(SCRIPT[answered:]).for_all())
        assert (resumed.best, resumed.score, resumed.rounds) == (whole.best, whole.score, whole.rounds)
        assert requests(run) == requests(tmp_path / "whole")
        judged = {path.stem for path in (tmp_path / "whole" / "verdicts").iterdir()}
        assert {path.stem for path in (run / "verdicts").iterdir()} == judged
        assert len(bench.evaluated) <= len(judged) - (answered // 3)
    told = reading.read(tmp_path / "whole")
    assert told.rounds[-1].attempts[0].written_from in judged


@pytest.mark.parametrize("strategy", NEW)
def test_a_replay_needs_no_model_and_no_device(strategy: str, tmp_path: Path) -> None:
    card = cards.load("dot_product")
    bench = ClassedBench()
    text = baseline_region(card, Precision.FP32)
    bench.card = card  # type: ignore[assignment]
    bench.baseline = Candidate(card.name, Precision.FP32, text, COMMAND)
    judge = bench.evaluate

    def evaluate(candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        if candidate.id != bench.baseline.id:
            return judge(candidate, to_beat=to_beat)
        return replace(exemplar(1.0).verdict, candidate=candidate.id)

    bench.evaluate = evaluate  # type: ignore[method-assign]
    script = [(role, text.replace("double_it", card.name)) for role, text in SCRIPT]
    recorded = optimization.optimize(tmp_path / "run", bench, ScriptedModel(script).for_all(), settings(strategy))
    record = read_record(tmp_path / "run")
    again = optimization.optimize(
        tmp_path / "again",
        replaying.workbench(record, card),
        replaying.models(record, same_requests=True),
        settings(strategy),
    )
    replaying.must_agree(record, again)
    assert again == recorded
