"""Findings of a candidate if the GPU's counters cannot be read: what needs no counters, marked as such.

    time on the device against the floor     measured, from the verdict
    launches and theoretical occupancy       asked of the runtime, and calculated (launches.py)
    registers, spills, stack                 from the compile log (ptxas.py)
    instruction mix                          from the machine code, static (sass.py)

There is no class, since only counters give one. What is missing is left out and named.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cudamaster.core.values import CaseVerdict, Findings, Verdict
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.kernel_names import architecture_for, is_of_harness, plain_name
from cudamaster.devices.ncu import NoProfile
from cudamaster.devices.protocol import Ran
from cudamaster.profiling import launches, ptxas, sass
from cudamaster.profiling.launches import CallLaunches, Launch, NoLaunches
from cudamaster.profiling.ptxas import Usage
from cudamaster.profiling.sass import InstructionMix, NoMix

_Built = TypeVar("_Built", Usage, InstructionMix)

_SHOWN = 4  # kernels, those that launch the most threads first


@dataclass(frozen=True)
class Sources:
    """Sources of findings, or why one is missing. `usages` and `mixes` may hold kernels of several architectures."""

    launches: CallLaunches | NoLaunches
    mixes: tuple[InstructionMix, ...] | NoMix
    usages: tuple[Usage, ...]
    compute_capability: tuple[int, int] | None


@dataclass(frozen=True)
class _Kernel:
    """What is known of one kernel: its launches in a call, the one of the most threads first; none if not known."""

    name: str
    launches: tuple[Launch, ...] = ()
    usage: Usage | None = None
    mix: InstructionMix | None = None


def look(
    run: Callable[[JudgeRequest, Path, float], Ran],
    judge: JudgeRequest,
    worker: Path,
    *,
    case: str,
    compile_log: str,
    compute_capability: str | None,
) -> Sources:
    """Ask and disassemble a candidate's worker. `judge` names the judge and the baseline's worker, `run` is the
    device's, `compute_capability` the GPU's, e.g. "9.0"."""
    return Sources(
        launches=launches.record(run, judge, worker, case=case),
        mixes=sass.disassembled(worker),
        usages=ptxas.parse(compile_log),
        compute_capability=_capability(compute_capability),
    )


def usages(compile_log: str, compute_capability: str | None) -> Mapping[str, Usage]:
    """What ptxas says of each kernel that the GPU runs, by plain name: profiles know kernels by that alone.

    Of a template's kernels it is the one that spills most. Empty if the log or the GPU does not say.
    """
    fitting = _fitting(ptxas.parse(compile_log), _capability(compute_capability))
    return {plain_name(each.symbol): each for each in sorted(fitting.values(), key=_spilled)}


def _spilled(usage: Usage) -> int:
    return (usage.spill_store_bytes or 0) + (usage.spill_load_bytes or 0)


def _capability(named: str | None) -> tuple[int, int] | None:
    """Compute capability of its name, e.g. "9.0"."""
    major, _, minor = (named or "").partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


def findings(verdict: Verdict, case: CaseVerdict, missing: NoProfile, sources: Sources) -> Findings:
    """The findings of a candidate at one of its timed cases; `missing` says why its counters could not be read."""
    kernels = _kernels(sources)
    metrics, notes = dict(_times(case)), list(_notes(sources, kernels))
    for kernel in kernels[:_SHOWN]:
        before = f"{kernel.name}: " if len(kernels) > 1 else ""
        metrics |= {f"{before}{name}": value for name, value in _figures(kernel).items()}
    if len(kernels) > _SHOWN:
        notes.append(f"{len(kernels) - _SHOWN} more kernels are left out.")
    return Findings(
        candidate=verdict.candidate,
        note=f"{missing.reason}. The figures here are calculated from the build and the launches, not measured by "
        f"counters; times alone are measured, at {case.label}. " + " ".join(notes),
        kernel=plain_name(kernels[0].name) if len(kernels) == 1 else None,
        metrics=metrics,
    )


def _times(case: CaseVerdict) -> Iterator[tuple[str, float]]:
    """Times of the case. The floor holds an empty launch, which the time on the device does not."""
    if case.timing is None:
        return
    yield "time of a call (µs)", statistics.median(case.timing.candidate_us)
    if not case.timing.candidate_device_us:
        return
    device_us = statistics.median(case.timing.candidate_device_us)
    yield "time on the device (µs)", device_us
    if case.floor_us is not None and case.empty_us is not None and (floor_us := case.floor_us - case.empty_us) > 0:
        yield "floor of the time on the device (µs)", floor_us
        yield "time on the device over its floor", device_us / floor_us


def _figures(kernel: _Kernel) -> dict[str, float]:
    """What is known of a kernel. Of what both ptxas and the runtime say, the runtime's counts: it has the last word."""
    figures = dict(_of_launches(kernel.launches))
    for name, value in _of_build(kernel):
        figures.setdefault(name, value)
    return figures


