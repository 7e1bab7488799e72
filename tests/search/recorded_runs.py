"""Recordings of an H200 for tests of prompts: profiles, and verdicts with the fields that were added since."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from cudamaster.core.records import from_json
from cudamaster.core.speed import compare
from cudamaster.core.values import Candidate, CaseVerdict, Findings, Hardware, Precision, Profile, Verdict
from cudamaster.devices import ncu
from cudamaster.profiling.filter import findings as filtered
from cudamaster.profiling.thresholds import load as load_thresholds
from cudamaster.tasks import cards
from cudamaster.tasks.harness import baseline_region
from cudamaster.workbench import floors
from cudamaster.workbench.floors import GpuLimits

ROOT = Path(__file__).parent.parent.parent
PROFILES = ROOT / "tests" / "profiling" / "data"
COMMAND = "nvcc -O3 -std=c++17 -arch=sm_90 -c candidate.cu -o candidate.o"
# Of the GPU that the verdicts are of, as far as they can be read off its data sheet; for floors alone.
LIMITS = GpuLimits(
    date="2026-11-21T18:00:00+00:00", uuid="GPU-of-a-test", driver="580", source="0123456789abcdef",
    name="NVIDIA H200", compute_capability="9.0", multiprocessors=132, l2_bytes=62914560,
    threads_per_sm=2048, registers_per_sm=65536, shared_bytes_per_sm=233472, shared_bytes_per_block=232448,
    read_bytes_per_s=4.3e12,
    write_bytes_per_s=4.1e12, copy_bytes_per_s=4.2e12, memory_peak_bytes_per_s=4.8e12, fp32_per_s=60e12,
    bf16_pairs_per_s=120e12, tensor_per_s=900e12, tensor_by="wgmma", special_per_s=4e12, sm_clock_max_mhz=1980,
    sm_clock_before_mhz=1980.0, sm_clock_after_mhz=1980.0,
)  # fmt: skip


def verdict(task: str, precision: str) -> Verdict:
    """The recorded verdict on the best kernel, with its speeds and floors."""
    raw = json.loads((ROOT / "tests" / "kept" / f"{task}_{precision}" / "verdict.json").read_text())
    raw = {"speed": None, "notes": [], "sanitizers": {}, **raw}
    raw["cases"] = [_case(case) for case in raw["cases"]]
    found = from_json(Verdict, raw)
    card = cards.load(task)
    known = {case.label for case in card.cases}
    timed = (_timed(case) for case in found.cases if case.label in known)
    return floors.hold(replace(found, cases=tuple(timed)), card, Precision(precision), LIMITS)


def _case(raw: dict[str, object]) -> dict[str, object]:
    outputs = [{"width": None, **output} for output in raw["outputs"]]  # type: ignore[attr-defined]
    timing = raw["timing"] and {"baseline_device_us": [], "candidate_device_us": [], **raw["timing"]}  # type: ignore[dict-item]
    return {"speed": None, "floor_us": None, **raw, "outputs": outputs, "timing": timing}


def _timed(case: CaseVerdict) -> CaseVerdict:
    timing = case.timing
    if timing is None:
        return case
    return replace(case, speed=compare(timing.baseline_us, timing.candidate_us))


def findings(name: str, *, full: bool = False, cases: tuple[str, ...] = ("N=65536",)) -> Findings:
    """What the filter makes of a recorded output of Nsight Compute, taken for that of each of `cases`."""
    text, thresholds = (PROFILES / f"{name}.txt").read_text(), load_thresholds()
    wanted = thresholds.full if full else thresholds.filtered
    seen = [ncu.parse(text, candidate="c0ffee", case=case, metrics=wanted) for case in cases]
    profiles = [profile for profile in seen if isinstance(profile, Profile)]
    return filtered(profiles[0], thresholds, full=full, others=profiles[1:])


def best(task: str, precision: str) -> Candidate:
    """The recorded best kernel."""
    code = (ROOT / "tests" / "kept" / f"{task}_{precision}" / "best.cu").read_text()
    return Candidate(task, Precision(precision), code, COMMAND)


def baseline(task: str, precision: str) -> Candidate:
    """The baseline as a candidate."""
    code = baseline_region(cards.load(task), Precision(precision))
    return Candidate(task, Precision(precision), code, COMMAND)


def hardware() -> Hardware:
    """The GPU of the verdicts, as their run recorded it."""
    raw = json.loads((ROOT / "tests" / "kept" / "sorting_fp32" / "run.json").read_text())
    return from_json(Hardware, raw["hardware"])
