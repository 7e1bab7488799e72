"""wgmma in its types and layouts, held against the product of the matrices; and kernels that leave something out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import ptx_warpgroups
import pytest
from ptx_warpgroups import COLUMNS, ROWS, STEPS, Case

from cudamaster.devices.cpu.device import CpuDevice
from tests.cpu_device import tensor_oracle
from tests.cpu_device.ptx_oracle.converting import sizes

ENDS = [
    ("product", 0, ""),
    ("no-wait", 9, "ends before its wgmma is done"),
    ("no-commit", 9, "ends before its wgmma is done"),
    ("overwritten", 3, ""),
    ("no-fence", 9, "wgmma.mma_async before any wgmma.fence"),
    ("changed", 9, "accumulators that were changed behind a product and without wgmma.fence since"),
    ("changed-too-early", 9, "accumulators that were changed before their wgmma was waited for"),
    ("fenced-again", 0, ""),
    ("ring", 0, ""),
]


@pytest.fixture(scope="module")
def results(ptx_words) -> dict[Case, np.ndarray]:
    """The registers of all threads, by case."""
    made = np.fromfile(ptx_words("warpgroups") / "warpgroups.out", dtype=np.uint32).reshape(-1, 128, 16)
    return dict(zip(ptx_warpgroups.cases(), made, strict=True))


def numbers(patterns: np.ndarray, kind: str) -> np.ndarray:
    """What the patterns of a factor stand for."""
    if kind == "f16":
        return patterns.view(np.float16).astype(np.float64)
    if kind == "bf16":
        return (patterns.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if kind == "tf32":
        return patterns.view(np.float32).astype(np.float64)
    if kind in ("s8", "u8"):
        return patterns.view(np.int8 if kind == "s8" else np.uint8).astype(np.float64)
    table = sizes(f"{kind}x2")
    values = np.array([float(value) for value in table] + [np.nan] * (128 - len(table)))
    return values[patterns & 0x7F] * np.where(patterns & 0x80, -1.0, 1.0)


def accumulators(words: np.ndarray, kind: str) -> np.ndarray:
    """The matrix of all threads' accumulators, by the manual's rows and columns of d[i]."""
    if kind == "f16":
        values = np.ascontiguousarray(words[:, : COLUMNS // 4]).view(np.float16).astype(np.float64)
    else:
        values = np.ascontiguousarray(words).view(np.float32 if kind == "f32" else np.int32).astype(np.float64)
    matrix = np.full((ROWS, COLUMNS), np.nan)
    thread = np.arange(128)
    for i in range(COLUMNS // 2):
        row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i // 2 % 2)
        matrix[row, 8 * (i // 4) + 2 * (thread % 4) + i % 2] = values[:, i]
    return matrix


@pytest.mark.slow
@pytest.mark.parametrize("case", ptx_warpgroups.cases(), ids=lambda case: case.name)
def test_product(results, case):
    """Whole numbers, of which all sums are exact, give the very product, others what tensor cores make of it."""
    patterns = ptx_warpgroups.matrices(case)
    left, right = numbers(patterns[0], case.a), numbers(patterns[1], case.b)
    wanted = left @ right.T * case.signs[0] * case.signs[1]
    if case.wild:
        wanted = np.zeros((1, ROWS, COLUMNS))
        eight = case.a in ("e4m3", "e5m2")
        for step in range(STEPS):
            part = slice(step * case.inner, (step + 1) * case.inner)
            factors = left[None, :, part], right[None, :, part]
            wanted = tensor_oracle.step(*factors, wanted, (case.d, case.a, case.b), eight=eight)
        wanted = wanted[0]
    assert (accumulators(results[case], case.d) == wanted).all()


@pytest.mark.slow(but=[f"plain-{name}-{exit_code}-{words}" for name, exit_code, words in ENDS])
@pytest.mark.parametrize(("name", "exit_code", "words"), ENDS)
@pytest.mark.parametrize("debug", [False, True], ids=["plain", "sanitizer"])
def test_products_are_late(build, name, exit_code, words, debug):
    """They take place at their wait: factors are read then, and accumulators written."""
    ran = build("ptx_wgmma", debug=debug).run(name)
    assert ran.exit_code == exit_code, ran.stderr
    assert words in ran.stderr


@pytest.mark.parametrize(
    ("name", "exit_code", "words"),
    [
        *((name, 0, "") for name in ("registers", "registers-upper", "shared", "shared-upper")),
        ("out-of-order", 9, "a sparse wgmma whose metadata has the places of four elements out of order"),
    ],
)
def test_sparse_products(build, name, exit_code, words):
    """Two of each four elements of a are there, in lanes that the selector tells; an H200 gives the same."""
    ran = build("ptx_wgmma_sparse").run(name)
    assert ran.exit_code == exit_code, ran.stderr
    assert words in ran.stderr


def test_a_sparse_product_has_two_pairs_of_lanes_to_choose_from(tmp_path):
    """Of a row's four lanes: a third pair would be that of the row below."""
    text = (Path(__file__).parent / "kernels/ptx_wgmma_sparse.cu").read_text()
    device = CpuDevice()
    compiled = device.compile(text.replace("product_kernel<true, 0>", "product_kernel<true, 2>"), [], "it", tmp_path)
    assert compiled.object is not None, compiled.log
    linked = device.link([compiled.object], tmp_path / "it")
    assert linked.object is not None, linked.log
    ran = device.execute([str(linked.object), "registers"], 60)
    assert ran.exit_code == 9
    assert "a sparse wgmma whose selector is neither 0 nor 1" in ran.stderr


def test_factors_in_use_and_without_a_fence_are_found(tmp_path):
    """The checker names a write to a factor before the product was waited for, or without a fence before it.

    Otherwise it has nothing to say.
    """
    device = CpuDevice()
    source = (Path(__file__).parent / "kernels" / "ptx_wgmma.cu").read_text()
    compiled = device.compile_observed(source, ["-O2"], "wgmma", tmp_path, "check")
    assert compiled.object is not None, compiled.log
    linked = device.link_observed([compiled.object], tmp_path / "wgmma", "check")
    assert linked.object is not None, linked.log
    right = device.execute([str(linked.object), "product"], 60)
    assert (right.exit_code, right.stderr) == (0, "")
    wrong = device.execute([str(linked.object), "overwritten"], 60)
    assert '"kind": "early"' in wrong.stderr
    unfenced = device.execute([str(linked.object), "no-fence-of-proxies"], 60)
    assert '"kind": "unfenced"' in unfenced.stderr
