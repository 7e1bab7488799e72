"""When a judge fails, the right one is blamed: the machine, or the candidate that it ran."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_cards import small_card

from cudamaster.core.errors import BaselineError
from cudamaster.core.values import Candidate, Precision, Status
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.protocol import Ran
from cudamaster.judging.judge_process import Trial
from cudamaster.workbench.evaluation import Workbench


class Short(CpuDevice):
    """A device on which some runs leave the judge without memory: `lacks` says of a run's number and request which."""

    has_debug_build = False

    def __init__(self, lacks: Callable[[int, JudgeRequest], bool]) -> None:
        super().__init__()
        self.lacks = lacks
        self.runs: list[JudgeRequest] = []

    def run(self, request: JudgeRequest, report: Path, limit_s: float, **options: Any) -> Ran:
        """A run of the CPU device, after which the judge may report a failure."""
        ran = super().run(request, report, limit_s, **options)
        self.runs.append(request)
        if not self.lacks(len(self.runs), request):
            return ran
        report.write_text(report.read_text().partition("\n")[0] + "\n")
        return replace(ran, exit_code=74, stderr="harness failure: cudaMalloc: cudaErrorMemoryAllocation")


def evaluate(device: Short) -> Any:
    bench = Workbench(small_card("dot_product"), Precision.FP32, device)
    baseline = bench.baseline
    code = baseline.code.replace("{", "{ // another text", 1)
    return bench.evaluate(Candidate(baseline.task, baseline.precision, code, baseline.command), check_only=True)


@pytest.mark.slow
def test_a_candidate_that_the_judge_does_not_survive_is_refused() -> None:
    """It may have taken all memory of the GPU. Only this candidate fails, and the run continues."""
    device = Short(lambda _, request: bool(request.candidate))
    verdict = evaluate(device)
    assert verdict.status is Status.FAULT
    assert verdict.score is None
    assert "with this candidate, and not without it" in verdict.detail
    assert "cudaErrorMemoryAllocation" in verdict.detail
    assert [bool(request.candidate) for request in device.runs] == [True, False, True]


@pytest.mark.slow
def test_a_judge_that_fails_once_has_failed_by_itself() -> None:
    """Another program had the memory for a moment."""
    assert evaluate(Short(lambda number, _: number == 1)).correct


def test_a_judge_that_fails_with_the_baseline_alone_is_no_fault_of_the_candidate() -> None:
    with pytest.raises(BaselineError, match="cudaErrorMemoryAllocation"):
        evaluate(Short(lambda *_: True))


CANDIDATES = {
    "right": "",
    "wrong": "cudaMemset(out, 0, sizeof(float));",
    "a fault": "*(volatile float*)nullptr = 1;",
    "for ever": "for (volatile int k = 0; k < 2; k = 0) {}",
    "not C": "this is no C;",
    "right again": "(void)0;",
}
WHAT_BECOMES = [Status.CORRECT, Status.WRONG, Status.FAULT, Status.TIMEOUT, Status.COMPILE_ERROR, Status.CORRECT]


def candidates(bench: Workbench) -> list[Candidate]:
    """The baseline with each of those at its end."""
    code = bench.baseline.code.rstrip().removesuffix("}")
    texts = [f"{code}    {more}\n}}\n" for more in CANDIDATES.values()]
    return [Candidate("dot_product", Precision.FP32, text, bench.baseline.command) for text in texts]


@pytest.mark.slow
@pytest.mark.parametrize("calls", [0, 4])
def test_one_judge_judges_many_as_it_does_each(calls: int) -> None:
    """So are those after one that faults or hangs; each has its own seed and output."""
    device = Short(lambda *_: False)
    protocol = replace(device.protocol, call_limit_s=0.5)
    bench = Workbench(small_card("dot_product"), Precision.FP32, device, modelled=False, calls=calls, protocol=protocol)
    many = bench.evaluate_all(candidates(bench))
    assert [verdict.status for verdict in many] == WHAT_BECOMES
    assert len(device.runs) == 1
    assert "cuda device fault" not in many[1].log
    assert len({verdict.seed for verdict in many}) == len(many)
    assert len(many[0].cases) > len(bench.card.cases)  # held-out ones too
    assert len(many[2].cases) == 1
    each = [bench.evaluate(one) for one in candidates(bench)]
    assert [(one.status, one.detail.partition(":")[0]) for one in each] == [
        (one.status, one.detail.partition(":")[0]) for one in many
    ]
    assert (many[0].score is None) == (calls == 0)


