"""On a machine with several GPUs, a judge and its workers see only one."""

import os
import subprocess
from pathlib import Path

import pytest

from cudamaster.core import resources
from cudamaster.devices.cuda import device_node

PROGRAM = """
#include <cstdlib>
#include "mskb/only_gpu.h"
int main(int, char** words) {
    mskb::see_only(words[1]);
    return std::system("ls /dev; readlink /dev/fd; touch /dev/null /dev/shm/mine && touch /dev/nvidia3 && ls /dev");
}
"""
# A /dev of files, in a mount namespace that only this shell has.
STAGE = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs {made}
mkdir {made}/shm
for name in null nvidia0 nvidia1 nvidia10 nvidiactl nvidia-uvm; do touch {made}/$name; done
ln -s /proc/self/fd {made}/fd
mount --move {made} /dev
{program} {node}
"""
ALL = ["fd", "null", "nvidia-uvm", "nvidia0", "nvidia1", "nvidia10", "nvidiactl", "shm"]


@pytest.mark.parametrize(
    ("node", "seen"),
    [("/dev/nvidia1", [name for name in ALL if name not in ("nvidia0", "nvidia10")]), ("/dev/nvidia2", ALL)],
)
def test_other_gpus_are_not_there(tmp_path: Path, node: str, seen: list[str]) -> None:
    """Their nodes are gone and cannot be made; all else is as before. A node that is not there changes nothing."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("making a mount namespace needs root")
    (tmp_path / "it.cpp").write_text(PROGRAM)
    include = resources.bench() / "include"
    subprocess.run(["g++", "-std=c++17", f"-I{include}", "it.cpp", "-o", "it"], cwd=tmp_path, check=True)
    (tmp_path / "dev").mkdir()
    script = STAGE.format(made=tmp_path / "dev", program=tmp_path / "it", node=node)
    done = subprocess.run(["unshare", "-m", "bash", "-c", script], capture_output=True, text=True, check=False)
    listed, _, after = done.stdout.partition("/proc/self/fd\n")
    assert listed.split() == seen, done.stderr
    assert bool(after) == (seen == ALL), "without a namespace of its own /dev can be written here"


def test_the_node_of_a_gpu_is_the_drivers_word(tmp_path: Path) -> None:
    for number, uuid in enumerate(("GPU-one", "GPU-two")):
        folder = tmp_path / f"0000:0{number}:00.0"
        folder.mkdir()
        text = f"Model: \t\t NVIDIA H200\nGPU UUID: \t {uuid}\nDevice Minor: \t {5 - number}\n"
        (folder / "information").write_text(text)
    assert device_node("GPU-two", tmp_path) == "/dev/nvidia4"
    assert device_node("GPU-three", tmp_path) is None
    assert device_node("GPU-one", tmp_path / "none") is None
