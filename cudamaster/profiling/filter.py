"""The hardware analysis filter: the class of a kernel, and the few metrics that matter for it (paper, table 2).

    compute bound            compute > limit
    memory latency bound     compute, DRAM and memory <= their limits
    memory bandwidth bound   compute <= its limit, DRAM or memory > its limit

The paper leaves open what a throughput at the limit is: here only what is strictly greater is high. A throughput that
the profile lacks is unknown, never low: the class is named where the others decide it without the missing one, and is
None otherwise. Of a wrapper with several kernels the one that takes most of the time is classified; the note names
the share of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cudamaster.core.values import Bottleneck, Findings, KernelProfile, KernelReport, Profile
from cudamaster.profiling.metric_sets import MetricSet, resolve
from cudamaster.profiling.thresholds import DURATION, Thresholds


def classify(metrics: Mapping[str, float], thresholds: Thresholds) -> Bottleneck | None:
    """Class of a kernel from its throughputs, keyed by Nsight Compute's names; None if they are not enough."""
    axes, limits = thresholds.axes, thresholds.thresholds
    compute = _high(metrics, thresholds, axes.compute, limits.compute)
    memory = (
        _high(metrics, thresholds, axes.dram, limits.dram),
        _high(metrics, thresholds, axes.memory, limits.memory),
    )
    if compute:
        return Bottleneck.COMPUTE
    if compute is None:
        return None  # everything else presumes that it is low
    if any(memory):
        return Bottleneck.BANDWIDTH
    return None if None in memory else Bottleneck.LATENCY


def findings(
    profile: Profile, thresholds: Thresholds, *, full: bool = False, others: Sequence[Profile] = ()
) -> Findings:
    """What the filter keeps of a profile, or with `full` all that was measured. Metrics have the paper's names.

    With `full` every kernel is reported, at the profile's case and at those of `others`, profiles of other cases: that
    is what the paper's full profile hands the Planner (appendix B.1: a report for each size).
    """
    if (missing := _nothing_in(profile)) is not None:
        return no_profile(profile.candidate, missing)
    main, time_share, note = _dominating(profile)
    kind = classify(main.metrics, thresholds)
    if kind is None:
        return no_profile(profile.candidate, f"{note} Its class cannot be told: a throughput is missing.")
    names = [name for name in thresholds.metrics if name != DURATION] if full else thresholds.kept[kind]
    kept = {
        name: main.metrics[metric.ncu] for name in names if (metric := thresholds.metrics[name]).ncu in main.metrics
    }
    if absent := [name for name in names if name not in kept]:
        note += _absent(profile, absent)
    return Findings(
        candidate=profile.candidate,
        note=note,
        bottleneck=kind,
        kernel=main.kernel,
        time_share=time_share,
        metrics=kept,
        measured={
            name: main.metrics[metric.ncu] for name, metric in thresholds.metrics.items() if metric.ncu in main.metrics
        },
        thresholds=thresholds.described,
        units={name: thresholds.metrics[name].unit for name in kept},
        meanings={} if full else {name: thresholds.metrics[name].meaning for name in kept},
        reports=tuple(_reports((*others, profile), thresholds, names)) if full else (),
        modelled=profile.modelled,
        breakdown=profile.breakdown,
    )


def findings_of_set(profile: Profile, thresholds: Thresholds, chosen: MetricSet) -> Findings:
    """What a profile has of a metric set, whatever the class of its kernel, by Nsight Compute's own names.

    The class is named where the throughputs for it were measured too.
    """
    if (missing := _nothing_in(profile)) is not None:
        return no_profile(profile.candidate, missing)
    main, time_share, note = _dominating(profile)
    found = resolve(chosen.metrics, main.metrics)
    if found.absent:
        note += _absent(profile, found.absent)
    return Findings(
        candidate=profile.candidate,
        note=note,
        bottleneck=classify(main.metrics, thresholds),
        kernel=main.kernel,
        time_share=time_share,
        metrics={name: main.metrics[name] for name in found.names.values()},
        measured={
            name: main.metrics[metric.ncu] for name, metric in thresholds.metrics.items() if metric.ncu in main.metrics
        },
        thresholds=thresholds.described,
        meanings={name: chosen.meanings[name] for name in found.names.values() if name in chosen.meanings},
        modelled=profile.modelled,
        breakdown=profile.breakdown,
    )


def _absent(profile: Profile, names: Sequence[str]) -> str:
    """What was asked for and is not there, and whose fault that is."""
    return f" {'This GPU' if profile.modelled is None else 'The model'} does not give {', '.join(names)}."


def _nothing_in(profile: Profile) -> str | None:
    """Why a profile says nothing; None if it does say something."""
    if not profile.kernels:
        return "the candidate launched no kernel"
    if not sum(kernel.duration_us for kernel in profile.kernels) > 0:
        return "the profiled kernels took no measurable time"
    return None


def _dominating(profile: Profile) -> tuple[KernelProfile, float, str]:
    """The kernel that takes most of the time, its share of it, and a note that names the share of each."""
    total_us = sum(kernel.duration_us for kernel in profile.kernels)
    main = max(profile.kernels, key=lambda kernel: kernel.duration_us)
    shares = ", ".join(
        f"{kernel.kernel} {100 * kernel.duration_us / total_us:.0f} %"
        + (f" in {kernel.launches} launches" if kernel.launches > 1 else "")
        for kernel in sorted(profile.kernels, key=lambda kernel: -kernel.duration_us)
    )
    note = f"{profile.source}, case {profile.case}: {total_us:.4g} µs in kernels per call ({shares})."
    return main, main.duration_us / total_us, note


def _reports(profiles: Sequence[Profile], thresholds: Thresholds, names: Sequence[str]) -> Iterator[KernelReport]:
    for profile in profiles:
        for kernel in profile.kernels:
            seen = {name: kernel.metrics.get(thresholds.metrics[name].ncu) for name in names}
            yield KernelReport(
                case=profile.case,
                kernel=kernel.kernel,
                launches=kernel.launches,
                duration_us=kernel.duration_us,
                metrics={name: value for name, value in seen.items() if value is not None},
            )


def no_profile(candidate_id: str, reason: str) -> Findings:
    """Findings of a candidate that has no profile."""
    return Findings(candidate=candidate_id, note=reason)


def _high(metrics: Mapping[str, float], thresholds: Thresholds, name: str, limit: float) -> bool | None:
    """Whether a throughput is above its limit; None where it is missing."""
    value = metrics.get(thresholds.metrics[name].ncu)
    return None if value is None else value > limit
