"""Holds models/playbook.py to its file form, and to going through the same pipeline as any model."""

from __future__ import annotations

from pathlib import Path

import pytest
from search_stand_ins import COMMAND, ScriptedWorkbench, kernel, search

from cudamaster.core import resources
from cudamaster.core.errors import CudaMasterError, ModelError, UsageError
from cudamaster.core.values import Role, Status
from cudamaster.models.choose import build, choose
from cudamaster.models.litellm_model import LiteLLMModel
from cudamaster.models.playbook import PlaybookModel, merged, read_step
from cudamaster.models.protocol import Request
from cudamaster.strategies.cudamaster import NAME

HEADER = "// idea: {idea}\n// why: it is {idea}\n// and\n//      more\n// flags: {flags}\n"


class MarkedWorkbench(ScriptedWorkbench):
    """Reads the verdict from the first line after the playbook header."""

    def evaluate(self, candidate, *, to_beat=None):  # type: ignore[no-untyped-def]
        """Judge by the first line after the header."""
        body = candidate.code.split("// flags:", 1)[-1].split("\n", 1)[-1] if "// flags:" in candidate.code else None
        if body is None:
            return super().evaluate(candidate, to_beat=to_beat)
        from dataclasses import replace

        return replace(super().evaluate(replace(candidate, code=body), to_beat=to_beat), candidate=candidate.id)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folder = tmp_path / "double_it" / "fp32"
    folder.mkdir(parents=True)
    # Ten before two in the alphabet, after it by number.
    for number, idea, status, score, flags in [
        (1, "first", "correct", 2.0, ""),
        (2, "second", "wrong", None, "-O2 -DX=1"),
        (10, "third", "correct", 3.0, "--use_fast_math"),
    ]:
        text = HEADER.format(idea=idea, flags=flags) + kernel(status, score, idea)
        (folder / f"{number}_{idea}.cu").write_text(text)
    return tmp_path


def test_the_playbook_goes_through_the_pipeline(library: Path) -> None:
    """Steps in order of number; a wrong one costs its round and no debug try; then there is nothing left."""
    bench = MarkedWorkbench()
    result = search(bench, dict.fromkeys(Role, PlaybookModel(library)), NAME, 5, 3)
    outcomes = [(r.outcome.plan.idea, r.outcome.status, r.outcome.accepted) for r in result.rounds]
    assert outcomes == [
        ("first", Status.CORRECT, True),
        ("second", Status.WRONG, False),
        ("third", Status.CORRECT, True),
    ]
    assert len(result.rounds[1].attempts) == 1
    assert result.note is not None
    assert "no further idea after 3 of 5 rounds" in result.note
    assert result.best.command == COMMAND.replace("-c ", "--use_fast_math -c ")
    assert result.rounds[0].outcome.plan.text == "it is first and more"
    assert result.usage[Role.CODER].dollars == 0.0


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", "nvcc -O3 -std=c++17 -arch=sm_90 -c candidate.cu -o candidate.o"),
        ("-O2", "nvcc -std=c++17 -arch=sm_90 -O2 -c candidate.cu -o candidate.o"),
        ("-arch sm_90a", "nvcc -O3 -std=c++17 -arch sm_90a -c candidate.cu -o candidate.o"),
        ("-D A=1 -DB", "nvcc -O3 -std=c++17 -arch=sm_90 -D A=1 -DB -c candidate.cu -o candidate.o"),
    ],
)
def test_flags_take_the_place_of_the_default_ones(flags: str, expected: str) -> None:
    assert merged("nvcc -O3 -std=c++17 -arch=sm_90 -c candidate.cu -o candidate.o", flags) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "// idea: a\n// flags:\n",
        "// why: a\n// idea: b\n// flags:\n",
        "// idea:\n// why: a\n// flags:\n",
        "\n// idea: a\n// why: b\n// flags:\n",
        "// idea: a\n// why: b\n\n// flags:\n",
    ],
)
def test_a_header_out_of_form_is_an_error_with_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "1_x.cu"
    path.write_text(text)
    with pytest.raises(ModelError, match=r"1_x\.cu does not open with"):
        read_step(path)


def test_binary_in_the_playbook_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "1_x.cu").write_bytes(b"\xff\x00")
    with pytest.raises(ModelError, match="cannot be read"):
        read_step(tmp_path / "1_x.cu")


def test_a_task_without_entries_names_the_way_out(library: Path) -> None:
    request = Request(Role.PLANNER, (), {"task": "unheard_of", "precision": "fp32", "tried": ()})
    with pytest.raises(UsageError, match=r"no kernels for unheard_of in fp32.*--model"):
        PlaybookModel(library).ask(request)


def test_a_foreign_plan_is_refused(library: Path) -> None:
    request = Request(Role.CODER, (), {"task": "double_it", "precision": "fp32", "idea": "of a model"})
    with pytest.raises(UsageError, match="can only carry out its own plans"):
        PlaybookModel(library).ask(request)


def test_every_shipped_step_is_in_form() -> None:
    """Every file of the shipped playbook parses, and no task has two steps of one name."""
    model = PlaybookModel()
    for folder in (resources.package() / "playbook").glob("*/*/"):
        if list(folder.glob("*.cu")):
            assert model.steps(folder.parent.name, folder.name)


def test_the_playbook_is_the_default_and_a_role_can_have_its_own() -> None:
    """Order: the role's option, --model, the role's variable, CUDAMASTER_MODEL, playbook."""
    assert choose({}).only_playbook
    assert set(choose({"CUDAMASTER_MODEL": "a/b"}).names.values()) == {"a/b"}
    choice = choose({"CUDAMASTER_MODEL": "a/b"}, "c/d", {Role.DEBUG: "e/f"}, "http://localhost:1/v1")
    assert choice.names == {Role.PLANNER: "c/d", Role.CODER: "c/d", Role.COMPILER: "c/d", Role.DEBUG: "e/f"}
    assert choose({"CUDAMASTER_CODER_MODEL": "x/y"}).names[Role.CODER] == "x/y"
    models = build(choice)
    assert models[Role.PLANNER] is models[Role.CODER]
    assert isinstance(models[Role.DEBUG], LiteLLMModel)
    assert models[Role.DEBUG].name == "e/f"


@pytest.mark.parametrize("name", [" ", "two words", "x/y\n"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        choose({}, name)


def test_a_base_url_with_a_password_is_refused() -> None:
    """It would end in run folders and errors."""
    with pytest.raises(CudaMasterError, match="user name or password") as caught:
        build(choose({}, "openai/x", base_url="http://me:hunter2@localhost/v1"))
    assert "hunter2" not in str(caught.value)
