"""Every barrier of a few of our kernels is needed: without it, the check fails. benchmarks/barriers.py tries all."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from cudamaster.core.values import Precision, Status

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "barriers.py"
# Reductions, tiles, tickets of the last block, warps that hand on in shared memory, tensor cores, scans and lists.
TRIED = [
    ("dot_product", Precision.FP32, "baseline"),
    ("mse_loss", Precision.FP32, "1_wide_loads_one_launch"),
    ("matrix_mul", Precision.FP32, "1_register_tiles"),
    ("spmv_csr", Precision.FP32, "3_vector_in_shared_memory"),
    ("prefix_sum", Precision.FP32, "1_sum_then_scan"),
    ("matrix_mul", Precision.BF16, "1_tensor_cores"),
]


@pytest.fixture(scope="module")
def barriers() -> ModuleType:
    """benchmarks/barriers.py."""
    spec = importlib.util.spec_from_file_location("barriers", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["barriers"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize(("task", "precision", "name"), TRIED, ids=lambda value: str(value))
def test_no_barrier_can_be_taken_out(barriers, task, precision, name):
    """Each mutant is refused, or listed with the reason why it does what the kernel did; the kernel itself is right."""
    (kernel,) = [each for each in barriers.kernels(f"{task}-{precision}") if each.name == name]
    assert barriers.look(kernel)["status"] == Status.CORRECT
    equivalent = yaml.safe_load(barriers.EQUIVALENT.read_text())
    mutants = list(kernel.mutants)
    assert mutants
    for mutant in mutants:
        found = barriers.look(mutant)
        assert (found["status"] == Status.CORRECT) == (mutant.label in equivalent), found


def test_what_is_listed_as_equivalent_is_there(barriers):
    """Each entry names a mutant of a kernel that is still ours, and gives a reason."""
    equivalent = yaml.safe_load(barriers.EQUIVALENT.read_text())
    ours = {mutant.label for kernel in barriers.kernels("*") for mutant in kernel.mutants}
    assert set(equivalent) <= ours
    assert all(len(reason) > 20 for reason in equivalent.values())


def test_mutants_lose_one_barrier_each(barriers):
    """Barriers are found in code alone, one is taken out at a time, and lines stay where they were."""
    code = "void f() {\n    __syncthreads(); // __syncthreads();\n    g.sync();\n    __syncwarp(1u << 3);\n}\n"
    kernel = barriers.Kernel("dot_product", Precision.FP32, "own", code)
    mutants = list(kernel.mutants)
    assert [mutant.line for mutant in mutants] == [2, 3, 4]
    assert all(len(mutant.code.splitlines()) == len(code.splitlines()) for mutant in mutants)
    assert "__syncthreads(); //" not in mutants[0].code
    assert "g.sync();" in mutants[0].code
