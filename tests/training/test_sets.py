"""What becomes a row: which kernels, how many, in which order, and with which partners."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from judged_kernels import baseline, kernel, other_code, refused, scored, with_verdict

from cudamaster.core.speed import Interval
from cudamaster.training.choosing import Standing
from cudamaster.training.kernels import JudgedKernel
from cudamaster.training.prompts import Form
from cudamaster.training.sets import Row, Sets, Wanted, make

FAST, FASTER, FASTEST = (kernel(number) for number in range(3))  # P of 1.11, 1.20 and 1.29, surely apart


def of(*kernels: JudgedKernel, **wanted: int | float) -> Sets:
    about = Wanted(Form.COMPACT, **wanted)  # type: ignore[arg-type]
    return make((baseline(), *kernels), [], {}, about, Standing(kernels, modelled=False))


def ids(rows: Sequence[Row]) -> list[str]:
    return [row["provenance"]["kernel"] for row in rows]


def by_another_command(of: JudgedKernel) -> JudgedKernel:
    candidate = replace(of.candidate, command=f"{of.candidate.command} -lineinfo")
    return replace(of, candidate=candidate, verdict=replace(of.verdict, candidate=candidate.id))


def pairs(sets: Sets, why: str) -> list[tuple[str, str]]:
    """Chosen and rejected kernels."""
    about = [row["provenance"] for row in sets.preference if row["provenance"]["why"] == why]
    return [(one["chosen"]["kernel"], one["rejected"]["kernel"]) for one in about]


def test_the_fastest_come_first_and_limits_hold_from_there() -> None:
    fast, faster, fastest = (one.candidate.id for one in (FAST, FASTER, FASTEST))
    assert ids(of(FAST, FASTEST, FASTER).sft) == [fastest, faster, fast]
    best = of(FAST, FASTEST, FASTER, best=1)
    assert ids(best.sft) == [fastest]
    assert best.left_out["not among the 1 best, so not in sft"] == 2
    least = of(FAST, FASTEST, FASTER, at_least=1.15)
    assert ids(least.sft) == [fastest, faster]
    assert least.left_out["P below 1.15, so not in sft"] == 1


def test_of_one_code_the_fastest_command_counts() -> None:
    slower = scored(by_another_command(FASTEST), 1.15, 0.01)
    for both in ((slower, FASTEST), (FASTEST, slower)):
        assert ids(of(*both).sft) == [FASTEST.candidate.id]


def test_a_refused_kernel_is_rejected_so_often_by_different_ones_and_never_by_its_own_code() -> None:
    wrong = [refused(other_code(FAST, f"{FAST.candidate.code}// {number}\n")) for number in range(2)]
    found = pairs(of(FAST, FASTER, FASTEST, *wrong, pairs=1), "right")
    assert [rejected for _, rejected in found] == [one.candidate.id for one in wrong]
    assert len({chosen for chosen, _ in found}) == 2
    own = refused(by_another_command(FAST))
    assert {chosen for chosen, _ in pairs(of(FAST, FASTEST, own), "right")} == {FASTEST.candidate.id}


def test_a_slower_kernel_is_rejected_at_most_so_often_and_by_the_fastest_first() -> None:
    every = pairs(of(FAST, FASTER, FASTEST), "faster")
    base = baseline().candidate.id
    assert [rejected for _, rejected in every].count(base) == 3
    assert (FASTER.candidate.id, FAST.candidate.id) in every
    once = pairs(of(FAST, FASTER, FASTEST, pairs=1), "faster")
    assert once == [(FASTEST.candidate.id, one) for one in (FASTER.candidate.id, FAST.candidate.id, base)]


def test_rows_are_json_whatever_is_not_known() -> None:
    speed = FAST.verdict.speed
    assert speed is not None
    wide = with_verdict(FAST, speed=replace(speed, interval=Interval(1.01, float("inf"))))
    (row,) = of(wide).sft
    assert row["provenance"]["high"] == 1e9
    assert json.dumps(of(wide).rows, allow_nan=False)


def test_a_baseline_that_failed_is_in_no_prompt() -> None:
    sets = make((refused(baseline()), FAST), [], {}, Wanted(Form.COMPACT), Standing([FAST], modelled=False))
    assert not any(sets.rows.values())
    assert sets.left_out == {"without their baseline, which no prompt can do without": 1}
