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
def test_sampling_is_refused_even_where_the_result_has_eight_bits() -> None:
    assert status("monte_carlo_int", Precision.BF16, SAMPLING)[0] is Status.WRONG


@pytest.mark.slow
@pytest.mark.parametrize(("task", "precision"), [("softmax", Precision.FP32), ("monte_carlo_int", Precision.BF16)])
def test_the_baseline_itself_is_right(task: str, precision: Precision) -> None:
    """The refusals above are not for the way in which their candidates are made."""
    bench = Workbench(cards.load(task), precision, PlainCpuDevice(), modelled=False)
    assert status(task, precision, bench.baseline.code)[0] is Status.CORRECT
