"""Blocks beside the sample are run where somebody needs what they leave; where memory lies changes nothing."""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from traced_program import traced_program

from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.process import run_limited
from cudamaster.devices.protocol import Ran
from cudamaster.modelling import tracing
from cudamaster.modelling.counts import CallCounts, Instructions, Launch, Spread, Traffic
from cudamaster.modelling.gpu import Gpu, load
from cudamaster.modelling.observed import AGAIN, WHOLE, Call, LaunchLine, calls
from cudamaster.modelling.tracing import NoTrace, Spares


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """left_out.cu, traced."""
    return traced_program(tmp_path_factory, "left_out.cu")


def observed(program: Path, folder: Path, *words: str, threads: str = "") -> list[Call]:
    """The calls of the program, as its observer writes of them; on so many of the host's threads if that is given."""
    with (folder / "notes").open("w+b") as notes:
        notes.write(b"132 262144 233472 1024 64 32 1965\n\n")
        notes.flush()
        after = notes.tell()
        environment = {"CUDAMASTER_CPU_TRACE": str(notes.fileno()), "CUDAMASTER_CPU_THREADS": threads}
        run_limited([str(program), *words], 120, environment=environment, held=[notes.fileno()])
        notes.seek(after)
        return list(calls(notes.read().decode()))


GUESSES, LESS = Spares(inputs=True, results=True, steering=True), Spares(steering=True)
DRAWN = 32  # blocks beside the sample that are run although nobody needs them


def launches(call: Call) -> list[LaunchLine]:
    return [line for line in call.lines if isinstance(line, LaunchLine)]


def test_blocks_are_left_out_where_nobody_needs_them(program: Path, tmp_path: Path) -> None:
    """Behind a call with one launch those of a long one are, but not of one whose last block waits for the others.

    Where a second launch reads what the long one would have left, the call is to be made again.
    """
    first, long, counting, uneven, short, two = observed(program, tmp_path)
    assert {call.reason for call in (first, long, counting, uneven, short)} == {None}
    (launch,) = launches(long)
    assert (launch.left_out, launch.traced, launch.accesses[2]) == (True, 64, DRAWN)
    (launch,) = launches(counting)
    assert (launch.left_out, launch.accesses[2]) == (False, launch.blocks - launch.traced)
    assert two.reason == AGAIN


@pytest.mark.parametrize("how", ["a sum that is loaded", "an answer on one way"])
def test_blocks_are_not_left_out_where_one_asks_quietly(program: Path, how: str) -> None:
    """The last block does something more, and it is not an atomic's answer that everybody takes which says so."""
    (launch,), reason = first_call(program, how, Spares(results=True))
    assert (reason, launch.left_out, launch.accesses[2]) == (None, False, launch.blocks - launch.traced)
    stores = sum(traffic.store[0] for traffic in launch.traffic)
    assert stores > (1 << 20) / 64


@pytest.mark.parametrize("how", ["a host function", "a callback", "the stream", "the event"])
def test_a_host_that_asks_whether_all_is_done_may_need_them(program: Path, tmp_path: Path, how: str) -> None:
    """It may then read memory that both can read, and go by that."""
    _, long = observed(program, tmp_path, how)
    assert long.reason == AGAIN


@pytest.mark.slow
def test_a_few_blocks_that_are_left_out_otherwise_say_whether_the_sample_is_like_them(
    program: Path, tmp_path: Path
) -> None:
    """A kernel may know where samples lie."""
    _, long, _, uneven, *_ = observed(program, tmp_path)
    assert tracing._uneven(launches(long)) is None
    assert "do far more" in (tracing._uneven(launches(uneven)) or "")


@pytest.mark.slow(but=["many"])
@pytest.mark.parametrize("blocks", ["many", "few"])
def test_so_does_a_block_of_a_launch_that_begins_as_one_before_it_did(
    program: Path, tmp_path: Path, blocks: str
) -> None:
    """Once the budget is spent it has that one's counts, unless its other blocks do far more."""
    (call,) = observed(program, tmp_path, "alike", blocks)
    *_, same, other = launches(call)
    assert (same.accesses[2], other.accesses[2]) == (1, 1)
    assert other.model_copy(update={"accesses": same.accesses}) == same
    assert tracing._uneven([same]) is None
    assert "do far more" in (tracing._uneven([other]) or "")


@pytest.mark.slow
def test_the_first_call_of_a_process_leaves_nothing_out(program: Path, tmp_path: Path) -> None:
    """Nothing is known of it; so there a call that is made again finds all it needs."""
    long, *_ = observed(program, tmp_path, "without the first")
    (launch,) = launches(long)
    assert (launch.left_out, launch.accesses[2]) == (False, launch.blocks - launch.traced)


