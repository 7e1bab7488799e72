"""Launches that differ only in the allocations they are given are counted once."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import pytest
from traced_program import traced_program

from cudamaster.devices.process import run_limited
from cudamaster.devices.protocol import Ran
from cudamaster.modelling import tracing
from cudamaster.modelling.gpu import load
from cudamaster.modelling.observed import AGAIN, LaunchLine, calls
from cudamaster.modelling.tracing import NoTrace, Spares

GUESSES = Spares(inputs=True, results=True, steering=True)
BESIDE = {"accesses": (0, 0, 0), "threads_instructions": (0, 0)}  # what is said of those


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """alike.cu, traced."""
    return traced_program(tmp_path_factory, "alike.cu")


def counted(program: Path, what: str, spares: Spares = GUESSES) -> tuple[list[list[LaunchLine]], list[str | None]]:
    """The launches of the program's calls, and why calls were not counted."""
    seen: list[list[LaunchLine]] = []

    def run(notes: BinaryIO) -> Ran:
        environment = {"CUDAMASTER_CPU_TRACE": str(notes.fileno())}
        ran = run_limited([str(program), what], 120, environment=environment, held=[notes.fileno()])
        after = notes.tell()
        notes.seek(0)
        text = notes.read().decode()
        for call in calls(text[text.index("{") :]):
            seen.append([line for line in call.lines if isinstance(line, LaunchLine)])
        notes.seek(after)
        return ran

    cases = [what] * (2 if what in {"calls", "later"} else 1)
    found = tracing.recorded(run, program, cases, load(), spares=spares)
    return seen, [each.reason if isinstance(each, NoTrace) else None for each in found]


def kinds(launches: list[LaunchLine]) -> list[int]:
    """Of each launch the number of that whose counts it has: what blocks did that were drawn for it is said of both.

    All blocks make different numbers of passes, and each launch that is counted has others drawn.
    """
    drawn = [(launch.accesses, launch.threads_instructions) for launch in launches]
    return [drawn.index(each) for each in drawn]


def figures(launches: list[LaunchLine]) -> list[LaunchLine]:
    """All that is said of launches but of blocks beside the sample."""
    return [launch.model_copy(update=BESIDE) for launch in launches]


def without_numbers(launches: list[LaunchLine]) -> list[LaunchLine]:
    """The same with buffers by their order, as a second call has others."""
    return [
        launch.model_copy(
            update={
                "traffic": [each.model_copy(update={"buffer": at}) for at, each in enumerate(launch.traffic)],
            }
        )
        for launch in figures(launches)
    ]


@pytest.mark.parametrize("how", ["alike", "struct"])
def test_like_launches_have_the_counts_that_they_would_have_by_themselves(program: Path, how: str) -> None:
    """An argument that changes nothing makes launches be counted one by one."""
    (like,), reasons = counted(program, how)
    (apart,), _ = counted(program, "different" if how == "alike" else "not comparable")
    assert reasons == [None]
    assert kinds(like) == [0, 0, 0]
    assert kinds(apart) == [0, 1, 2]
    assert {each.left_out for each in like} == {True}
    if how == "alike":
        assert figures(like) == figures(apart)
    assert [[(each.buffer, each.bytes) for each in launch.traffic] for launch in like] == [
        [(each.buffer, each.bytes) for each in launch.traffic] for launch in apart
    ]


def test_an_argument_that_changes_other_blocks_than_the_first_counts(program: Path) -> None:
    (launches,), _ = counted(program, "others")
    assert kinds(launches) == [0, 1, 2]
    first, second, third = (launch.threads_instructions[0] for launch in launches)
    assert first < second < third


def test_so_it_does_where_the_sample_is_all_blocks(program: Path) -> None:
    (launches,), _ = counted(program, "few blocks")
    assert [(launch.traced, launch.left_out, launch.accesses[2]) for launch in launches] == [(64, True, 0)] * 3
    first, like, other = figures(launches)
    assert first == like
    assert sum(each.load[0] for each in first.traffic) < sum(each.load[0] for each in other.traffic)


def test_where_a_pointer_is_in_a_line_counts_and_where_the_line_is_does_not(program: Path) -> None:
    (launches,), _ = counted(program, "place")
    assert kinds(launches) == [0, 0, 2, 2]
    stored = [sum(traffic.store[1] for traffic in launch.traffic) for launch in launches]
    assert stored[0] == stored[1] < stored[2] == stored[3]


def test_how_far_pointers_into_one_allocation_are_apart_counts(program: Path) -> None:
    (launches,), _ = counted(program, "within")
    assert kinds(launches) == [0, 1, 0]


def test_launches_of_later_calls_are_like_those_of_earlier_ones(program: Path) -> None:
    (first, second), reasons = counted(program, "calls")
    assert reasons == [None, None]
    assert kinds(first + second) == [0] * 6
    assert without_numbers(first) == without_numbers(second)
    numbers = [{traffic.buffer for launch in call for traffic in launch.traffic} for call in (first, second)]
    assert numbers[0].isdisjoint(numbers[1])


def test_so_are_those_of_a_graph(program: Path) -> None:
    (of_graph,), _ = counted(program, "graph")
    (alike,), _ = counted(program, "alike")
    assert kinds(of_graph) == [0] * 6
    assert figures(of_graph) == figures(alike) * 2


def test_one_that_is_like_another_only_in_its_first_block_is_counted(program: Path) -> None:
    """A kernel may go by the address itself."""
    (launches,), (reason,) = counted(program, "uneven")
    assert reason is None
    assert {launch.left_out for launch in launches} == {True}
    even, uneven = (launch.threads_instructions[0] / launch.traced for launch in launches)
    assert uneven > 5 * even
    ((alone, like),), _ = counted(program, "elsewhere")
    assert figures([launches[1]]) == figures([alone]) == figures([like])


def passes(launches: list[LaunchLine]) -> list[bool]:
    """Of each launch whether its blocks made many."""
    few = launches[0].threads_instructions[0] / launches[0].traced
    return [launch.threads_instructions[0] / launch.traced > 5 * few for launch in launches]


@pytest.mark.parametrize("how", ["repeated", "turns", "keys"])
def test_launches_that_were_alike_are_still_compared(program: Path, how: str) -> None:
    """A kernel that goes by the address itself cannot do little until it is believed: all have their own counts."""
    (launches,), (reason,) = counted(program, how)
    assert reason is None
    much = {
        "repeated": [number >= 6 for number in range(30)],
        "turns": [number >= 6 and number % 2 == 0 for number in range(30)],
        "keys": [number % 4 == 3 for number in range(32)],
    }
    assert passes(launches) == much[how]


def test_a_launch_that_is_steered_needs_what_like_ones_left_out(program: Path) -> None:
    """In the second call, which then is the first of another process. There all blocks are run."""
    _, reasons = counted(program, "later")
    assert reasons == [None, AGAIN]
    (first, _), _ = counted(program, "later", Spares(steering=True))
    assert [launch.left_out for launch in first] == [False] * 3
    assert [launch.accesses[2] for launch in first] == [launch.blocks - launch.traced for launch in first]
