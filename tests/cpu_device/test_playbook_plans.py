"""Paths of playbook kernels that only large matrices take, on small ones: they are right there too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cudamaster.core import resources
from cudamaster.core.values import Candidate, Precision, Status
from cudamaster.devices.cpu import CpuDevice
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench

STEP = "2_warpgroups_and_tensor_maps.cu"
# Whole numbers, so that every order of summing is exact.
MAIN = """
#include <cstdio>
#include <cstdlib>
#include <vector>
static int value(int i, int j) { return (i * 7 + j * 13) % 9 - 4; }
template <class Plan> static int differ(int M, int N, int K, int split, int blocks) {
    std::vector<__nv_bfloat16> a((size_t)M * K), b((size_t)K * N), c((size_t)M * N, __float2bfloat16(99.0f));
    for (int i = 0; i < M; ++i)
        for (int k = 0; k < K; ++k)
            a[(size_t)i * K + k] = __float2bfloat16((float)value(i, k));
    for (int k = 0; k < K; ++k)
        for (int j = 0; j < N; ++j)
            b[(size_t)k * N + j] = __float2bfloat16((float)value(k + 3, 2 * j));
    __nv_bfloat16 *A, *B, *C;
    cudaMalloc(&A, a.size() * 2);
    cudaMalloc(&B, b.size() * 2);
    cudaMalloc(&C, c.size() * 2);
    cudaMemcpy(A, a.data(), a.size() * 2, cudaMemcpyHostToDevice);
    cudaMemcpy(B, b.data(), b.size() * 2, cudaMemcpyHostToDevice);
    cudaMemcpy(C, c.data(), c.size() * 2, cudaMemcpyHostToDevice);
    if (!launch_hopper<Plan>(A, B, C, M, N, K, split, blocks) || cudaDeviceSynchronize() != cudaSuccess)
        return -1;
    cudaMemcpy(c.data(), C, c.size() * 2, cudaMemcpyDeviceToHost);
    int wrong = 0;
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j) {
            int sum = 0;
            for (int k = 0; k < K; ++k)
                sum += value(i, k) * value(k + 3, 2 * j);
            wrong += __bfloat162float(c[(size_t)i * N + j]) != __bfloat162float(__float2bfloat16((float)sum));
        }
    return wrong;
}
int main(int, char** words) {
    int numbers[5];
    for (int i = 0; i < 5; ++i)
        numbers[i] = std::atoi(words[i + 1]);
    int wrong = differ<PLAN>(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]);
    std::printf("%d wrong\\n", wrong);
    return wrong != 0;
}
"""
CASES = [  # rows, columns, of the inner dimension, parts of it, multiprocessors
    ("Wide", 520, 528, 136, 1, 4),  # two clusters make three by two tiles of theirs, the last ones in part
    ("Wide", 136, 264, 328, 1, 132),  # more steps than stages
    ("Square", 264, 264, 456, 1, 132),
    ("Split", 136, 136, 520, 4, 132),  # parts of different lengths
    ("Split", 264, 128, 192, 2, 132),
    ("Thin", 40, 264, 1032, 8, 132),
    ("Thin", 64, 128, 64, 1, 132),
]


@pytest.mark.slow(but=["Split-136x136x520-4"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{'x'.join(map(str, case[1:4]))}-{case[4]}")
def test_a_plan_is_right_on_small_matrices(case: tuple[str, int, int, int, int, int], tmp_path: Path) -> None:
    device = CpuDevice()
    text = (resources.package() / "playbook" / "matrix_mul" / "bf16" / STEP).read_text()
    compiled = device.compile(text + MAIN.replace("PLAN", case[0]), ["-O2"], "plan", tmp_path)
    assert compiled.object is not None, compiled.log
    linked = device.link([compiled.object], tmp_path / "plan")
    assert linked.object is not None, linked.log
    ran = device.execute([str(linked.object), *map(str, case[1:])], 120)
    assert ran.exit_code == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("precision", list(Precision))
def test_the_stream_of_large_matrices_is_right_on_small_ones(precision: Precision) -> None:
    """With its stages made small too, so that the ring goes around."""
    code = (resources.package() / "playbook" / "matrix_copy" / precision / "2_bulk_copies.cu").read_text()
    for large, small in (
        (r"kLarge = [^;]*", "kLarge = 1"),
        ("kStageBytes = 16384", "kStageBytes = 4096"),
        (r"processors \* kBlocksEach", "3"),
    ):
        code, changed = re.subn(large, small, code)
        assert changed == 1, large
    device = CpuDevice()
    bench = Workbench(cards.load("matrix_copy"), precision, device, calls=0)
    verdict = bench.evaluate(Candidate("matrix_copy", precision, code, device.default_command), check_only=True)
    assert verdict.status is Status.CORRECT, verdict.detail
