"""From report lines to a verdict: every way in which a process can end has the right name."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from cudamaster.core.errors import DeviceError
from cudamaster.core.values import CaseVerdict, Status
from cudamaster.devices.protocol import Ran
from cudamaster.judging.failure_log import explain
from cudamaster.judging.report_lines import Line
from cudamaster.judging.verdicts import Judgement, judge, parse
from cudamaster.tasks import cards

CARD = cards.load("spmv_csr")
CASES = [next(c for c in CARD.cases if not c.sweep), *[c for c in CARD.cases if c.sweep][-2:]]

BEGIN = {"event": "begin", "device": "Some GPU", "seed": "1", "t": 0.0}
END = {"event": "end", "ok": True, "t": 9.0}
LATE = {"event": "timeout", "index": 0, "limit_s": 2.0, "t": 3.0}


def output(mismatches: int = 0, **changed: Any) -> dict[str, Any]:
    first = [{"element": 3, "expected": 0.5, "got": "nan", "allowed": 0.001}] if mismatches else []
    return {"event": "output", "name": "y", "elements": 8, "oracle_elements": 8, "mismatches": mismatches,
            "worst_error": 1e-8, "baseline_worst_error": 1e-8, "bound": 4e-7, "pattern": "a tail, elements 3..7",
            "first": first, **changed}  # fmt: skip


def case(index: int, t: float, *, check: bool = True, time: bool = False, **changed: Any) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [
        {"event": "case", "index": index, "label": CASES[index].label, "t": t},
        {"event": "reference", "index": index, "baseline_ok": True, "t": t + 0.1},
    ]
    if check:
        lines.append({"event": "check", "index": index, "stage": "check", "set": 0, "ok": True, "damage": "",
                      "outputs": [output()], "t": t + 0.2, **changed})  # fmt: skip
    if time:
        lines.append({"event": "time", "index": index, "baseline_us": [30.0, 30.0], "candidate_us": [10.0, 20.0],
                      "empty_us": [5.0, 6.0], "t": t + 1.2})  # fmt: skip
    return lines


def ran(exit_code: int | None = 0, **changed: Any) -> Ran:
    return Ran(**{"exit_code": exit_code, "signal": None, "expired": False, "stderr": "", "seconds": 1.0, **changed})


def report(lines: list[dict[str, Any]]) -> list[Line]:
    """Lines as they are read from a report."""
    return parse("".join(json.dumps(line) + "\n" for line in lines))


def judged(lines: list[dict[str, Any]], process: Ran | None = None) -> Judgement:
    return judge(report(lines), process or ran(), CASES)


def test_a_correct_run_is_scored_by_weight() -> None:
    """P = sum(T*S)/sum(T) over the timed cases, S of the typical turn: of ratios 3 and 1.5 their geometric mean."""
    faster = case(2, 4, time=True)
    faster[-1]["candidate_us"] = [5.0, 5.0]
    result = judged([BEGIN, *case(0, 1), *case(1, 2, time=True), *faster, END])
    assert result.status is Status.CORRECT
    t1, t2 = CASES[1].weight, CASES[2].weight
    assert result.score == pytest.approx((t1 * 4.5**0.5 + t2 * 6.0) / (t1 + t2))
    assert result.seconds.timing == pytest.approx(2.0)
    assert result.complete


def test_a_skipped_case_makes_the_score_incomplete() -> None:
    """A case left out is named, and the score says so."""
    skip = [{"event": "case", "index": 2, "t": 3.0}, {"event": "skip", "index": 2, "reason": "too long", "t": 3.0}]
    result = judged([BEGIN, *case(0, 1), *case(1, 2, time=True), *skip, END])
    assert result.status is Status.CORRECT
    assert not result.complete
    assert result.cases[2].skipped == "too long"


def test_a_case_without_a_call_that_counts_makes_the_score_incomplete() -> None:
    """Where the GPU was too hot in every turn of a case, P is that of the others."""
    hot = case(2, 3, time=True)
    hot[-1] |= {"baseline_us": [], "candidate_us": [], "hot": 50}
    result = judged([BEGIN, *case(0, 1), *case(1, 2, time=True), *hot, END])
    assert result.status is Status.CORRECT
    assert result.score is not None
    assert not result.complete


def test_a_mismatch_is_wrong_and_explained() -> None:
    """The log names case, element, expected, got, allowed and the pattern; NaN survives the JSON."""
    bad = case(1, 2, ok=False, outputs=[output(5)])
    result = judged([BEGIN, *case(0, 1), *bad, *case(2, 4), {**END, "ok": False}], ran(1))
    assert result.status is Status.WRONG
    assert result.score is None
    assert "a tail" in result.detail
    assert CASES[1].label in result.detail
    assert result.log.splitlines()[-1].split() == ["y[3]", "0.5", "nan", "0.001"]


def test_one_bad_set_among_good_ones_is_wrong() -> None:
    """A result that is right on one input set and wrong on another is wrong (a remembered one, say)."""
    lines = [BEGIN, *case(0, 1), case(0, 1, ok=False, outputs=[output(1)])[-1], case(0, 1)[-1], END]
    assert judged(lines).status is Status.WRONG


def test_damage_is_a_fault() -> None:
    """A write past a buffer or a changed input is a fault, though outputs may be right."""
    bad = case(0, 1, ok=False, damage="y was written 0 bytes past its end")
    result = judged([BEGIN, *bad, *case(1, 2), {**END, "ok": False}], ran(1))
    assert result.status is Status.FAULT
    assert "past its end" in result.detail


@pytest.mark.parametrize(
    ("lines", "process", "status", "said"),
    [
        ([{"event": "fault", "index": 0, "who": "candidate", "error": "cudaErrorIllegalAddress", "detail": "an illegal "
           "memory access", "t": 2.0}], ran(70), Status.FAULT, "cudaErrorIllegalAddress"),
        ([{"event": "fault", "index": 0, "who": "rival", "error": "cudaErrorIllegalAddress", "detail": "an illegal "
           "memory access", "t": 2.0}], ran(70), Status.FAULT, "of the kernel that it is compared with"),
        ([{**LATE, "who": "candidate"}], ran(75), Status.TIMEOUT, "a call took longer than its limit (2 s)"),
        ([{**LATE, "who": "rival"}], ran(75), Status.TIMEOUT, "that it is compared with took longer"),
        ([], ran(None, expired=True), Status.TIMEOUT, "longer"),
        ([], ran(None, signal=11), Status.FAULT, "signal 11"),
        ([], ran(0), Status.FAULT, "ended by itself"),
        ([], ran(1, stderr="==1==ERROR: AddressSanitizer: heap-buffer-overflow on address"), Status.FAULT, "overflow"),
    ],
)  # fmt: skip
def test_how_a_process_ended(lines: list[dict[str, Any]], process: Ran, status: Status, said: str) -> None:
    """A process that ends before its report does is the candidate's doing, and never a pass."""
    result = judged([BEGIN, *case(0, 1, check=False), *lines], process)
    assert result.status is status
    assert said in result.detail
    assert result.score is None
    assert result.cases[-1].status is status


