"""SAME, FASTER, SLOWER, UNSURE, OTHER GPU or WRONG: a claim against a new verdict. Values in, values out.

Which claims can be compared with what, docs/bundles.md says in words:

- measured and measured, on GPUs of one model: by the intervals of both and what differs from process to process
  (`core.speed.between`).
- measured and measured, on different models: OTHER GPU. A speedup belongs to its GPU, so another one confirms nothing
  and refutes nothing; the sentence says which gains more.
- modelled and measured: the measurement decides where it is beyond the model's known error, else UNSURE.
- measured and modelled: UNSURE. A model cannot contradict a measurement.
- modelled and modelled, by one version of the model for one GPU: by MODELLED_MARGIN.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cudamaster.build.shared import HARNESS
from cudamaster.bundles.contents import Bundle, labels, margin, speed_of
from cudamaster.bundles.reproduction import Claimed, Word
from cudamaster.core.errors import UsageError, one_line
from cudamaster.core.speed import Change, Comparison, Interval, between
from cudamaster.core.values import Hardware, Status, Verdict
from cudamaster.devices.machine_code import INSTRUCTIONS, OBJECT

# Two modelled P of one kernel are of the same counts, except for fresh inputs (three seeds of spmv_csr in bf16 gave
# 1.242 to 1.247), and for the host's compiler, of whose basic blocks instructions are counted.
MODELLED_MARGIN = 0.03
TOLERANCE = 0.05  # of a claim that comes without an interval
NOT_RECORDED = "not recorded"
_CLOCKS = 0.01  # a smaller difference of clocks is not told
_NO_CODE = re.compile(r"no kernel image|unsupported toolchain|invalid device function", re.IGNORECASE)
_WORDS = {Change.SAME: Word.SAME, Change.FASTER: Word.FASTER, Change.SLOWER: Word.SLOWER, Change.UNSURE: Word.UNSURE}


def of_bundle(bundle: Bundle) -> Claimed:
    """What a bundle claims. The interval is what its own samples give: a claim cannot widen it."""
    verdict, own = bundle.verdict, speed_of(bundle.verdict) or bundle.verdict.speed
    score = bundle.claim.score
    return Claimed(
        score=score,
        speed=None if own is None else _around(score, own),
        mark=verdict.mark,
        gpu=one_line(_gpu(verdict, bundle.claim.hardware.name)),
        bundle=bundle.sha256,
        margin=margin(verdict),
        modelled=verdict.modelled,
        cases=labels(verdict),
    )


def stated(text: str, *, tolerance: float | None = None, gpu: str = "") -> Claimed:
    """A claim from elsewhere, as it is written: "2.3". It has no interval, so it gets a tolerance, a part of 1.

    By default that is what rounding hides, half a unit of the last digit, or TOLERANCE if that is more. Raises
    UsageError for a text that is no speedup.
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.(\d{1,9}))?)\s*[x×]?", text.strip())
    score = float(found[1]) if found else 0.0
    if found is None or score == 0:
        raise UsageError(f"{text!r} is no speedup.", "Give a number above 0, such as 2.3: 2 is twice as fast.")
    if tolerance is not None and not 0 <= tolerance < 1:
        raise UsageError(f"A tolerance of {tolerance:g} is none.", "Give a part of 1, such as 0.05.")
    rounding = 0.5 * 10.0 ** -len(found[2] or "") / score
    part = max(rounding, TOLERANCE) if tolerance is None else tolerance
    interval = Interval(score / (1 + part), score * (1 + part))
    return Claimed(score, Comparison(score, interval, score, interval, Change.UNSURE), "", gpu, "")


def said(claim: Claimed, verdict: Verdict, gpu: str) -> tuple[Word, str, Interval | None]:
    """The word on a claim, a sentence, and the interval of P here over P claimed.

    `gpu` is the name of the GPU that measured or is modelled here.
    """
    here = _gpu(verdict, gpu)
    elsewhere = bool(claim.gpu) and not claim.mark and not verdict.emulated and not _same_gpu(claim, here)
    if verdict.status in (Status.UNSUPPORTED, Status.COMPILE_ERROR):
        return Word.UNSURE, f"It could not be put to the test here: {verdict.detail}.", None
    if not verdict.correct:
        if elsewhere and _NO_CODE.search(f"{verdict.detail}\n{verdict.log}"):
            return Word.OTHER_GPU, f"Its command builds it for the {claim.gpu}, and this is an {here}.", None
        return Word.WRONG, f"The kernel is {verdict.status} here: {verdict.detail.rstrip('.')}.", None
    if verdict.score is None or verdict.speed is None:
        return Word.UNSURE, f"The kernel is correct here and has no P: {verdict.detail}.", None
    both = f"P = {_speed(verdict)} here, {_claimed(claim)} claimed"
    if "emulated" in (claim.mark, verdict.mark) or claim.speed is None:
        return Word.UNSURE, f"{both}. Emulated times say nothing of a GPU.", None
    if claim.cases and claim.cases != labels(verdict):
        number = len({*claim.cases} & {*labels(verdict)})
        why = f"P is over other sizes: {len(claim.cases)} there, {len(labels(verdict))} here, {number} of them in both"
        return Word.UNSURE, f"{both}. {why}.", None
    if claim.mark:
        return _of_modelled(claim, verdict, verdict.speed, both, here)
    if verdict.mark:
        why = "A model of a GPU can neither confirm nor refute a measurement; the kernel is correct."
        return Word.UNSURE, f"{both}. {why}", None
    found = margin(verdict)
    # A call that is said to take nanoseconds would allow P any difference: ours say how much there is to allow for.
    margins = (found if claim.margin is None else min(claim.margin, found), found)
    change, interval = between(claim.speed, verdict.speed, margins)
    if elsewhere:
        return Word.OTHER_GPU, f"{both}. {_of_gpus(change, claim.gpu, here)}", interval
    if claim.bundle and change is Change.SAME and _hides(claim, verdict.speed, found):
        why = "It is within the scatter of the claim's own times, and would not be within that of ours."
        return Word.UNSURE, f"{both}. {why}", interval
    return _WORDS[change], f"{both}. {_words_of(change, interval)}", interval


