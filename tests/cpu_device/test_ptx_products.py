"""mma.sync in all shapes and types, held against the product of the matrices that the manual's layouts make."""

from itertools import pairwise

import numpy as np
import ptx_cases
import pytest
from ptx_cases import ELEMENT_BITS, TILES, parts_of

from cudamaster.devices.cpu.device import CpuDevice
from tests.cpu_device import tensor_oracle
from tests.cpu_device.ptx_oracle.converting import sizes

LANES = np.arange(32)
GROUP, IN_GROUP = LANES // 4, LANES % 4  # groupID and threadID_in_group of the manual


@pytest.fixture(scope="module")
def results(ptx_words) -> dict[str, np.ndarray]:
    """What each product left in the registers of its lanes."""
    made = np.fromfile(ptx_words("products") / "products.out", dtype=np.uint32).reshape(-1, TILES, 32, 8)
    return dict(zip(ptx_cases.products(), made, strict=True))


def elements(words: np.ndarray, kind: str) -> np.ndarray:
    """Of each lane's words the values of the elements, low to high."""
    words = np.ascontiguousarray(words)
    tiles = words.shape[0]
    if kind == "f64":
        return words.view(np.float64)
    if kind == "f32":
        return words.view(np.float32).astype(np.float64)
    if kind == "tf32":
        return (words & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    if kind == "f16":
        return words.view(np.float16).astype(np.float64)
    if kind == "bf16":
        return (words.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if kind in ("s32", "u8", "s8"):
        return words.view({"s32": np.int32, "u8": np.uint8, "s8": np.int8}[kind]).astype(np.float64)
    if kind in ("e4m3", "e5m2"):
        table = sizes(f"{kind}x2")
        values = np.array([float(value) for value in table] + [np.nan] * (128 - len(table)))
        patterns = words.view(np.uint8)
        return values[patterns & 0x7F] * np.where(patterns & 0x80, -1.0, 1.0)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little").reshape(tiles, 32, -1)
    if kind == "b1":
        return bits.astype(np.float64)
    nibbles = (bits.reshape(tiles, 32, -1, 4) * np.array([1, 2, 4, 8])).sum(axis=3)
    return np.where((kind == "s4") & (nibbles > 7), nibbles - 16, nibbles).astype(np.float64)


def factor(values: np.ndarray, kind: str, long: int, inner: int) -> np.ndarray:
    """A factor of `long` rows (of a) or columns (of b), by the manual's row and column of element i of a lane."""
    register = 64 if kind == "f64" else 32
    neighbours = register // ELEMENT_BITS[kind]
    matrix = np.full((values.shape[0], long, inner), np.nan)
    for i in range(values.shape[2]):
        number = i // neighbours
        row = GROUP + (8 * (number % 2) if long == 16 else 0)
        block = number // 2 if long == 16 else number
        column = IN_GROUP * neighbours + i % neighbours + block * 4 * neighbours
        matrix[:, row, column] = values[:, :, i]
    return matrix


def accumulator(values: np.ndarray, long: int) -> np.ndarray:
    """The matrix of the accumulators c0, c1, ... of the lanes."""
    matrix = np.full((values.shape[0], long, 8), np.nan)
    for i in range(values.shape[2]):
        matrix[:, GROUP + 8 * (i // 2), 2 * IN_GROUP + i % 2] = values[:, :, i]
    return matrix


@pytest.mark.slow
@pytest.mark.parametrize("opcode", ptx_cases.products())
def test_product(results, opcode):
    """Whole numbers give the exact product, others one within the rounding of its sum: as tensor cores round it."""
    (m, n, k), (d, a, b, c), counts = parts_of(opcode)
    words = ptx_cases.product_data(opcode)
    width = 2 if a == "f64" else 1
    ends = np.cumsum([0, *counts[1:]]) * width
    parts = [words[:, :, start:end] for start, end in pairwise(ends)]
    left = factor(elements(parts[0], a), a, m, k)
    right = factor(elements(parts[1], b), b, n, k)
    added = accumulator(elements(parts[2], c), m)
    got = accumulator(elements(results[opcode][:, :, : counts[0] * width], d), m)
    if ".xor." in opcode:
        wanted = added + (left[:, :, None, :] != right[:, None, :, :]).sum(axis=3)
    else:
        wanted = added + np.einsum("tik,tjk->tij", left, right)
    if d == "s32":
        limits = np.iinfo(np.int32)
        wanted = (
            np.clip(wanted, limits.min, limits.max)
            if "satfinite" in opcode
            else wanted.astype(np.int64).astype(np.int32).astype(np.float64)
        )
        assert (got == wanted).all()
        return
    if d != "f64":
        assert (got == tensor_oracle.mma_sync(left, right, added, (d, a, b))).all()
    size = np.abs(added) + np.einsum("tik,tjk->tij", np.abs(left), np.abs(right))
    inside = size < 60000 if d == "f16" else np.full(wanted.shape, True)  # a sum of a part may be too large, too
    wanted = np.where(inside, wanted, 0)
    got = np.where(inside, got, 0)
    exact = wanted if d == "f64" else wanted.astype(np.float16 if d == "f16" else np.float32).astype(np.float64)
    assert (got[::2] == exact[::2]).all()
    # Of each addend 25 places stay, of a sum those of its type; it is made in one step, or in two and a last sum.
    cut = 2**-25 * (k + 2) + 3 * 2**-24
    unit = {"f16": cut + 3 * 2**-11, "f32": cut + 2**-23, "f64": 2**-50}[d]
    assert (np.abs(got - wanted) <= size * unit).all()
    assert not np.isnan(got).any()


@pytest.mark.slow
def test_infinities_and_nan_stay_in_their_rows_and_columns(ptx_words, tmp_path):
    """They come out as in any sum, and what does not meet them is what it would be without them."""
    opcode = next(one for one in ptx_cases.products() if "k16.row.col.f32.f16.f16.f32" in one)
    words = {one: ptx_cases.product_data(one) for one in ptx_cases.products()}
    halves, sums = words[opcode].view(np.uint16), words[opcode]
    random = np.random.default_rng(5)
    for tile in range(TILES):
        lane = random.integers(0, 32, 3)
        halves[tile, lane[0], random.integers(0, 8)] = random.choice([0x7C00, 0xFC00, 0x7E00])
        halves[tile, lane[1], 8 + random.integers(0, 4)] = 0x7C00
        sums[tile, lane[2], 6 + random.integers(0, 4)] = random.choice([0x7F800000, 0xFF800000, 0x7FC00000])
    np.concatenate([words[one].ravel() for one in words]).tofile(tmp_path / "in")
    program = [str(ptx_words("products") / "products"), str(tmp_path / "in"), str(tmp_path / "out")]
    ran = CpuDevice().execute(program, 60)
    assert ran.exit_code == 0, ran.stderr
    made = np.fromfile(tmp_path / "out", np.uint32).reshape(-1, TILES, 32, 8)[ptx_cases.products().index(opcode)]
    left = factor(elements(words[opcode][:, :, :4], "f16"), "f16", 16, 16)
    right = factor(elements(words[opcode][:, :, 4:6], "f16"), "f16", 8, 16)
    added = accumulator(elements(words[opcode][:, :, 6:10], "f32"), 16)
    got = accumulator(elements(made[:, :, :4], "f32"), 16)
    with np.errstate(invalid="ignore"):
        plain = added + (left[:, :, None, :] * right[:, None, :, :]).sum(axis=3)
    finite = np.isfinite(plain)
    assert 0 < finite.sum() < finite.size
    assert np.array_equal(got[~finite], plain[~finite], equal_nan=True)
    clean = [np.where(np.isfinite(one), one, 0) for one in (left, right, added)]
    assert (got == tensor_oracle.mma_sync(*clean, ("f32", "f16", "f16")))[finite].all()
