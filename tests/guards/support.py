"""What the guard tests share: one signature, one small honest region, the tools that are there."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cudamaster.guards.preprocess import NVCC_DEFINES, preprocess
from cudamaster.guards.refusal import Refusal
from cudamaster.guards.signature import Signature
from cudamaster.guards.source import check_source

SIGNATURE = Signature("task_optimized", (("const float*", "x"), ("float*", "y"), ("int", "n")))
HONEST = sorted((Path(__file__).parent / "honest").glob("*.cu"))
NVCC = shutil.which("nvcc")


def _cuda_headers() -> list[Path]:
    """The folders that nvcc itself searches; its place in PATH may be a wrapper."""
    if NVCC is None:
        return []
    said = subprocess.run([NVCC, "--dryrun", "-c", "x.cu"], capture_output=True, text=True, check=False).stderr
    return [Path(folder) for folder in re.findall(r'^#\$ (?:SYSTEM_)?INCLUDES=.*?"(?:-I)?(/[^"]+)" *$', said, re.M)]


CUDA_HEADERS = _cuda_headers()

needs_nvcc = pytest.mark.skipif(NVCC is None, reason="nvcc is not installed")

KERNEL = """
__global__ void copy_kernel_optimized(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
"""


def region(before: str = "", body: str = "", includes: str = "#include <cuda_runtime.h>\n") -> str:
    """An honest region with something put before the wrapper, and something into its body."""
    return f"""{includes}{KERNEL}
{before}
extern "C" void task_optimized(const float* x, float* y, int n) {{
    {body}
    copy_kernel_optimized<<<(n + 255) / 256, 256>>>(x, y, n);
}}
"""


def judge(code: str, *, headers: bool = False) -> Refusal | None:
    """The source guard with the preprocessor before it, with or without real CUDA headers."""
    folders = CUDA_HEADERS if headers else []
    expanded = preprocess(code, "g++", folders, NVCC_DEFINES, prelude=["cuda_runtime.h"] if folders else [])
    return expanded if isinstance(expanded, Refusal) else check_source(code, SIGNATURE, expanded)
