"""Nsight Compute: the command line that profiles a candidate's launches, and the reading of what it writes.

The profiled program is the candidate's worker, asked by the judge: it warms up, and brackets a few calls of the
candidate by cudaProfilerStart and cudaProfilerStop, with the L2 cache flushed before each call. Collection is off
at first, so no other launch is seen: what is launched in between is the candidate's, whatever its name. It cannot move
the brackets, since the guards refuse those two functions.

The device that holds the GPU runs it, and clocks are left as they are.
"""

from __future__ import annotations

import csv
import math
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cudamaster.core.values import KernelProfile, Profile
from cudamaster.devices import toolkit
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.kernel_names import printed_name
from cudamaster.devices.protocol import Ran

SOURCE = "Nsight Compute"
DURATION = "gpu__time_duration.sum"
NOT_INSTALLED = (
    "Nsight Compute (ncu) is not installed; it comes with the CUDA toolkit. Put it on the PATH, or set CUDAMASTER_NCU"
)

_MICROSECONDS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3,
                 "s": 1e6, "second": 1e6}  # fmt: skip
# The profiler saves and restores what a kernel writes, which has to be the worker's own, and starts processes.
_WORKER_OPTIONS = ("--exact", "--unconfined")
LIMIT_S = 120.0  # of a profile
_PERMISSION = "ERR_NVGPUCTRPERM"
_CUT_OFF = "what Nsight Compute wrote is cut off or damaged"  # half a number looks like another number


@dataclass(frozen=True)
class NoProfile:
    """Why there is no profile: a clause that names the cause and, where there is one, the fix.

    `of_machine` is true if the cause is the machine and not this candidate: no candidate has a profile here.
    """

    reason: str
    of_machine: bool = False


def find_ncu() -> Path | None:
    """The ncu of $CUDAMASTER_NCU, the PATH or a toolkit; None when there is none. No package has one."""
    return toolkit.find("ncu", "CUDAMASTER_NCU")


def command(ncu: Path, metrics: Collection[str] | None, program: Sequence[str], log: Path) -> list[str]:
    """The command that profiles `program`, a worker with its options; the tables go to the file `log`.

    Without `metrics` all sections of Nsight Compute are collected.

    The caches are flushed before every replay of a kernel, which is Nsight Compute's default: a kernel finds the
    L2 cache as cold as the harness's timing does, but also when an earlier kernel of the call has filled it.
    """
    return [
        str(ncu), "--log-file", str(log), "--csv", "--page", "raw", "--print-units", "base",
        "--print-kernel-base", "function", "--clock-control", "none", "--profile-from-start", "off",
        *(["--set", "full"] if metrics is None else ["--metrics", ",".join(metrics)]), *program,
    ]  # fmt: skip


def profile(
    run: Callable[[JudgeRequest, Path, float], Ran],
    judge: JudgeRequest,
    worker: Path,
    *,
    candidate: str,
    case: str,
    metrics: Collection[str] | None,
    calls: int = 1,
    limit_s: float = LIMIT_S,
) -> Profile | NoProfile:
    """Profile `calls` calls of a candidate's worker at one case; `judge` names the judge and the baseline's worker.

    `run` is the device's. A call takes many times as long here, since every launch is replayed, so only the limit of
    the whole run applies.
    """
    ncu = find_ncu()
    if ncu is None:
        return NoProfile(NOT_INSTALLED, of_machine=True)
    with tempfile.TemporaryDirectory(prefix="cudamaster-") as folder:
        log = Path(folder) / "ncu.csv"
        profiled = command(ncu, metrics, [str(worker), *_WORKER_OPTIONS], log)
        asked = replace(
            judge,
            candidate=tuple(profiled),
            cases="none",
            labels=(case,),
            profiled_calls=calls,
            call_limit_s=LIMIT_S,
        )
        ran = run(asked, Path(folder) / "report.jsonl", limit_s)
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    if ran.expired:
        return NoProfile(f"Nsight Compute was stopped after {limit_s:g} s")
    # Some failures appear only on the terminal.
    found = parse(f"{text}\n{ran.stderr}", candidate=candidate, case=case, metrics=metrics, calls=calls)
    if isinstance(found, NoProfile) and not text and ran.exit_code != 0:
        return replace(found, reason=f"{found.reason}; the judge that asked for calls ended with {ran.exit_code}")
    return found


