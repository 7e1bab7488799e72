"""Results as an agent gets them: short, marked where no GPU measured, with what is wrong and what to do next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cudamaster.agents.prompts import clip
from cudamaster.core.errors import one_line
from cudamaster.core.speed import Change
from cudamaster.core.values import CaseVerdict, Findings, Status, Verdict
from cudamaster.judging.failure_log import clearest_first
from cudamaster.library.faults import Sanitized
from cudamaster.library.profiles import Profiled, Profiles
from cudamaster.library.verdicts import Compared

_LINE, _NOTE, _LOG = 280, 160, 800  # characters
_SLOWEST, _NOTES, _METRICS, _KERNELS, _PARTS = 3, 2, 8, 3, 6

_NEXT = {
    Status.WRONG: "Mend what `log` shows: it names the sizes that fail and the first wrong elements.",
    Status.FAULT: "Mend the fault in `log`: an access out of bounds, a race, a CUDA error, memory not released.",
    Status.TIMEOUT: "It runs far longer than the baseline, or for ever: look for a loop or a barrier without end.",
    Status.COMPILE_ERROR: "Mend the errors in `log`; line numbers are those of your text.",
    Status.REJECTED: "It breaks the rules, and nothing ran: `detail` says what to write instead; all are in read_card.",
    Status.UNSUPPORTED: "This device cannot execute it, which says nothing about the kernel. Write it another way, or "
    "ask for a server on a machine with a GPU.",
}


def of_verdict(verdict: Verdict, *, timed: bool, kernel: str | None = None) -> dict[str, Any]:
    """A verdict: its status, P with its interval, the clearest failing case, and the cases that gain least."""
    said: dict[str, Any] = {
        "kernel": kernel or verdict.candidate,
        "status": verdict.status.value,
        "detail": one_line(verdict.detail, _LINE),
        **_speed(verdict),
    }
    failed = clearest_first([case for case in verdict.cases if case.status not in (None, Status.CORRECT)])
    if failed and failed[0].label not in verdict.detail:
        said["failing_case"] = one_line(f"{failed[0].label}: {failed[0].detail}", _LINE)
    if not verdict.correct and verdict.log and verdict.log != verdict.detail:
        said["log"] = clip(verdict.log, _LOG)
    if timed and verdict.correct:
        said["least_gain"] = [_case(case) for case in _slowest(verdict.cases)]
        if verdict.lacking:
            said["without_time"] = one_line("; ".join(verdict.lacking), _LINE)
    if verdict.sanitizers:
        said["sanitizers"] = {tool: one_line(result, _LINE) for tool, result in verdict.sanitizers.items()}
    notes = [one_line(note, _NOTE) for note in verdict.notes[:_NOTES]]
    return {**said, "notes": notes} if notes else said


def of_comparison(compared: Compared, first: str, second: str) -> dict[str, Any]:
    """Two verdicts, and how fast the second kernel is against the first."""
    said: dict[str, Any] = {}
    for place, name, verdict in (("first", first, compared.first), ("second", second, compared.second)):
        said[place] = {"kernel": name, "status": verdict.status.value, "detail": one_line(verdict.detail, _LINE)}
        if not verdict.correct and verdict.log:
            said[place]["log"] = clip(verdict.log, _LOG // 2)
    said["change"] = compared.change.value if compared.correct else "not timed"
    if compared.correct and compared.speed is not None:
        said |= {
            "speedup": rounded(compared.speed.speedup),
            "interval": _interval(compared.second),
            "times": _times(compared.second),
        }
        said["least_gain"] = [_case(case) for case in _slowest(compared.second.cases)]
    return said


def of_profiles(profiles: Profiles) -> dict[str, Any]:
    """What bounds each kernel in each case, how it was launched, and the metrics that matter."""
    said: dict[str, Any] = {"profiles": [_profile(one) for one in profiles.profiles[:4]]}
    if (more := len(profiles.profiles) - 4) > 0:
        said["left_out"] = f"{more} more, in the whole result"
    if profiles.verdict is not None and not profiles.verdict.correct:
        said |= of_verdict(profiles.verdict, timed=False)
    return said


def of_faults(said: Sanitized) -> dict[str, Any]:
    """What each tool found, with the lines of the kernel."""
    found = [report.explain(said.code) for report in said.reports if report.findings or report.warnings]
    return {
        "kernel": said.candidate,
        "clean": said.clean,
        "tools": {report.tool.value: one_line(report.summary, _LINE) for report in said.reports},
        **({"log": clip("\n".join(found), _LOG)} if found else {}),
    }


def next_step(verdict: Verdict, *, timed: bool, best: bool) -> str:
    """What to do after a verdict."""
    if not verdict.correct:
        return _NEXT[verdict.status]
    if not timed:
        return "It is right. Call evaluate without check_only to time it."
    if verdict.score is None:
        return "It is right, but some sizes have no time here: `without_time` names them. Only a GPU can time it."
    if best and (verdict.speed is None or verdict.speed.change is not Change.FASTER):
        return "It has the highest P so far and is kept, but is not surely faster. profile says what bounds it."
    if best:
        return "This is the best so far, and it is kept. profile says what bounds it."
    return "It is right and kept, but not the best so far. profile says what bounds it; compare it with `best`."


def _speed(verdict: Verdict) -> dict[str, Any]:
    if verdict.score is None or verdict.speed is None:
        return {}
    chance = verdict.speed.chance
    return {
        "P": rounded(verdict.score),
        "interval": _interval(verdict),
        **({} if chance is None else {"chance_of_being_faster": rounded(chance)}),
        "change": verdict.speed.change.value,
        "times": _times(verdict),
    }


def _times(verdict: Verdict) -> str:
    """Where the times are from."""
    if verdict.modelled is not None:
        return f"modelled: {verdict.modelled.described}"
    return "emulated: they say nothing about a GPU" if verdict.emulated else "measured"


def _interval(verdict: Verdict) -> list[float | None]:
    assert verdict.speed is not None
    return [rounded(verdict.speed.interval.low), rounded(verdict.speed.interval.high)]


def _slowest(cases: Sequence[CaseVerdict]) -> list[CaseVerdict]:
    timed = [case for case in cases if case.speed is not None and case.times_us is not None]
    return sorted(timed, key=lambda case: case.speed.speedup if case.speed else 0.0)[:_SLOWEST]


def _case(case: CaseVerdict) -> dict[str, Any]:
    assert case.times_us is not None
    assert case.speed is not None
    said: dict[str, Any] = {
        "case": one_line(case.label, 80),
        "speedup": rounded(case.speed.speedup),
        "baseline_us": rounded(case.times_us[0]),
        "kernel_us": rounded(case.times_us[1]),
    }
    if case.floor_us:
        said["least_possible_us"] = rounded(case.floor_us)
    return {**said, "bound_by": case.modelled.bound} if case.modelled is not None else said


def _profile(one: Profiled) -> dict[str, Any]:
    said: dict[str, Any] = {"who": one.who, "case": one_line(one.case, 80)}
    if one.findings is not None:
        said |= _findings(one.findings)
    if one.not_timed is not None:
        said["not_timed"] = one_line(one.not_timed, _LINE)
    kernels = getattr(one.profile, "kernels", ())
    launches = one.launches or ()
    shown = []
    for kernel, launch in list(zip(kernels, launches, strict=False))[:_KERNELS]:
        sizes = {
            "us": rounded(kernel.duration_us), "blocks": launch.blocks, "threads": launch.threads,
            "registers": launch.registers, "occupancy_%": launch.achieved_occupancy,
            "limited_by": ", ".join(launch.limited_by),
        }  # fmt: skip
        kept = {name: rounded(value) for name, value in sizes.items() if value not in (None, "")}
        shown.append({"kernel": one_line(kernel.kernel, 60), **kept})
    return {**said, "kernels": shown} if shown else said


def _findings(findings: Findings) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if findings.bottleneck is not None:
        said["bound"] = findings.bottleneck.value
    if findings.modelled is not None:
        said["times"] = f"modelled: {findings.modelled.described}"
    elif findings.note:
        said["note"] = one_line(findings.note, _LINE)
    metrics = list(findings.metrics.items())[:_METRICS]
    said["metrics"] = {name + _unit(findings, name): rounded(value) for name, value in metrics}
    if findings.breakdown:
        parts = list(findings.breakdown.items())[:_PARTS]
        said["us_of_a_call"] = {name: rounded(value) for name, value in parts}
    return said


def _unit(findings: Findings, name: str) -> str:
    return f" [{findings.units[name]}]" if findings.units.get(name) else ""


def rounded(value: Any) -> Any:
    """Four significant digits; None for what is no finite number, which JSON does not have."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.4g}") if math.isfinite(value) else None
