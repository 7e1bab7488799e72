"""Held-out sizes: drawn from the seed and legal, and a kernel that knows the card's sizes by heart is refused."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from cudamaster.core.expressions import Number
from cudamaster.core.values import Candidate, Precision, Status, Verdict
from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.judging import unreached
from cudamaster.judging.judge_process import Trial
from cudamaster.judging.verdicts import Judgement
from cudamaster.tasks import cards
from cudamaster.tasks.cards import Case, TaskCard
from cudamaster.tasks.held_out import LARGE, SMALL, draw, in_words
from cudamaster.workbench.evaluation import Workbench

# What the summaries of the cards call legal, beyond sizes of at least 1.
MAY_BE_ZERO = {
    "nnz", "max_nnz_per_row", "mean", "padding", "empty_rows", "empty_columns", "heavy_rows", "heavy_columns", "heavy",
    "holes_percent", "order",
}  # fmt: skip
ROWS_OF_COO_AND_CSR: Callable[[Mapping[str, Number]], bool] = lambda s: s["empty_rows"] == 1 or s["nnz"] >= s["rows"]  # noqa: E731
LEGAL: dict[str, Callable[[Mapping[str, Number]], bool]] = {
    "batch_norm": lambda s: s["epsilon"] > 0 and s["low"] < s["high"],
    "layer_norm": lambda s: s["epsilon"] > 0 and s["low"] < s["high"],
    "rms_norm": lambda s: s["epsilon"] > 0,
    "softmax": lambda s: s["low"] <= s["high"],
    "conv_1d": lambda s: s["kernel_size"] <= s["input_size"],
    "conv_2d": lambda s: s["kernel_rows"] <= s["input_rows"] and s["kernel_cols"] <= s["input_cols"],
    "max_pooling_2d": lambda s: (
        s["padding"] <= s["kernel_size"] // 2
        and s["kernel_size"] <= min(s["H"], s["W"]) + 2 * s["padding"]
        and s["low"] < s["high"]
    ),
    "top_k": lambda s: s["k"] <= s["N"] and s["order"] in range(6),
    "sorting": lambda s: s["order"] in range(6),
    "rope": lambda s: s["D"] % 2 == 0 and s["base"] > 0,
    "simpson_int": lambda s: s["N"] >= 2,
    "fft": lambda s: math.log2(s["N"]).is_integer(),
    "matrix_power": lambda s: s["P"] <= 16,
    "triangle_attention": lambda s: 0 <= s["holes_percent"] <= 100,
    "spmv_coo": ROWS_OF_COO_AND_CSR,
    "spmm_coo": ROWS_OF_COO_AND_CSR,
    "spmv_csr": ROWS_OF_COO_AND_CSR,
    "spmm_csr": ROWS_OF_COO_AND_CSR,
    "spmv_csc": lambda s: s["empty_columns"] == 1 or s["nnz"] >= s["columns"],
    "spmm_csc": lambda s: s["empty_columns"] == 1 or s["nnz"] >= s["columns"],
    # The entries fit into the slots, and there are enough for the longest row and one in every other that has some.
    "spmv_ell": lambda s: (
        s["nnz"] <= max(s["rows"] - s["empty_rows"], 1) * s["max_nnz_per_row"]
        and (s["nnz"] < s["rows"] or s["max_nnz_per_row"] <= s["nnz"] - s["rows"] + 1)
    ),
}
LEGAL["spmm_ell"] = LEGAL["spmv_ell"]


def changed(task: str, **fields: Any) -> TaskCard:
    """A real card with some of its fields replaced."""
    return TaskCard.model_validate({**cards.load(task).model_dump(), **fields})


@pytest.mark.slow(but=["spmv_csr", "fft", "layer_norm", "triangle_attention", "elu"])
@pytest.mark.parametrize("name", cards.names())
def test_draws_are_legal_and_vary_all_that_reaches_the_wrapper(name: str) -> None:
    """In every card, small and large: sizes are legal, none is timed, all scalars vary, what is fixed stays so."""
    card = cards.load(name)
    heaviest = max(case.weight for case in card.cases if case.sweep)
    scalars = {p.name: p.type for p in card.parameters if p.role == "scalar"}
    for largest in (False, True):
        cases = draw(card, 4, largest=largest, count=300)
        for case in cases:
            assert case.held_out
            assert not case.sweep
            for size, value in case.values.items():
                if isinstance(value, int) and size not in MAY_BE_ZERO:
                    assert value >= 1, case.label
                elif isinstance(value, int):
                    assert value >= 0, case.label
            assert LEGAL.get(name, lambda sizes: True)(case.values), case.label
            assert card.footprint_bytes(case, Precision.FP32) > 0
        for scalar, kind in scalars.items():
            drawn = {case.values[scalar] for case in cases}
            assert len(drawn) >= 2, scalar
            if kind != "int":
                assert len(drawn) >= 100, scalar
        for fixed in card.fixed:
            assert {case.values[fixed] for case in cases} == {card.sizes[fixed]}
        if largest:
            # Of fft every power of two up to four times the largest timed one is listed.
            assert all(case.weight <= (32 if name == "fft" else 1) * heaviest for case in cases)
            assert max(case.weight for case in cases) > heaviest / 2
        else:
            assert max(case.weight for case in cases) <= 1e7
            if name != "fft":  # every power of two of a sensible size is a listed one
                assert any(value % 2 and value > 60 for case in cases for value in case.values.values())


def test_the_draw_is_a_function_of_the_seed() -> None:
    """A verdict names its seed, and these cases follow from it for good; another seed, task or kind has others."""
    card = changed("dot_product", held_out=[{"N": [1, 60000]}], held_out_large=[{"N": [1, 60000]}])
    assert [case.label for case in draw(card, 7)] == PINNED
    assert draw(card, 7) == draw(card, 7)
    assert (len(draw(card, 7)), len(draw(card, 7, largest=True))) == (SMALL, LARGE)
    other = changed("mse_loss", held_out=[{"N": [1, 60000]}])
    others = [draw(card, 8), draw(card, 7, largest=True, count=SMALL), draw(other, 7)]
    for cases in others:
        assert [case.label for case in cases] != PINNED
    assert len({case.label for seed in range(50) for case in draw(card, seed)}) > 150


PINNED = ["held out: N=23", "held out: N=110", "held out: N=16", "held out: N=80"]


def test_every_block_comes_up() -> None:
    """With as many cases as blocks each block is drawn from once, in an order that the seed chooses."""
    blocks = [{"rows": [10**k, 2 * 10**k]} for k in range(1, SMALL + 1)]
    card = changed("spmv_csr", held_out=blocks)
    firsts = set()
    for seed in range(20):
        magnitudes = [int(math.log10(case.values["rows"])) for case in draw(card, seed)]
        assert sorted(magnitudes) == list(range(1, SMALL + 1))
        firsts.add(magnitudes[0])
    assert len(firsts) == SMALL


def test_rules() -> None:
    """Each kind of rule gives what it says, from its first to its last value, and bounds may name earlier sizes."""

    def drawn(sizes: Sequence[str], **block: Any) -> list[tuple[Number, ...]]:
        card = changed("top_k", held_out=[{"N": [50, 60], "k": [1, 2], **block}])
        return [tuple(case.values[size] for size in sizes) for case in draw(card, 1, count=500)]

    assert {n for (n,) in drawn(["N"], N=[40, 44], k=[1, 3])} == {40, 41, 42, 43, 44}
    assert {n for (n,) in drawn(["N"], N={"even": [41, 47]})} == {42, 44, 46}
    assert {n for (n,) in drawn(["N"], N={"power_of_two": [3, 5]})} == {8, 16, 32}
    assert {n for (n,) in drawn(["order"], order={"choose": [0, 4]})} == {0, 4}
    assert all(k == n // 2 + 1 for n, k in drawn(["N", "k"], k="N // 2 + 1"))
    assert {n - k for n, k in drawn(["N", "k"], k=["N - 1", "N"])} == {0, 1}


def test_whole_numbers_are_spread_over_the_orders_of_magnitude() -> None:
    """Tiny, odd and large numbers come up, and cases whose sizes are multiples of a power of two."""
    card = changed("matrix_copy", held_out=[{"M": [1, 100000], "N": [1, 100000]}])
    cases = draw(card, 1, count=2000)
    sizes = [int(case.values["M"]) for case in cases]
    for least in (1, 10, 100, 1000, 10000):
        assert 0.1 < sum(least <= size < 10 * least for size in sizes) / len(sizes) < 0.35
    assert 0.2 < sum(size % 2 for size in sizes) / len(sizes) < 0.6
    assert sum(case.values["M"] % 8 == 0 and case.values["N"] % 8 == 0 for case in cases) > 300


def test_labels_say_exactly_what_was_drawn() -> None:
    """A label read back gives the same case, so that it can be run again by hand."""
    card = cards.load("selu")
    for case in draw(card, 3, count=100):
        text = dict(part.split("=") for part in case.label.removeprefix("held out: ").split(","))
        again = card.case({name: type(case.values[name])(value) for name, value in text.items()})
        assert again.values == case.values


def test_words_for_every_rule() -> None:
    """The card's page shows each kind of range."""
    block = {"N": [1, "2 * M"], "D": {"even": [2, 8]}, "P": {"power_of_two": [0, 3]}, "o": {"choose": [0, 1]}, "k": 7}
    assert in_words(block) == "N 1 .. 2 * M, D 2 .. 8, even, P 2^0 .. 2^3, o 0 or 1, k = 7"


