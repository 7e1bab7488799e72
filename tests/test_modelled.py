"""Modelled times replace those of a device that has none: in verdicts, records and tables, marked as modelled.

Counts are made by hand here; tests/test_modelled_runs.py counts real kernels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cudamaster.cli.output import about_times, cases_table, console, say_speed
from cudamaster.core import resources
from cudamaster.core.records import from_json, to_json
from cudamaster.core.speed import Change, compare, modelled
from cudamaster.core.values import Candidate, CaseVerdict, Hardware, Precision, Status, Timing, Verdict
from cudamaster.devices.ncu import NoProfile
from cudamaster.modelling import gpu
from cudamaster.modelling.constants import KnownError
from cudamaster.modelling.counts import CallCounts, Instructions, Launch, Other, Spread, Traffic
from cudamaster.modelling.verdicts import Modeller, left_out

BASELINE = Candidate("double_it", Precision.FP32, "baseline", "nvcc")
FASTER = Candidate("double_it", Precision.FP32, "faster", "nvcc")
BUILDER: Any = SimpleNamespace(using=lambda candidate: nullcontext())
EMULATED = compare((2.0, 4.0), (4.0, 8.0))


def counts(case: str, instructions: float) -> CallCounts:
    """A kernel with one block per SM of the GPU, whose warps issue that many instructions."""
    of_warp = Spread(mean=instructions, largest=instructions)
    launch = Launch(
        kernel="double_it_kernel_optimized",
        grid=(132, 1, 1),
        block=(1024, 1, 1),
        dynamic_shared_bytes=0,
        static_shared_bytes=0,
        registers=32,
        instructions=Instructions(fma=132 * 32 * instructions),
        barriers=Spread(mean=0, largest=0),
        waits_of_warp=Spread(mean=0, largest=0),
        cold_waits_of_warp=Spread(mean=0, largest=0),
        far_waits_of_warp=Spread(mean=0, largest=0),
        instructions_of_warp=of_warp,
    )
    return CallCounts(version=1, case=case, events=(launch,))


class Counting:
    """Given counts by candidate and case, and the calls that were asked for."""

    def __init__(self, told: Mapping[tuple[str, str], float | str]) -> None:
        self.told = told
        self.asked: list[tuple[str, tuple[str, ...], int]] = []

    def __call__(self, candidate: Candidate, labels: Sequence[str], seed: int) -> Mapping[str, CallCounts | str]:
        """As Modeller asks."""
        self.asked.append((candidate.code, tuple(labels), seed))
        found = {label: self.told[candidate.code, label] for label in labels}
        return {label: one if isinstance(one, str) else counts(label, one) for label, one in found.items()}


ALL = {("baseline", "N=8"): 2e5, ("baseline", "N=16"): 4e5, ("faster", "N=8"): 1e5, ("faster", "N=16"): 1e5}


def judged(candidate: Candidate = FASTER) -> Verdict:
    """What the CPU device says of a correct kernel: twice as slow in its own time, and one case too heavy for it."""
    timed = CaseVerdict("N=8", True, 1.0, Status.CORRECT, timing=Timing((2.0, 4.0), (4.0, 8.0)), speed=EMULATED)
    heavy = CaseVerdict("N=16", True, 3.0, None, skipped="too long on this device")
    odd = CaseVerdict("N=7", False, 1.0, Status.CORRECT)
    return Verdict(
        candidate.id,
        "cpu",
        True,
        Status.CORRECT,
        "3 cases right",
        seed=5,
        score=EMULATED.speedup,
        speed=EMULATED,
        complete=False,
        cases=(timed, heavy, odd),
    )


def with_error(monkeypatch: pytest.MonkeyPatch, factor: float, of: str = "NVIDIA H200") -> None:
    """The model as if it had been validated on a GPU."""
    from cudamaster.modelling import constants

    error = KnownError(
        gpu=of, date="2026-01-01", times=9, pairs=9, rank_correlation=0.9, times_within=2, ratios_within=factor
    )
    fitted = constants.shipped().model_copy(update={"known_error": error})
    monkeypatch.setattr(constants, "shipped", lambda: fitted)


def scored(told: Mapping[tuple[str, str], float | str] = ALL) -> Verdict:
    return Modeller(BUILDER, Counting(told), seed=5).verdict(judged(), FASTER, BASELINE)


def test_the_score_is_the_models_over_all_timed_cases() -> None:
    """Also over those too heavy to be run; the device's own times, by which the kernel is slower, are gone."""
    verdict = scored()
    first, second, odd = verdict.cases
    assert verdict.mark == "modelled"
    assert first.timing is None
    assert odd == judged().cases[2]
    assert first.modelled is not None
    assert second.modelled is not None
    ratios = [m.baseline_us / m.candidate_us for m in (first.modelled, second.modelled)]
    assert 1 < ratios[0] < ratios[1] < 4
    assert verdict.score == pytest.approx((ratios[0] + 3 * ratios[1]) / 4)
    assert verdict.complete
    assert second.skipped is not None
    assert first.times_us == (first.modelled.baseline_us, first.modelled.candidate_us)
    assert first.modelled.candidate_device_us < first.modelled.candidate_us
    assert verdict.seconds.total == verdict.seconds.modelling > 0


