"""Holds the contrastive strategy to the CUDA-L1 paper: its draws to equation 1, its rounds to section 2.4.

Draws are tried with fixed seeds, so that a test that passes once passes always.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from search_stand_ins import COMMAND, FakeCard, ScriptedModel, ScriptedWorkbench, code, command, kernel

from cudamaster import optimization, reading
from cudamaster.agents.asking import Misfit
from cudamaster.agents.contrast import Exemplar
from cudamaster.agents.replies import sections
from cudamaster.errors import DeviceError, ModelError, UsageError
from cudamaster.models.playbook import PlaybookModel
from cudamaster.models.protocol import Reply, Request
from cudamaster.runrecord import Settings as RunSettings
from cudamaster.strategies import registry
from cudamaster.strategies.contrastive import NAME, Options, optimize
from cudamaster.strategies.exemplars import Islands, Pool, Selection, buckets, probabilities
from cudamaster.strategies.protocol import Silent
from cudamaster.strategies.result import Result
from cudamaster.values import Candidate, Plan, Precision, Role, Status, Verdict

# Upper 1 % points of chi-square by degrees of freedom, from the tables.
CHI_SQUARE_99 = {2: 9.21, 4: 13.28, 5: 15.09}


def exemplar(score: float, tag: str = "", status: Status = Status.CORRECT) -> Exemplar:
    candidate = Candidate("double_it", Precision.FP32, kernel(status, score, tag), COMMAND)
    return Exemplar(candidate, Verdict(candidate.id, "stand-in", True, status, "", score=score), score)


def pool(*scores: float) -> Pool:
    return Pool([exemplar(score, str(number)) for number, score in enumerate(scores)])


def scores_of(exemplars: Sequence[Exemplar]) -> tuple[float, ...]:
    return tuple(member.score for member in exemplars)


# ---- equation 1


def equation_1(means: Sequence[float], tau: float) -> list[float]:
    """The equation as the paper writes it, the mean of the buckets' scores taken off."""
    centre = sum(means) / len(means)
    weights = [math.exp((mean - centre) / tau) for mean in means]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("tau", [0.2, 1.0, 7.0])
def test_probabilities_are_those_of_the_equation(tau: float) -> None:
    means = [0.6, 1.0, 1.03, 2.5, 4.1]
    assert probabilities(means, tau) == pytest.approx(equation_1(means, tau), rel=1e-12)


def test_no_score_and_no_temperature_overflows() -> None:
    """exp((120 - 0.5) / 0.01) is no float, and neither is a score over the smallest temperature there is."""
    assert probabilities([0.5, 120.0], 0.01) == [0.0, 1.0]
    assert probabilities([0.5, 120.0], 5e-324) == [0.0, 1.0]


def test_a_cold_draw_takes_the_best_buckets_and_a_hot_one_any() -> None:
    scores = [0.5, 1.0, 1.5, 2.0]
    cold = Selection(exemplars=2, temperature=1e-6)
    assert {scores_of(pool(*scores).draw(cold, Random(seed))) for seed in range(50)} == {(1.5, 2.0)}
    assert probabilities(scores, 1e9) == pytest.approx([0.25] * 4)


def test_equal_scores_are_equally_likely() -> None:
    assert probabilities([1.3, 1.3, 1.3], 0.1) == pytest.approx([1 / 3] * 3)


def chi_square(counts: Counter[object], expected: dict[object, float]) -> float:
    total = sum(counts.values())
    assert set(counts) <= set(expected)
    return sum((counts[key] - total * p) ** 2 / (total * p) for key, p in expected.items())


def test_one_bucket_is_drawn_as_the_equation_says() -> None:
    """A bucket's score is the mean of its members; they are uneven here, so that the best or the worst would show."""
    groups = [(1.0, 1.1, 2.7), (3.2, 3.4, 8.5), (9.5,)]
    members = pool(*(score for group in groups for score in group))
    assert [scores_of(bucket) for bucket in buckets(members.members, 3.0).values()] == groups
    random = Random(11)
    drawn = Counter[object]()
    for _ in range(6000):
        (one,) = members.draw(Selection(exemplars=1, temperature=4.0, bucket_ratio=3.0), random)
        drawn[next(number for number, group in enumerate(groups) if one.score in group)] += 1

    def fit(means: list[float]) -> float:
        return chi_square(drawn, dict(enumerate(equation_1(means, 4.0))))

    assert fit([sum(group) / len(group) for group in groups]) < CHI_SQUARE_99[2]
    for other in (max, min, lambda group: 1.0):
        assert fit([other(group) for group in groups]) > 5 * CHI_SQUARE_99[2], "the check can tell other distributions"


