"""Inputs of mixed magnitudes: a few elements are far larger, at places that nobody can guess; timed ones stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drawn_inputs import SEED, digest_of_the_lightest, drawn

from cudamaster.tasks import cards

MOST = 16  # outliers of a buffer, of which there are about four
WITH_OUTLIERS = {"matrix_mul": "AB", "matrix_power": "A", "conv_1d": ("input",), "spmv_ell": ("values", "x")}
# The inputs of the lightest timed case, before there were outliers.
BEFORE = {"matrix_power": "c67dca1a765fbe23", "conv_1d": "56607e45c3512d00"}


@pytest.mark.slow(but=["conv_1d"])
@pytest.mark.parametrize("task", WITH_OUTLIERS)
def test_a_few_elements_are_far_larger(task: str, tmp_path: Path) -> None:
    """In such a buffer at least one is, by half to once the factor that the case names, elsewhere for another seed."""
    card = cards.load(task)
    cases = [case for case in card.cases if case.values["outliers"] > 1]
    assert cases
    places = []
    for seed in (SEED, SEED + 1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found = drawn(card, folder, further=cases, seed=seed)
        for case in cases:
            usual = (3 / case.values["N"]) ** 0.5 if task == "matrix_power" else 1.0
            for name, numbers in found[case.label].items():
                if name == "col_ids":
                    continue
                larger = np.abs(numbers[np.abs(numbers) > 1.000001 * usual])
                if name not in WITH_OUTLIERS[task]:
                    assert not len(larger), (case.label, name)
                    continue
                assert 1 <= len(larger) <= MOST, (case.label, name)
                times = larger / usual / case.values["outliers"]
                assert 0.499999 <= times.min() <= times.max() <= 1.000001, (case.label, name)
                places.append((case.label, name, tuple(np.flatnonzero(np.abs(numbers) > 1.000001 * usual))))
    assert len(set(places)) == len(places)


@pytest.mark.slow(but=["conv_1d"])
@pytest.mark.parametrize("task", BEFORE)
def test_timed_inputs_are_the_same_as_before(task: str, tmp_path: Path) -> None:
    """Kept times are of these."""
    assert digest_of_the_lightest(cards.load(task), tmp_path) == BEFORE[task]
