"""bf16 and fp16 round as the GPU does, held against exact rational arithmetic and integer rounding of our own."""

from fractions import Fraction

import numpy as np
import pytest

FORMATS = {"bf16": (8, -126, 127), "fp16": (11, -14, 15)}  # precision, least and greatest exponent
NEAREST, ZERO, UP, DOWN = range(4)


def value_of(kind: str, bits: int) -> Fraction | None:
    """The exact value of a finite pattern, None for infinity and NaN."""
    precision, least, greatest = FORMATS[kind]
    fraction_bits = precision - 1
    exponent, fraction = (bits & 0x7FFF) >> fraction_bits, bits & ((1 << fraction_bits) - 1)
    if exponent == greatest - least + 2:
        return None
    if exponent:
        fraction += 1 << fraction_bits
    shift = max(exponent, 1) - 1 + least - fraction_bits
    return (-1 if bits & 0x8000 else 1) * fraction * Fraction(2) ** shift


def rounded(kind: str, value: Fraction, rounding: int = NEAREST) -> int:
    """The pattern that `value`, which is not 0, rounds to."""
    precision, least, greatest = FORMATS[kind]
    negative, size = value < 0, abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    exponent = max(exponent, least)
    scaled = size / Fraction(2) ** (exponent - precision + 1)
    kept = scaled.numerator // scaled.denominator
    rest = scaled - kept
    away = {UP: not negative, DOWN: negative}.get(rounding, False)
    if rounding == NEAREST:
        kept += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and kept % 2 == 1)
    elif away and rest:
        kept += 1
    if kept >> precision:
        kept, exponent = kept >> 1, exponent + 1
    sign = 0x8000 if negative else 0
    biased = exponent - least + 1
    if exponent > greatest:
        infinity = (greatest - least + 2) << (precision - 1)
        return sign | (infinity if rounding == NEAREST or away else infinity - 1)
    return sign | ((kept - (1 << (precision - 1)) + (biased << (precision - 1))) if kept >> (precision - 1) else kept)


def finite_patterns(kind: str, count: int, seed: int) -> np.ndarray:
    """Random patterns, many of them of like size, where cancellation and ties are."""
    random = np.random.default_rng(seed)
    wide = random.integers(0, 1 << 16, (count, 3), dtype=np.uint16)
    base = 0x3F80 if kind == "bf16" else 0x3C00
    near = (base + random.integers(-600, 600, (count, 3))).astype(np.uint16) | (
        random.integers(0, 2, (count, 3)).astype(np.uint16) << 15
    )
    tiny = random.integers(0, 0x500, (count, 3), dtype=np.uint16)
    mixed = wide.copy()
    mixed[:, 2] = tiny[:, 2]
    low = np.stack([near[:, 0], tiny[:, 1], tiny[:, 2]], axis=1)
    return np.concatenate([wide, near, mixed, low])


def computed(build, tmp_path, kind: str, operation: int, data: np.ndarray) -> np.ndarray:
    data.tofile(tmp_path / "in")
    ran = build("narrow").run(kind, str(operation), str(tmp_path / "in"), str(tmp_path / "out"))
    assert ran.exit_code == 0, ran.stderr
    return np.fromfile(tmp_path / "out", dtype=np.uint16)


OPERATIONS = {
    0: lambda a, b, c: a + b,
    1: lambda a, b, c: a - b,
    2: lambda a, b, c: a * b,
    3: lambda a, b, c: a / b if b else None,
    4: lambda a, b, c: a * b + c,
}


@pytest.mark.slow(but=["bf16-0", "bf16-3", "fp16-2", "fp16-4"])
@pytest.mark.parametrize("operation", sorted(OPERATIONS))
@pytest.mark.parametrize("kind", ["bf16", "fp16"])
def test_arithmetic_rounds_once(build, tmp_path, kind, operation):
    """Sum, difference, product, quotient and fused multiply-add equal the exact result, rounded once."""
    triples = finite_patterns(kind, 2500, operation)
    got = computed(build, tmp_path, kind, operation, triples)
    checked = 0
    for triple, bits in zip(triples.tolist(), got.tolist(), strict=True):
        values = [value_of(kind, pattern) for pattern in triple]
        used = values if operation == 4 else values[:2]
        if any(value is None for value in used):
            continue
        exact = OPERATIONS[operation](*values)
        if not exact:
            continue
        assert bits == rounded(kind, exact), [hex(pattern) for pattern in triple]
        checked += 1
    assert checked > 7000


@pytest.mark.parametrize("rounding", [NEAREST, ZERO, UP, DOWN])
@pytest.mark.parametrize("kind", ["bf16", "fp16"])
def test_conversion_from_float(build, tmp_path, kind, rounding):
    """Every rounding mode, over random floats, floats near the format's range and exact ties."""
    random = np.random.default_rng(rounding)
    bits = random.integers(0, 1 << 32, 4000, dtype=np.uint64)
    normal = random.standard_normal(4000).astype(np.float32)
    small = (normal * np.float32(2.0) ** random.integers(-30, 20, 4000).astype(np.float32)).astype(np.float32)
    ties = (random.integers(0, 1 << 16, 4000, dtype=np.uint64) << 16) | 0x8000
    half_ties = (random.integers(0x70 << 11, 0x90 << 11, 4000, dtype=np.uint64) << 13) | 0x1000
    patterns = np.concatenate([bits, small.view(np.uint32), ties, half_ties]).astype(np.uint32)
    triples = np.zeros((len(patterns), 3), dtype=np.uint16)
    triples[:, 0], triples[:, 1] = patterns & 0xFFFF, patterns >> 16
    got = computed(build, tmp_path, kind, 10 + rounding, triples)
    checked = 0
    for pattern, value, result in zip(patterns.tolist(), patterns.view(np.float32).tolist(), got.tolist(), strict=True):
        if value != value:
            assert result == 0x7FFF
        elif value in (float("inf"), float("-inf")) or value == 0:
            continue
        else:
            assert result == rounded(kind, Fraction(value), rounding), hex(pattern)
            checked += 1
    assert checked > 12000


@pytest.mark.parametrize("kind", ["bf16", "fp16"])
def test_conversion_from_double_rounds_once(build, tmp_path, kind):
    """Doubles a hair beside a tie, which a detour over float would push onto it."""
    precision = FORMATS[kind][0]
    random = np.random.default_rng(5)
    steps = random.integers(1 << (precision - 1), 1 << precision, 3000).astype(np.float64)
    hair = random.choice([-1.0, 0.0, 1.0], 3000) * 2.0**-40
    doubles = (steps + 0.5 + hair) * 2.0 ** random.integers(-12, 3, 3000)
    got = computed(build, tmp_path, kind, 20, doubles)
    for value, result in zip(doubles.tolist(), got.tolist(), strict=True):
        assert result == rounded(kind, Fraction(value)), value.hex()
