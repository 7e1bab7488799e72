"""Replies of megabytes, cut ones and empty ones: refused here, named, and neither paid for again nor kept whole."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from chat_servers import REQUEST, ChatServer, RawServer, completion
from search_stand_ins import COMMAND, ScriptedModel, ScriptedWorkbench, code, kernel, plan

from cudamaster.agents.asking import Misfit
from cudamaster.agents.planner import _PlanReply
from cudamaster.agents.replies import code_block, command_line, json_object
from cudamaster.core.values import Role, Status
from cudamaster.models.litellm_model import LiteLLMModel
from cudamaster.models.protocol import LONGEST_PART, LONGEST_REPLY
from cudamaster.runs.optimization import optimize, resume
from cudamaster.runs.record import Settings, read_record
from cudamaster.strategies.cudamaster import ROLES
from cudamaster.strategies.result import Result

pytestmark = pytest.mark.usefixtures("openai_key")

MEGABYTES = 5_000_000
SETTINGS = Settings("cudamaster", 1, 3, "stand-in", dict.fromkeys(ROLES, "openai/x"))


def searched(path: Path, replies: dict[Role, list[str]]) -> tuple[Result, ChatServer]:
    """A search whose server gives each role its replies in order, and then repeats the last one."""

    def answer(role: Role, messages: list[dict[str, str]]) -> tuple[int, str]:
        left = replies[role]
        return 200, left.pop(0) if len(left) > 1 else left[0]

    with ChatServer(answer) as server:
        models = dict.fromkeys(Role, LiteLLMModel("openai/x", server.url, retries=0))
        return optimize(path, ScriptedWorkbench(), models, SETTINGS), server


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow(but=[str(LONGEST_REPLY // 2)])
@pytest.mark.parametrize("length", [LONGEST_REPLY // 2, MEGABYTES])
def test_a_long_reply_does_not_go_back_whole(tmp_path: Path, length: int) -> None:
    """Neither what is kept whole nor what is not; what goes back says that it is cut."""
    good = {Role.CODER: [code(kernel(score=2.0))[1]], Role.COMPILER: [COMMAND]}
    result, server = searched(tmp_path / "run", {Role.PLANNER: ["x" * length, plan("A")[1]], **good})
    assert result.score == 2.0
    again = next(messages for role, messages in server.asked if len(messages) == 4)
    assert len(again[2]["content"]) <= LONGEST_PART + 100
    assert "no complete JSON object" in again[3]["content"]
    if length > LONGEST_REPLY:
        assert f"it has {length:,} characters, of which the first 20,000 were read" in again[3]["content"]
    else:
        assert f"[... {length - LONGEST_PART} characters left out ...]" in again[2]["content"]


@pytest.mark.slow
def test_a_reply_beyond_the_limit_is_kept_as_head_length_and_digest(tmp_path: Path) -> None:
    path, whole = tmp_path / "run", "x" * 50_000_000
    good = {Role.CODER: [code(kernel(score=2.0))[1]], Role.COMPILER: [COMMAND]}
    first, _ = searched(path, {Role.PLANNER: [whole, plan("A")[1]], **good})
    stored = read_record(path).exchange(1)
    assert stored is not None
    assert stored.reply.text == whole[:LONGEST_PART]
    assert "50,000,000 characters" in stored.reply.cut
    assert stored.reply.digest == hashlib.sha256(whole.encode()).hexdigest()
    assert size(path) < 300_000
    nobody = ScriptedModel([], name="openai/x")
    assert resume(path, ScriptedWorkbench(), nobody.for_all()) == first


@pytest.mark.parametrize("length", [200_000, MEGABYTES])
def test_a_kernel_that_is_too_long_is_refused_before_others_are_asked(tmp_path: Path, length: int) -> None:
    """The Coder is asked again, with the reason; neither Compiler nor Debug sees it, and nothing is built."""
    long = code(kernel(score=2.0) + "// x\n" * (length // 5))[1]
    replies = {Role.PLANNER: [plan("A")[1]], Role.CODER: [long], Role.COMPILER: [COMMAND], Role.DEBUG: [""]}
    result, server = searched(tmp_path / "run", replies)
    assert [role for role, _ in server.asked] == [Role.PLANNER, Role.CODER, Role.CODER]
    outcome = result.rounds[0].outcome
    assert outcome.status is Status.REJECTED
    assert ("larger than 131072 bytes" if length < LONGEST_REPLY else "not closed") in outcome.detail
    assert len(list((tmp_path / "run" / "candidates").glob("*.cu"))) == 1, "the baseline"
    assert all(len(messages[-1]["content"]) < 50_000 for _, messages in server.asked)


def test_parts_that_are_too_long_for_other_prompts_are_misfits() -> None:
    long = "x" * (LONGEST_PART + 1)
    with pytest.raises(Misfit, match=r"^plan: .*it has 20,001 characters, at most 20,000 are taken"):
        json_object(json.dumps({"idea": "A", "plan": long}), _PlanReply)
    with pytest.raises(Misfit, match="the command has 20,005 characters, at most 4,096"):
        command_line(f"nvcc {long}"[:20_005], "nvcc")
    with pytest.raises(Misfit, match=r"source guard \(line 1\): the region contains a control character"):
        code_block("```\nvoid f() {}\x07\n```", "f")


def test_what_is_wrong_is_said_in_a_few_lines() -> None:
    """A reason names fields that the reply invented: they may be megabytes too."""
    invented = {"idea": "A", "plan": "B", **{f"{'k' * 1000}{number}": "" for number in range(1000)}}
    with pytest.raises(Misfit) as misfit:
        json_object(json.dumps(invented), _PlanReply)
    assert len(str(misfit.value)) < 1100


def test_windows_line_ends_are_none_of_the_kernel() -> None:
    assert code_block("```cuda\r\nvoid f() {}\r\n```\r\n", "f") == "void f() {}\n"


@pytest.mark.parametrize(
    ("content", "finish", "said"),
    [
        ('{"idea": "A", "pl', "length", r"no complete JSON.* cut: the model came to its limit of tokens"),
        ("", "length", r"it is empty\. It was cut: the model came to its limit of tokens \(finish_reason: length\)"),
        ("", "content_filter", r"it is empty\. It was cut: the provider's filter stopped it"),
        ("", "stop", r"it is empty\.$"),
        (None, "stop", r"it is empty\.$"),
    ],
)
def test_a_cut_reply_and_an_empty_one_are_named(tmp_path: Path, content: str | None, finish: str, said: str) -> None:
    with RawServer(200, json.dumps(completion(content, finish=finish)).encode()) as server:
        models = dict.fromkeys(Role, LiteLLMModel("openai/x", server.url, retries=0))
        detail = optimize(tmp_path / "run", ScriptedWorkbench(), models, SETTINGS).rounds[0].outcome.detail
    assert re.search(said, detail), detail
    again = read_record(tmp_path / "run").exchange(2)
    assert again is not None
    assert all(message.content for message in again.request.messages), "servers refuse a message without text"


def test_a_cut_reply_that_says_all_is_used() -> None:
    """The object is whole, and what followed it is not missed."""
    whole = plan("A")[1]
    with RawServer(200, json.dumps(completion(whole, finish="length")).encode()) as server:
        told = LiteLLMModel("openai/x", server.url, retries=0).ask(REQUEST)
    assert told.cut
    assert json_object(told.text, _PlanReply).idea == "A"
