"""Copies in bulk with an operation (cp.reduce.async.bulk), held against numpy; and kernels that leave something out."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from functools import reduce
from pathlib import Path

import numpy as np
import pytest

from cudamaster.devices.cpu.device import CpuDevice
from cudamaster.devices.protocol import Ran
from cudamaster.faults.cpu_checker import MARK

BLOCKS, WORDS = 5, 64
KERNEL = Path(__file__).parent / "kernels" / "ptx_reduce.cu"
KINDS = {"b32": np.uint32, "b64": np.uint64, "u32": np.uint32, "u64": np.uint64, "s32": np.int32}
KINDS |= {"f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": np.uint16}
OPERATIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "inc": lambda old, with_: np.where(old >= with_, 0, old + 1),
}


def rows(kind: str) -> np.ndarray:
    """What each block has, and last what is there before: of floating point whole numbers, whose sums are exact."""
    random = np.random.default_rng(3)
    if kind[0] in "bus" and kind != "bf16":
        words = random.integers(0, 1 << 32, (BLOCKS + 1, WORDS), dtype=np.uint32)
        return words.view(KINDS[kind])
    per_word = {"f16": 2, "bf16": 2, "f32": 1, "f64": 0.5}[kind]
    values = random.integers(-20, 21, (BLOCKS + 1, int(WORDS * per_word))).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16) if kind == "bf16" else values.astype(KINDS[kind])


def run(program: Callable[[str, str, str], Ran], what: str, given: np.ndarray, folder: Path) -> tuple[Ran, np.ndarray]:
    (folder / "in").write_bytes(given.tobytes())
    ran = program(what, str(folder / "in"), str(folder / "out"))
    made = (folder / "out").read_bytes() if (folder / "out").exists() else b""
    return ran, np.frombuffer(made, given.dtype)


CASES = ["add.u32", "add.u64", "add.f32", "add.f64", "add.f16", "add.bf16", "min.s32", "max.u64", "max.f16", "inc.u32"]
CASES += ["and.b32", "or.b64", "xor.b32"]


@pytest.mark.parametrize("case", CASES)
def test_all_blocks_reduce_to_one_array(build, tmp_path, case):
    """Each operation, of whatever order of blocks: they are such that it does not matter."""
    operation, kind = case.split(".")
    given = rows(kind)
    if operation == "inc":
        given[:BLOCKS] = 0xFFFFFFFF  # else the order of blocks would count
    ran, made = run(build("ptx_reduce").run, case, given, tmp_path)
    assert ran.exit_code == 0, ran.stderr
    if kind == "bf16":
        as_floats = (given.astype(np.uint32) << 16).view(np.float32)
        assert ((made.astype(np.uint32) << 16).view(np.float32) == as_floats.sum(axis=0)).all()
    else:
        assert (made == reduce(OPERATIONS[operation], given[:BLOCKS], given[BLOCKS])).all()


def test_a_block_reduces_to_its_own_shared_memory(build, tmp_path):
    """With an mbarrier, as a copy into it."""
    given = rows("u32")
    ran, made = run(build("ptx_reduce").run, "own", given, tmp_path)
    assert ran.exit_code == 0, ran.stderr
    assert (made == given[0] + np.uint32(1000)).all()


def test_what_nobody_waits_for_does_not_come(build, tmp_path):
    given = rows("u32")
    ran, _ = run(build("ptx_reduce").run, "no-wait", given, tmp_path)
    assert ran.exit_code == 9
    assert "a block ends before its copy in bulk has read" in ran.stderr


@pytest.mark.slow
def test_the_checker_takes_it_for_atomics(tmp_path):
    """Blocks and atomics of other threads may meet in one place; a fence that is missing is found as for any copy."""
    device = CpuDevice()
    compiled = device.compile_observed(KERNEL.read_text(), ["-O2"], "reduce", tmp_path, "check")
    assert compiled.object is not None, compiled.log
    linked = device.link_observed([compiled.object], tmp_path / "reduce", "check")
    assert linked.object is not None, linked.log

    def program(*arguments: str) -> Ran:
        return device.execute([str(linked.object), *arguments], 60)

    for honest in ("add.f32", "atomics-too", "own"):
        ran, _ = run(program, honest, rows("u32"), tmp_path)
        assert (ran.exit_code, ran.stderr) == (0, ""), honest
    ran, _ = run(program, "no-fence", rows("u32"), tmp_path)
    told = [json.loads(line[len(MARK) :]) for line in ran.stderr.splitlines() if line.startswith(MARK)]
    assert {one["kind"] for one in told} == {"unfenced"}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_the_program_is_ptx(tmp_path):
    """nvcc and ptxas take it."""
    target = "-gencode=arch=compute_90a,code=sm_90a"
    command = ["nvcc", "-std=c++17", target, "-cubin", "-o", str(tmp_path / "x"), str(KERNEL)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
