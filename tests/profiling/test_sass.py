"""Instruction mixes, on what cuobjdump printed of a kernel for sm_90, and on what it prints here where it is there."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from cudamaster.devices import cuobjdump
from cudamaster.devices.cuda import find_nvcc
from cudamaster.profiling import sass
from cudamaster.profiling.sass import InstructionClass, InstructionMix, NoMix, class_of, parse

TEXT = (Path(__file__).parent / "data" / "sass.txt").read_text()
SYMBOL = "_ZN4ours20mix_kernel_optimizedILi4EEEvPKfP14__nv_bfloat162PfPi"
COUNTED = {
    InstructionClass.GLOBAL_LOAD: 2,
    InstructionClass.GLOBAL_STORE: 2,
    InstructionClass.SHARED_LOAD: 4,
    InstructionClass.LOCAL_LOAD: 1,
    InstructionClass.LOCAL_STORE: 4,
    InstructionClass.ASYNC_COPY: 1,
    InstructionClass.ATOMIC: 1,
    InstructionClass.FP32: 6,
    InstructionClass.FP16: 1,
    InstructionClass.INTEGER: 22,
    InstructionClass.SPECIAL: 1,
    InstructionClass.WARP: 2,
    InstructionClass.BARRIER: 3,
    InstructionClass.CONTROL: 1,
    InstructionClass.MOVE: 10,
}


def test_a_recorded_kernel() -> None:
    """Counted by hand in the text: three loads that are never executed and the padding behind EXIT are left out."""
    [mix] = parse(TEXT)
    assert mix == InstructionMix(SYMBOL, "sm_90", COUNTED)
    assert mix.total == sum(COUNTED.values()) == 61


def test_each_kernel_of_each_architecture_is_counted_by_itself() -> None:
    second = TEXT.replace("sm_90", "sm_80").replace("mix_kernel", "sum_kernel").replace("MUFU.EX2", "HMMA.16816.F32")
    first, other = parse(TEXT + second)
    assert first.counts == COUNTED
    assert (other.symbol, other.architecture) == (SYMBOL.replace("mix", "sum"), "sm_80")
    changed = {**COUNTED, InstructionClass.TENSOR: 1}
    del changed[InstructionClass.SPECIAL]
    assert other.counts == changed
    assert parse("\nFatbin ptx code:\n================\narch = sm_90\n") == ()


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("LD.E.64 R2, [R2.64]", InstructionClass.GLOBAL_LOAD),
        ("LDSM.16.M88.4 R4, [R8]", InstructionClass.SHARED_LOAD),
        ("ATOMS.ADD R2, [R4], R6", InstructionClass.ATOMIC),
        ("UTMALDG.2D [UR8], [UR4]", InstructionClass.ASYNC_COPY),
        ("HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24", InstructionClass.TENSOR),
        ("UIADD3 UR4, UR4, 0x1, URZ", InstructionClass.INTEGER),
        ("IMAD.SHL.U32 R1, R1, 0x4, RZ", InstructionClass.INTEGER),
        ("IMAD.MOV.U32 R1, RZ, RZ, R2", InstructionClass.MOVE),
        ("HFMA2.MMA R1, -RZ, RZ, 1.875, 0", InstructionClass.MOVE),
        ("HFMA2.BF16_V2 R1, R2, R3, R4", InstructionClass.FP16),
        ("FFMA R1, R2, R3, R4", InstructionClass.FP32),
        ("UCGABAR_WAIT", InstructionClass.BARRIER),
        ("NEWOP.X R1, R2", InstructionClass.OTHER),
    ],
)
def test_classes(instruction: str, expected: InstructionClass) -> None:
    line = f"        /*0010*/              @!P0 {instruction} ;   /* 0x000000000000794d */\n"
    [mix] = parse(f"\tcode for sm_90a\n\t\tFunction : f\n{line}")
    assert mix.counts == {expected: 1}


def test_no_opcode_is_in_two_classes() -> None:
    listed = Counter(opcode for opcodes in sass._OPCODES.values() for opcode in opcodes.split())
    assert [opcode for opcode, times in listed.items() if times > 1] == []
    assert class_of("LDG") is InstructionClass.GLOBAL_LOAD


def test_without_cuobjdump(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No mix, and how to get one."""
    monkeypatch.setattr(cuobjdump, "find", lambda: None)
    found = sass.disassembled(tmp_path / "run")
    assert isinstance(found, NoMix)
    assert "cudamaster[cuda]" in found.reason


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'cuobjdump fatal   : Could not find executable file nvdisasm' >&2; exit 1", "find executable file nvd"),
        ("exit 3", "exit code 3"),
    ],
)
def test_a_cuobjdump_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, reason: str) -> None:
    """The text that it printed before is no whole mix; one from the environment is taken."""
    tool = tmp_path / "cuobjdump"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{TEXT}\nEND\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("CUDAMASTER_CUOBJDUMP", str(tool))
    found = sass.disassembled(tmp_path / "run")
    assert isinstance(found, NoMix)
    assert reason in found.reason


def test_the_cuobjdump_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "cuobjdump"
    tool.write_text(f"#!/bin/sh\n[ \"$*\" = '-sass {tmp_path / 'run'}' ] && cat <<'END'\n{TEXT}\nEND\n")
    tool.chmod(0o755)
    monkeypatch.setenv("CUDAMASTER_CUOBJDUMP", str(tool))
    assert sass.disassembled(tmp_path / "run") == (InstructionMix(SYMBOL, "sm_90", COUNTED),)


@pytest.mark.nvcc
@pytest.mark.skipif(cuobjdump.find() is None, reason="cuobjdump is not installed")
def test_what_cuobjdump_says_here(tmp_path: Path) -> None:
    """Of a kernel that keeps an array in local memory, for two architectures."""
    (tmp_path / "k.cu").write_text(
        """__global__ void turn_kernel_optimized(float* p, int n) {
            float a[64];
            for (int i = 0; i < 64; ++i)
                a[i * n % 64] = p[i];
            p[threadIdx.x] = __expf(a[threadIdx.x % 64]);
        }"""
    )
    targets = ["-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=sm_90"]
    command = [str(find_nvcc()), "-O3", *targets, "-c", "k.cu", "-o", "k.o"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    found = sass.disassembled(tmp_path / "k.o")
    assert isinstance(found, tuple)
    assert {mix.architecture for mix in found} == {"sm_80", "sm_90"}
    for mix in found:
        assert mix.symbol == "_Z21turn_kernel_optimizedPfi"
        assert mix.counts[InstructionClass.GLOBAL_STORE] == 1
        assert mix.counts[InstructionClass.SPECIAL] == 1
        assert mix.counts[InstructionClass.LOCAL_LOAD] == 1
        assert mix.counts[InstructionClass.LOCAL_STORE] > 1
        assert InstructionClass.OTHER not in mix.counts
        assert InstructionClass.TENSOR not in mix.counts
