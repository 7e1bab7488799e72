"""Sparse inputs: heavy and empty rows, repeated and unsorted entries are among the cases; timed ones are as ever."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from drawn_inputs import digest_of_the_lightest, drawn

from cudamaster.tasks import cards, held_out
from cudamaster.tasks.cards import Case

TASKS = [f"{product}_{layout}" for product in ("spmv", "spmm") for layout in ("coo", "csr", "csc", "ell")]
FEW, MANY = 3, 16  # so few rows hold half of the entries, of at least so many
# The inputs of the lightest timed case, before rows could be heavy.
BEFORE = {
    "spmv_coo": "7111efead815d8d9",
    "spmv_csr": "47d1fd3fd7570591",
    "spmv_csc": "aae359683cf7b7e3",
    "spmv_ell": "b00ce200b70a1c81",
}


@dataclass(frozen=True)
class Entries:
    """The entries of a sparse matrix in the order in which they are stored, column by column if `by_column`."""

    rows: int
    columns: int
    at_row: np.ndarray
    at_column: np.ndarray
    by_column: bool

    @property
    def kinds(self) -> Iterator[str]:
        """What a kernel could stumble over."""
        in_row = np.bincount(self.at_row, minlength=self.rows)
        if _some_are_heavy(in_row):
            yield "heavy rows"
        if _some_are_heavy(np.bincount(self.at_column, minlength=self.columns)):
            yield "heavy columns"
        if in_row.any() and not in_row.all():
            yield "empty rows"
        places = self.at_row * self.columns + self.at_column
        if len(np.unique(places)) < len(places):
            yield "repeated entries"
        line, place = (self.at_column, self.at_row) if self.by_column else (self.at_row, self.at_column)
        order = np.argsort(line, kind="stable")
        if (np.diff(place[order])[np.diff(line[order]) == 0] < 0).any():
            yield "unsorted entries"


def _some_are_heavy(lengths: np.ndarray) -> bool:
    """Whether few of many rows hold half of the entries."""
    return len(lengths) >= MANY and 2 * np.sort(lengths)[-FEW:].sum() >= lengths.sum() >= 4 * MANY


def entries(case: Case, inputs: Mapping[str, np.ndarray]) -> Entries:
    """The entries in these inputs of a case."""
    rows = int(case.values["rows"])
    columns = int(case.values["columns" if "columns" in case.values else "cols"])
    read = {name: numbers.astype(np.int64) for name, numbers in inputs.items() if name.lower() not in ("x", "values")}
    if "row_offsets" in read:
        at_row, at_column = np.repeat(np.arange(rows), np.diff(read["row_offsets"])), read["col_indices"]
    elif "col_offsets" in read:
        at_row, at_column = read["row_indices"], np.repeat(np.arange(columns), np.diff(read["col_offsets"]))
    elif "row_indices" in read:
        at_row, at_column = read["row_indices"], read["col_indices"]
    else:
        ids = read["col_ids"].reshape(rows, -1)
        at_row, at_column = np.nonzero(ids >= 0)[0], ids[ids >= 0]
    return Entries(rows, columns, at_row, at_column, by_column="col_offsets" in read)


@pytest.mark.slow(but=["spmv_csr"])
@pytest.mark.parametrize("task", TASKS)
def test_verification_cases_have_what_kernels_stumble_over(task: str, tmp_path: Path) -> None:
    """A few rows with half of the entries, rows without any, a place twice, a row in no order: each in two cases."""
    card = cards.load(task)
    of_label = {case.label: case for case in card.cases}
    found = drawn(card, tmp_path, cases="verify")
    assert len(found) == sum(not case.sweep for case in card.cases)
    kinds = [kind for label, inputs in found.items() for kind in entries(of_label[label], inputs).kinds]
    due = {"heavy rows", "empty rows", "repeated entries", "unsorted entries"}
    due |= {"heavy columns"} if task.endswith("csc") else set()
    assert {kind for kind in due if kinds.count(kind) >= 2} == due
    for label, inputs in found.items():  # the size says what is there
        case, these = of_label[label], set(entries(of_label[label], inputs).kinds)
        if case.values["heavy_rows"] and case.values["nnz"] > 1000:
            assert "heavy rows" in these, label
        if case.values.get("empty_rows") and case.values["nnz"]:
            assert "empty rows" in these, label


@pytest.mark.slow(but=["spmv_csr"])
@pytest.mark.parametrize("task", TASKS)
def test_every_evaluation_draws_a_matrix_with_heavy_rows(task: str, tmp_path: Path) -> None:
    """Small held-out cases have one, and large ones none: there, a baseline that adds up a row alone takes minutes."""
    card = cards.load(task)
    heavy = []
    for seed in range(24):
        found = [case for case in held_out.draw(card, seed) if case.values["heavy_rows"]]
        assert found, seed
        heavy += found
        assert not any(case.values["heavy_rows"] for case in held_out.draw(card, seed, largest=True))
    assert not any(case.values["heavy_rows"] for case in card.cases if case.sweep)
    if task.startswith("spmm"):  # whose structure is drawn as that of spmv
        return
    for label, inputs in drawn(card, tmp_path, further=heavy).items():
        case = next(case for case in heavy if case.label == label)
        these = entries(case, inputs)
        assert len(these.at_row) == case.values["nnz"]
        assert these.at_row.max() < these.rows
        assert these.at_column.max() < these.columns
        in_row = np.sort(np.bincount(these.at_row, minlength=these.rows))
        share = in_row[-int(case.values["heavy_rows"]) :].sum() / in_row.sum()
        assert share > (0.5 - 3 / in_row.sum() ** 0.5 if task.endswith("csc") else 0.499), label
        if case.values.get("empty_rows"):
            assert not in_row.all(), label


@pytest.mark.slow(but=["spmv_csr"])
@pytest.mark.parametrize("task", BEFORE)
def test_timed_matrices_are_the_same_as_before(task: str, tmp_path: Path) -> None:
    """Kept times are of these: a size that came later changes nothing where it has its default."""
    assert digest_of_the_lightest(cards.load(task), tmp_path) == BEFORE[task]