DOT = """
__global__ void dot_kernel_optimized(float* out, const float* X, const float* Y, int N) {{
    __shared__ float part[64];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < N; i += 64) sum += X[i] * Y[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {{
        float total = 0.0f;
        for (int t = 0; t < 64; ++t) total += part[t];
        out[0] = {known} ? total : 0.0f;
    }}
}}
extern "C" void dot_product_optimized(float* out, const float* X, const float* Y, int N) {{
    dot_kernel_optimized<<<1, 64>>>(out, X, Y, N);
}}
"""


def judged(card: TaskCard, known: str, *, check_only: bool) -> Verdict:
    """The verdict on a dot product that is right where `known` holds, on the CPU device."""
    bench = Workbench(card, Precision.FP32, CpuDevice(), seed=1, calls=1, modelled=False)
    candidate = Candidate(card.name, Precision.FP32, DOT.format(known=known), bench.baseline.command)
    return bench.evaluate(candidate, check_only=check_only)


def listed(cases: Sequence[Case]) -> str:
    """A condition that holds only at the sizes of these cases."""
    return "(" + " || ".join(f"N == {case.values['N']}" for case in cases) + ")"


def card_of_two(**fields: Any) -> TaskCard:
    """The dot product with two timed cases."""
    return changed("dot_product", sweep=[{"N": [65536, 1048576]}], **fields)


