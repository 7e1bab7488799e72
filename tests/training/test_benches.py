"""The model and its judges on a machine with several GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_SMI = """\
#!/bin/sh
for n in 0 1 2; do
echo "NVIDIA H100, GPU-$n, 9.0, 580.0, 81559, 1980, 2619, 700.00, 0x0000000000000000"
done
"""
_ASKED = """\
import sys
from cudamaster.devices.cuda import find_gpus
from cudamaster.training import benches, libraries
there = find_gpus()
on = libraries.gpus_for(sys.argv[1], there)
judges = benches.chosen("cuda", None, on, there, None)
print(*(gpu.uuid for gpu in on), "|", *(gpu.uuid for gpu in judges.gpus))
"""


def _shared(device: str, folder: Path, visible: str | None = None) -> str:
    """Where a model with this setting is, and where its judges measure."""
    for name, text in (("nvidia-smi", _SMI), ("nvcc", "#!/bin/sh\necho 'Cuda compilation tools, release 13.0'\n")):
        program = folder / name
        program.write_text(text)
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "CUDAMASTER_CACHE": str(folder / "cache")}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    done = subprocess.run(
        [sys.executable, "-c", _ASKED, device], capture_output=True, text=True, env=environment, check=True
    )
    return done.stdout.strip()


def test_judges_have_the_gpus_that_the_model_is_not_on(tmp_path: Path) -> None:
    assert _shared("auto", tmp_path) == "GPU-0 | GPU-1 GPU-2"
    assert _shared("cuda:1", tmp_path) == "GPU-1 | GPU-0 GPU-2"
    assert _shared("auto", tmp_path, "2,0") == "GPU-2 | GPU-0"


def test_a_single_gpu_is_shared(tmp_path: Path) -> None:
    assert _shared("auto", tmp_path, "1") == "GPU-1 | GPU-1"
    assert _shared("cpu", tmp_path, "1") == "| GPU-1"