def test_two_buckets_are_drawn_one_after_the_other() -> None:
    """The second is drawn by the same equation from what is left: all six pairs of four buckets."""
    scores = (0.7, 1.0, 1.6, 2.2)
    expected = dict[object, float]()
    for first, p in zip(scores, equation_1(scores, 1.0), strict=True):
        rest = [score for score in scores if score != first]
        for second, q in zip(rest, equation_1(rest, 1.0), strict=True):
            pair = (min(first, second), max(first, second))
            expected[pair] = expected.get(pair, 0.0) + p * q
    random, members = Random(5), pool(*scores)
    drawn = Counter[object](scores_of(members.draw(Selection(), random)) for _ in range(6000))
    assert chi_square(drawn, expected) < CHI_SQUARE_99[5]


def test_within_a_bucket_all_kernels_are_equally_likely() -> None:
    """Five in one bucket, however their scores differ there."""
    members = pool(1.95, 2.0, 2.05, 2.1, 2.14)
    random = Random(11)
    drawn = Counter[object](
        members.draw(Selection(exemplars=1, temperature=0.01), random)[0].score for _ in range(5000)
    )
    assert chi_square(drawn, dict.fromkeys(scores_of(members.members), 0.2)) < CHI_SQUARE_99[4]


# ---- buckets and pools


def test_buckets_are_a_factor_wide_and_half_open() -> None:
    found = buckets(pool(1.0, 1.99, 2.0, 3.99, 4.0, 0.5).members, 2.0)
    assert {number: scores_of(members) for number, members in found.items()} == {
        0: (1.0, 1.99), 1: (2.0, 3.99), 2: (4.0,), -1: (0.5,),
    }  # fmt: skip


def test_exemplars_come_from_distinct_buckets_the_slowest_first() -> None:
    members, random = pool(1.0, 1.01, 1.02, 3.0, 3.01), Random(0)
    for _ in range(200):
        slow, fast = members.draw(Selection(temperature=5.0), random)
        assert slow.score < 1.1
        assert fast.score >= 3.0


def test_one_bucket_gives_one_exemplar() -> None:
    """Fewer buckets than N: one of each, and never two of the same."""
    assert len(pool(1.0, 1.01, 1.05).draw(Selection(exemplars=2), Random(0))) == 1
    assert len(pool(1.0, 2.0, 2.01).draw(Selection(exemplars=4), Random(0))) == 2


@pytest.mark.parametrize("score", [math.nan, math.inf, 0.0, -1.0])
def test_an_unusable_score_never_enters(score: float) -> None:
    members = pool(1.0)
    assert not members.add(exemplar(score, "new"))
    assert scores_of(members.members) == (1.0,)


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.CORRECT])
def test_a_kernel_that_fails_never_enters(status: Status) -> None:
    assert not pool(1.0).add(exemplar(9.0, "new", status))


def test_a_kernel_enters_once() -> None:
    """A copy would be twice as likely to be drawn."""
    members = pool(1.0)
    assert members.add(exemplar(2.0, "a"))
    assert not members.add(exemplar(2.0, "a"))


def test_draws_use_only_what_python_keeps_the_same_for_a_seed() -> None:
    """`Random.random` is promised to stay as it is over versions, the other methods are not."""

    class OnlyRandom(Random):
        def getrandbits(self, k: int, /) -> int:
            raise AssertionError("a method other than random() was used")

    assert len(pool(1.0, 2.0, 3.0).draw(Selection(), OnlyRandom(1))) == 2


# ---- islands


def test_islands_take_turns() -> None:
    islands = Islands(exemplar(1.0), count=3, interval=100)
    turns = [islands.pools.index(islands.of_round(number)) for number in range(1, 8)]
    assert turns == [0, 1, 2, 0, 1, 2, 0]


