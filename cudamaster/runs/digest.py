"""Condenses a run for a reader: differences, the part of a log that matters, medians, sums."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from cudamaster.core.numerals import plain
from cudamaster.core.records import to_json
from cudamaster.core.values import CaseVerdict, Findings, Verdict
from cudamaster.models.metered import RoleUsage
from cudamaster.runs.record import Settings
from cudamaster.runs.summary import (
    AttemptSummary,
    CallSummary,
    MetricSummary,
    ProfileSummary,
    RunSummary,
)

LOG_LINES = 12
_ALONE = " alone"  # at the end of the name of a part (modelling.model.breakdown)


def difference(before: str, after: str) -> str:
    """Unified diff of two texts, without the lines that name files; empty if nothing changed."""
    # Not splitlines, which also splits at form feeds and the like.
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="")
    return "\n".join(list(lines)[2:])


def main_part(log: str) -> str:
    """At most LOG_LINES of a log: from the first error, or from the start if it names none."""
    lines = log.strip().splitlines()
    start = next((i for i, line in enumerate(lines) if re.search(r"\berror\b", line, re.IGNORECASE)), 0)
    return "\n".join(lines[start : start + LOG_LINES]).rstrip()


def breakdown_lines(breakdown: Mapping[str, float]) -> list[str]:
    """A modelled call on two lines: its sum, then its parts, which overlap and so add up to more."""
    alone = {name.removesuffix(_ALONE): us for name, us in breakdown.items() if name.endswith(_ALONE)}
    whole, *rest = [f"{name} {plain(us)}" for name, us in breakdown.items() if not name.endswith(_ALONE)] or [""]
    parts = ", ".join(f"{name} {plain(us)}" for name, us in alone.items())
    summed = f"modelled µs: {whole}" + (f" = {' + '.join(rest)}" if rest else "")
    return [summed] * bool(whole) + [f"in kernels, each part alone: {parts}"] * bool(parts)


def json_of(run: RunSummary) -> Any:
    """A run as `show --json` prints it: verdicts with medians in place of samples."""
    printed = to_json(run)
    printed["baseline_judgement"] = _verdict(run.baseline_verdict)
    del printed["baseline_verdict"]
    for done, of_round in zip(run.rounds, printed["rounds"], strict=True):
        for attempt, of_attempt in zip(done.attempts, of_round["attempts"], strict=True):
            of_attempt["judgement"] = _verdict(attempt.verdict)
            del of_attempt["verdict"]
    return printed


def _verdict(verdict: Verdict | None) -> Any:
    if verdict is None:
        return None
    kept = ("status", "detail", "score", "speed", "emulated", "complete", "log", "notes", "sanitizers", "seconds")
    same = {name: getattr(verdict, name) for name in (*kept, "modelled")}
    return to_json({**same, "telling": main_part(verdict.log), "cases": [_case(case) for case in verdict.cases]})


def _case(case: CaseVerdict) -> dict[str, object]:
    kept = ("label", "sweep", "weight", "status", "skipped", "detail", "speed", "of_bound", "not_modelled")
    baseline_us, candidate_us = case.times_us or (None, None)
    return {
        **{name: getattr(case, name) for name in kept},
        "baseline_us": baseline_us,
        "candidate_us": candidate_us,
        "of_floor": case.over_floor,
        "bound": case.modelled and case.modelled.bound,
    }


def seconds(attempt: AttemptSummary) -> float:
    """How long an attempt was built and run; 0 if its verdict already existed."""
    return 0.0 if attempt.verdict is None or attempt.judged_before else attempt.verdict.seconds.total


def profile(before: Findings | None, after: Findings) -> ProfileSummary:
    """The profile of a new best beside that of the best before it, with every metric that either of them shows."""
    names = dict.fromkeys([*(before.metrics if before else ()), *after.metrics])
    units = {**(before.units if before else {}), **after.units}
    return ProfileSummary(
        note=after.note,
        kernel=after.kernel,
        time_share=after.time_share,
        bottleneck=after.bottleneck,
        bottleneck_before=before.bottleneck if before else None,
        metrics=tuple(_metric(name, _value(before, name), _value(after, name), units.get(name)) for name in names),
        modelled=after.modelled,
        breakdown=after.breakdown,
    )


def _value(findings: Findings | None, name: str) -> float | None:
    return None if findings is None else findings.measured.get(name, findings.metrics.get(name))


def _metric(name: str, before: float | None, after: float | None, unit: str | None) -> MetricSummary:
    relative = (after - before) / before if before and after is not None else None
    return MetricSummary(name, before, after, relative, unit)


def flags(before: str, after: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words that were added to a command, and those that were removed."""
    old, new = _words(before), _words(after)
    return tuple(word for word in new if word not in old), tuple(word for word in old if word not in new)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a model may leave a quote open
        return command.split()


def usage(calls: Sequence[CallSummary]) -> RoleUsage:
    """The sum over calls. A sum with an unknown part is None, as everywhere."""
    prompt = [call.usage.prompt_tokens for call in calls]
    completion = [call.usage.completion_tokens for call in calls]
    dollars = [call.usage.dollars for call in calls]
    cached = [call.usage.cached_tokens for call in calls]
    return RoleUsage(
        calls=len(calls),
        prompt_tokens=None if None in prompt else sum(n for n in prompt if n is not None),
        completion_tokens=None if None in completion else sum(n for n in completion if n is not None),
        dollars=None if None in dollars else sum(n for n in dollars if n is not None),
        seconds=sum(call.usage.seconds for call in calls),
        cached_tokens=None if None in cached else sum(n for n in cached if n is not None),
    )


def of_them_kept(usage: RoleUsage) -> str:
    """How many of the prompt's tokens the providers had cached from earlier calls; empty if none or unknown."""
    return f" ({usage.cached_tokens} cached)" if usage.cached_tokens else ""


def origin(settings: Settings) -> str | None:
    """The record that a replay takes its answers from; None for a run that is not a replay."""
    replay = settings.replay
    if replay is None:
        return None
    return f"{'replies' if replay.models_only else 'replies and verdicts'} replayed from {replay.record}"


def sampling(settings: Settings) -> str | None:
    """The sampling options of the models; None if they were left to the provider."""
    chosen = settings.sampling
    parts = [] if chosen.temperature is None else [f"temperature {chosen.temperature:g}"]
    parts += [] if chosen.reasoning_effort is None else [f"reasoning effort {chosen.reasoning_effort}"]
    return ", ".join(parts) or None


def without_secrets(url: str | None) -> str | None:
    """Scheme, host, port and path of a server's address; the rest may contain names, passwords and keys."""
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        where = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an address that cannot be read"
    return f"{parts.scheme}://{where}{port}{parts.path}" if where else "an address that cannot be read"
