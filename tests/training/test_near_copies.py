"""Code that is alike: what makes two kernels one, what does not, and how similar those of the shipped playbook are."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudamaster.core import resources
from cudamaster.core.values import Precision
from cudamaster.models.playbook import PlaybookModel
from cudamaster.tasks import cards
from cudamaster.tasks.harness import baseline_region
from cudamaster.training.near_copies import Pair, between
from cudamaster.training.shingles import NEAR_COPY, cosine, jaccard, overlap, shingles, tokens

KERNEL = """
#define BLOCK 256
#define TWICE(n) ((n) + (n))
struct Pair { float low; float high; };
template <typename Real, int kWidth>
__global__ void scale_kernel(Real* __restrict__ output, const Real* input, float factor, int count) {
    __shared__ float staged[BLOCK];
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    for (int step = 0; step < kWidth; ++step)
        if (index < count) output[index] = expf(factor * input[index]) + TWICE(1.5f);
}
extern "C" void scale_optimized(float* output, const float* input, float factor, int count) {
    scale_kernel<float, 4><<<(count + BLOCK - 1) / BLOCK, BLOCK>>>(output, input, factor, count);
}
"""
RENAMED = KERNEL
for old, new in {
    "BLOCK": "THREADS", "TWICE(n) ((n) + (n))": "DOUBLE(x) ((x) + (x))", "TWICE": "DOUBLE", "Pair": "Two", "low": "a",
    "high": "b", "Real": "T", "kWidth": "W", "scale_kernel": "k", "scale_optimized": "f", "output": "y", "input": "x",
    "factor": "alpha", "count": "n", "staged": "s", "index": "i", "step": "j", "256": "128", "1.5f": "2.0f",
    "    ": "\t",
}.items():  # fmt: skip
    RENAMED = RENAMED.replace(old, new)
RENAMED = "// Another author's words.\n" + RENAMED.replace("{\n", "{  /* here */\n")


def similarity(first: str, second: str) -> float:
    return jaccard(shingles(first), shingles(second))


def test_names_numbers_comments_and_layout_make_no_difference() -> None:
    assert RENAMED != KERNEL
    assert tokens(RENAMED) == tokens(KERNEL)
    assert similarity(RENAMED, KERNEL) == 1


def test_a_piece_has_the_tokens_that_it_has_in_the_whole() -> None:
    """A trick of some lines, a function of a file: what is declared elsewhere makes no difference."""
    whole, lines = tokens(KERNEL), tokens("\n".join(KERNEL.splitlines()[6:10]))
    assert lines in {whole[start : start + len(lines)] for start in range(len(whole))}


def test_what_a_name_is_depends_on_what_stands_beside_it() -> None:
    assert tokens("threadIdx.x + x + p->y") == ("threadIdx", ".", "x", "+", "v", "+", "v", "-", ">", "y")
    assert tokens("max = max(a, hexp(b))") == ("v", "=", "max", "(", "v", ",", "hexp", "(", "v", ")", ")")
    assert tokens("nvcuda::wmma::mma_sync") == ("nvcuda", ":", ":", "wmma", ":", ":", "mma_sync")
    assert tokens("mine::mma_sync, stddev, cuda_copy, cudaMemcpy") == (
        "v", ":", ":", "v", ",", "v", ",", "v", ",", "cudaMemcpy",
    )  # fmt: skip


def test_names_from_outside_stay() -> None:
    found = tokens(KERNEL)
    assert {"expf", "threadIdx", "__shared__", "float", "x", "template"} <= set(found)
    assert not {"scale_kernel", "staged", "Real", "BLOCK", "index", "low", "256"} & set(found)
    assert similarity(KERNEL.replace("expf", "sinf"), KERNEL) < 1


def test_what_a_parser_chokes_on_is_compared_all_the_same() -> None:
    for text in ("", "}}}((", "#define", "/* no end", "\u00e4 = \u2028;", "x" * 100_000):
        assert similarity(text, text) == 1
        assert similarity(text, KERNEL) < 0.1


def test_each_is_told_with_the_most_similar_one() -> None:
    changed = KERNEL.replace("expf(factor * input[index])", "input[index]")
    pairs = between({"a": RENAMED, "b": "int f() { return 0; }"}, {"far": changed, "near": KERNEL})
    assert pairs == (Pair("a", "near", 1.0),)
    assert between({"a": changed}, {"b": KERNEL}, threshold=0.99) == ()
    assert between({}, {"b": KERNEL}) == between({"a": KERNEL}, {}) == ()


def test_the_measures() -> None:
    """Runs of 8 of 10 and of 9 tokens: 3 and 2, of which 2 are common."""
    longer, shorter = shingles("if ( while ) for ; do { else }"), shingles("if ( while ) for ; do { else")
    assert (len(longer), len(shorter)) == (3, 2)
    assert jaccard(longer, shorter) == pytest.approx(2 / 3)
    assert overlap(longer, shorter) == 1
    assert cosine(longer, shorter) == pytest.approx(2 / 6**0.5)
    rare = dict.fromkeys(longer & shorter, 0.0)
    assert cosine(longer, shorter, rare) == 0
    assert len(shingles("return 1")) == 1
    nothing = shingles("/* nothing */")
    assert not nothing
    assert (jaccard(nothing, nothing), jaccard(longer, nothing)) == (1, 0)
    assert overlap(longer, nothing) == cosine(longer, nothing) == cosine(nothing, nothing) == 0


@settings(max_examples=40)
@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_has_a_similarity(one: str, other: str) -> None:
    first, second = shingles(one), shingles(other)
    for measure in (jaccard, overlap, cosine):
        assert 0 <= measure(first, second) <= 1 + 1e-9
        assert measure(first, second) == pytest.approx(measure(second, first))


def family(task: str) -> dict[str, str]:
    """Baseline and the playbook's first kernel of a task."""
    step = PlaybookModel().steps(task, "fp32")[0]
    return {"baseline": baseline_region(cards.load(task), Precision.FP32), "kernel": step.code}