def test_exit_zero_after_everything_but_the_end_is_no_pass() -> None:
    """exit(0) from a kernel's wrapper in the last case skips the end of the report."""
    assert judged([BEGIN, *case(0, 1), *case(1, 2, time=True)], ran(0)).status is Status.FAULT


@pytest.mark.parametrize(
    ("lines", "process"),
    [
        ([], ran(127, stderr="cannot open shared object file")),
        ([BEGIN, *case(0, 1)], ran(74, stderr="harness failure: out of memory")),
        ([BEGIN, {**case(0, 1, check=False)[-1], "baseline_ok": False}], ran(1)),
        ([BEGIN, {"event": "fault", "index": 0, "who": "baseline", "error": "x", "detail": "y", "t": 1.0}], ran(70)),
        ([BEGIN, {**LATE, "who": "baseline"}], ran(75)),
    ],
)
def test_our_own_faults_are_errors(lines: list[dict[str, Any]], process: Ran) -> None:
    """A harness or baseline that fails by itself says nothing about the candidate."""
    with pytest.raises(DeviceError):
        judged(lines, process)


def test_a_baseline_that_fails_after_the_candidate_blames_the_candidate() -> None:
    """Overwriting device memory is found when the baseline's next result is wrong."""
    broken = {**case(1, 2, check=False)[-1], "baseline_ok": False}
    lines = [BEGIN, *case(0, 1), case(1, 2, check=False)[0], broken, *case(2, 4), END]
    assert judged(lines).status is Status.FAULT


