"""Holds core/records.py to exactness: what comes back equals what went in, and anything else is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from cudamaster.core.records import RecordError, from_json, to_json
from cudamaster.core.values import CaseVerdict, Mismatch, OutputCheck, Role, Seconds, Status, Timing, Verdict
from cudamaster.models.protocol import Message, Request

VERDICT = Verdict(
    candidate="abc",
    device="cpu",
    emulated=True,
    status=Status.WRONG,
    detail="é\u2028 ```",
    seed=7,
    score=None,
    cases=(
        CaseVerdict(
            "N=1",
            True,
            1.0,
            Status.WRONG,
            outputs=(OutputCheck("y", 4, 4, 1, math.inf, 1e-7, 4e-7, "last", (Mismatch(3, 1.0, -math.inf, 0.1),)),),
            timing=Timing((1.1, 0.1 + 0.2), (1e-300, 5.0)),
        ),
        CaseVerdict("N=2", True, 2.0, None, skipped="too large"),
    ),
    seconds=Seconds(0.1, 0.2, 0.3),
    build={"command": "nvcc"},
)


def through_text(value: object) -> object:
    return json.loads(json.dumps(to_json(value), allow_nan=False))


def test_what_is_read_and_written_again_is_the_same_text() -> None:
    """Whole numbers, as they come out of sums and of the harness's JSON, included: a replay writes the same files."""
    whole = replace(
        VERDICT,
        seconds=Seconds(build=1, check=0, timing=0),
        cases=(replace(VERDICT.cases[0], weight=2, timing=Timing((3, 1.5), (1, 2)), empty_us=4),),
    )
    written = json.dumps(to_json(whole))
    assert json.dumps(to_json(from_json(Verdict, json.loads(written)))) == written
    assert '"timing": 0.0' in written


def test_a_verdict_comes_back_equal() -> None:
    assert from_json(Verdict, through_text(VERDICT)) == VERDICT


def test_nan_comes_back_as_nan() -> None:
    mismatch = from_json(Mismatch, through_text(Mismatch(0, 1.0, math.nan, 0.1)))
    assert math.isnan(mismatch.got)


def test_a_request_comes_back_equal() -> None:
    """Facts mix text and tuples of text, one of them empty."""
    request = Request(Role.CODER, (Message("user", "x"),), {"tried": (), "ideas": ("a", "b"), "task": "t"})
    assert from_json(Request, through_text(request)) == request


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"more": 1}, "more unknown"),
        ({"status": "fine"}, "'fine' is not a valid Status"),
        ({"emulated": 1}, "int instead of bool"),
        ({"cases": {}}, "dict instead of a list"),
        ({"score": True}, "bool instead of"),
    ],
)
def test_another_shape_is_refused_with_its_place(change: dict[str, object], reason: str) -> None:
    data = {**to_json(replace(VERDICT, score=2.0)), **change}
    with pytest.raises(RecordError, match=reason):
        from_json(Verdict, data)


def test_a_missing_field_is_refused() -> None:
    data = to_json(VERDICT)
    del data["seed"]
    with pytest.raises(RecordError, match="seed missing"):
        from_json(Verdict, data)
