"""A block that takes all units of work from a common counter gets one in many, and stands for the launch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_folding import WRITTEN
from traced_program import traced_program

from cudamaster.devices.process import run_limited
from cudamaster.modelling import observed, tracing, units
from cudamaster.modelling.counts import CallCounts, Launch
from cudamaster.modelling.gpu import load
from cudamaster.modelling.observed import WHOLE, Call, LaunchLine
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


def written_from_now_on(monkeypatch: pytest.MonkeyPatch) -> list[LaunchLine]:
    """Launches, as the observer writes them."""
    found: list[LaunchLine] = []

    def calls(text: str) -> Iterator[Call]:
        for call in observed.calls(text):
            found.extend(line for line in call.lines if isinstance(line, LaunchLine))
            yield call

    monkeypatch.setattr(tracing, "calls", calls)
    return found


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


@pytest.mark.slow(but=["few long ones-900000-64"])
@pytest.mark.parametrize(
    ("how", "passes", "one_of"),
    [
        ("few long ones", 60 * 15000, ONE_OF),
        ("few long ones, the last longer", 30 * (15000 + 30000), 12),
        ("few long ones, the last shorter", 39 * 40000 + 21 * 4000, 12),
    ],
)
def test_of_few_long_units_more_are_taken_once_it_is_known_how_few(
    program: Path, how: str, passes: int, one_of: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 64 is none beside the first, so of units of more than 4 million events it is one of 12. Where a part is
    longer than another, so many are taken that it matters little where that begins, at the first attempt."""
    written = written_from_now_on(monkeypatch)
    first = counted(program, how)
    assert [line.of_unit[-1] for line in written] == [one_of]
    assert isinstance(first, NoTrace)
    assert (first.reason, first.ended) == (WHOLE, True)
    assert first.units > 1
    assert loads(only(counted(program, how, units=first.units))) == pytest.approx(WARPS * (passes + 60), rel=0.1)


def line(**changes: object) -> LaunchLine:
    """A launch whose first block left out units of work."""
    return LaunchLine.model_validate({**WRITTEN, **changes})


def test_where_it_is_not_known_how_many_units_there_are_any_number_is_as_likely() -> None:
    """Of 14 that were taken, the last ten stand for eight each. There may be more: as many, each like the last."""
    least, most = 100, 200
    found = line(units=(4, 14, least, most, 400), events=900, of_unit=(10, 0, 0, 50, 8))
    events = [400 + 8 * 500 + (number - 4 - 8 * 10) * 50 for number in range(least, most + 1)]
    assert units.longer(found) * found.events == pytest.approx(sum(events) / len(events))


def test_a_step_is_anywhere_between_its_two_units() -> None:
    """Of each 1000 that follow each other one is taken at random, and at some unit all become longer by one event. That
    stretch's sample stands for all of it: the error has this mean square over all places of the step."""
    each = 1000
    square = 0.0
    for before in range(each):
        behind = each - before
        square += (behind * before**2 + before * behind**2) / each / each
    stretches = 1000
    last = 4 + each * stretches
    found = line(units=(4, 4 + stretches, last, last, 0), events=5000, of_unit=(stretches, 1, 1, 0, each))
    unsure = units._unsure(found) * units.longer(found) * found.events
    assert unsure == pytest.approx(math.sqrt(square), rel=0.003)


@pytest.mark.parametrize(
    ("taken", "left", "one_of", "wanted"),
    [
        (8, 6400, 800, 6400 // 32),  # that they differ so much says nothing yet
        (20, 64000, 800, 64000 // 500),  # 20 are 20 times as unsure as they may be, and a quarter more is taken
        (8, 64, 800, 2),
        (8, 63, 800, 0),  # all of them
        (8, 6400, 267, 200),
        (8, 6400, 266, 0),  # hardly fewer than before
    ],
)
def test_more_units_are_taken_as_far_as_it_is_known_that_more_are_needed(
    taken: int, left: int, one_of: int, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "_unsure", lambda _: 1.0)
    found = line(units=(4, 4 + taken, 4 + left, 4 + left, 0), events=10**9, of_unit=(taken, 1, 0, 0, one_of))
    assert units.closer(found) == wanted