def test_the_inferior_half_gets_copies_of_a_superior_island() -> None:
    """Four islands: those with 1.2 and nothing lose what they have and hold what 3.0 or 2.0 holds."""
    islands = Islands(exemplar(1.0), count=4, interval=8)
    for number, score in ((1, 3.0), (2, 1.2), (3, 2.0)):
        islands.of_round(number).add(exemplar(score, str(number)))
    islands.of_round(1).add(exemplar(0.5, "slow"))
    islands.end_round(7, Random(0))
    assert [scores_of(island.members) for island in islands.pools] == [(1.0, 3.0, 0.5), (1.0, 1.2), (1.0, 2.0), (1.0,)]
    islands.end_round(8, Random(0))
    kept, first_copy, also_kept, second_copy = (scores_of(island.members) for island in islands.pools)
    assert (kept, also_kept) == ((1.0, 3.0, 0.5), (1.0, 2.0))
    assert {first_copy, second_copy} <= {kept, also_kept}


def test_copies_grow_apart_again() -> None:
    islands = Islands(exemplar(1.0), count=2, interval=2)
    islands.of_round(1).add(exemplar(2.0, "a"))
    islands.end_round(2, Random(0))
    islands.of_round(3).add(exemplar(4.0, "b"))
    assert [island.best_score for island in islands.pools] == [4.0, 2.0]


def test_of_three_islands_one_is_replaced() -> None:
    islands = Islands(exemplar(1.0), count=3, interval=3)
    for number, score in ((1, 1.5), (2, 3.0), (3, 2.0)):
        islands.of_round(number).add(exemplar(score, str(number)))
    islands.end_round(3, Random(1))
    assert islands.pools[0].best_score in (3.0, 2.0)
    assert [island.best_score for island in islands.pools[1:]] == [3.0, 2.0]


# ---- the three parts of a reply


def contrast(idea: str, text: str) -> tuple[Role, str]:
    """A reply in three parts."""
    parts = f"## Analysis\n\nWHY of {idea}\n\n## Algorithm\n\n{idea}\n\n1. POINTS of {idea}\n\n## Code\n"
    return Role.CODER, f"{parts}\n```cuda\n{text}```\n"


@pytest.mark.parametrize(
    "text",
    [
        "## Analysis\na\n## Algorithm\nb\n## Code\nc",
        "Here you are.\n\n### I) Performance analysis\n\na\n\n### II) Algorithm Design:\n\nb\n\n### III) Code\n\nc",
        "**1. Analysis**\na\n**Algorithm:**\nb\n__Code__\nc",
        "<think>## Analysis\nnot yet</think>## Analysis\na\n## Algorithm\nb\n## Code\nc",
        "# analysis\na\n# algorithm\nb\n# code\nc",
        "    ## Analysis\n\n    a\n\n    ## Algorithm\n    b\n    ## Code\nc",
    ],
)
def test_parts_are_found_under_their_headings(text: str) -> None:
    assert sections(text, "Analysis", "Algorithm", "Code") == ["a", "b", "c"]


def test_no_heading_is_looked_for_in_a_fence_or_out_of_turn() -> None:
    text = "## Analysis\n### Code of kernel 2\n```\n# Algorithm\n```\n## Algorithm\nb\n## Code\n### Analysis\nc"
    analysis, algorithm, rest = sections(text, "Analysis", "Algorithm", "Code")
    assert analysis.endswith("# Algorithm\n```")
    assert (algorithm, rest) == ("b", "### Analysis\nc")


@pytest.mark.parametrize(
    ("text", "missing"),
    [("no parts", "Analysis"), ("## Analysis\na\n## Code\nc", "Algorithm"), ("## Analysis\na\n## Algorithm", "Code")],
)
def test_a_missing_part_is_named(text: str, missing: str) -> None:
    with pytest.raises(Misfit, match=f'"## {missing}"'):
        sections(text, "Analysis", "Algorithm", "Code")


# ---- rounds


def search(
    script: list[tuple[Role, str]], rounds: int, options: Options | None = None, seed: int = 0
) -> tuple[Result, ScriptedModel, ScriptedWorkbench]:
    bench, model = ScriptedWorkbench(), ScriptedModel(script)
    result = optimize(bench, model.for_all(), rounds, options, seed)
    assert model.exhausted, "the strategy asked less than it should have"
    return result, model, bench


def step(idea: str, score: float | None = None, status: str = "correct") -> list[tuple[Role, str]]:
    return [contrast(idea, kernel(status, score, idea)), command()]