def _of_build(kernel: _Kernel) -> Iterator[tuple[str, float]]:
    if (usage := kernel.usage) is not None:
        named = {
            "registers per thread": usage.registers,
            "static shared memory per block (bytes)": usage.shared_bytes,
            "stack per thread (bytes)": usage.stack_bytes,
            "spill stores (bytes)": usage.spill_store_bytes,
            "spill loads (bytes)": usage.spill_load_bytes,
        }
        yield from ((name, value) for name, value in named.items() if value is not None)
    if (mix := kernel.mix) is not None:
        yield "instructions in the code", mix.total
        yield from ((f"instructions: {kind}", mix.counts[kind]) for kind in sass.InstructionClass if kind in mix.counts)


def _of_launches(shapes: Sequence[Launch]) -> Iterator[tuple[str, float]]:
    """Figures of the largest launch, and how many there are of all shapes."""
    if not shapes:
        return
    launch = shapes[0]
    yield "launches per call", sum(shape.count for shape in shapes)
    yield "blocks per launch", launch.blocks
    yield "threads per block", launch.threads
    yield "dynamic shared memory per block (bytes)", launch.dynamic_shared_bytes
    named = {
        "registers per thread": launch.registers,
        "static shared memory per block (bytes)": launch.static_shared_bytes,
        "local memory per thread (bytes)": launch.local_bytes,
    }
    yield from ((name, value) for name, value in named.items() if value is not None)
    if (held := launches.occupancy(launch)) is not None:
        yield "blocks that an SM holds", held.blocks
        yield "theoretical occupancy (%)", 100 * held.share
        if held.waves is not None:
            yield "waves of blocks per launch", held.waves


def _notes(sources: Sources, kernels: Sequence[_Kernel]) -> Iterator[str]:
    """Sentences on what limits the kernels, and on what is not known."""
    for kernel in kernels[:_SHOWN]:
        if not kernel.launches:
            continue
        launch = kernel.launches[0]
        if len(kernel.launches) > 1:
            yield f"{kernel.name} is launched in {len(kernel.launches)} shapes, the largest is shown."
        if (held := launches.occupancy(launch)) is None:
            yield f"The occupancy of {kernel.name} is not known."
            continue
        yield f"The occupancy of {kernel.name} is limited by {' and '.join(held.limited_by)}."
        if held.disagrees:
            yield f"The runtime says that an SM holds {held.blocks} of its blocks, not {held.calculated_blocks}."
    if isinstance(sources.launches, NoLaunches):
        yield f"No launches: {sources.launches.reason}."
    elif (listed := sum(launch.count for launch in sources.launches.launches)) < sources.launches.total:
        yield f"Of {sources.launches.total} launches only {listed} are told."
    if isinstance(sources.mixes, NoMix):
        yield f"No instruction mix: {sources.mixes.reason}."
    elif any(kernel.mix is not None for kernel in kernels):
        yield "Instructions are those in the code, each counted once, in loops too; a class without any is left out."
    else:
        yield "No instruction mix: there is no machine code for this GPU."
    if not any(kernel.usage is not None for kernel in kernels):
        yield "No spills: the compile log does not tell them for this GPU."


def _kernels(sources: Sources) -> list[_Kernel]:
    """The kernels of the call, those that launch the most threads first; those of the build where that is not known."""
    usages = _fitting(sources.usages, sources.compute_capability)
    mixes = {} if isinstance(sources.mixes, NoMix) else _fitting(sources.mixes, sources.compute_capability)
    launched: dict[str | None, list[Launch]] = {}
    if isinstance(sources.launches, CallLaunches):
        for launch in sources.launches.launches:
            launched.setdefault(launch.symbol, []).append(launch)
    symbols = list(launched) or [symbol for symbol in usages or mixes if not is_of_harness(symbol)]
    names = [plain_name(symbol or "a kernel without a name") for symbol in symbols]
    kernels = [
        _Kernel(
            # Of a template there may be several.
            name=name if names.count(name) == 1 else symbol or name,
            launches=tuple(sorted(launched.get(symbol, []), key=_threads, reverse=True)),
            usage=usages.get(symbol or ""),
            mix=mixes.get(symbol or ""),
        )
        for name, symbol in zip(names, symbols, strict=True)
    ]
    return sorted(kernels, key=lambda kernel: -sum(_threads(launch) * launch.count for launch in kernel.launches))


def _threads(launch: Launch) -> int:
    return launch.blocks * launch.threads


def _fitting(found: Sequence[_Built], capability: tuple[int, int] | None) -> Mapping[str, _Built]:
    """By symbol, what was built for the architecture that the GPU runs; nothing where that is not known."""
    runs = architecture_for(capability, {each.architecture for each in found}) if capability else None
    return {each.symbol: each for each in found if each.architecture == runs}
