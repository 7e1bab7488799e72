"""How often a sum of terms of one sign, added right but in another way than the baseline's, is called wrong.

    python benchmarks/one_sign_sums.py [CASES]

Draws cases of mse_loss, monte_carlo_int and simpson_int about as held-out ones are: up to 60000 terms, one of 256 or so
16 to 64 times larger. The baseline adds a block of 256 terms in a tree and the blocks' sums in a random order, in fp32.
Kernels add otherwise. The bound is the judge's (bench/include/mskb/compare.h): four times the baseline's worst error or
four ulps, beside the rounding of the result, on two scales:

    absolute      the sum of the absolute terms
    of one sign   that, growing with the root of the number of terms (`of_one_sign` in bench/include/mskb/expected.h)

Prints for each way to add how many cases refuse it by either scale, and the least room that the second one left.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

ULP = 2.0**-23
BASELINES, CALLS = 12, 3  # calls of a case by which the bound goes, and that are judged
MOST = 60000  # terms of a case
Floats = NDArray[np.float64]
Singles = NDArray[np.float32]


def numbers(rng: np.random.Generator, count: int, lowest: float) -> Singles:
    """Numbers from `lowest` to lowest + 1, a few of them 16 to 64 times larger."""
    drawn = rng.uniform(lowest, lowest + 1, count)
    large = rng.random(count) < 1 / 256
    large[rng.integers(count)] = True
    drawn[large] *= 16 + 48 * rng.random(large.sum())
    return drawn.astype(np.float32)


def terms(rng: np.random.Generator, task: str, count: int) -> tuple[Singles, Floats]:
    """In fp32 as a kernel has them, and exact."""
    if task == "mse_loss":
        x, y = (numbers(rng, count, 0) * rng.choice(np.array([-1, 1], np.float32), count) for _ in range(2))
        return (x - y) * (x - y), (x.astype(np.float64) - y) ** 2
    values = numbers(rng, count, 0.5)
    if task == "monte_carlo_int":
        return values, values.astype(np.float64)
    weights = np.where(np.arange(count) % 2 == 1, 4, 2).astype(np.float32)
    weights[[0, -1]] = 1
    return values * weights, values.astype(np.float64) * weights


def one_by_one(values: Singles) -> np.float32:
    """Sum of values, each added to the sum of those before."""
    total: np.float32 = np.add.accumulate(values, dtype=np.float32)[-1]
    return total


def trees(values: Singles, width: int) -> Singles:
    """Sums of each `width` values by a tree, the last of what is left and zeros."""
    rows = np.pad(values, (0, -len(values) % width)).reshape(-1, width)
    while rows.shape[1] > 1:
        half = rows.shape[1] // 2
        rows = rows[:, :half] + rows[:, half:]
    return np.asarray(rows[:, 0], dtype=np.float32)


def by_atomics(width: int) -> Callable[[np.random.Generator, Singles], np.float32]:
    """Trees of `width` values, whose sums come in a random order."""
    return lambda rng, values: one_by_one(rng.permutation(trees(values, width)))


def in_threads(most: int) -> Callable[[np.random.Generator, Singles], np.float32]:
    """Up to `most` terms a thread, one after the other, and a tree of the threads' sums."""

    def add(_: np.random.Generator, values: Singles) -> np.float32:
        threads = -(-len(values) // most)
        rows = np.pad(values, (0, -len(values) % threads)).reshape(-1, threads)
        sums = np.add.accumulate(rows, axis=0, dtype=np.float32)[-1]
        total: np.float32 = trees(sums, 1 << (threads - 1).bit_length())[0]
        return total

    return add


WAYS = {
    "an atomic of each block of 1024": by_atomics(1024),
    "an atomic of each block of 256": by_atomics(256),
    "an atomic of each warp": by_atomics(32),
    "an atomic of each term": by_atomics(1),
    "512 terms a thread, a tree": in_threads(512),
    "2048 terms a thread, a tree": in_threads(2048),
}
_BASELINE = by_atomics(256)


def main() -> None:
    """Simulate CASES cases of each task, 150 unless told."""
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else 150
    rng = np.random.default_rng(0)
    print(f"{'task':<18}{'way to add':<34}{'cases':>6}   {'refused: absolute':>18}{'of one sign':>13}   least room")
    for task in ("mse_loss", "monte_carlo_int", "simpson_int"):
        refused = {way: [0, 0] for way in WAYS}
        room = dict.fromkeys(WAYS, np.inf)
        for _ in range(cases):
            count = int(rng.integers(2, MOST))

            def off(add: Callable[[np.random.Generator, Singles], np.float32], count: int = count) -> float:
                """Error of a call on fresh inputs, in ulps of the sum of the absolute terms."""
                values, exact = terms(rng, task, count)  # noqa: B023 - called within this turn
                want = exact.sum()
                rounding = 2 * float(np.spacing(np.float32(abs(want))))
                return float(max(abs(float(add(rng, values)) - want) - rounding, 0) / np.abs(exact).sum() / ULP)

            bound = max(4.0, 4 * max(off(_BASELINE) for _ in range(BASELINES)))
            grown = max(1.0, float(np.sqrt(count / 32)) / 8)
            for way, add in WAYS.items():
                worst = max(off(add) for _ in range(CALLS))
                # The baseline's error is smaller on the larger scale, four ulps of it are not.
                larger = max(4.0 * grown, bound)
                refused[way][0] += worst > bound
                refused[way][1] += worst > larger
                room[way] = min(room[way], larger / max(worst, 1e-9))
        for way in WAYS:
            print(
                f"{task:<18}{way:<34}{cases:>6}   {refused[way][0]:>18}{refused[way][1]:>13}   {room[way]:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
