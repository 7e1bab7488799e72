"""Reading ptxas's resource usage, on a log of nvcc 13.0 for two architectures, and on what nvcc says here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cudamaster.devices.cuda import find_nvcc
from cudamaster.profiling.ptxas import Usage, parse

LOG = (Path(__file__).parent / "data" / "ptxas.txt").read_text()
SPILLS = "_ZN29_GLOBAL__N__821a5d49_4_b_cu_w22spill_kernel_optimizedEPfi"
MIX = "_ZN4ours20mix_kernel_optimizedILi{}EEEvP13__nv_bfloat16PfPi"


def test_kernels_of_both_architectures() -> None:
    """Each has its own figures; the frame of a device function that was not inlined is taken for none of them."""
    found = parse(LOG)
    assert [(usage.architecture, usage.symbol) for usage in found] == [
        (architecture, symbol)
        for architecture in ("sm_90", "sm_80")
        for symbol in (MIX.format(8), MIX.format(4), SPILLS)
    ]
    assert found[0] == Usage(MIX.format(8), "sm_90", 26, 1024, 160, 0, 0)
    assert found[2] == Usage(SPILLS, "sm_90", 32, 0, 280, 512, 536)
    assert found[5] == Usage(SPILLS, "sm_80", 32, 0, 288, 520, 536)


@pytest.mark.parametrize(
    ("used", "registers", "shared"),
    [
        ("Used 10 registers, used 1 barriers, 49152 bytes smem, 8 bytes lmem, 360 bytes cmem[0]", 10, 49152),
        ("Used 255 registers, 4096+16 bytes smem, 44 bytes cmem[0]", 255, 4096),  # with what older ptxas adds itself
        ("Used 8 registers, 376 bytes cmem[0]", 8, 0),
    ],
)
def test_what_is_not_named_is_not_used(used: str, registers: int, shared: int) -> None:
    log = f"ptxas info    : Compiling entry function 'a_kernel_optimized' for 'sm_80'\nptxas info    : {used}\n"
    assert parse(log) == (Usage("a_kernel_optimized", "sm_80", registers, shared),)


def test_a_log_that_was_cut_leaves_out_what_it_lacks() -> None:
    """Absent, and no zero; nothing of another kernel comes in its place."""
    lines = LOG.splitlines()
    entry = next(n for n, line in enumerate(lines) if SPILLS in line)
    assert parse("\n".join([*lines[: entry + 1], "[5000 bytes left out]"]))[-1] == Usage(SPILLS, "sm_90")
    assert parse("\n".join(lines[entry + 2 :]))[0].symbol == MIX.format(8)
    assert parse("") == ()


@pytest.mark.slow
@pytest.mark.nvcc
def test_what_nvcc_says_here(tmp_path: Path) -> None:
    """Of a kernel with 2 KiB of static shared memory that has to spill, as it may use 32 registers."""
    (tmp_path / "k.cu").write_text(
        """__global__ void __launch_bounds__(1024, 2) full_kernel_optimized(float* p, int n) {
            __shared__ float tile[512];
            float a[64];
            tile[threadIdx.x % 512] = p[threadIdx.x];
            __syncthreads();
            for (int i = 0; i < 64; ++i)
                a[i] = p[i * 1024 + threadIdx.x] + tile[i];
            for (int k = 0; k < n; ++k)
                _Pragma("unroll") for (int i = 0; i < 64; ++i) a[i] = a[i] * a[(i * 7 + 3) % 64];
            for (int i = 0; i < 64; ++i)
                p[i * 1024 + threadIdx.x] = a[i];
        }"""
    )
    command = [str(find_nvcc()), "-O3", "-arch=sm_80", "-Xptxas=-v", "-c", "k.cu", "-o", "k.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    [usage] = parse(done.stderr)
    assert (usage.symbol, usage.architecture) == ("_Z21full_kernel_optimizedPfi", "sm_80")
    assert (usage.registers, usage.shared_bytes) == (32, 2048)
    assert usage.spill_store_bytes
    assert usage.spill_load_bytes
    assert usage.stack_bytes
