"""Report lines and replies: damaged ones are judged or refused, and a candidate that failed a check is never right."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudamaster.agents.asking import Misfit
from cudamaster.agents.replies import Form, code_block, command_line, json_object
from cudamaster.core.errors import CudaMasterError
from cudamaster.core.values import Candidate, Precision, Status, Verdict
from cudamaster.devices.protocol import Ran
from cudamaster.judging.verdicts import Judgement, judge, parse
from cudamaster.tasks import cards

from .support import damaged, examples, within

_CASES = cards.load("spmv_csr").cases
CASES = [next(case for case in _CASES if not case.sweep), *[case for case in _CASES if case.sweep][-2:]]
OUTPUT = {"event": "output", "name": "y", "elements": 8, "oracle_elements": 8, "mismatches": 0, "worst_error": 1e-8,
          "baseline_worst_error": 1e-8, "bound": 4e-7, "pattern": "", "first": []}  # fmt: skip


def _case(index: int, *, timed: bool) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [
        {"event": "case", "index": index, "label": CASES[index].label, "t": index + 0.1},
        {"event": "reference", "index": index, "baseline_ok": True, "t": index + 0.2},
        {"event": "check", "index": index, "stage": "check", "set": 0, "ok": True, "damage": "", "outputs": [OUTPUT],
         "t": index + 0.3},
    ]  # fmt: skip
    if timed:
        lines.append({"event": "time", "index": index, "baseline_us": [30.0, 30.0], "candidate_us": [10.0, 20.0],
                      "empty_us": [5.0, 6.0], "t": index + 0.9})  # fmt: skip
    return lines


RIGHT = [
    {"event": "begin", "device": "Some GPU", "seed": "1", "t": 0.0},
    *(line for index, case in enumerate(CASES) for line in _case(index, timed=case.sweep)),
    {"event": "end", "ok": True, "t": 9.0},
]
TEXT = "".join(json.dumps(line) + "\n" for line in RIGHT)
FINISHED = Ran(0, None, False, "", 1.0)
ODD = [
    None, True, False, 0, -1, 3, 10**30, 1e308, float("nan"), float("inf"), "", "nan", "false", "é\u2028", [], [[]],
    {}, "9" * 5000,
]  # fmt: skip


@st.composite
def changed(draw: st.DrawFn) -> list[Any]:
    """A right report with lines dropped, repeated, moved, or with fields dropped, renamed or of other values."""
    lines: list[Any] = json.loads(json.dumps(RIGHT))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        kind = draw(st.sampled_from(("drop", "repeat", "move", "field", "field", "remove", "odd", "output")))
        if kind == "drop" and len(lines) > 1:
            del lines[at]
        elif kind == "repeat":
            lines.insert(draw(st.integers(0, len(lines))), lines[at])
        elif kind == "move":
            lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(at))
        elif kind == "odd":
            lines[at] = draw(st.sampled_from(ODD))
        elif isinstance(lines[at], dict) and lines[at]:
            line = dict(lines[at])
            name = draw(st.sampled_from(sorted(line)))
            if kind == "remove":
                del line[name]
            elif kind == "output" and line.get("outputs") == [OUTPUT]:
                output = dict(line["outputs"][0])
                output[draw(st.sampled_from(sorted(output)))] = draw(st.sampled_from(ODD))
                line["outputs"] = [output]
            else:
                line[name] = draw(st.sampled_from(ODD))
            lines[at] = line
    return lines


processes = st.sampled_from([*[FINISHED] * 3, Ran(1, None, False, "", 1.0), Ran(None, 11, False, "", 1.0)])


def _whole(lines: list[Any]) -> bool:
    """Whether the lines say, each in its own words, that every case ran right to the end."""
    told = [line for line in lines if isinstance(line, dict)]
    checks = [line for line in told if line.get("event") == "check"]
    ended = any(line.get("event") == "end" and line.get("ok") is True for line in told)
    checked = {line.get("index") for line in checks if type(line.get("index")) is int}
    return ended and all(line.get("ok") is True for line in checks) and checked >= set(range(len(CASES)))


def _judged(text: str, process: Ran) -> Judgement | None:
    with within(2):
        try:
            result = judge(parse(text), process, CASES)
        except CudaMasterError:
            return None
    # What was judged can be told and stored.
    assert result.score is None or result.status is Status.CORRECT
    Verdict("id", "cpu", True, result.status, result.detail, result.log, 1, result.score, result.complete, result.cases)
    return result


@examples(1500)
@given(changed(), processes)
def test_a_damaged_report_is_never_a_pass(lines: list[Any], process: Ran) -> None:
    """CORRECT needs the end of the report, every case checked and every check right."""
    result = _judged("".join(json.dumps(line) + "\n" for line in lines), process)
    if result is not None and result.status is Status.CORRECT:
        assert _whole(lines)
        assert (process.exit_code, process.signal) == (0, None)


@pytest.mark.slow
@examples(500)
@given(damaged(TEXT, ["\n", "{", "}", "[" * 2000, "\x00", "é", "\u2028", "null", "\\ud800"]))
def test_damaged_text_is_judged(text: str) -> None:
    """Bytes lost or added anywhere in the report end in a judgement or in one of our own errors."""
    _judged(text, FINISHED)


@examples(300)
@given(st.data())
def test_a_failed_check_is_never_right(data: st.DataObject) -> None:
    """Whatever else happens to a report, one check line that says no is enough."""
    lines = data.draw(changed())
    index, damage = data.draw(st.integers(-2, 5)), data.draw(st.sampled_from(["", "y"]))
    failed = {**RIGHT[3], "ok": False, "index": index, "damage": damage}
    lines.insert(data.draw(st.integers(0, len(lines))), failed)
    result = _judged("".join(json.dumps(line) + "\n" for line in lines), FINISHED)
    assert result is None or result.status is not Status.CORRECT


class _Idea(Form):
    idea: str
    plan: str


BODY = 'extern "C" void f_optimized(int n) {}\n'
REPLIES = [
    'Sure:\n```json\n{"idea": "a", "plan": "b"}\n```\nGood luck {x}!',
    f"<think>maybe</think>\n```cuda\n{BODY}```\nBuild it:\n```sh\nnvcc -O3 x.cu\n```",
    f"#include <x>\n{BODY}",
    "Use:\n\n$ nvcc -O3 \\\n  -std=c++17 -c candidate.cu -o candidate.o\n",
]
BITS = [
    "```", "~~~", "{", "}", '"', "\\", "\\ud800", "\n", "<think>", "</think>", "[" * 3000, '{"a":' * 3000, "nvcc ",
    "`", "\x00",
]  # fmt: skip


def _read_in_every_form(text: str) -> None:
    with within(2):
        for read in (
            lambda: json_object(text, _Idea).plan,
            lambda: code_block(text, "f_optimized"),
            lambda: command_line(text, "nvcc"),
        ):
            try:
                found = read()
            except Misfit:
                continue
            assert Candidate("f", Precision.FP32, found, found).id


@pytest.mark.slow
@examples(800)
@given(st.one_of(st.text(), st.sampled_from(REPLIES).flatmap(lambda text: damaged(text, BITS))))
def test_any_reply_is_read_or_refused(text: str) -> None:
    """Each form is found or missed with a reason, and what is found can be hashed and written to a file."""
    _read_in_every_form(text)


@pytest.mark.parametrize("repeated", ['{"a":', "```\n", "`", "<think>", "{", '{"', "nvcc x\n", "~~~x\n```y\n"])
def test_long_replies_are_read_soon(repeated: str) -> None:
    """A model that repeats itself to its limit of tokens is refused within seconds."""
    _read_in_every_form(repeated * 30_000)