def test_the_baseline_is_as_fast_as_itself() -> None:
    """Whatever the model's error is."""
    verdict = Modeller(BUILDER, Counting(ALL), seed=5).verdict(judged(), BASELINE, BASELINE)
    assert verdict.score == 1
    assert {case.speed and case.speed.change for case in verdict.cases if case.sweep} == {Change.SAME}
    assert verdict.speed is not None
    assert verdict.speed.change is Change.SAME


def test_counts_are_made_once_on_inputs_of_one_seed() -> None:
    counting = Counting(ALL)
    modeller = Modeller(BUILDER, counting, seed=5)
    first, again = (modeller.verdict(judged(), FASTER, BASELINE) for _ in range(2))
    profile = modeller.profile(FASTER, "N=8")
    assert counting.asked == [("baseline", ("N=8", "N=16"), 5), ("faster", ("N=8", "N=16"), 5)]
    assert not isinstance(profile, NoProfile)
    assert profile.candidate == FASTER.id
    same = replace(again, seconds=first.seconds)
    assert to_json(first) == to_json(same)
    fresh = [Modeller(BUILDER, counting).verdict(judged(), FASTER, BASELINE).modelled for _ in range(2)]
    assert fresh[0] is not None
    assert fresh[1] is not None
    assert fresh[0].seed != fresh[1].seed


def test_a_kernel_without_counts_of_a_case_has_no_score() -> None:
    """It may be slow there and fast elsewhere: a P over the others would hide that, and be a new best."""
    verdict = scored({**ALL, ("faster", "N=16"): "the sampled run ended with a fault"})
    first, second, _ = verdict.cases
    assert verdict.correct
    assert first.speed is not None
    assert first.speed.speedup > 1
    assert (verdict.score, verdict.speed, verdict.lacking) == (None, None, ("N=16",))
    assert "no P: a case without a modelled time may be a slow one, N=16 (the sampled run" in verdict.detail
    assert (second.times_us, second.speed, second.not_modelled) == (None, None, "the sampled run ended with a fault")
    assert not verdict.complete
    assert verdict.notes == ("N=16 has no modelled time: the sampled run ended with a fault",)


def test_a_reason_of_several_cases_is_told_once() -> None:
    reason = "kernel: an mbarrier is not counted"
    verdict = scored({**ALL, ("faster", "N=8"): reason, ("faster", "N=16"): reason})
    assert verdict.notes == (f"N=8 and 1 more have no modelled time: {reason}",)


def test_a_case_without_counts_of_the_baseline_is_left_out_of_the_score() -> None:
    """That is nothing a kernel can bring about."""
    for reason in ({}, {("faster", "N=16"): "another reason"}):
        verdict = scored({**ALL, ("baseline", "N=16"): "a reason", **reason})
        first, second, _ = verdict.cases
        assert first.speed is not None
        assert verdict.score == first.speed.speedup
        assert (second.not_modelled, verdict.lacking, verdict.complete) == ("the baseline: a reason", (), False)


