"""Cards: all cases of the paper's table, and a clear error for a card that is wrong."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cudamaster.core import resources
from cudamaster.core.errors import CardError, UsageError
from cudamaster.core.expressions import evaluate
from cudamaster.core.values import Precision
from cudamaster.tasks import card_checks, cards


def test_cases_of_the_table() -> None:
    """The timed cases and weights of the three tasks are those of the paper's table 7."""
    spmv = [case for case in cards.load("spmv_csr").cases if case.sweep]
    assert [case.values["rows"] for case in spmv] == [2**k for k in range(10, 16)]
    assert {case.values["cols"] for case in spmv} == {2048}
    assert [case.weight for case in spmv] == [max(2**k * 2048 // 100, 2**k) for k in range(10, 16)]
    dot = [case for case in cards.load("dot_product").cases if case.sweep]
    assert [case.values["N"] for case in dot] == [2**k for k in range(16, 21)]
    sort = [case for case in cards.load("sorting").cases if case.sweep]
    assert [(case.values["N"], case.weight) for case in sort] == [(2**k, k * 2.0**k) for k in (8, 10, 12, 14, 16)]


def test_the_benchmark_has_its_categories() -> None:
    """A slip of the pen in a card would make another one."""
    nine = {"dense", "sparse", "normalization", "activation", "loss", "llm", "tensor", "stencil", "algorithm"}
    assert {cards.load(name).category for name in cards.names()} == nine


@pytest.mark.parametrize("name", cards.names())
def test_cards_have_odd_and_tiny_verification_cases(name: str) -> None:
    """A kernel right only at powers of two, or only at the listed sizes, meets a case that shows it."""
    card = cards.load(name)
    scalars = {p.name for p in card.parameters if p.role == "scalar" and p.type == "int"}
    values = [int(v) for case in card.cases if not case.sweep for n, v in case.values.items() if n in scalars]
    assert min(values) <= 2
    if name != "fft":  # defined for powers of two alone
        assert any(value % 2 and value > 60 for value in values)
    swept = {tuple(case.values.values()) for case in card.cases if case.sweep}
    assert not any(tuple(case.values.values()) in swept for case in card.cases if not case.sweep)


@pytest.mark.parametrize("name", cards.names())
def test_constants_are_varied(name: str) -> None:
    """A kernel that has a constant of the sweep built in meets another value of it."""
    card = cards.load(name)
    for constant in (p.name for p in card.parameters if p.role == "scalar" and p.type != "int"):
        assert len({case.values[constant] for case in card.cases}) >= 2


def test_fixed_sizes_stay_fixed() -> None:
    """Sizes that do not reach the wrapper keep the listed value in every case."""
    for name in cards.names():
        card = cards.load(name)
        for fixed in card.fixed:
            assert {case.values[fixed] for case in card.cases} == {card.sizes[fixed]}


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        (Precision.FP32, 'extern "C" void dot_product_optimized(float* out, const float* X, const float* Y, int N)'),
        (
            Precision.BF16,
            'extern "C" void dot_product_bf16_optimized('
            "float* out, const __nv_bfloat16* X, const __nv_bfloat16* Y, int N)",
        ),
    ],
)
def test_declaration(precision: Precision, expected: str) -> None:
    """The wrapper's interface is the published one."""
    assert cards.load("dot_product").declaration(precision) == expected


