"""The word on a claim: same, faster, slower, unsure, other GPU or wrong, by what an H200 measured."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import cudamaster
from cudamaster.bundles import contents, words
from cudamaster.bundles.contents import Bundle
from cudamaster.bundles.reproduction import Word
from cudamaster.core.errors import UsageError
from cudamaster.core.values import GpuModel, Status, Verdict
from cudamaster.devices import machine_code

H200 = Path(__file__).parent.parent / "results" / "h200" / "spmv_csr_bf16"
BEST, FIRST = "d1bd6139cad2d451", "39ac2b7da27a3ad9"  # P = 1.21 and 1.05


@cache
def packed(candidate: str) -> Bundle:
    return cudamaster.bundle(H200, candidate=candidate)


def measured(candidate: str, *, part: slice = slice(None)) -> Verdict:
    """A verdict of a run on an H200 with some of its turns."""
    verdict = packed(candidate).verdict
    cases = tuple(
        case
        if case.timing is None
        else replace(
            case,
            timing=replace(
                case.timing, baseline_us=case.timing.baseline_us[part], candidate_us=case.timing.candidate_us[part]
            ),
        )
        for case in verdict.cases
    )
    cut = replace(verdict, cases=cases)
    speed = contents.speed_of(cut)
    assert speed is not None
    return replace(cut, speed=speed, score=speed.speedup)


def claimed(candidate: str, **changed: object) -> words.Claimed:
    return replace(words.of_bundle(packed(candidate)), **changed)  # type: ignore[arg-type]


def test_the_words_for_measurements_of_one_gpu() -> None:
    first_half, second_half, few = slice(0, 150), slice(150, None), slice(0, 2)
    for candidate in (BEST, FIRST):
        for part in (first_half, second_half):
            word, said, ratio = words.said(claimed(candidate), measured(candidate, part=part), "")
            assert word is Word.SAME, said
            assert ratio is not None
            assert ratio.low < 1 < ratio.high
    best, first = claimed(BEST), claimed(FIRST)
    assert words.said(best, measured(FIRST), "")[0] is Word.SLOWER
    assert words.said(first, measured(BEST), "")[0] is Word.FASTER
    assert words.said(best, measured(BEST, part=few), "")[0] is Word.UNSURE
    # A claim that is raised by what nobody can tell from noise stays the same, one by more does not.
    raised = [words._around(best.score * factor, best.speed) for factor in (1.01, 1.3)]  # type: ignore[arg-type]
    said = [words.said(replace(best, score=each.speedup, speed=each), measured(BEST), "")[0] for each in raised]
    assert said == [Word.SAME, Word.SLOWER]


def forged(times: Callable[[int, float], tuple[float, float]]) -> Bundle:
    """A bundle whose claim follows from times that were made up, by the turn's number and the candidate's true time."""
    honest = packed(BEST)
    cases = []
    for case in honest.verdict.cases:
        if case.timing is not None:
            pairs = [times(turn, us) for turn, us in enumerate(case.timing.candidate_us)]
            one, other = (tuple(pair[side] for pair in pairs) for side in (0, 1))
            case = replace(case, timing=replace(case.timing, baseline_us=one, candidate_us=other))
        cases.append(case)
    verdict = replace(honest.verdict, cases=tuple(cases))
    speed = contents.speed_of(verdict)
    assert speed is not None
    verdict = replace(verdict, speed=speed, score=speed.speedup)
    return replace(honest, verdict=verdict, claim=replace(honest.claim, score=speed.speedup))


def test_made_up_times_do_not_make_a_claim_the_same() -> None:
    """Calls of nanoseconds, of which half a microsecond is much; and times that scatter so that much is within them."""
    short = forged(lambda turn, us: (0.1 + 1e-6 * (turn % 3), 0.002))
    word, said, _ = words.said(words.of_bundle(short), measured(BEST), "")
    assert (word, short.claim.score > 40) == (Word.SLOWER, True), said
    draw = random.Random(28)
    wide = forged(lambda turn, us: (1.32 * us * math.exp(draw.gauss(0, 0.95)), us))
    word, said, _ = words.said(words.of_bundle(wide), measured(BEST), "")
    assert (word, "scatter of the claim's own times" in said) == (Word.UNSURE, True), said
    elsewhere = replace(short, claim=replace(short.claim, hardware=replace(short.claim.hardware, name="NVIDIA B200")))
    assert contents.contradictions(elsewhere) == [
        "The bundle claims P on an NVIDIA B200, and its own verdict is of an NVIDIA H200."
    ]


def test_the_words_for_what_cannot_be_compared() -> None:
    verdict, model = measured(BEST), GpuModel("v6", "NVIDIA H200", 1.85)
    word, said, _ = words.said(claimed(BEST, gpu="NVIDIA H100 80GB HBM3"), verdict, "")
    assert (word, "this compares GPUs" in said, "gains as much here" in said) == (Word.OTHER_GPU, True, True)
    modelled = claimed(BEST, mark="modelled", modelled=model)
    wide = words.stated("1.2", tolerance=0.85)
    assert words.said(replace(modelled, speed=wide.speed), verdict, "")[0] is Word.UNSURE
    far = words.stated("9.0", tolerance=0.85)
    assert words.said(replace(modelled, score=9.0, speed=far.speed), verdict, "")[0] is Word.SLOWER
    h100 = replace(verdict, hardware={**verdict.hardware, "device": "NVIDIA H100 80GB HBM3"})
    assert words.said(modelled, h100, "")[0] is Word.OTHER_GPU
    by_model = replace(verdict, emulated=True, modelled=model)
    assert words.said(claimed(BEST), by_model, "")[0] is Word.UNSURE
    assert words.said(modelled, by_model, "")[0] is Word.SAME
    older = replace(modelled, modelled=replace(model, version="v5"))
    assert words.said(older, by_model, "")[0] is Word.UNSURE
    other = replace(modelled, modelled=replace(model, gpu="NVIDIA H100"))
    assert words.said(other, by_model, "")[0] is Word.OTHER_GPU
    fault = replace(verdict, status=Status.FAULT, score=None, speed=None, detail="no kernel image is available")
    assert words.said(claimed(BEST), fault, "")[0] is Word.WRONG
    assert words.said(claimed(BEST, gpu="NVIDIA B200"), fault, "")[0] is Word.OTHER_GPU
    fewer = replace(verdict, cases=tuple(case for case in verdict.cases if case.label != "rows=1024"))
    word, said, _ = words.said(claimed(BEST), fewer, "")
    assert (word, "6 there, 5 here, 5 of them in both" in said) == (Word.UNSURE, True)
    unsupported = replace(fault, status=Status.UNSUPPORTED)
    assert words.said(claimed(BEST), unsupported, "")[0] is Word.UNSURE


def test_a_stated_claim_has_the_tolerance_of_its_digits() -> None:
    verdict = measured(BEST)  # P = 1.21 with 1.2 % to each side
    for text, word in (("1.21", Word.SAME), ("1.2", Word.SAME), ("2", Word.SLOWER), ("1.05", Word.FASTER),
                       ("1", Word.UNSURE)):  # fmt: skip
        assert words.said(words.stated(text), verdict, "")[0] is word, text
    assert words.said(words.stated("1.24", tolerance=0.0, gpu="H200"), verdict, "")[0] is Word.SAME
    assert words.said(words.stated("1.21", gpu="A100"), verdict, "")[0] is Word.OTHER_GPU
    for text in ("fast", "0", "-2", "nan", "1e3", ""):
        with pytest.raises(UsageError, match="is no speedup"):
            words.stated(text)


def test_what_is_measured_beside_p_is_told() -> None:
    told = " ".join(words.measured(replace(measured(BEST), asked_bytes=4 << 20)))
    assert "Kernels alone, without launching and waiting" in told
    assert "An empty launch takes 9." in told
    assert "4,194,304 bytes" in told


def test_two_builds_are_told_apart_by_instructions() -> None:
    """nvcc's objects never have the same bytes; cuobjdump's listing of the same instructions is the same elsewhere."""
    listing = (
        "Fatbin elf code:\n================\narch = sm_90\nidentifier = /tmp/tmpxft_{0}\n\n\tcode for sm_90\n"
        "\t\tFunction : _ZN38_GLOBAL__N__cb97dc4{0}_12_candidate_cu_k1aEPfNS_1SE\n"
        '\t.headerflags\t@"{0}"\n'
        "        /*0000*/                   LDC R1, c[0x0][0x28] ;   /* 0x00000a00ff017b82 */\n"
        "                                                            /* 0x000e22000000020{1} */\n"
    )
    one, other, third = (machine_code.instructions_in(listing.format(*each)) for each in ("a1", "b1", "a2"))
    assert one.count("\n") == 3
    assert one == other != third
    verdict = measured(BEST)
    built = {machine_code.OBJECT: "1", machine_code.INSTRUCTIONS: "2"}
    then = replace(verdict, build=built)
    assert words.binary(verdict, then) == "binary: not recorded there"
    assert words.binary(then, replace(verdict, build={**built, machine_code.OBJECT: "3"})) == (
        "binary: the same GPU instructions"
    )
    assert "other GPU instructions" in words.binary(then, replace(verdict, build=dict.fromkeys(built, "4")))
