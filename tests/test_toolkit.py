"""CUDA's tools: where they are looked for, and that a program can be linked with the driver where no toolkit is."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from cudamaster.devices import driver_stub, toolkit
from cudamaster.devices.cuda import CudaDevice, LocalGpu
from cudamaster.devices.nvcc import shared_runtime
from cudamaster.guards.symbols import CUDA_ALLOWED_SYMBOLS

ABSENT = LocalGpu(0, "No GPU", "GPU-0", "9.0", "580", "143771", "1980", "3201", "700")
MAPPED = """
#include <cuda.h>
int main() { return static_cast<int>(cuTensorMapReplaceAddress(nullptr, nullptr)); }
"""


def program(path: Path) -> Path:
    """An executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_systems_tools_come_before_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a package brings is found without a word; each place that a user names comes before those below it."""
    packages, home, path = tmp_path / "site-packages", tmp_path / "cuda", tmp_path / "path"
    for variable in ("CUDA_HOME", "CUDA_PATH", "ITS_OWN"):
        monkeypatch.delenv(variable, raising=False)

    def found() -> Path | None:
        return toolkit.find("cutool", "ITS_OWN", ["bin/cutool", "cutool/cutool"])

    assert found() is None
    program(packages / "nvidia" / "cu12" / "bin" / "cutool")
    packaged = program(packages / "nvidia" / "cu13" / "cutool" / "cutool")
    monkeypatch.syspath_prepend(packages)
    assert packages / "nvidia" / "cu13" in toolkit.packaged()
    assert found() == packaged, "the newest"
    for variable, place in (("CUDA_PATH", home / "old"), ("CUDA_HOME", home)):
        before = found()
        monkeypatch.setenv(variable, str(place))
        assert found() == before, "a folder without the tool"
        assert program(place / "bin" / "cutool") == found()
    on_path = program(path / "cutool")
    monkeypatch.setenv("PATH", str(path), prepend=":")
    assert found() == on_path
    own = program(tmp_path / "mine")
    monkeypatch.setenv("ITS_OWN", str(own))
    assert found() == own
    own.chmod(0o644)
    assert found() == on_path, "one that cannot be started"


def test_the_drivers_stand_in_has_what_candidates_may_call(tmp_path: Path) -> None:
    """And a program linked with it asks for the driver's own library."""
    folder = driver_stub.made(tmp_path)
    assert folder is not None
    named = subprocess.run(["nm", "-D", folder / "libcuda.so"], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1] for line in named.splitlines() if " T " in line}
    allowed = next(group for group in CUDA_ALLOWED_SYMBOLS if "cuTensorMap" in group)
    assert all(re.fullmatch(allowed, name) for name in names)
    assert len(names) == allowed.count("|") + 1, "each alternative"


@pytest.mark.nvcc
def test_what_makes_tensor_maps_is_linked_without_the_drivers_library(tmp_path: Path) -> None:
    device = CudaDevice(ABSENT)
    compiled = device.compile(MAPPED, ["-std=c++17"], "maps", tmp_path)
    assert compiled.object is not None, compiled.log
    linked = device.link([compiled.object], tmp_path / "maps")
    assert linked.object is not None, linked.log
    needed = subprocess.run(["readelf", "-d", linked.object], capture_output=True, text=True, check=True).stdout
    assert "Shared library: [libcuda.so.1]" in needed


def test_a_packages_runtime_is_linked_by_a_link_to_it(tmp_path: Path) -> None:
    """It has libcudart.so.13 and no libcudart.so, which is what a linker looks for."""
    home = tmp_path / "nvidia" / "cu13"
    nvcc = program(home / "bin" / "nvcc")
    (home / "lib").mkdir()
    shared = ["g++", "-shared", "-x", "c++", "/dev/null", "-Wl,-soname,libcudart.so.13", "-o"]
    subprocess.run([*shared, home / "lib" / "libcudart.so.13"], check=True)
    options = shared_runtime(nvcc, tmp_path / "links")
    (tmp_path / "empty.cpp").write_text("")
    link = ["g++", "-shared", "empty.cpp", "-Wl,--no-as-needed", *options, "-lcudart", "-o", "linked.so"]
    subprocess.run(link, cwd=tmp_path, check=True)
    needed = subprocess.run(
        ["readelf", "-d", tmp_path / "linked.so"], capture_output=True, text=True, check=True
    ).stdout
    assert "Shared library: [libcudart.so.13]" in needed
    (home / "lib" / "libcudart.so").symlink_to("libcudart.so.13")
    assert shared_runtime(nvcc, tmp_path / "links") == [f"-L{home / 'lib'}"]