FLOOR = {"bytes_read": "nnz", "bytes_written": "rows", "operations": "nnz"}
HEAVY = {"heavy_rows", "heavy_columns", "heavy"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"weight": "rows * unknown"}, "unknown"),
        ({"colour": "red"}, "colour"),
        ({"id": 0}, "id"),
        ({"category": "Dense things"}, "category"),
        ({"inputs": ["uniform(nothing, -1, 1)"]}, "nothing"),
        ({"sweep": []}, "no timed case"),
        ({"inputs": ["unheard_of(x)"]}, "unheard_of"),
        ({"inputs": ["uniform(x, 1)"]}, "takes 3"),
        ({"inputs": ["uniform(x, -missing, 1)"]}, "missing"),
        ({"inputs": ["uniform(x, -1, 1)"]}, "values"),
        ({"inputs": ["csr(row_offsets, col_indices, rows)"]}, "takes 6 to 8"),
        ({"inputs": ["csr(row_offsets, col_indices, 1, 2, 3, 4, 5, 6, 7)"]}, "takes 6 to 8"),
        ({"floor": {**FLOOR, "gathered": "nnz * unheard_of"}}, "floor.gathered: 'nnz * unheard_of'"),
        ({"floor": {**FLOOR, "gathered": "nnz - 1000"}}, "gathered of the floor: negative in case rows=1"),
        ({"floor": {**FLOOR, "gathers": "nnz"}}, "floor.gathers: there is no such field"),
        ({"timed_as": "0123456789abcdef"}, "timed_as"),
        ({"inputs": ["uniform(y, -1, 1)"]}, "no input parameter"),
        ({"verify": [{"cols": 3}]}, "rows"),
        ({"sweep": [{"rows": ["many"]}]}, "sweep"),
        ({"parameters": [], "inputs": []}, "output"),
        ({"held_out": []}, "held_out is empty"),
        ({"held_out_large": []}, "held_out_large is empty"),
        ({"held_out": 3}, "held_out"),
        ({"held_out": [{"rows": [1, 9], "colour": 3}]}, "held_out, block 1 names ['colour']"),
        ({"held_out": [{"rows": [1, 9]}, {"rows": 5, "cols": [1, 9]}]}, "held_out, block 2 varies ['cols']"),
        ({"held_out": [{"rows": 7}]}, "held_out leaves rows at 7"),
        ({"held_out": [{"nnz": [1, 9]}]}, "held_out, block 1: case"),
        ({"held_out": [{"rows": [9, 1]}]}, "rows: there is nothing between 9 and 1"),
        ({"held_out": [{"rows": [1, 9], "nnz": ["rows + 1", "rows"]}]}, "nnz: there is nothing between"),
        ({"held_out": [{"rows": [1, "unheard_of"]}]}, "unheard_of"),
        ({"held_out": [{"rows": ["nnz", 9]}]}, "nnz"),
        ({"held_out": [{"rows": [1, 2, 3]}]}, "rows: [1, 2, 3] is no rule"),
        ({"held_out": [{"rows": {"odd": [1, 9]}}]}, "is no rule"),
        ({"held_out": [{"rows": {"choose": []}}]}, "is no rule"),
        ({"held_out": [{"rows": {"power_of_two": [0, 99]}}]}, "powers of two"),
        ({"held_out": [{"rows": [1.0, 9.0]}]}, "rows is a whole number"),
        ({"held_out": [{"rows": [1, 9], "nnz": [-9, -1]}]}, "the weight of case held out"),
        ({"held_out": [{"rows": [1, 10**400]}]}, "held_out, block 1"),
        ({"held_out_large": [{"rows": [1, float("inf")]}]}, "held_out_large"),
    ],
)
def test_a_bad_card_is_named(tmp_path: Path, change: dict[str, object], named: str) -> None:
    """The error names the file and the place in it."""
    good = yaml.safe_load((resources.bench() / "tasks" / "spmv_csr.yaml").read_text())
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump({**good, **change}, sort_keys=False))
    with pytest.raises(CardError) as caught:
        cards.load(str(path))
    assert str(path) in caught.value.reason
    assert named in caught.value.reason


@pytest.mark.parametrize("content", [b"\x00\xff\x80", b"- 1\n- 2\n", b"id: [", b""])
def test_a_file_that_is_no_card(tmp_path: Path, content: bytes) -> None:
    """Binary, a list, broken YAML and nothing at all are each a CardError, not a traceback."""
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(CardError):
        cards.load(str(path))


MORE_CHECKS = {
    "softmax": [{"N": 2, "C": [5120, 16392]}],
    "batch_norm": [{"N": [200, 1024], "C": 24}, {"N": 1024, "C": 16, "low": -1010.0, "high": -1000.0}],
    "max_pooling_2d": [{"N": 1, "C": 1, "H": 4, "W": 256, "kernel_size": 2, "stride": 1, "padding": 1}],
}
SPARSE = [f"{product}_{layout}" for product in ("spmv", "spmm") for layout in ("coo", "csr", "csc", "ell")]


# Cards whose inputs may have outliers.
MIXED = [
    "matrix_mul", "square_matrix_mul", "matrix_power", "matrix_vector_mul", "high_order_contraction", "conv_1d",
    "conv_2d", "stencil_2d", "stencil_3d", "prefix_sum", *SPARSE,
]  # fmt: skip


def without_outliers(card: cards.TaskCard) -> dict[str, Any]:
    """What a card said before its inputs could have outliers."""
    fields = yaml.safe_load((card.folder / card.path).read_text())
    assert fields["sizes"].pop("outliers") == 1
    fields["verify"] = [block for block in fields["verify"] if "outliers" not in block]
    for field in ("held_out", "held_out_large"):
        # Blocks that always have some are new.
        blocks = [block for block in fields[field] if 1 in block.get("outliers", {"choose": [1]})["choose"]]
        fields[field] = [{name: rule for name, rule in block.items() if name != "outliers"} for block in blocks]
    fields["inputs"] = [text.replace(", outliers)", ")") for text in fields["inputs"]]
    return dict(fields)


def test_every_card_that_has_earlier_forms_is_held_to_them() -> None:
    """By the tests below."""
    timed_as = {name for name in cards.names() if cards.load(name).timed_as}
    assert timed_as == {*MIXED, *MORE_CHECKS}


@pytest.mark.parametrize("name", MIXED)
def test_cards_with_outliers_differ_from_before_in_checks_alone(name: str) -> None:
    """Without the size for outliers and the cases that have some, each card has the hash that it names last.

    So the kept results of these tasks are of the same sizes, weights, inputs and bounds as today's.
    """
    card = cards.load(name)
    assert cards.TaskCard.model_validate(without_outliers(card)).hash == card.timed_as[-1]
    assert all(case.values["outliers"] == 1 for case in card.cases if case.sweep)
    assert sum(case.values["outliers"] > 1 for case in card.cases) >= 1
    assert card.hash not in card.timed_as
    assert cards.same_measure(name, card.timed_as[-1], card.hash)


