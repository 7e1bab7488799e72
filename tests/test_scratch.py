"""Scratch memory among a wrapper's parameters: nobody compares it, and nothing stays there from call to call."""

from pathlib import Path

import pytest
from attacks import attack

from cudamaster.build.building import Builder
from cudamaster.core.values import Candidate, Precision, Status
from cudamaster.devices.choose import choose
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench

CARD = """
id: 1
name: total
title: Total
category: dense
summary: Sums a vector.
formula: y[0] = sum of x
sizes: {N: null, parts: 64}
fixed: [parts]
parameters:
  - {name: x, type: T, role: input, length: N, meaning: vector}
  - {name: partial, type: double, role: scratch, length: parts, meaning: sums of parts}
  - {name: y, type: double, role: output, length: 1, meaning: its sum}
  - {name: N, type: int, meaning: elements}
  - {name: parts, type: int, meaning: parts}
inputs: ["uniform(x, -1, 1)"]
sweep: [{N: 5000}]
verify: [{N: [1, 33]}]
held_out: [{N: [1, 50]}]
held_out_large: [{N: [4000, 5000]}]
weight: N
floor: {bytes_read: 4 * N, bytes_written: "8", operations: N}
precisions: [fp32]
truth: TRUTH
"""
KERNEL = """
#include <cuda_runtime.h>
__global__ void part(const float* x, double* partial, int N) {
    double sum = 0;
    for (int i = threadIdx.x; i < N; i += blockDim.x) sum += x[i];
    partial[threadIdx.x] = sum;
}
__global__ void whole(const double* partial, double* y, int parts) {
    double sum = 0;
    for (int i = 0; i < parts; ++i) sum += partial[i];
    *y = sum;
}
extern "C" void total(const float* x, double* partial, double* y, int N, int parts) {
    part<<<1, parts>>>(x, partial, N);
    whole<<<1, 1>>>(partial, y, parts);
}
"""


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> cards.TaskCard:
    folder = tmp_path_factory.mktemp("scratch")
    for part, name, text in (
        ("tasks", "total.yaml", CARD.replace("TRUTH", "c")),
        ("fp32", "total.cu", KERNEL),
        ("reference", "total.h", """
#pragma once
#include "mskb/expected.h"
template <class T> void total_reference(const T* x, mskb::Expected& y, int N, int) {
    double sum = 0, sizes = 0;
    for (int i = 0; i < N; ++i) sum += x[i], sizes += x[i] < 0 ? -x[i] : x[i];
    for (size_t j = 0; j < y.wanted.size(); ++j) y.set(j, sum, sizes);
}
"""),
    ):  # fmt: skip
        (folder / part).mkdir()
        (folder / part / name).write_text(text)
    return cards.load(str(folder / "tasks" / "total.yaml"))


def test_what_a_call_before_may_have_left_there_cannot_be_read(task: cards.TaskCard) -> None:
    device = choose()
    if not device.emulated:
        pytest.skip("on a GPU nobody sees what a kernel reads")
    bench = Workbench(task, Precision.FP32, device, modelled=False)
    code = bench.baseline.code.replace("partial[threadIdx.x] = sum", "if (partial[0] != 1) partial[threadIdx.x] = sum")
    verdict = bench.evaluate(Candidate("total", Precision.FP32, code, bench.baseline.command), check_only=True)
    assert (verdict.status, "nothing has written" in verdict.detail) == (Status.FAULT, True), verdict.detail


def test_it_has_bounds(task: cards.TaskCard, tmp_path: Path) -> None:
    body = "cudaMemset(partial + parts, 0, sizeof *partial);"
    seen = attack(Builder(task, Precision.FP32, choose()), tmp_path, body, words=["--in-place"])
    assert "partial was written 0 bytes past its end" in seen.judgement.detail


KEEPER = """
static double* before = nullptr;
static int calls = 0;
double here = 0, there = 0;
cudaMemcpy(&here, partial, sizeof here, cudaMemcpyDeviceToHost);
if (before != nullptr) cudaMemcpy(&there, before, sizeof there, cudaMemcpyDeviceToHost);
std::fprintf(stderr, "call %d %s\\n", ++calls, here == 42 || there == 42 ? "KEPT" : "gone");
before = partial;
struct Left {
    double* at;
    ~Left() { double mark = 42; cudaMemcpy(at, &mark, sizeof mark, cudaMemcpyHostToDevice); }
} left{partial};
"""


def test_nothing_stays_there(task: cards.TaskCard, tmp_path: Path) -> None:
    """Neither where a call works nor where the one before it did: in shared memory, as on a GPU; past the guards."""
    builder = Builder(task, Precision.FP32, choose())
    seen = attack(builder, tmp_path, KEEPER, calls=12, words=["--in-place"], more=["--lead"])
    assert seen.judgement.status is Status.CORRECT, seen.judgement.detail
    assert seen.ran.stderr.count("gone") > 12
    assert "KEPT" not in seen.ran.stderr
