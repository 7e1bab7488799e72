"""Holds agents/replies.py to what models really send: forms wrapped in prose, fences and thoughts."""

from __future__ import annotations

import pytest

from cudamaster.agents.asking import Misfit
from cudamaster.agents.replies import Form, code_block, command_line, json_object


class _TwoFields(Form):
    idea: str
    plan: str


@pytest.mark.parametrize(
    "text",
    [
        '{"idea": "a", "plan": "b"}',
        'Sure:\n```json\n{"idea": "a", "plan": "b"}\n```\nGood luck {x}!',
        '<think>maybe {"idea": "z", "plan": "z"}</think>{"idea": "a", "plan": "b"}',
        'maybe {"idea": "z", "plan": "z"}\n</think>\n\n{"idea": "a", "plan": "b"}',  # opened by the chat template
        'A block {i} of work. {"idea": "a", "plan": "b"}',
    ],
)
def test_json_is_found_in_what_surrounds_it(text: str) -> None:
    assert json_object(text, _TwoFields) == _TwoFields(idea="a", plan="b")


def test_raw_line_ends_in_a_json_string_are_understood() -> None:
    assert json_object('{"idea": "a", "plan": "one\ntwo"}', _TwoFields).plan == "one\ntwo"


def test_half_a_surrogate_pair_is_replaced() -> None:
    """JSON can spell it, but it could neither be hashed nor written to a file."""
    assert json_object('{"idea": "a\\ud800", "plan": "b"}', _TwoFields).idea == "a?"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nothing", "no complete JSON object"),
        ('{"idea": "a", "plan": "b"', "no complete JSON object"),
        ('{"idea": "a"}', "plan: Field required"),
        ('{"idea": "a", "plan": "b", "more": 1}', "more: Extra inputs"),
        ('{"idea": 1, "plan": "b"}', "idea: Input should be a valid string"),
    ],
)
def test_json_out_of_form_says_why(text: str, reason: str) -> None:
    with pytest.raises(Misfit, match=reason):
        json_object(text, _TwoFields)


BODY = 'extern "C" void f_optimized(int n) {}\n'


@pytest.mark.parametrize(
    "text",
    [
        f"```cuda\n{BODY}```",
        f"Here.\n\n~~~cpp\n{BODY}~~~\nDone.",
        f"Draft:\n```cuda\n{BODY}```\nBetter:\n</think>\n\n```cuda\n{BODY}```",
        f"```\n{BODY}```\nBuild it:\n```sh\nnvcc x.cu\n```",
        f"#include <x>\n{BODY}".replace("#include <x>\n", ""),
    ],
)
def test_the_code_block_is_found(text: str) -> None:
    assert code_block(text, "f_optimized") == BODY


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I would write f_optimized(n).", "no fenced code block"),
        (f"```cuda\n{BODY}", "not closed"),
        (f"```\n{BODY}```\nor\n```\n{BODY}```", "several"),
        ("```\n```", "empty"),
    ],
)
def test_code_that_is_in_doubt_is_refused(text: str, reason: str) -> None:
    with pytest.raises(Misfit, match=reason):
        code_block(text, "f_optimized")


@pytest.mark.parametrize(
    "text",
    ["nvcc -O3 x.cu", "`nvcc -O3 x.cu`", "```sh\n$ nvcc -O3 x.cu\n```", "Use:\n\nnvcc -O3 \\\n  x.cu\n"],
)
def test_the_command_line_is_found(text: str) -> None:
    assert command_line(text, "nvcc") == "nvcc -O3 x.cu"


@pytest.mark.parametrize("text", ["gcc x.cu", "nvcc", "", "nvcc -O3 x.cu\nnvcc -O2 x.cu"])
def test_no_or_several_commands_are_refused(text: str) -> None:
    with pytest.raises(Misfit):
        command_line(text, "nvcc")
