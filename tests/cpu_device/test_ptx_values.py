"""Each instruction of inline PTX on registers, held against the manual's definition on random and special operands."""

import shutil
import subprocess

import numpy as np
import ptx_cases
import pytest

from tests.cpu_device.ptx_oracle import agrees, expected

WIDTHS = {"h": 16, "r": 32, "l": 64, "f": 32, "d": 64, "p": 1}


@pytest.fixture(scope="module")
def results(ptx_words) -> dict[str, np.ndarray]:
    """The 64 bits of each row, by case, as the CPU device makes them."""
    made = np.fromfile(ptx_words("cases") / "cases.out", dtype=np.uint64).reshape(-1, ptx_cases.ROWS)
    return dict(zip(ptx_cases.cases(), made, strict=True))


def groups() -> list[str]:
    return sorted({case.split(".")[0] for case in ptx_cases.cases()})


@pytest.mark.parametrize("group", groups())
def test_results_are_the_manuals(results, group):
    """All cases of one instruction, in all rows."""
    rows = ptx_cases.data().tolist()
    for case, made in results.items():
        if case.split(".")[0] != group:
            continue
        opcode, target, *sources = case.split()
        for row, got in zip(rows, made.tolist(), strict=True):
            operands, left = [], iter(row)
            for source in sources:
                operands.append(next(left) & ((1 << WIDTHS[source]) - 1) if source in WIDTHS else int(source, 0))
            wanted = expected(opcode, operands)
            width = WIDTHS[target]
            assert agrees(wanted, got, width), f"{case}: {[hex(bits) for bits in operands]} gave {got:#x}, not {wanted}"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_the_cases_are_ptx(tmp_path):
    """ptxas takes every case."""
    (tmp_path / "cases.cu").write_text(ptx_cases.program())
    target = "-gencode=arch=compute_90a,code=sm_90a"
    command = ["nvcc", target, "-cubin", "-o", str(tmp_path / "cases.cubin"), str(tmp_path / "cases.cu")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
