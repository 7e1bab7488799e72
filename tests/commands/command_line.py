"""`cudamaster` in a process of its own, and files that tests of several commands give it."""

import os
import subprocess
import sys
from pathlib import Path


def run(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """`cudamaster ARGUMENTS` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "cudamaster", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
        check=False,
    )


KERNEL = Path(__file__).parents[2] / "cudamaster/playbook/relu/fp32/1_wide_loads.cu"
RESULTS = Path(__file__).parents[2] / "results" / "h200"
BF16, FP32 = (RESULTS / f"spmv_csr_{kind}" / "best.cu" for kind in ("bf16", "fp32"))