def _of_modelled(
    claim: Claimed, verdict: Verdict, speed: Comparison, both: str, here: str
) -> tuple[Word, str, Interval | None]:
    assert claim.speed is not None
    if verdict.modelled is None:  # measured
        if not _same_gpu(claim, here, loosely=True):
            return Word.OTHER_GPU, f"{both}. The claim is modelled, of an {claim.gpu}, and this is an {here}.", None
        change, interval = between(claim.speed, speed, (0.0, margin(verdict)))
        if change not in (Change.FASTER, Change.SLOWER):
            why = "The claim is modelled, and the measurement is within the model's known error of it."
            return Word.UNSURE, f"{both}. {why}", interval
        return _WORDS[change], f"{both}. The measurement is beyond the model's known error.", interval
    then, now = claim.modelled, verdict.modelled
    if then is None or then.gpu != now.gpu:
        return Word.OTHER_GPU, f"{both}. Two GPUs are modelled: {then.gpu if then else '?'} and {now.gpu}.", None
    if then.version != now.version:
        why = f"Two versions of the model, {then.version} and {now.version}, cannot be compared."
        return Word.UNSURE, f"{both}. {why}", None
    ratio = speed.speedup / claim.score
    interval = Interval(ratio / (1 + MODELLED_MARGIN), ratio * (1 + MODELLED_MARGIN))
    if interval.low <= 1 <= interval.high:
        why = f"The model says the same, to {MODELLED_MARGIN:.0%}; no GPU has measured it."
        return Word.SAME, f"{both}. {why}", interval
    word = Word.FASTER if ratio > 1 else Word.SLOWER
    return word, f"{both}. One model gives both, and they differ by more than {MODELLED_MARGIN:.0%}.", interval


def _hides(claim: Claimed, here: Comparison, found: float) -> bool:
    """Whether a claim with times as quiet as those here, which measured P with the margin `found`, would be refuted."""
    quiet = between(_around(claim.score, here), here, (found, found))[0]
    return quiet in (Change.FASTER, Change.SLOWER)


def agrees(claim: Claimed, score: float) -> bool:
    """Whether a P without an interval, such as the paper's protocol gives, is within the claim's own."""
    return claim.speed is not None and claim.speed.interval.low <= score <= claim.speed.interval.high


def _around(score: float, own: Comparison) -> Comparison:
    """A comparison of another speedup, with an interval that reaches as far."""
    factor = score / own.speedup
    interval = Interval(own.interval.low * factor, own.interval.high * factor)
    return replace(own, speedup=score, interval=interval)


def _gpu(verdict: Verdict, name: str) -> str:
    """The GPU that a verdict is about: the modelled one, that which the judge saw, or the device's name."""
    return verdict.modelled.gpu if verdict.modelled else verdict.hardware.get("device", name)


def _same_gpu(claim: Claimed, here: str, *, loosely: bool = False) -> bool:
    """Whether a claim is of the model of GPU that is here. People write H100 for an NVIDIA H100 80GB HBM3.

    The name in a bundle is the driver's, and has to be the same, unless it is taken `loosely`.
    """
    one, other = (set(re.findall(r"[a-z0-9]+", name.lower())) - {"nvidia"} for name in (claim.gpu, here))
    return one == other or ((loosely or not claim.bundle) and one < other)


def _speed(verdict: Verdict) -> str:
    mark = f" ({verdict.mark})" if verdict.mark else ""
    return f"{verdict.score:.3g}{mark}{_reach(verdict.speed)}"


def _claimed(claim: Claimed) -> str:
    mark = f" ({claim.mark})" if claim.mark else ""
    return f"{claim.score:.3g}{mark}{_reach(claim.speed)}"


