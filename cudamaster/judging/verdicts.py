"""Turns what the judge reported into a judgement. It reads and runs nothing: lines in, Judgement out.

Report lines are those of `report_lines`. A kernel that fails gets a status. If the baseline or the
harness itself fails, we or the machine are to blame, and BaselineError is raised.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cudamaster.core.errors import BaselineError, ReferenceFailed, ReferenceStopped
from cudamaster.core.speed import Comparison, compare, overall
from cudamaster.core.tool_logs import readable, summary
from cudamaster.core.values import CaseVerdict, Mismatch, OutputCheck, Seconds, Status, Timing
from cudamaster.devices.protocol import Ran
from cudamaster.judging import paper_protocol, report_lines
from cudamaster.judging.baseline_advice import if_it_fails, if_no_truth
from cudamaster.judging.failure_log import clearest_first, explain
from cudamaster.judging.paper_protocol import PaperCase
from cudamaster.judging.report_lines import (
    Begin,
    Check,
    End,
    Fault,
    Isolation,
    Line,
    NoTruth,
    OfCase,
    Output,
    Reference,
    Skip,
    Time,
    Timeout,
    first,
    of,
)  # fmt: skip
from cudamaster.tasks.cards import Case

_HARNESS_FAILED = 74
_TAIL_CHARACTERS = 6000
_MANY_LIKE_ZERO = 0.05  # of an output's elements
_WHOSE = {"candidate": "", "baseline": " of the baseline", "rival": " of the kernel that it is compared with"}


@dataclass(frozen=True)
class Judgement:
    """The meaning of a report: the overall status, with a line for a person and a log for the Debug agent."""

    status: Status
    detail: str
    log: str
    cases: tuple[CaseVerdict, ...]
    seconds: Seconds
    hardware: Mapping[str, str]
    notes: tuple[str, ...] = ()
    baseline_us: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # timed calls, by the case's label
    worst_baseline_error: float | None = None  # in units of the scale, over all cases
    by_paper: tuple[PaperCase, ...] = ()  # where times were taken by the paper's protocol
    asked_bytes: int = 0  # of the largest allocation in a call, where calls were timed
    executed: frozenset[tuple[Path, int]] = frozenset()  # kernels, as `Ran` has them

    @property
    def score(self) -> float | None:
        """P of paper eq. 2 over the timed cases; None unless every case that ran was right and any was timed."""
        return None if self.speed is None else self.speed.speedup

    @property
    def speed(self) -> Comparison | None:
        """P with its interval, and what it amounts to."""
        timed = [(case.weight, case.timing) for case in self.cases if case.timing is not None]
        if self.status is not Status.CORRECT or sum(weight for weight, _ in timed) == 0:
            return None
        return overall([(weight, timing.baseline_us, timing.candidate_us) for weight, timing in timed])

    @property
    def complete(self) -> bool:
        """Whether no case of the sweep was skipped or timed without a single valid call."""
        return not any(
            case.sweep and (case.skipped or (case.empty_us is not None and case.timing is None)) for case in self.cases
        )


def joined(first: Judgement, second: Judgement) -> Judgement:
    """The judgement on two runs of one candidate at different cases. The first was right, and nothing was timed."""
    cases, seconds = (*first.cases, *second.cases), first.seconds + second.seconds
    executed = first.executed | second.executed
    if second.status is not Status.CORRECT:
        return replace(second, cases=cases, seconds=seconds, executed=executed)
    detail = f"{sum(case.skipped is None for case in cases)} cases right"
    return replace(first, detail=detail, cases=cases, seconds=seconds, executed=executed)


def parse(report: str) -> list[Line]:
    """Lines of a report up to the first incomplete one: a kill may have cut it, or something overwrote it."""
    lines: list[Line] = []
    for text in report.removesuffix("\n").split("\n"):
        line = report_lines.read(text)
        if line is None:
            return _broken_off(lines)
        lines.append(line)
    return lines


def judge(
    lines: Sequence[Line], ran: Ran, cases: Sequence[Case], *, doubted: Collection[str] = ("candidate",)
) -> Judgement:
    """The judgement on one harness process.

    `cases` are those that the process was asked to run, in order. The times reported by `doubted` processes have to
    agree with what the harness saw: the candidate's, and the rival's if one was timed in the baseline's place. Raises
    BaselineError if the harness or the baseline failed before the candidate ran.
    """
    # A line on an unknown case does not belong to this report, nor does anything after it.
    known = list(itertools.takewhile(lambda line: not isinstance(line, OfCase) or line.index < len(cases), lines))
    lines = known if len(known) == len(lines) else _broken_off(known)
    begin = _begun(lines, ran, cases)
    by_index: dict[int, list[Line]] = {}
    for line in of(OfCase, lines):
        by_index.setdefault(line.index, []).append(line)
    verdicts = tuple(_case(case, by_index[i], doubted) for i, case in enumerate(cases) if i in by_index)
    status, detail, log = _overall(lines, ran, verdicts, cases)
    if status is Status.CORRECT and (gap := _gap(lines, ran, by_index, cases)):
        status, detail, log = Status.FAULT, gap, _tail(ran)
    if status is not Status.CORRECT and not any(v.status not in (None, Status.CORRECT) for v in verdicts) and verdicts:
        # The process ended during a case, so that case failed.
        verdicts = (*verdicts[:-1], replace(verdicts[-1], status=status, detail=detail))
    hardware, times = begin.device, of(Time, lines)
    for isolation in of(Isolation, lines):
        hardware["isolation"] = isolation.text
    if clocks := [mhz for time in times for mhz in time.sm_mhz]:
        hardware["sm_mhz"] = f"{statistics.median(clocks):.0f}"  # while calls were timed
    errors = [line.baseline_worst_error for line in of(Reference, lines)]
    paper = [paper_protocol.case(case, by_index.get(i, ())) for i, case in enumerate(cases)]
    return Judgement(
        status,
        detail,
        log,
        verdicts,
        _seconds(lines, ran),
        hardware,
        _notes(lines),
        {cases[time.index].label: tuple(time.baseline_us) for time in times},
        max((error for error in errors if error is not None), default=None),
        tuple(one for one in paper if one is not None),
        max((time.asked_bytes for time in times), default=0),
        ran.executed,
    )


def _notes(lines: Sequence[Line]) -> tuple[str, ...]:
    """What a reader of the times has to know about the GPU at that time."""
    times = of(Time, lines)
    turns = sum(len(time.baseline_us) + time.hot for time in times)
    others = sorted({other for time in times for other in time.others})
    references = of(Reference, lines)
    notes = [f"{', '.join(others)} used the GPU meanwhile: times may be too long"] if others else []
    if references and all(line.constant for line in references):
        notes.append("the expected output does not depend on the inputs: it is the same for all that were tried")
    notes += _like_zero(references)
    isolation = first(Isolation, lines)
    if isolation is not None and any(gap in isolation.text for gap in ("open", "not confined")):
        notes.append(f"the candidate's process was not fully confined: {isolation.text}")
    for count, what in (
        (sum(time.hot for time in times), "were left out: the GPU was too hot"),
        (sum(time.power_capped for time in times), "ran under the power cap"),
    ):
        if count:
            notes.append(f"{count} of {turns} turns {what}")
    if retaken := sum(time.retaken > 0 for time in times):
        notes.append(
            f"calls of {retaken} of {len(times)} cases were timed anew: the harness's clock had contradicted them"
        )
    return tuple(notes)


def _like_zero(references: Sequence[Reference]) -> list[str]:
    """The outputs of which zeros would pass for many elements of the median case; a tiny case may have one."""
    names = dict.fromkeys(name for line in references for name in line.like_zero)
    parts = {name: statistics.median(line.like_zero.get(name, 0.0) for line in references) for name in names}
    return [
        f"truth: for {part:.0%} of {name}, zeros would pass: they are small on the scale that errors are measured on"
        for name, part in parts.items()
        if part > _MANY_LIKE_ZERO
    ]


def _broken_off(lines: Sequence[Line]) -> list[Line]:
    """What remains of a report before an invalid line. The end comes last, so an earlier one is not the end."""
    return [line for line in lines if not isinstance(line, End)]


def _begun(lines: Sequence[Line], ran: Ran, cases: Sequence[Case]) -> Begin:
    """The report's first line. Raises BaselineError for a failure that is not the candidate's doing."""
    tail, begin = _tail(ran), first(Begin, lines)
    if (none := first(NoTruth, lines)) is not None and begin is not None:
        where = f" (case {cases[none.index].label}, seed {begin.seed})"
        if none.who == "reference":
            kind = ReferenceFailed if none.replied else ReferenceStopped
            raise kind(
                f"The reference of {begin.task} failed: {none.what}{where}.", "Correct it; no kernel is to blame."
            )
        raise BaselineError(
            f"The baseline of {begin.task} cannot be its own reference: {none.what}{where}.",
            if_no_truth(none.what),
        )
    if ran.exit_code == _HARNESS_FAILED or begin is None:
        raise BaselineError(
            f"The harness failed before or beside the candidate: {tail or 'it printed nothing'}.",
            "Run `cudamaster doctor`; if it finds nothing, this is a defect of the harness.",
        )
    if any(isinstance(line, Check | Time) for line in lines):  # the candidate has run
        return begin
    for line in of(OfCase, lines):
        if (what := _failure_of_baseline(line)) is not None:
            raise BaselineError(
                f"The baseline fails on this device in case {cases[line.index].label}: {what} (seed {begin.seed}).",
                if_it_fails(begin.task),
            )
    return begin


def _failure_of_baseline(line: OfCase) -> str | None:
    if isinstance(line, Fault) and line.who == "baseline":
        return line.detail
    if isinstance(line, Timeout) and line.who == "baseline":
        return f"no end within {line.limit_s:g} s"
    return "wrong result" if isinstance(line, Reference) and not line.baseline_ok else None


def _overall(
    lines: Sequence[Line], ran: Ran, verdicts: Sequence[CaseVerdict], cases: Sequence[Case]
) -> tuple[Status, str, str]:
    failed = [v for v in verdicts if v.status not in (None, Status.CORRECT)]
    fault, timeout = first(Fault, lines), first(Timeout, lines)
    where = f" in case {verdicts[-1].label}" if verdicts else ""
    if timeout is not None or ran.expired:
        limit = f" ({timeout.limit_s:g} s)" if timeout is not None else ""
        whose = _WHOSE[timeout.who] if timeout is not None else ""
        return Status.TIMEOUT, f"stopped{where}: a call{whose} took longer than its limit{limit}", _tail(ran)
    if fault is not None:
        detail = f"{fault.error}{where}: {fault.detail}"
        if fault.gone:  # its last output says more than how it ended
            detail = f"{_fault_line(ran) or fault.detail}{where}"
        if fault.who != "candidate":
            detail = f"after the candidate ran, a call{_WHOSE[fault.who]} failed: {detail}"
        return Status.FAULT, detail, "\n".join(part for part in (detail, _tail(ran)) if part)
    if ran.signal is not None:
        return Status.FAULT, f"the process was killed by signal {ran.signal}{where}", _tail(ran)
    if first(End, lines) is None:
        reason = _fault_line(ran) or f"the process ended by itself with exit code {ran.exit_code}"
        return Status.FAULT, f"{reason}{where}", _tail(ran)
    if not all(line.baseline_ok for line in of(Reference, lines)):
        return Status.FAULT, "the baseline's result is wrong after the candidate ran: memory was overwritten", ""
    if failed:
        worst = next((v for v in failed if v.status is Status.FAULT), clearest_first(failed)[0])
        log = explain(verdicts, {case.label: case.values for case in cases})
        return worst.status or Status.WRONG, f"{worst.detail} (case {worst.label})", log
    return Status.CORRECT, f"{sum(v.skipped is None for v in verdicts)} cases right", ""


def _gap(lines: Sequence[Line], ran: Ran, by_index: Mapping[int, Sequence[Line]], cases: Sequence[Case]) -> str | None:
    """What is missing in a report without a fault: a candidate is right only if each case was checked."""
    if ran.exit_code != 0 or not all(end.ok for end in of(End, lines)):
        return f"the harness ended with exit code {ran.exit_code}, and no line of its report says why"
    wanted = Check if of(Check, lines) else Reference  # the baseline alone is not checked
    for i, case in enumerate(cases):
        if not any(isinstance(line, wanted | Skip) for line in by_index.get(i, ())):
            return f"case {case.label} was not checked"
    return None


def _case(case: Case, lines: Sequence[Line], doubted: Collection[str]) -> CaseVerdict:
    skip, checks, times = first(Skip, lines), of(Check, lines), first(Time, lines)
    bad = next((check for check in checks if not check.ok), None)
    shown = bad or (checks[-1] if checks else None)
    outputs = tuple(map(_output, shown.outputs)) if shown else ()
    status: Status | None = Status.CORRECT if checks else None
    detail = ""
    if bad is not None:
        status = Status.FAULT if bad.damage else Status.WRONG
        wrong = [
            f"{o.name}: {o.mismatches} of {o.elements} elements wrong, {o.pattern}" for o in outputs if o.mismatches
        ]
        when = " at a timed call" if bad.stage == "timed" else _when(checks)
        detail = (bad.damage or "; ".join(wrong)) + when
    timing = None
    if times is not None and bad is None and len(times.baseline_us) == len(times.candidate_us):
        timing = _timing(times)
        if unconfirmed := _unconfirmed(times, doubted):
            status, detail = Status.REJECTED, unconfirmed
    empty = sorted(times.empty_us) if times is not None else []
    return CaseVerdict(
        label=case.label,
        sweep=case.sweep,
        weight=case.weight,
        status=status,
        skipped=None if skip is None else skip.reason,
        detail=detail,
        outputs=outputs,
        timing=timing,
        speed=None if timing is None else compare(timing.baseline_us, timing.candidate_us),
        empty_us=empty[len(empty) // 2] if empty else None,
    )


def _timing(times: Time) -> Timing | None:
    """The calls' times, unless there are none or one of them is not a time."""
    if not all(min(calls, default=0) > 0 for calls in (times.baseline_us, times.candidate_us)):
        return None
    whole = tuple(times.baseline_us), tuple(times.candidate_us)
    return Timing(*whole, tuple(times.baseline_device_us), tuple(times.candidate_device_us))


