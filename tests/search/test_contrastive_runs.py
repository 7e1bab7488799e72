"""Holds whole contrastive searches to their seed, options and islands, also resumed or by the playbook."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import search_stand_ins
from scripted_contrast import search, step
from search_stand_ins import FakeCard, ScriptedModel, ScriptedWorkbench, kernel

from cudamaster.core.errors import DeviceError, ModelError, UsageError
from cudamaster.core.values import Candidate, Role, Verdict
from cudamaster.models.playbook import PlaybookModel
from cudamaster.models.protocol import Reply, Request
from cudamaster.runs import optimization
from cudamaster.runs.record import Settings as RunSettings
from cudamaster.strategies import registry
from cudamaster.strategies.contrastive import NAME, Options
from cudamaster.strategies.protocol import Observer


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
        search_stand_ins.search(bench, ScriptedModel([]).for_all(), NAME, 1)


def test_the_playbook_takes_part_and_says_when_it_has_nothing_left(tmp_path: Path) -> None:
    """It answers in the same form as a model; its steps in order, then the search ends with a note."""

    class Watching(Observer):
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
    result = search_stand_ins.search(
        HeaderBench(), dict.fromkeys(Role, PlaybookModel(tmp_path)), NAME, 5, observer=watching
    )
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