@pytest.mark.slow
@pytest.mark.parametrize("check_only", [True, False])
def test_right_at_the_listed_sizes_alone_is_wrong(check_only: bool) -> None:
    """A kernel that is right at every size of its card and nowhere else is refused, and the log names the sizes."""
    card = card_of_two()
    verdict = judged(card, listed(card.cases), check_only=check_only)
    assert verdict.status is Status.WRONG
    wrong = [case for case in verdict.cases if case.status is Status.WRONG]
    # The memory checker's run comes first, and large cases are no part of it.
    assert [case.label for case in wrong] == [case.label for case in draw(card, 1)]
    assert all(case.status is Status.CORRECT for case in verdict.cases if not case.label.startswith("held out"))
    assert "held out: N=" in verdict.detail
    assert "held out: N=" in verdict.log
    assert verdict.score is None


@pytest.mark.slow
@pytest.mark.parametrize("check_only", [True, False])
def test_an_honest_kernel_is_right_at_held_out_sizes(check_only: bool) -> None:
    """The same kernel without the condition passes; held-out cases are in the verdict, neither timed nor scored."""
    card = card_of_two()
    verdict = judged(card, "true", check_only=check_only)
    assert verdict.correct, verdict.log
    held_out = [case for case in verdict.cases if case.label.startswith("held out")]
    expected = draw(card, 1) + (() if check_only else draw(card, 1, largest=True))
    assert [case.label for case in held_out] == [case.label for case in expected]
    assert verdict.seed == 1
    assert all(case.timing is None and not case.sweep for case in held_out)
    assert (verdict.score is None) == check_only


@pytest.mark.slow
def test_right_at_small_sizes_and_the_listed_large_ones_is_wrong() -> None:
    """A full evaluation draws sizes near the largest timed one too."""
    card = card_of_two()
    verdict = judged(card, f"N < 100000 || {listed(card.cases)}", check_only=False)
    assert verdict.status is Status.WRONG
    wrong = [case.label for case in verdict.cases if case.status is Status.WRONG]
    assert wrong == [case.label for case in draw(card, 1, largest=True)]


@pytest.mark.slow
def test_a_slow_device_leaves_out_what_is_heavier_than_its_timed_cases() -> None:
    """On a device with a work limit a large case is run when it is no heavier than a timed one that is."""
    card = card_of_two(held_out_large=[{"N": [1048577, 2000000]}])
    verdict = judged(card, "true", check_only=False)
    assert verdict.correct, verdict.log
    assert [case.label for case in verdict.cases if case.label.startswith("held out")] == [
        case.label for case in draw(card, 1)
    ]


FEW = DOT.partition("extern")[0].replace("dot_kernel", "few_kernel").replace("{known}", "true")
TWO_KERNELS = FEW + DOT.replace(
    "    dot_kernel_optimized<<<",
    "    auto kernel = N < {least} ? few_kernel_optimized : dot_kernel_optimized;\n    kernel<<<",
)


def judged_of_two(known: str, least: int, *, check_only: bool) -> Verdict:
    """The verdict on a dot product that has another kernel from `least` elements on, right where `known` holds."""
    card = changed("dot_product", sweep=[{"N": [262144, 1048576]}])
    bench = Workbench(card, Precision.FP32, CpuDevice(), seed=1, calls=1, modelled=False)
    code = TWO_KERNELS.format(known=known, least=least)
    candidate = Candidate(card.name, Precision.FP32, code, bench.baseline.command)
    return bench.evaluate(candidate, check_only=check_only, first_failure=True)


