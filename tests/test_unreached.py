"""Cases for kernels that no check would launch: what is read of the executor, and which smaller cases are tried."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import pytest

from cudamaster.core.values import Precision
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.judging import unreached
from cudamaster.judging.judge_process import Trial
from cudamaster.judging.report_lines import Reference, of
from cudamaster.judging.unreached import Reach, _calls, _reduced, _smaller, reach, told
from cudamaster.tasks import cards
from cudamaster.tasks.cards import Case, TaskCard
from cudamaster.workbench.evaluation import Workbench


def timed(card: TaskCard, **sizes: int) -> Case:
    """A timed case of a card."""
    return next(case for case in card.cases if case.sweep and sizes.items() <= case.values.items())


def test_what_the_executor_tells() -> None:
    """Kernels count once each, and of the last call only where it came to its end."""
    text = "call\nkernel 1a2 f<4>\nkernel 3b g\nend\ncall\nend\nsomething else\ncall\nkernel 1a2 f<4>\n"
    assert list(_calls(text)) == [{"1a2", "3b"}, frozenset()]
    assert not list(_calls(""))


@pytest.mark.parametrize(
    ("task", "sizes", "name", "halves", "three_quarters"),
    [
        ("fft", {"N": 16384}, "N", True, False),  # a power of two
        ("matrix_mul", {"M": 4096}, "M", True, True),
        ("matrix_mul", {"M": 64}, "outliers", False, False),  # the least that is listed
        ("spmm_csr", {"rows": 1024}, "cols", False, False),  # always the same
    ],
)
def test_smaller_cases_are_like_those_of_the_card(
    task: str, sizes: dict[str, int], name: str, halves: bool, three_quarters: bool
) -> None:
    """A size that is made smaller stays what it is in all cases of the card."""
    card = cards.load(task)
    case = timed(card, **sizes)
    for quarters, possible in ((2, halves), (3, three_quarters)):
        made = _reduced(card, case, name, quarters)
        assert (made is not None) == possible
        assert made is None or made.values == {**case.values, name: case.values[name] * quarters // 4}


def test_an_input_stays_as_long_as_the_weights() -> None:
    """Sizes that are ordered in all cases of the card stay so."""
    card = cards.load("conv_1d")
    case = card.case({"input_size": 256, "kernel_size": 256})
    assert _reduced(card, case, "input_size", 2) is None
    assert _reduced(card, case, "kernel_size", 2) is not None


def test_sizes_are_no_less_than_the_cards_and_multiples_of_what_theirs_are() -> None:
    simpson, rope = cards.load("simpson_int"), cards.load("rope")
    least = simpson.case({**simpson.cases[0].values, "N": 2})
    assert _reduced(simpson, least, "N", 2) is None
    assert _reduced(simpson, simpson.case({**simpson.cases[0].values, "N": 5}), "N", 2) is None
    even = rope.case({**rope.cases[-1].values, "D": 24})
    assert _reduced(rope, even, "D", 3) is not None
    odd = rope.case({**rope.cases[-1].values, "D": 12})
    assert _reduced(rope, odd, "D", 3) is None


def test_sizes_become_a_quarter_less_where_no_half_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreached, "_ENOUGH", 1)
    card = cards.load("matrix_mul")

    def tell(cases: list[Case]) -> list[frozenset[str] | None]:
        return [frozenset("k" if one.values["M"] * one.values["N"] >= 5 << 20 else "") for one in cases]

    found = _smaller(card, tell, "k", timed(card, M=4096), frozenset("k"))  # type: ignore[arg-type]
    assert found is not None
    assert found[0].values["M"] * found[0].values["N"] == 6 << 20


def test_sizes_are_halved_in_turn_while_the_kernel_is_launched() -> None:
    """Up to a light case, or as far as it goes: then only if that is not too heavy."""
    card = cards.load("matrix_mul")
    case = timed(card, M=4096)

    def smaller(least: int) -> Case | None:
        """By a wrapper that launches the kernel `k` from so many results on."""

        def tell(cases: list[Case]) -> list[frozenset[str] | None]:
            return [frozenset("k" if one.values["M"] * one.values["N"] >= least else "o") for one in cases]

        found = _smaller(card, tell, "k", case, frozenset("k"))  # type: ignore[arg-type]
        assert found is None or found[1] == {"k"}
        return None if found is None else found[0]

    light = smaller(1)
    assert light is not None
    assert light.label.startswith("for a kernel: M=256,N=128,K=256")
    assert light.held_out
    assert not light.sweep
    bound = smaller(1 << 21)
    assert bound is not None
    assert bound.values["M"] * bound.values["N"] == 1 << 21
    assert bound.weight <= 1e7
    assert smaller(5 << 20) is not None
    assert smaller(1 << 23) is not None
    assert smaller(4096 * 2048 + 1) is None


def test_a_note_says_what_ran_in_no_check() -> None:
    """By the lightest timed case of each kernel; one that runs is checked there."""
    card = cards.load("matrix_mul")
    cases = timed(card, M=256), timed(card, M=4096), timed(card, M=4096)
    label = cases[0].label
    reach = Reach((), cases)
    assert reach.notes(lambda case: False) == (
        f"3 kernels of {label} and 1 more ran in no check: no case was found that is light enough",
    )
    (note,) = reach.notes(lambda case: case.values["M"] == 4096)
    assert note == f"1 kernel of {label} ran in no check: no case was found that is light enough"
    assert reach.notes(lambda case: True) == ()


class Teller:
    """A device that says of a call which kernels it launches, `[...]` with a name each; it fails at None, and the run
    with it. A word is why a case is skipped."""

    def __init__(self, kernels: Callable[[Mapping[str, float]], list[str] | str | None]) -> None:
        self._kernels = kernels
        self.runs = 0

    def run_observed(self, request: JudgeRequest, report: Path, limit_s: float, notes: BinaryIO) -> None:
        """Writes what judge and executor would."""
        assert request.told
        assert limit_s > 0
        self.runs += 1
        lines = []
        for index, label in enumerate(request.labels):
            launched = self._kernels({name: float(size) for name, size in (one.split("=") for one in label.split(","))})
            if isinstance(launched, str):
                lines.append(json.dumps({"event": "skip", "t": 0.0, "index": index, "reason": launched}))
                continue
            notes.write(b"call\n")
            if launched is None:
                break
            notes.write("".join(f"kernel {name} of_a_name\n" for name in launched).encode() + b"end\n")
        report.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def reached(card: TaskCard, kernels: Callable[[Mapping[str, float]], list[str] | str | None]) -> Reach:
    """What there is beside the verification cases, by a wrapper that launches such kernels."""
    checked = [case for case in card.cases if not case.sweep]
    return reach(card, Teller(kernels), Path("judge"), Path("worker"), checked)  # type: ignore[arg-type]


def test_calls_behind_one_that_fails_are_asked_for_once_more() -> None:
    """A few times. What is skipped has no call, and the others keep their places."""
    card = cards.load("dot_product")
    cases = [card.case({"N": n}) for n in (512, 1024, 2048, 4096, 8192)]
    kernels: dict[float, list[str] | str | None] = {
        512: ["a"],
        1024: None,
        2048: "needs too much",
        4096: [],
        8192: ["b"],
    }
    teller = Teller(lambda sizes: kernels[sizes["N"]])
    worker = Path("worker")
    assert told(teller, worker, worker, cases) == [{"a"}, None, None, set(), {"b"}]  # type: ignore[arg-type]
    assert teller.runs == 2
    failing = Teller(lambda sizes: None)
    assert told(failing, worker, worker, cases * 2) == [None] * 10  # type: ignore[arg-type]
    assert failing.runs == 5


def test_kernels_of_timed_cases_alone_get_the_lightest_case_that_launches_them() -> None:
    """Those that a verification case launches get none, and what one case launches gets no other."""
    card = cards.load("gelu")
    timed_cases = sorted((case for case in card.cases if case.sweep), key=lambda case: case.weight)
    sizes = [case.values["N"] for case in timed_cases]
    assert len(sizes) > 2
    found = reached(card, lambda at: ["all", *(f"from{n:.0f}" for n in sizes[:2] if at["N"] >= n and at["N"] in sizes)])
    (first, of_first), (second, of_second) = found.found
    assert (first.values["N"], second.values["N"]) == (sizes[0], sizes[1])
    assert (of_first, of_second) == ((timed_cases[0],), (timed_cases[1],))
    assert first.held_out
    assert not first.sweep
    assert not found.unreached
    assert not found.unknown
    both = reached(card, lambda at: ["x", "y"] if at["N"] in sizes else ["all"])
    assert [timed for _, timed in both.found] == [(timed_cases[0], timed_cases[0])]


def test_heavy_cases_are_left_out_if_a_timed_case_runs_all_of_their_kernels() -> None:
    card = cards.load("matrix_mul")
    near, far = timed(card, M=256), timed(card, M=4096)
    light, heavy = (card.cases[0].model_copy(update={"weight": weight}) for weight in (1e6, 1e7))
    found = Reach(((light, (near,)), (heavy, (near, far))))
    assert found.light == [light]
    assert found.heavy(lambda case: False) == ([heavy], [])
    assert found.heavy(lambda case: case == near) == ([heavy], [])
    assert found.heavy(lambda case: True) == ([], [])


def test_cases_that_are_too_heavy_for_three_sets_of_inputs_have_one() -> None:
    card = cards.load("matrix_mul")
    quick, slow = (card.cases[0].model_copy(update={"weight": weight}) for weight in (7e7, 8e7))
    both = Reach(((quick, (card.cases[0],)), (slow, (card.cases[0],))))
    assert both.heavy(lambda case: False) == ([quick], [slow])


def test_no_size_is_asked_for_twice() -> None:
    """Two kernels of which no light case launches either are looked for at the same sizes."""
    card = cards.load("matrix_mul")
    checked = [case for case in card.cases if not case.sweep]

    def runs(names: list[str]) -> int:
        teller = Teller(lambda at: names if at["M"] * at["N"] * at["K"] >= 1 << 34 else [])
        found = reach(card, teller, Path("judge"), Path("worker"), checked)  # type: ignore[arg-type]
        assert len(found.unreached) == len(names)
        return teller.runs

    assert runs(["x", "y"]) == runs(["x"]) > 1


def test_no_more_cases_are_added_than_the_limit_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels that they do not launch are named as those that nothing launches."""
    card = cards.load("gelu")
    sizes = sorted(case.values["N"] for case in card.cases if case.sweep)
    monkeypatch.setattr(unreached, "_MOST_CASES", 2)
    found = reached(card, lambda at: [f"of{at['N']:.0f}"] if at["N"] in sizes else ["all"])
    assert len(found.found) == 2
    assert [case.values["N"] for case in found.unreached] == sizes[2:]