def _reach(speed: Comparison | None) -> str:
    if speed is None or not math.isfinite(speed.interval.high):
        return ""
    return f" [{speed.interval.low:.3g}, {speed.interval.high:.3g}]"


def _words_of(change: Change, interval: Interval) -> str:
    of = f"The ratio is {interval.low:.3g} to {interval.high:.3g}"
    if change is Change.UNSURE and not math.isfinite(interval.high):
        return "One of them has too few turns for an interval."
    return {
        Change.SAME: f"{of}: no difference that counts.",
        Change.FASTER: f"{of}: certainly more than claimed.",
        Change.SLOWER: f"{of}: certainly less than claimed.",
        Change.UNSURE: f"{of}: too wide to say.",
    }[change]


def _of_gpus(change: Change, claimed: str, here: str) -> str:
    gains = {
        Change.SAME: "as much",
        Change.FASTER: "certainly more",
        Change.SLOWER: "certainly less",
        Change.UNSURE: "perhaps as much, perhaps not",
    }[change]
    return (
        f"The claim is of an {claimed}, and this is an {here}: this compares GPUs. The kernel gains {gains} here, "
        "which neither confirms nor refutes the claim."
    )


def differs(bundle: Bundle, verdict: Verdict, hardware: Hardware, versions: Mapping[str, str]) -> Sequence[str]:
    """What was otherwise at the claim, in clauses: "driver: 580.1 there, 575.2 here"; and what of it is not known."""
    claim, then = bundle.claim, bundle.verdict
    pairs = {
        "GPU": (_gpu(then, claim.hardware.name), _gpu(verdict, hardware.name)),
        "device": (then.device, verdict.device),
        **{
            name: (claim.hardware.figures[name], hardware.figures[name])
            for name in ("driver", "CUDA toolkit", "compiler", "power limit", "largest SM clock", "memory clock")
            if name in claim.hardware.figures and name in hardware.figures
        },
        "harness": (then.build.get(HARNESS, NOT_RECORDED), verdict.build.get(HARNESS, NOT_RECORDED)),
        **{name: (claim.versions.get(name, NOT_RECORDED), versions.get(name, "")) for name in ("cudamaster", "commit")},
        "compile command": (bundle.candidate.command, verdict.build.get("command", bundle.candidate.command)),
    }
    found = [f"{name}: {one} there, {other or 'none'} here" for name, (one, other) in pairs.items() if one != other]
    clocks = [_clock(then), _clock(verdict)]
    if abs(clocks[0] - clocks[1]) > _CLOCKS * max(clocks):
        found.append(f"SM clock while calls were timed: {clocks[0]:.0f} MHz there, {clocks[1]:.0f} MHz here")
    return [*(one_line(each) for each in found), binary(then, verdict)]


def _clock(verdict: Verdict) -> float:
    """The SM clock while calls were timed, in MHz; NaN if it is not known."""
    try:
        return float(verdict.hardware["sm_mhz"])
    except (KeyError, ValueError):
        return math.nan


def binary(then: Verdict, now: Verdict) -> str:
    """Whether the same was built, as a clause."""
    kinds = [kind for kind in (OBJECT, INSTRUCTIONS) if then.build.get(kind) and now.build.get(kind)]
    if any(then.build[kind] == now.build[kind] for kind in kinds):
        what = "object file" if OBJECT in kinds and then.build[OBJECT] == now.build[OBJECT] else "GPU instructions"
        return f"binary: the same {what}"
    if INSTRUCTIONS in kinds:
        return "binary: other GPU instructions than there"
    if kinds and not now.emulated:
        return "binary: another object file, as every build by nvcc is; its instructions were not listed on both sides"
    return "binary: another object file than there" if kinds else f"binary: {NOT_RECORDED} there"


def measured(verdict: Verdict) -> Sequence[str]:
    """What was measured beside P that bears on how another harness sees a kernel, in sentences."""
    found = []
    timed = [case for case in verdict.cases if case.sweep and case.timing is not None]
    on_device = [
        (case.weight, _median(case.timing.baseline_device_us) / _median(case.timing.candidate_device_us))
        for case in timed
        if case.timing and case.timing.baseline_device_us and case.timing.candidate_device_us
    ]
    if weight := math.fsum(weight for weight, _ in on_device):
        score = math.fsum(weight * speedup for weight, speedup in on_device) / weight
        found.append(f"Kernels alone, without launching and waiting, from a few calls: P = {score:.3g}.")
    shares = [(case.empty_us / case.times_us[1], case) for case in timed if case.empty_us is not None and case.times_us]
    if shares:
        share, case = max(shares, key=lambda each: each[0])
        least = min(each for each, _ in shares)
        found.append(
            f"An empty launch takes {case.empty_us:.3g} µs: {least:.0%} to {share:.0%} of the kernel's whole calls."
        )
    if timed and verdict.asked_bytes:
        found.append(f"The largest allocation in a timed call has {verdict.asked_bytes:,} bytes.")
    return found


def _median(samples: Sequence[float]) -> float:
    return statistics.median(samples)
