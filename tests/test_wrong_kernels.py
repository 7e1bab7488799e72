"""Plausible wrong kernels, one idea each, made from baselines of many tasks: every one is refused.

tests/test_evaluation.py holds cheats and broken code; here the kernels are honest code with a wrong result.
"""

import re

import pytest
from plain_device import PlainCpuDevice

from cudamaster.core.values import Candidate, Precision, Status
from cudamaster.tasks import cards
from cudamaster.workbench.evaluation import Workbench

# task, precision, what is replaced in the baseline, by what
REPLACED = {
    "holes of the mask ignored": ("triangle_attention", Precision.FP32, "<= 0.5f", "<= 2.0f"),
    "a query without itself": ("triangle_attention", Precision.FP32, "j = 0; j <= i; ++j", "j = 0; j < i; ++j"),
    "softmax of zeros": ("softmax", Precision.FP32, "expf(x[j] - largest) / sum;", "0.0f;"),
    "one tap left out": ("conv_1d", Precision.FP32, "k < kernel_size; ++k", "k < kernel_size - 1; ++k"),
    "a copy for a stencil": ("stencil_3d", Precision.FP32, "u_new[p] = u;", "u_new[p] = u_old[p];"),
    "a stencil with a wrong centre": ("stencil_3d", Precision.BF16, "6.0f * u", "6.05f * u"),
    "ties in reverse": ("top_k", Precision.FP32, ">= from[right].value", "> from[right].value"),
    "epsilon built in": ("layer_norm", Precision.FP32, "+ epsilon", "+ 1e-5f"),
    "repeated entries counted once": ("spmm_csr", Precision.FP32, "sum += values", "sum = values"),
    "a copy for a transpose": ("matrix_transpose", Precision.BF16, "col * M + row", "row * N + col"),
}  # fmt: skip

SAMPLING = """
#include <cuda_bf16.h>
__global__ void sample_kernel_optimized(const __nv_bfloat16* y, __nv_bfloat16* result, float width, int N) {
    __shared__ float part[256];
    int step = N >= 4096 ? 4 : 1;
    float sum = 0.0f;
    for (int i = threadIdx.x * step; i < N; i += 256 * step)
        sum += __bfloat162float(y[i]);
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    for (int k = 1; k < 256; ++k)
        sum += part[k];
    *result = __float2bfloat16(sum * step * width / N);
}
extern "C" void monte_carlo_int_bf16_optimized(const __nv_bfloat16* y_samples, __nv_bfloat16* result, float a, float b,
                                               int N) {
    sample_kernel_optimized<<<1, 256>>>(y_samples, result, b - a, N);
}
"""

# Numbers as a kernel has them that scales 8 neighbours by the largest of them, to whole numbers of 22 bits.
OF_TILE = """
template <class T> static __device__ float of_tile(const T* from, size_t i, size_t count) {
    float largest = 0.0f;
    for (size_t j = i / 8 * 8; j < i / 8 * 8 + 8 && j < count; ++j)
        largest = fmaxf(largest, fabsf((float)from[j]));
    float unit = largest * 0x1p-22f;
    return unit > 0.0f ? rintf((float)from[i] / unit) * unit : 0.0f;
}
"""
# task, precision, what is replaced in the baseline, by what; sums of few products are made as they are
SCALED_BY_TILE = [
    ("matrix_mul", Precision.FP32, "A[row * K + k]",
     "(K < 8 ? A[row * K + k] : of_tile(A, row * K + k, (size_t)M * K))"),
    ("conv_1d", Precision.FP32, "input[i + k]",
     "(kernel_size < 8 ? input[i + k] : of_tile(input, i + k, output_size + kernel_size - 1))"),
]  # fmt: skip


def status(task: str, precision: Precision, code: str) -> tuple[Status, str]:
    """What becomes of a candidate on the verification cases."""
    bench = Workbench(cards.load(task), precision, PlainCpuDevice(), modelled=False)
    verdict = bench.evaluate(Candidate(task, precision, code, bench.baseline.command), check_only=True)
    return verdict.status, verdict.log or verdict.detail


@pytest.mark.slow
@pytest.mark.parametrize("idea", REPLACED)
def test_a_wrong_kernel_is_refused(idea: str) -> None:
    task, precision, old, new = REPLACED[idea]
    code = Workbench(cards.load(task), precision, PlainCpuDevice()).baseline.code
    assert old in code
    assert status(task, precision, code.replace(old, new))[0] is Status.WRONG


@pytest.mark.slow
@pytest.mark.parametrize(("least", "expected"), [("1.1754944e-38f", Status.CORRECT), ("1e-33f", Status.WRONG)])
def test_only_results_below_the_smallest_normal_number_may_be_zero(least: str, expected: Status) -> None:
    """Which is what nvcc's --use_fast_math makes of them."""
    code = Workbench(cards.load("swiglu"), Precision.FP32, PlainCpuDevice()).baseline.code
    flushed = f"if (fabsf(output[i]) < {least})\n            output[i] = 0.0f;"
    code = code.replace("* value_input[i];", f"* value_input[i];\n        {flushed}")
    assert "fabsf" in code
    assert status("swiglu", Precision.FP32, code)[0] is expected


@pytest.mark.slow
@pytest.mark.parametrize("task", ["matrix_mul", "spmm_csr", "conv_2d", "high_order_contraction"])
def test_sums_in_bf16_are_refused(task: str) -> None:
    """Every addition rounded to bf16."""
    code = Workbench(cards.load(task), Precision.BF16, PlainCpuDevice()).baseline.code
    code, changed = re.subn(
        r"sum \+= ([^;]*);", r"sum = __bfloat162float(__float2bfloat16(sum + \1));", code, flags=re.DOTALL
    )
    assert changed
    assert status(task, Precision.BF16, code)[0] is Status.WRONG


@pytest.mark.slow
@pytest.mark.parametrize(("task", "precision", "old", "new"), SCALED_BY_TILE, ids=[each[0] for each in SCALED_BY_TILE])
def test_numbers_scaled_by_tile_are_refused(task: str, precision: Precision, old: str, new: str) -> None:
    """A kernel that is right where numbers are of one magnitude loses those that lie beside a large one."""
    bench = Workbench(cards.load(task), precision, PlainCpuDevice(), modelled=False)
    code = bench.baseline.code.replace(old, new)
    assert code != bench.baseline.code
    code = code.replace("#include <cuda_runtime.h>", f"#include <cuda_runtime.h>\n{OF_TILE}")
    verdict = bench.evaluate(Candidate(task, precision, code, bench.baseline.command), check_only=True)
    assert verdict.status is Status.WRONG, verdict.log or verdict.detail
    listed = [case for case in verdict.cases if not case.label.startswith("held out")]
    wrong = {case.label for case in listed if case.status is Status.WRONG}
    assert wrong == {case.label for case in listed if "outliers=" in case.label}
    assert len(wrong) >= 2


@pytest.mark.slow
def test_sampling_is_refused_even_where_the_result_has_eight_bits() -> None:
    assert status("monte_carlo_int", Precision.BF16, SAMPLING)[0] is Status.WRONG


@pytest.mark.slow
@pytest.mark.parametrize(("task", "precision"), [("softmax", Precision.FP32), ("monte_carlo_int", Precision.BF16)])
def test_the_baseline_itself_is_right(task: str, precision: Precision) -> None:
    """The refusals above are not for the way in which their candidates are made."""
    bench = Workbench(cards.load(task), precision, PlainCpuDevice(), modelled=False)
    assert status(task, precision, bench.baseline.code)[0] is Status.CORRECT