@pytest.mark.parametrize(
    ("first", "second", "part", "figure"),
    [
        ("square_matrix_mul", "matrix_mul", "kernel", 0.99),
        ("row_tanh", "relu", "kernel", 0.93),
        ("elu", "leaky_relu", "kernel", 0.92),
        ("elu", "leaky_relu", "baseline", 0.83),
        ("stencil_2d", "stencil_3d", "baseline", 0.70),
        ("relu", "leaky_relu", "kernel", 0.58),
        ("relu", "leaky_relu", "baseline", 0.60),
        ("matrix_mul", "matrix_transpose", "baseline", 0.63),
    ],
)
def test_the_figures_of_the_page(first: str, second: str, part: str, figure: float) -> None:
    """docs/training.md has them, and says why the threshold lies where it does."""
    found = similarity(family(first)[part], family(second)[part])
    assert found == pytest.approx(figure, abs=0.006)
    assert (found >= NEAR_COPY) == (figure >= NEAR_COPY)


def test_how_many_pairs_are_near_copies() -> None:
    """The baselines and all kernels of the playbook, as the page has them."""
    of = [
        (task, shingles(code))
        for task in cards.names()
        for code in (
            baseline_region(cards.load(task), Precision.FP32),
            *(step.code for step in PlaybookModel().steps(task, "fp32")),
        )
    ]
    pairs = [(one[1], other[1]) for one, other in combinations(of, 2) if one[0] != other[0]]
    near = sum(jaccard(*pair) >= NEAR_COPY for pair in pairs)
    page = (resources.root() / "docs" / "training.md").read_text(encoding="utf-8")
    assert f"Of the {len(pairs)} pairs of kernels of two tasks, {near} are near copies" in page


def test_tasks_that_have_little_in_common_are_far_apart() -> None:
    of = {task: family(task)["kernel"] for task in ("relu", "dot_product", "spmv_csr", "softmax", "fft")}
    assert max(similarity(of[one], of[other]) for one, other in combinations(of, 2)) < 0.3