def test_sparse_cards_that_are_timed_as_before_differ_from_then_in_checks_alone() -> None:
    """Without the sizes for heavy rows and the cases that use them, too, each card has the hash that it names first."""
    for name in SPARSE:
        card = cards.load(name)
        fields = without_outliers(card)
        assert fields["sizes"]["heavy_rows"] == 0
        for size in HEAVY & set(fields["sizes"]):
            del fields["sizes"][size]
        for field in ("verify", "held_out"):
            fields[field] = [block for block in fields[field] if not set(block) & HEAVY]
        fields["inputs"] = [re.sub(r"(, heavy_\w+)+\)", ")", text) for text in fields["inputs"]]
        if name.endswith("ell"):
            longest = "min(mean + 4 * isqrt(mean) + 1, nnz - (1 - empty_rows) * (rows - 1))"
            fields["sizes"]["max_nnz_per_row"] = longest
            for case in (case for case in card.cases if not case.values["heavy_rows"]):
                given = dict(part.split("=") for part in case.label.split(","))
                known = case.values["max_nnz_per_row"]
                assert "max_nnz_per_row" in given or known == evaluate(longest, case.values), case.label
        then, later = card.timed_as
        assert cards.TaskCard.model_validate(fields).hash == then
        assert card.hash != then
        assert card.times_as(then)
        assert card.times_as(card.hash)
        assert not card.times_as("0" * 16)
        assert not card.times_as(None)
        assert cards.same_measure(name, then, card.hash)
        assert cards.same_measure(name, then, later)
        assert not cards.same_measure(name, then, "0" * 16)
        assert cards.same_measure(name, "0" * 16, "0" * 16)
    assert not cards.same_measure("no_such_task", "0" * 16, "1" * 16)


@pytest.mark.parametrize("name", MORE_CHECKS)
def test_cards_that_check_more_than_before_time_the_same(name: str) -> None:
    """Without the cases that are new, each card has the hash that it names."""
    card = cards.load(name)
    fields = yaml.safe_load((card.folder / card.path).read_text())
    fields["verify"] = [block for block in fields["verify"] if block not in MORE_CHECKS[name]]
    assert len(fields["verify"]) == len(card.verify) - len(MORE_CHECKS[name])
    assert (cards.TaskCard.model_validate(fields).hash,) == card.timed_as


def test_kept_results_are_of_the_measure_of_todays_cards() -> None:
    """A card that changes names its earlier form in `timed_as`, if what was timed is still the same."""
    kept = json.loads((Path(__file__).parents[1] / "results" / "h200" / "report.json").read_text())
    found = {(one["task"], one["card_hash"]) for one in kept["results"]}
    assert {task for task, _ in found} == set(cards.names())
    assert [task for task, known in sorted(found) if not cards.load(task).times_as(known)] == []


def test_what_explains_a_floor_does_not_make_another_card() -> None:
    """Kept results name the hash of their card, and nothing is judged by `gathered`."""
    fields = yaml.safe_load((resources.bench() / "tasks" / "spmm_csr.yaml").read_text())
    assert fields["floor"].pop("gathered") == "nnz * K * element_bytes"
    assert cards.TaskCard.model_validate(fields).hash == cards.load("spmm_csr").hash


def test_generators_are_those_of_the_header() -> None:
    """What a card is held to is read from the harness, so the two cannot drift apart."""
    known = card_checks.generators()
    assert known["uniform"] == (1, 2, 1)
    assert known["csr"] == (2, 4, 2)
    assert known["ell"] == (2, 5, 2)
    text = (resources.bench() / "include" / "mskb" / "inputs.h").read_text()
    assert len(known) == text.count("\nvoid ")
    with_outliers = re.findall(r"^void (\w+)\([^)]*double outliers = 1\);", text, re.MULTILINE)
    assert with_outliers == list(card_checks.WITH_OUTLIERS)


@pytest.mark.parametrize(("outliers", "refused"), [("2", False), ("0.5", True), ("3.0e+38", False), ("3.4e+38", True)])
def test_outliers_are_larger_and_of_the_type_in_each_precision(outliers: str, refused: bool) -> None:
    """The largest number of bf16 is 3.39e38, and that of fp32 is 3.403e38."""
    fields = yaml.safe_load((resources.bench() / "tasks" / "matrix_mul.yaml").read_text())
    fields["verify"] = [{"M": 3, "N": 3, "K": 3, "outliers": float(outliers)}]
    if refused:
        with pytest.raises(ValueError, match=r"outliers of A are .*(1 is the least|bfloat16 holds at most 3\.38953)"):
            cards.TaskCard.model_validate(fields)
    else:
        assert cards.TaskCard.model_validate(fields).cases


def test_unknown_task_lists_the_known() -> None:
    """The fix says what can be chosen."""
    with pytest.raises(UsageError) as caught:
        cards.load("spmv_crs")
    assert "spmv_csr" in caught.value.fix