def test_a_cut_last_line_is_left_out() -> None:
    """A report that was cut by a kill is read up to its last whole line."""
    text = json.dumps(BEGIN) + "\n" + json.dumps(END)[:7]
    assert parse(text) == report([BEGIN])
    assert len(parse(text)) == 1


SIZES = [1, 2, 3, 5, 8, 16, 31, 33, 36, 64, 96, 127, 129, 256, 1009, 1024, 2051]
RULES: dict[str, tuple[Callable[[int, float], bool], str]] = {
    "too many rows": (lambda n, _: n >= 1000, "where rows >= 1009 (up to 256 it passes)"),
    "too few rows": (lambda n, _: n < 8, "where rows <= 5 (from 8 on it passes)"),
    "full groups alone": (lambda n, _: n % 8 != 0, "where rows is not a multiple of 8"),
    "full groups not": (lambda n, _: n % 32 == 0, "where rows is a multiple of 32"),
    "a constant built in": (lambda _, epsilon: epsilon != 1e-5, "epsilon is not 1e-05, its usual value; in those that"),
    "large with the constant": (lambda n, epsilon: n >= 64 and epsilon != 1e-5, "so it is in 2 of the"),
    "no rule at all": (lambda n, _: n in (3, 33, 256), ""),
    "one case": (lambda n, _: n == 31, ""),
    "all cases": (lambda *_: True, ""),
}


@pytest.mark.parametrize("name", RULES)
def test_sizes_that_tell_failing_cases_from_others(name: str) -> None:
    """A rule is said when it holds for all failing and no passing cases; of too few cases nothing is said."""
    fails, said = RULES[name]
    sizes = {f"rows={n}": {"rows": n, "epsilon": 1e-5, "nnz": 10 * n} for n in SIZES}
    sizes |= {f"rows={n},epsilon={e:g}": {"rows": n, "epsilon": e, "nnz": 10 * n}
              for n, e in ((5, 0.1), (8, 0.01), (64, 0.1), (127, 1e-3), (1009, 1e-6), (2051, 0.1))}  # fmt: skip
    verdicts = [
        CaseVerdict(label, False, 1.0, Status.WRONG if fails(s["rows"], s["epsilon"]) else Status.CORRECT)
        for label, s in sizes.items()
    ]
    rule = next((line for line in explain(verdicts, sizes).splitlines()[1:2] if line.startswith(("They", "In"))), "")
    assert said in rule
    assert bool(said) == bool(rule)


def test_a_case_in_which_some_elements_are_right_comes_first() -> None:
    """Where everything is wrong there is no pattern to see."""
    lines = [
        *case(0, 1, ok=False, outputs=[output(8, pattern="every element")]),
        *case(1, 2, ok=False, outputs=[output(5)]),
    ]
    result = judged([BEGIN, *lines, *case(2, 4), {**END, "ok": False}], ran(1))
    assert result.detail.startswith("y: 5 of 8")
    assert result.log.index("5 of 8") < result.log.index("8 of 8")


def test_elements_of_a_matrix_have_rows_and_columns() -> None:
    """Element 3 of rows of two is y[1, 1]."""
    result = judged([BEGIN, *case(0, 1, ok=False, outputs=[output(1, width=2)]), *case(1, 2), *case(2, 3), END], ran(1))
    assert "y[1, 1]" in result.log
    assert result.cases[0].outputs[0].width == 2


def test_calls_that_were_right_before_one_was_wrong_are_told() -> None:
    """A result kept from the call before is wrong at the second."""
    lines = [BEGIN, *case(0, 1), case(0, 1, ok=False, outputs=[output(1)])[-1], case(0, 1)[-1], END]
    assert "(in call 2 of 3, each on other inputs)" in judged(lines).detail


def test_seconds_count_from_when_the_candidate_was_there() -> None:
    """What a judge that was started ahead did before is hidden behind the build."""
    lines = [BEGIN, {"event": "isolation", "text": "", "t": 3.5}, *case(0, 4), *case(1, 5, time=True), END]
    seconds = judged(lines, ran(seconds=6.5, ahead=3.0, waited=0.25)).seconds
    assert seconds.start == pytest.approx(0.5 + 0.5)  # until the process is up, and behind the last line
    assert seconds.timing == pytest.approx(1.0)
    assert seconds.waiting == 0.25
    assert seconds.total == pytest.approx(6.5 + 0.25)
