"""Builds what measuring needs: members of the family, the program that times them, and the way to PyTorch.

Everything is kept in the cache, under the hash of its source and of the command that built it.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cudamaster.core import resources
from cudamaster.core.errors import DeviceError
from cudamaster.core.values import content_hash
from cudamaster.devices.nvcc import COMPILE_LIMIT_S, find_nvcc
from cudamaster.devices.process import run_limited
from cudamaster.families.config import Config
from cudamaster.families.render import render
from cudamaster.vendor import libraries

_KERNEL = ("-std=c++17", "-O3", "-gencode=arch=compute_90a,code=sm_90a", "-Xcompiler", "-fPIC", "--shared")
_NVCC_FIX = "Install the CUDA toolkit, or put nvcc on the PATH."


def kernels(configs: Sequence[Config], built: Callable[[], None] = lambda: None) -> dict[Config, Path]:
    """A shared library of each configuration, whose band is an argument; `built` is told of each.

    Raises DeviceError.
    """

    def one(config: Config) -> Path:
        path = _kept(render(config, tuning=True), [_nvcc(), *_KERNEL, "--cudart", "shared"], "kernel")
        built()
        return path

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(configs, pool.map(one, configs), strict=True))


def bench() -> Path:
    """The program that times and checks, with cuBLAS and cuBLASLt. Raises DeviceError where they are not there."""
    source = resources.bench() / "hgemm" / "measure.cu"
    found = [libraries.find(each, _include_folders()) for each in libraries.LIBRARIES if each.name.startswith("cuBLAS")]
    links: list[str] = []
    for library in found:
        if isinstance(library, str):
            raise DeviceError(f"{library}.", "Install it: `.venv/bin/uv pip install nvidia-cublas`.")
        if library.shared is not None:
            links += ["-I", str(library.include), "-Xlinker", str(library.shared)]
    command = [_nvcc(), "-std=c++17", "-O2", "-arch=sm_90a", "-Xcompiler", "-fPIC", "--shared", "--cudart", "shared"]
    return _kept(source.read_text(encoding="utf-8"), [*command, *links, "-ldl"], "bench")


def torch() -> Path | str:
    """The way to torch.matmul, or why there is none."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return f"PyTorch is not installed for {sys.executable}"
    compiler = shutil.which("g++")
    if compiler is None:
        return "there is no g++ to build the way to PyTorch with"
    home = Path(spec.origin).parent
    includes = [home / "include", Path("/usr/local/cuda/include"), *_cuda_packages()]
    command = [compiler, "-std=c++17", "-O2", "-fPIC", "-shared", *(f"-I{path}" for path in includes)]
    links = [f"-L{home / 'lib'}", "-ltorch", "-ltorch_cpu", "-ltorch_cuda", "-lc10", "-lc10_cuda"]
    source = resources.bench() / "hgemm" / "torch_matmul.cpp"
    try:
        return _kept(source.read_text(encoding="utf-8"), command, "torch", links, suffix=".cpp")
    except DeviceError as error:
        return f"the way to PyTorch could not be built: {error}"


def _kept(text: str, command: list[str], what: str, links: Sequence[str] = (), suffix: str = ".cu") -> Path:
    folder = resources.cache() / "hgemm"
    folder.mkdir(exist_ok=True)
    product = folder / f"{what}-{content_hash(text, *command, *links)}.so"
    if product.is_file():
        return product
    source = product.with_suffix(suffix)
    made = product.with_suffix(f".{os.getpid()}.tmp")
    source.write_text(text, encoding="utf-8")
    ran = run_limited([*command, str(source), "-o", str(made), *links], COMPILE_LIMIT_S, folder=folder)
    if ran.exit_code != 0 or not made.is_file():
        last = "\n".join(ran.stderr.splitlines()[-5:])
        raise DeviceError(f"{shlex.join([*command[:1], source.name])} failed:\n{last}", _NVCC_FIX)
    made.replace(product)
    return product


def _nvcc() -> str:
    found = find_nvcc()
    if found is None:
        raise DeviceError("There is no nvcc.", _NVCC_FIX)
    return str(found)


def _include_folders() -> list[Path]:
    return [*_cuda_packages(), Path(_nvcc()).parent.parent / "include"]


def _cuda_packages() -> list[Path]:
    """Headers of the nvidia packages of this Python: the libraries that PyTorch loads come first."""
    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations or []) if spec else []
    return [path for folder in folders for path in sorted(Path(folder).glob("*/include"), reverse=True)]
