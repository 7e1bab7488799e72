"""What outputs are held against: a reference in Python, in a process of its own, or the baseline's own output."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from plain_device import PlainCpuDevice

from cudamaster.core.errors import BaselineError, CardError, ReferenceFailed
from cudamaster.core.values import Candidate, Precision, Status, Verdict
from cudamaster.devices.choose import choose
from cudamaster.devices.judge_request import JudgeRequest
from cudamaster.devices.protocol import Device
from cudamaster.judging.judge_process import Trial
from cudamaster.judging.reference_server import _normwise
from cudamaster.judging.verdicts import Judgement
from cudamaster.tasks import cards, harness, truth
from cudamaster.workbench.evaluation import Workbench

# An output in double and one of integers, an input that is changed in place, and a scalar that no float holds exactly.
CARD = """
id: 1
name: {name}
title: Mix
category: dense
summary: Adds, counts and moves on.
formula: z[i] = x[i] + alpha * y[i]; above[i] = x[i] > y[i]; y[i] = y[i] + 1
sizes: {{N: null, mode: 0, alpha: 0.1}}
parameters:
  - {{name: x, type: T, role: input, length: N, meaning: one}}
  - {{name: y, type: T, role: inout, length: N, meaning: another}}
  - {{name: z, type: T, role: output, length: N, meaning: sums{bounds}}}
  - {{name: above, type: int, role: output, length: N, meaning: where x is above y}}
  - {{name: N, type: int, meaning: elements}}
  - {{name: mode, type: int, meaning: what goes wrong}}
  - {{name: alpha, type: float, meaning: a factor}}
inputs: ["uniform(x, -1, 1)", "uniform(y, -1, 1)"]
sweep: [{{N: 3000}}]
verify: [{{N: [1, 33]}}]
held_out: [{{N: [2, 50], mode: [7, 9], alpha: [-2.0, 2.0]}}]
held_out_large: [{{N: [2900, 3000], mode: [7, 9], alpha: [-2.0, 2.0]}}]
weight: N
floor: {{bytes_read: 8 * N, bytes_written: 12 * N, operations: 3 * N}}
precisions: [fp32]
truth: {truth}
"""
KERNEL = """
#include <cuda_runtime.h>
__global__ void mix(const float* x, float* y, float* z, int* above, int N, int mode, float alpha, int call) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    float sum = x[i] + alpha * y[i];
    BODY
    above[i] = x[i] > y[i];
    y[i] = mode == 3 ? 1.0f : y[i] + 1.0f;
}
extern "C" void NAME(const float* x, float* y, float* z, int* above, int N, int mode, float alpha) {
    STATE
    mix<<<(N + 127) / 128, 128>>>(x, y, z, above, N, mode, alpha, call);
}
"""
# In mode 1 the last sum stays unwritten, in mode 2 each call gives another, in mode 3 none depends on the inputs.
BASELINE = """
    if (mode == 1 && i == N - 1) return;
    z[i] = mode == 2 ? sum * (1 + 0.01f * call) : mode == 3 ? 7.0f : sum;
    if (mode == 3) { above[i] = 5; y[i] = 1.0f; return; }
"""
# In mode 4 one sum is wrong, in mode 5 one count, in mode 6 all sums by 2^-14, and in mode 3 it is like the baseline.
TRIED = """
    z[i] = mode == 3 ? 7.0f : mode == 6 ? sum * 1.00006103515625f : sum + (mode == 4 && i == N - 7 ? 0.5f : 0);
    if (mode == 3) { above[i] = 5; y[i] = 1.0f; return; }
    if (mode == 5 && i == N / 2) { above[i] = 9; y[i] += 1.0f; return; }
"""
NUMPY = "def reference(x, y, alpha, N):\n    assert x.dtype == 'float64'\n    return y + 1, x + alpha * y, x > y\n"
ALPHA = 0.100000001490116  # 0.1 as a float
TORCH = """
import torch
ARRAYS = 'torch'
def reference(x, y, alpha):
    return {'z': x + alpha * y, 'y': y + 1, 'above': torch.gt(x, y)}
