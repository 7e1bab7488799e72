"""What tensor cores make of a product's floating point, as runtime/products.cpp says it: with arrays of double here.

Held itself against an H200 by test_ptx_h200.py.
"""

from __future__ import annotations

import numpy as np

LEAST = {"f16": -14, "bf16": -126, "tf32": -126, "f32": -126, "e4m3": -6, "e5m2": -14}
NONE = -(10**6)  # the exponent of zero


def exponents(values: np.ndarray, kind: str) -> np.ndarray:
    """Of each value, that of the smallest normal number where it is below."""
    found = np.frexp(np.abs(values))[1] - 1
    return np.where(values == 0, NONE, np.maximum(found, LEAST[kind]))


def toward_zero(values: np.ndarray, bits: int) -> np.ndarray:
    """With so many significant bits, or fewer below f32's normal numbers."""
    unit = np.ldexp(1.0, np.maximum(np.frexp(values)[1], -125) - bits)
    return np.trunc(values / unit) * unit


def step(
    left: np.ndarray, right: np.ndarray, sums: np.ndarray, kinds: tuple[str, str, str], *, eight: bool
) -> np.ndarray:
    """Rows of `left` times rows of `right`, over all of k at once. What is infinite already stays so."""
    d, a, b = kinds
    factors = exponents(left, a)[:, :, None, :] + exponents(right, b)[:, None, :, :]
    products = left[:, :, None, :] * right[:, None, :, :]
    finite = np.isfinite(sums)
    addends = np.concatenate([products, np.where(finite, sums, 0)[..., None]], axis=-1)
    places = np.concatenate([factors, exponents(sums, d)[..., None]], axis=-1)
    top = np.maximum(np.where(addends == 0, NONE, places).max(axis=-1, keepdims=True), -400)
    unit = np.ldexp(1.0, top - (13 if eight else 25))
    total = (np.trunc(addends / unit) * unit).sum(axis=-1)
    with np.errstate(over="ignore"):
        result = total.astype(np.float16).astype(float) if d == "f16" else toward_zero(total, 14 if eight else 24)
    return np.where(finite, result, sums)


def mma_sync(left: np.ndarray, right: np.ndarray, sums: np.ndarray, kinds: tuple[str, str, str]) -> np.ndarray:
    """In one step; of 8 bits two of f16, and a sum."""
    if not kinds[1].startswith("e"):
        return step(left, right, sums, kinds, eight=False)
    made = np.zeros_like(sums)
    for part in (np.arange(left.shape[2]) % 4 < 2, np.arange(left.shape[2]) % 4 >= 2):
        made = step(left[:, :, part], right[:, :, part], made, (kinds[0], "f16", "f16"), eight=False)
    narrow = np.float16 if kinds[0] == "f16" else np.float32
    with np.errstate(over="ignore"):
        return (made + sums).astype(narrow).astype(float)