def test_a_launch_that_begins_as_one_before_has_its_counts_once_the_budget_is_spent(
    program: Path, tmp_path: Path
) -> None:
    """Of the last three the second does more in its first block too, and the others are like those before it."""
    call = observed(program, tmp_path, "long launches")[0]
    *before, like, unlike, again = launches(call)
    steps = [sum(traffic.load[0] for traffic in launch.traffic) / launch.traced for launch in (like, unlike, again)]
    assert sum(launch.traced for launch in before) * 32 * 2 * 20000 > 1.2e8
    assert all(launch.left_out for launch in before)
    assert steps == [20000, 30000, 20000]
    beside = {"accesses": (0, 0, 0), "threads_instructions": (0, 0)}  # what blocks did that were drawn anew
    assert len({launch.model_copy(update=beside).model_dump_json() for launch in (before[-1], like, again)}) == 1


def test_a_case_that_needs_what_was_left_out_is_the_first_of_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """And those behind it come after it there. First it is made with inputs, then with results.

    If units of work are needed, that case is made alone; if it came to its end, those behind it are not made again. One
    that failed otherwise is not made again either."""
    processes: list[tuple[str, Spares]] = []

    def recorded(
        _: object,
        worker: Path,
        cases: Sequence[str],
        wanted: Gpu,
        _seed: int,
        spares: Spares,
        unsteered: set[str] | None,
    ) -> list[CallCounts | NoTrace]:
        processes.append(("".join(cases), spares))
        found: list[CallCounts | NoTrace] = [CallCounts(version=1, case=label, events=()) for label in cases]
        for number, label in enumerate(cases):
            if (label == "b" and (number or spares.results)) or (label == "c" and spares.units) or label == "d":
                found[number] = NoTrace({"b": AGAIN, "c": WHOLE, "d": "a launch failed"}[label])
            if label == "f" and spares.units > 3:
                found[number] = NoTrace(WHOLE, spares.units // 4, ended=True)
        return found

    done: list[int] = []
    monkeypatch.setattr(tracing, "recorded", recorded)
    of_process: dict[str, Any] = {"wanted": load(), "seed": 1, "limit_s": 120.0}
    of_process["told"] = lambda _, before: done.append(before)
    found = tracing._traced(CpuDevice(), Path("judge"), Path("worker"), "abcdefg", tracing._MOST, **of_process)
    assert [each.reason if isinstance(each, NoTrace) else each.case for each in found] == [
        *("a", "b", "c", "a launch failed", "e", "f", "g"),
    ]
    less = replace(tracing._MOST, inputs=False, results=False)
    assert processes == [
        ("abcdefg", tracing._MOST),
        ("bcdefg", tracing._MOST),
        ("bcdefg", replace(tracing._MOST, inputs=False)),
        ("bcdefg", less),
        ("c", replace(less, units=0)),
        ("defg", less),
        ("efg", less),
        ("f", replace(less, units=16)),
        ("f", replace(less, units=4)),
        ("f", replace(less, units=1)),
    ]
    assert done == sorted(done)
    assert done[-1] == 7


def launch_of(sectors: float, waits: float) -> CallCounts:
    nothing = Spread(mean=0, largest=0)
    launch = Launch(
        kernel="kernel",
        grid=(8, 1, 1),
        block=(32, 1, 1),
        dynamic_shared_bytes=0,
        instructions=Instructions(integer=1000),
        traffic=(Traffic(buffer=1, bytes=4096, load_sectors=sectors),),
        barriers=nothing,
        waits_of_warp=Spread(mean=waits, largest=waits),
        cold_waits_of_warp=nothing,
        far_waits_of_warp=nothing,
        instructions_of_warp=nothing,
    )
    return CallCounts(version=1, case="first", events=(launch,))


MADE = launch_of(1000, 1)


@pytest.mark.parametrize(
    ("whole", "alike"),
    [
        (launch_of(1019, 1), True),
        (launch_of(1030, 1), False),
        (launch_of(1000, 3), True),
        (launch_of(1000, 4), False),
        (MADE.model_copy(update={"events": 2 * MADE.events}), False),
        (NoTrace("it took too long"), False),
    ],
)
@pytest.mark.parametrize(("said", "makes"), [(False, ""), (True, ""), (True, "ab"), (True, "a")])
def test_what_is_said_is_believed_where_the_smallest_case_of_which_it_is_said_is_the_same_without(
    monkeypatch: pytest.MonkeyPatch, whole: CallCounts | NoTrace, *, alike: bool, said: bool, makes: str
) -> None:
    """Where nothing is said of a launch, or none that it is said of is made, nothing is counted twice."""
    made: Counter[tuple[str, Spares]] = Counter()
    sizes = {"a": 3, "b": 1}

    def of_size(one: CallCounts | NoTrace, case: str) -> CallCounts | NoTrace:
        return one if isinstance(one, NoTrace) else one.model_copy(update={"events": sizes[case] * one.events})

    def traced(*given: object, unsteered: set[str] | None = None, **_: object) -> tuple[CallCounts | NoTrace, ...]:
        cases, spares = given[3:]
        assert isinstance(cases, list)
        assert isinstance(spares, Spares)
        made.update((case, spares) for case in cases)
        if unsteered is not None:
            unsteered.update(makes)
        return tuple(of_size(MADE if spares.steering else whole, case) for case in cases)

    monkeypatch.setattr(tracing, "_seems_unsteered", lambda _: said)
    monkeypatch.setattr(tracing, "_traced", traced)
    found = tracing.trace(CpuDevice(), Path("judge"), Path("worker"), ["a", "b"], wanted=load(), seed=1)
    believed = said and (alike or not makes)
    assert found[1] == (MADE if believed else whole)
    steered = replace(tracing._MOST, inputs=False, steering=False)
    wanted = Counter((case, tracing._MOST) for case in "ab" if said)
    wanted += Counter((min(makes, key=lambda case: sizes[case]), steered) for _ in makes[:1])
    assert made == wanted + Counter((case, steered) for case in "ab" if not believed)


@pytest.mark.parametrize("cores", [1, 3, 64])
def test_cases_are_shared_out_alike_on_every_machine(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    """What a case is counted behind may say how it is counted. The largest case is begun first."""
    made: list[list[str]] = []

    def traced(*given: object, **_: object) -> tuple[CallCounts | NoTrace, ...]:
        cases = given[3]
        assert isinstance(cases, list)
        made.append(cases)
        return tuple(NoTrace(case) for case in cases)

    monkeypatch.setattr(tracing, "_seems_unsteered", lambda _: False)
    monkeypatch.setattr(tracing, "_traced", traced)
    monkeypatch.setattr(tracing, "cores", lambda: cores)
    labels = [str(number) for number in range(9)]
    found = tracing.trace(CpuDevice(), Path("judge"), Path("worker"), labels, wanted=load(), seed=1)
    assert [one.reason for one in found if isinstance(one, NoTrace)] == labels
    if cores > 1:  # which thread comes first is the host's matter
        made.sort()
    assert made == [["0", "2", "4", "6", "8"], ["1", "3", "5", "7"]]


def test_an_interruption_leaves_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where a share's thread never comes back."""
    folders: list[Path] = []
    over = threading.Event()

    def traced(*given: object, folder: Path, **_: object) -> tuple[CallCounts | NoTrace, ...]:
        folders.append(folder)
        tempfile.mkdtemp(dir=folder)
        if given[3] == ["1"]:
            raise KeyboardInterrupt
        over.wait(10)
        return ()

    monkeypatch.setattr(tracing, "_seems_unsteered", lambda _: False)
    monkeypatch.setattr(tracing, "_traced", traced)
    monkeypatch.setattr(tracing, "cores", lambda: 2)
    with pytest.raises(KeyboardInterrupt):
        tracing.trace(CpuDevice(), Path("judge"), Path("worker"), ["0", "1"], wanted=load(), seed=1)
    over.set()
    assert folders
    assert not any(folder.exists() for folder in folders)


def test_what_is_said_is_tried_on_a_case_without_counts_if_no_other_makes_such_a_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have failed in one, for want of its inputs."""

    def traced(*given: object, **_: object) -> tuple[CallCounts | NoTrace, ...]:
        cases, spares = given[3:]
        assert isinstance(cases, list)
        assert isinstance(spares, Spares)
        return tuple(NoTrace("a launch failed") if case == "b" and spares.steering else MADE for case in cases)

    monkeypatch.setattr(tracing, "_seems_unsteered", lambda _: True)
    monkeypatch.setattr(tracing, "_traced", traced)
    found = tracing.trace(CpuDevice(), Path("judge"), Path("worker"), ["a", "b"], wanted=load(), seed=1)
    assert found == (MADE, MADE)


@pytest.mark.parametrize("threads", ["1", "4"])
def test_the_block_that_is_the_last_is_in_the_sample(program: Path, tmp_path: Path, threads: str) -> None:
    """However many blocks this host runs at a time, and whichever of them takes longest."""
    (launch,) = launches(observed(program, tmp_path, "a ticket", threads=threads)[0])
    assert sum(traffic.load[0] for traffic in launch.traffic) >= 2 * 1024


def first_call(program: Path, how: str, spares: Spares) -> tuple[list[LaunchLine], str | None]:
    """The launches of a process's first call, and why it was not counted."""
    seen: list[Call] = []

    def run(notes: BinaryIO) -> Ran:
        environment = {"CUDAMASTER_CPU_TRACE": str(notes.fileno())}
        ran = run_limited([str(program), how], 120, environment=environment, held=[notes.fileno()])
        after = notes.tell()
        notes.seek(0)
        text = notes.read().decode()
        seen.extend(calls(text[text.index("{") :]))
        notes.seek(after)
        return ran

    (found,) = tracing.recorded(run, program, [how], load(), spares=spares)
    return launches(seen[0]), found.reason if isinstance(found, NoTrace) else None


@pytest.fixture(scope="session")
def steered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """steered.cu, traced."""
    return traced_program(tmp_path_factory, "steered.cu")


def test_launches_that_nothing_in_memory_steers_need_no_results(steered: Path) -> None:
    """They count the same whether the blocks of those before were run or not."""
    found, reason = first_call(steered, "nothing", GUESSES)
    whole, _ = first_call(steered, "nothing", LESS)
    assert reason is None
    assert {(launch.unsteered, launch.left_out, launch.accesses[2]) for launch in found} == {(True, True, DRAWN)}
    assert len(found) == 3
    assert not any(launch.left_out for launch in whole)
    beside = {"accesses": (0, 0, 0), "threads_instructions": (0, 0), "left_out": False}
    assert [launch.model_copy(update=beside) for launch in found] == [
        launch.model_copy(update=beside) for launch in whole
    ]


HOST = ["host", "pinned memory", "registered memory", "copy", "question"]


@pytest.mark.slow(but=["an address", "host"])
@pytest.mark.parametrize("what", ["an address", "shared memory", "one's own array", *HOST])
def test_one_that_is_steered_needs_them(steered: Path, what: str) -> None:
    """So does a host that reads them or may do so. Then all blocks are run of what is before it."""
    _, reason = first_call(steered, what, GUESSES)
    assert reason == AGAIN
    found, reason = first_call(steered, what, LESS)
    assert reason is None
    assert not any(launch.left_out for launch in found)
    assert all(launch.unsteered for launch in found) == (what in HOST)


def test_work_beside_the_sample_is_found_where_nobody_needs_results(steered: Path) -> None:
    found, reason = first_call(steered, "uneven", GUESSES)
    assert found[-1].left_out
    assert "do far more" in (reason or "")


def test_sets_of_l1_do_not_go_by_where_the_host_has_put_memory(program: Path, tmp_path: Path) -> None:
    """Linux puts allocations elsewhere in each process."""
    found = [launches(observed(program, tmp_path, "the first alone")[0])[0] for _ in range(4)]
    missed = [sum(traffic.load[2] for traffic in launch.traffic) for launch in found]
    asked = sum(traffic.load[1] for traffic in found[0].traffic)
    assert asked / 2 < missed[0] < asked, "some are still there in the second pass"
    assert len(set(missed)) == 1


def test_a_product_that_nobody_needs_is_not_computed(steered: Path) -> None:
    """A launch that goes by it needs it, though all blocks were run. It makes sixteen passes, as the product says."""
    _, reason = first_call(steered, "matrices", Spares(results=True, steering=True))
    assert reason == AGAIN
    (_, passes), reason = first_call(steered, "matrices", LESS)
    assert reason is None
    assert 16 <= sum(traffic.load[0] for traffic in passes.traffic) <= 17


def test_an_atomic_asks_for_nothing_if_nobody_takes_its_answer(steered: Path) -> None:
    """So other blocks are left out, as the host needs none either."""
    (adding,), _ = first_call(steered, "ignored", Spares(results=True))
    assert (adding.unsteered, adding.left_out, adding.accesses[2]) == (False, True, DRAWN)
    (taking,), _ = first_call(steered, "taken", Spares(results=True))
    assert (taking.left_out, taking.accesses[2]) == (False, taking.blocks - taking.traced)


def test_a_word_that_no_barrier_has_left_steers_who_waits_there(steered: Path) -> None:
    """It may be loaded, so it is needed, though no instruction of the kernel loads it back."""
    _, reason = first_call(steered, "word", GUESSES)
    assert reason == AGAIN
    (launch,), reason = first_call(steered, "word", LESS)
    assert (launch.unsteered, reason) == (True, None)


def test_of_a_cooperative_launch_few_blocks_go_on(steered: Path) -> None:
    """If nothing steers them and nobody needs what they leave. Of those that do the counts are the same."""
    (few,), reason = first_call(steered, "blocks", GUESSES)
    (whole,), _ = first_call(steered, "blocks", LESS)
    assert reason is None
    assert (few.left_out, few.traced, few.accesses[2]) == (True, 16, 8)
    assert (whole.left_out, whole.traced, whole.accesses[2]) == (False, 16, 100 - 16)
    beside = {"accesses": (0, 0, 0), "threads_instructions": (0, 0), "left_out": False}
    assert few.model_copy(update=beside) == whole.model_copy(update=beside)
