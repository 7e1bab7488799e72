"""How often a sparse row, summed right but in another order than the baseline's, is called wrong by the judge's bound.

    python benchmarks/sum_orders.py [CASES]

Draws cases as the held-out ones of spmv_coo are (bench/tasks/spmv_coo.yaml): with heavy rows, with few rows, and
others; with no outliers, or about four in the values and in x that are 2^10 or 2^24 times larger. A baseline and a
kernel add the products of each row in fp32, each in a random order of its own. The bound is the judge's
(bench/include/mskb/compare.h): four times the baseline's worst error or four ulps, beside the rounding of the result.
It is taken on two scales of a row:

    absolute    the sum of the absolute terms
    any order   sqrt(number of terms x sum of squares), which the judge takes for sparse rows

Prints for each how many cases refuse the kernel, and its worst error in ulps of the scale.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

ULP = 2.0**-23
COLUMNS = 2048
LOOKED_AT = 200  # rows of a case: the longest, and those with the largest terms
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def drawn(rng: np.random.Generator, kind: str, outlier: float) -> tuple[int, Ints, NDArray[np.float32], Floats]:
    """Number of rows; row, product in fp32 and exact product of each entry."""
    if kind == "heavy rows":
        rows = int(rng.integers(16, 5001))
        entries = int(rng.integers(rows * 4, rows * 8 + 2001))
    elif kind == "few rows":
        rows = int(rng.integers(1, 41))
        entries = int(rng.integers(rows, 20001))
    else:
        rows = int(rng.integers(1, 5001))
        entries = int(rng.integers(rows, rows * 8 + 2001))
    row = rng.integers(0, rows, entries)
    if kind == "heavy rows":
        row[: entries // 2] = rng.integers(0, int(rng.integers(1, 4)), entries // 2)
    values, x = rng.uniform(-1, 1, entries), rng.uniform(-1, 1, COLUMNS)
    values[rng.random(entries) < 4 / entries] *= outlier
    x[rng.random(COLUMNS) < 4 / COLUMNS] *= outlier
    column = rng.integers(0, COLUMNS, entries)
    a, b = values.astype(np.float32), x.astype(np.float32)[column]
    return rows, row, a * b, a.astype(np.float64) * b


def sums(row: Ints, product: NDArray[np.float32], order: Ints, rows: Ints) -> Floats:
    """Of each of `rows` the sum in fp32, one entry after the other in this order."""
    order = order[np.argsort(row[order], kind="stable")]
    begin, end = np.searchsorted(row[order], rows), np.searchsorted(row[order], rows, "right")
    found = [
        np.add.accumulate(product[order[b:e]], dtype=np.float32)[-1] if e > b else 0.0
        for b, e in zip(begin, end, strict=True)
    ]
    return np.array(found, dtype=np.float64)


def main() -> None:
    """Simulate CASES cases of each kind and outlier, 300 unless told."""
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    rng = np.random.default_rng(0)
    print(
        f"{'cases':<12}{'outliers':>10}{'number':>8}   {'refused: absolute':>18}{'any order':>11}   worst error, ulps"
    )
    for kind in ("heavy rows", "few rows", "others"):
        for power in (0, 10, 24):
            refused, worst = [0, 0], [0.0, 0.0]
            for _ in range(cases):
                rows, row, product, exact = drawn(rng, kind, 2.0**power)
                terms = np.bincount(row, minlength=rows)
                value = np.bincount(row, exact, rows)
                scales = np.bincount(row, np.abs(exact), rows), np.sqrt(terms * np.bincount(row, exact**2, rows))
                largest = np.zeros(rows)
                np.maximum.at(largest, row, np.abs(exact))
                half = LOOKED_AT // 2
                chosen = np.unique(np.concatenate([np.argsort(-terms)[:half], np.argsort(-largest)[:half]]))
                rounding = 2 * np.spacing(np.abs(value[chosen]).astype(np.float32)).astype(np.float64)
                errors = []
                for _ in range(2):
                    off = np.abs(sums(row, product, rng.permutation(len(row)), chosen) - value[chosen])
                    errors.append(np.maximum(off - rounding, 0))
                for k, scale in enumerate(scales):
                    baseline, kernel = (error / np.where(scale[chosen] > 0, scale[chosen], 1) for error in errors)
                    refused[k] += bool((kernel > max(4 * baseline.max(), 4 * ULP)).any())
                    worst[k] = max(worst[k], kernel.max() / ULP)
            print(
                f"{kind:<12}{'2^' + str(power) if power else 'none':>10}{cases:>8}   {refused[0]:>18}{refused[1]:>11}"
                f"   {worst[0]:.1f}, {worst[1]:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