def _unconfirmed(times: Time, doubted: Collection[str]) -> str | None:
    """The error if a process reports that calls took less time than the harness saw (mskb/turns.h)."""
    said = {"candidate": times.candidate_us, "rival": times.baseline_us}
    for who, calls in said.items():
        if who in doubted and not all(said_us > 0 for said_us in calls):
            return f"the process{_WHOSE[who] or ' of the candidate'} says that a call took no time"
    contradicted = {"candidate": times.contradicted, "rival": times.rival_contradicted}
    ratios = {"candidate": times.overstated, "rival": times.rival_overstated}
    for who, calls in said.items():
        if contradicted[who] and who in doubted and calls:
            whose = _WHOSE[who] or " of the candidate"
            return (
                f"the process{whose} says that a call took {statistics.median(calls):.1f} µs, "
                f"and is {ratios[who]:.3g} times as fast by its own clock as by the harness's"
            )
    return None


def _when(checks: Sequence[Check]) -> str:
    """Which of the calls of a case were wrong, if not all were. Each call has inputs of its own."""
    wrong = [number for number, check in enumerate(checks, 1) if not check.ok]
    if len(wrong) == len(checks):
        return ""
    return f" (in call {', '.join(map(str, wrong))} of {len(checks)}, each on other inputs)"


