"""The CPU device gives what an H200 gave for the same programs and data (h200_ptx.npz, which says when).

Bit for bit, NaN included; but for the approximations of f32 (and one of bf16), which may be off by what the PTX manual
allows, and are NaN or infinite where the GPU's are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import ptx_cases
import ptx_results
import pytest

H200 = Path(__file__).with_name("h200_ptx.npz")

# Of approximations what the PTX manual allows: units in the last place, a relative error, or an absolute one. The angle
# of sin and cos is rounded as on the GPU, so that their bound, which the manual gives for small ones, holds for all.
ULPS = {"div.approx.f32": 2, "div.full.f32": 2, "rcp.approx": 1, "ex2.approx": 2}
RELATIVE = {"sqrt.approx": 2**-23, "rsqrt.approx": 2**-22.9, "tanh.approx": 2**-11, "lg2.approx": 2**-22}
RELATIVE["ex2.approx.ftz.bf16x2"] = 2**-7
ABSOLUTE = {"sin.approx": 2**-20.5, "cos.approx": 2**-20.5}


@pytest.fixture(scope="module")
def h200() -> dict[str, np.ndarray]:
    return ptx_results.load(H200)


@pytest.fixture(scope="module")
def ours(ptx_words) -> Callable[[str], dict[str, np.ndarray]]:
    """What the CPU device gives, by program."""
    return cache(lambda program: ptx_results.read_results(ptx_words(program), program))


def test_the_data_say_where_they_are_from():
    kept = np.load(H200)
    about = [str(kept[word]) for word in ("device", "driver", "toolkit", "date")]
    assert about == ["NVIDIA H200", "580.159.04", "CUDA 13.0", "2026-11-23"]


def singles(bits: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return bits.astype(np.uint32).view(np.float32).astype(np.float64)


def values(bits: np.ndarray, opcode: str) -> np.ndarray:
    """Those of each result, one or two."""
    words = bits.astype(np.uint32)
    return singles(np.stack([words << 16, words & 0xFFFF0000] if opcode.endswith("bf16x2") else [words]))


def approximate(opcode: str) -> bool:
    return opcode in RELATIVE or (opcode.endswith(".f32") and (".approx." in opcode or ".full." in opcode))


def near(case: str, got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Which results of an approximation are near enough."""
    opcode = case.split()[0]
    a, b = values(got, opcode), values(wanted, opcode)
    finite = np.isfinite(a) & np.isfinite(b)
    error = np.abs(np.where(finite, a, 0) - np.where(finite, b, 0))
    bare = opcode if opcode in RELATIVE | ULPS else opcode.removesuffix(".f32").removesuffix(".ftz")
    if bare in ULPS:
        close = np.abs(got.astype(np.int64) - wanted.astype(np.int64)) <= ULPS[bare]
    elif bare in ABSOLUTE:
        close = error <= ABSOLUTE[bare]
    else:
        close = error <= RELATIVE[bare] * np.abs(np.where(finite, b, 0))
    if bare == "lg2.approx":  # near one the bound is absolute
        given = singles(ptx_cases.data()[:, 0] & np.uint64(0xFFFFFFFF))
        close |= (given > 0.5) & (given < 2) & (error <= 2**-22)
    return (got == wanted) | (finite & close).all(axis=0)


@pytest.mark.parametrize("group", sorted({case.split(".")[0] for case in ptx_cases.cases()}))
def test_registers(ours, h200, group):
    """Every case of one instruction on registers, in all rows."""
    for case in ptx_cases.cases():
        if case.split(".")[0] == group:
            got, wanted = ours("cases")[case], h200[case]
            right = near(case, got, wanted) if approximate(case.split()[0]) else got == wanted
            at = np.flatnonzero(~right)
            given = [hex(word) for word in ptx_cases.data()[at[0]]] if len(at) else []
            assert not len(at), f"{case}: {given} gave {got[at[0]]:#x}, and {wanted[at[0]]:#x} on the GPU"


@pytest.mark.slow
@pytest.mark.parametrize("opcode", ptx_cases.products())
def test_products(ours, h200, opcode):
    """mma.sync in all shapes and types: every bit of every tile."""
    assert np.flatnonzero(ours("products")[opcode] != h200[opcode]).tolist() == []


@pytest.mark.slow
def test_products_of_warpgroups(ours, h200):
    """wgmma in all types and layouts, of whole numbers and of others: every bit."""
    names = [name for name in h200 if name.startswith("wgmma ")]
    assert len(names) == 56
    assert [name for name in names if (ours("warpgroups")[name] != h200[name]).any()] == []
