"""Near copies among many pieces of code: the Jaccard index of their shingles, and an index that finds who is near.

Candidates share a band of MinHash values (Broder, On the resemblance and containment of documents, 1997): 24 bands of 4
find 99.9 % of the pairs with an index of 0.7, and more of nearer ones. Whether they are near is then computed exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import numpy as np
import numpy.typing as npt

from cudamaster.training.shingles import shingles

# From here on two pieces are copies of each other with names, numbers or a few lines changed.
COPY = 0.8
# From here on a kernel shows how a benchmark's kernel is done. Of the baselines' kernels, one of 200 pairs of different
# tasks is as near as that, of one family, such as two activations (docs/corpus.md).
HELD_OUT = 0.7
GIVEN_AWAY = 0.5  # overlap from which on a text gives a piece away, so it is no context for it
_BANDS, _ROWS = 24, 4
_DRAWN = np.random.default_rng(2014)
_FACTORS = _DRAWN.integers(1, 2**63, _BANDS * _ROWS, dtype=np.uint64) | np.uint64(1)
_TERMS = _DRAWN.integers(0, 2**63, _BANDS * _ROWS, dtype=np.uint64)

Shape = frozenset[int]


def shape_of(code: str) -> Shape:
    """The shingles of a code, as numbers that are the same in every process."""
    return frozenset(crc32("\0".join(each).encode()) for each in shingles(code))


def jaccard(one: Shape, other: Shape) -> float:
    """What two shapes have in common, over what either has: 0 to 1."""
    both = len(one & other)
    return both / (len(one) + len(other) - both) if both else 0.0


def overlap(one: Shape, other: Shape) -> float:
    """What two shapes have in common, over the smaller one: 1 if it lies in the other whole."""
    return len(one & other) / min(len(one), len(other)) if one and other else 0.0


class Index:
    """Shapes by a key, to be asked who is near."""

    def __init__(self, threshold: float) -> None:
        """`threshold` is the least Jaccard index of near copies; below 0.7 some are not found."""
        self._threshold = threshold
        self._bands: dict[tuple[int, bytes], list[int]] = {}
        self._kept: list[tuple[str, Shape]] = []

    def add(self, key: str, shape: Shape) -> None:
        """Keep a shape."""
        for band in _bands_of(shape):
            self._bands.setdefault(band, []).append(len(self._kept))
        self._kept.append((key, shape))

    def nearest(self, shape: Shape) -> tuple[str, float] | None:
        """The key of the nearest shape that reaches the threshold, and its index."""
        places = {place for band in _bands_of(shape) for place in self._bands.get(band, ())}
        found = [(jaccard(shape, self._kept[place][1]), -place) for place in places]
        best = max(found, default=(0.0, 0))
        return (self._kept[-best[1]][0], best[0]) if found and best[0] >= self._threshold else None


def _bands_of(shape: Shape) -> Iterator[tuple[int, bytes]]:
    if not shape:
        return
    values: npt.NDArray[np.uint64] = np.fromiter(shape, dtype=np.uint64, count=len(shape))
    least = np.full(_BANDS * _ROWS, np.iinfo(np.uint64).max, dtype=np.uint64)
    for at in range(0, len(values), 4096):  # a table of all would be large for a long file
        hashed = (values[at : at + 4096, None] * _FACTORS + _TERMS) >> np.uint64(16)
        least = np.minimum(least, hashed.min(axis=0))
    for band in range(_BANDS):
        yield band, least[band * _ROWS : (band + 1) * _ROWS].tobytes()