@pytest.mark.parametrize(
    ("without", "why", "has"),
    [
        (["baseline"], "the first: a reason", False),
        (["faster"], "a reason", False),
        (["baseline", "faster"], "both: a reason", True),
    ],
)
def test_of_two_kernels_neither_may_hide_a_case(without: list[str], why: str, has: bool) -> None:
    """`cudamaster compare` knows no baseline; what neither has is left out for both."""
    told = {**ALL, **{(name, "N=16"): "a reason" for name in without}}
    verdict = Modeller(BUILDER, Counting(told), seed=5).verdict(judged(), FASTER, BASELINE, rivals=True)
    assert verdict.cases[1].not_modelled == why
    assert (verdict.score is not None) == has


def test_a_kernel_without_any_counts_has_no_score() -> None:
    """Its emulated time is none that could be held against modelled ones."""
    verdict = scored({**ALL, ("faster", "N=8"): "a reason", ("faster", "N=16"): "a reason"})
    assert verdict.correct
    assert (verdict.score, verdict.speed, verdict.mark) == (None, None, "modelled")
    assert "none of its calls could be modelled" in verdict.detail


@pytest.mark.parametrize(
    ("change", "needs"),
    [
        ({"registers": 128}, "1024 threads, 1024 x 128 registers"),
        ({"registers": None, "dynamic_shared_bytes": 300_000}, "1024 threads, 300000 bytes of shared memory"),
    ],
)
def test_a_kernel_that_the_gpu_would_not_launch_has_no_score(change: dict[str, int | None], needs: str) -> None:
    """The host executes it all the same; on the GPU the launch fails, and the call writes nothing."""

    def count(candidate: Candidate, labels: Sequence[str], seed: int) -> Mapping[str, CallCounts | str]:
        found = {label: counts(label, 1e5) for label in labels}
        if candidate.code == "baseline":
            return found
        return {
            label: call.model_copy(update={"events": tuple(each.model_copy(update=change) for each in call.events)})
            for label, call in found.items()
        }

    modeller = Modeller(BUILDER, count, seed=5)
    verdict = modeller.verdict(judged(), FASTER, BASELINE)
    why = f"no SM of an NVIDIA H200 has room for a block of double_it_kernel_optimized: {needs}"
    assert verdict.score is None
    assert verdict.cases[0].not_modelled == why
    profile = modeller.profile(FASTER, "N=8")
    assert isinstance(profile, NoProfile)
    assert profile.reason.endswith(why)


def test_a_call_that_moves_less_than_its_task_takes_has_no_time() -> None:
    """Sectors that are asked for, copies and fillings count; of long threads what is written may be missing."""
    (launch,) = counts("N=8", 1e5).events
    assert isinstance(launch, Launch)
    traffic = (Traffic(buffer=1, bytes=4096, load_sectors=100), Traffic(buffer=2, bytes=4096, store_sectors=50))
    call = counts("N=8", 1e5).model_copy(
        update={"events": (launch.model_copy(update={"traffic": traffic, "count": 2}),)}
    )
    assert left_out(call, 6400, 3200) is None
    assert left_out(call, 12800, 6400) is None
    assert "reads 6400 bytes" in str(left_out(call, 12802, 0))
    assert "writes 3200 bytes" in str(left_out(call, 0, 6402))
    assert left_out(call.model_copy(update={"note": "of long threads the first part was traced"}), 6400, 6402) is None
    filled = call.model_copy(update={"events": (*call.events, Other(event="memset", bytes=3200))})
    assert left_out(filled, 0, 6402) is None


def test_without_counts_of_the_baseline_times_stay_emulated_and_are_called_so() -> None:
    verdict = scored({**ALL, ("baseline", "N=8"): "a reason", ("baseline", "N=16"): "a reason"})
    assert (verdict.mark, verdict.score) == ("emulated", EMULATED.speedup)
    assert replace(verdict, notes=()) == judged()
    assert verdict.notes == ("times are emulated: the baseline has no model, a reason",)


def test_a_failing_kernel_is_not_counted() -> None:
    counting = Counting(ALL)
    wrong = replace(judged(), status=Status.WRONG, score=None)
    assert Modeller(BUILDER, counting).verdict(wrong, FASTER, BASELINE) == wrong
    assert counting.asked == []


