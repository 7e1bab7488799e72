"""An index that finds near copies among many pieces of code (shingles.py), where comparing all pairs takes too long.

Candidates share a band of MinHash values (Broder, On the resemblance and containment of documents, 1997): 24 bands of 4
find 99.9 % of the pairs with an index of 0.7, and more of nearer ones. Whether they are near is then computed exactly.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from cudamaster.training.shingles import NEAR_COPY, Shingles, jaccard

_BANDS, _ROWS = 24, 4
_DRAWN = np.random.default_rng(2014)
_FACTORS = _DRAWN.integers(1, 2**63, _BANDS * _ROWS, dtype=np.uint64) | np.uint64(1)
_TERMS = _DRAWN.integers(0, 2**63, _BANDS * _ROWS, dtype=np.uint64)


class Index:
    """Shingles by a key, to be asked who is near."""

    def __init__(self) -> None:
        self._bands: dict[tuple[int, bytes], list[int]] = {}
        self._kept: list[tuple[str, Shingles]] = []

    def add(self, key: str, shape: Shingles) -> None:
        """Keep a shape."""
        for band in _bands_of(shape):
            self._bands.setdefault(band, []).append(len(self._kept))
        self._kept.append((key, shape))

    def nearest(self, shape: Shingles) -> tuple[str, float] | None:
        """The key of the nearest shape that is a near copy, and its index."""
        places = {place for band in _bands_of(shape) for place in self._bands.get(band, ())}
        found = [(jaccard(shape, self._kept[place][1]), -place) for place in places]
        best = max(found, default=(0.0, 0))
        return (self._kept[-best[1]][0], best[0]) if found and best[0] >= NEAR_COPY else None


def _bands_of(shape: Shingles) -> Iterator[tuple[int, bytes]]:
    if not shape:
        return
    values: npt.NDArray[np.uint64] = np.fromiter(shape, dtype=np.uint64, count=len(shape))
    least = np.full(_BANDS * _ROWS, np.iinfo(np.uint64).max, dtype=np.uint64)
    for at in range(0, len(values), 4096):  # a table of all would be large for a long file
        hashed = (values[at : at + 4096, None] * _FACTORS + _TERMS) >> np.uint64(16)
        least = np.minimum(least, hashed.min(axis=0))
    for band in range(_BANDS):
        yield band, least[band * _ROWS : (band + 1) * _ROWS].tobytes()
