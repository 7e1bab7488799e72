"""runs/worked_examples.py: which agents see examples, and which these are: never the task's own kernels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from search_stand_ins import FakeCard, ScriptedModel, ScriptedWorkbench, code, command, kernel, plan

from cudamaster.core import resources
from cudamaster.core.values import BENCHMARK_PRECISIONS, Candidate, Precision, Role
from cudamaster.runs import optimization
from cudamaster.runs.record import Settings
from cudamaster.runs.worked_examples import choose
from cudamaster.tasks import cards


@pytest.mark.slow(but=["bf16"])
@pytest.mark.parametrize("precision", list(BENCHMARK_PRECISIONS))
def test_no_task_sees_its_own_kernels(precision: Precision) -> None:
    """Asked for all there are, each task gets those of the others and none of its own."""
    for task in cards.names():
        own = {path.read_text() for path in (resources.package() / "playbook" / task).rglob("*.cu")}
        examples = choose(task, precision, 1000)
        assert {example.task for example in examples} == set(cards.names()) - {task}
        assert own, task
        assert not own & {example.code for example in examples}
        assert not any(f"void {task}_optimized(" in example.code for example in examples)


def test_relatives_come_first_and_of_each_its_last_step() -> None:
    examples = choose("spmv_csr", Precision.BF16, 3)
    assert {cards.load(example.task).category for example in examples} == {"sparse"}
    steps = sorted((resources.package() / "playbook" / examples[0].task / "bf16").glob("*.cu"))
    assert examples[0].code == steps[-1].read_text()
    assert choose("spmv_csr", Precision.BF16, 0) == ()


class RealTask(ScriptedWorkbench):
    """A stand-in whose task is one of the benchmark's."""

    def __init__(self) -> None:
        super().__init__()
        self.card = FakeCard("dot_product")
        self.baseline = Candidate(
            "dot_product", Precision.FP32, kernel(score=1.0, tag="baseline"), self.baseline.command
        )


def settings(examples: int) -> Settings:
    return Settings("cudamaster", 1, 0, "cpu", dict.fromkeys(list(Role)[:4], "scripted"), examples=examples)


def test_the_coder_sees_them_before_its_task_and_nobody_else_does(tmp_path: Path) -> None:
    """Both times it is asked, and in the record too; a resumed run asks nothing again."""
    text = kernel(score=2.0, tag="a")
    script = [plan("A"), (Role.CODER, "no code"), code(text), command()]
    model, run = ScriptedModel(script), tmp_path / "run"
    models = dict.fromkeys(settings(2).models, model)
    optimization.optimize(run, RealTask(), models, settings(2))
    wanted = choose("dot_product", Precision.FP32, 2)
    for request in model.requests:
        system, user = request.messages[:2]
        assert "Worked examples" not in system.content
        if request.role is Role.CODER:
            assert user.content.startswith("## Worked examples\n")
            assert user.content.index(wanted[1].code.rstrip()) < user.content.index("## Task")
            assert user.content.count("## Worked examples") == 1
        else:
            assert "Worked examples" not in user.content
    again = json.loads((run / "exchanges" / "0003_coder.json").read_text())
    assert again["request"]["messages"][1]["content"].startswith("## Worked examples\n")
    assert optimization.resume(run, RealTask(), models).score == 2.0


def test_a_run_that_asks_for_none_sees_none(tmp_path: Path) -> None:
    model = ScriptedModel([plan("A"), code(kernel(score=2.0, tag="a")), command()])
    optimization.optimize(tmp_path / "run", RealTask(), dict.fromkeys(settings(0).models, model), settings(0))
    assert not any("Worked examples" in message.content for r in model.requests for message in r.messages)
