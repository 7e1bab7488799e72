"""Held-out tasks are split off, and no near copy of theirs stays behind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from judged_kernels import baseline, kernel, of_task, refused

from cudamaster.core.errors import UsageError
from cudamaster.training.kernels import JudgedKernel
from cudamaster.training.splitting import Split, split

RELU = """
__global__ void k(float* y, const float* x, int n) {
    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        y[i] = fmaxf(x[i], 0);
}
extern "C" void relu_optimized(float* y, const float* x, int n) {
    k<<<(n + 255) / 256, 256>>>(y, x, n);
}
"""
OTHER = "__global__ void s(int* data, int n) { while (n >>= 1) __syncthreads(); data[0] = atomicAdd(data, n); }\n"


def its_baseline(of: JudgedKernel) -> JudgedKernel:
    return replace(of, provenance=replace(of.provenance, is_baseline=True))


HELD_OUT = of_task(kernel(0), "relu", RELU)
KERNELS = (baseline(), kernel(0), HELD_OUT)


def apart(kernels: tuple[JudgedKernel, ...], *names: str, **more: object) -> Split:
    return split(kernels, names, (), **{"threshold": 0.7, **more})


def test_without_a_hold_out_all_is_to_train_on() -> None:
    assert apart(KERNELS) == Split(KERNELS)


def test_tasks_are_held_out_by_name_and_by_category() -> None:
    for parts in (apart(KERNELS, "re*"), split(KERNELS, (), ("activation",), threshold=0.7)):
        assert parts.held_out == (HELD_OUT,)
        assert parts.train == (baseline(), kernel(0))
        assert parts.tasks == ("relu",)


def test_a_near_copy_is_on_neither_side() -> None:
    copy = of_task(kernel(0), "gelu", RELU.replace("y", "out").replace("fmaxf", "fminf"))
    far = of_task(kernel(0), "gelu", OTHER)
    parts = apart((*KERNELS, copy, far), "relu")
    assert [one for one, _ in parts.near] == [copy]
    assert far in parts.train
    assert copy not in (*parts.train, *parts.held_out)


def test_a_near_copy_of_a_refused_kernel_is_none_to_train_on_either() -> None:
    copy = of_task(kernel(0), "gelu", RELU + "\n")
    parts = apart((kernel(0), refused(HELD_OUT), copy), "relu")
    assert parts.train == (kernel(0),)


def test_what_answers_to_a_near_copy_is_left_out_too() -> None:
    """Every prompt for it would show the copy."""
    begin = its_baseline(of_task(kernel(0), "gelu", RELU.replace("fmaxf", "tanhf")))
    better = of_task(kernel(0), "gelu", OTHER)
    parts = apart((kernel(0), HELD_OUT, begin, better), "relu")
    assert [one for one, _ in parts.near] == [begin]
    assert parts.beside == (better,)
    assert parts.train == (kernel(0),)


def test_near_copies_can_be_an_error_that_names_them() -> None:
    copy = of_task(kernel(0), "gelu", RELU + "// mine\n")
    with pytest.raises(UsageError, match=r"gelu \(fp32, .*\) and relu \(fp32, .*\), 1\.00"):
        apart((*KERNELS, copy), "relu", refuse=True)
    assert apart(KERNELS, "relu", refuse=True).train


@pytest.mark.parametrize(
    ("names", "categories", "said"),
    [
        (("rely",), (), "Did you mean relu"),
        ((), ("sparsed",), "Did you mean sparse"),
        (("*",), (), "Nothing is left to train on"),
        (("nothing_like_it",), (), "--hold-out takes relu, spmv_csr"),
    ],
)
def test_a_hold_out_has_to_make_sense(names: tuple[str, ...], categories: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        split(KERNELS, names, categories, threshold=0.7)
