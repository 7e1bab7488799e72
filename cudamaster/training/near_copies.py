"""Near copies on two sides of an export: the same code but for names, numbers, comments and layout (shingles.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cudamaster.training.shingles import NEAR_COPY, Shingles, jaccard, shingles


@dataclass(frozen=True)
class Pair:
    """Two kernels that are near copies: their keys, and how similar they are (0 to 1)."""

    first: str
    second: str
    similarity: float


def between(first: Mapping[str, str], second: Mapping[str, str], threshold: float = NEAR_COPY) -> tuple[Pair, ...]:
    """The near copies of two sides, each from key to code: for each key of `first` the most similar of `second`.

    Every pair is compared. An index that misses some would not do: this is the check of a split.
    """
    others = _merged(second)
    found = []
    for shape, keys in _merged(first).items():
        best = max(((jaccard(shape, other), names) for other, names in _alike(shape, others, threshold)), default=None)
        if best is not None and best[0] >= threshold:
            found += [Pair(key, best[1][0], best[0]) for key in keys]
    return tuple(sorted(found, key=lambda pair: (-pair.similarity, pair.first)))


def _merged(side: Mapping[str, str]) -> dict[Shingles, list[str]]:
    """The keys by their shingles: many variants of a kernel differ in numbers alone."""
    merged: dict[Shingles, list[str]] = {}
    for key, code in side.items():
        merged.setdefault(shingles(code), []).append(key)
    return merged


def _alike(
    shape: Shingles, others: Mapping[Shingles, list[str]], threshold: float
) -> Iterator[tuple[Shingles, list[str]]]:
    """Those of a size that can reach the threshold: the index is at most the smaller size over the larger."""
    for other, keys in others.items():
        if min(len(shape), len(other)) >= threshold * max(len(shape), len(other)):
            yield other, keys