"""


class Mix:
    """One such task with a candidate; everything is built once, since a reference in Python is in no executable."""

    def __init__(self, folder: Path, truth: str, bounds: str = "", device: Device | None = None) -> None:
        self.name, self.folder = f"mix_{truth}", folder
        for part in ("tasks", "fp32", "reference"):
            (folder / part).mkdir(exist_ok=True)
        self.path = folder / "tasks" / f"{self.name}.yaml"
        self.path.write_text(CARD.format(name=self.name, truth=truth, bounds=bounds))
        (folder / "fp32" / f"{self.name}.cu").write_text(self._kernel(BASELINE, "", "static int call; ++call;"))
        self.reference = folder / "reference" / f"{self.name}.py"
        if truth == "python":
            self.reference.write_text(NUMPY)
        self.card = cards.load(str(self.path))
        self.bench = Workbench(self.card, Precision.FP32, device or PlainCpuDevice(), modelled=False, seed=11)
        code = self._kernel(TRIED, "_optimized", "int call = 0;")
        self.candidate = Candidate(self.name, Precision.FP32, code, self.bench.baseline.command)

    def _kernel(self, body: str, ending: str, state: str) -> str:
        return KERNEL.replace("BODY", body).replace("NAME", self.name + ending).replace("STATE", state)

    def judged(self, *, N: int = 33, mode: int = 0, options: Sequence[str] = (), alone: bool = False) -> Judgement:
        """The judgement on the candidate, or on the baseline alone, in one case."""
        case = self.card.case({"N": N, "mode": mode}).model_copy(update={"held_out": True})
        build = self.bench._builder.built(self.candidate)
        request = JudgeRequest(candidate=(str(build.worker),), cases="none", seed=3, calls=0, others=tuple(options))
        return self.bench._trials.run(Trial(request.of_baseline if alone else request, [case], 60))

    def evaluated(self) -> Verdict:
        """The verdict on the candidate."""
        return self.bench.evaluate(self.candidate)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Mix:
    return Mix(tmp_path_factory.mktemp("python"), "python")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Mix:
    return Mix(tmp_path_factory.mktemp("own"), "baseline", ", sound: 0.001")


def test_a_reference_in_python_judges_all_cases(python: Mix) -> None:
    """The listed ones, held-out ones and timed calls; the verdict says whose word it is."""
    python.reference.write_text(NUMPY)
    verdict = python.evaluated()
    assert verdict.status is Status.CORRECT, verdict.log
    assert any("held out" in case.label for case in verdict.cases)
    assert verdict.notes == ("truth: reference/mix_python.py (Python)",)
    assert "reference in Python (reference/mix_python.py)" in python.card.describe(Precision.FP32)


@pytest.mark.parametrize("options", [(), ("--oracle-elements", "8")], ids=["all", "sample"])
@pytest.mark.parametrize(("mode", "wrong"), [(4, "z: 1 of 3000"), (5, "above: 1 of 3000"), (6, "z: ")])
def test_what_is_wrong_is_found(python: Mix, own: Mix, mode: int, wrong: str, options: tuple[str, ...]) -> None:
    """By both truths, of all elements and where the reference is asked about a few."""
    python.reference.write_text(NUMPY)
    for task in (python, own):
        assert task.judged(N=3000, options=options).status is Status.CORRECT
        judged = task.judged(N=3000, mode=mode, options=options)
        assert (judged.status, wrong in judged.detail) == (Status.WRONG, True), judged


def test_it_gets_what_the_wrapper_gets(python: Mix) -> None:
    """A scalar as the float that it is; what it does to its arguments is its own business; a scale may be given."""
    python.reference.write_text(
        f"def reference(x, y, N, alpha, mode):\n    assert abs(alpha - {ALPHA}) < 1e-15 and (N, mode) == (33, 0)\n"
        "    z = x + alpha * y\n    above = x > y\n    y += 1\n    x[:] = 0\n"
        "    return {'z': {'value': z, 'scale': abs(z) + 1e-3}, 'above': above, 'y': y}\n"
    )
    assert python.judged().status is Status.CORRECT


def test_tensors(python: Mix) -> None:
    pytest.importorskip("torch")
    python.reference.write_text(TORCH)
    assert python.judged().status is Status.CORRECT
    assert python.judged(mode=4).status is Status.WRONG


@pytest.mark.parametrize(
    ("body", "why", "line"),
    [
        ("    return 1 / 0", "ZeroDivisionError: division by zero", 2),
        ("    return x, y", "it returned 2 values, and the outputs are y, z, above", None),
        ("    return y, x[:5], x > y", "z has the shape [5], and has to have [33]", None),
        ("    return y, x.astype('f4'), x > y", "z is of float32: compute in float64", None),
        (
            "    x[4] = float('nan')\n    return y, x, x > y",
            "z is NaN at 1 of 33 elements",
            None,
        ),
        (
            "    import numpy as np\n    return {'z': {'value': x, 'scale': abs(x) + np.inf}, 'y': y, 'above': x > y}",
            "the scale of z is inf somewhere",
            None,
        ),
        ("    import os; os.kill(os.getpid(), 9)", "its process was killed by signal 9", None),
        ("    raise SystemExit(3)", "SystemExit: 3", 2),
        ("    return x +", "SyntaxError: invalid syntax", 2),
        ("    import time; time.sleep(30)", "it took longer than 0.5 s", None),
    ],
)
def test_a_reference_that_fails_is_named(python: Mix, body: str, why: str, line: int | None) -> None:
    """With what is wrong and where; the kernel, which is wrong as well, is not blamed."""
    python.reference.write_text(f"def reference(x, y):\n{body}\n")
    began = time.monotonic()
    with pytest.raises(ReferenceFailed) as failed:
        python.judged(mode=4, options=("--reference-limit", "0.5") if "sleep" in body else ())
    assert time.monotonic() - began < 10
    assert f"The reference of mix_python failed: {why}" in failed.value.reason
    if line is not None:
        assert f"({python.reference}, line {line})" in failed.value.reason
    assert "no kernel is to blame" in failed.value.fix


def test_a_candidate_beside_which_a_reference_is_killed_is_at_fault(python: Mix) -> None:
    """It may have taken all memory. Without the candidate the reference answers, so that is no fault of its own."""
    worker = str(python.bench._builder.built(python.candidate).worker)
    python.reference.write_text(f"""
