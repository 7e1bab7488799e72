"""A block that takes all units of work from a common counter gets one in many, and stands for the launch."""

from __future__ import annotations

from pathlib import Path

import pytest
from traced_program import traced_program

from cudamaster.devices.process import run_limited
from cudamaster.modelling.counts import CallCounts, Launch
from cudamaster.modelling.gpu import load
from cudamaster.modelling.observed import WHOLE
from cudamaster.modelling.tracing import NoTrace, Spares, recorded
from cudamaster.modelling.units import ONE_OF

UNITS, WARPS = 1000, 4


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """units.cu, traced."""
    return traced_program(tmp_path_factory, "units.cu")


def counted(program: Path, how: str, *, seed: int = 1, units: int = ONE_OF) -> CallCounts | NoTrace:
    return calls(program, how, 1, seed=seed, units=units)[0]


def calls(
    program: Path, how: str, many: int, *, seed: int = 1, units: int = ONE_OF
) -> tuple[CallCounts | NoTrace, ...]:
    return recorded(
        lambda notes: run_limited(
            [str(program), how], 120, environment={"CUDAMASTER_CPU_TRACE": str(notes.fileno())}, held=[notes.fileno()]
        ),
        program,
        [how] * many,
        load(),
        seed,
        spares=Spares(units=units),
    )


def only(found: CallCounts | NoTrace) -> Launch:
    assert isinstance(found, CallCounts), found
    (launch,) = found.events
    assert isinstance(launch, Launch)
    return launch


def loads(launch: Launch) -> float:
    return sum(traffic.load_requests for traffic in launch.traffic)


def warp_instructions(launch: Launch) -> float:
    return sum(launch.instructions.model_dump(exclude={"active_share"}).values())


def test_units_that_are_alike_are_counted_by_one_in_many(program: Path) -> None:
    """What is asked for is what all ask for. Each unit has its own part of two buffers, and all share the third."""
    whole, short = (only(counted(program, "alike", units=one_of)) for one_of in (0, ONE_OF))
    assert loads(whole) == UNITS * WARPS * 401
    assert loads(short) == pytest.approx(loads(whole), rel=0.01)
    assert warp_instructions(short) == pytest.approx(warp_instructions(whole), rel=0.01)
    assert short.instructions_of_warp.mean == pytest.approx(whole.instructions_of_warp.mean, rel=0.02)
    assert short.waits_of_warp.mean == pytest.approx(whole.waits_of_warp.mean, rel=0.02)
    assert short.contention.hottest == pytest.approx(whole.contention.hottest, rel=0.05)
    for one, other in zip(whole.traffic, short.traffic, strict=True):
        assert one.buffer == other.buffer
        (_, all_of_one), (_, all_of_other) = one.footprints, other.footprints
        assert all_of_other.read == pytest.approx(all_of_one.read, rel=0.05, abs=2)
        assert all_of_other.written == pytest.approx(all_of_one.written, rel=0.05, abs=2)


def test_of_units_left_out_none_is_cut_off_where_a_thread_records_no_more(program: Path) -> None:
    """It does more between two barriers than there is room for, in each unit."""
    assert loads(only(counted(program, "long units"))) == pytest.approx(UNITS * WARPS * 40001, rel=0.05)


def test_little_work_is_hidden_behind_the_first_units(program: Path) -> None:
    """Those that are all looked at gather nothing; of what the others gather no more than half goes unseen here."""
    launch = only(counted(program, "heavy behind the first"))
    gathered = sum(traffic.load_sectors - 4 * traffic.load_requests for traffic in launch.traffic)
    hidden = (UNITS - 60) * WARPS * 100 * (32 - 4)
    assert 0.5 * hidden <= gathered <= 1.1 * hidden


def test_a_counter_may_go_down_and_another_that_nobody_asks_is_none(program: Path) -> None:
    whole, short = (only(counted(program, "down", units=one_of)) for one_of in (0, ONE_OF))
    assert loads(whole) == UNITS * WARPS * 401
    assert loads(short) == pytest.approx(loads(whole), rel=0.01)
    assert loads(short) != loads(whole)


def test_a_launch_may_need_the_counter_that_one_of_a_call_before_would_have_reset(program: Path) -> None:
    """A block that was left out would have been the last."""
    first, second = calls(program, "wrapping", 2)
    assert loads(only(first)) == pytest.approx(UNITS * WARPS * 401, rel=0.01)
    assert isinstance(second, NoTrace)
    assert second.reason == WHOLE


@pytest.mark.parametrize(
    "how", ["few for each", "their own", "read behind", "one in three is heavy", "the last does more"]
)
def test_all_are_done_where_others_are_left_or_needed(program: Path, how: str) -> None:
    """Other blocks find units although the first has come to its end, the counter is none, another launch asks, so few
    units say little of others, as one in three takes four times as long, or the last block does what no other does."""
    found = counted(program, how)
    assert isinstance(found, NoTrace)
    assert found.reason == WHOLE
    assert isinstance(counted(program, how, units=0), CallCounts)


@pytest.mark.slow(but=["few long ones-900000"])
@pytest.mark.parametrize(
    ("how", "passes"),
    [
        ("few long ones", 60 * 15000),
        ("few long ones, the last longer", 30 * (15000 + 30000)),
        ("few long ones, the last shorter", 39 * 40000 + 21 * 4000),
    ],
)
def test_of_few_long_units_more_are_taken_once_it_is_known_how_few(program: Path, how: str, passes: int) -> None:
    """One of 64 is none beside the first. Where a part is longer than another, so many are taken that it matters little
    where that begins, at the first attempt."""
    first = counted(program, how)
    assert isinstance(first, NoTrace)
    assert (first.reason, first.ended) == (WHOLE, True)
    assert first.units > 1
    assert loads(only(counted(program, how, units=first.units))) == pytest.approx(WARPS * (passes + 60), rel=0.1)
