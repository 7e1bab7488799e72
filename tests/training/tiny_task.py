"""A task that is judged in seconds on the CPU device, and an export of three kernels of it, for tests of the stages."""

from __future__ import annotations

import json
import re
from pathlib import Path

from cudamaster.agents.contrast import Exemplar
from cudamaster.core import resources
from cudamaster.core.values import Candidate, Precision, Verdict
from cudamaster.devices.choose import choose
from cudamaster.strategies.frame import brief_of
from cudamaster.tasks import cards
from cudamaster.tasks.cards import TaskCard
from cudamaster.training import prompts
from cudamaster.training.kernels import JudgedKernel, Provenance, gpu_of
from cudamaster.training.prompts import Form
from cudamaster.workbench.evaluation import Workbench

NAME = "tiny_relu"
FAST = """\
#include <cuda_runtime.h>
__global__ void k(float* o, const float* x, int N) {
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i < N) o[i] = fmaxf(0.0f, x[i]);
}
extern "C" void tiny_relu_optimized(float* o, const float* x, int N) { k<<<(N + 127) / 128, 128>>>(o, x, N); }
"""
SLOW = """\
#include <cuda_runtime.h>
__global__ void k(float* o, const float* x, int N) {
    for (int i = threadIdx.x; i < N; i += 64) o[i] = fmaxf(0.0f, x[i]);
}
extern "C" void tiny_relu_optimized(float* o, const float* x, int N) { k<<<1, 64>>>(o, x, N); }
"""
_BASELINE = """\
#include <cuda_runtime.h>

__global__ void tiny_relu_kernel(float* output, const float* input, int N) {
    for (int i = threadIdx.x; i < N; i += 32)
        output[i] = fmaxf(0.0f, input[i]);
}

extern "C" void tiny_relu(float* output, const float* input, int N) { tiny_relu_kernel<<<1, 32>>>(output, input, N); }
"""
_SMALLER = {
    r"^id: .*": "id: 900\nprecisions: [fp32]",
    r"N: \[1024, 4096, .*\]": "N: [256, 1024]",
    r"N: \[1, 2, 3, .*\]": "N: [1, 33]",
    r"N: \[7, 1021\], magnitude: .*": "N: [7]}",
    r"N: \[1, 20000\]": "N: [1, 200]",
    r"N: \[180000, 262144\]": "N: [900, 1024]",
}


def make(folder: Path) -> Path:
    """The card of the task in a folder of its own: ReLU with small cases, and a baseline of one warp."""
    card, reference = (
        (resources.bench() / name).read_text(encoding="utf-8").replace("relu", NAME)
        for name in ("tasks/relu.yaml", "reference/relu.h")
    )
    for before, after in _SMALLER.items():
        card, found = re.subn(before, after, card, flags=re.M)
        assert found == 1, before
    for name, text in (("tasks/@.yaml", card), ("fp32/@.cu", _BASELINE), ("reference/@.h", reference)):
        path = folder / name.replace("@", NAME)
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    return folder / "tasks" / f"{NAME}.yaml"


def bench(card: TaskCard) -> Workbench:
    """A workbench of the task on the CPU device."""
    return Workbench(card, Precision.FP32, choose("cpu"), seed=1)


def judged(where: Workbench, code: str | None) -> JudgedKernel:
    """A kernel with its verdict; without code, the baseline."""
    candidate = where.baseline if code is None else Candidate(NAME, Precision.FP32, code, where.baseline.command)
    return kernel_of(where, candidate, where.evaluate(candidate))


def kernel_of(where: Workbench, candidate: Candidate, verdict: Verdict) -> JudgedKernel:
    card, is_baseline = where.card, candidate.id == where.baseline.id
    about = Provenance(
        card.suite, card.category, card.hash, "test", "a test", is_baseline=is_baseline, gpu=gpu_of(where.hardware)
    )
    return JudgedKernel(candidate, verdict, about)


def export(folder: Path, card: Path) -> None:
    """A folder as `cudamaster export` writes it, as far as the stages read it: a pair with FAST, and three kernels."""
    where = bench(cards.load(str(card)))
    baseline, fast, slow = (judged(where, code) for code in (None, FAST, SLOW))
    assert all(one.verdict.correct for one in (baseline, fast, slow))
    folder.mkdir()
    write_kernels(folder, baseline, fast, slow)
    shown = Exemplar(baseline.candidate, baseline.verdict, 1.0, is_baseline=True)
    (asked,) = prompts.prompt(Form.COMPACT, brief_of(where), [shown])
    about = fast.provenance
    row = {
        "prompt": asked.content,
        "completion": prompts.completion(Form.COMPACT, "", FAST),
        "provenance": {
            "suite": about.suite, "task": NAME, "precision": "fp32", "card_hash": about.card_hash, "gpu": about.gpu,
            "harness": about.harness, "kernel": fast.candidate.id,
        },
    }  # fmt: skip
    (folder / "sft.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")


def export_both(one: Path, folder: Path) -> None:
    """As `one`, with a second pair from the same prompt: SLOW."""
    folder.mkdir()
    (folder / "kernels.jsonl").write_bytes((one / "kernels.jsonl").read_bytes())
    row = json.loads((one / "sft.jsonl").read_text(encoding="utf-8"))
    other = row | {"completion": prompts.completion(Form.COMPACT, "", SLOW)}
    (folder / "sft.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(other)}\n", encoding="utf-8")


def write_kernels(folder: Path, *kernels: JudgedKernel) -> None:
    lines = "".join(json.dumps(one.to_json()) + "\n" for one in kernels)
    (folder / "kernels.jsonl").write_text(lines, encoding="utf-8")