def parse(
    text: str, *, candidate: str, case: str, metrics: Collection[str] | None, calls: int = 1
) -> Profile | NoProfile:
    """What Nsight Compute wrote, as the profile of a candidate, its dominating kernel first.

    Launches of one kernel are combined: durations and counts (`.sum`) are added and given per wrapper call; the launch
    configuration (`launch__`) is that of the longest one; everything else is averaged, weighted by the launches' time.
    `metrics` that this chip does not have are left out; without `metrics`, all that exist are taken. `calls` is how
    many wrapper calls were profiled.
    """
    if failed := _failure(text):
        return NoProfile(failed, of_machine=_PERMISSION in text)
    rows = [line for line in text.splitlines() if line.startswith('"')]
    try:
        table = list(csv.reader(rows))
    except csv.Error:
        return NoProfile(_CUT_OFF)
    if len(table) < 3 or "Kernel Name" not in table[0]:
        return NoProfile("Nsight Compute wrote no table of metrics")
    # Every cell is quoted.
    whole = all(line.endswith('"') and line.count('"') % 2 == 0 for line in rows)
    if not whole or any(len(row) != len(table[0]) for row in table):
        return NoProfile(_CUT_OFF)
    header, units, *launches = table
    unit_of = dict(zip(header, units, strict=False))
    metrics = [name for name in header if "__" in name] if metrics is None else metrics
    to_us = _MICROSECONDS.get(unit_of.get(DURATION, ""))
    if to_us is None:
        return NoProfile(f"Nsight Compute gave no duration ({DURATION})")

    by_kernel: dict[str, list[Mapping[str, float]]] = {}
    for launch in launches:
        fields = dict(zip(header, launch, strict=False))
        figures = {name: value for name in (DURATION, *metrics) if (value := number(fields.get(name))) is not None}
        if DURATION not in figures:
            return NoProfile(f"Nsight Compute gave no duration for a launch of {printed_name(fields['Kernel Name'])}")
        by_kernel.setdefault(printed_name(fields["Kernel Name"]), []).append(figures)
    kernels = [_together(name, runs, metrics, to_us, calls) for name, runs in by_kernel.items()]
    return Profile(
        candidate=candidate,
        case=case,
        source=SOURCE,
        kernels=tuple(sorted(kernels, key=lambda kernel: -kernel.duration_us)),
    )


def _failure(text: str) -> str | None:
    if _PERMISSION in text:
        return (
            f"the driver does not let this user read the GPU's counters ({_PERMISSION}); run as root, or load the "
            "nvidia module with NVreg_RestrictProfilingToAdminUsers=0"
        )
    errors = [line.removeprefix("==ERROR==").strip() for line in text.splitlines() if line.startswith("==ERROR==")]
    if errors:
        return f"Nsight Compute failed: {' '.join(errors)}"
    if "No kernels were profiled" in text:
        return "the call launched no kernel"
    return None


def number(field: str | None) -> float | None:
    """A figure as Nsight Compute prints it, thousands separated by commas; None for "n/a" and the like."""
    try:
        value = float((field or "").replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _together(
    name: str, launches: Sequence[Mapping[str, float]], metrics: Iterable[str], to_us: float, calls: int
) -> KernelProfile:
    joined: dict[str, float] = {}
    for metric in metrics:
        seen = [(launch[metric], launch[DURATION]) for launch in launches if metric in launch]
        if not seen or metric == DURATION:
            continue
        time = sum(duration for _, duration in seen)
        if metric.startswith("launch__"):
            joined[metric] = max(seen, key=lambda pair: pair[1])[0]
        elif metric.endswith(".sum"):
            joined[metric] = sum(value for value, _ in seen) / calls
        elif time > 0:
            joined[metric] = sum(value * duration for value, duration in seen) / time
        else:
            joined[metric] = sum(value for value, _ in seen) / len(seen)
    return KernelProfile(
        kernel=name,
        launches=max(1, round(len(launches) / calls)),
        duration_us=sum(launch[DURATION] for launch in launches) * to_us / calls,
        metrics=joined,
    )