def test_the_first_round_shows_the_baseline_alone() -> None:
    """Its score is 1 by definition, not what noise made of it (1.01 here); nothing else is there to compare with."""
    result, model, bench = search(step("A", 2.0), 1)
    (prompt,) = model.prompts(Role.CODER)
    assert "score 1, the baseline itself" in prompt
    assert prompt.count("### Kernel") == 1
    assert model.requests[0].facts["exemplars"] == (f"{bench.baseline.id} 1.0",)
    assert (result.score, result.improved) == (2.0, True)


def test_one_kernel_a_round_and_no_debugging() -> None:
    """The Coder and the Compiler are asked, once each, also after a failure."""
    script = [*step("A", status="wrong"), *step("B", 1.5)]
    result, model, _ = search(script, 2)
    assert [request.role for request in model.requests] == [Role.CODER, Role.COMPILER] * 2
    assert [r.outcome.status for r in result.rounds] == [Status.WRONG, Status.CORRECT]


def test_a_later_round_shows_kernels_with_their_scores() -> None:
    """A correct kernel that is slower than the best is an exemplar too: there is something to learn from it."""
    script = [*step("A", 0.5), *step("B", 2.0)]
    _, model, bench = search(script, 2)
    prompt = model.prompts(Role.CODER)[1]
    assert "### Kernel 1: score 0.500 (emulated)" in prompt
    assert "// correct 0.5 A" in prompt
    assert "### Kernel 2: score 1, the baseline itself" in prompt
    assert bench.baseline.code.rstrip() in prompt
    assert prompt.count("| N=8 | 100 % |") == 1, "each case of a kernel with its speedup; the baseline has none"
    assert COMMAND in prompt


def test_the_code_is_built_with_the_plan_of_the_reply() -> None:
    result, model, _ = search(step("Wider loads", 2.0), 1)
    assert result.rounds[0].outcome.plan == Plan("Wider loads", "1. POINTS of Wider loads")
    assert 'written for "Wider loads"' in model.prompts(Role.COMPILER)[0]


def test_a_compiler_without_a_usable_reply_costs_no_round() -> None:
    reply = step("A", 2.0)[0]
    result, _, _ = search([reply, (Role.COMPILER, "gcc"), (Role.COMPILER, "make it")], 1)
    assert (result.score, result.best.command) == (2.0, COMMAND)


def test_a_reader_is_told_all_three_parts_of_a_reply(tmp_path: Path) -> None:
    """What explains the scores, what is done about it, and the code; the Compiler hears nothing of the first."""
    model = ScriptedModel(step("A", 2.0))
    roles = (Role.CODER, Role.COMPILER)
    settings = RunSettings(NAME, 1, 0, "cpu", dict.fromkeys(roles, "scripted"), options=dataclasses.asdict(Options()))
    optimization.optimize(tmp_path / "run", ScriptedWorkbench(), dict.fromkeys(roles, model), settings)
    (told,) = reading.read(tmp_path / "run").rounds
    assert told.plan == Plan("A", "WHY of A\n\n1. POINTS of A")
    assert told.attempts[0].diff
    assert "WHY" not in model.prompts(Role.COMPILER)[0]


@pytest.mark.parametrize("status", ["wrong", "compile_error", "fault", "timeout"])
def test_a_failing_kernel_is_kept_in_the_record_and_shown_to_nobody(status: str) -> None:
    result, model, _ = search([*step("A", status=status), *step("B", 2.0)], 2)
    assert "A" not in [line.split()[-1] for line in model.prompts(Role.CODER)[1].splitlines() if line.startswith("// ")]
    assert result.rounds[0].attempts[0].status is Status(status)
    assert result.rounds[0].outcome.detail == "DETAIL A"


def test_a_kernel_that_a_reviewer_calls_a_trick_is_no_exemplar(tmp_path: Path) -> None:
    """A score that is not trusted teaches nothing: the next round sees the baseline alone."""
    hack = json.dumps({"verdict": "hack", "case": "caching", "reason": "it keeps its result"})
    model = ScriptedModel([*step("A", 50.0), (Role.REVIEWER, hack), *step("B", 1.5)])
    roles = (Role.CODER, Role.COMPILER, Role.REVIEWER)
    settings = RunSettings(NAME, 2, 0, "cpu", dict.fromkeys(roles, "scripted"), options=dataclasses.asdict(Options()))
    result = optimization.optimize(tmp_path / "run", ScriptedWorkbench(), dict.fromkeys(roles, model), settings)
    assert result.score == 1.5
    assert [r.outcome.status for r in result.rounds] == [Status.REJECTED, Status.CORRECT]
    assert model.prompts(Role.CODER)[1].count("### Kernel") == 1