NOTES = """
struct Note { int written, taken; float values[4096]; };
// Far behind the guard zones, within the memory that is shared with the judge.
__device__ Note* note_of(float* out) { return (Note*)((char*)out + (6 << 20)); }
__global__ void leave_kernel(float* out, const float* X, const float* Y, int N) {
    double sum = 0;
    for (int i = 0; i < N; ++i)
        sum += (double)X[i] * Y[i];
    Note* note = note_of(out);
    *out = note->values[note->written++] = (float)sum;
}
__global__ void find_kernel(float* out) {
    Note* note = note_of(out);
    *out = note->taken < note->written ? note->values[note->taken++] : 0;
}
extern "C" void dot_product_optimized(float* out, const float* X, const float* Y, int N) { CALL; }
"""


@pytest.mark.slow
def test_what_a_candidate_leaves_behind_is_gone_before_the_next(tmp_path: Path) -> None:
    """Here both get the same inputs, and are called where a GPU's workers are: in the shared memory itself."""
    bench = Workbench(small_card("dot_product"), Precision.FP32, Short(lambda *_: False), modelled=False)
    text, builder = [], bench._builder
    for number, call in enumerate(("leave_kernel<<<1, 1>>>(out, X, Y, N)", "find_kernel<<<1, 1>>>(out)")):
        candidate = Candidate("dot_product", Precision.FP32, NOTES.replace("CALL", call), bench.baseline.command)
        build = builder.build(candidate)
        assert build.worker is not None, build.log
        request = JudgeRequest(candidate=(str(build.worker), "--in-place"), cases="verify", seed=42, calls=0)
        text += [*request.options, "--report", str(tmp_path / f"{number}.jsonl"), ""]
    (tmp_path / "batch").write_text("\n".join([*text, ""]))
    baseline = (str(builder.baseline_worker()), "--in-place")
    judge = JudgeRequest((str(builder.judge()),), baseline, batch=str(tmp_path / "batch"))
    done = subprocess.run(judge.command, capture_output=True, text=True, check=False)
    ends = [(tmp_path / f"{number}.jsonl").read_text().splitlines()[-1] for number in range(2)]
    assert ['"ok":true' in end for end in ends] == [True, False], (ends, done.stderr)
    assert not (tmp_path / "batch").exists()  # with the seeds


@pytest.mark.slow
def test_with_a_fixed_seed_each_has_a_judge_of_its_own() -> None:
    """The memory that it shares with its judge would hold what the one before made of the same inputs."""
    device = Short(lambda *_: False)
    bench = Workbench(small_card("dot_product"), Precision.FP32, device, modelled=False, seed=5)
    two = bench.evaluate_all(candidates(bench)[:2], check_only=True)
    assert [one.status for one in two] == WHAT_BECOMES[:2]
    assert {one.seed for one in two} == {5}
    assert all(request.batch is None for request in device.runs)


@pytest.mark.slow
def test_those_behind_a_judge_that_fails_are_judged_one_by_one() -> None:
    """It may have been stopped, or failed by itself: nothing is known about the candidates that it did not reach."""
    device = Short(lambda *_: False)
    bench = Workbench(small_card("dot_product"), Precision.FP32, device, modelled=False)
    three = candidates(bench)[:3]
    trials = bench._trials
    run = device.run

    def killed(request: JudgeRequest, report: Path, limit_s: float, **options: Any) -> Ran:
        if request.batch is not None:
            batch = Path(request.batch)
            first = batch.read_text().partition("\n\n")[0]
            batch.write_text(first + "\n\n")
        return run(request, report, limit_s, **options)

    device.run = killed  # type: ignore[method-assign]
    assert [one.status for one in bench.evaluate_all(three, check_only=True)] == WHAT_BECOMES[:3]
    assert [request.batch is not None for request in device.runs] == [True, False, False]
    assert not trials._of_batch


@pytest.mark.slow
def test_of_many_each_has_its_own_limit() -> None:
    """The judge of both may take as long as both, but neither may take the other's time."""
    device = Short(lambda *_: False)
    bench = Workbench(small_card("dot_product"), Precision.FP32, device, modelled=False)
    right, _, _, _, _, again = candidates(bench)
    trials = []
    for candidate, limit_s in ((right, 1e-6), (again, 600.0)):
        build = bench._builder.build(candidate)
        trials.append(replace(bench._trials.verifying([str(build.worker)], 5), limit_s=limit_s))
    with bench._trials.together(trials):
        assert list(bench._trials._of_batch) == [bench._trials.request(trials[1])]


