"""Builds what measuring needs: members of the family, the program that times them, and the way to PyTorch.

Everything is kept in the cache, under the hash of its source, of the command that built it, and of the versions of the
compiler and of the libraries that it is built with.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

from cudamaster.core import resources
from cudamaster.core.errors import DeviceError
from cudamaster.core.values import content_hash
from cudamaster.devices import toolkit
from cudamaster.devices.nvcc import COMPILE_LIMIT_S, find_nvcc, release, shared_runtime
from cudamaster.devices.process import run_limited
from cudamaster.devices.protocol import linker_options
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
        command = [_nvcc(), *_KERNEL, *_runtime()]
        path = _kept(render(config, tuning=True), command, "kernel", release(Path(_nvcc())))
        built()
        return path

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(configs, pool.map(one, configs), strict=True))


def bench() -> Path:
    """The program that times and checks, with cuBLAS and cuBLASLt. Raises DeviceError where they are not there."""
    source = resources.bench() / "hgemm" / "measure.cu"
    found = [libraries.find(each, _include_folders()) for each in libraries.LIBRARIES if each.name.startswith("cuBLAS")]
    there: list[libraries.Found] = []
    for library in found:
        if isinstance(library, str):
            raise DeviceError(f"{library}.", "Install it: `pip install nvidia-cublas`.")
        there.append(library)
    # CUDA's runtime is found again by these too, in a process that PyTorch did not load it into.
    options = linker_options([each.shared for each in there if each.shared is not None])
    options += [f"-rpath={folder}" for folder in _library_folders()]
    links = [word for each in there for word in ("-I", str(each.include))]
    links += [word for option in options for word in ("-Xlinker", option)]
    about = " ".join([release(Path(_nvcc())), *(each.version for each in there)])
    command = [_nvcc(), "-std=c++17", "-O2", "-arch=sm_90a", "-Xcompiler", "-fPIC", "--shared", *_runtime()]
    return _kept(source.read_text(encoding="utf-8"), [*command, *links, "-ldl"], "bench", about)


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
    about = metadata.version("torch")
    links = [f"-L{home / 'lib'}", "-ltorch", "-ltorch_cpu", "-ltorch_cuda", "-lc10", "-lc10_cuda"]
    source = resources.bench() / "hgemm" / "torch_matmul.cpp"
    try:
        return _kept(source.read_text(encoding="utf-8"), command, "torch", about, links, ".cpp")
    except DeviceError as error:
        return f"the way to PyTorch could not be built: {error}"


def _kept(
    text: str, command: list[str], what: str, versions: str, links: Sequence[str] = (), suffix: str = ".cu"
) -> Path:
    folder = resources.cache() / "hgemm"
    folder.mkdir(exist_ok=True)
    product = folder / f"{what}-{content_hash(text, versions, *command, *links)}.so"
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


def _runtime() -> list[str]:
    """The options for a library that takes the process's own CUDA runtime."""
    return ["--cudart", "shared", *shared_runtime(Path(_nvcc()), resources.cache() / "hgemm" / "runtime")]


def _include_folders() -> list[Path]:
    return [*_cuda_packages(), Path(_nvcc()).parent.parent / "include"]


def _library_folders() -> list[Path]:
    """Where the runtime of this CUDA may lie: beside the headers, and where toolkits are installed."""
    homes = [*(include.parent for include in _include_folders()), Path("/usr/local/cuda")]
    return [folder for home in homes for folder in (home / "lib64", home / "lib") if folder.is_dir()]


def _cuda_packages() -> list[Path]:
    """Headers of the nvidia packages of this Python: the libraries that PyTorch loads come first."""
    return [home / "include" for home in toolkit.packaged() if (home / "include").is_dir()]