@pytest.mark.parametrize("score", [None, math.nan])
def test_a_kernel_without_a_score_is_no_exemplar_and_no_best(score: float | None) -> None:
    result, model, _ = search([*step("A", score), *step("B", 2.0)], 2)
    assert model.prompts(Role.CODER)[1].count("### Kernel") == 1
    assert [r.outcome.accepted for r in result.rounds] == [False, True]


def test_the_best_moves_only_for_a_faster_kernel() -> None:
    """And findings are computed for a new best alone."""
    result, _, bench = search([*step("A", 2.0), *step("B", 1.5), *step("C", 3.0)], 3)
    assert [r.outcome.accepted for r in result.rounds] == [True, False, True]
    assert [r.best_score for r in result.rounds] == [2.0, 2.0, 3.0]
    assert result.rounds[1].outcome.detail == "speedup 1.500, where the best so far has 2.000"
    assert len(bench.profiled) == 3


def test_a_reply_out_of_form_is_asked_again_and_then_costs_its_round() -> None:
    """The second chance says what is missing; after it the round is lost and the search goes on."""
    bad = code(kernel(score=9.0, tag="a"))  # a kernel without its analysis
    result, model, _ = search([bad, bad, bad, *step("B", 2.0)], 2)
    assert 'no part under the heading "## Analysis"' in model.requests[1].messages[-1].content
    assert [r.outcome.status for r in result.rounds] == [Status.REJECTED, Status.CORRECT]
    assert result.rounds[0].attempts == ()
    assert result.score == 2.0


def test_an_analysis_cannot_be_left_out() -> None:
    empty = (Role.CODER, f"## Analysis\n\n## Algorithm\nA\n## Code\n```cuda\n{kernel(score=2.0)}```\n")
    result, _, _ = search([empty, empty], 1)
    assert 'the part under "Analysis" is empty' in result.rounds[0].outcome.detail


def test_the_same_seed_makes_the_same_draws_and_another_makes_others() -> None:
    """What a resumed run rests on: requests, which carry the exemplars, are the same to the letter."""
    script = [made for number in range(12) for made in step(f"idea {number}", 0.5 + 0.3 * number)]
    options = Options(islands=2, migration_interval=4, temperature=3.0)
    _, one, _ = search(script, 12, options, seed=7)
    _, two, _ = search(script, 12, options, seed=7)
    _, other, _ = search(script, 12, options, seed=8)
    assert one.requests == two.requests
    assert one.requests != other.requests


def requests_of(run: Path) -> list[object]:
    """What the run's models were asked, in order."""
    paths = sorted((run / "exchanges").glob("*.json"))
    return [json.loads(path.read_text())["request"] for path in paths]


@pytest.mark.parametrize("answered", [0, 1, 7, 12, 15])
def test_a_run_that_is_stopped_anywhere_goes_on_with_the_same_draws(tmp_path: Path, answered: int) -> None:
    """Eight rounds on two islands, stopped after so many answers: resumed, every request is that of the whole run."""
    script = [made for number in range(8) for made in step(f"idea {number}", 0.5 + 0.4 * number)]
    options = dataclasses.asdict(Options(islands=2, migration_interval=3, temperature=2.0))
    settings = RunSettings(
        NAME, 8, 0, "cpu", {Role.CODER: "scripted", Role.COMPILER: "scripted"}, options=options, search_seed=2**62 + 5
    )
    asked = (Role.CODER, Role.COMPILER)
    whole = optimization.optimize(
        tmp_path / "whole", ScriptedWorkbench(), dict.fromkeys(asked, ScriptedModel(script)), settings
    )
    run = tmp_path / "stopped"
    with pytest.raises(ModelError):
        optimization.optimize(run, ScriptedWorkbench(), dict.fromkeys(asked, Stops(script[:answered])), settings)
    resumed = optimization.resume(run, ScriptedWorkbench(), dict.fromkeys(asked, ScriptedModel(script[answered:])))
    assert (resumed.best, resumed.score, resumed.rounds) == (whole.best, whole.score, whole.rounds)
    assert requests_of(run) == requests_of(tmp_path / "whole")
    assert len(requests_of(run)) == 16