def _output(output: Output) -> OutputCheck:
    return OutputCheck(
        name=output.name,
        elements=output.elements,
        oracle_elements=output.oracle_elements,
        mismatches=output.mismatches,
        worst_error=output.worst_error,
        baseline_worst_error=output.baseline_worst_error,
        bound=output.bound,
        pattern=output.pattern,
        width=output.width or None,
        first=tuple(Mismatch(m.element, m.expected, m.got, m.allowed) for m in output.first),
    )


def _seconds(lines: Sequence[Line], ran: Ran) -> Seconds:
    """What the time since the candidate was there went into.

    `start` is until its process is up, and after the last case; `timing` is the timed calls; `check` is the rest.
    """
    timing = sum(line.t - before.t for before, line in itertools.pairwise(lines) if isinstance(line, Time))
    isolation, end = first(Isolation, lines), first(End, lines)
    up = isolation.t if isolation is not None else 0.0
    ready = min(max(0.0, up - ran.ahead), ran.seconds)
    ended = end.t - ran.ahead if end is not None else ran.seconds
    start = ready + max(0.0, ran.seconds - ended)
    check = max(0.0, ran.seconds - start - timing)
    return Seconds(check=check, timing=timing, start=start, waiting=ran.waited)


def _fault_line(ran: Ran) -> str | None:
    """The line of the output that names the fault, if a checker or the CPU device wrote one."""
    marks = ("ERROR: AddressSanitizer", "cuda device fault")
    log = readable(ran.stderr)
    line = next((line.strip() for line in log.splitlines() if any(mark in line for mark in marks)), None)
    found = summary(ran.stderr)
    return f"{line.removesuffix(', see below')}: {found}" if line and found else line


def _tail(ran: Ran) -> str:
    return readable(ran.stderr)[-_TAIL_CHARACTERS:].strip()