@pytest.mark.slow
def test_a_kernel_of_timed_sizes_alone_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no verification case launches a kernel, the lightest timed case that does is run, or a lighter one like it.

    It runs under the memory checker or without it, by its weight. In a full evaluation a timed case runs anyway.
    """
    wrong = judged_of_two("false", 200_000, check_only=True)
    assert wrong.status is Status.WRONG
    assert wrong.detail.endswith("(case for a kernel: N=262144)")
    assert {case.status for case in wrong.cases[:-1]} == {Status.CORRECT}
    assert "case for a kernel: N=262144: out: 1 of 1 elements wrong" in wrong.log
    right = judged_of_two("true", 200_000, check_only=True)
    assert right.correct
    assert right.cases[-1].label == "for a kernel: N=262144"
    assert right.detail == f"{len(right.cases)} cases right"
    assert not any("ran in no check" in note for note in right.notes)

    monkeypatch.setattr(unreached, "_LIGHT", 1.0)
    monkeypatch.setattr(unreached, "_ENOUGH", 600_000)
    monkeypatch.setattr(unreached, "_MOST_WEIGHT", 600_000)
    smaller = judged_of_two("false", 500_000, check_only=True)
    assert smaller.detail.endswith("(case for a kernel: N=524288)")


@pytest.mark.slow
def test_a_kernel_that_no_light_case_launches_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all cases that launch a kernel are too heavy for a check, a note says so, unless a timed case runs it."""
    monkeypatch.setattr(unreached, "_ENOUGH", 600_000)
    monkeypatch.setattr(unreached, "_MOST_WEIGHT", 600_000)
    unseen = judged_of_two("false", 900_000, check_only=True)
    assert unseen.correct
    assert "1 kernel of N=1048576 ran in no check: no case was found that is light enough" in unseen.notes
    seen = judged_of_two("false", 900_000, check_only=False)
    assert seen.status is Status.WRONG
    assert not any("ran in no check" in note for note in seen.notes)


HIDDEN = FEW + DOT.replace(
    "    dot_kernel_optimized<<<",
    """    float executed = 1;
    cudaMemset(out, 0, sizeof(float));
    dot_kernel_optimized<<<1, 64>>>(out, X, Y, N);
    cudaMemcpy(&executed, out, sizeof(float), cudaMemcpyDeviceToHost);
    cudaMemset(out, 0, sizeof(float));
    auto kernel = N > 500000 && executed {sign} 0 ? few_kernel_optimized : dot_kernel_optimized;
    kernel<<<""",
)


@pytest.mark.slow
@pytest.mark.parametrize(("sign", "seen"), [("!=", False), ("==", True)])
def test_a_kernel_that_runs_where_calls_are_counted_alone_is_told(sign: str, seen: bool) -> None:
    """A wrapper may find out that kernels are not executed, and then hide one from all checks. A note says so."""
    card = changed("dot_product", sweep=[{"N": [262144, 1048576]}], weight="100 * N")  # too heavy to be run
    bench = Workbench(card, Precision.FP32, CpuDevice(), seed=1, calls=1)
    candidate = Candidate(card.name, Precision.FP32, HIDDEN.format(sign=sign, known="true"), bench.baseline.command)
    verdict = bench.evaluate(candidate)
    assert verdict.correct, verdict.log
    said = "1 kernel of N=1048576 ran in no check: with none executed, the call launches others"
    assert (said in verdict.notes) != seen


@pytest.mark.slow
def test_nothing_is_modelled_for_a_check_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where a case was skipped."""
    bench = Workbench(card_of_two(), Precision.FP32, CpuDevice(), seed=1)

    def skipping(judge: Callable[[Trial], Judgement], trial: Trial) -> Judgement:
        judgement = judge(trial)
        return replace(judgement, cases=tuple(replace(case, skipped="too large") for case in judgement.cases))

    monkeypatch.setattr(bench._trials, "run", partial(skipping, bench._trials.run))
    monkeypatch.setattr(bench._modeller, "verdict", None)
    assert bench.evaluate(bench.baseline, check_only=True).correct


@pytest.mark.slow
def test_baselines_are_held_to_held_out_sizes() -> None:
    """`make -C bench test` runs them as well, another draw each time."""
    bench = Workbench(card_of_two(), Precision.FP32, CpuDevice(), modelled=False)
    runs = [bench.check_baseline() for _ in range(2)]
    labels = [[case.label for case in run.cases if case.label.startswith("held out")] for run in runs]
    assert [len(each) for each in labels] == [SMALL, SMALL]
    assert labels[0] != labels[1]
    assert all(run.status is Status.CORRECT for run in runs)