@pytest.mark.slow
def test_who_does_not_come_up_behind_others_is_judged_alone() -> None:
    """What was judged before it may have left a GPU that makes no context for a moment."""
    device = Short(lambda *_: False)
    bench = Workbench(small_card("dot_product"), Precision.FP32, device, modelled=False)
    three = candidates(bench)[:3]
    run = device.run

    def not_up(request: JudgeRequest, report: Path, limit_s: float, **options: Any) -> Ran:
        if request.batch is not None:
            batch = Path(request.batch)
            first, *others = batch.read_text().split("\n\n")
            others[0] = "\n".join(["--candidate", "false", *others[0].split("\n")[2:]])
            batch.write_text("\n\n".join([first, *others]))
        return run(request, report, limit_s, **options)

    device.run = not_up  # type: ignore[method-assign]
    assert [one.status for one in bench.evaluate_all(three, check_only=True)] == WHAT_BECOMES[:3]
    assert [request.batch is not None for request in device.runs] == [True, False]


class Neighboured(CpuDevice):
    """A device that stands for a GPU beside others: what is run on it may be asked to be quiet."""

    has_debug_build = False
    shares_driver = True

    def __init__(self) -> None:
        super().__init__()
        self.asked_for: list[bool] = []

    def run(self, request: JudgeRequest, report: Path, limit_s: float, **options: Any) -> Ran:
        """A run of the CPU device."""
        ran, gate = super().run(request, report, limit_s, **options), options.get("gate")
        self.asked_for.append(options.get("quiet", False) or (gate is not None and gate.quiet))
        return ran


@pytest.mark.slow
@pytest.mark.parametrize(("taken", "quiet"), [("2 << 20", [False, True, True]), ("1 << 20", [False, False])])
def test_who_asks_the_driver_for_much_has_the_machine_alone(taken: str, quiet: list[bool]) -> None:
    """It is measured again where that was seen for the first time, and the next candidate of the task is at once."""
    device = Neighboured()
    bench = Workbench(small_card("dot_product"), Precision.FP32, device, modelled=False, calls=2)
    code = bench.baseline.code.rstrip().removesuffix("}")
    code += f"    float* more = nullptr;\n    cudaMallocAsync(&more, {taken}, 0);\n    cudaFree(more);\n}}\n"
    for text in (code, code + "// another text\n"):
        candidate = Candidate("dot_product", Precision.FP32, text, bench.baseline.command)
        assert bench.evaluate(candidate).correct
    assert device.asked_for == quiet


@pytest.mark.slow
def test_of_many_who_asks_for_much_alone_is_measured_again() -> None:
    """What one judge reported about the others still holds: they are not measured again."""
    device = Neighboured()
    bench = Workbench(small_card("dot_product"), Precision.FP32, device, modelled=False, calls=2)
    code = bench.baseline.code.rstrip().removesuffix("}")
    much, little = (
        f"{code}    float* more = nullptr;\n    cudaMallocAsync(&more, {taken}, 0);\n    cudaFree(more);\n}}\n"
        for taken in ("2 << 20", "1 << 20")
    )
    for again in range(2):
        both = [
            Candidate("dot_product", Precision.FP32, f"{text}// {again}\n", bench.baseline.command)
            for text in (much, little)
        ]
        assert all(one.correct for one in bench.evaluate_all(both))
    assert device.asked_for == [False, True] * 2


@pytest.mark.slow
def test_a_baseline_is_timed_alone() -> None:
    """What `baselines --calls` asks of the judge on a GPU; the CPU device times no baseline by itself."""
    bench = Workbench(small_card("dot_product"), Precision.FP32, CpuDevice(), modelled=False)
    bench.build_shared()
    for seed in range(4):  # by which is drawn who begins
        told = bench._trials.run(Trial(JudgeRequest(seed=seed, calls=20, baseline_only=True), bench.card.cases, 300))
        assert told.status is Status.CORRECT, told.detail
        assert [len(times) for times in told.baseline_us.values()] == [20] * len(told.baseline_us) != []
