"""Problems in KernelBench's form with PyTorch itself: read, imported, judged on the CPU device."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from plain_device import PlainCpuDevice

from cudamaster.build import eager
from cudamaster.cli import main
from cudamaster.core import resources
from cudamaster.core.errors import DeviceError
from cudamaster.core.values import Candidate, Precision, Status
from cudamaster.kernelbench import problem, suite_folder, writing
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench

EXAMPLES = Path(__file__).parent.parent / "examples" / "kernelbench"


def _why_not() -> str | None:
    try:
        eager.torch_of(sys.executable)
    except DeviceError as error:
        return error.reason
    return None


pytestmark = pytest.mark.skipif(_why_not() is not None, reason=f"needs PyTorch: {_why_not()}")

FAULTY = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((4,), 1e-4))
        self.norm = nn.BatchNorm1d(4)
        self.tiny = nn.Parameter(torch.rand(4))

    def forward(self, x, ignored, mask):
        return self.norm(x) * self.scale, torch.ones_like(x), x.masked_fill(mask > 0, 0.0) + self.tiny * 1e-9

def get_inputs():
    return [torch.rand(6, 4), torch.randn(6, 4), torch.tril(torch.ones(6, 4))]

def get_init_inputs():
    return []
"""
FIXED = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, double, n):
        return double.view(4, 6).sum(dim=n).half()

def get_inputs():
    return [torch.randn(24).half(), 1]

def get_init_inputs():
    return []
"""
RANDOM = FIXED.replace("double.view(4, 6).sum(dim=n)", "torch.dropout(double, 0.5, True)")
CHANGES = FIXED.replace("double.view(4, 6).sum(dim=n)", "double.relu_()")
BY_VALUE = FIXED.replace("double.view(4, 6).sum(dim=n)", "double[double > 0]")
BROKEN = FIXED.replace("sum(dim=n)", "sum(dim=m)")


def imported(folder: Path, *files: Path) -> dict[str, object]:
    words = ["import", "kernelbench", *map(str, files), "--into", str(folder), "--json"]
    told: dict[str, object] = json.loads(CliRunner().invoke(main, words).stdout)
    return told


def test_faults_are_named_and_what_makes_no_task_is_refused(tmp_path: Path) -> None:
    files = []
    texts = {"faulty": FAULTY, "fixed": FIXED, "random": RANDOM, "changes": CHANGES, "by_value": BY_VALUE,
             "broken": BROKEN}  # fmt: skip
    for name, text in texts.items():
        files.append(tmp_path / f"{name}.py")
        files[-1].write_text(text)
    told = imported(tmp_path / "suite", *files)
    faulty, fixed = told["tasks"]  # type: ignore[misc]
    kinds = [(one["kind"], one["words"]) for one in faulty["faults"]]
    assert ("unused input", "the input ignored changes nothing: no output depends on it") in kinds
    assert ("constant output", "output 1 depends on no input") in kinds
    assert any(kind == "near zero" and words.startswith("all elements of output 0") for kind, words in kinds)
    assert any(kind == "independent output" and "output 0 does not depend on the input mask" in words
               for kind, words in kinds)  # fmt: skip
    assert [words.split(" by ")[0] for kind, words in kinds if kind == "hardly depends"] == [
        "no output depends on tiny"
    ]  # fmt: skip
    # The state that training mode only writes is left out.
    card = cards.load(faulty["card"])
    assert [p.name for p in card.parameters] == [
        "x", "ignored", "mask", "scale", "tiny", "norm_weight", "norm_bias", "out0", "out1", "out2", "x_dim0",
        "ignored_dim1",
    ]  # fmt: skip
    # Three sizes are one where they have to be equal; a name that C has for itself is another.
    assert fixed["precision"] == "fp16"
    assert fixed["declaration"] == 'extern "C" void fixed_fp16_optimized(const __half* double_, __half* out)'
    reasons = [one["reason"] for one in told["left_out"]]  # type: ignore[attr-defined]
    assert "another result each time" in reasons[0]
    assert "changes one of its inputs" in reasons[1]
    assert "the shape of an output depends on the values of the inputs" in reasons[2]
    assert "NameError in line 7: name 'm' is not defined" in reasons[3]


def test_operators_are_those_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What PyTorch has a kernel for on a GPU is one operator; of a table only what is looked up is read."""
    monkeypatch.syspath_prepend(str(resources.bench() / "pytorch"))
    torch, counting = (importlib.import_module(name) for name in ("torch", "counting"))

    def counted(model: Any, *shapes: tuple[int, ...], **more: Any) -> Any:
        return counting.counted(model, [torch.empty(shape, device="meta", **more) for shape in shapes])

    steps, batch, width = 300, 4, 64
    recurrent = counted(torch.nn.LSTM(width, width, device="meta"), (steps, batch, width))
    (lstm,) = (one for one in recurrent.operators if one.products)
    assert (lstm.name, lstm.operations) == ("lstm", steps * batch * 2 * (2 * width) * (4 * width))
    assert not recurrent.unknown
    assert {"addmm", "tanh"} < set(recurrent.names)  # by which is told what rounding may do
    lookup = counted(torch.nn.Embedding(10**6, 128, device="meta"), (64,), dtype=torch.int64)
    assert [(one.read, one.written) for one in lookup.operators] == [(64 * 128 * 4 + 64 * 8, 64 * 128 * 4)]
    monkeypatch.setattr(counting, "_WHOLE", ())
    assert "lstm falls apart" in counted(torch.nn.LSTM(8, 8, device="meta"), (99, 1, 8)).unknown


def test_from_a_problem_to_verdicts(tmp_path: Path) -> None:
    """A right kernel passes, one that leaves a part out does not, and the baseline is itself with P = 1."""
    file = EXAMPLES / "small_conv.py"
    folder = suite_folder.opened(tmp_path / "suite", None)
    card = writing.write(problem.read(file), folder, "small_conv", 1).card
    # A convolution with stride 2: the sizes of the result follow from those of the image.
    assert next(p.shape for p in card.parameters if p.name == "out") == (
        "x_dim0", "16", "(x_dim2 + 1) // 2", "(x_dim3 + 1) // 2",
    )  # fmt: skip
    bench = Workbench(card, Precision.FP32, PlainCpuDevice())
    right = (EXAMPLES / "kernels" / "small_conv.cu").read_text()
    wrong = right.replace("sum = bias[filter]", "sum = 0")
    assert wrong != right
    statuses = {}
    for name, code in (("right", right), ("wrong", wrong)):
        candidate = Candidate(card.name, Precision.FP32, code, bench.device.default_command)
        verdict = bench.evaluate(candidate, check_only=True)
        statuses[name] = verdict.status
        assert any("small_conv.py (Python)" in note for note in verdict.notes), verdict
    assert statuses == {"right": Status.CORRECT, "wrong": Status.WRONG}
    own = bench.evaluate(bench.baseline)
    assert (own.status, own.score) == (Status.CORRECT, 1.0), own.detail
    assert own.modelled is not None
    (timed,) = (case for case in own.cases if case.sweep)
    assert timed.modelled is not None
    assert timed.modelled.baseline_us > 2 * 9  # two operators, each launched
    assert "eager PyTorch" in bench.findings(bench.baseline, own).note