def test_what_the_models_error_may_explain_is_unsure() -> None:
    assert modelled(1.5, 1.3).change is Change.FASTER
    assert modelled(1.2, 1.3).change is Change.UNSURE
    assert modelled(1.0, 1.3).change is Change.UNSURE
    assert modelled(0.7, 1.3).change is Change.SLOWER
    assert modelled(50.0, None).change is Change.UNSURE
    assert modelled(1.5, 1.3).interval.low == pytest.approx(1.5 / 1.3)


def test_the_known_error_is_that_of_the_gpu_it_was_measured_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with_error(monkeypatch, 1.25)
    verdict = scored()
    assert verdict.modelled is not None
    assert "of an NVIDIA H200; 9 of 10 speedups within a factor of 1.25" in verdict.modelled.described
    other = Modeller(BUILDER, Counting(ALL), wanted=gpu.load("a100")).model
    assert other.ratio_error is None
    assert "its error is not known" in other.described


def test_the_known_error_is_not_that_of_other_figures_under_the_same_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file of one's own begins as a copy of one that ships; its results stand apart from those of that one."""
    with_error(monkeypatch, 1.25)
    mine = tmp_path / "mine.yaml"
    shipped = (resources.profiles() / "gpus" / "h200.yaml").read_text()
    mine.write_text(shipped.replace("clock_mhz: {value: 1965,", "clock_mhz: {value: 500,"))
    found = Modeller(BUILDER, Counting(ALL), wanted=gpu.load(str(mine)))
    assert "of an NVIDIA H200 (mine.yaml); its error is not known" in found.model.described
    assert found.gpu_name == "NVIDIA H200"  # by which its thresholds are found
    assert found.hardware(Hardware("CPU", {}, emulated=True)).name.endswith("of an NVIDIA H200 (mine.yaml)")


def test_the_modelled_gpu_is_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Hardware("CPU", {"cores": "2"}, emulated=True)
    names = []
    for choice in ("", "a100"):
        monkeypatch.setenv("CUDAMASTER_GPU_MODEL", choice)
        modeller = Modeller(BUILDER, Counting(ALL))
        hardware = modeller.hardware(host)
        assert hardware.mark == "modelled"
        assert hardware.figures["cores"] == "2"
        assert modeller.gpu_name in hardware.name
        assert modeller.gpu_name in hardware.figures["modelled GPU"]
        names.append((modeller.gpu_name, modeller.fingerprint))
    assert "H200" in names[0][0]
    assert "A100" in names[1][0]
    assert names[0][1] != names[1][1]


def test_records_from_before_read_and_write_as_they_did() -> None:
    """What came later is left out where it is not there, and comes back where it is."""
    before = to_json(judged())
    text = json.dumps(before)
    for name in ("modelled", "not_modelled", "modelling"):
        assert name not in text
    assert json.dumps(to_json(from_json(Verdict, json.loads(text)))) == text
    verdict = scored()
    assert from_json(Verdict, json.loads(json.dumps(to_json(verdict)))) == verdict


def test_a_long_case_breaks_between_its_sizes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not within a name, which could not be found again."""
    verdict = scored()
    label = "num_tokens=1024,num_heads=32,head_size=128"
    monkeypatch.setenv("COLUMNS", "90")
    console().print(cases_table(replace(verdict, cases=tuple(replace(case, label=label) for case in verdict.cases))))
    assert "head_size=128" in capsys.readouterr().out


def test_tables_say_that_times_are_modelled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_error(monkeypatch, 1.25)
    verdict = scored({**ALL, ("baseline", "N=16"): "a reason"})
    assert verdict.speed is not None
    said = say_speed(verdict.speed, mark=verdict.mark)
    assert "(modelled), faster (90 % interval" in said
    monkeypatch.setenv("COLUMNS", "160")
    console().print(cases_table(verdict))
    shown = capsys.readouterr().out
    assert "modelled µs:" in shown
    assert "baseline → candidate" in shown
    assert "bound by" in shown
    assert "a reason" in shown
    assert "2.0 → 4.0" not in shown
    assert "3.0 → 6.0" not in shown
    told = about_times(verdict.modelled)
    assert "estimate: gpu-model v" in told
    assert "within a factor of 1.25" in told
    assert "No GPU measured it" in told
    assert "say nothing about a GPU" in about_times(None)
