"""Cases for kernels that no check would launch: what is read of the executor, and which smaller cases are tried."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import pytest

from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.judging.unreached import Reach, _calls, _reduced, _smaller, told
from cudamaster.tasks import cards
from cudamaster.tasks.cards import Case, TaskCard


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
        f"3 kernels of {label} and 1 more ran in no check: smaller cases launch others",
    )
    (note,) = reach.notes(lambda case: case.values["M"] == 4096)
    assert note == f"1 kernel of {label} ran in no check: smaller cases launch others"
    assert reach.notes(lambda case: True) == ()
    (note,) = Reach((), (), cases).notes(lambda case: False)
    assert note.startswith(f"kernels of {label} and 1 more may have run in no check: ")
    assert Reach((), (), cases).notes(lambda case: True) == ()


def test_a_call_that_fails_hides_no_other() -> None:
    """Each failure ends a run, and another run goes on behind it, as often as is allowed."""
    cases = list(cards.load("vector_add").cases)
    failing = {1, 4}

    def run_observed(request: JudgeRequest, report: Path, limit_s: float, notes: BinaryIO) -> None:
        """One run of calls that launch a kernel each and then, at some cases, fail."""
        first = len(cases) - len(request.labels)
        for index in range(len(request.labels)):
            notes.write(f"call\nkernel {first + index} f\n".encode())
            if first + index in failing:
                fault = {"event": "fault", "t": 0.0, "index": index, "who": "candidate", "error": "e", "detail": ""}
                report.write_text(json.dumps(fault) + "\n", "utf-8")
                return
            notes.write(b"end\n")
            notes.flush()

    device = SimpleNamespace(run_observed=run_observed)
    kernels = [None if k in failing else {str(k)} for k in range(len(cases))]
    for failures, known in ((1, 1), (2, 4), (3, len(cases))):
        found = told(device, Path("judge"), Path("worker"), cases, failures=failures)
        assert found == kernels[:known] + [None] * (len(cases) - known)