import os, subprocess
def reference(x, y, alpha, N):
    if subprocess.run(["pgrep", "-f", "^{worker}"], stdout=subprocess.DEVNULL).returncode == 0:
        os.kill(os.getpid(), 9)
    return y + 1, x + alpha * y, x > y
""")
    judged = python.judged()
    assert judged.status is Status.FAULT
    assert judged.detail.startswith("with this candidate, and not without it: The reference of mix_python failed")


def test_one_process_of_it_serves_many_candidates(python: Mix) -> None:
    """A judge of many keeps it: the file is loaded once."""
    loaded = python.folder / "loaded"
    loaded.unlink(missing_ok=True)
    python.reference.write_text(f"with open({str(loaded)!r}, 'a') as file:\n    file.write('+')\n{NUMPY}")
    bench = Workbench(python.card, Precision.FP32, PlainCpuDevice(), modelled=False)
    other = replace(python.candidate, code=python.candidate.code.replace("sum + (", "2 * sum + ("))
    verdicts = bench.evaluate_all([python.candidate, other], check_only=True)
    assert [one.status for one in verdicts] == [Status.CORRECT, Status.WRONG]
    assert loaded.read_text() == "+"


def test_another_reference_is_another_verdict_and_no_other_executable(python: Mix) -> None:
    """The keys of verdicts hold the Python file, those of what is built do not."""
    python.reference.write_text(NUMPY)
    bench = Workbench(python.card, Precision.FP32, PlainCpuDevice(), modelled=False)
    before = bench.key(python.candidate), bench._builder.judge(), bench._builder.executable(python.candidate)
    python.reference.write_text(f"{NUMPY}# the same\n")
    after = bench.key(python.candidate), bench._builder.judge(), bench._builder.executable(python.candidate)
    assert before[0] != after[0]
    assert before[1:] == after[1:]
    python.reference.unlink()
    with pytest.raises(CardError, match=r"mix_python\.py"):
        bench.key(python.candidate)


def test_the_baseline_may_be_the_truth(own: Mix) -> None:
    """The verdict says so, and which bounds are wider than usual."""
    verdict = own.evaluated()
    assert verdict.status is Status.CORRECT, verdict.log
    (note,) = verdict.notes
    assert note.startswith("truth: the baseline's own output, no independent reference; wider bounds: in z, ")
    assert "0.001 of the scale (0.0001 by default)" in note
    assert next(p for p in own.card.parameters if p.name == "z").ulps == "256"
    assert next(p for p in own.card.parameters if p.name == "above").check == "exact"
    assert "the baseline's own output" in own.card.describe(Precision.FP32)


def test_sizes_of_doubles_have_no_square_that_is_too_large() -> None:
    value = np.array([3e200, -4e200, np.inf])
    assert np.allclose(_normwise(value, np.array([0, 1, 2])) / 1e200, [12.5**0.5, 4, 12.5**0.5])
    assert _normwise(np.zeros(2), np.array([1])) == 0


def test_a_baseline_of_a_low_precision_has_bounds_of_it() -> None:
    """Its intermediate results were rounded to that type; a T is of it if the task has no other precision."""

    def ulps(kind: str, precisions: list[str], of: str = "baseline") -> str:
        fields = {"truth": of, "precisions": precisions, "parameters": [{"role": "output", "type": kind}]}
        return str(truth.with_defaults(fields)["parameters"][0]["ulps"])

    assert [ulps("T", [each]) for each in ("fp32", "fp16", "bf16")] == ["256", "32768", "262144"]
    assert ulps("half", ["fp32"]) == "32768"
    assert ulps("T", ["fp32", "fp16"]) == "256"
    assert ulps("T", ["fp16"], "python") == "256"


@pytest.mark.parametrize(
    ("mode", "why"), [(1, "element 32 of z was never written"), (2, "two calls on the same inputs differ, by 0.0")]
)
def test_a_baseline_that_cannot_be_the_truth_is_named(own: Mix, mode: int, why: str) -> None:
    with pytest.raises(BaselineError) as failed:
        own.judged(mode=mode, alone=True)
    assert f"The baseline of mix_baseline cannot be its own reference: {why}" in failed.value.reason


def test_outputs_that_do_not_depend_on_inputs_are_named(own: Mix) -> None:
    assert any("does not depend on the inputs" in note for note in own.judged(mode=3).notes)
    assert own.judged().notes == ()


def test_elements_that_might_as_well_be_zero_are_named(python: Mix) -> None:
    python.reference.write_text(NUMPY.replace("x + alpha * y, x", "{'value': x + alpha * y, 'scale': 1e6 + x}, x"))
    assert any("for 100% of z, zeros would pass" in note for note in python.judged().notes)


def test_the_harness_of_one_file_says_what_it_needs(python: Mix, own: Mix) -> None:
    """Its command names the process of a reference in Python; the baseline needs none."""
    words = ("python3", "server.py", "my reference.py")
    text = harness.render(python.card, Precision.FP32, reference=words)
    assert "--reference python3 --reference server.py --reference 'my reference.py'" in text
    assert '#include "' + str(python.folder) not in text
    assert "Truth::kBaseline" in harness.render(own.card, Precision.FP32)


@pytest.mark.gpu
@pytest.mark.parametrize("truth", ["python", "baseline"])
def test_on_a_gpu(truth: str, tmp_path: Path) -> None:
    """All cases and timed calls; what is wrong among more elements than are asked about; a baseline with a gap."""
    task = Mix(tmp_path, truth, device=choose("cuda"))
    verdict = task.evaluated()
    assert verdict.status is Status.CORRECT, verdict.log
    assert verdict.score is not None
    assert task.judged(N=3_000_000, mode=4).status is Status.WRONG
    with pytest.raises(BaselineError):
        task.judged(mode=1, alone=True)