def test_all_cases_that_are_added_are_no_heavier_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a lighter case launches is still found behind one that there is no room for."""
    card = cards.load("gelu")
    least, other, *_ = sorted((case for case in card.cases if case.sweep), key=lambda case: case.weight)

    def kernels(at: Mapping[str, float]) -> list[str]:
        return [f"of{at['N']:.0f}"] if at["N"] in (least.values["N"], other.values["N"]) else ["all"]

    monkeypatch.setattr(unreached, "_MOST_TOTAL", least.weight + other.weight)
    assert len(reached(card, kernels).found) == 2
    monkeypatch.setattr(unreached, "_MOST_TOTAL", least.weight + other.weight - 1)
    found = reached(card, kernels)
    assert [case.values["N"] for case, _ in found.found] == [least.values["N"]]
    assert found.unreached == (other,)


@pytest.mark.parametrize("sets", [None, 1])
def test_a_case_may_have_one_set_of_inputs(sets: int | None) -> None:
    """Heavy cases do; others have three. Outputs that one set gives are no constants for that."""
    card = cards.load("vector_add")
    bench = Workbench(card, Precision.FP32, CpuDevice(), modelled=False)
    build = bench._builder.build(bench.baseline)
    case = next(case for case in card.cases if not case.sweep).model_copy(update={"held_out": True})
    request = JudgeRequest(candidate=(str(build.worker),), cases="none", seed=1, calls=0, sets=sets)
    lines, _ = bench._trials.report(Trial(request, [case], 60))
    assert [line.event for line in lines].count("check") == (sets or 3)  # type: ignore[attr-defined]
    assert not any(line.constant for line in of(Reference, lines))


def test_a_note_says_where_nobody_knows_the_kernels() -> None:
    """A call may fail because its kernels were not executed."""
    card = cards.load("gelu")
    largest = max((case for case in card.cases if case.sweep), key=lambda case: case.weight)
    found = reached(card, lambda at: None if at["N"] == largest.values["N"] else [])
    assert found.unknown == (largest,)
    (note,) = found.notes(lambda case: False)
    assert note == (
        f"kernels of {largest.label} may have run in no check: with none executed, "
        "the call fails or needs too much memory"
    )
    assert found.notes(lambda case: True) == ()
