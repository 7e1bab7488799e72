"""Where the programs of CUDA are: the system's toolkit first, then NVIDIA's packages in this Python's environment.

The packages, which `pip install 'cudamaster[cuda]'` brings, put a toolkit together in site-packages/nvidia/cu13.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

EXTRA = "pip install 'cudamaster[cuda]'"
_HOMES = ("CUDA_HOME", "CUDA_PATH")
_USUAL = "/usr/local/cuda"


def packaged() -> tuple[Path, ...]:
    """The toolkits that NVIDIA's packages have put together in this environment, e.g. .../nvidia/cu13; newest first."""
    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations or []) if spec else []
    return tuple(path for folder in folders for path in sorted(Path(folder).glob("*"), reverse=True) if path.is_dir())


def find(program: str, variable: str, packaged_as: Sequence[str] = ()) -> Path | None:
    """The first there is of $`variable`, the PATH, $CUDA_HOME, $CUDA_PATH, /usr/local/cuda and the packages.

    `packaged_as` are the program's paths in a packaged toolkit, by default bin/<program>.
    """
    homes = [*(os.environ.get(name) for name in _HOMES), _USUAL]
    places = [os.environ.get(variable), shutil.which(program)]
    places += [str(Path(home) / "bin" / program) for home in homes if home]
    places += [str(home / path) for home in packaged() for path in packaged_as or [f"bin/{program}"]]
    return next((Path(place) for place in places if place and os.access(place, os.X_OK)), None)