class Stops(ScriptedModel):
    """Cannot be reached any more once its script is used up."""

    def ask(self, request: Request) -> Reply:
        """Answer while there is something left."""
        if len(self.requests) == len(list(self.script)):
            raise ModelError("Model x cannot be reached.", "Wait.")
        return super().ask(request)


def test_the_strategy_is_found_by_name_with_its_options() -> None:
    """What --strategy and --set give: the rest by default, and a fault named."""
    found = registry.find("contrastive")
    assert found.roles == (Role.CODER, Role.COMPILER)
    given = registry.parse_options(found, ["islands=4", "temperature=0.5"])
    assert given == {**dataclasses.asdict(Options()), "islands": 4, "temperature": 0.5}
    with pytest.raises(UsageError, match="bucket_ratio is 1"):
        registry.parse_options(found, ["bucket_ratio=1"])


def test_an_island_does_not_see_what_another_found() -> None:
    """Two islands, no copies: round 3 belongs to the first again, and knows nothing of round 2."""
    script = [*step("A", 2.0), *step("B", 4.0), *step("C", 3.0)]
    result, model, _ = search(script, 3, Options(islands=2, migration_interval=50))
    prompt = model.prompts(Role.CODER)[2]
    assert "// correct 2.0 A" in prompt
    assert "// correct 4.0 B" not in prompt
    assert result.score == 4.0, "the best is that of all islands"
    assert not result.rounds[2].outcome.accepted


def test_copies_reach_an_island_in_a_search() -> None:
    """Two islands, copies after round 2: round 3 belongs to the first, which was replaced by what the second found."""
    script = [*step("A", status="wrong"), *step("B", 4.0), *step("C", 3.0)]
    _, model, _ = search(script, 3, Options(islands=2, migration_interval=2))
    assert "// correct 4.0 B" in model.prompts(Role.CODER)[2]


@pytest.mark.parametrize(
    "wrong",
    [
        {"islands": 0},
        {"migration_interval": 0},
        {"exemplars": 0},
        {"temperature": 0.0},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"bucket_ratio": 1.0},
        {"bucket_ratio": math.nan},
    ],
)
def test_options_that_make_no_search_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(wrong))} is .*, which makes no contrastive search"):
        Options(**wrong)  # type: ignore[arg-type]


def test_no_rounds_make_no_search() -> None:
    with pytest.raises(UsageError, match="0 rounds"):
        search([], 0)


def test_a_baseline_that_fails_ends_the_search() -> None:
    bench = ScriptedWorkbench()
    bench.baseline = replace(bench.baseline, code=kernel("wrong", tag="baseline"))
    with pytest.raises(DeviceError, match="baseline of double_it"):
        optimize(bench, ScriptedModel([]).for_all(), 1)


def test_the_playbook_takes_part_and_says_when_it_has_nothing_left(tmp_path: Path) -> None:
    """It answers in the same form as a model; its steps in order, then the search ends with a note."""

    class Watching(Silent):
        note = ""

        def stopped(self, note: str) -> None:
            self.note = note

    folder = tmp_path / FakeCard.name / "fp32"
    folder.mkdir(parents=True)
    for number, score in ((1, 2.0), (2, 3.0)):
        header = f"// correct {score} -\n// idea: Idea {number}\n"
        text = f"// idea: Idea {number}\n// why: because\n// flags: -O2\n"
        (folder / f"{number}_idea.cu").write_text(text + header)
    watching = Watching()
    result = optimize(HeaderBench(), dict.fromkeys(Role, PlaybookModel(tmp_path)), 5, observer=watching)
    assert [r.outcome.plan.idea for r in result.rounds] == ["Idea 1", "Idea 2"]
    assert "-O2" in result.best.command
    assert result.score == 3.0
    assert result.note == watching.note == "The model has no further idea after 2 of 5 rounds."


class HeaderBench(ScriptedWorkbench):
    """Reads the verdict from behind a playbook's header."""

    def evaluate(self, candidate: Candidate, *, to_beat: float | None = None) -> Verdict:
        """Judge by what follows the flags."""
        body = candidate.code.split("// flags: -O2\n")[-1]
        return replace(super().evaluate(replace(candidate, code=body), to_beat=to_beat), candidate=candidate.id)
